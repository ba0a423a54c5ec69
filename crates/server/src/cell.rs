//! This server in its cell: it opens the database, if it has it, and enters itself.
//!
//! A server is known by its first partition's id, for ever: sessions lie there too, so where that partition is, there is the server.

use std::sync::Arc;

use celldb::{CellDb, CellError, Embedded};
use client::Endpoint;
use types::{Revision, Seen, ServerId, ServerInfo};
use vice::Partitions;

use crate::{CellPlace, RemoteCell};

/// Opens the database, or prepares to ask who has it. Who has it enters itself.
///
/// # Errors
/// The database's.
pub(crate) fn open(
    place: &CellPlace,
    partitions: &Partitions,
    endpoints: &[Endpoint],
) -> Result<Arc<dyn CellDb>, CellError> {
    let path = match place {
        CellPlace::Here(path) => path,
        CellPlace::At(endpoint) => return Ok(Arc::new(RemoteCell::at(endpoint.clone()))),
    };
    let db = Embedded::open(path)?;
    let me = ServerId(partitions.home().id());
    enter(&db, me, endpoints)?;
    Ok(Arc::new(db))
}

/// Says where this server is, if the cell does not know.
fn enter(db: &dyn CellDb, me: ServerId, endpoints: &[Endpoint]) -> Result<(), CellError> {
    let address = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp(address) => address.parse().ok(),
        Endpoint::Unix(_) => None,
    };
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let server = ServerInfo { id: me, name, addresses: endpoints.iter().filter_map(address).collect() };
    let known: Option<Seen<ServerInfo>> = db.servers()?.into_iter().find(|seen| seen.record.id == me);
    match known {
        Some(seen) if seen.record == server => Ok(()),
        Some(seen) => db.put_server(&server, seen.revision).map(drop),
        None => db.put_server(&server, Revision(0)).map(drop),
    }
}
