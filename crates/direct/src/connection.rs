//! A session with one server, and the memory that it shares with it.

use std::fmt;
use std::sync::Arc;

use client::{ClientIdentity, ClientOptions, Endpoint, Remote, Session, SessionConfig};
use dafs::Region;
use mem::arena::{Arena, Buffer};
use parking_lot::Mutex;
use types::{Answer, Call, Caller, Fault, Name, Status};

use crate::DirectError;

/// A session with one server. Clones are the same session.
#[derive(Clone)]
pub struct DirectConnection(Arc<Inner>);

struct Inner {
    session: Session,
    caller: Caller,
    /// Memory of the session: arena and handle.
    memories: Mutex<Vec<(Arc<Arena>, u32)>>,
}

/// Memory that the server can access. Buffers of it stay valid when it is dropped.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Arena>);

impl DirectConnection {
    /// Connects to the server at `address` (`unix:PATH` or `HOST:PORT`).
    ///
    /// # Errors
    /// `Unreachable`.
    pub fn connect(address: &str) -> Result<DirectConnection, DirectError> {
        let endpoint: Endpoint =
            address.parse().map_err(|error| DirectError::Unreachable(format!("{error}")))?;
        let mut config = SessionConfig::new(endpoint, ClientIdentity::fleeting());
        config.options = ClientOptions { direct: true, ..ClientOptions::default() };
        let session = Session::connect(config)?;
        let inner = Inner { session, caller: this_process(), memories: Mutex::default() };
        Ok(DirectConnection(Arc::new(inner)))
    }

    /// The status of the file with this path in the volume.
    pub(crate) fn walk(&self, volume: &str, path: &str) -> Result<Status, DirectError> {
        let name = |text: &str| Name::new(text.as_bytes()).map_err(|_| Fault::Invalid);
        let volume = name(volume).map_err(DirectError::Refused)?;
        let mut status = match self.call(Call::Root { volume })? {
            Answer::Status(status) => status,
            _ => return Err(DirectError::Refused(Fault::Invalid)),
        };
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let name = name(part).map_err(DirectError::Refused)?;
            status = match self.call(Call::Lookup { dir: status.fid, name })? {
                Answer::Entry { status, .. } => status,
                _ => return Err(DirectError::Refused(Fault::Invalid)),
            };
        }
        Ok(status)
    }

    /// Makes a call and waits for its answer.
    pub(crate) fn call(&self, call: Call) -> Result<Answer, DirectError> {
        Ok(self.0.session.call(&self.0.caller, call, None)?.answer)
    }

    /// New memory of at least `bytes` bytes, which the server can access.
    ///
    /// # Errors
    /// `Memory`.
    pub fn memory(&self, bytes: usize) -> Result<Memory, DirectError> {
        let arena = Arena::create("rialto-memory", bytes)
            .map_err(|error| DirectError::Memory(error.into()))?;
        let handle = self.0.session.add_region(&arena);
        self.0.memories.lock().push((Arc::clone(&arena), handle));
        Ok(Memory(arena))
    }

    /// The region of a buffer; `None`: its memory is not of this connection.
    pub(crate) fn region_of(&self, buffer: &Buffer) -> Option<Region> {
        let memories = self.0.memories.lock();
        let (_, handle) = memories.iter().find(|(arena, _)| Arc::ptr_eq(arena, buffer.arena()))?;
        Some(Region { handle: *handle, offset: buffer.offset() as u64 })
    }

    pub(crate) fn session(&self) -> &Session {
        &self.0.session
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.0.caller
    }

    /// Do operations go through memory that the server shares now?
    pub fn has_lane(&self) -> bool {
        self.0.session.has_lane()
    }
}

/// The user of this process, as the kernel attests it to a server on this host. The server looks
/// up the supplementary groups.
fn this_process() -> Caller {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    Caller { uid: uid.as_raw(), gid: gid.as_raw(), ..Caller::ROOT }
}

impl fmt::Debug for DirectConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectConnection").field("server", &self.0.session.address()).finish()
    }
}

impl Memory {
    /// A buffer of `bytes` bytes with any content; `None` if no free part is so long.
    pub fn buffer(&self, bytes: usize) -> Option<Buffer> {
        self.0.buffer(bytes)
    }
}
