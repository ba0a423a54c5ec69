//! The level of the cell, and the programs of its servers (`docs/spec/versions.md`).
//!
//! Neither has a revision of its own: servers do not follow them. A level rises only when each
//! server of the cell has told that it knows it, so no server has to hear of that.

use types::limits::PROGRAM_BYTES_MAX;
use types::{CellLevel, LevelAct, ServerKind, ServerProgram, VolumeGroup};

use super::{Change, Held, Operations, Result};
use crate::engine::{Engine, View};
use crate::record::{self, Noted};
use crate::{CELL_LEVEL_KNOWN, CellError, key};

/// The level from which on a group may have standbys: programs of the first level do not know sites
/// of that kind.
const STANDBYS_LEVEL: u32 = 2;
/// The refusal of a group's first standby.
pub(crate) const STANDBYS_TOO_EARLY: CellError =
    CellError::LevelTooLow { what: "standbys", needed: STANDBYS_LEVEL };

/// Checks that groups may have standbys in a cell of this level.
///
/// # Errors
/// `LevelTooLow`.
pub fn need_standbys_level(level: u32) -> Result<()> {
    if level >= STANDBYS_LEVEL { Ok(()) } else { Err(STANDBYS_TOO_EARLY) }
}

impl<E: Engine> Operations<E> {
    /// Answers the question, or makes the change, and answers how it is then.
    ///
    /// # Errors
    /// `Behind`; `Misuse`; the engine's.
    pub fn ask_level(&self, held: &Held<'_>, act: &LevelAct) -> Result<CellLevel> {
        match act {
            LevelAct::Ask => {}
            LevelAct::Tell(program) => self.change(held, |change| note(change, program))?,
            LevelAct::Raise(to) => self.change(held, |change| raise(change, *to))?,
        }
        self.read(|view| view.cell_level())
    }
}

/// A new database has the newest level; one without a record is at the first (VE-1).
pub(super) fn begin(change: &mut Change<'_>, level: u32) {
    change.batch.put(key::LEVEL, record::encode_level(key::LEVEL, level));
}

/// Enters a server's program (VE-3). Programs of the first level drop it when they change the
/// record.
fn note(change: &mut Change<'_>, program: &ServerProgram) -> Result<()> {
    let id = program.server;
    if program.version.len() > PROGRAM_BYTES_MAX {
        return Err(CellError::Misuse(format!("a version has {PROGRAM_BYTES_MAX} bytes at most")));
    }
    let Some(server) = change.view.server(id)? else {
        return Err(CellError::Away(types::Fault::NotFound));
    };
    let noted = change.view.noted(id)?;
    if noted.program.as_ref() == Some(program) {
        return Ok(());
    }
    let key = key::server(id);
    let noted = Noted { program: Some(program.clone()), ..noted };
    // The rest of the record is as it was, and so is its revision.
    change.batch.put(&key[..], record::encode_server(&key, server.revision, &server.record, noted));
    Ok(())
}

/// Raises the level by one, if each server knows it (VE-4).
fn raise(change: &mut Change<'_>, to: u32) -> Result<()> {
    let now = change.view.cell_level()?;
    if to == now.level {
        return Ok(());
    }
    if to != now.level.saturating_add(1) || to > CELL_LEVEL_KNOWN {
        return Err(CellError::Misuse(format!(
            "a level rises by one, to {CELL_LEVEL_KNOWN} at most: it is {}",
            now.level
        )));
    }
    // A server of AFS reads no records.
    let servers = change.view.listed_servers()?.into_iter().map(|seen| seen.record);
    let servers = servers.filter(|one| one.kind() == ServerKind::Rialto);
    let behind: Vec<String> =
        servers.filter(|one| !now.is_known_to(one.id, to)).map(|one| one.name).collect();
    if !behind.is_empty() {
        return Err(CellError::Behind { level: to, servers: behind });
    }
    change.batch.put(key::LEVEL, record::encode_level(key::LEVEL, to));
    Ok(())
}

/// Checks that programs of the cell's level can read the group (VE-5). A group that has standbys
/// may go on having them.
pub(super) fn need_level(
    view: &dyn View,
    group: &VolumeGroup,
    before: Option<&VolumeGroup>,
) -> Result<()> {
    let has = |group: &VolumeGroup| group.standbys().next().is_some();
    if !has(group) || before.is_some_and(has) {
        return Ok(());
    }
    need_standbys_level(view.level()?)
}
