//! The cell database when another server has it: every call goes there.
//!
//! The session begins with the first call, so that servers start in any order. While that server
//! cannot be reached calls fail at once (`way.rs`). Look-ups of callers have a session of their own
//! with shorter time limits, since a user waits for each: at most [`LOOKUP`], together less than 3
//! s.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{ClientOptions, Endpoint};
use parking_lot::Mutex;
use types::{
    Answer, Call, Caller, CellCall, Changed, Fault, LevelAct, Name, Revised, Revision, ServerId,
    ServerInfo, VolumeGroup, VolumeId, WhichVolume,
};

use crate::operations::STANDBYS_TOO_EARLY;
use crate::reading::{FIRST_LEVEL, known_level};
use crate::{Access, CELL_LEVEL_KNOWN, CellCopy, CellDb, CellError, Following, News};

mod copy;
mod principals;
mod rules;
mod way;

use way::{Patience, Way};

type Result<T> = std::result::Result<T, CellError>;

/// For changes, and for this server's own questions.
const TIMEOUT: Patience =
    Patience { attach: Duration::from_secs(3), call: Duration::from_secs(10) };
/// For look-ups of callers.
const LOOKUP: Patience =
    Patience { attach: Duration::from_millis(1200), call: Duration::from_millis(1600) };
/// Whether the level of the cell is one that the caller's program knows (VE-2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum CellLevelSeen {
    /// The next call asks for it first.
    Unasked,
    Known,
    Unknown,
}

/// The database at another server.
pub struct RemoteCellDb {
    way: Arc<Way>,
    lookups: Arc<Way>,
    /// The database's server does not accept this one as a server of the cell.
    refused: AtomicBool,
    /// The highest level of a cell that the caller's program knows.
    knows: u32,
    level: Mutex<CellLevelSeen>,
    following: Arc<Following>,
    caller: Caller,
}

impl RemoteCellDb {
    /// At this server, where root's sessions may make changes.
    pub fn at(endpoint: Endpoint, options: ClientOptions) -> Self {
        RemoteCellDb {
            lookups: Way::to(endpoint.clone(), options.clone(), LOOKUP),
            way: Way::to(endpoint, options, TIMEOUT),
            refused: AtomicBool::new(false),
            knows: CELL_LEVEL_KNOWN,
            level: Mutex::new(CellLevelSeen::Known),
            following: Arc::default(),
            caller: Caller::ROOT,
        }
    }

    /// Begins with these rules, and keeps the changes there.
    pub fn following(mut self, following: Arc<Following>) -> Self {
        self.following = following;
        self
    }

    /// For a server whose program knows no level above this one: it calls nothing in a cell of
    /// another level (VE-2).
    pub fn knowing(mut self, level: u32) -> Self {
        (self.knows, self.level) = (level, Mutex::new(CellLevelSeen::Unasked));
        self
    }

    /// Calls as this caller, and not as the superuser.
    pub fn asking_as(mut self, caller: Caller) -> Self {
        self.caller = caller;
        self
    }

    fn ask(&self, call: CellCall) -> std::result::Result<Answer, Fault> {
        self.call(Call::Cell(call))
    }

    fn call(&self, call: Call) -> std::result::Result<Answer, Fault> {
        self.call_by(&self.way, call)
    }

    /// For a caller who waits for it.
    fn look_up(&self, call: CellCall) -> std::result::Result<Answer, Fault> {
        self.call_by(&self.lookups, Call::Cell(call))
    }

    fn call_by(&self, way: &Arc<Way>, call: Call) -> std::result::Result<Answer, Fault> {
        if !matches!(call, Call::Cell(CellCall::Level { .. })) {
            if self.level_seen() == CellLevelSeen::Unasked {
                self.ask_level(way)?;
            }
            if self.level_seen() == CellLevelSeen::Unknown {
                return Err(Fault::CellAway);
            }
        }
        way.call(&self.caller, call)
    }

    fn ask_level(&self, way: &Arc<Way>) -> std::result::Result<(), Fault> {
        let ask = Call::Cell(CellCall::Level { act: LevelAct::Ask });
        match way.call(&self.caller, ask) {
            Ok(Answer::Level(found)) => _ = self.need_known_level(found.level),
            // Its server is older than levels.
            Err(Fault::Unsupported) => _ = self.need_known_level(FIRST_LEVEL),
            // A server whose key is not entered yet may not ask, and may do no more than enter it.
            Err(Fault::NotPermitted) => {}
            Ok(_) => return Err(Fault::Invalid),
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    fn level_seen(&self) -> CellLevelSeen {
        *self.level.lock()
    }

    /// Does not follow the database of a cell whose level the caller's program does not know.
    fn need_known_level(&self, level: u32) -> Result<()> {
        let known = known_level(level, self.knows);
        *self.level.lock() =
            if known.is_ok() { CellLevelSeen::Known } else { CellLevelSeen::Unknown };
        known
    }

    /// This server shows another certificate from now on.
    pub fn connect_anew(&self) {
        self.way.connect_anew();
        self.lookups.connect_anew();
    }

    /// Did the database's server refuse this one as a server of the cell, in answer to the last
    /// question for changes?
    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    /// A question, or a change whose refusals need no translation.
    fn answer<T>(&self, call: CellCall, take: impl FnOnce(Answer) -> Option<T>) -> Result<T> {
        let answer = self.ask(call).map_err(CellError::Away)?;
        // The session accepts only an answer of the kind that belongs to the call.
        take(answer).ok_or(CellError::Away(Fault::Invalid))
    }

    /// A change of the record that is at `expected`; faults become the errors that
    /// [`Embedded`](crate::Embedded) returns.
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
            Err(Fault::Invalid) => {
                Err(CellError::Misuse("the record is not consistent".to_owned()))
            }
            Err(fault) => Err(CellError::Away(fault)),
        }
    }

    fn group(&self, volume: WhichVolume) -> Result<Option<Revised<VolumeGroup>>> {
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

    /// The group that has the name or a number of this group.
    fn taken(&self, group: &VolumeGroup) -> Result<Option<CellError>> {
        let other = |seen: Option<Revised<VolumeGroup>>| {
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

impl CellDb for RemoteCellDb {
    fn group_named(&self, name: &Name) -> Result<Option<Revised<VolumeGroup>>> {
        self.group(WhichVolume::Name(name.clone()))
    }

    fn group_of(&self, number: VolumeId) -> Result<Option<Revised<VolumeGroup>>> {
        if number.0 == 0 {
            return Ok(None);
        }
        self.group(WhichVolume::Id(number))
    }

    fn groups(&self, after: VolumeId, max: usize) -> Result<Vec<Revised<VolumeGroup>>> {
        let mut all: Vec<Revised<VolumeGroup>> = Vec::new();
        while all.len() < max {
            let after = all.last().map_or(after, |seen| seen.record.read_write);
            let left = u32::try_from(max - all.len()).unwrap_or(u32::MAX);
            let (groups, end) =
                self.answer(CellCall::Groups { after, max: left }, |answer| match answer {
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
        let found = || self.found_group(group.read_write);
        match self.change(call, expected, found, || self.taken(group)) {
            Err(CellError::Away(Fault::Unsupported)) => Err(STANDBYS_TOO_EARLY),
            put => put,
        }
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

    fn servers(&self) -> Result<Vec<Revised<ServerInfo>>> {
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
        // No revision is that late.
        self.changed(Revision(u64::MAX), 0).map(|(at, _)| at)
    }

    fn changes(&self, since: Revision, max: usize) -> Result<Vec<(Revision, Changed)>> {
        let (at, changes) = self.changed(since, u32::try_from(max).unwrap_or(u32::MAX))?;
        changes.ok_or(CellError::Forgotten { oldest: at })
    }

    fn copy(&self) -> Result<Box<dyn CellCopy>> {
        self.begin_copy()
    }

    fn access(&self) -> &dyn Access {
        self
    }
}

impl RemoteCellDb {
    fn changed(&self, since: Revision, max: u32) -> Result<News> {
        self.answer(CellCall::Changes { since, max }, |answer| match answer {
            Answer::Changes { at, changes } => Some((at, changes)),
            _ => None,
        })
    }
}
