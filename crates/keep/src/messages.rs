//! The messages between a daemon and its keeper.
//!
//! Each is one packet of a Unix socket, of lines `NAME=value`, with at most one descriptor. The
//! names and their meanings are those of systemd's notification protocol, and `PLACE`. Source:
//! `sd_pid_notify_with_fds(3)`.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Longer than any of them.
const BYTES_MAX: usize = 4200;
/// The longest name of a descriptor. Source: `FDNAME` of systemd.
const NAME_BYTES_MAX: usize = 255;

/// The longest place. Source: `PATH_MAX` of Linux.
const PLACE_BYTES_MAX: usize = 4096;

/// A message, without its descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The daemon serves the mount at this place: the first message to a keeper that did not start
    /// it.
    Place(String),
    /// The descriptor that comes along has this name: to be held, or from the predecessor.
    Descriptor(String),
    /// The descriptor of this name is no longer needed.
    Remove(String),
    /// The daemon serves; or all of the predecessor's descriptors were sent.
    Ready,
    /// The daemon ends on purpose: it needs no successor.
    Stopping,
}

/// The one name of a place in the keeper's table: without the slashes and dots of other names that
/// the kernel takes for the same. `None`: it is none, or leads through `..` or a line's end.
fn canonical(place: &str) -> Option<String> {
    if !place.starts_with('/') || place.len() > PLACE_BYTES_MAX || place.contains('\n') {
        return None;
    }
    let parts: Vec<&str> =
        place.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let is_one = !parts.is_empty() && !parts.contains(&"..");
    is_one.then(|| format!("/{}", parts.join("/")))
}

impl Message {
    /// The place of the mount at this path.
    pub(crate) fn place(path: &str) -> Option<Message> {
        canonical(path).map(Message::Place)
    }

    fn text(&self) -> String {
        match self {
            Message::Place(place) => format!("PLACE={place}"),
            Message::Descriptor(name) => format!("FDSTORE=1\nFDNAME={name}"),
            Message::Remove(name) => format!("FDSTOREREMOVE=1\nFDNAME={name}"),
            Message::Ready => "READY=1".to_owned(),
            Message::Stopping => "STOPPING=1".to_owned(),
        }
    }

    /// `None`: it is none of these.
    fn parse(text: &str) -> Option<Self> {
        let name = |line: &str| {
            let name = line.strip_prefix("FDNAME=")?;
            (!name.is_empty() && name.len() <= NAME_BYTES_MAX).then(|| name.to_owned())
        };
        let mut lines = text.lines();
        let message = match lines.next()? {
            "FDSTORE=1" => Message::Descriptor(name(lines.next()?)?),
            "FDSTOREREMOVE=1" => Message::Remove(name(lines.next()?)?),
            "READY=1" => Message::Ready,
            "STOPPING=1" => Message::Stopping,
            line => Message::place(line.strip_prefix("PLACE=")?)?,
        };
        lines.next().is_none().then_some(message)
    }
}

/// Sends a message; waits for room.
///
/// # Errors
/// `EPIPE` or `ECONNRESET` if the other side has ended; the kernel's.
pub(crate) fn send(
    socket: &OwnedFd,
    message: &Message,
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let text = message.text();
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let parts = [IoSlice::new(text.as_bytes())];
    loop {
        match sendmsg(socket.as_fd(), &parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            result => return result.map(drop).map_err(io::Error::from),
        }
    }
}

/// Receives a message; waits for one. `Ok(None)`: the other side has ended.
///
/// # Errors
/// `InvalidData` for what is no message; the kernel's.
pub(crate) fn receive(socket: &OwnedFd) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    let mut bytes = [0; BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            result => break result?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let fd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let text = std::str::from_utf8(&bytes[..received.bytes]).unwrap_or_default();
    let message = Message::parse(text).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Some((message, fd)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_are_written() {
        for message in [
            Message::Place("/afs/cell".to_owned()),
            Message::Descriptor("fuse-0".to_owned()),
            Message::Remove("fuse-0".to_owned()),
            Message::Ready,
            Message::Stopping,
        ] {
            assert_eq!(Message::parse(&message.text()), Some(message));
        }
        for text in ["/afs/cell", "/afs/cell/", "//afs///cell//", "/afs/./cell/."] {
            let place = Message::Place("/afs/cell".to_owned());
            assert_eq!(Message::parse(&format!("PLACE={text}")), Some(place), "{text:?}");
        }
        let long = format!("FDSTORE=1\nFDNAME={}", "x".repeat(NAME_BYTES_MAX + 1));
        for text in [
            "",
            "PLACE=afs",
            "PLACE=",
            "PLACE=/afs/../afs",
            "PLACE=/",
            "PLACE=/afs\nx",
            "READY=2",
            "FDSTORE=1",
            "FDSTORE=1\nFDNAME=",
            "READY=1\nREADY=1",
            &long,
        ] {
            assert_eq!(Message::parse(text), None, "{text:?}");
        }
    }
}
