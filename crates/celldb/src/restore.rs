//! A new database from the records of a backup.
//!
//! Changes that were made after the backup are lost, but servers, clients and files remember them.
//! So the new database gives nothing again that it may have given before: its revision and the next
//! numbers of volumes and principals are far above those of the backup, and it has no log of
//! changes, so that all who ask for changes fetch everything anew. Tokens that were issued until
//! now end: the backup does not know which ones an administrator or a new password ended since.

use std::path::Path;

use guard::Highest;
use types::{Principal, PrincipalId, Revision};

use crate::embedded::FilesFill;
use crate::engine::{Batch, Fill};
use crate::etcd::{EtcdConfig, EtcdFill};
use crate::operations::tokens_after;
use crate::record::{self, CellCounters, RecordKind};
use crate::{CellError, key};

type Result<T> = std::result::Result<T, CellError>;

/// How far the revision of a restored database is above that of the backup.
const REVISIONS_SKIPPED: u64 = 1 << 32;
/// The numbers of volumes that may have been given since the backup.
const VOLUMES_SKIPPED: u64 = 1 << 24;
/// The numbers of users, and as many of groups, that may have been given since the backup.
const PRINCIPALS_SKIPPED: i32 = 1 << 20;
/// Bytes of records in one batch.
const BATCH_BYTES: usize = 1 << 20;

/// A database that is being filled. It can be used only after [`Restoring::end`]: until then it has
/// no counters.
pub struct Restoring {
    to: Box<dyn Fill>,
    batch: Batch,
    /// Bytes in the batch.
    bytes: usize,
    /// Of the backup.
    revision: Revision,
    now: i64,
    counters: Option<CellCounters>,
    highest: Highest,
}

/// The numbers from which a restored database goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The revision of the database.
    pub revision: Revision,
    /// The next number of a volume.
    pub next_volume: u64,
    /// The highest number of a user that counts as given.
    pub user: PrincipalId,
    /// The lowest number of a group that counts as given.
    pub group: PrincipalId,
}

impl Restoring {
    /// Begins a database in `path`, which does not exist, with records of this revision. `now`: in
    /// seconds since 1970.
    ///
    /// # Errors
    /// `Misuse` if something is there; `Medium`.
    pub fn begin(path: &Path, revision: Revision, now: i64) -> Result<Restoring> {
        Ok(Self::into(Box::new(FilesFill::begin(path)?), revision, now))
    }

    /// Begins a database of this cell in etcd. Nothing is written before [`Restoring::end`].
    /// `replaces`: also if one is there. It has to be older than what the restored one begins
    /// with.
    ///
    /// # Errors
    /// `Misuse` if one is there; `NoQuorum`, `Medium`.
    pub fn begin_in_etcd(
        etcd: &EtcdConfig,
        cell: &str,
        replaces: bool,
        revision: Revision,
        now: i64,
    ) -> Result<Restoring> {
        let to = EtcdFill::begin(etcd, cell, replaces)?;
        let found = to.replaced()?.0;
        if found >= revision.0.saturating_add(REVISIONS_SKIPPED) {
            let why = format!("etcd's database is at revision {found}, far above the backup's");
            return Err(CellError::Misuse(why));
        }
        Ok(Self::into(Box::new(to), revision, now))
    }

    /// Into an empty store.
    pub(crate) fn into(to: Box<dyn Fill>, revision: Revision, now: i64) -> Restoring {
        let (batch, highest) = (Batch::default(), Highest::default());
        Restoring { to, batch, bytes: 0, revision, now, counters: None, highest }
    }

    /// Takes a record of the backup.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match record::check(key, value)? {
            RecordKind::Counters => self.counters = Some(record::decode_counters(key, value)?),
            RecordKind::Highest => self.highest = record::decode_highest(key, value)?,
            RecordKind::Change => {}
            RecordKind::User => {
                let user = ended(record::decode_principal(key, value)?, self.now);
                self.batch.put(key, record::encode_principal(key, self.revision, &user));
            }
            // The backup does not know whom an invitation has let in since: none lets in any more.
            RecordKind::Invitation => {
                let mut invitation = record::decode_invitation(key, value)?;
                invitation.uses = invitation.used.len() as u32;
                if invitation.uses > 0 {
                    let value = record::encode_invitation(key, self.revision, &invitation);
                    self.batch.put(key, value);
                }
            }
            _ => self.batch.put(key, value),
        }
        self.bytes += key.len() + value.len();
        if self.bytes >= BATCH_BYTES {
            self.to.write(&self.batch)?;
            (self.batch, self.bytes) = (Batch::default(), 0);
        }
        Ok(())
    }

    /// Makes the database whole. It is on disk when this returns.
    ///
    /// # Errors
    /// `Damaged` if the records have no counters or those of another revision; `Misuse` if there
    /// are no more numbers; `Medium`.
    pub fn end(mut self) -> Result<Restored> {
        let counters = self.counters.filter(|counters| counters.revision == self.revision.0);
        let counters = counters.ok_or_else(|| {
            CellError::Damaged("counters (not there, or of another revision)".to_owned())
        })?;
        let no_more = || CellError::Misuse("there are no more numbers".to_owned());
        let revision = counters.revision.checked_add(REVISIONS_SKIPPED).ok_or_else(no_more)?;
        // Where an administrator gave the last number there is, there are no more, as before.
        let next_number = counters.next_number.saturating_add(VOLUMES_SKIPPED);
        let Highest { user, group } = self.highest;
        let highest = Highest {
            user: PrincipalId(user.0.saturating_add(PRINCIPALS_SKIPPED)),
            group: PrincipalId(group.0.saturating_sub(PRINCIPALS_SKIPPED).max(i32::MIN + 1)),
        };
        let counters = CellCounters { revision, next_number, oldest_change: revision };
        self.batch.put(key::HIGHEST, record::encode_highest(key::HIGHEST, highest));
        self.batch.put(key::COUNTERS, record::encode_counters(key::COUNTERS, counters));
        self.to.end(&self.batch)?;
        Ok(Restored {
            revision: Revision(revision),
            next_volume: next_number,
            user: highest.user,
            group: highest.group,
        })
    }
}

/// The user without the tokens that were issued until now.
fn ended(user: Principal, now: i64) -> Principal {
    Principal { tokens_after: tokens_after(user.tokens_after, now), ..user }
}
