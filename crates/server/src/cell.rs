//! This server in its cell: it opens the database, if it has it, and enters itself.
//!
//! A server is known by its first partition's id, for ever: sessions lie there too, so where that partition is, there is the server.

use std::sync::Arc;

use celldb::{CellDb, CellError, Embedded};
use client::Endpoint;
use types::{Revision, Seen, ServerId, ServerInfo};
use vice::Partitions;

use crate::{CellPlace, RemoteCell};

/// What others may know of this server.
pub(crate) fn me(partitions: &Partitions, endpoints: &[Endpoint]) -> ServerInfo {
    let address = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp(address) => address.parse().ok(),
        Endpoint::Unix(_) => None,
    };
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    ServerInfo { id: ServerId(partitions.home().id()), name, addresses: endpoints.iter().filter_map(address).collect() }
}

/// Opens the database, or prepares to ask who has it. Who has it enters itself.
///
/// # Errors
/// The database's.
pub(crate) fn open(place: &CellPlace, me: &ServerInfo) -> Result<Arc<dyn CellDb>, CellError> {
    let path = match place {
        CellPlace::Here(path) => path,
        CellPlace::At(endpoint) => return Ok(Arc::new(RemoteCell::at(endpoint.clone()))),
    };
    let db = Embedded::open(path)?;
    enter(&db, me)?;
    Ok(Arc::new(db))
}

/// Says where this server is, if the cell does not know.
fn enter(db: &dyn CellDb, me: &ServerInfo) -> Result<(), CellError> {
    let known: Option<Seen<ServerInfo>> = db.servers()?.into_iter().find(|seen| seen.record.id == me.id);
    match known {
        Some(seen) if seen.record == *me => Ok(()),
        Some(seen) => db.put_server(me, seen.revision).map(drop),
        None => db.put_server(me, Revision(0)).map(drop),
    }
}
