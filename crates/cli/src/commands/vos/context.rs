//! The environment of the verbs: the servers of the cell, and the resolution of typed names into
//! servers, partitions and volumes.
//!
//! The entry is the server that was reached (`reach`): it answers for itself, and forwards queries
//! of the cell database. If the database does not answer, only that server is available. Over the
//! network all servers are asked by the caller's token, never with a server's keys.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use afs3::errors::{VOLSERBAD_ACCESS, VOLSERVOLBUSY};
use celldb::{CellDb, CellError, RemoteCellDb};
use local::cell::clear_by_environment;
use local::daemon::Process;
use local::failure::Failure;
use local::show::{Fetching, bytes as size};
use rx::rxkad::RxkadKeys;
use serde_json::Value;
use types::{
    Answer, Busy, Call, Fault, Name, PartitionInfo, PartitionNo, Revised, ServerId, ServerInfo,
    ServerKind, VolumeCall, VolumeGroup, VolumeId, VolumeInfo, WhichVolume,
};
use vos::{Job, JobEvent, JobLeader, ServerConnections, Servers, VosError};

use super::Telling;
use super::typed::{TypedSite, which};
use crate::commands::cell_client::{CELL_AWAY, CellClient, CellOptions, odd};
use crate::reach::{LoginState, Reach, ReachedCell};
use crate::security;

/// Volumes in one query: about as many as fit into an answer.
const LISTED_AT_ONCE: u32 = 2000;
/// Groups in one query.
const GROUPS_AT_ONCE: usize = 1000;

/// Sessions with the servers of a cell, and the options of a verb.
pub struct VosContext {
    pub json: bool,
    pub dry_run: bool,
    verbose: bool,
    cell: String,
    /// The caller's login, over the network.
    login: Option<LoginState>,
    /// The server that is asked runs on this machine.
    is_local: bool,
    me: ServerInfo,
    servers: Vec<ServerInfo>,
    db: Arc<dyn CellDb>,
    pub reach: ServerConnections,
    partitions: RefCell<HashMap<ServerId, Vec<PartitionInfo>>>,
    reports: RefCell<HashMap<ServerId, Value>>,
}

/// A volume, and its server.
#[derive(Clone, Debug)]
pub struct LocatedVolume {
    pub server: ServerId,
    pub info: VolumeInfo,
}

impl Deref for LocatedVolume {
    type Target = VolumeInfo;
    fn deref(&self) -> &VolumeInfo {
        &self.info
    }
}

/// A partition, and its server.
#[derive(Clone, Debug)]
pub struct LocatedPartition {
    pub server: ServerId,
    pub partition: PartitionInfo,
    /// The health of its disk, as its server reports it; null: the server does not say.
    pub health: Value,
}

impl LocatedPartition {
    /// Whether it gets new volumes (PH-3).
    pub(super) fn is_well(&self) -> bool {
        is_well(&self.health)
    }
}

impl VosContext {
    pub(crate) fn open(options: &CellOptions<Telling>) -> Result<VosContext, Failure> {
        let Telling { dry_run, verbose, ref keys } = options.more;
        let json = options.json;
        let client = CellClient::open(options, |doing, error| Failure::new(doing, error))?;
        let me = client.me()?;
        // The command continues without its session.
        let reached = client.reached;
        if verbose {
            eprintln!("rialto vos: {}", reached.way());
        }
        let login = reached.login_state();
        let is_local = matches!(reached.reach, Reach::Socket(_));
        let options = match &reached.reach {
            // A process that can read the server's keys acts at the others as that server.
            Reach::Socket(cell) => {
                security::as_server(cell.dir(), &cell.config.name, clear_by_environment())?
            }
            Reach::Network(_) => reached.options.clone(),
        };
        let keys = afs_keys(keys.as_deref(), &reached)?;
        let ReachedCell { name: cell, endpoint, caller, .. } = reached;
        let db: Arc<dyn CellDb> =
            Arc::new(RemoteCellDb::at(endpoint.clone(), options.clone()).asking_as(caller.clone()));
        let servers = match db.servers() {
            Ok(servers) if servers.iter().any(|seen| seen.record.id == me.id) => {
                servers.into_iter().map(|seen| seen.record).collect()
            }
            Ok(mut servers) => {
                servers.drain(..).map(|seen| seen.record).chain([me.clone()]).collect()
            }
            Err(error) => {
                eprintln!("rialto vos: only {} can be seen: {error}", me.name);
                vec![me.clone()]
            }
        };
        let reach = ServerConnections::new(Arc::clone(&db), [(me.id, endpoint)], options)
            .asking_as(caller)
            .with_afs_keys(keys);
        Ok(VosContext {
            json,
            dry_run,
            verbose,
            cell,
            login,
            is_local,
            me,
            servers,
            db,
            reach,
            partitions: RefCell::default(),
            reports: RefCell::default(),
        })
    }

    /// The failure of a refused call.
    pub fn refusal(&self, what: &str, error: &VosError) -> Failure {
        let failure = refusal(what, error);
        match self.login.as_ref().and_then(|login| login.remedy(error.fault())) {
            Some(remedy) => failure.mend(remedy),
            None => failure,
        }
    }

    /// The cell's database.
    pub fn db(&self) -> &dyn CellDb {
        &*self.db
    }

    /// The cell's name.
    pub fn cell_name(&self) -> &str {
        &self.cell
    }

    /// All servers of the cell.
    pub fn servers(&self) -> &[ServerInfo] {
        &self.servers
    }

    /// A server's name.
    pub fn server_name(&self, server: ServerId) -> String {
        let known = self.servers.iter().find(|one| one.id == server);
        known.map_or_else(|| server.to_string(), |one| one.name.clone())
    }

    /// The partitions of a server.
    pub(crate) fn partitions(&self, server: ServerId) -> Result<Vec<PartitionInfo>, Failure> {
        if let Some(known) = self.partitions.borrow().get(&server) {
            return Ok(known.clone());
        }
        let what = format!("asking {} for its partitions", self.server_name(server));
        let Answer::Partitions(partitions) = self.ask(&what, server, VolumeCall::Partitions)?
        else {
            return Err(odd(&what));
        };
        self.partitions.borrow_mut().insert(server, partitions.clone());
        Ok(partitions)
    }

    fn located(&self, server: ServerId, partition: PartitionInfo) -> LocatedPartition {
        let mut reports = self.reports.borrow_mut();
        let report = reports.entry(server).or_insert_with(|| {
            // Placement goes on without it: the server refuses a partition that is not well.
            match self.reach.send(server, Call::ServerReport) {
                Ok(Answer::Report(report)) => serde_json::from_str(&report).unwrap_or_default(),
                _ => Value::Null,
            }
        });
        let health = health_of(report, &partition.name);
        LocatedPartition { server, partition, health }
    }

    /// A partition's name.
    pub fn name_of(&self, server: ServerId, no: PartitionNo) -> String {
        let partitions = self.partitions(server).unwrap_or_default();
        partitions
            .into_iter()
            .find(|partition| partition.no == no)
            .map_or_else(|| "?".to_owned(), |one| one.name)
    }

    /// Sends a query to a server.
    pub(crate) fn ask(
        &self,
        what: &str,
        server: ServerId,
        call: VolumeCall,
    ) -> Result<Answer, Failure> {
        self.reach.call(server, call).map_err(|error| self.refusal(what, &error))
    }

    /// Sends a query about the files of a server's volume.
    pub(crate) fn ask_files(
        &self,
        what: &str,
        server: ServerId,
        call: Call,
    ) -> Result<Answer, Failure> {
        self.reach.send(server, call).map_err(|error| self.refusal(what, &error))
    }

    /// Does a change, or only reports it with `--dry-run`.
    pub(crate) fn change(
        &self,
        what: &str,
        server: ServerId,
        call: VolumeCall,
    ) -> Result<Option<Answer>, Failure> {
        if self.dry_run {
            eprintln!("would be done: {what}");
            return Ok(None);
        }
        self.ask(what, server, call).map(Some)
    }

    /// As [`VosContext::change`], for calls that return a volume.
    pub(crate) fn change_one(
        &self,
        what: &str,
        server: ServerId,
        call: VolumeCall,
    ) -> Result<Option<LocatedVolume>, Failure> {
        match self.change(what, server, call)? {
            None => Ok(None),
            Some(Answer::Volumes { mut volumes, .. }) if !volumes.is_empty() => {
                Ok(Some(LocatedVolume { server, info: volumes.swap_remove(0) }))
            }
            Some(_) => Err(odd(what)),
        }
    }

    /// Leads an operation on several servers; reports its steps with `-verbose` or `--dry-run`.
    pub(crate) fn lead<T>(
        &self,
        what: &str,
        act: impl FnOnce(&Job<'_>) -> Result<T, VosError>,
    ) -> Result<T, Failure> {
        let (dry_run, verbose) = (self.dry_run, self.verbose);
        let shown = Fetching::new();
        let tell = |told: JobEvent<'_>| match told {
            JobEvent::Step(step) if dry_run => eprintln!("would be done: {step}"),
            JobEvent::Step(step) if verbose => eprintln!("{step}"),
            JobEvent::Step(_) => {}
            JobEvent::Progress { server, bytes, total_bytes } => {
                shown.record(server, bytes, total_bytes);
            }
            JobEvent::Behind { server, changes, bytes } => {
                shown.say(format!("{server} is behind {changes} changes, {}", size(bytes)));
            }
            JobEvent::Note(note) => eprintln!("rialto vos: {note}"),
        };
        let who = JobLeader { by: by(), now_secs: &now_secs, is_over: &is_over };
        act(&Job { servers: &self.reach, who, dry_run, tell: &tell })
            .map_err(|error| self.refusal(what, &error))
    }

    /// Returns the typed server: by its name, the first part of that, its id, or an address.
    pub(crate) fn server(&self, text: &str) -> Result<ServerId, Failure> {
        let here = ["localhost", "127.0.0.1", "::1"].contains(&text) && self.is_local;
        if here || text == self.cell {
            return Ok(self.me.id);
        }
        let exact = |one: &&ServerInfo| one.name == text || one.id.to_string() == text;
        if let Some(found) = self.servers.iter().find(exact) {
            return Ok(found.id);
        }
        let like = |one: &&ServerInfo| {
            let short = one.name.split('.').next() == Some(text);
            short
                || one
                    .addresses
                    .iter()
                    .any(|at| at.to_string() == text || at.ip().to_string() == text)
        };
        let found: Vec<_> = self.servers.iter().filter(like).collect();
        let what = format!("finding the server {text}");
        match found[..] {
            [one] => Ok(one.id),
            [] => {
                let all: Vec<_> = self.servers.iter().map(|one| one.name.as_str()).collect();
                let why = format!("the cell {} has {}", self.cell, all.join(", "));
                Err(Failure::new(what, why).mend("name one of these"))
            }
            [..] => {
                let all: Vec<_> = found.iter().map(|one| one.name.as_str()).collect();
                Err(Failure::new(what, format!("{} are there", all.join(", ")))
                    .mend("name one of these"))
            }
        }
    }

    /// Returns the chosen servers: one, or all.
    pub(crate) fn chosen(&self, site: &TypedSite) -> Result<Vec<ServerId>, Failure> {
        match &site.server {
            Some(server) => Ok(vec![self.server(server)?]),
            None => Ok(self.servers.iter().map(|one| one.id).collect()),
        }
    }

    /// Returns the chosen partitions. Of several servers, silent ones are reported and left out.
    ///
    /// # Errors
    /// If there is no such server or partition, or a named server does not answer.
    pub fn spots(&self, site: &TypedSite) -> Result<Vec<LocatedPartition>, Failure> {
        let chosen = self.chosen(site)?;
        let mut spots = Vec::new();
        for server in &chosen {
            let partitions = match self.partitions(*server) {
                Err(failure) if chosen.len() > 1 => {
                    eprintln!("rialto vos: {failure}");
                    continue;
                }
                partitions => partitions?,
            };
            let meant = |one: &PartitionInfo| {
                site.partition.as_ref().is_none_or(|text| is_called(one, text))
            };
            spots.extend(
                partitions
                    .into_iter()
                    .filter(meant)
                    .map(|partition| self.located(*server, partition)),
            );
        }
        match &site.partition {
            Some(text) if spots.is_empty() => {
                let all: Vec<_> = chosen
                    .iter()
                    .flat_map(|server| self.partitions(*server).unwrap_or_default())
                    .collect();
                let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
                let why = format!("there are {}", names.join(", "));
                Err(Failure::new(format!("finding the partition {text}"), why)
                    .mend("name one of these, or add it to its server's cell.toml"))
            }
            _ => Ok(spots),
        }
    }

    /// Whether a server is one of AFS.
    pub(super) fn is_afs(&self, server: ServerId) -> bool {
        let known = self.servers.iter().find(|one| one.id == server);
        known.is_some_and(|one| one.kind() == ServerKind::Afs)
    }

    /// Returns the chosen partition with the most free space, of those that are well (PH-3). A
    /// server of AFS is chosen only by its name.
    pub(crate) fn roomiest(&self, site: &TypedSite) -> Result<LocatedPartition, Failure> {
        const WHAT: &str = "finding a partition";
        let mut spots = self.spots(site)?;
        spots.retain(|spot| site.server.is_some() || !self.is_afs(spot.server));
        let unwell = spots.iter().find(|spot| !spot.is_well()).map(|spot| {
            let (server, name) = (self.server_name(spot.server), &spot.partition.name);
            let how = spot.health["state"].as_str().unwrap_or_default();
            Failure::new(WHAT, format!("the disk of {name} of {server} is {how}")).mend(
                "name another partition; 'rialto vos partinfo' says what is wrong with it, and \
                    'rialto vos trustpart' that it works again",
            )
        });
        let well = spots.into_iter().filter(LocatedPartition::is_well);
        well.max_by_key(|spot| spot.partition.free_bytes).ok_or_else(|| {
            unwell.unwrap_or_else(|| {
                Failure::new(WHAT, "no server answers").mend("'rialto vos listaddrs' shows them")
            })
        })
    }

    /// Returns a volume by name or number, followed by the others of its group at its server.
    pub(crate) fn group(
        &self,
        text: &str,
        site: &TypedSite,
    ) -> Result<Vec<LocatedVolume>, Failure> {
        let found = self.found(text, site)?;
        Ok(found
            .volumes
            .into_iter()
            .map(|info| LocatedVolume { server: found.server, info })
            .collect())
    }

    /// As [`VosContext::group`], with the database's record.
    pub(crate) fn found(&self, text: &str, site: &TypedSite) -> Result<vos::FoundVolume, Failure> {
        let what = format!("finding the volume {text}");
        let at = site.server.as_ref().map(|server| self.server(server)).transpose()?;
        let found = vos::find(&self.reach, &which(text)?, at)
            .map_err(|error| self.refusal(&what, &error))?;
        let on = self.name_of(found.server, found.volume().partition);
        let partitions = self.partitions(found.server)?;
        let is_there =
            |text: &String| partitions.iter().any(|one| one.name == on && is_called(one, text));
        if site.partition.as_ref().is_none_or(is_there) {
            return Ok(found);
        }
        let why = format!("it is on {on} of {}", self.server_name(found.server));
        Err(Failure::new(what, why).mend("leave the partition out, or name that one"))
    }

    /// Returns a volume by name or number.
    pub(crate) fn volume(&self, text: &str, site: &TypedSite) -> Result<LocatedVolume, Failure> {
        Ok(self.group(text, site)?.swap_remove(0))
    }

    /// Returns the database's record of a volume's group.
    pub(crate) fn known(&self, text: &str) -> Result<Revised<VolumeGroup>, Failure> {
        let what = format!("finding {text} in the database");
        let asked = match which(text)? {
            WhichVolume::Id(number) => self.db.group_of(number),
            WhichVolume::Name(name) => match self.db.group_named(&name) {
                Ok(None) => self.db.group_named(&vos::base_name(&name)),
                asked => asked,
            },
        };
        let found = asked.map_err(|error| self.refusal(&what, &error.into()))?;
        found.ok_or_else(|| {
            Failure::new(what, "no such volume").mend(
                "'rialto vos listvldb' shows which there are, 'rialto vos syncvldb' enters \
                    what servers have",
            )
        })
    }

    /// Visits all groups of the database, in batches.
    pub(crate) fn each_group(
        &self,
        visit: &mut dyn FnMut(Vec<Revised<VolumeGroup>>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut after = VolumeId(0);
        loop {
            let groups = self.db.groups(after, GROUPS_AT_ONCE);
            let groups =
                groups.map_err(|error| self.refusal("asking the database", &error.into()))?;
            let Some(last) = groups.last() else { return Ok(()) };
            after = last.record.read_write;
            visit(groups)?;
        }
    }

    /// Visits the volumes of a partition by number, in batches.
    pub(crate) fn each(
        &self,
        spot: &LocatedPartition,
        visit: &mut dyn FnMut(Vec<VolumeInfo>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut after = VolumeId(0);
        let what = format!("listing volumes of {}", self.server_name(spot.server));
        loop {
            let call =
                VolumeCall::List { partition: spot.partition.no, after, max: LISTED_AT_ONCE };
            let Answer::Volumes { volumes, end } = self.ask(&what, spot.server, call)? else {
                return Err(odd(&what));
            };
            let Some(last) = volumes.last() else { return Ok(()) };
            after = last.id;
            visit(volumes)?;
            if end {
                return Ok(());
            }
        }
    }
}

/// The cell's keys of AFS: those in the file, or else those that this machine's server uses.
///
/// # Errors
/// That of a file that is named.
fn afs_keys(file: Option<&Path>, reached: &ReachedCell) -> Result<Option<Arc<RxkadKeys>>, Failure> {
    let cell = &reached.name;
    if let Some(file) = file {
        return security::afs_keys(file, cell).map(|keys| Some(Arc::new(keys)));
    }
    let Reach::Socket(dir) = &reached.reach else { return Ok(None) };
    let own = dir.config.afs.as_ref().and_then(|afs| afs.keys.as_ref());
    // Few commands need them; one that does says that there are none.
    let read = own.and_then(|own| security::afs_keys(&dir.dir().join(own), cell).ok());
    Ok(read.map(Arc::new))
}

/// The health of a partition in its server's report; null: the server does not say.
pub(super) fn health_of(report: &Value, partition: &str) -> Value {
    let mut all = report["partitions"].as_array().into_iter().flatten();
    let found = all.find(|one| one["name"] == partition);
    found.map_or(Value::Null, |one| one["health"].clone())
}

/// Whether a partition of this health gets new volumes. A server of an earlier version says
/// nothing.
pub(super) fn is_well(health: &Value) -> bool {
    health["state"].as_str().is_none_or(|state| state == "well")
}

/// Whether a partition has this name: `/vicepa`, `vicepa`, `a`, or its number from 0 on.
fn is_called(one: &PartitionInfo, text: &str) -> bool {
    let names = [text.to_owned(), format!("/{text}"), format!("/vicep{text}")];
    names.contains(&one.name) || one.no.0.to_string() == text
}

/// The name as text; the server accepts no other names.
pub fn text(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

pub fn now_secs() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The leader's name, in a form that [`is_over`] parses.
fn by() -> String {
    let process =
        Process::this().map_or_else(|_| std::process::id().to_string(), |process| process.label());
    format!("process {process} of {}", host())
}

/// Whether the process that leads an operation has ended: only its own machine can know.
fn is_over(busy: &Busy) -> bool {
    let words = busy.by.strip_prefix("process ").and_then(|rest| rest.split_once(" of "));
    let Some((process, at)) = words else { return false };
    at == host() && Process::labelled(process).is_some_and(|process| !process.is_alive())
}

/// Whether a code is one of rxkad, with which a server refuses a token.
fn is_rxkad(code: i32) -> bool {
    afs3::errors::code_name(code).is_some_and(|name| name.starts_with("RXKAD"))
}

fn refusal(what: &str, error: &VosError) -> Failure {
    let mend = match error {
        VosError::NoVolume => "'rialto vos listvol' and 'rialto vos listvldb' show which there are",
        VosError::Away { .. } => {
            "check that it runs; then repeat the command, which continues the operation"
        }
        VosError::Busy { .. } => {
            "wait for that; if its leader has ended, 'rialto vos unlock' frees it"
        }
        VosError::Unfit(_) | VosError::HalfRestored | VosError::Odd(_) => {
            return Failure::new(what, error);
        }
        VosError::NoAfsKey { .. } => {
            "name the file with --keys, or run this on the machine of a server with [afs] keys"
        }
        VosError::AfsRefused { code, .. } if *code == VOLSERBAD_ACCESS || is_rxkad(*code) => {
            "its key is another one, or the file named with --keys has an old one"
        }
        VosError::AfsRefused { code: VOLSERVOLBUSY, .. } => {
            "another program is at work on it: 'rialto vos status SERVER' shows its transactions, \
             'rialto vos endtrans' ends one whose program has ended"
        }
        VosError::AfsRefused { .. } => "its log, VolserLog, may say more",
        VosError::Cell(CellError::Taken { .. }) => "choose another name",
        VosError::Cell(_) | VosError::Refused { .. } => return fault_refusal(what, error),
    };
    Failure::new(what, error).mend(mend)
}

fn fault_refusal(what: &str, error: &VosError) -> Failure {
    let mend = match error.fault() {
        Some(Fault::NoVolume) => "'rialto vos listvol' shows which there are",
        Some(Fault::Exists) => {
            return Failure::new(what, "a volume of this cell has that name")
                .mend("choose another name");
        }
        Some(Fault::ReadOnly) => "name the read-write volume of its group",
        Some(Fault::Offline) => "'rialto vos online' brings it back",
        Some(Fault::Medium) => {
            "'rialto vos partinfo' says how its disks are: name another partition"
        }
        Some(Fault::NoSpace) => "remove something from that partition, or name another",
        Some(Fault::Busy) => {
            "somebody has files of it open for writing, or is at work on it: try again"
        }
        Some(Fault::NotPermitted) => {
            "administrators may, and the server's user and root on its machine"
        }
        Some(Fault::CellAway) => CELL_AWAY,
        Some(Fault::Invalid) => {
            return Failure::new(what, "the server does not accept these arguments").mend(
                "names have letters, digits, dots, hyphens and underscores, and end in .backup or \
                    .readonly only where they must",
            );
        }
        _ => "'rialto status' and 'rialto doctor' find causes",
    };
    Failure::new(what, error).mend(mend)
}
