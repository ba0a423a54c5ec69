//! Rules with numbers: what `fence` and `admin` do alike. A rule is added, all are listed, and one
//! is removed by its number.

use std::collections::HashMap;
use std::process::ExitCode;

use local::failure::Failure;
use local::show;
use serde_json::Value;
use types::{Answer, GuardCall, PrincipalId};

use super::client::{AT_ONCE, RulesClient};
use crate::commands::cell_client::{CellOptions, odd};

/// What is done.
pub enum Verb<A> {
    Add(A),
    List,
    /// The rule with this number.
    Remove(u64),
}

/// What adds a rule.
pub trait Adds {
    fn add(self, client: &RulesClient) -> Result<ExitCode, Failure>;
}

/// What is called how.
pub struct Names(HashMap<PrincipalId, String>);

impl Names {
    /// A number that nobody has is its own name.
    pub fn of(&self, id: PrincipalId) -> String {
        self.0.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

/// One kind of rules.
pub trait Numbered: Sized {
    /// What is done when all are listed, for people.
    const LISTING: &'static str;
    /// What one is called in the sentence of its removal.
    const CALLED: &'static str;
    /// Titles of the columns; the first is the number's.
    const COLUMNS: &'static [&'static str];

    /// Asks for so many behind this number.
    fn part(after: u64, max: u32) -> GuardCall;
    /// Those that came, and whether there are no more.
    fn came(answer: Answer) -> Option<(Vec<Self>, bool)>;
    fn removal(number: u64) -> GuardCall;
    fn number(&self) -> u64;
    /// Whose names are shown.
    fn principals(&self) -> Vec<PrincipalId>;
    fn json(&self, client: &RulesClient, names: &Names, now: i64) -> Value;
    /// What is in the columns behind the number.
    fn row(&self, client: &RulesClient, names: &Names, now: i64) -> Vec<String>;
}

/// Does it to rules of the kind `R`.
pub fn run<R: Numbered, A: Adds>(
    options: &CellOptions,
    verb: Verb<A>,
) -> Result<ExitCode, Failure> {
    let client = RulesClient::open(options)?;
    match verb {
        Verb::Add(add) => add.add(&client),
        Verb::List => list::<R>(&client),
        Verb::Remove(number) => client.change(
            &format!("removing the {} {number}", R::CALLED),
            "removed",
            R::removal(number),
        ),
    }
}

fn list<R: Numbered>(client: &RulesClient) -> Result<ExitCode, Failure> {
    let mut all: Vec<R> = Vec::new();
    loop {
        let after = all.last().map_or(0, R::number);
        let Some((rules, end)) = R::came(client.ask(R::LISTING, R::part(after, AT_ONCE))?) else {
            return Err(odd(R::LISTING));
        };
        let empty = rules.is_empty();
        all.extend(rules);
        if end || empty {
            break;
        }
    }
    let names = Names(client.names(all.iter().flat_map(R::principals).collect())?);
    let now = crate::commands::vos::now_secs();
    if client.json {
        all.iter().for_each(|rule| show::json(&rule.json(client, &names, now)));
    } else {
        let row =
            |rule: &R| [vec![rule.number().to_string()], rule.row(client, &names, now)].concat();
        println!("{}", show::table(R::COLUMNS, &[0], all.iter().map(row).collect()));
    }
    Ok(ExitCode::SUCCESS)
}
