//! `rialto admin`: administrators of a part of the cell: of volumes by their names, of a server, of
//! a partition.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use local::failure::Failure;
use serde_json::{Value, json};
use types::{Answer, GuardCall, Mandate, PrincipalId, Realm};

use super::client::RulesClient;
use super::numbered::{self, Adds, Names, Numbered};
use crate::commands::cell_client::CellOptions;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto admin add joe --volume 'home.*'      all volumes with such names
    rialto admin add joe --partition one /vicep
    rialto admin add ops --server two           a group: each of its members
    rialto admin list
    rialto admin remove 42

An administrator of volumes may use the verbs of 'vos' that need only these: backup,
snapshot, release, setfields, remove. Making one needs the name and a partition or server
for it; moving or copying one also needs the destination. Such administrators appoint no
others.

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
    options: CellOptions,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Add(Add),
    /// Lists administrators and their parts of the cell.
    #[command(after_help = "EXAMPLES\n    rialto admin list\n    rialto admin list --json")]
    List,
    /// Takes the administration of a part away.
    #[command(after_help = "EXAMPLES\n    rialto admin remove 42")]
    Remove {
        /// Its number in the list.
        number: u64,
    },
}

/// Lets a user or group administer a part of the cell.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true))]
#[command(
    after_help = "EXAMPLES\n    rialto admin add joe --volume 'home.*'\n    rialto admin add ops \
        --partition one /vicep"
)]
struct Add {
    /// The user or group.
    name: String,
    /// The volumes of this name, or whose names begin so: 'home.*'.
    #[arg(long, value_name = "PATTERN", group = "what")]
    volume: Option<String>,
    /// A server and everything on it.
    #[arg(long, value_name = "NAME", group = "what")]
    server: Option<String>,
    /// A partition of a server, as 'vos partinfo' names it, and everything on it.
    #[arg(long, value_names = ["SERVER", "PARTITION"], num_args = 2, group = "what")]
    partition: Vec<String>,
}

impl Admin {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let verb = match self.verb {
            Verb::Add(add) => numbered::Verb::Add(add),
            Verb::List => numbered::Verb::List,
            Verb::Remove { number } => numbered::Verb::Remove(number),
        };
        numbered::run::<Mandate, Add>(&self.options, verb)
    }
}

impl Adds for Add {
    fn add(self, client: &RulesClient) -> Result<ExitCode, Failure> {
        let realm = match (&self.volume, &self.server, &self.partition[..]) {
            (Some(pattern), ..) => Realm::Volumes(pattern.clone()),
            (_, Some(server), _) => Realm::Server(client.server(server)?),
            (.., [server, partition]) => {
                Realm::Partition(client.server(server)?, partition.clone())
            }
            _ => {
                return Err(Failure::new(
                    "reading the command",
                    "no volume, server or partition is given",
                ));
            }
        };
        let (principal, what) = (client.principal(&self.name)?, called(client, &realm));
        let done = format!("{} administers {what}", self.name);
        let doing = format!("letting {} administer {what}", self.name);
        client.change(&doing, &done, GuardCall::AddMandate { principal, realm })
    }
}

fn called(client: &RulesClient, realm: &Realm) -> String {
    match realm {
        Realm::Volumes(pattern) => format!("volume {pattern}"),
        Realm::Server(server) => format!("server {}", client.server_name(*server)),
        Realm::Partition(server, name) => {
            format!("partition {} {name}", client.server_name(*server))
        }
    }
}

impl Numbered for Mandate {
    const LISTING: &'static str = "listing administrators";
    const CALLED: &'static str = "delegation";
    const COLUMNS: &'static [&'static str] = &["number", "name", "administers", "by"];

    fn part(after: u64, max: u32) -> GuardCall {
        GuardCall::Mandates { after, max }
    }

    fn rules_of(answer: Answer) -> Option<(Vec<Mandate>, bool)> {
        match answer {
            Answer::Mandates { mandates, end } => Some((mandates, end)),
            _ => None,
        }
    }

    fn removal(number: u64) -> GuardCall {
        GuardCall::RemoveMandate { number }
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn principals(&self) -> Vec<PrincipalId> {
        vec![self.by, self.principal]
    }

    fn json(&self, client: &RulesClient, names: &Names, _now: i64) -> Value {
        let (who, by) = (names.of(self.principal), names.of(self.by));
        json!({ "number": self.number, "name": who, "administers": called(client, &self.realm),
            "by": by })
    }

    fn row(&self, client: &RulesClient, names: &Names, _now: i64) -> Vec<String> {
        vec![names.of(self.principal), called(client, &self.realm), names.of(self.by)]
    }
}
