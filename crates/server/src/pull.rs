//! Fetching volumes from other servers, in threads beside those that serve.
//!
//! A pull asks the other server for what its volume has and this one's copy of the tree has not, applies part after part, one ahead of the disk, and
//! makes the volume that was asked for. It may stop anywhere: what came in stays, and the same pull goes on where it was.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{CallError, Endpoint, Identity, Remote, Session, SessionConfig, clock};
use parking_lot::Mutex;
use store::{PART_BYTES_MIN, Partition, StoreError, StreamPart};
use types::limits::{PAYLOAD_BYTES_MAX, TASK_TEXT_BYTES_MAX};
use types::{
    Answer, Call, Caller, Fault, PartitionNo, Pull, StreamCursor, TaskInfo, TaskState, VolumeCall, VolumeId,
    VolumeInfo, WhichVolume,
};
use vice::Errands;

use crate::house::{Agenda, House};
use crate::loopback::wall;
use crate::pool::Pool;

/// Pulls at once.
pub(crate) const PULL_THREADS: usize = 4;
/// Pulls that wait for a thread.
const WAITING_MAX: usize = 256;
/// Tasks that ended and are still told of.
const ENDED_MAX: usize = 64;
/// How long a session may take to begin at one address, and one call to be answered.
const ATTACH_WITHIN: Duration = Duration::from_secs(3);
const CALL_WITHIN: Duration = Duration::from_secs(30);
/// How long a pull waits for what was removed of the tree to be swept.
const SWEPT_WITHIN: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);
/// Parts that are fetched before they are applied.
const AHEAD: usize = 2;
const _: () = assert!(PART_BYTES_MIN <= PAYLOAD_BYTES_MAX);

/// What pulls run, and what became of them.
pub(crate) struct Puller {
    house: Mutex<Weak<House>>,
    pool: Pool,
    stopping: AtomicBool,
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    last: u64,
    all: Vec<(Pull, Arc<Mutex<TaskInfo>>)>,
}

/// Why a pull ended without.
struct Failure(String);

type Result<T> = std::result::Result<T, Failure>;

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure(format!("here: {error}"))
    }
}

fn here(what: &str) -> impl Fn(Fault) -> Failure {
    move |fault| Failure(format!("here: {what}: {fault}"))
}

fn there(what: &str) -> impl Fn(CallError) -> Failure {
    move |error| Failure(format!("the other server: {what}: {error}"))
}

impl Puller {
    pub fn start() -> std::io::Result<Arc<Puller>> {
        Ok(Arc::new(Puller {
            house: Mutex::default(),
            pool: Pool::start("pull", PULL_THREADS)?,
            stopping: AtomicBool::new(false),
            tasks: Mutex::default(),
        }))
    }

    /// Whom it works for. Once, before anybody asks.
    pub fn works_for(&self, house: &Arc<House>) {
        *self.house.lock() = Arc::downgrade(house);
    }

    /// Ends what runs, at the next part.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.pool.stop();
    }

    fn run(&self, pull: &Pull, task: &Mutex<TaskInfo>) {
        let Some(house) = self.house.lock().upgrade() else { return };
        let pulling = Pulling { house: &house, pull, task, stopping: &self.stopping };
        let result = pulling.run();
        let mut task = task.lock();
        match result {
            Ok(()) => task.state = TaskState::Done,
            Err(Failure(why)) => {
                tracing::warn!(tree = pull.tree.0, why, "a pull failed");
                task.state = TaskState::Failed;
                task.text = shortened(why);
            }
        }
    }
}

/// The puller as the service knows it.
pub(crate) struct Pulls(pub Arc<Puller>);

impl Errands for Pulls {
    fn pull(&self, pull: &Pull) -> std::result::Result<TaskInfo, Fault> {
        let mut tasks = self.0.tasks.lock();
        let runs = |task: &Arc<Mutex<TaskInfo>>| task.lock().state == TaskState::Runs;
        if let Some((_, task)) = tasks.all.iter().find(|(of, task)| of == pull && runs(task)) {
            return Ok(task.lock().clone());
        }
        let running = tasks.all.iter().filter(|(_, task)| runs(task)).count();
        // Two of one tree would only disturb each other.
        if running >= WAITING_MAX || tasks.all.iter().any(|(of, task)| of.tree == pull.tree && runs(task)) {
            return Err(Fault::Busy);
        }
        while tasks.all.len() - running >= ENDED_MAX {
            let ended = tasks.all.iter().position(|(_, task)| !runs(task)).expect("that many ended");
            tasks.all.remove(ended);
        }
        tasks.last += 1;
        let info = TaskInfo {
            number: tasks.last,
            tree: pull.tree,
            state: TaskState::Runs,
            since: 0,
            epoch: 0,
            bytes: 0,
            total_bytes: 0,
            text: format!("pull of volume {}", pull.id.0),
        };
        let task = Arc::new(Mutex::new(info.clone()));
        tasks.all.push((pull.clone(), Arc::clone(&task)));
        drop(tasks);
        let (puller, pull) = (Arc::clone(&self.0), pull.clone());
        self.0.pool.run(move || puller.run(&pull, &task));
        Ok(info)
    }

    fn tasks(&self) -> Vec<TaskInfo> {
        self.0.tasks.lock().all.iter().map(|(_, task)| task.lock().clone()).collect()
    }
}

/// One pull.
struct Pulling<'a> {
    house: &'a Arc<House>,
    pull: &'a Pull,
    task: &'a Mutex<TaskInfo>,
    stopping: &'a AtomicBool,
}

impl Pulling<'_> {
    fn run(&self) -> Result<()> {
        let source = Source { session: self.connect()?, id: self.pull.id };
        let volume = source.examine()?;
        let (no, partition, epochs) = self.house.vice.place_of_pull(self.pull).map_err(here("looking for the tree"))?;
        self.task.lock().epoch = volume.epoch;
        let shown =
            if epochs.contains(&volume.epoch) { partition.view_of(self.pull.tree, volume.epoch)? } else { None };
        if shown.is_none() {
            self.fetch(&source, &volume, &partition, &epochs)?;
        }
        self.finish((no, self.pull.tree), shown)
    }

    /// Makes the volume; waits until nothing of an earlier one with its number is in the way.
    fn finish(&self, place: (PartitionNo, VolumeId), shown: Option<VolumeId>) -> Result<()> {
        let end = Instant::now() + SWEPT_WITHIN;
        loop {
            let mut agenda = Agenda::default();
            let now = (clock::now(), wall());
            let finished = self.house.vice.finish_incoming(now, place, &self.pull.finish, shown, &mut agenda.effects);
            self.house.settle_and_send(&mut agenda);
            match finished {
                Err(Fault::Busy) if Instant::now() < end && !self.stopping.load(Ordering::Relaxed) => {
                    std::thread::sleep(PAUSE);
                }
                finished => return finished.map_err(here("making the volume")).map(drop),
            }
        }
    }

    fn connect(&self) -> Result<Session> {
        let mut last = Failure("no address was given".to_owned());
        for address in &self.pull.from {
            let mut config = SessionConfig::new(Endpoint::Tcp(address.to_string()), Identity::fleeting());
            config.attach_within = Some(ATTACH_WITHIN);
            config.call_within = Some(CALL_WITHIN);
            config.checksums = true;
            config.display = format!("server, process {}", std::process::id());
            match Session::connect(config) {
                Ok(session) => return Ok(session),
                Err(error) => last = Failure(format!("{address} cannot be reached: {error}")),
            }
        }
        Err(last)
    }

    /// Brings in what is missing here.
    fn fetch(&self, source: &Source, volume: &VolumeInfo, partition: &Partition, epochs: &[u64]) -> Result<()> {
        let first = source.first(epochs.iter().copied().filter(|epoch| *epoch < volume.epoch))?;
        let head = StreamPart::open(&first)?.head;
        let mut cursor = self.begin(partition, &first)?;
        let mut task = self.task.lock();
        task.since = head.since;
        task.total_bytes = if head.since == 0 { volume.used_bytes } else { 0 };
        drop(task);
        std::thread::scope(|scope| {
            let (parts, fetched) = sync_channel(AHEAD);
            let from = if cursor == StreamCursor::START { Ok(first) } else { Err(cursor) };
            scope.spawn(move || source.send_all(head.since, from, &parts));
            while cursor != StreamCursor::END {
                let part = self.next(&fetched)?;
                cursor = partition.apply_part(self.pull.tree, &part)?;
                self.task.lock().bytes += part.len() as u64;
            }
            Ok(())
        })
    }

    fn next(&self, fetched: &Receiver<Result<Bytes>>) -> Result<Bytes> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Failure("this server stops".to_owned()));
        }
        fetched.recv().unwrap_or_else(|_| Err(Failure("the other server sends no more".to_owned())))
    }

    /// Where the stream goes on; waits until nothing of an earlier tree is in the way.
    fn begin(&self, partition: &Partition, first: &Bytes) -> Result<StreamCursor> {
        let head = StreamPart::open(first)?.head;
        let end = Instant::now() + SWEPT_WITHIN;
        loop {
            match partition.begin_incoming(self.pull.tree, &head) {
                Err(StoreError::Busy(_)) if Instant::now() < end && !self.stopping.load(Ordering::Relaxed) => {
                    std::thread::sleep(PAUSE);
                }
                begun => return Ok(begun?),
            }
        }
    }
}

/// The volume at the other server.
struct Source {
    session: Session,
    id: VolumeId,
}

impl Source {
    fn ask(&self, call: VolumeCall) -> std::result::Result<Answer, CallError> {
        self.session.call(&Caller::ROOT, Call::Volume(call), None).map(|reply| reply.answer)
    }

    fn examine(&self) -> Result<VolumeInfo> {
        let asked = self.ask(VolumeCall::Examine { volume: WhichVolume::Id(self.id) });
        match asked.map_err(there("looking for the volume"))? {
            Answer::Volumes { volumes, .. } if !volumes.is_empty() => {
                Ok(volumes.into_iter().next().expect("not empty"))
            }
            _ => Err(Failure("the other server gave no answer that belongs to the question".to_owned())),
        }
    }

    fn part(&self, since: u64, cursor: StreamCursor) -> std::result::Result<Bytes, CallError> {
        let bytes_max = PAYLOAD_BYTES_MAX as u32;
        match self.ask(VolumeCall::Changes { id: self.id, since, cursor, bytes_max })? {
            Answer::Part(part) => Ok(part),
            _ => Err(CallError::Fault(Fault::Invalid)),
        }
    }

    /// The first part, since the newest of the epochs that the source shows too; or all of it.
    fn first(&self, epochs: impl Iterator<Item = u64>) -> Result<Bytes> {
        for since in epochs {
            match self.part(since, StreamCursor::START) {
                Err(CallError::Fault(Fault::Invalid)) => {}
                part => return part.map_err(there("asking for what was changed")),
            }
        }
        self.part(0, StreamCursor::START).map_err(there("asking for all of the volume"))
    }

    /// Fetches parts from the first one, or from a place, to the end, or to an error.
    fn send_all(&self, since: u64, from: std::result::Result<Bytes, StreamCursor>, to: &SyncSender<Result<Bytes>>) {
        let mut next = from;
        loop {
            let part = match next {
                Ok(part) => Ok(part),
                Err(cursor) => self.part(since, cursor).map_err(there("asking for what was changed")),
            };
            let after = part.as_ref().ok().and_then(|part| StreamPart::open(part).ok()).map(|part| part.to);
            // Who receives has ended if it takes no more, and refuses a part that cannot be read.
            if to.send(part).is_err() {
                return;
            }
            match after {
                Some(cursor) if cursor != StreamCursor::END => next = Err(cursor),
                _ => return,
            }
        }
    }
}

/// A text that an answer has room for.
fn shortened(mut text: String) -> String {
    while text.len() > TASK_TEXT_BYTES_MAX {
        text.pop();
    }
    text
}
