//! The state of one directory's delegation (docs/spec/delegation.md).
//!
//! It is *at home* (with the server), *asked* for, *held*, or *recalled*: then nothing is answered
//! here any more (DE-3). Each time it is held it is another *generation*. A sole child records the
//! directory and the generation that cover it, so the end of a delegation changes nothing in the
//! children.

use std::time::{Duration, Instant};

use types::Cookie;

pub(crate) type Generation = u64;

/// Own changes in a row after which the client asks for a directory at the next one.
const OWN_CHANGES: u32 = 1;

/// Longest pause after a recall, as a multiple of the first one.
const PAUSE_FACTOR_MAX: u32 = 64;

#[derive(Debug, Default)]
enum State {
    #[default]
    Home,
    Asked {
        recalled: bool,
    },
    Held(Generation),
    Recalled,
}

#[derive(Debug, Default)]
pub(crate) struct Delegation {
    state: State,
    /// Own changes since the last one of another client.
    own_changes: u32,
    /// The last own change removed a name.
    pub removes: bool,
    /// The client does not ask for it earlier.
    not_before: Option<Instant>,
    pause: Duration,
    /// How far the directory was listed under the delegation, so that the server reports which
    /// children are sole.
    pub listed: Listed,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Listed {
    pub cookie: Cookie,
    pub end: bool,
}

impl Delegation {
    /// The generation of the delegation, if it is held.
    pub fn generation(&self) -> Option<Generation> {
        match self.state {
            State::Held(generation) => Some(generation),
            State::Home | State::Asked { .. } | State::Recalled => None,
        }
    }

    /// Whether the server may assume that this client holds it.
    pub fn is_out(&self) -> bool {
        !matches!(self.state, State::Home)
    }

    /// Another client changed the directory.
    pub fn others_change(&mut self) {
        self.own_changes = 0;
    }

    /// The server executed an own change in the directory.
    pub fn note_own_change(&mut self, removes: bool) {
        self.own_changes += 1;
        self.removes = removes;
    }

    pub fn may_ask(&self) -> bool {
        let late = self.not_before.is_none_or(|at| at <= Instant::now());
        matches!(self.state, State::Home) && late
    }

    pub fn is_wanted(&self) -> bool {
        self.own_changes >= OWN_CHANGES && self.may_ask()
    }

    /// It, or more under it, is about to be asked for. False: not now.
    pub fn begin_asking(&mut self) -> bool {
        match self.state {
            State::Home => self.state = State::Asked { recalled: false },
            State::Held(_) => {}
            State::Asked { .. } | State::Recalled => return false,
        }
        true
    }

    /// The server answered; the caller calls [`Delegation::become_held`] for `Held`.
    pub fn asked(&mut self, granted: bool, promised: bool, pause: Duration) -> Asked {
        match self.state {
            State::Asked { recalled: false } if granted && promised => Asked::Held,
            State::Asked { .. } if granted => {
                self.state = State::Recalled;
                Asked::Recalled
            }
            State::Asked { .. } => {
                self.come_home(pause);
                Asked::Nothing
            }
            State::Held(_) if granted => Asked::More,
            State::Held(_) | State::Home | State::Recalled => Asked::Nothing,
        }
    }

    pub fn become_held(&mut self, generation: Generation) {
        debug_assert!(
            !matches!(self.state, State::Recalled),
            "DE-3: what is recalled is not held again before it was returned"
        );
        self.state = State::Held(generation);
        self.listed = Listed::default();
    }

    /// The server recalls it. Returns whether it is to be returned now: otherwise that is under
    /// way, or happens when it arrives.
    pub fn recall(&mut self) -> bool {
        match &mut self.state {
            State::Asked { recalled } => {
                *recalled = true;
                false
            }
            State::Recalled => false,
            State::Held(_) | State::Home => {
                self.state = State::Recalled;
                true
            }
        }
    }

    /// The session is over. Returns whether it is to be given back, in case the server still has it
    /// on record.
    pub fn end(&mut self) -> bool {
        match &mut self.state {
            State::Asked { recalled } => *recalled = true,
            State::Held(_) => {
                self.state = State::Recalled;
                return true;
            }
            State::Home | State::Recalled => {}
        }
        false
    }

    /// It is with the server again. The client does not ask for it again for a while, twice as long
    /// each time, unless the last pause was long ago.
    pub fn come_home(&mut self, first: Duration) {
        debug_assert!(
            self.generation().is_none(),
            "DE-2: nothing is answered under what is returned"
        );
        self.state = State::Home;
        let now = Instant::now();
        let long_ago = self.not_before.is_none_or(|at| now > at + self.pause * 4);
        self.pause = if long_ago { first } else { (self.pause * 2).min(first * PAUSE_FACTOR_MAX) };
        self.not_before = Some(now + self.pause);
        self.own_changes = 0;
    }
}

/// The meaning of the answer to a request for a delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The delegation is held from now on.
    Held,
    /// It was recalled meanwhile: it is to be given back.
    Recalled,
    /// It was held before, and there are more slots.
    More,
    Nothing,
}
