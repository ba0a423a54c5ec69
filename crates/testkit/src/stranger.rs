//! Random well-formed calls of a stranger: a caller who tries everything that the protocol can say.
//!
//! Most calls are about files that the stranger was told of; the others are about files that it guesses.
//! One seed gives one sequence, as long as the answers that [`StrangerCalls::learn`] is given are the same.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{Answer, Call, Fid, Name};

/// Files that the stranger remembers.
const KNOWN_MAX: usize = 400;
/// Of these, the first ones are asked about more often: they were there before the stranger made any.
const FIRST: usize = 16;
/// Names in the cells under test, and one that is in none.
const NAMES: [&[u8]; 12] = [
    b"public", b"home", b"private", b"tmp", b"open", b"notes", b"owners", b"groups", b"behind", b"below", b"named-a",
    b"x",
];
/// The attribute that files of the cells under test have.
pub const SECRET_XATTR: &[u8] = b"user.secret";

/// See the head of the file.
pub struct StrangerCalls {
    /// Draws whatever else a test decides by chance, so that one seed decides all.
    pub rng: SmallRng,
    runner: TestRunner,
    volume: Name,
    known: BTreeSet<Fid>,
    guesses: Vec<Fid>,
    open: Fid,
    open_dir: Fid,
}

impl StrangerCalls {
    /// `volume` and `root` are the volume's name and root directory, `guesses` the fids that the stranger
    /// guesses, `open` a file that every caller may read and change, and the directory that it is in, where every
    /// caller may make and remove names.
    #[must_use]
    pub fn new(seed: u64, volume: Name, root: Fid, guesses: Vec<Fid>, [open_dir, open]: [Fid; 2]) -> StrangerCalls {
        // The strategies reject some values, and a runner bears only so many rejections by default.
        let config = Config { max_local_rejects: u32::MAX, ..Config::default() };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let rng = SmallRng::seed_from_u64(seed);
        StrangerCalls { rng, runner, volume, known: BTreeSet::from([root]), guesses, open, open_dir }
    }

    /// The next call. Calls that hash passwords or report the server's counters are left out: other tests
    /// have them, and the counters differ between any two servers.
    ///
    /// # Panics
    /// If a strategy of [`dafs::strategies`] cannot draw a call.
    pub fn next_call(&mut self) -> Call {
        loop {
            let drawn = dafs::strategies::call().new_tree(&mut self.runner).expect("a call can be drawn");
            let mut call = drawn.current();
            if matches!(call, Call::Auth { .. } | Call::ServerReport | Call::Scrub { .. }) {
                continue;
            }
            let names_files = !call.fids_mut().is_empty();
            if !names_files && self.rng.random_range(0..8) > 0 {
                continue;
            }
            self.aim(&mut call);
            return call;
        }
    }

    /// Points the call at what is in the cell.
    fn aim(&mut self, call: &mut Call) {
        let count = call.fids_mut().len();
        let fids: Vec<Fid> = (0..count).map(|_| self.fid()).collect();
        call.fids_mut().into_iter().zip(fids).for_each(|(fid, other)| *fid = other);
        let (one, other) = (self.name(), self.name());
        if let Call::Lock { wait, .. } = call {
            *wait = false;
        }
        if let Call::Link { name, .. } = call {
            *name = one.clone();
        }
        match call {
            Call::Root { volume } if self.rng.random() => *volume = self.volume.clone(),
            Call::Lookup { name, .. } | Call::Make { name, .. } | Call::Remove { name, .. } => *name = one,
            Call::Rename { from, to, .. } => (*from, *to) = (one, other),
            Call::Read { offset, length, .. } | Call::ReadPacked { offset, length, .. } => {
                (*offset, *length) = (*offset % 50_000, *length % 60_000);
            }
            Call::XattrGet { fid, name } => {
                *name = Bytes::from_static(SECRET_XATTR);
                if self.rng.random_range(0..4) == 0 {
                    *fid = self.open;
                }
            }
            // A link within its own directory, which lists want, would be drawn too seldom.
            Call::Link { fid, dir, .. } if self.rng.random_range(0..4) == 0 => {
                *fid = self.open;
                *dir = self.open_dir;
            }
            _ => {}
        }
    }

    fn fid(&mut self) -> Fid {
        match self.rng.random_range(0..10) {
            0 => {
                let guess = self.guesses[self.rng.random_range(0..self.guesses.len())];
                let unique = if self.rng.random_range(0..2) == 0 { guess.unique.0 } else { self.rng.random() };
                Fid::new(guess.volume.0, guess.vnode.0, unique)
            }
            1 => self.guesses[self.rng.random_range(0..self.guesses.len())],
            2..=5 => self.known_fid(FIRST),
            _ => self.known_fid(KNOWN_MAX),
        }
    }

    fn known_fid(&mut self, among: usize) -> Fid {
        let at = self.rng.random_range(0..self.known.len().min(among));
        *self.known.iter().nth(at).expect("the root is always known")
    }

    fn name(&mut self) -> Name {
        let name = NAMES[self.rng.random_range(0..NAMES.len())];
        Name::new(name).expect("a constant that is a name")
    }

    /// Takes the fids of an answer for later calls.
    pub fn learn(&mut self, answer: &Answer) {
        let mut add = |fid: Fid| {
            if self.known.len() < KNOWN_MAX && !fid.is_masked() {
                self.known.insert(fid);
            }
        };
        match answer {
            Answer::Status(status) | Answer::Entry { status, .. } => add(status.fid),
            Answer::Made { status, dir, .. } => [status.fid, dir.fid].into_iter().for_each(add),
            Answer::Entries { entries, .. } => entries.iter().for_each(|entry| add(entry.fid)),
            Answer::Acl { of, .. } | Answer::Rights { of, .. } => add(*of),
            _ => {}
        }
    }
}

/// The fids that a caller would guess who knows how vnodes are numbered.
#[must_use]
pub fn likely_fids(fid: Fid) -> [Fid; 4] {
    let unique = fid.slot() + 1;
    [unique, 1, fid.vnode.0, 0].map(|unique| Fid::new(fid.volume.0, fid.vnode.0, unique))
}
