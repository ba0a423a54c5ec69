//! A server whose events the test chooses. It grants all that it is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{Association, CallError, Cancel, Cell, Events, Remote, RemoteVolume, Reply};
use parking_lot::Mutex;
use types::{
    Answer, Call, Caller, DataVersion, Fid, Kind, Name, OpenId, PartitionNo, Status, StatusVersion,
    Timestamp, VolumeId, VolumeInfo, VolumeKind, VolumeState,
};

use crate::DirectCell;

pub const FILE: Fid = Fid::new(7, 2, 1);

/// Does something before a call is answered; `Some`: that is the answer.
type Before = dyn FnMut(&Call) -> Option<Result<Answer, CallError>> + Send;

#[derive(Default)]
pub struct ScriptedOpens {
    calls: Mutex<Vec<Call>>,
    before: Mutex<Option<Box<Before>>>,
    events: Mutex<Option<Arc<dyn Events>>>,
    sessions: AtomicU64,
    opens: AtomicU64,
}

/// A program of the server: its cell, and the volume of [`FILE`].
pub fn program() -> (Arc<ScriptedOpens>, DirectCell, Arc<RemoteVolume>) {
    let server = Arc::new(ScriptedOpens::default());
    let cell = DirectCell::over(Cell::new(Arc::clone(&server) as _));
    let volume = cell.volume(&Name::new(b"volume").unwrap()).unwrap();
    (server, cell, volume)
}

impl ScriptedOpens {
    /// Runs once, before the next call that `which` chooses is answered.
    pub fn before(
        &self,
        which: impl Fn(&Call) -> bool + Send + 'static,
        act: impl FnOnce() -> Option<Result<Answer, CallError>> + Send + 'static,
    ) {
        let mut act = Some(act);
        *self.before.lock() =
            Some(Box::new(
                move |call| {
                    if which(call) { act.take().and_then(|act| act()) } else { None }
                },
            ));
    }

    /// Another instance has the session, and nothing of it yet.
    pub fn begin_restart(&self) {
        self.sessions.fetch_add(1, Ordering::SeqCst);
    }

    /// The client learns of it.
    pub fn report_restart(&self) {
        let events = self.events.lock().clone().unwrap();
        events.on_server_restarted(self);
    }

    pub fn restart(&self) {
        self.begin_restart();
        self.report_restart();
    }

    /// The client learns that its session ended.
    pub fn report_loss(&self) {
        let events = self.events.lock().clone().unwrap();
        events.on_lease_lost();
    }

    /// The calls since the last time.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock())
    }
}

fn status() -> Status {
    let never = Timestamp::default();
    Status {
        fid: FILE,
        kind: Kind::File,
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
        data_version: DataVersion(1),
        status_version: StatusVersion::FIRST,
    }
}

fn volume() -> VolumeInfo {
    VolumeInfo {
        id: FILE.volume,
        tree: VolumeId(7),
        kind: VolumeKind::ReadWrite,
        state: VolumeState::Online,
        partition: PartitionNo(0),
        epoch: 1,
        origin: None,
        name: Name::new(b"volume").unwrap(),
        created: Timestamp::default(),
        updated: Timestamp::default(),
        quota_bytes: 0,
        quota_files: 0,
        used_bytes: 0,
        used_files: 0,
        encrypted: None,
    }
}

impl Remote for ScriptedOpens {
    fn call(&self, _: &Caller, call: Call, _: Option<&Cancel>) -> Result<Reply, CallError> {
        let mut answer = match &call {
            Call::Volume(_) => {
                let volumes = vec![volume()];
                return Ok(Answer::Volumes { volumes, end: true }.into());
            }
            Call::Cell(_) => return Err(CallError::Fault(types::Fault::Unsupported)),
            Call::Open { .. } => {
                let open = OpenId(self.opens.fetch_add(1, Ordering::SeqCst) + 1);
                Ok(Answer::Opened { open, status: status() })
            }
            Call::GetStatus { .. } => Ok(Answer::Status(status())),
            Call::Lock { .. } | Call::Unlock { .. } | Call::Close { .. } => Ok(Answer::Done),
            Call::Downgrade { .. } => Ok(Answer::Done),
            other => panic!("{other:?}"),
        };
        self.calls.lock().push(call.clone());
        let before = self.before.lock().take();
        if let Some(mut before) = before {
            match before(&call) {
                Some(other) => answer = other,
                None => {
                    let mut place = self.before.lock();
                    place.get_or_insert(before);
                }
            }
        }
        answer.map(Reply::from)
    }

    fn chain(&self, _: &Caller, _: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        unreachable!("the library sends no chains")
    }

    fn association(&self) -> Association {
        Association { places: 0, sessions: self.sessions.load(Ordering::SeqCst) }
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        *self.events.lock() = Some(events);
    }

    fn passes_descriptors(&self) -> bool {
        false
    }
}
