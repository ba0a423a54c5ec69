//! Trees of sessions (`rialto pagsh`, docs/spec/access.md).
//!
//! Root's mount listens at a socket for all users, `/run/rialto/MOUNTPOINT.sock`. A connecting
//! process receives one message: the descriptor of a detached mount, with a new token wallet, or a
//! line with the reason of a refusal. The process attaches it in a mount name space of its own. The
//! mount ends with the last process that can see it.
//!
//! Any user could own the socket's name, so the process checks that the peer is root (by the
//! kernel's credentials).

use std::collections::HashMap;
use std::fs;
use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use local::cell::file_name;
use local::failure::{Doing, Failure};
use parking_lot::Mutex;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};

use crate::registry::RUN_DIR;

/// Limits of the sessions of one user, and of all: each has threads and a cache.
const OF_ONE_MAX: usize = 32;
const MAX: usize = 512;
/// The kernel's number for users without a mapping.
const UNMAPPED: u32 = 65534;
/// How long making the mount may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The socket of the mount at `at`.
fn socket(at: &Path) -> PathBuf {
    Path::new(RUN_DIR).join(format!("{}.sock", file_name(at)))
}

/// Serves sessions until it is dropped.
pub struct SessionListener(PathBuf);

impl Drop for SessionListener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A session's mount: the descriptor for the requester, and the cleanup after the mount's end,
/// which may take time.
pub struct Made {
    /// The detached mount.
    pub mount: OwnedFd,
    /// Waits for the mount's end, and cleans up.
    pub ends: Box<dyn FnOnce() + Send>,
}

/// Listens for session requests for the mount at `at`; `make` makes a session, with a unique
/// number.
///
/// # Errors
/// If the socket cannot be made.
pub fn listen(
    at: &Path,
    make: impl Fn(u64) -> Result<Made, Failure> + Send + Sync + 'static,
) -> Result<SessionListener, Failure> {
    let path = socket(at);
    let what = || format!("listening for sessions at {}", path.display());
    fs::create_dir_all(RUN_DIR).doing(what)?;
    if UnixStream::connect(&path).is_err() {
        let _ = fs::remove_file(&path);
    }
    let listener = UnixListener::bind(&path).doing(what)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).doing(what)?;
    let (make, open) = (Arc::new(make), Arc::new(Mutex::new(HashMap::<u32, usize>::new())));
    let accept = move || {
        for (number, asker) in listener.incoming().enumerate() {
            let (Ok(asker), make, open) = (asker, Arc::clone(&make), Arc::clone(&open)) else {
                continue;
            };
            let serve = move || serve(&asker, number as u64, &*make, &open);
            if let Err(error) = std::thread::Builder::new().name("session".into()).spawn(serve) {
                tracing::warn!(%error, "cannot start a thread for a session: it is refused");
            }
        }
    };
    std::thread::Builder::new().name("sessions".into()).spawn(accept).doing(what)?;
    Ok(SessionListener(path))
}

fn serve(
    asker: &UnixStream,
    number: u64,
    make: &dyn Fn(u64) -> Result<Made, Failure>,
    open: &Mutex<HashMap<u32, usize>>,
) {
    let Ok(credentials) = sockopt::socket_peercred(asker) else { return };
    let uid = credentials.uid.as_raw();
    let refusal = {
        let mut open = open.lock();
        let (all, own) = (open.values().sum::<usize>(), open.entry(uid).or_default());
        let full = all >= MAX || *own >= OF_ONE_MAX;
        *own += usize::from(!full);
        full
    };
    if refusal {
        return send_refusal(
            asker,
            &format!("there are {OF_ONE_MAX} sessions of one user, or {MAX} of all"),
        );
    }
    match make(number) {
        Ok(made) => {
            tracing::info!(number, uid, "a session begins");
            hand_over(asker, &made.mount);
            // An open descriptor here would prevent its end.
            drop(made.mount);
            (made.ends)();
            tracing::info!(number, uid, "a session ended");
        }
        Err(failure) => send_refusal(asker, &failure.to_string()),
    }
    let mut open = open.lock();
    let left = open.get(&uid).map_or(0, |own| own - 1);
    if left == 0 {
        open.remove(&uid)
    } else {
        open.insert(uid, left)
    };
}

/// Sends the session's mount with the message.
fn hand_over(asker: &UnixStream, mount: &OwnedFd) {
    let fds = [mount.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    if let Err(error) = sendmsg(asker, &[IoSlice::new(b"\0")], &mut ancillary, SendFlags::NOSIGNAL)
    {
        tracing::info!(%error, "the process that requested a session has ended");
    }
}

fn send_refusal(asker: &UnixStream, why: &str) {
    let mut ancillary = SendAncillaryBuffer::default();
    let _ = sendmsg(asker, &[IoSlice::new(why.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL);
}

/// Whether root has no number in this name space, as in another user's session: then root is
/// recognized by the directory alone, where only root makes names.
fn in_session() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.lines().all(|line| line.split_ascii_whitespace().next() != Some("0"))
}

/// Requests a tree of its own from the mount at `at`.
///
/// # Errors
/// If no mount listens, or the listener is not root, or the mount refuses.
pub fn ask(at: &Path) -> Result<OwnedFd, Failure> {
    let path = socket(at);
    let what = || format!("asking the mount on {} for a session", at.display());
    let mut stream = UnixStream::connect(&path).map_err(|error| {
        Failure::new(what(), format!("{}: {error}", path.display()))
            .mend("only trees that root mounted have sessions: see 'rialto mount --help'")
    })?;
    let answers = sockopt::socket_peercred(&stream).doing(what)?;
    let is_root = answers.uid.is_root() || in_session() && answers.uid.as_raw() == UNMAPPED;
    if !is_root {
        let why = format!("user {} listens at {}, not root", answers.uid.as_raw(), path.display());
        return Err(Failure::new(what(), why));
    }
    stream.set_read_timeout(Some(TIMEOUT)).doing(what)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0; 4096];
    let received = recvmsg(
        &stream,
        &mut [IoSliceMut::new(&mut text)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )
    .doing(what)?;
    let mount = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    mount.ok_or_else(|| {
        let mut why = String::from_utf8_lossy(&text[..received.bytes]).into_owned();
        let _ = stream.read_to_string(&mut why);
        Failure::new(what(), if why.is_empty() { "it ended".to_owned() } else { why })
    })
}
