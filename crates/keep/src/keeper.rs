//! The daemon's side: its keeper, and what its predecessor left.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};

use crate::messages::{Message, receive, send};
use crate::records::Keep;

/// The environment variable with the number of the daemon's end of the connection.
pub(crate) const VARIABLE: &str = "RIALTO_KEEPER";
/// The name of the records' memory.
const RECORDS: &str = "records";

/// The keeper of this process.
#[derive(Debug)]
pub struct Keeper {
    socket: OwnedFd,
    records: Arc<Keep>,
    is_successor: bool,
    inherited: Mutex<HashMap<String, OwnedFd>>,
}

impl Keeper {
    /// The keeper that started this process; `None`: it has none. To be called once, before this
    /// process opens anything.
    ///
    /// # Errors
    /// The keeper's connection cannot be used, or the predecessor's records cannot be read.
    pub fn of_this_process() -> io::Result<Option<Arc<Keeper>>> {
        let Some(number) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let number = number.to_str().and_then(|number| number.parse().ok());
        let number = number.ok_or(io::ErrorKind::InvalidInput)?;
        Self::behind(mem::inherit::taken(number)?).map(Some)
    }

    /// The keeper that listens at `socket` ([`crate::HeldPlaces`]), for the mount at `place`, an
    /// absolute path without `..`. To be called once.
    ///
    /// # Errors
    /// `InvalidInput`: that is no place. `ConnectionRefused`, `NotFound`: none listens there.
    /// `PermissionDenied`: it is another user's. `AddrInUse`: it has a daemon for this place.
    /// Otherwise as `of_this_process`.
    pub fn at(socket: &Path, place: &Path) -> io::Result<Arc<Keeper>> {
        let place = place.to_str().and_then(Message::place).ok_or(io::ErrorKind::InvalidInput)?;
        let family = AddressFamily::UNIX;
        let connection = socket_with(family, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&connection, &SocketAddrUnix::new(socket)?)?;
        // Root's keeper would refuse this process, and this process gives root's files to no other.
        if user_of(&connection)? != rustix::process::geteuid() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        send(&connection, &place, None)?;
        Self::behind(connection).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::ErrorKind::AddrInUse.into(),
            _ => error,
        })
    }

    fn behind(socket: OwnedFd) -> io::Result<Arc<Keeper>> {
        let mut inherited = HashMap::new();
        loop {
            match receive(&socket)? {
                Some((Message::Descriptor(name), Some(fd))) => drop(inherited.insert(name, fd)),
                Some((Message::Ready, _)) => break,
                Some(_) => {}
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let is_successor = inherited.contains_key(RECORDS);
        let records = match inherited.remove(RECORDS) {
            Some(file) => Keep::open(file)?,
            None => {
                let records = Keep::create()?;
                let message = Message::Descriptor(RECORDS.to_owned());
                send(&socket, &message, Some(records.file().as_fd()))?;
                records
            }
        };
        let inherited = Mutex::new(inherited);
        Ok(Arc::new(Keeper { socket, records, is_successor, inherited }))
    }

    /// The records: those of the predecessor, or new ones.
    pub fn records(&self) -> &Arc<Keep> {
        &self.records
    }

    /// Whether a predecessor left its records.
    pub fn is_successor(&self) -> bool {
        self.is_successor
    }

    /// Has the keeper hold a descriptor by this name, for a successor.
    ///
    /// # Errors
    /// If the keeper has ended: then there will be no successor.
    pub fn hold(&self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        send(&self.socket, &Message::Descriptor(name.to_owned()), Some(fd))
    }

    /// The keeper lets it go.
    pub fn release(&self, name: &str) {
        self.say(&Message::Remove(name.to_owned()));
    }

    /// The descriptor of this name that a predecessor left. The keeper goes on holding it.
    pub fn inherited(&self, name: &str) -> Option<OwnedFd> {
        self.inherited.lock().remove(name)
    }

    /// This process serves: from now on it has a successor if it ends unasked.
    pub fn serves(&self) {
        self.say(&Message::Ready);
    }

    /// This process ends on purpose: it needs no successor.
    pub fn ends(&self) {
        self.say(&Message::Stopping);
    }

    fn say(&self, message: &Message) {
        if let Err(error) = send(&self.socket, message, None) {
            tracing::warn!(%error, "the keeper has ended: this process has no successor");
        }
    }
}

/// Whether the other end belongs to the user of this process, or to root.
pub(crate) fn is_ours(connection: &OwnedFd) -> io::Result<bool> {
    let uid = user_of(connection)?;
    Ok(uid.is_root() || uid == rustix::process::geteuid())
}

/// The user of the process at the other end.
fn user_of(connection: &OwnedFd) -> io::Result<rustix::process::Uid> {
    Ok(sockopt::socket_peercred(connection)?.uid)
}
