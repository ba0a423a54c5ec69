//! The state of one directory's delegation (docs/spec/delegation.md).
//!
//! It is *at home* (with the server), *asked* for, *held*, or *recalled*: then nothing is answered
//! here any more (DE-3). Each time it is held it is another *generation*. A sole child records the
//! directory and the generation that cover it, so the end of a delegation changes nothing in the
//! children.

use std::time::{Duration, Instant};

pub(crate) type Generation = u64;

/// Own changes in a row after which the client asks for a directory at the next one.
const OWN_CHANGES: u32 = 1;

/// Longest pause after a recall, as a multiple of the first one.
const PAUSE_FACTOR_MAX: u32 = 64;

#[derive(Debug, Default)]
pub(crate) enum DelegationState {
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
    pub state: DelegationState,
    /// Own changes since the last one of another client.
    pub own_changes: u32,
    /// The last own change removed a name.
    pub removes: bool,
    /// The client does not ask for it earlier.
    pub not_before: Option<Instant>,
    pause: Duration,
    /// How far the directory was listed under the delegation, so that the server reports which
    /// children are sole.
    pub listed: Listed,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Listed {
    pub cookie: u64,
    pub end: bool,
}

impl Delegation {
    /// The generation of the delegation, if it is held.
    pub fn generation(&self) -> Option<Generation> {
        match self.state {
            DelegationState::Held(generation) => Some(generation),
            DelegationState::Home | DelegationState::Asked { .. } | DelegationState::Recalled => {
                None
            }
        }
    }

    /// Whether the server may assume that this client holds it.
    pub fn is_out(&self) -> bool {
        !matches!(self.state, DelegationState::Home)
    }

    /// Another client changed the directory.
    pub fn others_change(&mut self) {
        self.own_changes = 0;
    }

    pub fn is_wanted(&self) -> bool {
        let may = self.not_before.is_none_or(|at| at <= Instant::now());
        matches!(self.state, DelegationState::Home) && self.own_changes >= OWN_CHANGES && may
    }

    pub fn become_held(&mut self, generation: Generation) {
        self.state = DelegationState::Held(generation);
        self.listed = Listed::default();
    }

    /// The client does not ask for it again for a while, twice as long each time, unless the last
    /// pause was long ago.
    pub fn pause_asking(&mut self, first: Duration) {
        let now = Instant::now();
        let long_ago = self.not_before.is_none_or(|at| now > at + self.pause * 4);
        self.pause = if long_ago { first } else { (self.pause * 2).min(first * PAUSE_FACTOR_MAX) };
        self.not_before = Some(now + self.pause);
        self.own_changes = 0;
    }
}
