//! `rialto import-afs`: the users and groups, and the servers and volumes, of a cell whose
//! databases are OpenAFS's.
//!
//! Users and groups get the numbers that they have there, so that access lists of volumes that come
//! from there mean the same here. The records are brought in as those of a file are
//! (`cell/import.rs`); `volumes.rs` has the location database. A repeated import makes the
//! difference: one that is repeated in time follows that cell. It removes only what an earlier one
//! of the same run has seen there, and volumes that are at servers of AFS alone. The last import
//! makes the databases of this cell the ones that count.

mod volumes;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use afscell::{AfsCell, AfsPrincipal};
use clap::{Args, ValueEnum};
use guard::{Network, check_group_name, check_user_name, is_system};
use local::cell::{AfsClients, CellDir, Where};
use local::failure::{Doing, Failure};
use types::{PrincipalId, Privacy};

use self::volumes::{ImportCount, VolumeImport};
use super::cell::entry::ExportLine;
use super::cell::import::{ImportWay, Pruned, apply};
use super::cell::state::open;
use super::cell_client::CellOptions;
use crate::afs_databases;
use crate::reach::ReachOptions;
use crate::security::afs_keys;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto import-afs --dry-run           the changes that would be made
    rialto import-afs                     as cell.toml has it, after 'rialto up --join-afs'
    rialto import-afs --servers db1.example.org,db2.example.org \\
            --keys /etc/openafs/server/rxkad.keytab
    rialto import-afs --follow 60         again each minute, until it is stopped
    rialto import-afs --take-over         the last time: then this cell's databases count

Users and groups get the numbers, names, owners, privacy flags and members that they have in
the other cell. Whoever is here alone stays. With --follow a user or group that goes there
goes here, too.

Volumes at servers of AFS are entered in this cell's location database, so its clients
find them. A volume whose name or number another volume has here is left out, and named.

--take-over imports, and then takes 'databases' out of cell.toml: when the server has
started again it takes changes. Let nothing be changed there meanwhile, and name this
server in the CellServDB of clients and servers afterwards. 'rialto export-afs' gives
everything back.

EXIT CODES
    0  done
    1  failed
    3  no cell there, or its server does not run";

/// Brings in the users, groups and volumes of a cell of OpenAFS, or follows them.
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
    /// Import this alone [default: all].
    #[arg(long, value_enum, conflicts_with = "take_over")]
    only: Option<ImportPart>,
    /// Make this cell's databases the ones that count, after a last import.
    #[arg(long, conflicts_with_all = ["follow", "dry_run"])]
    take_over: bool,
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
    let (servers, keys, from, only) = (Vec::new(), None, None, None);
    let (dry_run, follow, take_over, is_quiet) = (false, None, false, true);
    let import =
        ImportAfs { servers, keys, from, dry_run, follow, only, take_over, is_quiet, options };
    import.run().map(drop)
}

/// A part of the other cell's databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ImportPart {
    /// Users and groups.
    Users,
    /// Servers and volumes.
    Volumes,
}

/// The records that earlier imports of the same run have seen.
#[derive(Default)]
struct ImportMemory {
    /// Numbers of users and groups.
    known: BTreeSet<PrincipalId>,
    /// The lines about those that are left out, each of which is told once.
    told: BTreeSet<String>,
    volumes: volumes::Seen,
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
        let mut memory = ImportMemory::default();
        loop {
            let done = self.import(&cell, &mut memory);
            let Some(pause) = self.follow else { return self.end(done?) };
            if let Err(failure) = done {
                eprintln!("rialto import-afs: {failure}");
            }
            std::thread::sleep(Duration::from_secs(pause));
        }
    }

    /// Returns how much is left out.
    fn import(&self, cell: &AfsCell, memory: &mut ImportMemory) -> Result<u64, Failure> {
        let mut left_out = 0;
        if self.only != Some(ImportPart::Volumes) {
            self.people(cell, memory)?;
        }
        if self.only != Some(ImportPart::Users) {
            let client = open(&self.options)?;
            let import = VolumeImport {
                client: &client,
                dry_run: self.dry_run,
                is_told: !self.is_quiet,
                json: self.options.json,
                seen: &mut memory.volumes,
                done: ImportCount::default(),
            };
            let ImportCount { changes, left_out: count, there } = import.run(cell)?;
            left_out = count;
            self.tell(changes, &format!("{there} volumes"));
        }
        Ok(left_out)
    }

    fn tell(&self, changes: u64, there: &str) {
        if !self.options.json && (changes > 0 || self.follow.is_none()) {
            let done = if self.dry_run { "to be made" } else { "made" };
            println!("{changes} changes {done}; the other cell has {there}");
        }
    }

    /// After the last import.
    fn end(&self, left_out: u64) -> Result<ExitCode, Failure> {
        const WHAT: &str = "taking over the databases";
        if !self.take_over {
            return Ok(ExitCode::SUCCESS);
        }
        if left_out > 0 {
            return Err(Failure::new(WHAT, format!("{left_out} volumes are left out")).mend(
                "rename those that have their names or numbers here ('rialto vos rename'), or \
                 remove them, and do it again",
            ));
        }
        let place = Where { dir: self.options.reach.dir.clone(), clear: false };
        let cell = place.cell()?;
        afs_databases::write(&cell, &[]).map_err(|why| Failure::new(WHAT, why))?;
        println!(
            "the databases of {} count from its server's next start on: 'rialto down' and 'rialto \
             up', or restart its service",
            cell.config.name
        );
        Ok(ExitCode::SUCCESS)
    }

    fn people(&self, cell: &AfsCell, memory: &mut ImportMemory) -> Result<(), Failure> {
        let ImportMemory { known, told, .. } = memory;
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
        self.tell(changes, &format!("{} users and groups", there.len()));
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
