//! The changes of principals and of groups of volumes that this server has received.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use types::{Changed, Revision};

use crate::News;

/// The most stored changes. A reader that has missed more must drop all its records.
const REMEMBERED_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct ReceivedChanges {
    at: AtomicU64,
    changes: Mutex<Remembered>,
}

#[derive(Default)]
struct Remembered {
    /// All changes after this revision are here.
    oldest: Revision,
    changes: VecDeque<(Revision, Changed)>,
}

impl ReceivedChanges {
    /// The last revision received.
    pub fn at(&self) -> Revision {
        Revision(self.at.load(Ordering::Acquire))
    }

    /// Adds changes up to `at`; `None`: there were more than are known.
    pub fn add(&self, at: Revision, changes: Option<Vec<(Revision, Changed)>>) {
        let mut remembered = self.changes.lock();
        match changes {
            Some(changes) => {
                let is_asked_for = |changed: &Changed| match changed {
                    Changed::Principal(_) | Changed::Principals | Changed::Group(_) => true,
                    Changed::Server(_) | Changed::Rules => false,
                };
                let kept = changes.into_iter().filter(|(_, changed)| is_asked_for(changed));
                remembered.changes.extend(kept);
            }
            None => {
                remembered.changes.clear();
                remembered.oldest = at;
            }
        }
        while remembered.changes.len() > REMEMBERED_MAX {
            remembered.oldest = remembered.changes.pop_front().map_or(at, |(revision, _)| revision);
        }
        // Last, so that a reader of it finds the changes.
        self.at.store(at.0, Ordering::Release);
    }

    /// The changes after `since`.
    pub fn news(&self, since: Revision) -> News {
        let remembered = self.changes.lock();
        let later = remembered.changes.iter().filter(|(revision, _)| *revision > since);
        (self.at(), (since >= remembered.oldest).then(|| later.copied().collect()))
    }
}

#[cfg(test)]
mod tests {
    use types::PrincipalId;

    use super::*;

    #[test]
    fn removed_changes_are_reported_as_unknown() {
        let received = ReceivedChanges::default();
        let change = |n: usize| (Revision(n as u64), Changed::Principal(PrincipalId(n as i32)));
        received.add(Revision(3), Some(vec![change(2), (Revision(3), Changed::Rules)]));
        assert_eq!(received.news(Revision(0)), (Revision(3), Some(vec![change(2)])));
        assert_eq!(received.news(Revision(2)), (Revision(3), Some(vec![])));
        let last = REMEMBERED_MAX + 4;
        received.add(Revision(last as u64), Some((4..=last).map(change).collect()));
        assert_eq!(received.news(Revision(3)).1, None);
        assert_eq!(received.news(Revision(4)).1.map(|changes| changes.len()), Some(REMEMBERED_MAX));
        received.add(Revision(9999), None);
        assert_eq!(received.news(Revision(9998)), (Revision(9999), None));
        assert_eq!(received.news(Revision(9999)), (Revision(9999), Some(vec![])));
    }
}
