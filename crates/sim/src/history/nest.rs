//! The history of the nest, the directory on which clients get a delegation now and then.
//!
//! Each name is made once and removed at most once. A change that a client answered itself is
//! *sure* when the server has executed it. It may be *lost* if the client lost its trust, its
//! session or its life before. A stalled client notices none of that: its unsent changes are lost
//! as soon as the server ends its session. Every later read must show changes that were answered
//! and not lost (DE-1, DE-2). The changes that are found of one client are always a prefix of its
//! own changes: never a later one without the earlier ones (DE-4).

use std::collections::{BTreeMap, BTreeSet};

use types::{ClientId, Name, SessionId, Time};

use super::Verdict;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Sure,
    Lost,
}

#[derive(Clone, Debug)]
struct Change {
    client: usize,
    name: Name,
    makes: bool,
    /// The client answered it itself: its life, and the number of losses before it.
    own: Option<(u64, u64)>,
    answered: Option<Time>,
    fate: Fate,
    timeline: u32,
}

/// The changes of the nest, with the checks; see the head of the file.
#[derive(Debug, Default)]
pub struct NestHistory {
    changes: Vec<Change>,
    /// How often each client has lost its unsent changes.
    losses: BTreeMap<usize, u64>,
    /// The client of each session, also of ended ones.
    sessions: BTreeMap<SessionId, usize>,
    /// Clients that are stalled.
    stalled: BTreeSet<usize>,
    timeline: u32,
}

impl NestHistory {
    /// A change begins; returns its index. The client answers it itself in life `own`, or sends it
    /// as a call (`None`).
    pub fn begins(&mut self, client: usize, name: &Name, makes: bool, own: Option<u64>) -> usize {
        let (name, timeline) = (name.clone(), self.timeline);
        let own = own.map(|life| (life, self.losses.get(&client).copied().unwrap_or_default()));
        self.changes.push(Change {
            client,
            name,
            makes,
            own,
            answered: None,
            fate: Fate::Open,
            timeline,
        });
        self.changes.len() - 1
    }

    /// The change was answered.
    pub fn answered(&mut self, at: usize, now: Time) {
        self.changes[at].answered = Some(now);
    }

    /// The server has executed the change.
    pub fn sure(&mut self, at: usize) {
        if self.changes[at].fate == Fate::Open {
            self.changes[at].fate = Fate::Sure;
        }
    }

    /// The server refused the change: it rests on what was lost with the power, of which the client
    /// did not know yet. So it counts as one before that loss.
    pub fn refused(&mut self, at: usize) {
        let before = self.timeline.saturating_sub(1);
        let change = &mut self.changes[at];
        (change.fate, change.timeline) = (Fate::Lost, change.timeline.min(before));
    }

    /// A client has lost its unsent changes.
    pub fn client_lost(&mut self, client: usize) {
        *self.losses.entry(client).or_default() += 1;
        self.lose(client);
    }

    fn lose(&mut self, client: usize) {
        let open = |change: &&mut Change| change.client == client && change.fate == Fate::Open;
        self.changes.iter_mut().filter(open).for_each(|change| change.fate = Fate::Lost);
    }

    /// The server gave a client this session.
    pub fn attached(&mut self, session: SessionId, client: ClientId) {
        if let Some(client) =
            usize::try_from(client.0).ok().and_then(|number| number.checked_sub(1))
        {
            self.sessions.insert(session, client);
        }
    }

    /// A client stalls, or resumes.
    pub fn stalls(&mut self, client: usize, stalled: bool) {
        if stalled {
            self.stalled.insert(client);
        } else {
            self.stalled.remove(&client);
        }
    }

    /// The server ended a session. A client that is not stalled must have noticed before (CB-4),
    /// and reported its losses.
    pub fn session_ended(&mut self, session: SessionId) {
        let client = self.sessions.remove(&session).filter(|client| self.stalled.contains(client));
        if let Some(client) = client {
            self.lose(client);
        }
    }

    /// Power was lost: earlier changes may be gone.
    pub fn begin_timeline(&mut self, timeline: u32) {
        self.timeline = timeline;
    }

    /// Returns whether no power was lost since the change.
    pub fn is_of_now(&self, at: usize, timeline: u32) -> bool {
        self.changes[at].timeline == timeline
    }

    /// Names that certainly exist and whose removal has not begun.
    pub fn names(&self) -> Vec<Name> {
        let there = |change: &&Change| {
            change.makes
                && change.fate == Fate::Sure
                && change.timeline == self.timeline
                && !self.removing(&change.name)
        };
        self.changes.iter().filter(there).map(|change| change.name.clone()).collect()
    }

    /// Returns whether several clients wanted to remove the name.
    pub fn is_contended(&self, name: &Name) -> bool {
        self.changes.iter().filter(|change| !change.makes && change.name == *name).count() > 1
    }

    fn removing(&self, name: &Name) -> bool {
        self.changes.iter().any(|change| !change.makes && change.name == *name)
    }

    /// Checks the names of a listing that began at `began`, or, if `disk`, those on the server's
    /// disk, where unsent changes may be missing.
    pub fn check(&self, names: &BTreeSet<Name>, began: Time, disk: bool) -> Verdict {
        let counts = |change: &&Change| change.timeline == self.timeline;
        for change in self.changes.iter().filter(counts) {
            let done = change.answered.is_some_and(|answered| answered < began);
            let must = match change.fate {
                Fate::Sure => done,
                Fate::Open => done && !disk,
                Fate::Lost => false,
            };
            let shown = names.contains(&change.name);
            let wrong = if change.makes { !shown && !self.removing(&change.name) } else { shown };
            if must && wrong {
                return Err((
                    "DE-1",
                    format!(
                        "{change:?} is missing in a listing that began at {began:?}, disk {disk}"
                    ),
                ));
            }
        }
        self.check_order(names)
    }

    fn check_order(&self, names: &BTreeSet<Name>) -> Verdict {
        let mut missing: BTreeMap<(usize, (u64, u64)), &Change> = BTreeMap::new();
        for change in self.changes.iter().filter(|change| change.timeline == self.timeline) {
            let Some(own) = change.own else { continue };
            let shown = names.contains(&change.name);
            let life = (change.client, own);
            match missing.get(&life) {
                Some(before) if change.makes && shown => {
                    return Err((
                        "DE-4",
                        format!("{change:?} is there, and {before:?} before it is not"),
                    ));
                }
                None if change.makes != shown && !(change.makes && self.removing(&change.name)) => {
                    missing.insert(life, change);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
