//! One pull, without threads, sessions or clocks: the next question to the other server, and the
//! use of its answers.
//!
//! Model. A pull *looks* up the volume's state at the other server; finds the *place* where it
//! arrives here; requests the *first* part, since the newest epoch that both have, or of the whole
//! volume; *begins* the stream, or continues after the parts that arrived before; takes *parts*
//! until the end; and *finishes*: it makes the volume that was ordered. Asking and working are
//! separate, so that a driver with threads receives the next part while it applies one; a question
//! is answered before the next is sent. A pull may stop anywhere: the received parts stay, and the
//! same pull continues there.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use lease::Output;
use store::{IncomingInfo, PART_BYTES_MIN, Partition, StoreError, StreamPart};
use types::limits::{PAYLOAD_BYTES_MAX, TASK_TEXT_BYTES_MAX};
use types::{
    Answer, Fault, Name, PartitionNo, Pull, StreamCursor, TaskInfo, TaskState, Time, Timestamp,
    VolumeCall, VolumeId, VolumeInfo, WhichVolume,
};

use super::transfer::Transfers;

/// How long a pull waits until removed volumes of the tree are swept.
const SWEPT_WITHIN: Duration = Duration::from_secs(60);
/// Interval of the checks for that.
const PAUSE: Duration = Duration::from_millis(100);
/// Parts that are fetched before they are applied.
const AHEAD: usize = 2;
const _: () = assert!(PART_BYTES_MIN <= PAYLOAD_BYTES_MAX);

/// Why a question to the other server has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The other server refused.
    Refused(Fault),
    /// The other server cannot be reached; the reason, as text.
    Lost(String),
}

/// The driver's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A step was done; there may be more.
    Did,
    /// The next step needs an answer.
    Waits,
    /// The pull is blocked here: try again after this time.
    Pause(Duration),
    /// The task is over.
    Over,
}

/// See the head of the file.
pub struct Fetch {
    pull: Pull,
    task: TaskInfo,
    stage: Stage,
    /// Name of the volume at the other server.
    named: Option<Name>,
    /// Since when the pull is blocked.
    blocked: Option<Time>,
    /// A question is unanswered.
    asked: bool,
    part_bytes: u32,
    packed: bool,
}

enum Stage {
    Look,
    Place(Box<VolumeInfo>),
    /// `since`: the epochs to start from, the best last; after them the whole volume.
    First {
        place: Place,
        since: Vec<u64>,
        used_bytes: u64,
    },
    Begin {
        place: Place,
        first: Bytes,
    },
    /// `next`: start of the part to request next; `None` after the last.
    Parts {
        place: Place,
        since: u64,
        next: Option<StreamCursor>,
        fetched: VecDeque<Bytes>,
    },
    /// `shown`: no part was needed, since this view shows the epoch already.
    Finish {
        place: Place,
        shown: Option<VolumeId>,
    },
    Over,
}

#[derive(Clone)]
struct Place {
    no: PartitionNo,
    partition: Partition,
    /// Another partition of this server has the tree (`beside.rs`).
    beside: bool,
}

/// Why a pull failed, as text.
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

fn there(what: &str, why: Unanswered) -> Failure {
    match why {
        Unanswered::Refused(fault) => Failure(format!("the other server: {what}: {fault}")),
        Unanswered::Lost(why) => Failure(format!("the other server: {what}: {why}")),
    }
}

impl Fetch {
    /// A pull that has not started; `task`: its record for reports.
    pub fn new(pull: Pull, task: TaskInfo) -> Self {
        let part_bytes = PAYLOAD_BYTES_MAX as u32;
        Fetch {
            pull,
            task,
            stage: Stage::Look,
            named: None,
            blocked: None,
            asked: false,
            part_bytes,
            packed: true,
        }
    }

    /// Sets whether the other server sends packed bodies; the default is yes.
    pub fn takes_packed(mut self, packed: bool) -> Self {
        self.packed = packed;
        self
    }

    /// Requests the smallest parts, so that small volumes have many; for simulations.
    pub fn in_small_parts(mut self) -> Self {
        self.part_bytes = PART_BYTES_MIN as u32;
        self
    }

    /// Whether the source is this very server.
    pub fn is_local(&self) -> bool {
        self.pull.from.is_empty()
    }

    /// Its progress.
    pub fn task(&self) -> &TaskInfo {
        &self.task
    }

    /// Ends the pull as failed.
    pub fn give_up(&mut self, why: String) {
        if self.task.state == TaskState::Runs {
            tracing::warn!(
                tree = self.pull.tree.0,
                why,
                "a pull failed; the same pull, repeated, continues it"
            );
            self.task.state = TaskState::Failed;
            self.task.text = shortened(why);
            self.stage = Stage::Over;
        }
    }

    /// The next question to the other server; `None` while an answer is awaited, or enough parts
    /// wait to be applied.
    pub fn question(&mut self) -> Option<VolumeCall> {
        if self.asked {
            return None;
        }
        let (since, cursor) = match &self.stage {
            Stage::Look => {
                self.asked = true;
                return Some(VolumeCall::Examine { volume: WhichVolume::Id(self.pull.id) });
            }
            Stage::First { since, .. } => (since.last().copied().unwrap_or(0), StreamCursor::START),
            Stage::Parts { since, next: Some(next), fetched, .. } if fetched.len() < AHEAD => {
                (*since, *next)
            }
            _ => return None,
        };
        self.asked = true;
        let (bytes_max, packed) = (self.part_bytes, self.packed);
        Some(VolumeCall::Changes { id: self.pull.id, since, cursor, bytes_max, packed })
    }

    /// Takes the answer to the last question.
    pub fn answered(&mut self, answer: std::result::Result<Answer, Unanswered>) {
        self.asked = false;
        if let Err(Failure(why)) = self.take(answer) {
            self.give_up(why);
        }
    }

    fn take(&mut self, answer: std::result::Result<Answer, Unanswered>) -> Result<()> {
        match &mut self.stage {
            Stage::Look => {
                let volume = match answer.map_err(|why| there("looking for the volume", why))? {
                    Answer::Volumes { volumes, .. } => volumes.into_iter().next(),
                    _ => None,
                };
                let volume = volume.ok_or_else(strange)?;
                self.named = Some(volume.name.clone());
                self.task.epoch = volume.epoch;
                self.stage = Stage::Place(Box::new(volume));
            }
            // The other server does not have that epoch.
            Stage::First { since, .. }
                if !since.is_empty() && answer == Err(Unanswered::Refused(Fault::Invalid)) =>
            {
                since.pop();
            }
            Stage::First { place, used_bytes, .. } => {
                let first = part(answer)?;
                let head = StreamPart::open(&first)?.head;
                self.task.since = head.since;
                self.task.total_bytes = if head.since == 0 { *used_bytes } else { 0 };
                self.stage = Stage::Begin { place: place.clone(), first };
            }
            Stage::Parts { next, fetched, .. } => {
                let part = part(answer)?;
                *next = behind(&part)?;
                fetched.push_back(part);
            }
            _ => {}
        }
        Ok(())
    }

    /// As [`crate::Vice::work`].
    pub(crate) fn work(
        &mut self,
        transfers: &Transfers,
        now: Time,
        wall: Timestamp,
        events: &mut Vec<Output>,
    ) -> Work {
        match self.next(transfers, now, wall, events) {
            Ok(Work::Pause(_)) if now.since(*self.blocked.get_or_insert(now)) >= SWEPT_WITHIN => {
                self.give_up("here: what was removed of it is not swept".to_owned());
                Work::Over
            }
            Ok(work @ Work::Pause(_)) => work,
            Ok(work) => {
                self.blocked = None;
                work
            }
            Err(Failure(why)) => {
                self.give_up(why);
                Work::Over
            }
        }
    }

    fn next(
        &mut self,
        transfers: &Transfers,
        now: Time,
        wall: Timestamp,
        events: &mut Vec<Output>,
    ) -> Result<Work> {
        let tree = self.pull.tree;
        self.stage = match &mut self.stage {
            Stage::Look | Stage::First { .. } => return Ok(Work::Waits),
            Stage::Over => return Ok(Work::Over),
            Stage::Place(volume) => {
                if !self.named.as_ref().is_some_and(|name| transfers.may_pull(tree, name)) {
                    return Err(Failure("the caller does not administer that volume".to_owned()));
                }
                place(transfers, &self.pull, volume)?
            }
            Stage::Begin { place, first } => {
                let head = StreamPart::open(first)?.head;
                let cursor = match place.partition.streams().begin_incoming(tree, &head) {
                    Err(StoreError::Busy(_)) => return Ok(Work::Pause(PAUSE)),
                    begun => begun?,
                };
                if place.beside {
                    place.partition.volumes().tree_arrives(tree, true)?;
                }
                let (next, fetched) = if cursor == StreamCursor::START {
                    (behind(first)?, VecDeque::from([first.clone()]))
                } else {
                    (Some(cursor).filter(|at| *at != StreamCursor::END), VecDeque::new())
                };
                let (place, since) = (place.clone(), head.since);
                if next.is_none() && fetched.is_empty() {
                    Stage::Finish { place, shown: None }
                } else {
                    Stage::Parts { place, since, next, fetched }
                }
            }
            Stage::Parts { place, next, fetched, .. } => {
                let Some(part) = fetched.pop_front() else {
                    // The sender reported the end of the stream.
                    return if next.is_some() { Ok(Work::Waits) } else { Err(strange()) };
                };
                let cursor = place.partition.streams().apply_part(tree, &part)?;
                self.task.bytes += part.len() as u64;
                if cursor != StreamCursor::END {
                    return Ok(Work::Did);
                }
                Stage::Finish { place: place.clone(), shown: None }
            }
            Stage::Finish { place, shown } => {
                let finished = if place.beside {
                    transfers.finish_beside(&self.pull, *shown, wall)
                } else {
                    transfers
                        .finish_incoming(
                            (now, wall),
                            (place.no, tree),
                            &self.pull.finish,
                            *shown,
                            events,
                        )
                        .map(drop)
                };
                match finished {
                    Err(Fault::Busy) => return Ok(Work::Pause(PAUSE)),
                    // The parts make no whole state, as when they came in over the rest of a
                    // removed volume: the next attempt begins anew, and not with these.
                    Err(Fault::Invalid) if !place.beside && shown.is_none() => {
                        let is_pulled = |info: &IncomingInfo| info.tree == tree && !info.over;
                        if place.partition.streams().incomings()?.iter().any(is_pulled) {
                            place.partition.streams().abandon_incoming(tree)?;
                        }
                        return Err(here("making the volume")(Fault::Invalid));
                    }
                    finished => finished.map_err(here("making the volume"))?,
                }
                self.task.state = TaskState::Done;
                Stage::Over
            }
        };
        Ok(if matches!(self.stage, Stage::Over) { Work::Over } else { Work::Did })
    }
}

/// The place where the volume arrives, and the parts that are missing there.
fn place(transfers: &Transfers, pull: &Pull, volume: &VolumeInfo) -> Result<Stage> {
    let beside = pull.from.is_empty() && volume.tree == pull.tree;
    let found = match pull.partition.filter(|_| beside) {
        Some(no) => transfers.place_beside(pull.tree, no),
        None => transfers.place_of_pull(pull),
    };
    let (no, partition, epochs) = found.map_err(here("looking for the tree"))?;
    let shown = if epochs.contains(&volume.epoch) {
        partition.volumes().view_of(pull.tree, volume.epoch)?
    } else {
        None
    };
    let place = Place { no, partition, beside };
    if shown.is_some() {
        return Ok(Stage::Finish { place, shown });
    }
    // A stream that starts from an epoch contains the changes since, as far as its source knows:
    // not what was made and removed in between, in epochs that the source never had. So the head
    // must equal that epoch: the newest one here, with nothing above it but parts of the very epoch
    // that is wanted. Nothing can come over the parts of an increment whose start no volume shows
    // any more: the usage of its head counts only what was changed.
    let newest = epochs.first().copied();
    let bars = |info: &IncomingInfo| {
        info.tree == pull.tree
            && match newest {
                Some(_) => info.head.epoch != volume.epoch,
                None => info.head.since != 0,
            }
    };
    if place.partition.streams().incomings()?.iter().any(bars) {
        place.partition.streams().abandon_incoming(pull.tree)?;
    }
    let since = newest.into_iter().filter(|epoch| *epoch < volume.epoch).collect();
    Ok(Stage::First { place, since, used_bytes: volume.used_bytes })
}

fn part(answer: std::result::Result<Answer, Unanswered>) -> Result<Bytes> {
    match answer.map_err(|why| there("asking for what was changed", why))? {
        Answer::Part(part) => Ok(part),
        _ => Err(strange()),
    }
}

/// Start of the part after this one; `None` after the last.
fn behind(part: &Bytes) -> Result<Option<StreamCursor>> {
    Ok(Some(StreamPart::open(part)?.to).filter(|to| *to != StreamCursor::END))
}

fn strange() -> Failure {
    Failure("the other server gave no answer that belongs to the question".to_owned())
}

/// Cuts a text to the size that an answer allows.
fn shortened(mut text: String) -> String {
    while text.len() > TASK_TEXT_BYTES_MAX {
        text.pop();
    }
    text
}
