//! Unstable writes: the server acknowledged them and may lose them, so they stay here until a
//! COMMIT.
//!
//! Model. A file's unstable bytes belong to one boot verifier of the server. If the server answers
//! under another one, it lost them, and they are sent again. A commit *asks* about all unstable
//! bytes at its beginning; later ones are stored beside them, and are newer. One commit of a file
//! asks at a time: two would each know a part of the lost bytes, and neither which bytes are newer.
//! Lost bytes go below everything written since, wherever that is (`dirty`, `flying`, `sealed`,
//! unstable). Bytes that a truncation cuts off are removed before it is sent; bytes that moved to
//! another server with their volume are stable there.

use client::Reply;
use types::{BootVerifier, Fid, VolumeId};

use super::{MetadataSubject, Point, UnstableMetadata};
use crate::base::{Error, Share};
use crate::data::{Chunk, Cut, Data, FileBytes, MountShared, UnstableWrites};
use crate::session::Ground;

/// The changes that the server acknowledged and may lose: bytes, names, status.
pub(crate) struct Unstable {
    ground: Ground,
    unsent: Share,
    bytes: Share,
    metadata: UnstableMetadata,
}

impl Unstable {
    pub fn new(ground: &Ground, common: &MountShared) -> Self {
        Unstable {
            ground: ground.clone(),
            unsent: Share::of(&common.unsent),
            bytes: Share::of(&common.unstable),
            metadata: UnstableMetadata::default(),
        }
    }

    /// Stores an unstable chunk, to send it again if the server loses it.
    pub fn keep(&self, data: &mut Data, chunk: &Chunk, verifier: BootVerifier) {
        if self.ground.server.is_local() {
            return;
        }
        let before = data.unstable.bytes.bytes();
        if data.unstable.verifier != verifier && !data.unstable.bytes.is_empty() {
            tracing::warn!(offset = chunk.offset, "server lost unstable data; sending it again");
            data.unstable.bytes.carve(chunk.offset, chunk.end());
            let lost = data.unstable.bytes.take_all();
            data.send_older(&lost);
        }
        let is_first = before == 0 && self.bytes.bytes() == 0;
        data.unstable.verifier = verifier;
        data.unstable.bytes.write(chunk.offset, chunk.data.clone(), chunk.first);
        let total = self.bytes.change(before, data.unstable.bytes.bytes());
        let is_much = total > self.bytes.limit(self.ground.config.uncommitted_bytes_max);
        if is_much {
            self.ground.chores.commit_soon();
        } else if is_first {
            // The janitor sees the bytes by now: it would not wait for bytes that come later.
            self.ground.chores.commit_by_age();
        }
    }

    /// A commit was answered under this verifier, or failed; returns whether the bytes it asked
    /// about are stable.
    pub fn answered(&self, file: &FileBytes, now: Option<BootVerifier>) -> bool {
        let mut data = file.data.lock();
        let lost = self.change(&mut data, |unstable| unstable.answered(now));
        self.send_lost(file, &mut data, &lost);
        let was_lost = std::mem::take(&mut data.unstable.asked_lost);
        now.is_some() && lost.is_empty() && !was_lost
    }

    /// The server is under this verifier now; returns whether it lost bytes of the file.
    fn find_lost_bytes(&self, file: &FileBytes, now: BootVerifier) -> bool {
        let mut data = file.data.lock();
        let lost = self.change(&mut data, |unstable| unstable.lost(now));
        self.send_lost(file, &mut data, &lost);
        !lost.is_empty()
    }

    fn send_lost(&self, file: &FileBytes, data: &mut Data, lost: &[Chunk]) {
        if !lost.is_empty() {
            tracing::warn!(fid = %file.fid, chunks = lost.len(), "server lost unstable data; \
                sending it again");
            data.send_older(lost);
            self.account(file, data);
        }
    }

    /// Changes the unstable bytes of a file, and counts them.
    pub fn change<R>(&self, data: &mut Data, change: impl FnOnce(&mut UnstableWrites) -> R) -> R {
        let unstable = &mut data.unstable;
        let before = unstable.bytes.bytes();
        let result = change(unstable);
        self.bytes.change(before, unstable.bytes.bytes());
        result
    }

    /// Puts bytes back after a cut that failed.
    pub fn restore(&self, file: &FileBytes, cut: Cut, why: &Error) {
        // After any other error the cut may have been applied.
        if matches!(why, Error::Fault(_) | Error::Interrupted) {
            let mut data = file.data.lock();
            let lost = self.change(&mut data, |unstable| unstable.restore(cut));
            self.send_lost(file, &mut data, &lost);
        }
    }

    /// All bytes are stable on another server.
    pub fn forget(&self, file: &FileBytes) {
        self.change(&mut file.data.lock(), |unstable| drop(unstable.cut(0, u64::MAX)));
    }

    /// The file is over: neither its bytes nor its changes are worth anything any more.
    pub fn forget_removed(&self, file: &FileBytes) {
        self.forget(file);
        self.metadata.forget(file.fid);
    }

    /// Notes an acknowledged change, whose call was made when the volume was at this place.
    pub fn note(&self, place: u64, reply: &Reply, subject: MetadataSubject) {
        let server = &self.ground.server;
        let Some(verifier) = reply.verifier.filter(|_| !server.is_local()) else { return };
        if server.place() != place {
            return;
        }
        let is_first = !self.is_any();
        let (lost, is_much) = self.metadata.note(verifier, &reply.answer, subject);
        self.lose(&lost);
        if is_much {
            self.ground.chores.commit_soon();
        } else if is_first {
            self.ground.chores.commit_by_age();
        }
    }

    /// A commit asks about the changes of names and status up to now.
    pub fn point(&self) -> Point {
        self.metadata.point()
    }

    /// Volumes with unstable changes of names or status.
    pub fn volumes(&self) -> Vec<VolumeId> {
        self.metadata.volumes()
    }

    /// A commit of this file or directory was answered, or of its whole volume.
    pub fn committed(&self, of: Fid, whole: bool, point: Point, reply: &Reply) {
        if let Some(now) = reply.verifier {
            self.lose(&self.metadata.committed(of, whole, point, now));
        }
    }

    /// The volume moved: all that the old server had is stable at the new one.
    pub fn moved(&self) {
        self.ground.names.files().iter().for_each(|file| self.forget(file));
        self.metadata.clear();
    }

    /// A copy of the volume took over at another server: nothing that was unstable is there.
    pub fn taken_over(&self) {
        self.find_lost(BootVerifier::default());
    }

    /// Changes of these files are lost.
    pub fn lose(&self, fids: &[Fid]) {
        if fids.is_empty() {
            return;
        }
        tracing::warn!(first = %fids[0], files = fids.len(), "unstable changes of names or \
            status are lost; the next sync reports it");
        self.metadata.begin_loss();
        let names = &self.ground.names;
        for fid in fids {
            match names.file_of(*fid).filter(|_| names.is_open(*fid)) {
                Some(file) => file.data.lock().fail(Error::Lost),
                None => self.metadata.lose(*fid),
            }
        }
    }

    /// Reports a lost change of the file.
    ///
    /// # Errors
    /// Once, if a change is lost.
    pub fn report_loss(&self, fid: Fid) -> Result<(), Error> {
        self.metadata.report(fid)
    }

    /// Reports any lost change.
    ///
    /// # Errors
    /// Once, if a change is lost.
    pub fn report_any_loss(&self) -> Result<(), Error> {
        self.metadata.report_any()
    }

    /// Takes the verifier of an answer to a call that was made when the volume was at this place.
    pub fn check_instance(&self, place: u64, reply: &Reply) {
        if let Some(verifier) = reply.verifier {
            self.learn(Some(place), verifier);
        }
    }

    /// The server now has this boot verifier.
    pub fn learn(&self, place: Option<u64>, verifier: BootVerifier) {
        self.ground.server.learn(place, verifier, || self.find_lost(verifier));
    }

    /// Publishes the counts of `data`, after each change of `dirty`, `flying` or `sealed`.
    pub fn account(&self, file: &FileBytes, data: &mut Data) {
        file.account(data, &self.unsent);
    }

    /// Bytes dirty or flying, of all files.
    pub fn unsent(&self) -> &Share {
        &self.unsent
    }

    /// Whether there is something to be committed.
    pub fn is_any(&self) -> bool {
        self.bytes.bytes() > 0 || !self.metadata.is_empty()
    }

    /// The number of files with changes of names or status to be committed.
    pub fn changed_files(&self) -> usize {
        self.metadata.len()
    }

    fn find_lost(&self, now: BootVerifier) {
        let duties = self.ground.chores.duties();
        for file in self.ground.names.files() {
            if self.find_lost_bytes(&file, now)
                && let Some(duties) = &duties
            {
                duties.send_soon(&file);
            }
        }
        self.lose(&self.metadata.find_lost(now));
    }
}
