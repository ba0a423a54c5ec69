//! The cell's database when another server has it: every call goes there.
//!
//! The session begins with the first call, so that servers start in any order. Whoever asks waits no longer than [`CALL_WITHIN`]; while that server cannot be
//! reached nobody waits for it but one at a time, now and then.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use celldb::{Access, CellDb, CellError, News};
use client::{CallError, Endpoint, Identity, Options, Remote, Session, SessionConfig};
use parking_lot::Mutex;
use types::{
    Answer, Call, Caller, CellCall, Changed, Fault, Name, Revision, Seen, ServerId, ServerInfo, VolumeGroup, VolumeId,
    WhichVolume,
};

mod principals;
mod rules;
mod told;

use rules::Ruled;
use told::Told;

type Result<T> = std::result::Result<T, CellError>;

/// How long one call may take.
const CALL_WITHIN: Duration = Duration::from_secs(10);
/// How long a session may take to begin.
const ATTACH_WITHIN: Duration = Duration::from_secs(3);
/// For so long after a failure nobody tries.
const REST: Duration = Duration::from_secs(1);

/// The database at another server.
pub struct RemoteCell {
    endpoint: Endpoint,
    options: Options,
    line: Mutex<Line>,
    told: Told,
    ruled: Ruled,
    caller: Caller,
}

/// The way to that server.
#[derive(Default)]
struct Line {
    session: Option<Arc<Session>>,
    failed: Option<Instant>,
}

impl RemoteCell {
    /// At this server, where root's sessions may make changes.
    pub fn at(endpoint: Endpoint, options: Options) -> Self {
        RemoteCell {
            endpoint,
            options,
            line: Mutex::default(),
            told: Told::default(),
            ruled: Ruled::default(),
            caller: Caller::ROOT,
        }
    }

    /// Keeps the cell's rules in this file, and begins with those that are there.
    pub fn keeping_rules_in(mut self, file: PathBuf) -> Self {
        self.ruled.keep_in(file);
        self
    }

    /// Asks as this one, and not as the superuser.
    pub fn asking_as(mut self, caller: Caller) -> Self {
        self.caller = caller;
        self
    }

    /// Who finds another at it waits for that one's luck.
    fn session(&self) -> std::result::Result<Arc<Session>, Fault> {
        let mut line = self.line.lock();
        if line.failed.is_some_and(|at| at.elapsed() < REST) {
            return Err(Fault::CellAway);
        }
        if let Some(session) = &line.session {
            return Ok(Arc::clone(session));
        }
        let mut config = SessionConfig::new(self.endpoint.clone(), Identity::fleeting());
        config.options = self.options.clone();
        config.attach_within = Some(ATTACH_WITHIN);
        config.call_within = Some(CALL_WITHIN);
        config.display = format!("server, process {}", std::process::id());
        match Session::connect(config) {
            Ok(session) => Ok(Arc::clone(line.session.insert(Arc::new(session)))),
            Err(error) => Err(self.failed(&mut line, &error)),
        }
    }

    fn ask(&self, call: CellCall) -> std::result::Result<Answer, Fault> {
        self.call(Call::Cell(call))
    }

    fn call(&self, call: Call) -> std::result::Result<Answer, Fault> {
        match self.session()?.call(&self.caller, call, None) {
            Ok(reply) => Ok(reply.answer),
            Err(CallError::Fault(fault)) => Err(fault),
            Err(error) => Err(self.failed(&mut self.line.lock(), &error)),
        }
    }

    /// A session outlives its connections, but not its end.
    fn failed(&self, line: &mut Line, error: &CallError) -> Fault {
        tracing::debug!(%error, endpoint = %self.endpoint, "the server of the cell's database cannot be asked");
        line.failed = Some(Instant::now());
        if !matches!(error, CallError::TimedOut) {
            line.session = None;
        }
        Fault::CellAway
    }

    /// A question, or a change that is refused for no reason that has words of its own.
    fn answer<T>(&self, call: CellCall, take: impl FnOnce(Answer) -> Option<T>) -> Result<T> {
        let answer = self.ask(call).map_err(CellError::Away)?;
        // The session took only an answer of the kind that belongs to the call.
        take(answer).ok_or(CellError::Away(Fault::Invalid))
    }

    /// A change of the record that is at `expected`; the reasons to refuse it as they are for who is beside the database.
    fn change(
        &self,
        call: CellCall,
        expected: Revision,
        found: impl FnOnce() -> Result<Revision>,
        taken: impl FnOnce() -> Result<Option<CellError>>,
    ) -> Result<Revision> {
        match self.ask(call) {
            Ok(Answer::Revision(revision)) => Ok(revision),
            Ok(_) => Err(CellError::Away(Fault::Invalid)),
            Err(Fault::Conflict) => Err(CellError::Conflict { expected, found: found()? }),
            Err(Fault::Exists) => Err(taken()?.unwrap_or(CellError::Away(Fault::Exists))),
            Err(Fault::Invalid) => Err(CellError::Misuse("no such record can be".to_owned())),
            Err(fault) => Err(CellError::Away(fault)),
        }
    }

    fn group(&self, volume: WhichVolume) -> Result<Option<Seen<VolumeGroup>>> {
        match self.ask(CellCall::Group { volume }) {
            Ok(Answer::Groups { mut groups, .. }) => Ok(groups.pop()),
            Ok(_) => Err(CellError::Away(Fault::Invalid)),
            Err(Fault::NoVolume) => Ok(None),
            Err(fault) => Err(CellError::Away(fault)),
        }
    }

    fn found_group(&self, read_write: VolumeId) -> Result<Revision> {
        let found = self.group_of(read_write)?.filter(|seen| seen.record.read_write == read_write);
        Ok(found.map(|seen| seen.revision).unwrap_or_default())
    }

    fn found_server(&self, id: ServerId) -> Result<Revision> {
        let found = self.servers()?.into_iter().find(|seen| seen.record.id == id);
        Ok(found.map(|seen| seen.revision).unwrap_or_default())
    }

    /// Whose the name or a number of the group is.
    fn taken(&self, group: &VolumeGroup) -> Result<Option<CellError>> {
        let other = |seen: Option<Seen<VolumeGroup>>| {
            seen.map(|seen| seen.record.read_write).filter(|by| *by != group.read_write)
        };
        if let Some(by) = other(self.group_named(&group.name)?) {
            let what = format!("the name {}", String::from_utf8_lossy(group.name.as_bytes()));
            return Ok(Some(CellError::Taken { what, by }));
        }
        for number in group.numbers() {
            if let Some(by) = other(self.group_of(number)?) {
                return Ok(Some(CellError::Taken { what: format!("the number {}", number.0), by }));
            }
        }
        Ok(None)
    }
}

impl CellDb for RemoteCell {
    fn group_named(&self, name: &Name) -> Result<Option<Seen<VolumeGroup>>> {
        self.group(WhichVolume::Name(name.clone()))
    }

    fn group_of(&self, number: VolumeId) -> Result<Option<Seen<VolumeGroup>>> {
        if number.0 == 0 {
            return Ok(None);
        }
        self.group(WhichVolume::Id(number))
    }

    fn groups(&self, after: VolumeId, max: usize) -> Result<Vec<Seen<VolumeGroup>>> {
        let mut all: Vec<Seen<VolumeGroup>> = Vec::new();
        while all.len() < max {
            let after = all.last().map_or(after, |seen| seen.record.read_write);
            let left = u32::try_from(max - all.len()).unwrap_or(u32::MAX);
            let (groups, end) = self.answer(CellCall::Groups { after, max: left }, |answer| match answer {
                Answer::Groups { groups, end } => Some((groups, end)),
                _ => None,
            })?;
            let empty = groups.is_empty();
            all.extend(groups);
            if end || empty {
                break;
            }
        }
        Ok(all)
    }

    fn put_group(&self, group: &VolumeGroup, expected: Revision) -> Result<Revision> {
        let call = CellCall::PutGroup { group: Box::new(group.clone()), expected };
        self.change(call, expected, || self.found_group(group.read_write), || self.taken(group))
    }

    fn remove_group(&self, read_write: VolumeId, expected: Revision) -> Result<Revision> {
        let call = CellCall::RemoveGroup { read_write, expected };
        self.change(call, expected, || self.found_group(read_write), || Ok(None))
    }

    fn take_numbers(&self, above: VolumeId, count: u32) -> Result<VolumeId> {
        self.answer(CellCall::TakeNumbers { above, count }, |answer| match answer {
            Answer::Number(number) => Some(number),
            _ => None,
        })
    }

    fn servers(&self) -> Result<Vec<Seen<ServerInfo>>> {
        self.answer(CellCall::Servers, |answer| match answer {
            Answer::Servers(servers) => Some(servers),
            _ => None,
        })
    }

    fn put_server(&self, server: &ServerInfo, expected: Revision) -> Result<Revision> {
        let call = CellCall::PutServer { server: server.clone(), expected };
        self.change(call, expected, || self.found_server(server.id), || Ok(None))
    }

    fn remove_server(&self, id: ServerId, expected: Revision) -> Result<Revision> {
        let call = CellCall::RemoveServer { id, expected };
        self.change(call, expected, || self.found_server(id), || Ok(None))
    }

    fn revision(&self) -> Result<Revision> {
        // Nothing is so late.
        self.changed(Revision(u64::MAX), 0).map(|(at, _)| at)
    }

    fn changes(&self, since: Revision, max: usize) -> Result<Vec<(Revision, Changed)>> {
        let (at, changes) = self.changed(since, u32::try_from(max).unwrap_or(u32::MAX))?;
        changes.ok_or(CellError::Forgotten { oldest: at })
    }

    fn access(&self) -> &dyn Access {
        self
    }
}

impl RemoteCell {
    fn changed(&self, since: Revision, max: u32) -> Result<News> {
        self.answer(CellCall::Changes { since, max }, |answer| match answer {
            Answer::Changes { at, changes } => Some((at, changes)),
            _ => None,
        })
    }
}
