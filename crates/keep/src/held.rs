//! The keeper's side: it holds descriptors by name, for one daemon after the other.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::process::{Child, Command};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::keeper::VARIABLE;
use crate::messages::{Message, receive, send};

/// The descriptors that a keeper holds, and its connection with the present daemon.
#[derive(Debug, Default)]
pub struct Held {
    by_name: BTreeMap<String, OwnedFd>,
    socket: Option<OwnedFd>,
}

/// A message of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It gave a descriptor, or took one back.
    Held,
    /// It serves.
    Ready,
    /// It will end on purpose.
    Stopping,
    /// It has closed the connection.
    Gone,
}

impl Held {
    /// Starts a daemon, and gives it what its predecessor left.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&mut self, command: &mut Command) -> io::Result<Child> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let number: RawFd = mem::inherit::left(theirs)?;
        let started = command.env(VARIABLE, number.to_string()).spawn();
        // Only the daemon has that end from now on.
        drop(mem::inherit::taken(number)?);
        let child = started?;
        self.give(ours);
        Ok(child)
    }

    /// Gives what is held to the daemon at the other end, which is the present one from now on.
    pub(crate) fn give(&mut self, socket: OwnedFd) {
        for (name, fd) in &self.by_name {
            let message = Message::Descriptor(name.clone());
            if send(&socket, &message, Some(fd.as_fd())).is_err() {
                // It has ended already.
                break;
            }
        }
        let _ = send(&socket, &Message::Ready, None);
        self.socket = Some(socket);
    }

    /// The descriptor of this name, if it is held.
    pub(crate) fn named(&self, name: &str) -> Option<BorrowedFd<'_>> {
        self.by_name.get(name).map(AsFd::as_fd)
    }

    /// Readable when [`Self::take_event`] does not wait; `None` once the daemon is gone.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Waits for the daemon's next message.
    pub fn take_event(&mut self) -> Event {
        let Some(socket) = &self.socket else { return Event::Gone };
        match receive(socket) {
            Ok(Some((Message::Descriptor(name), Some(fd)))) => {
                self.by_name.insert(name, fd);
                Event::Held
            }
            Ok(Some((Message::Remove(name), _))) => {
                self.by_name.remove(&name);
                Event::Held
            }
            Ok(Some((Message::Ready, _))) => Event::Ready,
            Ok(Some((Message::Stopping, _))) => Event::Stopping,
            // A daemon of another version may say more.
            Ok(Some((Message::Descriptor(_), None) | (Message::Place(_), _))) => Event::Held,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Event::Held,
            Ok(None) | Err(_) => {
                self.socket = None;
                Event::Gone
            }
        }
    }
}
