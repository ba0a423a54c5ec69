//! Room under the quota, and the part of it that is set aside for sessions with delegations.
//!
//! Such a session answers its applications before it sends the changes to the server, so room for
//! them must be certain: it may have [`SET_ASIDE_BYTES`] and [`SET_ASIDE_FILES`] outstanding in a
//! volume, and other sessions may not use those. Where a call of another session does not fit
//! because of that, the delegations of the volume are recalled, and the call is repeated. The part
//! of a session is not reduced by what it uses, since it continues to answer until a recall; when
//! less is left than twice the parts of all, all delegations are recalled, long before the room is
//! used up. Where there is not three times as much, no directory is delegated.
//!
//! The partition's free room is treated alike, but only checked at intervals
//! ([`crate::Vice::tick`]): other writers to the disk cannot be held back anyway.

use std::time::Duration;

use lease::Output;
use store::VolumeQuota;
use types::{Fault, Time, VolumeId};

use super::Files;
use crate::call::CallContext;
use crate::volumes::{QuotaReservation, ViceVolume};

/// Bytes that a session with delegations may have outstanding in a volume.
const SET_ASIDE_BYTES: u64 = 256 << 20;
/// Files that it may have outstanding.
const SET_ASIDE_FILES: u64 = 16_384;

/// How long a volume that is brought in gives no delegation: longer than clients take to hand in
/// their changes, and over by itself if the call never comes back.
const DELEGATION_BAR: Duration = Duration::from_secs(5);

impl Files {
    /// Reserves room for this much growth.
    ///
    /// # Errors
    /// `QuotaExceeded`; `Busy` if the call waits for room that is set aside for others.
    pub fn room<'v>(
        &self,
        ask: &mut CallContext<'_>,
        volume: &'v ViceVolume,
        bytes: u64,
        files: u64,
    ) -> Result<QuotaReservation<'v>, Fault> {
        self.room_for(ask, volume, files, |_| Ok(bytes))
    }

    /// As `room`; `bytes` returns the largest growth, given the free bytes, and may search holes if
    /// that does not fit.
    ///
    /// # Errors
    /// As [`Files::room`].
    pub fn room_for<'v>(
        &self,
        ask: &mut CallContext<'_>,
        volume: &'v ViceVolume,
        files: u64,
        bytes: impl Fn(u64) -> Result<u64, Fault>,
    ) -> Result<QuotaReservation<'v>, Fault> {
        if volume.store.quota() == VolumeQuota::default() {
            return Ok(None);
        }
        let room = volume.growth.lock();
        let free = left(volume);
        if files > free.1 || bytes(free.0)? > free.0 {
            return Err(Fault::QuotaExceeded);
        }
        let id = volume.store.id();
        let mut leases = self.coherence.leases();
        let all = leases.delegations().sessions_in(id, None);
        if all == 0 {
            return Ok(Some(room));
        }
        if is_scarce(free, all) {
            leases.recall_volume(ask.now, id, NOBODY, &mut ask.events);
        }
        let aside = aside(leases.delegations().sessions_in(id, Some(ask.origin.session)));
        let open = (free.0.saturating_sub(aside.0), free.1.saturating_sub(aside.1));
        if files > open.1 || bytes(open.0)? > open.0 {
            ask.waits = leases.recall_volume(ask.now, id, ask.origin.session, &mut ask.events);
            return Err(Fault::Busy);
        }
        Ok(Some(room))
    }

    /// # Errors
    /// `Busy` if there is not room enough for one more session with delegations.
    pub fn need_room_to_delegate(
        &self,
        ask: &CallContext<'_>,
        volume: &ViceVolume,
    ) -> Result<(), Fault> {
        let leases = self.coherence.leases();
        let others = leases.delegations().sessions_in(volume.store.id(), Some(ask.origin.session));
        drop(leases);
        let (bytes, files) = aside(others + 1);
        let free = left(volume);
        let space = volume.partition.space()?.free_bytes;
        if free.0 / 3 < bytes || free.1 / 3 < files || space / 3 < bytes {
            Err(Fault::Busy)
        } else {
            Ok(())
        }
    }

    /// Recalls all delegations of other sessions in the volume.
    ///
    /// # Errors
    /// `Busy` if the call waits for that.
    pub fn need_all_back(&self, ask: &mut CallContext<'_>, volume: VolumeId) -> Result<(), Fault> {
        ask.waits = self.coherence.leases().recall_volume(
            ask.now,
            volume,
            ask.origin.session,
            &mut ask.events,
        );
        if ask.waits.is_empty() { Ok(()) } else { Err(Fault::Busy) }
    }

    /// Recalls all delegations in the volume, which then gives none for a while.
    ///
    /// # Errors
    /// `Busy`, which only means that the call waits.
    pub fn bring_in(&self, ask: &mut CallContext<'_>, volume: &ViceVolume) -> Result<(), Fault> {
        volume.block_delegations(ask.now + DELEGATION_BAR);
        self.need_all_back(ask, volume.store.id())
    }

    /// Recalls delegations where room becomes scarce.
    pub fn check_room(&self, now: Time, events: &mut Vec<Output>) {
        let delegated = self.coherence.leases().delegations().volumes();
        for id in delegated {
            let Ok(volume) = self.volumes.any_volume(id) else { continue };
            let space = volume.partition.space().map_or(u64::MAX, |space| space.free_bytes);
            let free = left(&volume);
            let mut leases = self.coherence.leases();
            let all = leases.delegations().sessions_in(id, None);
            if is_scarce((free.0.min(space), free.1), all) {
                leases.recall_volume(now, id, NOBODY, events);
            }
        }
    }
}

/// No session has this number.
const NOBODY: types::SessionId = types::SessionId(0);

/// Room that is set aside for this many sessions, in bytes and files.
fn aside(sessions: usize) -> (u64, u64) {
    (sessions as u64 * SET_ASIDE_BYTES, sessions as u64 * SET_ASIDE_FILES)
}

/// Whether so little is left that it may not suffice for what this many sessions have outstanding
/// some time after a recall.
fn is_scarce(left: (u64, u64), sessions: usize) -> bool {
    let (bytes, files) = aside(sessions);
    left.0 / 2 < bytes || left.1 / 2 < files
}

/// The rest of the quota, in bytes and files.
fn left(volume: &ViceVolume) -> (u64, u64) {
    let (quota, usage) = (volume.store.quota(), volume.store.usage());
    let free =
        |limit: u64, used: u64| if limit == 0 { u64::MAX } else { limit.saturating_sub(used) };
    (free(quota.bytes, usage.bytes), free(quota.files, usage.files))
}
