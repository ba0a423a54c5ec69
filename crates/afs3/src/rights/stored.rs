//! The access list of a directory as volumes store it.
//!
//! Model: five words (bytes in use, version 1, entries, those that grant, those that deny), then
//! entries of a number and rights. Those that grant fill the places from the front, by ascending
//! numbers; those that deny fill them from the last used place backwards, by ascending numbers too.

use super::{AclFormError, AfsRights, ENTRIES_MAX};
use crate::xdr::{Xdr as _, XdrError, XdrReader, XdrWriter};

/// The bytes of a stored list.
pub const STORED_ACL_BYTES: usize = 192;
const HEAD_BYTES: usize = 20;
const ENTRY_BYTES: usize = 8;
const VERSION: u32 = 1;

const _: () = assert!(HEAD_BYTES + ENTRIES_MAX * ENTRY_BYTES <= STORED_ACL_BYTES);

/// An access list with the numbers of its principals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredAcl {
    /// Entries that grant.
    pub positive: Vec<(i32, AfsRights)>,
    /// Entries that deny.
    pub negative: Vec<(i32, AfsRights)>,
}

impl StoredAcl {
    /// The list that these bytes stand for. Its entries come in the order that they have there.
    ///
    /// # Errors
    /// [`AclFormError::Damaged`], [`AclFormError::TooMany`].
    pub fn from_bytes(bytes: &[u8; STORED_ACL_BYTES]) -> Result<StoredAcl, AclFormError> {
        let mut from = XdrReader::new(bytes);
        let mut word = || from.u32();
        let damaged = |_: XdrError| AclFormError::Damaged;
        let [_size, version, total, positive, negative] =
            [word(), word(), word(), word(), word()].map(|word| word.unwrap_or(u32::MAX));
        if version != VERSION || u64::from(positive) + u64::from(negative) != u64::from(total) {
            return Err(AclFormError::Damaged);
        }
        let total = total as usize;
        if total > ENTRIES_MAX {
            return Err(AclFormError::TooMany(total));
        }
        let mut all = Vec::with_capacity(total);
        for _ in 0..total {
            let id = i32::get(&mut from).map_err(damaged)?;
            all.push((id, AfsRights(from.u32().map_err(damaged)?)));
        }
        let negative = all.split_off(positive as usize);
        Ok(StoredAcl { positive: all, negative: negative.into_iter().rev().collect() })
    }

    /// The bytes of the list, its entries sorted.
    ///
    /// # Errors
    /// [`AclFormError::TooMany`].
    pub fn to_bytes(&self) -> Result<[u8; STORED_ACL_BYTES], AclFormError> {
        let total = self.positive.len() + self.negative.len();
        if total > ENTRIES_MAX {
            return Err(AclFormError::TooMany(total));
        }
        let (mut positive, mut negative) = (self.positive.clone(), self.negative.clone());
        positive.sort_by_key(|(id, _)| *id);
        negative.sort_by_key(|(id, _)| *id);
        negative.reverse();
        let mut text = Vec::with_capacity(STORED_ACL_BYTES);
        let mut to = XdrWriter::new(&mut text);
        to.u32((HEAD_BYTES + total * ENTRY_BYTES) as u32);
        to.u32(VERSION);
        to.u32(total as u32);
        to.u32(positive.len() as u32);
        to.u32(negative.len() as u32);
        for (id, AfsRights(bits)) in positive.iter().chain(&negative) {
            id.put(&mut to);
            to.u32(*bits);
        }
        let mut bytes = [0; STORED_ACL_BYTES];
        bytes[..text.len()].copy_from_slice(&text);
        Ok(bytes)
    }
}
