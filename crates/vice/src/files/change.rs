//! One change: its update, the promises that it makes and those that it breaks.
//!
//! Under the stripes of all vnodes concerned, one batch with the reply record in it is committed
//! (EO-1, ST-1), *then* promises are broken. A reader holds the stripe of what it reads until its
//! promise is registered (CB-2), so it either reads the new state or gets a break.
//!
//! A promise is made after the check of the caller's right: no change waits for a caller that is
//! refused, and that caller learns of no change (AC-1). So each call takes the same steps: other
//! sessions' delegations come back ([`Files::need_back`]), the call reads the vnodes and checks the
//! rights, makes the promises ([`Files::promise`]), and only then changes anything.
//!
//! A file that loses its last name is removed in the same batch if no session but the caller's has
//! a promise of it and no session holds it. Otherwise it becomes an orphan, and is removed when all
//! breaks are acknowledged and no session holds it (`completion.rs`). No session can get a promise
//! of the file between the check and the commit: a session finds a file by its fid under its
//! stripe, or by its name under the stripe of the directory that has the name.

use bytes::Bytes;
use lease::Promised;
use smallvec::SmallVec;
use store::{CommitScope, Update, Vnode};
use types::{Answer, BreakItem, BreakReason, Fault, Fid, Name, SessionId};

use super::Files;
use crate::access::{self, Right};
use crate::call::{CallContext, CallOutcome, Fed};
use crate::volumes::{QuotaReservation, ViceVolume, VolumeOptions};

/// See the head of the file.
pub(crate) struct Change<'v> {
    pub volume: &'v ViceVolume,
    pub update: Update<'v>,
    promised: SmallVec<[Fid; 4]>,
    breaks: Vec<BreakItem>,
    removed: Option<(Vnode, bool)>,
    room: QuotaReservation<'v>,
    sync: Option<Synced>,
    made: Option<(Fid, Fid)>,
    spread: Spread,
}

/// The part of a change that is on the disk before the reply.
enum Synced {
    /// The records, and the body of this file.
    Body(Box<Vnode>),
    /// The records.
    Records,
}

/// The sessions whose promises a change breaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spread {
    /// Sessions with a promise of what it changes.
    Promised,
    /// These, the caller's session too, and sessions that know rights in the volume.
    Rights,
    /// Sessions with any promise in the volume: lists decide from now on, or do not.
    Model(bool),
    /// The same: the volume has these options from now on.
    Options(VolumeOptions),
}

/// A file that lost its last name: it becomes an orphan, or is removed.
struct Removed {
    fid: Fid,
    /// The caller's session gets a hold by this change.
    hold: bool,
    orphan: bool,
}

impl<'v> Change<'v> {
    pub fn new(scope: Option<&'v CommitScope>, volume: &'v ViceVolume) -> Self {
        Change {
            volume,
            update: Update::within(scope),
            promised: SmallVec::new(),
            breaks: Vec::new(),
            removed: None,
            room: None,
            sync: None,
            made: None,
            spread: Spread::Promised,
        }
    }

    /// Keeps the reservation until the commit.
    pub fn take_room(&mut self, room: QuotaReservation<'v>) {
        self.room = room;
    }

    /// The answer contains this status: the caller's session gets a promise.
    pub fn promise(&mut self, fid: Fid) {
        self.promised.push(fid);
    }

    /// Adds the vnode's new state, after `touch_status`: breaks the promises of others, and
    /// promises it to the caller.
    pub fn put_status(&mut self, vnode: &Vnode) {
        self.put(vnode, BreakReason::Status, None);
    }

    /// Adds the vnode's new state, after `touch_data`.
    pub fn put_data(&mut self, vnode: &Vnode) {
        self.put(vnode, BreakReason::Data, None);
    }

    /// Adds a directory's new state, after one entry changed.
    pub fn put_directory(&mut self, vnode: &Vnode, name: Option<&Name>) {
        self.put(vnode, BreakReason::Data, name.cloned());
    }

    /// Adds the vnode's new state, of which no client sees anything: promises stay. It is on the
    /// disk before the reply.
    pub fn put_unseen(&mut self, vnode: &Vnode) {
        self.update.put_vnode(vnode);
        self.promise(vnode.status.fid);
        self.sync = Some(Synced::Records);
    }

    fn put(&mut self, vnode: &Vnode, reason: BreakReason, name: Option<Name>) {
        debug_assert!(
            self.is_not_older(vnode),
            "CB-6: {} gets an earlier data version",
            vnode.status.fid
        );
        self.update.put_vnode(vnode);
        self.promise(vnode.status.fid);
        self.breaks.push(BreakItem { fid: vnode.status.fid, reason, name });
    }

    /// Whether the vnode's data version is none from before its last change.
    fn is_not_older(&self, vnode: &Vnode) -> bool {
        let known = self.volume.store.vnode(vnode.no()).ok().flatten();
        known.is_none_or(|known| {
            known.status.fid != vnode.status.fid
                || known.status.data_version <= vnode.status.data_version
        })
    }

    /// Records that the vnode lost its last name. `hold`: the caller has it open.
    pub fn remove(&mut self, vnode: &Vnode, hold: bool) {
        self.breaks.push(BreakItem {
            fid: vnode.status.fid,
            reason: BreakReason::Removed,
            name: None,
        });
        self.removed = Some((vnode.clone(), hold));
    }

    /// Records a new vnode, which has its only name in this directory.
    pub fn make(&mut self, dir: Fid, fid: Fid) {
        self.made = Some((dir, fid));
    }

    /// Records that rights in the volume change: all its sessions get breaks, also this one (AC-2).
    pub fn change_rights(&mut self) {
        let fid = Fid::rights(self.volume.store.id());
        self.breaks.push(BreakItem { fid, reason: BreakReason::Status, name: None });
        self.spread = Spread::Rights;
    }

    /// Sets whether lists decide in the volume: all promises in it are broken.
    pub fn change_model(&mut self, by_list: bool) {
        self.spread = Spread::Model(by_list);
    }

    /// Sets the volume's options: all promises in it are broken.
    pub fn change_options(&mut self, options: VolumeOptions) {
        self.spread = Spread::Options(options);
    }

    /// The body must be stable before the reply.
    pub fn sync(&mut self, vnode: &Vnode) {
        self.sync = Some(Synced::Body(Box::new(vnode.clone())));
    }
}

impl Files {
    /// Commits, breaks promises, and answers now or after the acknowledgements. The caller holds
    /// the stripes.
    ///
    /// # Errors
    /// As [`Files::promise`]; errors of the store. Nothing is changed then.
    pub fn commit(
        &self,
        ask: &mut CallContext<'_>,
        mut change: Change<'_>,
        answer: Answer,
    ) -> Result<CallOutcome, Fault> {
        debug_assert!(ask.waits.is_empty(), "DE-2: a call that waits makes a change");
        self.adopt(ask, change.made);
        self.promise(ask, change.volume, &change.promised)?;
        let removed = self.place_removed(ask, &mut change)?;
        change.update.reply(ask.origin, Bytes::from((self.encode)(&answer)));
        let committed = change.volume.store.commit(change.update);
        drop(change.room);
        let orphan = self.finish_removed(ask, removed, committed.is_ok());
        if let (Err(_), Some((_, fid))) = (&committed, change.made) {
            self.coherence.leases().forget_file(ask.now, fid, &mut ask.events);
        }
        committed?;
        ask.fed = Some(Fed::by(&change.volume.store, change.sync.is_some()));
        match change.spread {
            Spread::Promised => {}
            Spread::Rights => {
                change.volume.lists.forget();
                self.coherence.leases().promises_mut().rights_changed();
            }
            Spread::Model(by_list) => {
                change.volume.lists.set_decide(by_list);
                return Ok(self.coherence.break_volume(ask, change.volume.store.id(), answer));
            }
            Spread::Options(options) => {
                change.volume.set_options(options);
                change.volume.lists.note_change();
                return Ok(self.coherence.break_volume(ask, change.volume.store.id(), answer));
            }
        }
        if let Some(synced) = &change.sync {
            if let Synced::Body(vnode) = synced {
                change.volume.store.sync_body(vnode)?;
            }
            change.volume.partition.sync()?;
        }
        // No session has number 0, so no session is excepted.
        let except =
            if change.spread == Spread::Rights { SessionId(0) } else { ask.origin.session };
        Ok(self.coherence.break_promises(ask, &change.breaks, except, orphan, answer))
    }

    /// Recalls what other sessions cover of these files, before the caller's rights are judged by
    /// them (DE-1).
    ///
    /// # Errors
    /// `NotDelegated` for a delegated change of a file that is not covered; `Busy`, which only
    /// means that the call waits, for files that other sessions cover.
    pub fn need_back(
        &self,
        ask: &mut CallContext<'_>,
        volume: &ViceVolume,
        fids: &[Fid],
    ) -> Result<(), Fault> {
        debug_assert!(
            fids.iter().all(|fid| fid.volume == volume.store.id()),
            "DE-1: the access model of another volume is noted for {fids:?}"
        );
        ask.models = volume.lists.models();
        let mut leases = self.coherence.leases();
        ask.rights_changes = leases.promises().rights_changes();
        let session = ask.origin.session;
        let covered = ask.delegated.is_some()
            && !volume.is_taking_over()
            && !leases.reclaims_delegations(session);
        for fid in fids {
            if covered && !leases.delegations().covers(session, *fid) {
                return Err(Fault::NotDelegated);
            }
            ask.waits.extend(leases.recall_cover(ask.now, session, *fid, &mut ask.events));
        }
        if ask.waits.is_empty() { Ok(()) } else { Err(Fault::Busy) }
    }

    /// Promises each of these files to the caller's session, whose right to see them has been
    /// checked. For a directory that the caller may list, breaks name the entry that changed.
    ///
    /// # Errors
    /// `Expired` if the session is over; as [`Files::need_back`], for new delegations; `Busy` with
    /// `ask.again`, if the volume changed between lists and mode bits since then: what was read may
    /// be stale, and no break would follow.
    pub fn promise(
        &self,
        ask: &mut CallContext<'_>,
        volume: &ViceVolume,
        fids: &[Fid],
    ) -> Result<(), Fault> {
        let names: SmallVec<[bool; 4]> =
            fids.iter().map(|fid| self.may_see_names(ask, volume, *fid)).collect();
        let mut leases = self.coherence.leases();
        let session = ask.origin.session;
        let covered = ask.delegated.is_some()
            && !volume.is_taking_over()
            && !leases.reclaims_delegations(session);
        // Rights that changed since the check permit no names.
        let checked = leases.promises().rights_changes() == ask.rights_changes;
        let mut new: SmallVec<[Fid; 4]> = SmallVec::new();
        for (fid, names) in fids.iter().zip(names) {
            if covered && !leases.delegations().covers(session, *fid) {
                return Err(Fault::NotDelegated);
            }
            if volume.need_service() == Err(Fault::Offline)
                && !leases.promises().concerns(session, *fid)
            {
                // It went offline meanwhile, and no break would end the promise.
                return Err(Fault::Offline);
            }
            if !leases.promises().has(session, *fid) {
                new.push(*fid);
            }
            let promised = match names && checked {
                true => leases.promise(ask.now, session, *fid, true, &mut ask.events),
                false => leases.promise(ask.now, session, *fid, false, &mut ask.events),
            };
            match promised {
                Promised::Yes => {}
                Promised::Covered(dir) => ask.waits.push(dir),
                Promised::Gone => return Err(Fault::Expired),
            }
        }
        if !new.is_empty() && volume.lists.models() != ask.models {
            new.iter().for_each(|fid| leases.promises_mut().withdraw(session, *fid));
            ask.again = true;
            return Err(Fault::Busy);
        }
        if ask.waits.is_empty() { Ok(()) } else { Err(Fault::Busy) }
    }

    /// Whether `fid` is a directory whose names the caller may see; mostly known already.
    fn may_see_names(&self, ask: &CallContext<'_>, volume: &ViceVolume, fid: Fid) -> bool {
        if !fid.vnode.is_directory()
            || self.coherence.leases().promises().shows_names(ask.origin.session, fid)
        {
            return fid.vnode.is_directory();
        }
        let vnode = volume.directory(fid);
        vnode.is_ok_and(|vnode| access::may(ask.asker(), volume, &vnode, Right::List) == Ok(true))
    }

    /// Makes a new file a child of its directory, if that is delegated.
    fn adopt(&self, ask: &mut CallContext<'_>, made: Option<(Fid, Fid)>) {
        let Some((dir, fid)) = made else { return };
        let at_once = ask.delegated.is_some() && fid.vnode.is_directory();
        self.coherence.leases().adopt(
            ask.now,
            ask.origin.session,
            dir,
            fid,
            at_once,
            &mut ask.events,
        );
    }

    /// Decides between an orphan and removal for a file without names.
    fn place_removed(
        &self,
        ask: &CallContext<'_>,
        change: &mut Change<'_>,
    ) -> Result<Option<Removed>, Fault> {
        let Some((vnode, hold)) = change.removed.take() else { return Ok(None) };
        let fid = vnode.status.fid;
        assert_eq!(vnode.status.links, 0, "HO-1: {fid} is removed, and has names");
        let session = ask.origin.session;
        let mut leases = self.coherence.leases();
        if hold {
            leases.hold(session, fid)?;
        }
        // Before grace is over, other sessions may reclaim their holds (HO-1).
        let claimed = !leases.may_change() || self.volumes.moves().takes_claims(fid.volume);
        let orphan = claimed
            || leases.holds().is_held(fid)
            || leases.promises().is_known_elsewhere(fid, session);
        drop(leases);
        if orphan {
            change.update.put_vnode(&vnode);
            change.update.add_orphan(vnode.no());
        } else {
            change.volume.store.drop_vnode(&vnode, &mut change.update)?;
        }
        Ok(Some(Removed { fid, hold, orphan }))
    }

    /// Undoes or completes [`Files::place_removed`] after the commit; returns the orphan, if there
    /// is one.
    fn finish_removed(
        &self,
        ask: &mut CallContext<'_>,
        removed: Option<Removed>,
        committed: bool,
    ) -> Option<Fid> {
        let Removed { fid, hold, orphan } = removed?;
        if !committed && hold {
            self.coherence.leases().unhold(ask.origin.session, fid);
        } else if committed && !orphan {
            debug_assert!(
                !self.coherence.leases().promises().is_known_elsewhere(fid, ask.origin.session),
                "HO-1: {fid} is gone, and another session may have it open"
            );
            self.coherence.leases().forget_file(ask.now, fid, &mut ask.events);
        }
        (committed && orphan).then_some(fid)
    }
}
