//! The network between machines, which loses calls or their answers.

use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The fate of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The call and its answer arrive.
    Through,
    /// The call does not arrive.
    Lost,
    /// The call arrives, and its answer does not.
    AnswerLost,
}

/// The network; clones share their state.
#[derive(Clone)]
pub struct Wires(Arc<Mutex<State>>);

struct State {
    rng: SmallRng,
    up: Vec<bool>,
    /// One call in so many is lost; 0: none.
    one_in: u32,
}

impl Wires {
    /// A network of `servers` servers, which are up.
    pub fn new(seed: u64, servers: usize) -> Self {
        let rng = SmallRng::seed_from_u64(seed);
        Wires(Arc::new(Mutex::new(State { rng, up: vec![true; servers], one_in: 0 })))
    }

    /// From now on one call in so many is lost; 0: none.
    pub fn lose(&self, one_in: u32) {
        self.0.lock().one_in = one_in;
    }

    /// A server starts, or dies.
    pub fn set_up(&self, server: usize, up: bool) {
        self.0.lock().up[server] = up;
    }

    /// Draws the fate of a call to this server.
    pub fn fate(&self, to: usize) -> Fate {
        let mut state = self.0.lock();
        let one_in = state.one_in;
        if !state.up[to] {
            Fate::Lost
        } else if one_in == 0 || state.rng.random_range(0..one_in) > 0 {
            Fate::Through
        } else if state.rng.random() {
            Fate::Lost
        } else {
            Fate::AnswerLost
        }
    }
}
