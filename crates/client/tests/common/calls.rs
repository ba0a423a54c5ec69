//! Calls in threads of their own, and the usual calls and answers.

use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use client::{CallError, Cancel, Remote, Reply};
use types::{
    Answer, BootVerifier, Call, Caller, CreateHow, DataVersion, Fid, Kind, NewKind, Status,
    StatusVersion, Timestamp,
};

/// A call in a thread of its own.
pub struct Calling(JoinHandle<Result<Reply, CallError>>);

impl Calling {
    /// Whether it has returned.
    pub fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// Its result.
    pub fn result(self) -> Result<Reply, CallError> {
        self.0.join().unwrap()
    }

    /// Its answer.
    pub fn answer(self) -> Answer {
        self.result().unwrap().answer
    }

    /// Its error.
    pub fn error(self) -> CallError {
        self.result().unwrap_err()
    }
}

/// Calls as root.
pub fn call<R: Remote + 'static + ?Sized>(remote: &Arc<R>, call: Call) -> Calling {
    call_with(remote, call, None)
}

/// Calls as root; `cancel` interrupts it.
pub fn call_with<R: Remote + 'static + ?Sized>(
    remote: &Arc<R>,
    call: Call,
    cancel: Option<&Cancel>,
) -> Calling {
    let (remote, cancel) = (Arc::clone(remote), cancel.cloned());
    Calling(std::thread::spawn(move || remote.call(&Caller::ROOT, call, cancel.as_ref())))
}

/// A file of volume 7.
pub const FID: Fid = Fid::new(7, 2, 1);
/// A directory of volume 7.
pub const DIR: Fid = Fid::new(7, 1, 1);

/// A file's status, with this data version.
pub fn status(fid: Fid, data_version: u64) -> Status {
    let never = Timestamp::default();
    Status {
        fid,
        kind: if fid.vnode.is_directory() { Kind::Directory } else { Kind::File },
        mode: 0o644,
        by_list: false,
        read_times: false,
        own_list: false,
        uid: 0,
        gid: 0,
        links: 1,
        size: 0,
        used: 0,
        device: 0,
        accessed: never,
        modified: never,
        changed: never,
        created: never,
        data_version: DataVersion(data_version),
        status_version: StatusVersion::FIRST,
    }
}

pub fn name(text: &str) -> types::Name {
    types::Name::new(text.as_bytes()).unwrap()
}

/// Makes a file; it is refused if there is one.
pub fn make(text: &str) -> Call {
    Call::Make {
        dir: DIR,
        name: name(text),
        kind: NewKind::File,
        mode: 0o600,
        how: CreateHow::Guarded,
    }
}

/// A question.
pub fn get_status() -> Call {
    Call::GetStatus { fid: FID }
}

/// A change.
pub fn write(text: &str) -> Call {
    let data = Bytes::copy_from_slice(text.as_bytes());
    Call::Write { fid: FID, offset: Some(0), data, stable: true, kill_privileges: false }
}

/// The answer to [`write`].
pub fn written(text: &str, data_version: u64) -> Answer {
    Answer::Written {
        count: text.len() as u32,
        offset: 0,
        status: status(FID, data_version),
        previous_version: DataVersion(data_version - 1),
        verifier: BootVerifier(1),
    }
}

/// Whether it is a write.
pub fn is_write(call: &Call) -> bool {
    matches!(call, Call::Write { .. })
}
