//! A keeper that starts no daemons: something else restarts them (systemd, Kubernetes).
//!
//! Daemons connect to its socket and name the place of their mount. The descriptors that a daemon
//! gives are held when its connection ends, for the next daemon of the same place, unless it ended
//! on purpose, or never served. They are let go too when nothing serves a mount that has ended: the
//! kernel says so.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

use crate::held::{Event, Held};
use crate::keeper::is_ours;
use crate::messages::{Message, receive};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;
/// How long a daemon may take to receive what is held for it.
const DAEMON_PATIENCE: Duration = Duration::from_secs(10);
/// The name of a mount's first descriptor.
const FIRST_MOUNT: &str = "fuse-0";

/// The descriptors that are held for the mounts of one machine.
#[derive(Debug)]
pub struct HeldPlaces {
    listener: OwnedFd,
    path: PathBuf,
    /// Connections that did not name their place yet.
    strangers: Vec<OwnedFd>,
    places: BTreeMap<String, Place>,
}

#[derive(Debug, Default)]
struct Place {
    held: Held,
    /// A daemon of this place served.
    served: bool,
    /// The present daemon will end on purpose.
    stopping: bool,
}

/// The owner of a descriptor that became ready.
#[derive(Clone)]
enum Source {
    Caller,
    Listener,
    Stranger(usize),
    Daemon(String),
    Mount(String),
}

impl HeldPlaces {
    /// Listens at `path`, for processes of the same user.
    ///
    /// # Errors
    /// `AddrInUse`: a keeper listens there. Otherwise the kernel's.
    pub fn listen(path: &Path) -> io::Result<HeldPlaces> {
        let family = AddressFamily::UNIX;
        let new = || socket_with(family, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let address = SocketAddrUnix::new(path)?;
        let listener = new()?;
        if bind(&listener, &address) == Err(Errno::ADDRINUSE) {
            if connect(new()?, &address) != Err(Errno::CONNREFUSED) {
                return Err(Errno::ADDRINUSE.into());
            }
            // One that was killed left it.
            std::fs::remove_file(path)?;
            bind(&listener, &address)?;
        }
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listen(&listener, BACKLOG)?;
        let (strangers, places) = Default::default();
        Ok(HeldPlaces { listener, path: path.to_owned(), strangers, places })
    }

    /// Serves until one of `until` is readable.
    ///
    /// # Errors
    /// The kernel's.
    pub fn serve(&mut self, until: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            match self.wait(until)? {
                Source::Caller => return Ok(()),
                Source::Listener => match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                    Ok(connection) => self.strangers.push(connection),
                    Err(error) => tracing::warn!(%error, "a daemon cannot connect"),
                },
                Source::Stranger(at) => {
                    let connection = self.strangers.swap_remove(at);
                    self.meet(connection);
                }
                Source::Daemon(place) => self.hear(&place),
                Source::Mount(place) => {
                    tracing::info!(place, "the mount has ended");
                    self.places.remove(&place);
                }
            }
        }
    }

    fn wait(&self, until: &[BorrowedFd<'_>]) -> io::Result<Source> {
        let mut sources = vec![Source::Listener];
        let mut polled = vec![PollFd::new(&self.listener, PollFlags::IN)];
        for fd in until {
            sources.push(Source::Caller);
            polled.push(PollFd::from_borrowed_fd(*fd, PollFlags::IN));
        }
        for (at, stranger) in self.strangers.iter().enumerate() {
            sources.push(Source::Stranger(at));
            polled.push(PollFd::new(stranger, PollFlags::IN));
        }
        for (place, state) in &self.places {
            if let Some(socket) = state.held.socket() {
                sources.push(Source::Daemon(place.clone()));
                polled.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
            } else if let Some(mount) = state.held.named(FIRST_MOUNT) {
                // Requests that wait for a daemon are no event.
                sources.push(Source::Mount(place.clone()));
                polled.push(PollFd::from_borrowed_fd(mount, PollFlags::empty()));
            }
        }
        loop {
            match poll(&mut polled, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let ready = polled.iter().position(|fd| !fd.revents().is_empty());
            if let Some(at) = ready {
                return Ok(sources[at].clone());
            }
        }
    }

    /// A connection names its place. Other connections are closed.
    fn meet(&mut self, connection: OwnedFd) {
        let Ok(Some((Message::Place(place), _))) = receive(&connection) else { return };
        if !is_ours(&connection).unwrap_or(false) {
            return tracing::warn!(place, "a process of another user was refused");
        }
        let state = self.places.entry(place.clone()).or_default();
        if state.held.socket().is_some() {
            return tracing::warn!(place, "a second daemon was refused");
        }
        tracing::info!(place, successor = state.served, "a daemon begins");
        // One that does not read must not stop the keeper of the others.
        let _ = set_socket_timeout(&connection, Timeout::Send, Some(DAEMON_PATIENCE));
        state.held.give(connection);
    }

    fn hear(&mut self, place: &str) {
        let Some(state) = self.places.get_mut(place) else { return };
        match state.held.take_event() {
            Event::Held => {}
            Event::Ready => state.served = true,
            Event::Stopping => state.stopping = true,
            Event::Gone if state.stopping || !state.served => {
                tracing::info!(place, "its daemon has ended, and needs no successor");
                self.places.remove(place);
            }
            Event::Gone => tracing::warn!(place, "its daemon ended unasked: a successor may come"),
        }
    }
}

impl Drop for HeldPlaces {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
