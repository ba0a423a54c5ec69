//! Numbered rules: the common part of `fence` and `admin`. A rule is added, all are listed, and one
//! is removed by its number.

use std::collections::HashMap;
use std::process::ExitCode;

use local::failure::Failure;
use local::show;
use serde_json::Value;
use types::{Answer, GuardCall, PrincipalId};

use super::client::{AT_ONCE, RulesClient};
use crate::commands::cell_client::{CellOptions, odd};

/// An action on rules.
pub enum Verb<A> {
    Add(A),
    List,
    /// Removes the rule with this number.
    Remove(u64),
}

/// Options that add a rule.
pub trait Adds {
    fn add(self, client: &RulesClient) -> Result<ExitCode, Failure>;
}

/// Names of principals by number.
pub struct Names(HashMap<PrincipalId, String>);

impl Names {
    /// The name; an unused number is its own name.
    pub fn of(&self, id: PrincipalId) -> String {
        self.0.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

/// A kind of rule.
pub trait Numbered: Sized {
    /// The action of listing, for people.
    const LISTING: &'static str;
    /// The rule's noun in the message of its removal.
    const CALLED: &'static str;
    /// Titles of the columns; the first is the number's.
    const COLUMNS: &'static [&'static str];

    /// The call for at most `max` rules after this number.
    fn part(after: u64, max: u32) -> GuardCall;
    /// The rules of an answer, and whether there are no more.
    fn rules_of(answer: Answer) -> Option<(Vec<Self>, bool)>;
    fn removal(number: u64) -> GuardCall;
    fn number(&self) -> u64;
    /// The principals whose names are shown.
    fn principals(&self) -> Vec<PrincipalId>;
    fn json(&self, client: &RulesClient, names: &Names, now: i64) -> Value;
    /// The columns after the number.
    fn row(&self, client: &RulesClient, names: &Names, now: i64) -> Vec<String>;
}

/// Runs a verb for rules of the kind `R`.
pub(crate) fn run<R: Numbered, A: Adds>(
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
        let Some((rules, end)) = R::rules_of(client.ask(R::LISTING, R::part(after, AT_ONCE))?)
        else {
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
