//! Access to the cell's database, where this server has it or knows the server that has it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use celldb::{CellDb, CellError};
use guard::PtsAsker;
use types::{
    Answer, AuthLevel, Caller, CellCall, Fault, Name, PrincipalId, PtsCall, RequestIdentity,
    Revised, Revision, ServerId, ServerInfo, VolumeId, WhichVolume,
};

use crate::Vice;
use crate::calls::CallOutcome;
use crate::service::CallContext;

/// Maximum number of records in one answer; fewer where they do not fit.
const RECORDS_MAX: usize = 1000;
/// Maximum number of numbers in one answer.
const NUMBERS_MAX: u32 = 1 << 20;

impl Vice {
    /// Notes that the cell has a database, although it may not be available yet: until then calls
    /// that need it are refused. Call it before the first request.
    pub fn expects_cell(&self) {
        self.expects_cell.store(true, Ordering::Relaxed);
    }

    /// Sets the access to the cell's database. Call it once.
    pub fn set_cell_database(&self, db: Arc<dyn CellDb>) {
        self.expects_cell();
        if self.cell.set(db).is_err() {
            tracing::error!("the cell's database was set twice; the second one is ignored");
        }
    }

    /// The cell's database; `None`: this server is a cell without one.
    ///
    /// # Errors
    /// `CellAway` if it is not available yet.
    pub(crate) fn cell(&self) -> Result<Option<&dyn CellDb>, Fault> {
        match self.cell.get() {
            Some(db) => Ok(Some(&**db)),
            None if self.expects_cell.load(Ordering::Relaxed) => Err(Fault::CellAway),
            None => Ok(None),
        }
    }

    /// A number that no volume of the cell ever had. May ask another server, so hold no lock.
    ///
    /// # Errors
    /// `CellAway`, since the server cannot choose a number alone.
    pub(crate) fn new_number(&self) -> Result<VolumeId, Fault> {
        let next = self.partitions.next_volume()?;
        match self.cell()? {
            Some(db) => Ok(db.take_numbers(VolumeId(next.0 - 1), 1)?),
            None => Ok(next),
        }
    }

    /// Sets the public record of this server. Call it once, before the first request.
    pub fn set_server_info(&self, me: ServerInfo) {
        if self.me.set(me).is_err() {
            tracing::error!("the server's record was set twice; the second one is ignored");
        }
    }

    /// The record of this server; without addresses if none was set.
    pub fn me(&self) -> ServerInfo {
        let nameless = || ServerInfo {
            id: ServerId(self.partitions.home().id()),
            name: String::new(),
            addresses: Vec::new(),
            keys: Vec::new(),
        };
        self.me.get().cloned().unwrap_or_else(nameless)
    }

    /// Number and partition name of the volume with this name, if it is here.
    ///
    /// # Errors
    /// Errors of the partition.
    pub fn find_volume(&self, name: &Name) -> Result<Option<(VolumeId, String)>, Fault> {
        let Some(id) = self.partitions.named(name.as_bytes())? else { return Ok(None) };
        let volume = self.any_volume(id)?;
        Ok(self.partitions.name_of(volume.no).map(|partition| (id, partition.to_owned())))
    }

    pub(crate) fn ask_cell(
        &self,
        ask: &CallContext<'_>,
        call: &CellCall,
    ) -> Result<CallOutcome, Fault> {
        if *call == CellCall::Me {
            let me = Revised { record: self.me(), revision: Revision(0) };
            return Ok(CallOutcome::Answer(Answer::Servers(vec![me])));
        }
        let db = self.cell()?.ok_or(Fault::Unsupported)?;
        if let (AuthLevel::Enrolling, CellCall::PutServer { server, expected }) =
            (ask.caller.who.level, call)
        {
            need_enrolment(db, ask.caller, server, *expected)?;
        }
        answer(db, call).map(CallOutcome::Answer)
    }
}

/// Checks that a new server enters its own key. Only the server with the database may execute this:
/// another one would ask there in its own name. The check reads the record that will be replaced,
/// since a change from another revision is refused.
fn need_enrolment(
    db: &dyn CellDb,
    caller: &Caller,
    record: &ServerInfo,
    expected: Revision,
) -> Result<(), Fault> {
    let shown =
        caller.who.server.filter(|_| !db.access().is_elsewhere()).ok_or(Fault::NotPermitted)?;
    let known = db.servers()?.into_iter().find(|seen| seen.record.id == record.id);
    guard::may_enrol(shown, record, known.as_ref().map(|seen| &seen.record))?;
    if db.access().was_listed(&shown)? {
        return Err(Fault::NotPermitted);
    }
    let found = known.map(|seen| seen.revision).unwrap_or_default();
    if found == expected { Ok(()) } else { Err(Fault::Conflict) }
}

impl Vice {
    /// Users and groups. A server without the database forwards the call in the caller's name.
    pub(crate) fn ask_pts(
        &self,
        ask: &mut CallContext<'_>,
        on_behalf: Option<PrincipalId>,
        call: &PtsCall,
    ) -> Result<CallOutcome, Fault> {
        let db = self.cell()?.ok_or(Fault::Unsupported)?;
        let caller = match on_behalf {
            None => ask.caller.clone(),
            Some(principal) => behalf_of(principal),
        };
        let asker = PtsAsker { principal: self.vouched(&caller)?, cps: self.cps(&caller)? };
        let answer = db.access().pts(&asker, call)?;
        Ok(if call.changes() {
            self.break_rights(ask, answer)
        } else {
            CallOutcome::Answer(answer)
        })
    }
}

/// A caller whose proof another server has checked.
fn behalf_of(principal: PrincipalId) -> Caller {
    let who = match principal {
        PrincipalId::ANONYMOUS => RequestIdentity::NOBODY,
        principal => {
            RequestIdentity { principal, level: AuthLevel::Password, ..RequestIdentity::NOBODY }
        }
    };
    Caller { uid: u32::MAX, gid: u32::MAX, groups: None, who }
}

fn answer(db: &dyn CellDb, call: &CellCall) -> Result<Answer, Fault> {
    let page = |max: u32| (max as usize).min(RECORDS_MAX);
    Ok(match call {
        CellCall::Group { volume } => {
            let found = match volume {
                WhichVolume::Id(number) => db.group_of(*number)?,
                WhichVolume::Name(name) => db.group_named(name)?,
            };
            Answer::Groups { groups: vec![found.ok_or(Fault::NoVolume)?], end: true }
        }
        CellCall::Groups { after, max } => {
            let wanted = page(*max);
            let mut groups = db.groups(*after, wanted + 1)?;
            let end = groups.len() <= wanted;
            groups.truncate(wanted);
            Answer::Groups { groups, end }
        }
        CellCall::PutGroup { group, expected } => Answer::Revision(db.put_group(group, *expected)?),
        CellCall::RemoveGroup { read_write, expected } => {
            Answer::Revision(db.remove_group(*read_write, *expected)?)
        }
        CellCall::TakeNumbers { above, count } if (1..=NUMBERS_MAX).contains(count) => {
            Answer::Number(db.take_numbers(*above, *count)?)
        }
        CellCall::TakeNumbers { .. } => return Err(Fault::Invalid),
        // Each server answers this itself.
        CellCall::Me => return Err(Fault::Invalid),
        CellCall::Servers => Answer::Servers(db.servers()?),
        CellCall::PutServer { server, expected } => {
            Answer::Revision(db.put_server(server, *expected)?)
        }
        CellCall::RemoveServer { id, expected } => {
            Answer::Revision(db.remove_server(*id, *expected)?)
        }
        CellCall::Changes { since, max } => {
            let at = db.revision()?;
            match db.changes(*since, page(*max)) {
                Ok(changes) => Answer::Changes { at, changes: Some(changes) },
                Err(CellError::Forgotten { .. }) => Answer::Changes { at, changes: None },
                Err(error) => return Err(error.into()),
            }
        }
        CellCall::Principal { which } => {
            let found = db.access().principal(which)?.ok_or(Fault::NoPrincipal)?;
            Answer::Principals { principals: vec![(found, 0)], end: true }
        }
        CellCall::Subdomain { principal, host } => {
            let (at, groups) = db.access().subdomain(*principal, *host)?;
            Answer::Subdomain { at, groups }
        }
        CellCall::Watch { server, since, max } => {
            let (at, changes) = db.access().watch(*server, *since, page(*max))?;
            Answer::Changes { at, changes }
        }
    })
}
