//! `rialto admin`: who administers a part of the cell: volumes by their names, a server, a partition.

use std::collections::HashMap;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use local::failure::Failure;
use local::show;
use serde_json::json;
use types::{Answer, GuardCall, Mandate, PrincipalId, Realm};

use super::desk::{AT_ONCE, Common, Desk, odd};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto admin add joe --volume 'home.*'      all volumes with such names
    rialto admin add joe --partition one /vicepa
    rialto admin add ops --server two           a group: each of its members
    rialto admin list
    rialto admin remove 42

Who administers volumes may do with 'vos' what needs no more than them: backup, snapshot,
release, set fields, remove. To make one he needs the name and a partition or server to
make it on, to move or copy one also the server that it goes to. He appoints nobody.

EXIT CODES
    0  done, on all servers
    1  refused or failed, or a server did not confirm: the message says which
    3  no cell there, or its server does not run";

/// Lets users and groups administer volumes, servers or partitions.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
pub struct Admin {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Add(Add),
    List(List),
    Remove(Remove),
}

/// Lets somebody administer a part of the cell.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true))]
#[command(
    after_help = "EXAMPLES\n    rialto admin add joe --volume 'home.*'\n    rialto admin add ops --partition one /vicepa"
)]
struct Add {
    /// The user or group.
    name: String,
    /// Volumes with this name, or with names that begin so: 'home.*'.
    #[arg(long, value_name = "PATTERN", group = "what")]
    volume: Option<String>,
    /// A server and all that it has.
    #[arg(long, value_name = "NAME", group = "what")]
    server: Option<String>,
    /// A partition of a server, as 'vos partinfo' calls it, and all that is on it.
    #[arg(long, value_names = ["SERVER", "PARTITION"], num_args = 2, group = "what")]
    partition: Vec<String>,
}

/// Shows who administers what.
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n    rialto admin list\n    rialto admin list --json")]
struct List {}

/// Takes that away.
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n    rialto admin remove 42")]
struct Remove {
    /// Its number.
    number: u64,
}

impl Admin {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let desk = Desk::open(self.common)?;
        match self.verb {
            Verb::Add(add) => add.run(&desk),
            Verb::List(_) => list(&desk),
            Verb::Remove(Remove { number }) => desk.change(
                &format!("removing the delegation {number}"),
                "removed",
                GuardCall::RemoveMandate { number },
            ),
        }
    }
}

impl Add {
    fn run(self, desk: &Desk) -> Result<ExitCode, Failure> {
        let realm = match (&self.volume, &self.server, &self.partition[..]) {
            (Some(pattern), ..) => Realm::Volumes(pattern.clone()),
            (_, Some(server), _) => Realm::Server(desk.server(server)?),
            (.., [server, partition]) => Realm::Partition(desk.server(server)?, partition.clone()),
            _ => return Err(Failure::new("reading the command", "nothing is to be administered")),
        };
        let (principal, what) = (desk.principal(&self.name)?, called(desk, &realm));
        let done = format!("{} administers {what}", self.name);
        let doing = format!("letting {} administer {what}", self.name);
        desk.change(&doing, &done, GuardCall::AddMandate { principal, realm })
    }
}

fn called(desk: &Desk, realm: &Realm) -> String {
    match realm {
        Realm::Volumes(pattern) => format!("volume {pattern}"),
        Realm::Server(server) => format!("server {}", desk.server_name(*server)),
        Realm::Partition(server, name) => format!("partition {} {name}", desk.server_name(*server)),
    }
}

fn list(desk: &Desk) -> Result<ExitCode, Failure> {
    let doing = "listing who administers what";
    let mut all: Vec<Mandate> = Vec::new();
    loop {
        let after = all.last().map_or(0, |mandate| mandate.number);
        let Answer::Mandates { mandates, end } = desk.ask(doing, GuardCall::Mandates { after, max: AT_ONCE })? else {
            return Err(odd(doing));
        };
        let empty = mandates.is_empty();
        all.extend(mandates);
        if end || empty {
            break;
        }
    }
    let ids = all.iter().flat_map(|mandate| [mandate.by, mandate.principal]);
    let names = desk.names(ids.collect())?;
    if desk.common.json {
        for Mandate { number, principal, realm, by } in &all {
            let (who, by) = (name(&names, *principal), name(&names, *by));
            show::json(&json!({ "number": number, "name": who, "administers": called(desk, realm), "by": by }));
        }
    } else {
        let row = |mandate: &Mandate| {
            let (who, by) = (name(&names, mandate.principal), name(&names, mandate.by));
            vec![mandate.number.to_string(), who, called(desk, &mandate.realm), by]
        };
        println!("{}", show::table(&["number", "name", "administers", "by"], &[0], all.iter().map(row).collect()));
    }
    Ok(ExitCode::SUCCESS)
}

fn name(names: &HashMap<PrincipalId, String>, id: PrincipalId) -> String {
    names.get(&id).cloned().unwrap_or_else(|| id.to_string())
}
