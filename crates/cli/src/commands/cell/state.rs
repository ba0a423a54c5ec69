//! The records of a cell, as its server answers them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use client::CallError;
use guard::is_system;
use local::failure::Failure;
use types::limits::PRINCIPALS_MAX;
use types::{
    Answer, Call, CellCall, Fault, Fence, GuardCall, Mandate, Principal, PrincipalId,
    PrincipalKind, PtsCall, Realm, VolumeGroup, VolumeId, Whom,
};

use super::entry::ExportLine;
use crate::commands::cell_client::{CELL_AWAY, CellClient, CellOptions, odd};

/// How long a change may take: a rule waits for silent servers.
const TIMEOUT: Duration = Duration::from_secs(30);
const FIRST: PrincipalId = PrincipalId(i32::MIN);
const AT_ONCE: u32 = PRINCIPALS_MAX as u32;

/// Begins a session with the cell's server.
pub(in crate::commands) fn open(options: &CellOptions) -> Result<CellClient, Failure> {
    CellClient::within(options, refused, TIMEOUT)
}

fn refused(doing: &str, error: &CallError) -> Failure {
    let failure = Failure::new(doing, error);
    match error.fault() {
        Some(Fault::NotPermitted) => failure.mend("only members of system:administrators may"),
        Some(Fault::CellAway) => failure.mend(CELL_AWAY),
        _ => failure,
    }
}

/// Users, groups and members.
pub struct People {
    /// All principals by number.
    pub all: BTreeMap<PrincipalId, Principal>,
    /// The members of each group that has any.
    pub members: BTreeMap<PrincipalId, Vec<PrincipalId>>,
    numbers: HashMap<String, PrincipalId>,
}

impl People {
    pub(super) fn fetch(client: &CellClient) -> Result<People, Failure> {
        let doing = "listing users and groups";
        let mut all = BTreeMap::new();
        let mut after = FIRST;
        loop {
            let call = PtsCall::Entries { after, max: AT_ONCE };
            let Answer::Principals { principals, end } = client.ask_pts(doing, call)? else {
                return Err(odd(doing));
            };
            let last = principals.last().map(|(one, _)| one.id);
            all.extend(principals.into_iter().map(|(one, _)| (one.id, one)));
            match last {
                Some(last) if !end => after = last,
                _ => break,
            }
        }
        let mut members = BTreeMap::new();
        for id in all.values().filter(|one| one.kind != PrincipalKind::User).map(|one| one.id) {
            let found = members_of(client, id)?;
            if !found.is_empty() {
                members.insert(id, found);
            }
        }
        let numbers = all.values().map(|one| (one.name.clone(), one.id)).collect();
        Ok(People { all, members, numbers })
    }

    /// The principal of this name.
    pub fn named(&self, name: &str) -> Option<&Principal> {
        self.all.get(self.numbers.get(name)?)
    }

    /// The name of a number; an unused number is its own name.
    pub fn name(&self, id: PrincipalId) -> String {
        self.all.get(&id).map_or_else(|| id.to_string(), |one| one.name.clone())
    }

    /// Records a new or changed principal.
    pub fn put(&mut self, one: Principal) {
        self.numbers.insert(one.name.clone(), one.id);
        self.all.insert(one.id, one);
    }

    /// The entry of a principal; `None`: every cell has it.
    pub fn entry(&self, one: &Principal) -> Option<ExportLine> {
        let kind = match one.kind {
            PrincipalKind::User => "user",
            PrincipalKind::Group => "group",
            PrincipalKind::Hosts => "hosts",
        };
        let owner = (one.owner != PrincipalId::NONE).then(|| self.name(one.owner));
        let entry = ExportLine::new(kind, &one.name)
            .with("id", &one.id)
            .with("privacy", &one.privacy)
            .with("groupquota", &quota(one.group_quota))
            .with_some("uid", one.uid)
            .with_some("gid", one.gid)
            .with_some("owner", owner)
            .with_some("locked", one.locked.then_some("yes"));
        (!is_system(one.id)).then_some(entry)
    }
}

/// A quota of groups, for people.
pub fn quota(groups: u32) -> String {
    if groups == u32::MAX { "any".to_owned() } else { groups.to_string() }
}

fn members_of(client: &CellClient, id: PrincipalId) -> Result<Vec<PrincipalId>, Failure> {
    let doing = "listing members";
    let (mut all, mut after) = (Vec::new(), FIRST);
    loop {
        let call = PtsCall::Membership { id, groups: false, after, max: AT_ONCE };
        let Answer::Names { names, end } = client.ask_pts(doing, call)? else {
            return Err(odd(doing));
        };
        let last = names.last().map(|(id, _)| *id);
        all.extend(names.into_iter().map(|(id, _)| id));
        match last {
            Some(last) if !end => after = last,
            _ => return Ok(all),
        }
    }
}

/// All fences and administrators of parts.
pub(super) fn rules(client: &CellClient) -> Result<(Vec<Fence>, Vec<Mandate>), Failure> {
    let doing = "listing fences and administrators";
    let ask = |call| client.ask(doing, Call::Guard { behalf: None, call: Box::new(call) });
    let (mut fences, mut mandates) = (Vec::<Fence>::new(), Vec::<Mandate>::new());
    loop {
        let after = fences.last().map_or(0, |fence| fence.number);
        let Answer::Fences { fences: some, end } = ask(GuardCall::Fences { after, max: AT_ONCE })?
        else {
            return Err(odd(doing));
        };
        let is_last = end || some.is_empty();
        fences.extend(some);
        if is_last {
            break;
        }
    }
    loop {
        let after = mandates.last().map_or(0, |mandate| mandate.number);
        let call = GuardCall::Mandates { after, max: AT_ONCE };
        let Answer::Mandates { mandates: some, end } = ask(call)? else { return Err(odd(doing)) };
        let is_last = end || some.is_empty();
        mandates.extend(some);
        if is_last {
            return Ok((fences, mandates));
        }
    }
}

/// The entry of a fence.
pub fn fence_entry(fence: &Fence, people: &People) -> ExportLine {
    let whom = match fence.whom {
        Whom::User(id) => format!("user:{}", people.name(id)),
        Whom::Hosts { address, prefix } => format!("host:{address}/{prefix}"),
        Whom::Token(number) => format!("token:{number:032x}"),
        Whom::Client(client) => format!("client:{:032x}", client.0),
        Whom::Session(session) => format!("session:{}", session.0),
    };
    let until = (fence.until != 0).then_some(fence.until);
    ExportLine::new("fence", whom).with_some("until", until).with("why", &fence.why)
}

/// The entry of an administrator of a part.
pub fn mandate_entry(mandate: &Mandate, people: &People) -> ExportLine {
    let part = match &mandate.realm {
        Realm::Volumes(pattern) => format!("volume:{pattern}"),
        Realm::Server(server) => format!("server:{server}"),
        Realm::Partition(server, name) => format!("partition:{server}:{name}"),
    };
    ExportLine::new("admin", people.name(mandate.principal)).with("part", &part)
}

/// The volumes that the database lists.
pub(super) fn groups(client: &CellClient) -> Result<Vec<VolumeGroup>, Failure> {
    let doing = "listing volumes";
    let mut all: Vec<VolumeGroup> = Vec::new();
    loop {
        let after = all.last().map_or(VolumeId(0), |group| group.read_write);
        let call = Call::Cell(CellCall::Groups { after, max: AT_ONCE });
        let Answer::Groups { groups, end } = client.ask(doing, call)? else {
            return Err(odd(doing));
        };
        let is_last = end || groups.is_empty();
        all.extend(groups.into_iter().map(|seen| seen.record));
        if is_last {
            return Ok(all);
        }
    }
}
