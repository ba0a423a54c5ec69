//! The machinery of calls on files: locks of vnodes, promises, changes, quotas, rights of open
//! files.
//!
//! A call takes the stripes of its vnodes, recalls what other sessions cover, checks the caller's
//! rights, makes promises, and commits a [`Change`] (`change.rs`). The calls themselves are in
//! `calls` and `admin`. Imports `base`, `call`, `cell`, `volumes`, `access` and `sessions`.

mod change;
mod orphans;
pub(crate) mod quota_charge;
mod quota_reservation;
mod sites;

use std::sync::Arc;

use parking_lot::RwLockReadGuard;
use store::Vnode;
use types::{Answer, BootVerifier, DataUse, Fault, Fid, SessionId, VolumeId};

pub(crate) use change::Change;
pub(crate) use sites::{OwnedBy, Sites};

use crate::access::{self, Right};
use crate::base::{StripeGuards, Stripes};
use crate::call::CallContext;
use crate::sessions::{Coherence, ModeRights, OpenRights};
use crate::volumes::{ViceVolume, Volumes};

/// See the head of the file.
pub(crate) struct Files {
    volumes: Arc<Volumes>,
    sites: Sites,
    coherence: Arc<Coherence>,
    stripes: Stripes,
    opened: OpenRights,
    /// Encodes answers for reply records.
    encode: fn(&Answer) -> Vec<u8>,
}

impl Files {
    pub fn new(
        volumes: Arc<Volumes>,
        sites: Sites,
        coherence: Arc<Coherence>,
        encode: fn(&Answer) -> Vec<u8>,
    ) -> Files {
        let (stripes, opened) = (Stripes::new(), OpenRights::default());
        Files { volumes, sites, coherence, stripes, opened, encode }
    }

    /// The form of an answer in a reply record.
    pub fn encode(&self) -> fn(&Answer) -> Vec<u8> {
        self.encode
    }

    pub fn coherence(&self) -> &Coherence {
        &self.coherence
    }

    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    pub fn sites(&self) -> &Sites {
        &self.sites
    }

    /// A volume for a client's call.
    ///
    /// # Errors
    /// `NoVolume`, `Offline`; `CellAway` as [`Sites::confirm`].
    pub fn volume(&self, id: VolumeId) -> Result<Arc<ViceVolume>, Fault> {
        let volume = self.confirmed(id)?;
        volume.need_service()?;
        Ok(volume)
    }

    /// A volume for a read of a file's bytes.
    ///
    /// # Errors
    /// As [`Files::volume`].
    pub fn volume_to_read(
        &self,
        ask: &CallContext<'_>,
        fid: Fid,
    ) -> Result<Arc<ViceVolume>, Fault> {
        let volume = self.confirmed(fid.volume)?;
        let goes_on = volume.answers_reads(ask.now)
            && self.coherence.leases().promises().concerns(ask.origin.session, fid);
        if !goes_on {
            volume.need_service()?;
        }
        Ok(volume)
    }

    /// A volume for what a client had at another server, which a volume executes too while it
    /// takes over (SB-6).
    ///
    /// # Errors
    /// As [`Files::volume`].
    pub fn volume_to_claim(&self, id: VolumeId) -> Result<Arc<ViceVolume>, Fault> {
        let volume = self.confirmed(id)?;
        volume.need_claims()?;
        Ok(volume)
    }

    /// A volume for a call that may be a claim.
    ///
    /// # Errors
    /// As [`Files::volume`].
    pub fn volume_for(
        &self,
        ask: &CallContext<'_>,
        id: VolumeId,
    ) -> Result<Arc<ViceVolume>, Fault> {
        if ask.is_claim() { self.volume_to_claim(id) } else { self.volume(id) }
    }

    fn confirmed(&self, id: VolumeId) -> Result<Arc<ViceVolume>, Fault> {
        let volume = self.volumes.any_volume(id)?;
        if volume.is_unconfirmed() {
            self.sites.confirm(&volume)?;
        }
        Ok(volume)
    }

    /// Begins a call that looks at one file: excludes its changes, and recalls what covers it.
    ///
    /// # Errors
    /// As [`Files::volume`] and [`Files::need_back`].
    pub fn look_at(
        &self,
        ask: &mut CallContext<'_>,
        fid: Fid,
    ) -> Result<(Arc<ViceVolume>, RwLockReadGuard<'_, ()>), Fault> {
        let volume = self.volume_for(ask, fid.volume)?;
        let seen = self.stripes.read(fid);
        self.need_back(ask, &volume, &[fid])?;
        Ok((volume, seen))
    }

    /// Begins a call that changes one file: excludes all other calls on it, and recalls what covers
    /// it.
    ///
    /// # Errors
    /// As [`Files::volume`] and [`Files::need_back`]; `ReadOnly`.
    pub fn change(
        &self,
        ask: &mut CallContext<'_>,
        fid: Fid,
    ) -> Result<(Arc<ViceVolume>, StripeGuards<'_>), Fault> {
        let volume = self.volume_for(ask, fid.volume)?;
        volume.need_writable()?;
        let held = self.stripes.write(&[fid]);
        self.need_back(ask, &volume, &[fid])?;
        Ok((volume, held))
    }

    /// Excludes changes of the vnode.
    pub fn read_lock(&self, fid: Fid) -> RwLockReadGuard<'_, ()> {
        self.stripes.read(fid)
    }

    /// Excludes all other calls on these vnodes.
    pub fn write_lock(&self, fids: &[Fid]) -> StripeGuards<'_> {
        self.stripes.write(fids)
    }

    /// Changes whenever unstable changes may have been lost.
    pub fn boot_verifier(&self) -> BootVerifier {
        self.volumes.partitions().boot_verifier()
    }

    /// Checks that the caller may use the file's content: by its rights now, or by those that it
    /// had when the session opened it.
    ///
    /// # Errors
    /// As [`access::need`].
    pub fn need_data(
        &self,
        ask: &CallContext<'_>,
        volume: &ViceVolume,
        vnode: &Vnode,
        right: Right,
    ) -> Result<(), Fault> {
        let refused = match access::need(ask.asker(), volume, vnode, right) {
            Err(Fault::AccessDenied) if !volume.lists.decide() => Fault::AccessDenied,
            judged => return judged,
        };
        let mut answer = Err(refused);
        for rights in self.opened.rights(ask.origin.session, vnode.status.fid) {
            match access::need_by_mode(ask.caller, &rights.applied(&vnode.status), right) {
                Ok(()) => return Ok(()),
                // The groups, which the client did not send, may decide.
                Err(Fault::GroupsNeeded) => answer = Err(Fault::GroupsNeeded),
                Err(_) => {}
            }
        }
        answer
    }

    /// Checks that no open of another session excludes the caller's from using the file's data so
    /// (SH-2, SH-4). Called under the file's stripe, after the check of the caller's right: without
    /// that a caller learns of no open (AC-1).
    ///
    /// # Errors
    /// `ShareConflict`, `KeyConflict`.
    pub fn need_share(&self, ask: &CallContext<'_>, fid: Fid, uses: DataUse) -> Result<(), Fault> {
        self.coherence.leases().opens().check(ask.origin.session, fid, uses)
    }

    /// Notes the old rights `was` of a file for the sessions that may have it open. `here`: also
    /// for the caller's.
    pub fn note_opened(&self, ask: &CallContext<'_>, fid: Fid, was: ModeRights, here: bool) {
        let caller = ask.origin.session;
        let sessions = self.coherence.leases().may_have_open(fid).into_iter();
        let others = sessions.filter(|session| *session != caller);
        others
            .chain(here.then_some(caller))
            .for_each(|session| self.opened.note(session, fid, was));
    }

    /// The session does not have the file open.
    pub fn note_closed(&self, session: SessionId, fid: Fid) {
        self.opened.forget(session, fid);
    }

    /// The session is over.
    pub fn remove_session(&self, session: SessionId) {
        self.opened.remove_session(session);
    }
}
