//! What this server was told of changes among principals.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use types::{Changed, Revision};

use crate::News;

/// Changes remembered at most. Who has not looked for longer forgets all that he knew.
const REMEMBERED_MAX: usize = 4096;

/// See the head of the file.
#[derive(Default)]
pub(super) struct PrincipalChanges {
    at: AtomicU64,
    changes: Mutex<Remembered>,
}

#[derive(Default)]
struct Remembered {
    /// All after this revision are here.
    oldest: Revision,
    changes: VecDeque<(Revision, Changed)>,
}

impl PrincipalChanges {
    /// Up to which revision.
    pub fn at(&self) -> Revision {
        Revision(self.at.load(Ordering::Acquire))
    }

    /// Of changes up to `at`; `None`: of more than anybody remembers.
    pub fn hear(&self, at: Revision, changes: Option<Vec<(Revision, Changed)>>) {
        let mut remembered = self.changes.lock();
        match changes {
            Some(changes) => {
                let of_principals = |changed: &Changed| {
                    matches!(changed, Changed::Principal(_) | Changed::Principals)
                };
                remembered
                    .changes
                    .extend(changes.into_iter().filter(|(_, changed)| of_principals(changed)));
            }
            None => {
                remembered.changes.clear();
                remembered.oldest = at;
            }
        }
        while remembered.changes.len() > REMEMBERED_MAX {
            remembered.oldest = remembered.changes.pop_front().map_or(at, |(revision, _)| revision);
        }
        // Last, so that who sees it finds the changes.
        self.at.store(at.0, Ordering::Release);
    }

    /// What changed after `since`.
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
    fn what_is_forgotten_is_said_to_be() {
        let told = PrincipalChanges::default();
        let change = |n: usize| (Revision(n as u64), Changed::Principal(PrincipalId(n as i32)));
        told.hear(
            Revision(3),
            Some(vec![change(2), (Revision(3), Changed::Group(types::VolumeId(1)))]),
        );
        assert_eq!(told.news(Revision(0)), (Revision(3), Some(vec![change(2)])));
        assert_eq!(told.news(Revision(2)), (Revision(3), Some(vec![])));
        let last = REMEMBERED_MAX + 4;
        told.hear(Revision(last as u64), Some((4..=last).map(change).collect()));
        assert_eq!(told.news(Revision(3)).1, None);
        assert_eq!(told.news(Revision(4)).1.map(|changes| changes.len()), Some(REMEMBERED_MAX));
        told.hear(Revision(9999), None);
        assert_eq!(told.news(Revision(9998)), (Revision(9999), None));
        assert_eq!(told.news(Revision(9999)), (Revision(9999), Some(vec![])));
    }
}
