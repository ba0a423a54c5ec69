//! `rialto import-afs`: the users and groups of a cell whose databases are OpenAFS's.
//!
//! They get the numbers that they have there, so that access lists of volumes that come from there
//! mean the same here. The records are brought in as those of a file are (`cell/import.rs`). A
//! repeated import makes the difference: one that is repeated in time follows that cell. It removes
//! only what an earlier one of the same run has seen there.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use afscell::{AfsCell, AfsPrincipal};
use clap::Args;
use guard::{Network, check_group_name, check_user_name, is_system};
use local::cell::{AfsClients, CellDir, Where};
use local::failure::{Doing, Failure};
use types::{PrincipalId, Privacy};

use super::cell::entry::ExportLine;
use super::cell::import::{ImportWay, Pruned, apply};
use super::cell_client::CellOptions;
use crate::reach::ReachOptions;
use crate::security::afs_keys;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto import-afs --dry-run           the changes that would be made
    rialto import-afs                     as cell.toml has it, after 'rialto up --join-afs'
    rialto import-afs --servers db1.example.org,db2.example.org \\
            --keys /etc/openafs/server/rxkad.keytab
    rialto import-afs --follow 60         again each minute, until it is stopped

Users and groups get the numbers, names, owners, privacy flags and members that they have in
the other cell. Whoever is here alone stays. With --follow a user or group that goes there
goes here, too.

EXIT CODES
    0  done
    1  failed
    3  no cell there, or its server does not run";

/// Brings in the users and groups of a cell of OpenAFS, or follows them.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct ImportAfs {
    /// Its database servers: host names or IPv4 addresses [default: those of [afs] in cell.toml]
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    servers: Vec<String>,
    /// The keys of its servers: a keytab with afs/CELL, a KeyFileExt or a KeyFile [default: those
    /// of [afs] in cell.toml]
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Its name, by which a keytab has its key [default: that of this cell]
    #[arg(long, value_name = "CELL")]
    from: Option<String>,
    /// Only print the changes.
    #[arg(long, short = 'n', conflicts_with = "follow")]
    dry_run: bool,
    /// Do it again each time after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    follow: Option<u64>,
    /// Print no single change.
    #[arg(long = "quiet")]
    is_quiet: bool,
    #[command(flatten)]
    options: CellOptions,
}

/// Brings in the users and groups of the cell that this one has joined.
pub(super) fn once(cell: &CellDir) -> Result<(), Failure> {
    let reach =
        ReachOptions { dir: Some(cell.dir().to_owned()), cell: None, via: None, localauth: true };
    let options = CellOptions { reach, json: true, more: (), as_uid: None };
    let (servers, keys, from) = (Vec::new(), None, None);
    let import =
        ImportAfs { servers, keys, from, dry_run: false, follow: None, is_quiet: true, options };
    import.run().map(drop)
}

/// Records of the other cell as they are brought in.
#[derive(Default)]
struct Brought {
    lines: Vec<ExportLine>,
    /// The numbers that the other cell has.
    known: BTreeSet<PrincipalId>,
    /// Why some are left out.
    left: Vec<String>,
}

impl ImportAfs {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let cell = self.cell()?;
        let mut known = BTreeSet::new();
        let mut told = BTreeSet::new();
        loop {
            let done = self.import(&cell, &mut known, &mut told);
            let Some(pause) = self.follow else { return done.map(|()| ExitCode::SUCCESS) };
            if let Err(failure) = done {
                eprintln!("rialto import-afs: {failure}");
            }
            std::thread::sleep(Duration::from_secs(pause));
        }
    }

    /// `known`: the numbers that earlier imports have seen there; `told`: what was told of them.
    fn import(
        &self,
        cell: &AfsCell,
        known: &mut BTreeSet<PrincipalId>,
        told: &mut BTreeSet<String>,
    ) -> Result<(), Failure> {
        let what = || "asking the other cell for its users and groups".to_owned();
        let there = afscell::principals(cell).doing(what)?;
        let brought = Brought::of(&there);
        for left in brought.left.into_iter().filter(|left| told.insert(left.clone())) {
            eprintln!("rialto import-afs: {left}");
        }
        known.extend(&brought.known);
        let pruned = Pruned::Those(known.clone());
        let (dry_run, is_told) = (self.dry_run, !self.is_quiet);
        let way = ImportWay { dry_run, pruned, is_told, keeps_locks: true };
        let changes = apply(&self.options, &brought.lines, way)?;
        if !self.options.json && (changes > 0 || self.follow.is_none()) {
            let done = if self.dry_run { "to be made" } else { "made" };
            println!(
                "{changes} changes {done}; the other cell has {} users and groups",
                there.len()
            );
        }
        Ok(())
    }

    fn cell(&self) -> Result<AfsCell, Failure> {
        let what = || "finding the other cell".to_owned();
        let place = Where { dir: self.options.reach.dir.clone(), clear: false };
        let ours = CellDir::find(&place.path()?)?;
        let joined = ours.as_ref().and_then(|ours| Some((ours, ours.config.afs.as_ref()?)));
        let servers = match (&self.servers[..], &joined) {
            ([], Some((_, AfsClients { databases, .. }))) if !databases.is_empty() => {
                databases.clone()
            }
            ([], _) => {
                let why = "neither --servers nor [afs] in cell.toml names its database servers";
                return Err(Failure::new(what(), why));
            }
            (names, _) => addresses(names)?,
        };
        let file = match (&self.keys, &joined) {
            (Some(file), _) => file.clone(),
            (None, Some((ours, AfsClients { keys: Some(file), .. }))) => ours.dir().join(file),
            (None, _) => {
                let why = "neither --keys nor [afs] in cell.toml names the keys of its servers";
                return Err(Failure::new(what(), why));
            }
        };
        let own = ours.as_ref().map(|ours| ours.config.name.clone());
        let name = self.from.clone().or(own).unwrap_or_default();
        let keys = Arc::new(afs_keys(&file, &name)?);
        AfsCell::open(servers, Some(keys)).doing(what)
    }
}

/// The IPv4 addresses of hosts, which is what AFS has.
pub(super) fn addresses(names: &[String]) -> Result<Vec<Ipv4Addr>, Failure> {
    let mut all = Vec::new();
    for name in names {
        let what = || format!("finding {name}");
        let found = (name.as_str(), 0).to_socket_addrs().doing(what)?;
        let before = all.len();
        all.extend(found.filter_map(|at| match at {
            std::net::SocketAddr::V4(at) => Some(*at.ip()),
            std::net::SocketAddr::V6(_) => None,
        }));
        if all.len() == before {
            return Err(Failure::new(what(), "it has no IPv4 address"));
        }
    }
    all.dedup();
    Ok(all)
}

impl Brought {
    fn of(there: &[AfsPrincipal]) -> Brought {
        let mut brought = Brought::default();
        let mut members = Vec::new();
        let name_of = |id: i32| {
            let at = there.binary_search_by_key(&id, |one| one.id).ok()?;
            Some(&*there[at].name)
        };
        for one in there {
            let id = PrincipalId(one.id);
            brought.known.insert(id);
            if let Some(why) = left_out(one) {
                brought.left.push(format!("{} ({}) is left out: {why}", one.name, one.id));
                continue;
            }
            if !is_system(id) {
                brought.lines.push(line(one, name_of(one.owner)));
            }
            members.push(one);
        }
        let has = |id: i32| {
            let at = there.binary_search_by_key(&id, |one| one.id).ok();
            at.is_some_and(|at| left_out(&there[at]).is_none())
        };
        for group in members {
            for member in group.members.iter().filter(|member| has(**member)) {
                let name = name_of(*member).unwrap_or_default();
                brought.lines.push(ExportLine::new("member", &group.name).with("member", name));
            }
        }
        brought
    }
}

/// Why a principal cannot be one here.
fn left_out(one: &AfsPrincipal) -> Option<&'static str> {
    if is_system(PrincipalId(one.id)) {
        return None;
    }
    if !one.is_group() && is_host(&one.name) {
        return Some("hosts are groups here: 'rialto pts createuser NETWORK/BITS' makes them");
    }
    let check = if one.is_group() { check_group_name } else { check_user_name };
    check(&one.name).err().map(|_| "no user or group can have that name here")
}

/// Whether a user's name is the address of a host or of a network, as AFS writes it.
fn is_host(name: &str) -> bool {
    name.parse::<Ipv4Addr>().is_ok() || name.parse::<Network>().is_ok()
}

fn line(one: &AfsPrincipal, owner: Option<&str>) -> ExportLine {
    let quota = one.group_quota.map_or_else(|| "any".to_owned(), |groups| groups.to_string());
    ExportLine::new(if one.is_group() { "group" } else { "user" }, &one.name)
        .with("id", &one.id)
        .with("privacy", &Privacy(one.privacy))
        .with("groupquota", &quota)
        .with_some("owner", owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(id: i32, name: &str, members: &[i32]) -> AfsPrincipal {
        let (name, members) = (name.to_owned(), members.to_vec());
        AfsPrincipal { id, name, owner: -204, privacy: 0x80, group_quota: Some(20), members }
    }

    #[test]
    fn records_are_those_of_a_file() {
        let there = [
            principal(-204, "system:administrators", &[7, 9]),
            AfsPrincipal {
                owner: 7,
                group_quota: None,
                ..principal(-7, "joe:friends", &[7, 9, 500])
            },
            principal(7, "joe", &[]),
            principal(9, "10.1.0.0", &[]),
        ];
        let brought = Brought::of(&there);
        let lines: Vec<_> = brought.lines.iter().map(ExportLine::text).collect();
        assert_eq!(
            lines,
            [
                "group joe:friends groupquota=any id=-7 owner=joe privacy=S----",
                "user joe groupquota=20 id=7 owner=system:administrators privacy=S----",
                "member system:administrators member=joe",
                "member joe:friends member=joe",
            ]
        );
        assert_eq!(brought.left.len(), 1, "{:?}", brought.left);
        assert_eq!(brought.known.len(), 4);
    }

    #[test]
    fn hosts_are_named_by_addresses() {
        assert_eq!(addresses(&["192.0.2.7".to_owned()]).unwrap(), [Ipv4Addr::new(192, 0, 2, 7)]);
        assert!(addresses(&["::1".to_owned()]).is_err());
    }
}
