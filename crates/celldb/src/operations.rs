//! The operations of the database over any engine: which records a change reads, and which ones it
//! writes.
//!
//! Model. A change reads the counters' record first, and everything else from the same view. Its
//! batch has the records, the pointers to them by name and numbers, the revision's change, and the
//! counters, so that all of it is there or nothing. The engine refuses the batch if another change
//! was made since the view; then the operation runs again, on the records as they are now. So
//! changes happen one after another, whoever makes them.

use parking_lot::{Mutex, MutexGuard};
use types::{Changed, Fault, Revision, ServerRoles, Site, SiteKind, VolumeGroup, VolumeId};

use crate::engine::{Batch, Commit, Engine, View};
use crate::record::{self, CellCounters};
use crate::{CellError, key};

mod invitations;
mod level;
mod principals;
mod rules;
mod servers;
#[cfg(test)]
mod tests;

pub(crate) use invitations::list_invitations;
pub(crate) use level::STANDBYS_TOO_EARLY;
pub use level::need_standbys_level;
pub(crate) use principals::tokens_after;
pub(crate) use rules::list_rules;

type Result<T> = std::result::Result<T, CellError>;

/// The number of changes that are stored. Other servers fetch them every few seconds.
pub(crate) const CHANGES_KEPT: u64 = 1 << 16;
/// How often a change is tried that others overtake. One of the writers always succeeds.
const ATTEMPTS_MAX: usize = 64;

/// See the head of the file.
pub(crate) struct Operations<E> {
    pub engine: E,
    /// Held while a change is made: those of one process do not overtake each other.
    one_at_a_time: Mutex<()>,
    changes_kept: u64,
}

/// The right to make changes, until it is dropped.
pub(crate) type Held<'a> = MutexGuard<'a, ()>;

/// A change that is being made.
pub(crate) struct Change<'v> {
    /// Shows the database before the change.
    pub view: &'v dyn View,
    pub batch: Batch,
    before: CellCounters,
    pub next: CellCounters,
    changes_kept: u64,
}

impl Change<'_> {
    /// The revision that [`Change::log`] gives.
    pub fn revision(&self) -> Revision {
        Revision(self.before.revision + 1)
    }

    /// Gives the change its revision, and enters what it changed.
    pub fn log(&mut self, changed: Changed) -> Revision {
        let revision = self.revision();
        assert_eq!(self.next.revision, self.before.revision, "AC-12: a change has one revision");
        self.next.revision = revision.0;
        let key = key::change(revision);
        self.batch.put(&key[..], record::encode_change(&key, revision, changed));
        while self.next.revision - self.next.oldest_change > self.changes_kept {
            self.next.oldest_change += 1;
            self.batch.delete(key::change(Revision(self.next.oldest_change)));
        }
        revision
    }

    /// The whole batch; `None`: nothing changes.
    fn end(mut self) -> Option<Batch> {
        let Change { before, next, .. } = self;
        if self.batch.is_empty() && next == before {
            return None;
        }
        assert!(
            next.next_number >= before.next_number,
            "VO-2: {} would be given again, after {}",
            next.next_number,
            before.next_number
        );
        assert!(
            next.revision >= before.revision && next.oldest_change >= before.oldest_change,
            "AC-12: revisions rise: {next:?} after {before:?}"
        );
        self.batch.put(key::COUNTERS, record::encode_counters(key::COUNTERS, next));
        Some(self.batch)
    }
}

impl<E: Engine> Operations<E> {
    pub fn new(engine: E, changes_kept: u64) -> Operations<E> {
        Operations { engine, one_at_a_time: Mutex::new(()), changes_kept }
    }

    /// No other thread makes a change until the result is dropped.
    pub fn hold(&self) -> Held<'_> {
        self.one_at_a_time.lock()
    }

    /// Reads something as of one moment.
    pub fn read<T>(&self, act: impl FnOnce(&dyn View) -> T) -> T {
        act(&self.engine.view())
    }

    /// Makes a change. `act` may be called several times; the last call counts.
    ///
    /// # Errors
    /// The engine's, those of `act`; `Away(Busy)`: other writers overtook it too often.
    pub fn change<T, F: From<CellError>>(
        &self,
        _held: &Held<'_>,
        mut act: impl FnMut(&mut Change<'_>) -> std::result::Result<T, F>,
    ) -> std::result::Result<T, F> {
        for _ in 0..ATTEMPTS_MAX {
            let view = self.engine.view();
            let before = (&view as &dyn View).counters()?;
            let changes_kept = self.changes_kept;
            let mut change =
                Change { view: &view, batch: Batch::default(), before, next: before, changes_kept };
            let value = act(&mut change)?;
            let next = Revision(change.next.revision);
            let Some(batch) = change.end() else { return Ok(value) };
            match self.engine.commit(&view, &batch, next)? {
                Commit::Done => return Ok(value),
                Commit::Overtaken => {}
            }
        }
        tracing::warn!(
            "{ATTEMPTS_MAX} attempts of a change of the cell's database were overtaken by those of \
             other servers; its caller is told to try again"
        );
        Err(CellError::Away(Fault::Busy).into())
    }

    /// # Errors
    /// Those of [`crate::CellDb::put_group`].
    pub fn put_group(
        &self,
        held: &Held<'_>,
        group: &VolumeGroup,
        expected: Revision,
    ) -> Result<Revision> {
        need_sound(group)?;
        self.engine.need_room()?;
        self.change(held, |change| {
            let before = change.view.group(group.read_write)?;
            need_seen(expected, before.as_ref().map(|seen| seen.revision))?;
            need_free(change.view, group)?;
            let had = before.as_ref().map(|seen| &seen.record);
            need_file_servers(change.view, group, had)?;
            level::need_level(change.view, group, had)?;
            let revision = change.log(Changed::Group(group.read_write));
            if let Some(before) = &before {
                forget(&before.record, &mut change.batch);
            }
            let key = key::group(group.read_write);
            change.batch.put(&key[..], record::encode_group(&key, revision, group));
            let numbers = group.numbers().map(key::number);
            for key in numbers.chain([key::name(&group.name)]) {
                change.batch.put(&key[..], record::encode_pointer(&key, group.read_write));
            }
            // A group from another database brings its numbers.
            let highest = group.numbers().map(|number| number.0).max().unwrap_or(0);
            change.next.next_number = change.next.next_number.max(highest.saturating_add(1));
            debug_assert!(
                group.numbers().all(|number| number.0 < change.next.next_number),
                "VO-2: a number of the group would be given again"
            );
            Ok(revision)
        })
    }

    /// # Errors
    /// Those of [`crate::CellDb::remove_group`].
    pub fn remove_group(
        &self,
        held: &Held<'_>,
        read_write: VolumeId,
        expected: Revision,
    ) -> Result<Revision> {
        self.change(held, |change| {
            let before = change.view.group(read_write)?;
            need_seen(expected, before.as_ref().map(|seen| seen.revision))?;
            let revision = change.log(Changed::Group(read_write));
            if let Some(before) = &before {
                forget(&before.record, &mut change.batch);
            }
            change.batch.delete(key::group(read_write));
            Ok(revision)
        })
    }

    /// # Errors
    /// Those of [`crate::CellDb::take_numbers`].
    pub fn take_numbers(&self, held: &Held<'_>, above: VolumeId, count: u32) -> Result<VolumeId> {
        self.engine.need_room()?;
        self.change(held, |change| {
            let given = change.next.next_number;
            let first = given.max(above.0.saturating_add(1));
            let end = first.checked_add(u64::from(count)).filter(|end| *end < u64::MAX);
            change.next.next_number =
                end.ok_or_else(|| CellError::Misuse("there are no more numbers".to_owned()))?;
            assert!(first > above.0 && first >= given, "VO-2: {first} was given");
            Ok(VolumeId(first))
        })
    }
}

fn need_seen(expected: Revision, found: Option<Revision>) -> Result<()> {
    let found = found.unwrap_or_default();
    if expected == found { Ok(()) } else { Err(CellError::Conflict { expected, found }) }
}

/// Checks that no other group has the name or the numbers.
fn need_free(view: &dyn View, group: &VolumeGroup) -> Result<()> {
    let mine = group.read_write;
    let name = String::from_utf8_lossy(group.name.as_bytes()).into_owned();
    let names = [(key::name(&group.name), format!("the name {name}"))];
    let numbers =
        group.numbers().map(|number| (key::number(number), format!("the number {}", number.0)));
    for (key, what) in names.into_iter().chain(numbers) {
        if let Some(by) = view.pointer(&key)?.filter(|by| *by != mine) {
            return Err(CellError::Taken { what, by });
        }
    }
    Ok(())
}

/// Checks that servers that come as sites may have volumes.
fn need_file_servers(
    view: &dyn View,
    group: &VolumeGroup,
    before: Option<&VolumeGroup>,
) -> Result<()> {
    let had = |site: &Site| {
        before.is_some_and(|before| before.sites.iter().any(|had| had.server == site.server))
    };
    for site in group.sites.iter().filter(|site| !had(site)) {
        let roles = view.limited_roles(site.server)?;
        if roles.is_some_and(|roles| !roles.has(ServerRoles::FILE)) {
            return Err(CellError::Misuse(format!(
                "the server {} has no role 'file'",
                site.server
            )));
        }
    }
    Ok(())
}

/// Checks that the record is consistent.
fn need_sound(group: &VolumeGroup) -> Result<()> {
    let numbers: Vec<VolumeId> = group.numbers().collect();
    let twice = |at: usize| numbers[..at].contains(&numbers[at]);
    if numbers.iter().any(|number| number.0 == 0) || (0..numbers.len()).any(twice) {
        return Err(CellError::Misuse("the numbers of a group differ and are not 0".to_owned()));
    }
    if group.sites.iter().filter(|site| site.kind == SiteKind::ReadWrite).count() > 1 {
        return Err(CellError::Misuse("a group has one read-write site".to_owned()));
    }
    let place =
        |at: usize| (group.sites[at].server, &group.sites[at].partition, group.sites[at].kind);
    if (0..group.sites.len()).any(|at| (0..at).any(|before| place(before) == place(at))) {
        return Err(CellError::Misuse("a group has a site once".to_owned()));
    }
    let follows = |at: usize| group.sites[at].kind != SiteKind::ReadOnly;
    let same = |at: usize| (0..at).any(|one| follows(one) && place(one).0 == place(at).0);
    if (0..group.sites.len()).any(|at| follows(at) && same(at)) {
        return Err(CellError::Misuse("a standby is at a server of its own".to_owned()));
    }
    Ok(())
}

/// Removes the pointers to a group.
fn forget(group: &VolumeGroup, batch: &mut Batch) {
    batch.delete(key::name(&group.name));
    group.numbers().for_each(|number| batch.delete(key::number(number)));
}
