//! Bytes of files. AFS has no unstable writes: what was stored is stable, as far as the server
//! makes it so, and there is nothing to commit.

use std::time::{SystemTime, UNIX_EPOCH};

use afs3::files::{FilesAnswer, FilesCall};
use afs3::structs::{FetchStatus, StoreStatus, store_mask};
use bytes::Bytes;
use client::CallError;
use types::limits::FILE_BYTES_MAX;
use types::{Answer, BootVerifier, DataVersion, Fault, Fid, SeekWhat, SetTime, StatusChange};

use crate::context::{AfsCall, Answered, Told};
use crate::servers::Trouble;
use crate::statuses::foreign;

/// That of every server of AFS: none of them loses what it acknowledged, as far as they tell.
pub(crate) const VERIFIER: BootVerifier = BootVerifier(1);

/// Seconds since 1970, as AFS counts them.
pub(crate) fn now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

/// A status that sets the time of the last change, as every store does.
fn modified() -> StoreStatus {
    StoreStatus { mask: store_mask::MOD_TIME, client_mod_time: now(), ..StoreStatus::default() }
}

impl AfsCall<'_> {
    pub(crate) fn read(&self, fid: Fid, offset: u64, length: u32) -> Result<Answered, CallError> {
        let (told, data) = self.fetch(fid, offset, length as usize)?;
        let status = told.shown()?;
        let end = offset.saturating_add(data.len() as u64) >= status.size;
        Ok(Answered { answer: Answer::Data { data, end, status }, claims: vec![told.claim()] })
    }

    /// Stores bytes; the file has `length` bytes then.
    fn store(
        &self,
        fid: Fid,
        position: u64,
        data: &Bytes,
        file_length: u64,
    ) -> Result<Told, CallError> {
        let call = FilesCall::StoreData64 {
            fid: foreign(fid)?,
            status: modified(),
            position,
            length: data.len() as u64,
            file_length,
        };
        let stored: FetchStatus = self.at(fid.volume, false, |server| {
            match self.cell.servers.store(server, self.user, &call, data)? {
                FilesAnswer::StoreData64 { status, .. } => Ok(status),
                _ => Err(Trouble::Odd),
            }
        })?;
        let [told] = self.changed([(fid, stored)]);
        Ok(told)
    }

    /// `offset: None` appends.
    pub(crate) fn write(
        &self,
        fid: Fid,
        offset: Option<u64>,
        data: &Bytes,
    ) -> Result<Answered, CallError> {
        let order = self.cell.stores.of(fid);
        let _stores = order.lock();
        let before = match offset {
            Some(_) => self.status(fid)?,
            None => self.fetch_status(fid)?,
        };
        let length = before.status.length();
        let offset = offset.unwrap_or(length);
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Fault::TooBig)?;
        let told = self.store(fid, offset, data, length.max(end))?;
        let status = told.shown()?;
        // A store raises the version by one.
        let previous_version = DataVersion(status.data_version.0.saturating_sub(1));
        let (count, verifier) = (data.len() as u32, VERIFIER);
        let answer = Answer::Written { count, offset, status, previous_version, verifier };
        Ok(Answered { answer, claims: vec![told.claim()] })
    }

    /// All of a file counts as data.
    pub(crate) fn seek(
        &self,
        fid: Fid,
        offset: u64,
        what: SeekWhat,
    ) -> Result<Answered, CallError> {
        let size = self.status(fid)?.status.length();
        if offset >= size {
            return Err(Fault::NothingThere.into());
        }
        let found = match what {
            SeekWhat::Data => offset,
            SeekWhat::Hole => size,
        };
        Ok(Answered::plain(Answer::Offset(found)))
    }

    /// The size is stored, all else is status. AFS has no access time.
    pub(crate) fn set_status(
        &self,
        fid: Fid,
        change: &StatusChange,
    ) -> Result<Answered, CallError> {
        let mut told = None;
        if let Some(size) = change.size {
            if size > FILE_BYTES_MAX {
                return Err(Fault::TooBig.into());
            }
            let order = self.cell.stores.of(fid);
            let _stores = order.lock();
            told = Some(self.store(fid, size, &Bytes::new(), size)?);
        }
        let mut status = StoreStatus::default();
        let mut set = |mask: u32, field: fn(&mut StoreStatus) -> &mut u32, value: Option<u32>| {
            if let Some(value) = value {
                status.mask |= mask;
                *field(&mut status) = value;
            }
        };
        set(store_mask::MODE, |status| &mut status.mode, change.mode.map(u32::from));
        set(store_mask::OWNER, |status| &mut status.owner, change.uid);
        set(store_mask::GROUP, |status| &mut status.group, change.gid);
        let modified = change.modified.map(|time| match time {
            SetTime::Now => now(),
            SetTime::To(time) => u32::try_from(time.secs.max(0)).unwrap_or(u32::MAX),
        });
        set(store_mask::MOD_TIME, |status| &mut status.client_mod_time, modified);
        if status.mask != 0 {
            let call = FilesCall::StoreStatus { fid: foreign(fid)?, status };
            let (answer, ..) = self.change(fid.volume, &call)?;
            let FilesAnswer::StoreStatus { status, .. } = answer else {
                return Err(CallError::Unreadable);
            };
            let [stored] = self.changed([(fid, status)]);
            told = Some(stored);
        }
        let told = told.map_or_else(|| self.status(fid), Ok)?;
        Ok(Answered { answer: Answer::Status(told.shown()?), claims: vec![told.claim()] })
    }
}
