//! Reads of one session that the server answers from its memory, without a call of the service.
//!
//! A *view* says that the session may read a file under a credential, and which version is current.
//! It is what a client's cache is, and obeys the same rules. The service's answer to a read leaves
//! it behind, with the promise that the answer gave, unless something ended promises of the session
//! between question and answer (CB-3). It ends
//!
//! - with a break of the file, before the break is sent, so before it can be acknowledged (CB-1);
//! - with an answer that shows another status: the session changed the file itself. A read whose
//!   answer comes after that one may have been executed before the change, and leaves no view;
//! - when rights changed anywhere, or the cell's rules, or the credential's handle was given to
//!   another caller; and when the caller's token ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use dafs::{STATUS_BYTES, encode_answer};
use parking_lot::Mutex;
use smallvec::SmallVec;
use store::BLOCK_BYTES;
use types::limits::PAYLOAD_BYTES_MAX;
use types::{Answer, BreakItem, Call, Caller, Fault, Fid, Status, Timestamp};

use crate::verified_blocks::{BlockRun, VerifiedBlocks};

/// Views of one session. Above it all are dropped: the next reads make those in use anew.
const VIEWS_MAX: usize = 4096;

/// The state of the cell's rules and rights by which a caller was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JudgedBy {
    pub rights: u64,
    pub rules: u64,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct DirectReads {
    /// Something is in the state: sessions without a lane never look at it.
    is_used: AtomicBool,
    state: Mutex<ReadState>,
}

#[derive(Default)]
struct ReadState {
    views: HashMap<Fid, SmallVec<[View; 1]>>,
    /// How many there are.
    count: usize,
    /// Rises with each end of a promise, and with each change that the session may have made.
    ends: u64,
    /// Reads that came through the lane and are not answered, by slot and request.
    asked: HashMap<(u32, u64), AskedRead>,
}

struct View {
    credential: u32,
    status: Status,
    /// The status as an answer has it.
    encoded: [u8; STATUS_BYTES],
    judged_by: JudgedBy,
    token_ends: Option<Timestamp>,
}

/// A read that the service executes.
struct AskedRead {
    credential: u32,
    /// How its call was widened.
    widened: Option<WidenedRead>,
}

struct WidenedRead {
    offset: u64,
    length: u32,
    ends: u64,
    judged_by: JudgedBy,
    token_ends: Option<Timestamp>,
}

/// The bytes that a read finds in memory, and its answer.
pub(crate) struct FoundRead {
    /// The answer's message.
    pub message: [u8; STATUS_BYTES + 5],
    /// The blocks, of which the bytes from `skip` on are read.
    pub blocks: BlockRun,
    pub skip: usize,
    pub bytes: usize,
}

impl DirectReads {
    /// The answer to a read, if memory has it.
    pub fn find(
        &self,
        credential: u32,
        (fid, offset, length): (Fid, u64, u32),
        (judged_by, wall): (JudgedBy, Timestamp),
        blocks: &VerifiedBlocks,
    ) -> Option<FoundRead> {
        let mut message = [0; STATUS_BYTES + 5];
        let (version, size) = {
            let state = self.state.lock();
            let views = state.views.get(&fid)?;
            let view = views.iter().find(|view| view.credential == credential)?;
            if view.judged_by != judged_by || view.token_ends.is_some_and(|ends| ends <= wall) {
                return None;
            }
            message[..STATUS_BYTES].copy_from_slice(&view.encoded);
            (view.status.data_version, view.status.size)
        };
        let length = u64::from(length).min(PAYLOAD_BYTES_MAX as u64);
        let end = offset.checked_add(length)?.min(size);
        let bytes = end.checked_sub(offset).filter(|bytes| *bytes > 0)?;
        let blocks = blocks.find(fid, version, offset, end)?;
        message[STATUS_BYTES..STATUS_BYTES + 4].copy_from_slice(&(bytes as u32).to_le_bytes());
        message[STATUS_BYTES + 4] = u8::from(end == size);
        let skip = (offset % BLOCK_BYTES) as usize;
        Some(FoundRead { message, blocks, skip, bytes: bytes as usize })
    }

    /// A read that came through the lane goes to the session's machine.
    pub fn expect(&self, address: (u32, u64), credential: u32) {
        self.is_used.store(true, Ordering::Release);
        let mut state = self.state.lock();
        state.asked.retain(|(slot, _), _| *slot != address.0);
        state.asked.insert(address, AskedRead { credential, widened: None });
    }

    /// A call goes to the service: that of an expected read is widened to whole blocks.
    pub fn ask(&self, address: (u32, u64), caller: &Caller, judged_by: JudgedBy, call: &mut Call) {
        if !self.is_used.load(Ordering::Acquire) {
            return;
        }
        let Call::Read { offset, length, .. } = call else { return };
        let first = *offset / BLOCK_BYTES * BLOCK_BYTES;
        let Some(end) = offset.checked_add(u64::from(*length)) else { return };
        let end = end.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(end);
        let wide = end - first;
        if wide > PAYLOAD_BYTES_MAX as u64 {
            return;
        }
        let mut state = self.state.lock();
        let ends = state.ends;
        let Some(asked) = state.asked.get_mut(&address) else { return };
        let token_ends = caller.who.ends;
        let widened = WidenedRead { offset: *offset, length: *length, ends, judged_by, token_ends };
        asked.widened = Some(widened);
        (*offset, *length) = (first, wide as u32);
    }

    /// An answer leaves: a widened one is cut to what was asked for.
    pub fn answer(
        &self,
        address: (u32, u64),
        result: &mut Result<Answer, Fault>,
        blocks: &VerifiedBlocks,
    ) {
        if !self.is_used.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        let asked = state.asked.remove(&address);
        let credential = asked.as_ref().map(|asked| asked.credential);
        let Some(asked) = asked.and_then(|asked| asked.widened) else {
            if let Ok(answer) = result {
                let is_read = matches!(answer, Answer::Data { .. });
                let shown = answer.statuses_mut();
                state.ends += u64::from(!is_read && !shown.is_empty());
                for status in shown {
                    let views = state.views.get(&status.fid);
                    if views.is_some_and(|views| views.iter().any(|view| view.status != *status)) {
                        state.forget(status.fid);
                    }
                }
            }
            return;
        };
        let Ok(Answer::Data { data, end, status }) = result else { return };
        let first = asked.offset / BLOCK_BYTES * BLOCK_BYTES;
        if asked.ends == state.ends
            && let Some(view) = credential.and_then(|it| View::of(it, *status, &asked))
        {
            state.add(view);
        }
        drop(state);
        blocks.add(status.fid, status.data_version, first, data, status.size);
        let from = ((asked.offset - first) as usize).min(data.len());
        let to = data.len().min(from + asked.length as usize);
        *data = data.slice(from..to);
        *end = asked.offset.saturating_add(data.len() as u64) >= status.size;
    }

    /// Promises end.
    pub fn on_break(&self, items: &[BreakItem]) {
        if !self.is_used.load(Ordering::Acquire) {
            return;
        }
        // Rights, which a break may name, too, are counted (`JudgedBy`).
        let mut state = self.state.lock();
        state.ends += 1;
        items.iter().for_each(|item| state.forget(item.fid));
    }

    /// The handle stands for another caller.
    pub fn forget_credential(&self, credential: u32) {
        if !self.is_used.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        state.ends += 1;
        state.views.retain(|_, views| {
            views.retain(|view| view.credential != credential);
            !views.is_empty()
        });
        state.count = state.views.values().map(SmallVec::len).sum();
    }

    /// The connection is over, and with it the meaning of credentials and slots.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        let ends = state.ends + 1;
        *state = ReadState { ends, ..ReadState::default() };
    }
}

impl ReadState {
    fn add(&mut self, view: View) {
        if self.count >= VIEWS_MAX {
            self.views.clear();
            self.count = 0;
        }
        let views = self.views.entry(view.status.fid).or_default();
        let before = views.len();
        views.retain(|other| other.credential != view.credential);
        views.push(view);
        self.count += views.len() - before;
    }

    fn forget(&mut self, fid: Fid) {
        self.count -= self.views.remove(&fid).map_or(0, |views| views.len());
    }
}

impl View {
    fn of(credential: u32, status: Status, asked: &WidenedRead) -> Option<View> {
        let (data, end) = (bytes::Bytes::new(), false);
        let encoded = encode_answer(&Answer::Data { status, data, end }).ok()?.message;
        Some(View {
            credential,
            status,
            encoded: *encoded.first_chunk()?,
            judged_by: asked.judged_by,
            token_ends: asked.token_ends,
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use types::{DataVersion, Kind, Uniquifier, VnodeNo, VolumeId};

    use super::*;

    const FID: Fid = Fid { volume: VolumeId(1), vnode: VnodeNo(2), unique: Uniquifier(3) };
    const JUDGED: JudgedBy = JudgedBy { rights: 1, rules: 1 };

    fn status(version: u64) -> Status {
        let made = types::posix::new_status(FID, Kind::File, 0o644, (0, 0), Timestamp::new(1, 0));
        Status { data_version: DataVersion(version), size: 100, ..made }
    }

    fn ask(reads: &DirectReads, slot: u32) {
        let mut call = Call::Read { fid: FID, offset: 0, length: 100 };
        reads.expect((slot, 1), 0);
        reads.ask((slot, 1), &Caller::ROOT, JUDGED, &mut call);
    }

    fn answer(reads: &DirectReads, blocks: &VerifiedBlocks, slot: u32, version: u64) {
        let data = Bytes::from(vec![version as u8; 100]);
        let mut result = Ok(Answer::Data { status: status(version), data, end: true });
        reads.answer((slot, 1), &mut result, blocks);
    }

    fn finds(reads: &DirectReads, blocks: &VerifiedBlocks) -> bool {
        let when = (JUDGED, Timestamp::new(1, 0));
        reads.find(0, (FID, 0, 100), when, blocks).is_some()
    }

    #[test]
    fn a_read_from_before_a_change_answered_after_it_leaves_no_view() {
        let (reads, blocks) = (DirectReads::default(), VerifiedBlocks::new(1 << 20));
        ask(&reads, 1);
        let mut written = Ok(Answer::Status(status(2)));
        reads.answer((2, 1), &mut written, &blocks);
        answer(&reads, &blocks, 1, 1);
        assert!(!finds(&reads, &blocks), "the session has seen version 2");
        ask(&reads, 1);
        answer(&reads, &blocks, 1, 2);
        assert!(finds(&reads, &blocks));
        // Another status of the same data.
        let mut changed = Ok(Answer::Status(Status { mode: 0o600, ..status(2) }));
        reads.answer((2, 1), &mut changed, &blocks);
        assert!(!finds(&reads, &blocks));
    }
}
