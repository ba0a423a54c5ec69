//! A cell as a program uses it: sessions with its servers, and the memory that they may access.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use client::{
    Cell, ClientIdentity, ClientOptions, Endpoint, RemoteVolume, Session, SessionConfig,
    dial_addresses,
};
use mem::arena::{Arena, Buffer};
use parking_lot::Mutex;
use types::{Caller, Name, VolumeId};

use crate::DirectError;
use crate::claims::Claims;

/// The volume at the root of a cell's tree.
const ROOT_VOLUME: &str = "root.cell";

/// How a program reaches a cell, and as whom.
#[derive(Clone, Debug)]
pub struct DirectOptions {
    /// A server of the cell: `unix:PATH` or `HOST:PORT`.
    pub server: Endpoint,
    /// How connections are made, and which tokens they show.
    pub client: ClientOptions,
    /// The caller of all operations.
    pub caller: Caller,
    /// The volume in which paths begin.
    pub root: String,
}

impl DirectOptions {
    /// As the user of this process, as the kernel attests it to a server on this host. The server
    /// looks up the supplementary groups.
    pub fn new(server: Endpoint) -> DirectOptions {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let caller = Caller { uid: uid.as_raw(), gid: gid.as_raw(), ..Caller::ROOT };
        let root = ROOT_VOLUME.to_owned();
        DirectOptions { server, client: ClientOptions::default(), caller, root }
    }
}

/// A cell. Clones share its sessions, which end with the last of them.
#[derive(Clone)]
pub struct DirectCell(Arc<Inner>);

struct Inner {
    cell: Arc<Cell>,
    caller: Caller,
    root: Name,
    /// Volumes that were found, by name and by number.
    named: Mutex<HashMap<Name, Arc<RemoteVolume>>>,
    numbered: Mutex<HashMap<VolumeId, Arc<RemoteVolume>>>,
    /// Of the volumes in which the program had something open or locked.
    claims: Mutex<HashMap<VolumeId, Arc<Claims>>>,
}

/// Memory that servers can access. Buffers of it stay valid when it is dropped.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Arena>);

impl DirectCell {
    /// Connects to a server of the cell; to others when a volume is there.
    ///
    /// # Errors
    /// `Unreachable`.
    pub fn connect(options: DirectOptions) -> Result<DirectCell, DirectError> {
        let DirectOptions { server, client, caller, root } = options;
        let root = Name::new(root.as_bytes()).map_err(|_| DirectError::BadPath)?;
        let identity = ClientIdentity::fleeting();
        let others = identity.again();
        let client = ClientOptions { direct: true, ..client };
        let config = |identity: ClientIdentity, client: &ClientOptions, endpoint: Endpoint| {
            let mut config = SessionConfig::new(endpoint, identity);
            config.options = client.clone();
            config
        };
        let home = Session::connect(config(identity, &client, server))?;
        let dial = dial_addresses(move |endpoint| config(others.again(), &client, endpoint));
        let cell = Cell::of_servers(Arc::new(home), dial);
        let (named, numbered, claims) = Default::default();
        Ok(DirectCell(Arc::new(Inner { cell, caller, root, named, numbered, claims })))
    }

    /// A program of this cell.
    #[cfg(test)]
    pub(crate) fn over(cell: Arc<Cell>) -> DirectCell {
        let root = Name::new(b"volume").expect("a name");
        let (named, numbered, claims) = Default::default();
        let caller = Caller::ROOT;
        DirectCell(Arc::new(Inner { cell, caller, root, named, numbered, claims }))
    }

    /// New memory of at least `bytes` bytes, which servers can access.
    ///
    /// # Errors
    /// `Memory`.
    pub fn memory(&self, bytes: usize) -> Result<Memory, DirectError> {
        let arena = Arena::create("rialto-memory", bytes)
            .map_err(|error| DirectError::Memory(error.into()))?;
        Ok(Memory(arena))
    }

    /// Do operations on the first server go through memory that it shares now?
    pub fn has_lane(&self) -> bool {
        self.0.cell.home().has_lane()
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.0.caller
    }

    /// The table of the program's opens and locks in the volume.
    pub(crate) fn claims(&self, volume: &Arc<RemoteVolume>) -> Arc<Claims> {
        let mut all = self.0.claims.lock();
        let made = || Claims::of(volume, self.0.caller.clone());
        Arc::clone(all.entry(volume.id()).or_insert_with(made))
    }

    /// The volume in which paths begin.
    pub(crate) fn root(&self) -> Result<Arc<RemoteVolume>, DirectError> {
        self.volume(&self.0.root)
    }

    /// The volume of this name.
    pub(crate) fn volume(&self, name: &Name) -> Result<Arc<RemoteVolume>, DirectError> {
        if let Some(volume) = self.0.named.lock().get(name) {
            return Ok(Arc::clone(volume));
        }
        let found = self.0.cell.find(name, None)?;
        let volume = Arc::clone(self.0.numbered.lock().entry(found.id()).or_insert_with(|| found));
        self.0.named.lock().insert(name.clone(), Arc::clone(&volume));
        Ok(volume)
    }
}

impl fmt::Debug for DirectCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectCell").field("server", &self.0.cell.home().address()).finish()
    }
}

impl Memory {
    /// A buffer of `bytes` bytes with any content; `None` if no free part is so long.
    pub fn buffer(&self, bytes: usize) -> Option<Buffer> {
        self.0.buffer(bytes)
    }
}
