//! Bytes of files.

use afs3::structs::{AfsFid, FetchStatus, StoreStatus, VolSync, store_mask};
use bytes::Bytes;
use types::limits::PAYLOAD_BYTES_MAX;
use types::{Answer, Call, Fid, Kind, SetTime, Status, StatusChange, Timestamp};

use super::{FileCall, find, unexpected};
use crate::{CallStream, Refusal};

/// Bytes of one fetch that are read before the first is sent, so that they are of one version.
const AT_ONCE: u64 = 8 << 20;
/// Attempts to read them of one version.
const TRIES: u32 = 8;

/// How a fetch says the number of its bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Announce {
    Word,
    TwoWords,
}

/// A position or length of a call.
pub(super) fn from_word(number: i32) -> Result<u64, Refusal> {
    u64::try_from(number).map_err(|_| Refusal::INVALID)
}

/// The same of a 64-bit call.
pub(super) fn from_words(number: i64) -> Result<u64, Refusal> {
    u64::try_from(number).map_err(|_| Refusal::INVALID)
}

impl Announce {
    fn bytes(self, count: u64) -> Result<Bytes, Refusal> {
        match self {
            Announce::Word => {
                let count = i32::try_from(count).map_err(|_| Refusal::TOO_BIG)?;
                Ok(Bytes::copy_from_slice(&count.to_be_bytes()))
            }
            Announce::TwoWords => Ok(Bytes::copy_from_slice(&count.to_be_bytes())),
        }
    }
}

impl FileCall<'_> {
    /// Sends a range of a file, of a directory's pages, or of a link's target.
    pub(super) fn fetch(
        &self,
        fid: AfsFid,
        position: u64,
        length: u64,
        announce: Announce,
        stream: &mut dyn CallStream,
    ) -> Result<(FetchStatus, VolSync), Refusal> {
        let status = find(self, fid)?;
        let sync = self.sync_of(fid.volume)?;
        let whole = match status.kind {
            Kind::File => {
                return Ok((self.fetch_file(&status, (position, length), announce, stream)?, sync));
            }
            Kind::Directory => self.fetch_directory(&status)?,
            Kind::Symlink | Kind::MountPoint => Bytes::from(self.target_of(&status)?),
            _ => Bytes::new(),
        };
        let shown = self.shown(status.fid)?;
        let from = position.min(whole.len() as u64) as usize;
        let to = position.saturating_add(length).min(whole.len() as u64) as usize;
        stream.give(announce.bytes((to - from) as u64)?)?;
        stream.give(whole.slice(from..to))?;
        Ok((shown, sync))
    }

    /// A caller that may list it may fetch its pages.
    fn fetch_directory(&self, status: &Status) -> Result<Bytes, Refusal> {
        let (dir, cookie) = (status.fid, types::Cookie::START);
        self.services.ask(Call::ReadDir { dir, cookie, bytes_max: 4096, plus: false })?;
        self.pages_of(dir)
    }

    fn fetch_file(
        &self,
        status: &Status,
        (position, length): (u64, u64),
        announce: Announce,
        stream: &mut dyn CallStream,
    ) -> Result<FetchStatus, Refusal> {
        for _ in 0..TRIES {
            let (parts, seen) = self.read(status, position, length.min(AT_ONCE))?;
            let Some(mut last) = seen else { continue };
            let count = last.size.saturating_sub(position).min(length);
            stream.give(announce.bytes(count)?)?;
            let mut sent = 0;
            for part in parts {
                sent += part.len() as u64;
                stream.give(part)?;
            }
            while sent < count {
                let next = (count - sent).min(PAYLOAD_BYTES_MAX as u64) as u32;
                let (data, status) = self.read_once(status, position + sent, next)?;
                if status.data_version != last.data_version || data.is_empty() {
                    // These bytes are of a version that is over: the client asks again.
                    return Err(Refusal::BUSY);
                }
                sent += data.len() as u64;
                last = status;
                stream.give(data)?;
            }
            return self.shown_as(&last);
        }
        Err(Refusal::BUSY)
    }

    fn read_once(
        &self,
        status: &Status,
        offset: u64,
        length: u32,
    ) -> Result<(Bytes, Status), Refusal> {
        match self.services.ask(Call::Read { fid: status.fid, offset, length })? {
            Answer::Data { data, status, .. } => Ok((data, status)),
            _ => Err(unexpected()),
        }
    }

    /// Reads a range; no status: the file changed meanwhile.
    fn read(
        &self,
        status: &Status,
        position: u64,
        length: u64,
    ) -> Result<(Vec<Bytes>, Option<Status>), Refusal> {
        let (mut parts, mut got, mut seen) = (Vec::new(), 0, None::<Status>);
        loop {
            let next = (length - got).min(PAYLOAD_BYTES_MAX as u64) as u32;
            let (data, now) = self.read_once(status, position.saturating_add(got), next)?;
            if seen.is_some_and(|seen| seen.data_version != now.data_version) {
                return Ok((Vec::new(), None));
            }
            seen = Some(now);
            got += data.len() as u64;
            let is_end = data.len() < next as usize;
            parts.push(data);
            if is_end || got == length {
                return Ok((parts, seen));
            }
        }
    }

    /// Cuts the file to `file_length`, writes `length` bytes of the stream at `position`, and
    /// brings all to the disk: the client keeps nothing to send again.
    pub(super) fn store(
        &self,
        fid: AfsFid,
        change: &StoreStatus,
        (position, length, file_length): (u64, u64, u64),
        stream: &mut dyn CallStream,
    ) -> Result<(FetchStatus, VolSync), Refusal> {
        let found = find(self, fid)?;
        if found.kind != Kind::File {
            return Err(Refusal::IS_DIRECTORY);
        }
        let fid_here = found.fid;
        let ends_at = position.checked_add(length).ok_or(Refusal::TOO_BIG)?;
        let size = found.size.min(file_length).max(if length == 0 { position } else { 0 });
        // A store of no bytes raises the version, too.
        let resizes = size != found.size || length == 0;
        let calls = u64::from(resizes) + length.div_ceil(PAYLOAD_BYTES_MAX as u64);
        let versions = &self.service.versions;
        versions.begin(self.host.number, fid_here, calls);
        let stored = self.write_all(fid_here, resizes.then_some(size), (position, ends_at), stream);
        if let Err(refusal) = stored {
            versions.undo(self.host.number, fid_here, calls);
            return Err(refusal);
        }
        self.set_time(fid_here, change)?;
        self.services.ask(Call::Commit { fid: fid_here })?;
        Ok((self.shown(fid_here)?, self.sync_of(fid.volume)?))
    }

    /// The calls of a store that raise the version: one for a new size, and one for each part.
    fn write_all(
        &self,
        fid: Fid,
        size: Option<u64>,
        (position, ends_at): (u64, u64),
        stream: &mut dyn CallStream,
    ) -> Result<(), Refusal> {
        if size.is_some() {
            self.set_status(fid, StatusChange { size, ..no_change() })?;
        }
        let mut at = position;
        while at < ends_at {
            let most = (ends_at - at).min(PAYLOAD_BYTES_MAX as u64) as usize;
            let data = gather(stream, most)?;
            let count = data.len() as u64;
            let call =
                Call::Write { fid, offset: Some(at), data, stable: false, kill_privileges: true };
            let Answer::Written { .. } = self.services.ask(call)? else { return Err(unexpected()) };
            at += count;
        }
        Ok(())
    }

    pub(super) fn store_status(
        &self,
        fid: AfsFid,
        change: &StoreStatus,
    ) -> Result<(FetchStatus, VolSync), Refusal> {
        let found = find(self, fid)?;
        let names = |bit: u32, value: u32| (change.mask & bit != 0).then_some(value);
        let changed = StatusChange {
            mode: names(store_mask::MODE, change.mode).map(|mode| (mode & 0o7777) as u16),
            uid: names(store_mask::OWNER, change.owner),
            gid: names(store_mask::GROUP, change.group),
            ..no_change()
        };
        if changed != no_change() {
            self.set_status(found.fid, changed)?;
        }
        self.set_time(found.fid, change)?;
        Ok((self.shown(found.fid)?, self.sync_of(fid.volume)?))
    }

    /// Sets the modification time that a call gives. AFS lets a writer do that; here only an owner
    /// sets a given time, and a writer the time of the call.
    fn set_time(&self, fid: Fid, given: &StoreStatus) -> Result<(), Refusal> {
        let Some(time) = modified(given) else { return Ok(()) };
        let set = |time| {
            let change = StatusChange { modified: Some(time), ..no_change() };
            self.set_status(fid, change).map(drop)
        };
        match set(time) {
            Err(Refusal::NOT_PERMITTED) => set(SetTime::Now),
            done => done,
        }
    }

    fn set_status(&self, fid: Fid, change: StatusChange) -> Result<Status, Refusal> {
        match self.services.ask(Call::SetStatus { fid, change })? {
            Answer::Status(status) => Ok(status),
            _ => Err(unexpected()),
        }
    }
}

fn no_change() -> StatusChange {
    StatusChange::default()
}

/// The modification time that a call sets.
fn modified(change: &StoreStatus) -> Option<SetTime> {
    let is_set = change.mask & store_mask::MOD_TIME != 0;
    is_set.then(|| SetTime::To(Timestamp::new(change.client_mod_time.into(), 0)))
}

/// So many bytes of the stream, in one piece.
fn gather(stream: &mut dyn CallStream, count: usize) -> Result<Bytes, Refusal> {
    let first = stream.take(count)?;
    if first.len() == count {
        return Ok(first);
    }
    let mut all = Vec::with_capacity(count);
    all.extend_from_slice(&first);
    while all.len() < count {
        all.extend_from_slice(&stream.take(count - all.len())?);
    }
    Ok(Bytes::from(all))
}
