//! Access to the cell's database, where this server has it or knows the server that has it.
//!
//! Model. The server is *alone*, or it has access to a database from its start, or the database is
//! *opening*: then calls that need it are refused until [`CellOpening::opened`].

use std::sync::{Arc, OnceLock};

use celldb::CellDb;
use types::{Fault, ServerInfo};

/// A server's access to the cell's database.
#[derive(Clone, Default)]
pub enum CellAccess {
    /// The cell has no database.
    #[default]
    Alone,
    /// The database, or the connection to the server that has it.
    Database(Arc<dyn CellDb>),
    /// The database is here and not open yet; see [`CellAccess::opening`].
    Opening(OpeningPlace),
}

impl CellAccess {
    /// A database that is not available yet: calls that need it are refused until it is.
    pub fn opening() -> (CellAccess, CellOpening) {
        let place = Arc::new(OnceLock::new());
        (CellAccess::Opening(OpeningPlace(Arc::clone(&place))), CellOpening(place))
    }
}

/// Where a database appears once it is open.
#[derive(Clone)]
pub struct OpeningPlace(Arc<OnceLock<Arc<dyn CellDb>>>);

/// The order to open a database. It is used up by that, so it happens once.
pub struct CellOpening(Arc<OnceLock<Arc<dyn CellDb>>>);

impl CellOpening {
    /// The database is available from now on.
    pub fn opened(self, db: Arc<dyn CellDb>) {
        let is_first = self.0.set(db).is_ok();
        assert!(is_first, "only the one order to open a database sets it");
    }
}

/// See the head of the file.
pub(crate) struct CellLink {
    access: CellAccess,
    me: ServerInfo,
}

impl CellLink {
    /// `me`: the public record of this server.
    pub fn new(access: CellAccess, me: ServerInfo) -> CellLink {
        CellLink { access, me }
    }

    /// The cell's database; `None`: this server is a cell without one.
    ///
    /// # Errors
    /// `CellAway` if it is not available yet.
    pub fn db(&self) -> Result<Option<&dyn CellDb>, Fault> {
        match &self.access {
            CellAccess::Alone => Ok(None),
            CellAccess::Database(db) => Ok(Some(&**db)),
            CellAccess::Opening(OpeningPlace(place)) => match place.get() {
                Some(db) => Ok(Some(&**db)),
                None => Err(Fault::CellAway),
            },
        }
    }

    /// The cell's database, if it is available.
    pub fn available(&self) -> Option<&dyn CellDb> {
        self.db().ok().flatten()
    }

    /// The record of this server.
    pub fn me(&self) -> &ServerInfo {
        &self.me
    }
}

#[cfg(test)]
mod tests {
    use celldb::Embedded;
    use types::ServerId;

    use super::*;

    #[test]
    fn a_database_is_away_until_it_is_open() {
        let (name, addresses, keys) = (String::new(), Vec::new(), Vec::new());
        let me = ServerInfo { id: ServerId(1), name, addresses, keys };
        let (access, opening) = CellAccess::opening();
        let alone = CellLink::new(CellAccess::Alone, me.clone());
        let link = CellLink::new(access, me);
        assert!(alone.db().is_ok_and(|db| db.is_none()));
        assert_eq!(link.db().map(|_| ()), Err(Fault::CellAway));
        assert!(link.available().is_none());
        let dir = tempfile::tempdir().unwrap();
        opening.opened(Arc::new(Embedded::open(dir.path()).unwrap()));
        assert!(link.db().is_ok_and(|db| db.is_some()));
    }
}
