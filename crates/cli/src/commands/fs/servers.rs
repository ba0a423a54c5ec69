//! The cell's servers from this client: `fs checkservers`, `getserverprefs` and `setserverprefs`.

use std::process::ExitCode;

use clap::Args;
use local::failure::{Doing, FAILED, Failure};
use local::show;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::cache::Place;
use super::tree;

const CHECKSERVERS_HELP: &str = "\
EXAMPLES
    rialto fs checkservers
    rialto fs checkservers -path ~/tree --json";

const GETSERVERPREFS_HELP: &str = "\
EXAMPLES
    rialto fs getserverprefs
    rialto fs getserverprefs --json | jq '.[] | {host, rank}'

Of several servers that have a read-only volume, the one with the lowest rank is asked. A
server without a given rank is ranked by its round-trip time.";

const SETSERVERPREFS_HELP: &str = "\
EXAMPLES
    rialto fs setserverprefs -servers near.example.org 100 far.example.org 50000
    rialto fs setserverprefs near.example.org 100

SERVER is a name, an address, or an id as 'rialto fs getserverprefs' shows them. RANK is a
number up to 65535. It applies to volumes that are mounted from then on, or move from
another server, until the tree is unmounted.";

/// Checks which servers of the cell answer.
#[derive(Args, Debug)]
#[command(after_help = CHECKSERVERS_HELP)]
pub struct Checkservers {
    #[command(flatten)]
    place: Place,
}

/// Shows the order in which servers are asked.
#[derive(Args, Debug)]
#[command(after_help = GETSERVERPREFS_HELP)]
pub struct Getserverprefs {
    #[command(flatten)]
    place: Place,
}

/// Sets the order in which servers are asked.
#[derive(Args, Debug)]
#[command(after_help = SETSERVERPREFS_HELP)]
pub struct Setserverprefs {
    /// Servers, each with its rank.
    #[arg(
        long = "servers", value_names = ["SERVER", "RANK"], num_args = 2..,
        conflicts_with = "words",
    )]
    servers: Vec<String>,
    /// The same, without the option.
    #[arg(value_names = ["SERVER", "RANK"], num_args = 2..)]
    words: Vec<String>,
    #[command(flatten)]
    place: Place,
}

/// The attribute `rialto.servers`.
#[derive(Deserialize, Serialize)]
struct Known {
    server: String,
    host: String,
    addresses: Vec<String>,
    up: Option<bool>,
    rank: u16,
    round_trip_us: Option<u64>,
}

/// A server's name for people.
pub fn machine(host: &str, addresses: &[String], id: &str) -> String {
    match (host, addresses.first()) {
        ("", None) => id.to_owned(),
        ("", Some(address)) => address.clone(),
        (host, _) => host.to_owned(),
    }
}

impl Known {
    fn machine(&self) -> String {
        machine(&self.host, &self.addresses, &self.server)
    }

    fn is(&self, text: &str) -> bool {
        let at = |address: &String| {
            address == text || address.rsplit_once(':').is_some_and(|(host, _)| host == text)
        };
        self.server == text || self.host == text || self.addresses.iter().any(at)
    }
}

impl Place {
    fn servers(&self, attribute: &str) -> Result<Vec<Known>, Failure> {
        let place = self.find()?;
        tree::ask_json(&place, attribute, &format!("asking for the servers of {}", place.display()))
    }
}

impl Checkservers {
    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        let servers = self.place.servers("rialto.servers:check")?;
        let down: Vec<String> =
            servers.iter().filter(|known| known.up != Some(true)).map(Known::machine).collect();
        if json {
            show::json(&json!({ "answers": down.is_empty(), "servers": servers }));
        } else if down.is_empty() {
            println!("All servers are running.");
        } else {
            println!(
                "These servers unavailable due to network or server problems: {}.",
                down.join(" ")
            );
        }
        Ok(if down.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
    }
}

impl Getserverprefs {
    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        let servers = self.place.servers("rialto.servers")?;
        if json {
            show::json(&serde_json::to_value(&servers).expect("our reports have only string keys"));
            return Ok(ExitCode::SUCCESS);
        }
        for known in &servers {
            println!("{:<40} {:>5}", known.machine(), known.rank);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Setserverprefs {
    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        let place = self.place.find()?;
        let known = self.place.servers("rialto.servers")?;
        let words = if self.servers.is_empty() { &self.words } else { &self.servers };
        // All pairs are checked before one is set.
        let orders =
            words.chunks(2).map(|pair| order(&known, pair)).collect::<Result<Vec<_>, _>>()?;
        for (attribute, what) in &orders {
            match tree::get(&place, attribute) {
                Err(Errno::PERM) => {
                    return Err(Failure::new(what.clone(), "only root may").mend("run it as root"));
                }
                answer => {
                    answer.map(drop).map_err(|error| tree::refusal(&place, what.clone(), error))?;
                }
            }
        }
        if json {
            show::json(&json!({ "path": place, "set": orders.len() }));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The attribute that sets a server's rank, and the action for people.
fn order(known: &[Known], pair: &[String]) -> Result<(String, String), Failure> {
    let [server, rank] = pair else {
        return Err(Failure::new("ranking servers", "each SERVER needs a RANK behind it"));
    };
    let what = || format!("ranking {server}");
    let number: u16 = rank.parse().doing(what)?;
    let mut found = known.iter().filter(|known| known.is(server));
    match (found.next(), found.next()) {
        (Some(only), None) => Ok((format!("rialto.do:rank:{}:{number}", only.server), what())),
        (None, _) => Err(Failure::new(what(), "the cell has no such server")
            .mend("see 'rialto fs getserverprefs'")),
        (Some(_), Some(_)) => Err(Failure::new(what(), "several servers have that name")
            .mend("write its address or id, as 'rialto fs getserverprefs --json' shows them")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(id: &str, host: &str, address: &str) -> Known {
        let addresses = vec![address.to_owned()];
        Known {
            server: id.into(),
            host: host.into(),
            addresses,
            up: None,
            rank: 7,
            round_trip_us: None,
        }
    }

    #[test]
    fn servers_are_named_by_name_address_or_id() {
        let all = [
            known("01", "near", "10.0.0.1:7620"),
            known("02", "far", "10.0.0.2:7620"),
            known("03", "far", ""),
        ];
        let of = |server: &str, rank: &str| {
            order(&all, &[server.to_owned(), rank.to_owned()])
                .map(|(order, _)| order)
                .map_err(|error| error.to_string())
        };
        for server in ["01", "near", "10.0.0.1", "10.0.0.1:7620"] {
            assert_eq!(of(server, "5").as_deref(), Ok("rialto.do:rank:01:5"), "{server}");
        }
        assert!(of("far", "5").unwrap_err().contains("several"));
        assert!(of("nobody", "5").unwrap_err().contains("no such server"));
        assert!(of("near", "65536").is_err());
        assert!(order(&all, &["near".to_owned()]).is_err());
    }
}
