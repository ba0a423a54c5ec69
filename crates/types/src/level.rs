//! The level of a cell, and the programs of its servers (`docs/spec/versions.md`).

use crate::ServerId;

/// The program of a server, as the server tells the cell's database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProgram {
    /// The server.
    pub server: ServerId,
    /// The highest level of a cell that the program knows.
    pub knows: u32,
    /// Its version, for people; at most [`crate::limits::PROGRAM_BYTES_MAX`] bytes.
    pub version: String,
}

/// The level of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellLevel {
    /// The level.
    pub level: u32,
    /// Of the servers that have told their program.
    pub programs: Vec<ServerProgram>,
}

impl CellLevel {
    /// The program of a server; `None`: it has not told one, so it may be any older one.
    pub fn program(&self, server: ServerId) -> Option<&ServerProgram> {
        self.programs.iter().find(|one| one.server == server)
    }

    /// Whether a server has told that it knows this level.
    pub fn is_known_to(&self, server: ServerId, level: u32) -> bool {
        self.program(server).is_some_and(|one| one.knows >= level)
    }
}

/// A question about the level of a cell, or a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LevelAct {
    /// Only asks.
    Ask,
    /// A server tells its program.
    Tell(ServerProgram),
    /// Raises the level to this one, the next. Where the cell is at that level already nothing
    /// happens.
    Raise(u32),
}
