//! A client's identity: a random number that never changes, and a count of its incarnations, in one
//! small file.
//!
//! The count is on disk before the identity is used, so that no two incarnations ever have the same
//! number: servers refuse a lower one than they know (EO-2). The file is locked while the identity
//! is in use; a second client needs a file of its own.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use keep::Keep;
use rustix::fs::{FlockOperation, flock};
use types::ClientId;

use crate::kept;

/// How often an ending user's lock is tried: its end takes some milliseconds.
const ENDING_POLL: Duration = Duration::from_millis(5);

/// A client's identity, locked against a second user until it is dropped.
#[derive(Debug)]
pub struct ClientIdentity {
    /// The client's number, random and permanent.
    pub client: ClientId,
    /// The client's incarnation: rises with each start.
    pub incarnation: u64,
    /// Holds the lock; an identity without a file needs none.
    _file: Option<File>,
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Another process uses it.
    #[error("{} is in use by another client on this machine; give each its own \
        directory", .0.display())]
    InUse(PathBuf),
    /// The file is not an identity file.
    #[error("{} is damaged; remove it to become a new client", .0.display())]
    Damaged(PathBuf),
    /// Reading or writing the file failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// The identity file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
}

impl ClientIdentity {
    /// The identity in the file at `path`, with the next incarnation. Creates the file if there is
    /// none.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        Self::load_within(path, Duration::ZERO)
    }

    /// [`Self::load`]; waits at most `patience` for a user that is ending: a process has the lock
    /// until its last thread has ended.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn load_within(path: &Path, patience: Duration) -> Result<Self, IdentityError> {
        Self::load_unless(path, patience, |_, _| false)
    }

    /// [`Self::load_within`], for the successor of a process that was killed: with the same
    /// incarnation, if a session of it can be resumed from the keep. The file's lock ensures that
    /// the predecessor is gone.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn continue_within(
        path: &Path,
        patience: Duration,
        keep: &Arc<Keep>,
    ) -> Result<Self, IdentityError> {
        Self::load_unless(path, patience, |client, incarnation| {
            kept::has_session(keep, client, incarnation)
        })
    }

    /// `goes_on`: the incarnation is not over.
    fn load_unless(
        path: &Path,
        patience: Duration,
        goes_on: impl Fn(ClientId, u64) -> bool,
    ) -> Result<Self, IdentityError> {
        let until = Instant::now() + patience;
        let io = |error| IdentityError::Io { path: path.to_owned(), error };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(io)?;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() >= until {
                return Err(IdentityError::InUse(path.to_owned()));
            }
            std::thread::sleep(ENDING_POLL);
        }
        let mut text = String::new();
        // Text that is not UTF-8 counts as damaged, like any other foreign text.
        let read = file.read_to_string(&mut text);
        if let Err(error) = read
            && error.kind() != std::io::ErrorKind::InvalidData
        {
            return Err(io(error));
        }
        let (client, incarnation) = match parse(&text) {
            Some(found) => found,
            None if text.is_empty() && file.metadata().map_err(io)?.len() == 0 => {
                (ClientId(rand::random()), 0)
            }
            None => return Err(IdentityError::Damaged(path.to_owned())),
        };
        if goes_on(client, incarnation) {
            return Ok(ClientIdentity { client, incarnation, _file: Some(file) });
        }
        let incarnation = incarnation + 1;
        // One write of less than a block over the old one: a crash leaves the old count or the new
        // one.
        file.seek(SeekFrom::Start(0)).map_err(io)?;
        file.write_all(format(client, incarnation).as_bytes()).map_err(io)?;
        file.sync_all().map_err(io)?;
        sync_directory(path).map_err(io)?;
        Ok(ClientIdentity { client, incarnation, _file: Some(file) })
    }

    /// A given identity, without a file that guards it.
    pub fn with(client: ClientId, incarnation: u64) -> Self {
        ClientIdentity { client, incarnation, _file: None }
    }

    /// The same client and incarnation, for a session with one more server.
    pub fn again(&self) -> Self {
        Self::with(self.client, self.incarnation)
    }

    /// An identity that is never used again: for programs that leave no state behind.
    pub fn fleeting() -> Self {
        Self::with(ClientId(rand::random()), 1)
    }
}

fn format(client: ClientId, incarnation: u64) -> String {
    format!("rialto-client 1\nid {:032x}\nlives {incarnation:020}\n", client.0)
}

fn parse(text: &str) -> Option<(ClientId, u64)> {
    let mut lines = text.lines();
    if lines.next()? != "rialto-client 1" {
        return None;
    }
    let id = u128::from_str_radix(lines.next()?.strip_prefix("id ")?, 16).ok()?;
    let incarnation = lines.next()?.strip_prefix("lives ")?.parse().ok()?;
    Some((ClientId(id), incarnation))
}

fn sync_directory(path: &Path) -> std::io::Result<()> {
    let parent =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_life_has_a_higher_number_and_one_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        let first = ClientIdentity::load(&path).unwrap();
        assert!(matches!(ClientIdentity::load(&path), Err(IdentityError::InUse(_))));
        let (client, incarnation) = (first.client, first.incarnation);
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(first);
        });
        let second = ClientIdentity::load_within(&path, Duration::from_secs(30)).unwrap();
        ending.join().unwrap();
        assert_eq!((second.client, second.incarnation), (client, incarnation + 1));
        assert_ne!(ClientIdentity::fleeting().client, client);
    }

    #[test]
    fn a_damaged_file_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        for damage in
            [&b"rialto-client 2\n"[..], b"\xff\xfe", b"\n", b"rialto-client 1\nid zz\nlives 1\n"]
        {
            std::fs::write(&path, damage).unwrap();
            assert!(matches!(ClientIdentity::load(&path), Err(IdentityError::Damaged(_))));
            assert_eq!(std::fs::read(&path).unwrap(), damage);
        }
    }
}
