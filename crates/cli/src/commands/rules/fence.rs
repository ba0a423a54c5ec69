//! `rialto fence`: refuses users, hosts, sessions and tokens on all servers of the cell.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use guard::Network;
use local::failure::Failure;
use serde_json::{Value, json};
use types::{Answer, GuardCall, PrincipalId, SessionId, Whom};

use super::client::RulesClient;
use super::numbered::{self, Adds, Names, Numbered};
use crate::commands::cell_client::CellOptions;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto fence add --user joe --why 'laptop stolen'
    rialto fence add --host 10.1.2.0/24 --for 1h
    rialto fence add --session 17          the client of that session of this server
    rialto fence add --token 2f0e...       that token alone, and not its owner
    rialto fence list
    rialto fence remove 42

Every server refuses all requests of a fenced caller. When the command returns, none of them
is executed any more; if a server did not confirm, the command names it and fails, although
the fence is in force. Root at a server's own socket is never fenced.

EXIT CODES
    0  done, on all servers
    1  refused or failed, or a server did not confirm: the message says which
    3  no cell there, or its server does not run";

/// Refuses users, hosts, sessions or tokens at once and everywhere.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
pub struct FenceCommand {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    options: CellOptions,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Add(Add),
    /// Shows all fences.
    #[command(after_help = "EXAMPLES\n    rialto fence list\n    rialto fence list --json")]
    List,
    /// Removes a fence.
    #[command(after_help = "EXAMPLES\n    rialto fence remove 42")]
    Remove {
        /// Its number in the list.
        number: u64,
    },
}

/// Adds a fence, or changes its time.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("whom").required(true))]
#[command(
    after_help = "EXAMPLES\n    rialto fence add --user joe --for 2h --why 'laptop stolen'\n    \
        rialto fence add --host 2001:db8::/32"
)]
struct Add {
    /// Callers with this user's identity, by a token or a trusted host.
    #[arg(long, value_name = "NAME", group = "whom")]
    user: Option<String>,
    /// Callers at this address, or at one of this network.
    #[arg(long, value_name = "ADDRESS[/PREFIX]", group = "whom", value_parser = network)]
    host: Option<Network>,
    /// The client of a session of the server that is asked, also in its later sessions: 'rialto
    /// status --json | jq .report.who' lists them.
    #[arg(long, value_name = "ID", group = "whom")]
    session: Option<u64>,
    /// The token with this number, 32 hexadecimal digits: the same list has them.
    #[arg(long, value_name = "ID", group = "whom", value_parser = token)]
    token: Option<u128>,
    /// Duration, such as 90s, 15m, 1h or 7d; without it until the fence is removed.
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    time: Option<u64>,
    /// The reason, for people.
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

fn network(text: &str) -> Result<Network, String> {
    text.parse()
        .map_err(|_| "write an address, or ADDRESS/PREFIX with zeros behind the prefix".to_owned())
}

fn token(text: &str) -> Result<u128, String> {
    u128::from_str_radix(text, 16).map_err(|_| "write its 32 hexadecimal digits".to_owned())
}

/// Parses a duration as people write it, into seconds.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let bad = || "write a number and s, m, h or d, such as 90s or 1h".to_owned();
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(bad)?;
    let each = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => return Err(bad()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(each));
    seconds.filter(|seconds| *seconds > 0).ok_or_else(bad)
}

impl FenceCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let verb = match self.verb {
            Verb::Add(add) => numbered::Verb::Add(add),
            Verb::List => numbered::Verb::List,
            Verb::Remove { number } => numbered::Verb::Remove(number),
        };
        numbered::run::<types::Fence, Add>(&self.options, verb)
    }
}

impl Adds for Add {
    fn add(self, client: &RulesClient) -> Result<ExitCode, Failure> {
        let whom = match (&self.user, self.host, self.session, self.token) {
            (Some(user), ..) => Whom::User(client.principal(user)?),
            (_, Some(host), ..) => Whom::Hosts { address: host.address(), prefix: host.bits() },
            (_, _, Some(session), _) => Whom::Session(SessionId(session)),
            (.., token) => Whom::Token(token.unwrap_or(0)),
        };
        let who =
            self.user.as_ref().map_or_else(|| whom.to_string(), |user| format!("user {user}"));
        let call = GuardCall::AddFence { whom, seconds: self.time.unwrap_or(0), why: self.why };
        client.change(&format!("fencing {who}"), &format!("{who} is fenced"), call)
    }
}

impl Numbered for types::Fence {
    const LISTING: &'static str = "listing fences";
    const CALLED: &'static str = "fence";
    const COLUMNS: &'static [&'static str] = &["number", "whom", "left", "by", "why"];

    fn part(after: u64, max: u32) -> GuardCall {
        GuardCall::Fences { after, max }
    }

    fn rules_of(answer: Answer) -> Option<(Vec<types::Fence>, bool)> {
        match answer {
            Answer::Fences { fences, end } => Some((fences, end)),
            _ => None,
        }
    }

    fn removal(number: u64) -> GuardCall {
        GuardCall::RemoveFence { number }
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn principals(&self) -> Vec<PrincipalId> {
        [Some(self.by), user_of(&self.whom)].into_iter().flatten().collect()
    }

    fn json(&self, _client: &RulesClient, names: &Names, now: i64) -> Value {
        json!({
            "number": self.number, "whom": called(&self.whom, names), "since": self.since,
            "until": self.until,
            "in_force": self.until == 0 || now < self.until, "by": names.of(self.by),
            "why": self.why,
        })
    }

    fn row(&self, _client: &RulesClient, names: &Names, now: i64) -> Vec<String> {
        let left = match self.until {
            0 => "no end".to_owned(),
            until if until <= now => "ended".to_owned(),
            until => format!("{} s", until - now),
        };
        vec![called(&self.whom, names), left, names.of(self.by), self.why.clone()]
    }
}

fn user_of(whom: &Whom) -> Option<PrincipalId> {
    match whom {
        Whom::User(id) => Some(*id),
        _ => None,
    }
}

fn called(whom: &Whom, names: &Names) -> String {
    user_of(whom).map_or_else(|| whom.to_string(), |id| format!("user {}", names.of(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, wanted) in [("90s", 90), ("15m", 900), ("1h", 3600), ("7d", 604_800)] {
            assert_eq!(seconds(text), Ok(wanted), "{text}");
        }
        for bad in ["", "1", "h", "0s", "-1h", "1.5h", "1w", "99999999999999999999d", "1\u{e9}"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
