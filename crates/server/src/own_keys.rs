//! The keys by which the other servers of the cell know this one.
//!
//! The owner of the keys (the program) sets the ones that it shows, or is about to show. The server
//! enters them in the cell database, and reports which ones that lists. So a key is listed before
//! it is shown, and is removed from the list only when it is no longer shown.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use types::KeyPrint;

/// The keys in the cell database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Entry {
    /// Not yet known.
    #[default]
    Unknown,
    /// It lists these.
    Listed(Vec<KeyPrint>),
    /// It refuses the present key: the key was withdrawn, or the server's record lists others.
    Refused,
}

#[derive(Debug, Default)]
struct State {
    wanted: Vec<KeyPrint>,
    entry: Entry,
    expelled: bool,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub struct OwnKeys {
    state: Mutex<State>,
    changed: Condvar,
}

impl OwnKeys {
    /// The server shows the first of these keys to the other servers now, and may show any of them.
    /// At most [`types::limits::SERVER_KEYS_MAX`].
    pub fn want(&self, keys: Vec<KeyPrint>) {
        let mut state = self.state.lock();
        if state.wanted != keys {
            // A refusal of another key does not apply to this one.
            if state.wanted.first() != keys.first() && state.entry == Entry::Refused {
                state.entry = Entry::Unknown;
            }
            state.wanted = keys;
        }
    }

    /// The keys that were set last.
    pub fn wanted(&self) -> Vec<KeyPrint> {
        self.state.lock().wanted.clone()
    }

    /// May the next key replace the present one? Yes, if the database lists it, or refuses the
    /// present one anyway. Waits for that, `patience` at most.
    pub fn may_show(&self, key: KeyPrint, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        loop {
            match &state.entry {
                Entry::Refused => return true,
                Entry::Listed(keys) if keys.contains(&key) => return true,
                Entry::Listed(_) | Entry::Unknown => {}
            }
            if self.changed.wait_until(&mut state, until).timed_out() {
                return false;
            }
        }
    }

    /// Has the database refused to list the present key, and listed none since?
    pub(crate) fn are_expelled(&self) -> bool {
        self.state.lock().expelled
    }

    /// The database does not list the present key, and refuses to.
    pub(crate) fn expelled(&self) {
        self.state.lock().expelled = true;
        self.refused();
    }

    /// Does the database list exactly the wanted keys?
    pub(crate) fn is_entered(&self) -> bool {
        let state = self.state.lock();
        matches!(&state.entry, Entry::Listed(keys) if *keys == state.wanted)
    }

    pub(crate) fn entered(&self, keys: Vec<KeyPrint>) {
        let mut state = self.state.lock();
        state.entry = Entry::Listed(keys);
        state.expelled = false;
        drop(state);
        self.changed.notify_all();
    }

    pub(crate) fn refused(&self) {
        self.state.lock().entry = Entry::Refused;
        self.changed.notify_all();
    }

    /// The database has to be asked again.
    pub(crate) fn forget(&self) {
        self.state.lock().entry = Entry::Unknown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: KeyPrint = KeyPrint([1; 32]);
    const NEW: KeyPrint = KeyPrint([2; 32]);

    #[test]
    fn m1_a_next_key_waits_until_it_is_listed_or_the_old_is_lost() {
        let keys = OwnKeys::default();
        keys.want(vec![OLD, NEW]);
        assert!(!keys.may_show(NEW, Duration::ZERO) && !keys.is_entered());
        keys.entered(vec![OLD]);
        assert!(!keys.may_show(NEW, Duration::ZERO) && !keys.is_entered());
        keys.entered(vec![OLD, NEW]);
        assert!(keys.may_show(NEW, Duration::ZERO) && keys.is_entered());
        keys.refused();
        assert!(keys.may_show(NEW, Duration::ZERO));
        keys.want(vec![NEW]);
        assert!(!keys.may_show(OLD, Duration::ZERO), "the refusal was of the old key");
    }
}
