//! The opens and locks that a program has in a volume, and their claims (docs/spec/sharing.md).
//!
//! Model. Each open file of the program that has an open or locks at the server is a [`HeldFile`].
//! It is *held* in one association: by one server instance, in one session. A restart of the
//! server, or a move of the volume, begins another one. The file is *claiming* then, until the
//! server there has accepted all that it has, and it is held again. If a claim is refused, or the
//! session ended, it is *lost*, because others may have had the file since. It stays lost until the
//! program closes it.
//!
//! ```text
//!         restart, move            all accepted
//!   Held ───────────────► Claiming ────────────► Held, in the next association
//!     └─── lease lost ───────┴── refused ──────► Lost
//! ```
//!
//! - An answer that grants something counts only if the association is the same before the call and
//!   when the grant is noted. Otherwise an instance that is gone may have given it, and its claim
//!   was not made: the caller gives it back and asks again.
//! - Something that the program gives up leaves the table before the server is asked to end it, so
//!   that it is not claimed meanwhile: a repeated `Unlock` may come to the next instance before the
//!   claims. One that is being claimed already is ended later, since all calls but claims wait.
//! - An event comes later than the association that it reports. In between a file is in doubt, and
//!   its operations wait for the event ([`Claims::check`]).
//! - The ends that `drop` asks for are *releases*. A thread sends them, one after the other; `drop`
//!   waits a moment for it if the server answers. A lock waits until they are through (LK-5).
//!
//! Nothing is cached here, so breaks are acknowledged at once. The lock of the table comes before
//! those of `client`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use client::{Association, BreakAck, CallError, Events, Remote, RemoteVolume, Reply};
use parking_lot::{Condvar, Mutex};
use types::{
    Answer, BreakItem, ByteRange, Call, Caller, DataUse, Fault, Fid, LockFamily, LockMode,
    LockOwner, OpenId, PersistHow, ShareKey, Time,
};

use crate::DirectError;

/// The longest time from a change of the association to the end of the claims: a move may take a
/// minute (`client/cell/volume.rs`). A file that is still in doubt then counts as lost.
const DOUBT_MAX: Duration = Duration::from_secs(90);
/// How long `drop` waits for a server that answers.
const DROP_PATIENCE: Duration = Duration::from_secs(1);
/// The server refuses an unlock with `Busy` at the end of a move, which takes moments.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
const BUSY_MAX: Duration = Duration::from_secs(15);

/// The first thing of a file that a program would miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostHold {
    Open,
    Lock,
}

/// See the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldState {
    Held(Association),
    Claiming,
    Lost(LostHold),
}

/// Why claims are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimCause {
    Restart,
    Move,
}

/// An open at the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldOpen {
    pub id: OpenId,
    pub access: DataUse,
    pub deny: DataUse,
    pub key: Option<ShareKey>,
}

/// Bytes that an owner has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockedBytes {
    pub range: ByteRange,
    pub mode: LockMode,
    /// The server has a record of it, which tells others if it is not finished.
    pub is_persistent: bool,
}

/// The part of an open file that the server has.
#[derive(Debug)]
struct HeldFile {
    fid: Fid,
    open: Option<HeldOpen>,
    /// The owners that the program named, as the server knows them.
    named: BTreeMap<LockOwner, LockOwner>,
    /// Ranges of one owner do not overlap.
    locks: BTreeMap<LockOwner, Vec<LockedBytes>>,
    state: HoldState,
}

/// The name of a [`HeldFile`] in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeldNumber(u64);

#[derive(Default)]
struct ClaimTable {
    files: BTreeMap<HeldNumber, HeldFile>,
    last: u64,
    releases: VecDeque<Call>,
    /// Releases that were asked for, and those that are through.
    asked: u64,
    through: u64,
    /// A thread sends releases.
    is_releasing: bool,
}

/// The table of one volume.
pub(crate) struct Claims {
    volume: Weak<RemoteVolume>,
    caller: Caller,
    table: Mutex<ClaimTable>,
    /// Notified when a file changed its state, and when a release is through.
    changed: Condvar,
}

/// An answer that granted something, as the table takes it.
pub(crate) enum GrantNoted {
    /// The file has it.
    Held,
    /// The grant may be of an instance that is gone.
    Again,
}

impl LostHold {
    pub fn error(self) -> DirectError {
        match self {
            LostHold::Open => DirectError::LostOpen,
            LostHold::Lock => DirectError::LostLock,
        }
    }
}

impl HeldFile {
    fn is_empty(&self) -> bool {
        self.open.is_none() && self.locks.is_empty()
    }

    /// Locks the bytes of `range` like `locked`, or unlocks them.
    fn cover(&mut self, owner: LockOwner, range: ByteRange, locked: Option<LockedBytes>) {
        let before = self.locks.remove(&owner).unwrap_or_default();
        let cut = |held: LockedBytes| {
            held.range.without(range).map(move |range| LockedBytes { range, ..held })
        };
        let mut after: Vec<LockedBytes> = before.into_iter().flat_map(cut).collect();
        after.extend(locked.map(|locked| LockedBytes { range, ..locked }));
        if !after.is_empty() {
            self.locks.insert(owner, after);
        }
    }

    fn lose(&mut self) {
        let what = if self.open.is_some() { LostHold::Open } else { LostHold::Lock };
        self.state = HoldState::Lost(what);
    }

    fn is_lost(&self) -> bool {
        matches!(self.state, HoldState::Lost(_))
    }

    /// Does it have something that this association does not know?
    fn must_claim(&self, now: Association) -> bool {
        !self.is_empty() && !self.is_lost() && self.state != HoldState::Held(now)
    }

    fn begin_claim(&mut self) -> HeldParts {
        self.state = HoldState::Claiming;
        let locks = self.locks.iter().flat_map(|(owner, all)| all.iter().map(|one| (*owner, *one)));
        HeldParts { fid: self.fid, open: self.open, locks: locks.collect() }
    }
}

/// A copy of what a file has, to claim it without the table's lock.
struct HeldParts {
    fid: Fid,
    open: Option<HeldOpen>,
    locks: Vec<(LockOwner, LockedBytes)>,
}

impl HeldParts {
    /// The calls that end all of it.
    fn ends(&self) -> Vec<Call> {
        let Self { fid, open, locks } = self;
        let mut owners: Vec<LockOwner> = locks.iter().map(|(owner, _)| *owner).collect();
        owners.dedup();
        let unlocks = owners.into_iter().map(|owner| unlock(*fid, owner, ByteRange::ALL));
        unlocks.chain(open.map(|open| Call::Close { fid: *fid, open: open.id })).collect()
    }
}

/// The call that makes a lock persistent.
pub(crate) fn persist(fid: Fid, owner: LockOwner, range: ByteRange, how: PersistHow) -> Call {
    Call::PersistLock { fid, owner, pid: std::process::id(), range, how }
}

/// The call that unlocks bytes of an owner.
pub(crate) fn unlock(fid: Fid, owner: LockOwner, range: ByteRange) -> Call {
    Call::Unlock { fid, owner, family: LockFamily::Posix, range }
}

impl Claims {
    /// The table of the volume, which reports its events to it from now on.
    pub fn of(volume: &Arc<RemoteVolume>, caller: Caller) -> Arc<Claims> {
        let claims = Arc::new(Claims {
            volume: Arc::downgrade(volume),
            caller,
            table: Mutex::default(),
            changed: Condvar::new(),
        });
        volume.set_events(Arc::clone(&claims) as _);
        claims
    }

    /// A file that has nothing yet.
    pub fn add(&self, fid: Fid) -> HeldNumber {
        self.insert(&mut self.table.lock(), fid, None, Association::default())
    }

    fn insert(
        &self,
        table: &mut ClaimTable,
        fid: Fid,
        open: Option<HeldOpen>,
        at: Association,
    ) -> HeldNumber {
        table.last += 1;
        let number = HeldNumber(table.last);
        let (named, locks, state) = (BTreeMap::new(), BTreeMap::new(), HoldState::Held(at));
        table.files.insert(number, HeldFile { fid, open, named, locks, state });
        number
    }

    /// A file with an open that was asked for in the association `before`; `None`: the answer may
    /// be of an instance that is gone.
    pub fn add_open(
        &self,
        volume: &RemoteVolume,
        before: Association,
        fid: Fid,
        open: HeldOpen,
    ) -> Option<HeldNumber> {
        let mut table = self.table.lock();
        (volume.association() == before).then(|| self.insert(&mut table, fid, Some(open), before))
    }

    /// The owner that the program named, as the server knows it; `make` makes a new one.
    ///
    /// # Errors
    /// `Closed`.
    pub fn owner(
        &self,
        number: HeldNumber,
        named: LockOwner,
        make: impl FnOnce() -> LockOwner,
    ) -> Result<LockOwner, DirectError> {
        let mut table = self.table.lock();
        let file = table.files.get_mut(&number).ok_or(DirectError::Closed)?;
        Ok(*file.named.entry(named).or_insert_with(make))
    }

    /// Notes a lock that was asked for in the association `before`.
    ///
    /// # Errors
    /// `Closed`; `LostOpen`; `LostLock`.
    pub fn note_lock(
        &self,
        volume: &RemoteVolume,
        (number, before): (HeldNumber, Association),
        owner: LockOwner,
        locked: LockedBytes,
    ) -> Result<GrantNoted, DirectError> {
        let mut table = self.table.lock();
        let file = table.files.get_mut(&number).ok_or(DirectError::Closed)?;
        if let HoldState::Lost(what) = file.state {
            return Err(what.error());
        }
        let is_here = file.is_empty() || file.state == HoldState::Held(before);
        if volume.association() != before || !is_here {
            return Ok(GrantNoted::Again);
        }
        file.state = HoldState::Held(before);
        file.cover(owner, locked.range, Some(locked));
        Ok(GrantNoted::Held)
    }

    /// The bytes are claimed no more: the program gives them up.
    ///
    /// # Errors
    /// `Closed`; `LostOpen`; `LostLock`: the bytes are no longer the owner's all the same.
    pub fn forget_lock(
        &self,
        number: HeldNumber,
        owner: LockOwner,
        range: ByteRange,
    ) -> Result<(), DirectError> {
        let mut table = self.table.lock();
        let file = table.files.get_mut(&number).ok_or(DirectError::Closed)?;
        file.cover(owner, range, None);
        match file.state {
            HoldState::Lost(what) => Err(what.error()),
            HoldState::Held(_) | HoldState::Claiming => Ok(()),
        }
    }

    /// The open has these uses from now on, if it had them before; its number.
    ///
    /// # Errors
    /// `Closed`; `Refused(Invalid)`.
    pub fn downgrade(
        &self,
        number: HeldNumber,
        access: DataUse,
        deny: DataUse,
    ) -> Result<OpenId, DirectError> {
        let invalid = DirectError::Refused(Fault::Invalid);
        let mut table = self.table.lock();
        let file = table.files.get_mut(&number).ok_or(DirectError::Closed)?;
        let Some(open) = &mut file.open else { return Err(invalid) };
        let is_less = open.access.contains(access) && open.deny.contains(deny);
        if access == DataUse::Nothing || !is_less {
            return Err(invalid);
        }
        (open.access, open.deny) = (access, deny);
        Ok(open.id)
    }

    /// A call that may have been made with this lock or open has an unknown outcome.
    pub fn lose(&self, number: HeldNumber) {
        if let Some(file) = self.table.lock().files.get_mut(&number) {
            file.lose();
        }
        self.changed.notify_all();
    }

    /// Does the file have an open or a lock?
    pub fn has_any(&self, number: HeldNumber) -> bool {
        self.table.lock().files.get(&number).is_some_and(|file| !file.is_empty())
    }

    /// Does the file have all that the program thinks? Waits while that is in doubt.
    ///
    /// # Errors
    /// `Closed`; `LostOpen`; `LostLock`.
    pub fn check(&self, volume: &RemoteVolume, number: HeldNumber) -> Result<(), DirectError> {
        let until = Instant::now() + DOUBT_MAX;
        let mut table = self.table.lock();
        loop {
            let file = table.files.get_mut(&number).ok_or(DirectError::Closed)?;
            match file.state {
                HoldState::Lost(what) => return Err(what.error()),
                _ if file.is_empty() => return Ok(()),
                HoldState::Held(at) if at == volume.association() => return Ok(()),
                HoldState::Held(_) | HoldState::Claiming => {}
            }
            if self.changed.wait_until(&mut table, until).timed_out()
                && let Some(file) = table.files.get_mut(&number)
            {
                file.lose();
            }
        }
    }

    /// The file is closed: the calls that end what it has at the server, or had when it was lost.
    ///
    /// # Errors
    /// `Closed`. As [`Claims::check`] with the calls, for what was lost before.
    pub fn close(&self, number: HeldNumber) -> Result<(Vec<Call>, Option<LostHold>), DirectError> {
        let mut file = self.table.lock().files.remove(&number).ok_or(DirectError::Closed)?;
        let lost = match file.state {
            HoldState::Lost(what) => Some(what),
            HoldState::Held(_) | HoldState::Claiming => None,
        };
        self.changed.notify_all();
        Ok((file.begin_claim().ends(), lost))
    }

    /// Ends something at the server. An open or lock that is not there has ended.
    ///
    /// # Errors
    /// As [`Remote::call`].
    pub fn end(&self, volume: &RemoteVolume, call: &Call) -> Result<(), CallError> {
        let until = Instant::now() + BUSY_MAX;
        loop {
            match volume.call(&self.caller, call.clone(), None) {
                Ok(Reply { .. }) | Err(CallError::Fault(Fault::Stale)) => return Ok(()),
                Err(CallError::Fault(Fault::Busy)) if Instant::now() < until => {
                    std::thread::sleep(BUSY_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Has a thread end these, and waits a moment for it if the server answers.
    pub fn release(self: &Arc<Self>, volume: &Arc<RemoteVolume>, calls: Vec<Call>) {
        if calls.is_empty() {
            return;
        }
        let mut table = self.table.lock();
        table.asked += calls.len() as u64;
        table.releases.extend(calls);
        let ticket = table.asked;
        if !std::mem::replace(&mut table.is_releasing, true) {
            let (claims, its_volume) = (Arc::clone(self), Arc::clone(volume));
            let thread = std::thread::Builder::new().name("rialto-release".into());
            if thread.spawn(move || claims.send_releases(&its_volume)).is_err() {
                // Without a thread this one does it, however long the server is away.
                drop(table);
                return self.send_releases(volume);
            }
        }
        if !volume.stands() {
            return;
        }
        let until = Instant::now() + DROP_PATIENCE;
        while table.through < ticket && !self.changed.wait_until(&mut table, until).timed_out() {}
    }

    fn send_releases(&self, volume: &RemoteVolume) {
        let mut table = self.table.lock();
        while let Some(call) = table.releases.pop_front() {
            drop(table);
            // The session ended otherwise, and with it all that it had.
            let _ = self.end(volume, &call);
            table = self.table.lock();
            table.through += 1;
            self.changed.notify_all();
        }
        table.is_releasing = false;
    }

    /// Waits until all releases are through.
    pub fn await_releases(&self) {
        let mut table = self.table.lock();
        let ticket = table.asked;
        while table.through < ticket {
            self.changed.wait(&mut table);
        }
    }

    /// Claims all that the server does not know.
    fn claim_all(&self, reclaim: &dyn Remote, cause: ClaimCause) {
        let Some(volume) = self.volume.upgrade() else { return };
        let now = volume.association();
        let claims: Vec<(HeldNumber, HeldParts)> = {
            let mut table = self.table.lock();
            let files = table.files.iter_mut().filter(|(_, file)| file.must_claim(now));
            files.map(|(number, file)| (*number, file.begin_claim())).collect()
        };
        // Numbers of another server may be the same as those that are given here.
        let mut given = Vec::new();
        for (number, parts) in claims {
            let mut claimed = None;
            let may_be_there = |id| cause == ClaimCause::Move && !given.contains(&id);
            let claim = self.claim(reclaim, &parts, may_be_there, &mut claimed);
            let result = claim.and_then(|()| self.renew_records(reclaim, &parts, cause));
            given.extend(claimed);
            if let Err(error) = &result {
                tracing::warn!(
                    fid = %parts.fid, %error,
                    "a claim was refused; the program has lost its opens and locks of the file"
                );
            }
            let mut table = self.table.lock();
            let is_same = volume.association() == now;
            let file = table.files.get_mut(&number);
            // Closed meanwhile; or an instance that is gone by now may have the open, or the one
            // that the next round of claims asks.
            let is_void = file.is_none() || result.is_ok() && !is_same;
            if let Some(file) = file {
                if result.is_err() {
                    file.lose();
                } else if is_same {
                    file.state = HoldState::Held(now);
                }
                if let (false, Some(open), Some(id)) = (is_void, &mut file.open, claimed) {
                    open.id = id;
                }
            }
            drop(table);
            self.changed.notify_all();
            if let (true, Some(open)) = (is_void, claimed) {
                let close = Call::Close { fid: parts.fid, open };
                let _ = reclaim.call(&self.caller, close, None);
            }
        }
    }

    /// Claims what a file has; `claimed` is the open's next number, or the same one, if that may be
    /// there still.
    fn claim(
        &self,
        reclaim: &dyn Remote,
        parts: &HeldParts,
        may_be_there: impl Fn(OpenId) -> bool,
        claimed: &mut Option<OpenId>,
    ) -> Result<(), CallError> {
        let fid = parts.fid;
        if let Some(HeldOpen { id, access, deny, key }) = parts.open {
            // After a move between partitions of a server that has the open still, and counts a
            // claim as another one. The uses that it has are no fewer: this asks whether it is
            // there.
            let asks = Call::Downgrade { fid, open: id, access, deny };
            let is_there = may_be_there(id) && reclaim.call(&self.caller, asks, None).is_ok();
            let call = Call::Open { fid, access, deny, key, claims: true };
            if is_there {
                *claimed = Some(id);
            } else {
                match reclaim.call(&self.caller, call, None)?.answer {
                    Answer::Opened { open, .. } => *claimed = Some(open),
                    _ => return Err(CallError::Unreadable),
                }
            }
        }
        for (owner, LockedBytes { range, mode, .. }) in &parts.locks {
            let call = Call::Lock {
                fid,
                owner: *owner,
                pid: std::process::id(),
                family: LockFamily::Posix,
                range: *range,
                mode: *mode,
                wait: false,
                reclaim: true,
            };
            reclaim.call(&self.caller, call, None)?;
        }
        Ok(())
    }

    /// After a move the records of persistent locks name the session at the former server.
    fn renew_records(
        &self,
        reclaim: &dyn Remote,
        parts: &HeldParts,
        cause: ClaimCause,
    ) -> Result<(), CallError> {
        let moved = parts.locks.iter().filter(|(_, it)| it.is_persistent);
        for (owner, LockedBytes { range, .. }) in moved.filter(|_| cause == ClaimCause::Move) {
            let call = persist(parts.fid, *owner, *range, PersistHow::Claims);
            reclaim.call(&self.caller, call, None)?;
        }
        Ok(())
    }

    /// A session ended: whatever it had is lost.
    fn lose_all(&self) {
        let now = self.volume.upgrade().map(|volume| volume.association());
        let mut table = self.table.lock();
        for file in table.files.values_mut() {
            // A lock that the next session has given already stays.
            if !file.is_empty() && !file.is_lost() && now.is_none_or(|now| file.must_claim(now)) {
                file.lose();
            }
        }
        self.changed.notify_all();
    }
}

impl Events for Claims {
    fn on_break(&self, _items: &[BreakItem], ack: BreakAck) {
        ack.acknowledge();
    }

    fn on_renewed(&self, _sent_at: Time) {}

    fn on_lease_lost(&self) {
        self.lose_all();
    }

    fn on_server_restarted(&self, reclaim: &dyn Remote) {
        self.claim_all(reclaim, ClaimCause::Restart);
    }

    fn on_moved(&self, reclaim: &dyn Remote) {
        self.claim_all(reclaim, ClaimCause::Move);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: LockOwner = LockOwner(1);
    const HERE: Association = Association { places: 1, sessions: 1 };

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    fn file() -> HeldFile {
        HeldFile {
            fid: Fid::new(1, 2, 3),
            open: None,
            named: BTreeMap::new(),
            locks: BTreeMap::new(),
            state: HoldState::Held(HERE),
        }
    }

    #[test]
    fn an_owners_bytes_have_the_latest_mode_and_no_other() {
        let mut file = file();
        let mut bytes = [None; 12];
        let ranges = (0..12).flat_map(|start| (start..12).map(move |end| range(start, end)));
        let like = |range, mode| LockedBytes { range, mode, is_persistent: false };
        for (step, range) in ranges.cycle().step_by(7).take(300).enumerate() {
            let mode = [Some(LockMode::Shared), Some(LockMode::Exclusive), None][step % 3];
            file.cover(OWNER, range, mode.map(|mode| like(range, mode)));
            bytes[range.start as usize..=range.end as usize].fill(mode);
            for (at, expected) in bytes.iter().enumerate() {
                let its = file.locks.get(&OWNER).into_iter().flatten();
                let found: Vec<LockMode> = its
                    .filter(|held| {
                        held.range.overlaps(ByteRange { start: at as u64, end: at as u64 })
                    })
                    .map(|held| held.mode)
                    .collect();
                assert_eq!(found, expected.iter().copied().collect::<Vec<_>>(), "{step}: {at}");
            }
            assert_eq!(file.is_empty(), bytes.iter().all(Option::is_none));
        }
    }

    #[test]
    fn a_lost_file_stays_lost_and_claims_nothing() {
        let mut file = file();
        assert!(!file.must_claim(Association { sessions: 2, ..HERE }), "it has nothing");
        let (range, mode) = (range(0, 9), LockMode::Shared);
        file.cover(OWNER, range, Some(LockedBytes { range, mode, is_persistent: false }));
        assert!(!file.must_claim(HERE) && file.must_claim(Association { places: 2, ..HERE }));
        assert_eq!(file.begin_claim().ends(), [unlock(file.fid, OWNER, ByteRange::ALL)]);
        assert!(file.must_claim(HERE), "a claim that is not over is made again");
        file.lose();
        file.cover(OWNER, range, None);
        assert!(file.is_lost() && !file.must_claim(Association { sessions: 2, ..HERE }));
    }
}
