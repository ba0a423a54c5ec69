//! `rialto keys`: shows and renews the keys of a cell's server. They are files below its directory
//! (`crates/keys`); write access to them is the only right needed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, Subcommand, ValueEnum};
use keys::{SignOrder, SignedOrder, TokenKeys};
use local::cell::{CellDir, Where};
use local::failure::{Doing, Failure};
use local::show;
use serde_json::json;
use types::{Answer, GuardCall};

use super::cell_client::{CellOptions, odd};
use super::rules::{RulesClient, confirmed};
use crate::keeping::POLL_INTERVAL;
use crate::security;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto keys list
    rialto keys rotate at-rest      a new key for encrypted volumes
    rialto keys rotate tokens       a new key that signs tokens
    rialto keys rotate certificate  a new certificate of this server
    rialto keys rotate authority    a new authority of the cell, signed by the old one
    rialto keys retire              stops accepting the old one
    rialto keys withdraw afs2       ends the keys of that server
    rialto keys authority           where the key of the authority is, and how it leaves

No restart is needed: a running server uses a new key within ten seconds. Old keys stay for
the data and tokens that were made with them, until you remove their files:
    keys/at-rest/N.key  when the server's log reports that all is wrapped with a newer one;
                        backups of a partition need the key of their time
    keys/tokens/N.key   ten hours after the newer one was made, or to end all its tokens:
                        a running server refuses them within a second. Copy a new one to
                        all servers of the cell first, and remove the old one at each
Only the server with keys/ca.key makes a new authority. The others get its certificate with
their next one; 'rotate certificate' on each brings that at once. A server with a copy of
ca.key needs a copy of the new one, and of ca.pem. Clients follow when they next connect,
except those that have a fingerprint in cells.toml: replace it there. Then run 'rialto keys
retire' on each server.
Other servers know a server by the keys that the cell's database lists. A new key of this
server is shown when it is listed. 'withdraw' ends the keys of a server whose disk or key
file may be stolen; run it on another server of the cell. Within a second every server
refuses them, and they are never listed again. If that server had keys/ca.key, then make a
new authority first, and 'retire' the old one on each server: with the old one a thief makes
a new server. Afterwards search
'rialto vos listaddrs' for servers that you do not know, and remove them. A server that is
to come back is invited again: 'rialto cell invite', and 'rialto up --join' there; one with
keys/ca.key makes a new key itself: 'rialto keys rotate certificate'.
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
    /// Shows where the key of the cell's authority is, moves it away, or removes a copy.
    #[command(after_help = AUTHORITY_HELP)]
    Authority {
        /// Move the key and the certificates into this directory, which is off line from then on.
        #[arg(long, value_name = "DIR", group = "how")]
        move_to: Option<PathBuf>,
        /// Remove this server's copy of the key: another server must have one.
        #[arg(long, group = "how")]
        remove: bool,
        #[command(flatten)]
        place: Where,
    },
    /// Writes a request for a certificate, for 'rialto cell sign'.
    #[command(after_help = "EXAMPLES\n    rialto keys request")]
    Request {
        #[command(flatten)]
        place: Where,
    },
    /// Takes a certificate that 'rialto cell sign' made for this server.
    #[command(after_help = "EXAMPLES\n    rialto keys accept /media/stick/signed")]
    Accept {
        /// The signed certificate
        file: PathBuf,
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
            Verb::Authority { move_to, remove, place } => {
                authority(&place.cell()?, move_to.as_deref(), remove)?;
            }
            Verb::Request { place } => request(&place.cell()?)?,
            Verb::Accept { file, place } => accept(&place.cell()?, &file)?,
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
    let authorities: Vec<String> = cell
        .keys()
        .authority()
        .fingerprints()
        .unwrap_or_default()
        .iter()
        .map(ToString::to_string)
        .collect();
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

const AUTHORITY_HELP: &str = "\
EXAMPLES
    rialto keys authority                        is the key of the authority here?
    rialto keys authority --move-to /media/stick     takes it off line
    rialto keys authority --remove               on a server that joined with a copy

The holder of keys/ca.key can make servers of the cell. One server has it and signs the
certificates of all others, which ask by themselves when half of the time is over. Off line
it is safe from whoever takes over that server; then each certificate is signed by hand
('rialto cell sign'): that of a server that joins, and a new one of each server before the
old one ends, which 'rialto doctor' reports in time.";

fn authority(cell: &CellDir, move_to: Option<&Path>, remove: bool) -> Result<(), Failure> {
    let keys = cell.keys();
    let what = || "looking for the key of the cell's authority".to_owned();
    let print = keys.authority().fingerprint().doing(what)?;
    if let Some(dir) = move_to {
        let what = || format!("moving the key of the authority to {}", dir.display());
        let dir = std::path::absolute(dir).doing(what)?;
        keys.authority().move_to(&dir).doing(what)?;
        println!(
            "the key of the authority {print} is in {} and no longer here: take that away. \
             Backups with --keys and copies of keys/ have it still",
            dir.display()
        );
        return Ok(());
    }
    if remove {
        let what = || "removing this server's copy of the key of the authority".to_owned();
        if !keys.authority().can_sign() {
            println!("the key of the authority is not here");
            return Ok(());
        }
        let (_, request) = keys.signing_request().doing(what)?;
        let options = security::with_keys(&keys).doing(what)?;
        crate::certifying::certificate(cell, &options, &request).map_err(|why| {
            Failure::new(what(), format!("no other server signs in its place: {why}"))
                .mend("start the server that shall have it, or take it off line with --move-to DIR")
        })?;
        keys.authority().remove_key().doing(what)?;
        println!("removed: another server signs this one's certificates from now on");
        return Ok(());
    }
    println!("authority {print}");
    if keys.authority().can_sign() {
        println!("its key is here: this server signs the certificates of others");
    } else {
        println!("its key is not here: this server asks the one that has it");
    }
    Ok(())
}

fn request(cell: &CellDir) -> Result<(), Failure> {
    let what = || "requesting a certificate".to_owned();
    let keys = cell.keys();
    if keys.authority().can_sign() {
        let why = "this server has the key of the authority, and signs by itself";
        return Err(Failure::new(what(), why).mend("'rialto keys rotate certificate' makes one"));
    }
    let next = keys.next_signing_request().doing(what)?;
    let (key, signing_request) = next.map_or_else(|| keys.signing_request(), Ok).doing(what)?;
    let machine = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let order = SignOrder {
        cell: cell.config.name.clone(),
        server: cell.config.server.clone().unwrap_or_else(machine),
        roles: keys.certified_roles().unwrap_or_default(),
        hosts: security::names(cell),
        signing_request,
    };
    order.write(&keys).doing(what)?;
    println!(
        "wrote {}: sign it with 'rialto cell sign' where the authority is, then run 'rialto keys \
         accept FILE' here\nkey {key}",
        SignOrder::path(&keys).display()
    );
    Ok(())
}

fn accept(cell: &CellDir, file: &Path) -> Result<(), Failure> {
    let what = || format!("taking the certificate in {}", file.display());
    let signed = SignedOrder::read(file).doing(what)?;
    if signed.cell != cell.config.name {
        let why = format!("it is of the cell {}", signed.cell);
        return Err(Failure::new(what(), why).mend("name the directory of that server with --dir"));
    }
    signed.take(&cell.keys(), &security::names(cell)).doing(what)?;
    println!(
        "took the certificate: a running server shows it within {} s, 'rialto up' starts one",
        POLL_INTERVAL.as_secs()
    );
    Ok(())
}

fn retire(cell: &CellDir) -> Result<(), Failure> {
    let ended = cell
        .keys()
        .authority()
        .retire()
        .doing(|| "ending authorities before the present one".to_owned())?;
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
            cell.keys().authority().succeed(&cell.config.name, SystemTime::now()).doing(making)?;
            let print = cell.keys().authority().fingerprint().doing(making)?;
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
