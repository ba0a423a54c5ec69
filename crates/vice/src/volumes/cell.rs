//! The door to the cell's database, where this server has it or knows who has.

use std::sync::Arc;

use celldb::{CellDb, CellError};
use types::{Answer, CellCall, Fault, Revision, Seen, ServerId, ServerInfo, WhichVolume};

use crate::Vice;
use crate::calls::Outcome;
use crate::service::Ask;

/// Records in one answer at most; fewer where they do not fit.
const RECORDS_MAX: usize = 1000;
/// Numbers that are given at once.
const NUMBERS_MAX: u32 = 1 << 20;

impl Vice {
    /// Who has the cell's database. Once, before anybody asks.
    pub fn has_cell(&self, db: Arc<dyn CellDb>) {
        if self.cell.set(db).is_err() {
            tracing::error!("a second database of the cell is not used");
        }
    }

    /// What others may know of this server. Once, before anybody asks.
    pub fn is_called(&self, me: ServerInfo) {
        if self.me.set(me).is_err() {
            tracing::error!("a second name of the server is not used");
        }
    }

    /// This server. Where nobody said more, it has no addresses.
    pub fn me(&self) -> ServerInfo {
        let nameless =
            || ServerInfo { id: ServerId(self.partitions.home().id()), name: String::new(), addresses: Vec::new() };
        self.me.get().cloned().unwrap_or_else(nameless)
    }

    pub(crate) fn ask_cell(&self, ask: &Ask<'_>, call: &CellCall) -> Result<Outcome, Fault> {
        if call.changes() && !ask.caller.is_root() {
            return Err(Fault::NotPermitted);
        }
        if *call == CellCall::Me {
            let me = Seen { record: self.me(), revision: Revision(0) };
            return Ok(Outcome::Answer(Answer::Servers(vec![me])));
        }
        let db = self.cell.get().ok_or(Fault::Unsupported)?;
        answer(&**db, call).map(Outcome::Answer)
    }
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
        CellCall::RemoveGroup { read_write, expected } => Answer::Revision(db.remove_group(*read_write, *expected)?),
        CellCall::TakeNumbers { count } if (1..=NUMBERS_MAX).contains(count) => {
            Answer::Number(db.take_numbers(*count)?)
        }
        CellCall::TakeNumbers { .. } => return Err(Fault::Invalid),
        // Who is asked answers for itself.
        CellCall::Me => return Err(Fault::Invalid),
        CellCall::Servers => Answer::Servers(db.servers()?),
        CellCall::PutServer { server, expected } => Answer::Revision(db.put_server(server, *expected)?),
        CellCall::RemoveServer { id, expected } => Answer::Revision(db.remove_server(*id, *expected)?),
        CellCall::Changes { since, max } => {
            let at = db.revision()?;
            match db.changes(*since, page(*max)) {
                Ok(changes) => Answer::Changes { at, changes: Some(changes) },
                Err(CellError::Forgotten { .. }) => Answer::Changes { at, changes: None },
                Err(error) => return Err(error.into()),
            }
        }
    })
}
