//! The level of a cell, and whether it can rise.

use celldb::CELL_LEVEL_KNOWN;
use local::ask::Asking;
use local::failure::Failure;
use types::{Answer, Call, CellCall, CellLevel, LevelAct, ServerInfo, ServerKind};

/// The level of a cell, and its servers.
pub struct Levels {
    pub found: CellLevel,
    pub servers: Vec<ServerInfo>,
}

/// The next level.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// The cell is at the newest level that this program knows.
    Newest,
    /// Each server knows it.
    Ready { level: u32 },
    /// These servers do not.
    Waits { level: u32, behind: Vec<String> },
}

/// Asks about the level, or changes it.
///
/// # Errors
/// Those of `ask`; the server's answer is another one.
pub fn ask_level(
    ask: impl FnOnce(Call) -> Result<Answer, Failure>,
    act: LevelAct,
) -> Result<CellLevel, Failure> {
    match ask(Call::Cell(CellCall::Level { act }))? {
        Answer::Level(found) => Ok(found),
        _ => Err(Failure::new("asking for the cell's level", "the server answered something else")),
    }
}

impl Levels {
    /// As a server of this machine answers them; `None`: it does not, or is older than levels.
    pub fn asked(asking: &Asking) -> Option<Levels> {
        let act = LevelAct::Ask;
        let Ok(Answer::Level(found)) = asking.call(Call::Cell(CellCall::Level { act })) else {
            return None;
        };
        // No question more in a cell that is at the newest level.
        let is_newest = found.level >= CELL_LEVEL_KNOWN;
        let servers = if is_newest { Vec::new() } else { asking.servers().ok()? };
        Some(Levels::of(found, servers))
    }

    pub fn of(found: CellLevel, servers: Vec<ServerInfo>) -> Levels {
        Levels { found, servers }
    }

    pub fn next(&self) -> Next {
        let level = self.found.level.saturating_add(1);
        if level > CELL_LEVEL_KNOWN {
            return Next::Newest;
        }
        let is_behind = |one: &&ServerInfo| {
            one.kind() == ServerKind::Rialto && !self.found.is_known_to(one.id, level)
        };
        let behind: Vec<_> =
            self.servers.iter().filter(is_behind).map(|one| one.name.clone()).collect();
        if behind.is_empty() { Next::Ready { level } } else { Next::Waits { level, behind } }
    }
}

impl Next {
    /// The next level, whether the cell can rise to it or not.
    pub fn level(&self) -> Option<u32> {
        match self {
            Next::Newest => None,
            Next::Ready { level } | Next::Waits { level, .. } => Some(*level),
        }
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        *self != Next::Newest
    }

    /// The servers that do not know it.
    pub fn behind(&self) -> &[String] {
        match self {
            Next::Newest | Next::Ready { .. } => &[],
            Next::Waits { behind, .. } => behind,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        match self {
            Next::Newest => "this is the newest level".to_owned(),
            Next::Ready { level } => format!("'rialto cell upgrade' raises it to {level}"),
            Next::Waits { level, behind } => {
                let names = behind.join(", ");
                format!("level {level} is not known to all servers: not to {names}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{ServerId, ServerProgram};

    use super::*;

    #[test]
    fn ve4_the_level_rises_when_each_server_has_told() {
        let server = |n: u128| ServerInfo {
            id: ServerId(n),
            name: format!("afs{n}"),
            addresses: Vec::new(),
            keys: Vec::new(),
        };
        let program = |n: u128, knows| ServerProgram {
            server: ServerId(n),
            knows,
            version: "0.1.0".to_owned(),
        };
        let next = |level, programs| {
            Levels::of(CellLevel { level, programs }, vec![server(1), server(2)]).next()
        };
        let waits = |names: &[&str]| Next::Waits {
            level: 2,
            behind: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(next(1, Vec::new()), waits(&["afs1", "afs2"]));
        assert_eq!(next(1, vec![program(1, 2), program(2, 1)]), waits(&["afs2"]));
        // A program of a server that is gone does not count.
        assert_eq!(next(1, vec![program(1, 2), program(3, 2)]), waits(&["afs2"]));
        assert_eq!(next(1, vec![program(1, 2), program(2, 3)]), Next::Ready { level: 2 });
        assert_eq!(next(CELL_LEVEL_KNOWN, Vec::new()), Next::Newest);
    }
}
