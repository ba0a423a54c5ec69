//! The stages of a standby, as the volume's server sees it.
//!
//! ```text
//!             caught_up            entered
//! CatchingUp ----------> Entering ---------> InStep
//!     ^                   |    ^               |  ^
//!     |    silent, unasked|    | came_back     |  | came_back
//!     +-------------------+    +--- Leaving <--+--+ silent
//!     ^                              |
//!     +------------------------------+ left
//! ```

/// See the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It may not take over, and no reply waits for it.
    CatchingUp,
    /// Replies wait for it, and the database shall list it as in step. `asked`: it may do so
    /// already, since it was asked to.
    Entering { asked: bool },
    /// The database lists it as in step.
    InStep,
    /// It is silent, or has lost its place. The database shall list it no more as in step; until
    /// then replies wait. `listed`: it was in step before, and not only entering.
    Leaving { listed: bool },
}

impl Stage {
    /// Whether the database may list it as in step, so that it may take over.
    pub fn may_take_over(self) -> bool {
        self != Stage::CatchingUp
    }

    /// It has applied all that there was.
    pub fn caught_up(&mut self) {
        if *self == Stage::CatchingUp {
            *self = Stage::Entering { asked: false };
        }
    }

    /// The database is asked to list it as in step.
    pub fn ask(&mut self) {
        if let Stage::Entering { asked } = self {
            *asked = true;
        }
    }

    /// The database lists it as in step.
    pub fn entered(&mut self) {
        if matches!(self, Stage::Entering { .. }) {
            *self = Stage::InStep;
        }
    }

    /// Nothing comes from it, or it has lost its place. Returns whether it may take over all the
    /// same, so that the volume must not be served.
    pub fn silent(&mut self) -> bool {
        *self = match *self {
            Stage::CatchingUp | Stage::Entering { asked: false } => Stage::CatchingUp,
            Stage::Entering { asked: true } => Stage::Leaving { listed: false },
            Stage::InStep => Stage::Leaving { listed: true },
            Stage::Leaving { listed } => Stage::Leaving { listed },
        };
        self.may_take_over()
    }

    /// It follows again, with everything that it had, before the database was written.
    pub fn came_back(&mut self) {
        match *self {
            Stage::Leaving { listed: true } => *self = Stage::InStep,
            Stage::Leaving { listed: false } => *self = Stage::Entering { asked: true },
            Stage::CatchingUp | Stage::Entering { .. } | Stage::InStep => {}
        }
    }

    /// The database lists it as out of step.
    pub fn left(&mut self) {
        *self = match *self {
            // It is asked again to list it.
            Stage::Entering { .. } => Stage::Entering { asked: false },
            Stage::CatchingUp | Stage::InStep | Stage::Leaving { .. } => Stage::CatchingUp,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sb3_a_standby_that_may_take_over_leaves_by_the_database() {
        let mut stage = Stage::CatchingUp;
        stage.caught_up();
        assert!(!stage.silent(), "the database was not asked: nothing happened");
        stage.caught_up();
        stage.ask();
        assert!(stage.silent(), "the database may have listed it");
        stage.came_back();
        assert_eq!(stage, Stage::Entering { asked: true });
        stage.entered();
        assert_eq!(stage, Stage::InStep);
        assert!(stage.silent());
        stage.caught_up();
        stage.entered();
        assert_eq!(stage, Stage::Leaving { listed: true }, "only the database ends that");
        stage.left();
        assert_eq!(stage, Stage::CatchingUp);
    }
}
