//! `rialto keys`: shows and renews the keys of a cell's server. They are files below its directory
//! (`crates/keys`); write access to them is the only right needed.

use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, Subcommand, ValueEnum};
use keys::TokenKeys;
use local::cell::{CellDir, Where};
use local::failure::{Doing, Failure};
use local::show;
use serde_json::json;
use types::{Answer, GuardCall};

use super::cell_client::{CellOptions, odd};
use super::rules::{RulesClient, confirmed};
use crate::keeping::POLL_INTERVAL;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto keys list
    rialto keys rotate at-rest      a new key for encrypted volumes
    rialto keys rotate tokens       a new key that signs tokens
    rialto keys rotate certificate  a new certificate of this server
    rialto keys rotate authority    a new authority of the cell, signed by the old one
    rialto keys retire              stops accepting the old one
    rialto keys withdraw afs2       ends the keys of that server

No restart is needed: a running server uses a new key within ten seconds. Old keys stay for
the data and tokens that were made with them, until you remove their files:
    keys/at-rest/N.key  when the server's log reports that all is wrapped with a newer one;
                        backups of a partition need the key of their time
    keys/tokens/N.key   ten hours after the newer one was made, or to end all its tokens:
                        a running server refuses them within a second. Copy a new one to
                        all servers of the cell first, and remove the old one at each
After a new authority copy keys/ca.key and keys/ca.pem to all servers of the cell: each then
makes a certificate by it. Clients follow when they next connect, except those that have a
fingerprint in cells.toml: replace it there. Then run 'rialto keys retire' on each server.
Other servers know a server by the keys that the cell's database lists. A new key of this
server is shown when it is listed. 'withdraw' ends the keys of a server whose disk or key
file may be stolen; run it on another server of the cell. Within a second every server
refuses them, and they are never listed again. If keys/ca.key, which every server of the
cell has, may be stolen too, then make a new authority first, copy it to the others, and
'retire' the old one on each: with the old one a thief makes a new server. Afterwards search
'rialto vos listaddrs' for servers that you do not know, and remove them. A server that is
to come back makes a new key: 'rialto keys rotate certificate'.
With a key server ([at-rest] in cell.toml) there are no keys in keys/at-rest.

EXIT CODES
    0  done
    1  failed, or a server did not confirm: the message names the remedy
    3  no cell there";

/// Shows a server's keys, and makes newer ones.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Keys {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Lists the keys by number: the highest is used.
    #[command(after_help = "EXAMPLES\n    rialto keys list --json")]
    List {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: Where,
    },
    /// Makes a newer key.
    #[command(after_help = "EXAMPLES\n    rialto keys rotate at-rest")]
    Rotate {
        /// The kind of key
        what: KeyKind,
        #[command(flatten)]
        place: Where,
    },
    /// Stops accepting certificates of authorities before the present one.
    #[command(after_help = "EXAMPLES\n    rialto keys retire")]
    Retire {
        #[command(flatten)]
        place: Where,
    },
    /// Withdraws the keys by which the other servers of the cell know a server.
    #[command(
        after_help = "EXAMPLES\n    rialto keys withdraw afs2\n    rialto vos listaddrs --json | \
            jq .keys"
    )]
    Withdraw {
        /// Its name or id: 'rialto vos listaddrs -printuuid' lists them.
        server: String,
        #[command(flatten)]
        options: CellOptions,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeyKind {
    /// The key that wraps the keys of encrypted volumes.
    AtRest,
    /// The key that signs tokens.
    Tokens,
    /// This server's certificate, by the cell's authority.
    Certificate,
    /// The cell's authority, which signs certificates.
    Authority,
}

impl Keys {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.verb {
            Verb::List { json, place } => list(&place.cell()?, json)?,
            Verb::Rotate { what, place } => rotate(&place.cell()?, what)?,
            Verb::Retire { place } => retire(&place.cell()?)?,
            Verb::Withdraw { server, options } => return withdraw(&server, &options),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(cell: &CellDir, json: bool) -> Result<(), Failure> {
    let what = || "reading the cell's keys".to_owned();
    let at_rest = match &cell.config.at_rest {
        Some(_) => cell.at_rest().newest().doing(what)?.into_iter().collect(),
        None => cell.at_rest().numbers().doing(what)?,
    };
    let tokens = TokenKeys::of(cell.dir()).numbers().doing(what)?;
    let authorities: Vec<String> =
        cell.keys().fingerprints().unwrap_or_default().iter().map(ToString::to_string).collect();
    let authority = authorities.first();
    let server =
        cell.keys().shown().ok().and_then(|shown| shown.key_print()).map(|key| key.to_string());
    let next = cell.keys().next_key().doing(what)?.map(|key| key.to_string());
    if json {
        let before = authorities.get(1..);
        show::json(&json!({ "at_rest": at_rest, "tokens": tokens, "authority": authority,
                "before": before, "server": server, "next": next }));
        return Ok(());
    }
    let numbers = |numbers: &[u32]| match numbers {
        [] => "none".to_owned(),
        numbers => numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    println!(
        "at rest:    {}{}",
        numbers(&at_rest),
        if cell.config.at_rest.is_some() { ", of the key server" } else { "" }
    );
    println!("tokens:     {}", numbers(&tokens));
    println!(
        "authority:  {}",
        authority.map_or("none: the cell does not listen in the network", |print| print.as_str())
    );
    authorities.iter().skip(1).for_each(|print| println!("before it:  {print}"));
    server.iter().for_each(|key| println!("server:     {key}"));
    next.iter()
        .for_each(|key| println!("next:       {key}, shown when the cell's database lists it"));
    Ok(())
}

fn retire(cell: &CellDir) -> Result<(), Failure> {
    let ended =
        cell.keys().retire().doing(|| "ending authorities before the present one".to_owned())?;
    match ended {
        0 => println!("there is only one authority"),
        ended => println!(
            "{ended} before the present one count no more, here within {} s: clients that have \
                not connected since must be told of the present one",
            POLL_INTERVAL.as_secs()
        ),
    }
    Ok(())
}

fn withdraw(name: &str, options: &CellOptions) -> Result<ExitCode, Failure> {
    let client = RulesClient::open(options)?;
    let server = client.server(name)?;
    let doing = format!("withdrawing the keys of {name}");
    let Answer::Enforced { number, missing } =
        client.ask(&doing, GuardCall::WithdrawKeys { server })?
    else {
        return Err(odd(&doing));
    };
    let missing = client.server_names(&missing);
    if client.json {
        show::json(
            &json!({ "server": server.to_string(), "withdrawn": number, "missing": missing }),
        );
    } else {
        match number {
            0 => println!("{name} has no keys: no server accepts it as one of the cell"),
            number => println!(
                "withdrew {number} of {name}: no server accepts it as one of the cell any more"
            ),
        }
    }
    confirmed(&doing, &missing)
}

fn rotate(cell: &CellDir, what: KeyKind) -> Result<(), Failure> {
    let making = || "making a new key".to_owned();
    let soon = POLL_INTERVAL.as_secs();
    match what {
        KeyKind::AtRest if cell.config.at_rest.is_some() => {
            let why = "the cell's keys are a key server's, which makes them itself";
            return Err(Failure::new(making(), why).mend(
                "have it make a newer one: servers notice within a minute, and wrap \
                    everything with it",
            ));
        }
        KeyKind::AtRest => {
            let number = cell.at_rest().make().doing(making)?;
            println!(
                "made key {number}: within {soon} s the server wraps the keys of its encrypted \
                    volumes with it, and says so in its log"
            );
        }
        KeyKind::Tokens => {
            let number = TokenKeys::of(cell.dir()).make().doing(making)?;
            println!(
                "made key {number}: it signs from now on; copy keys/tokens/{number}.key to the \
                    other servers of the cell"
            );
        }
        KeyKind::Authority if cell.config.certificate.is_some() => {
            let why = "it is given in cell.toml, and was not made here";
            return Err(Failure::new("making a new certificate", why)
                .mend("replace its files: the server reads them anew"));
        }
        KeyKind::Authority => {
            cell.keys().succeed(&cell.config.name, SystemTime::now()).doing(making)?;
            let print = cell.keys().fingerprint().doing(making)?;
            println!(
                "made the authority {print}, signed by the one before: within {soon} s this \
                server has a certificate by it\n\
                 copy keys/ca.key and keys/ca.pem to the other servers of the cell; 'rialto keys \
                 retire' ends the one before"
            );
        }
        KeyKind::Certificate => {
            cell.keys().make_next_key().doing(making)?;
            println!(
                "made a new key: within {soon} s the server enters it in the cell's database, \
                makes a new certificate for it, and shows that on new connections"
            );
        }
    }
    Ok(())
}
