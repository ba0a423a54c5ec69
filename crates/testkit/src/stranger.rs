//! A cell with places that are closed to a caller without rights (the stranger), and that caller's
//! calls: everything that the protocol can express.
//!
//! Two cells that differ in their secret alone must give this caller the same answers (AC-7). Most
//! calls use fids that earlier answers showed; the others use guessed fids. One seed gives one
//! sequence of calls, as long as [`StrangerCalls::learn`] gets the same answers.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use guard::{Acl, Rights};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{
    Answer, Call, Cookie, CreateHow, Fault, Fid, Kind, Name, NewKind, PrincipalId, RemoveWhat,
    Status, StatusChange, Timestamp, XattrMode,
};

/// Most fids that [`StrangerCalls`] stores for later calls.
const KNOWN_MAX: usize = 400;
/// The first fids, which existed before the stranger made any file, occur in more calls.
const FIRST: usize = 16;
/// Names in the cells under test, and one that is in none.
const NAMES: [&[u8]; 12] = [
    b"public", b"home", b"private", b"tmp", b"open", b"notes", b"owners", b"groups", b"behind",
    b"below", b"named-a", b"x",
];
/// The extended attribute that files of the cells under test have.
pub const SECRET_XATTR: &[u8] = b"user.secret";

/// The access rule of a cell under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessRule {
    /// Mode bits decide.
    ModeBits,
    /// Access lists decide.
    Lists,
}

/// The user who owns the closed places.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The user's number for mode bits.
    pub uid: u32,
    /// The user's group for mode bits.
    pub gid: u32,
    /// The user's principal for access lists.
    pub principal: PrincipalId,
}

/// Executes a call with the rights of the superuser.
pub type Superuser<'a> = dyn FnMut(Call) -> Result<Answer, Fault> + 'a;

/// The places of a cell under test.
pub struct Places {
    /// The character that differs between two cells; secrets of all cells are equally long.
    pub secret: char,
    /// Files of which strangers may change nothing, by their names in the tests. The file `orphan`
    /// still has a name.
    pub closed: BTreeMap<&'static str, Fid>,
    /// All files, as the base of guesses.
    pub all: Vec<Fid>,
    /// A directory that is open to all, and a file in it.
    pub open: [Fid; 2],
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// Fills a new cell.
struct Filler<'a, 'b> {
    owner: Owner,
    ask: &'a mut Superuser<'b>,
    places: Places,
}

impl Filler<'_, '_> {
    fn ask(&mut self, call: Call) -> Answer {
        let text = format!("{call:?}");
        (self.ask)(call).unwrap_or_else(|fault| panic!("{text:.300}: {fault}"))
    }

    fn set_list(&mut self, fid: Fid, given: &[(PrincipalId, Rights)]) {
        let mut list = Acl::new();
        for (who, rights) in given.iter().chain(&[(self.owner.principal, Rights::ALL)]) {
            assert!(list.set(*who, *rights, false), "the list has room");
        }
        self.ask(Call::SetAcl { fid, list: Some(list.encode().into()), instead_of: None });
    }

    /// Makes a file as the superuser, and gives it to the owner.
    fn make(&mut self, dir: Fid, called: &str, kind: NewKind, mode: u16) -> Fid {
        let how = CreateHow::Guarded;
        let made = self.ask(Call::Make { dir, name: name(called), kind, mode, how });
        let Answer::Made { status, .. } = made else { panic!("{made:?}") };
        let (uid, gid) = (Some(self.owner.uid), Some(self.owner.gid));
        if !status.kind.has_target() {
            let change = StatusChange { uid, gid, mode: Some(mode), ..StatusChange::default() };
            self.ask(Call::SetStatus { fid: status.fid, change });
        }
        self.places.all.push(status.fid);
        status.fid
    }

    fn file(&mut self, dir: Fid, called: &str, mode: u16, text: &str) -> Fid {
        let fid = self.make(dir, called, NewKind::File, mode);
        let data = Bytes::from(text.to_owned());
        self.ask(Call::Write { fid, offset: Some(0), data, stable: false, kill_privileges: false });
        fid
    }

    fn set_xattr(&mut self, fid: Fid, value: String) {
        let (name, mode) = (Bytes::from_static(SECRET_XATTR), XattrMode::Either);
        self.ask(Call::XattrSet { fid, name, value: Bytes::from(value), mode });
    }

    /// Makes a file with contents that no stranger may read.
    fn secret_file(&mut self, called: &'static str, dir: Fid, in_dir: &str, mode: u16) {
        let secret = self.places.secret.to_string();
        let fid = self.file(dir, in_dir, mode, &secret.repeat(40_000));
        self.set_xattr(fid, secret.repeat(20));
        self.places.closed.insert(called, fid);
    }
}

impl Places {
    /// Fills the volume below `root`, which has mode 0755.
    ///
    /// # Panics
    /// If a call is refused.
    pub fn fill(
        model: AccessRule,
        secret: char,
        root: Fid,
        owner: Owner,
        ask: &mut Superuser<'_>,
    ) -> Places {
        let closed = BTreeMap::from([("root", root)]);
        let places = Places { secret, closed, all: vec![root], open: [root; 2] };
        let mut filler = Filler { owner, ask, places };
        if model == AccessRule::Lists {
            filler.set_list(root, &[(PrincipalId::ANYBODY, Rights::LOOKUP)]);
        }
        let [public, home, private, sticky] =
            [("public", 0o777), ("home", 0o755), ("private", 0o700), ("tmp", 0o1777)]
                .map(|(called, mode)| filler.make(root, called, NewKind::Directory, mode));
        if model == AccessRule::Lists {
            let see = Rights::LOOKUP.with(Rights::READ);
            let change = see.with(Rights::INSERT).with(Rights::DELETE).with(Rights::WRITE);
            let given = [
                (public, Some(change)),
                (home, Some(Rights::LOOKUP)),
                (sticky, Some(see)),
                (private, None),
            ];
            for (dir, rights) in given {
                let all: Vec<_> =
                    rights.map(|rights| (PrincipalId::ANYBODY, rights)).into_iter().collect();
                filler.set_list(dir, &all);
            }
        }
        let open = filler.file(public, "open", 0o666, "everybody's");
        filler.set_xattr(open, "for all".to_owned());
        filler.places.open = [public, open];
        let notes = filler.file(sticky, "notes", 0o644, "to be read by all");
        let program = filler.file(sticky, "program", 0o711, "to be run by all");
        filler.secret_file("owner's", home, "owners", 0o600);
        filler.secret_file("group's", home, "groups", 0o660);
        filler.secret_file("behind", private, "behind", 0o644);
        filler.secret_file("open behind", private, "openly", 0o666);
        filler.secret_file("orphan", private, "orphan", 0o600);
        let below = filler.make(private, "below", NewKind::Directory, 0o777);
        filler.secret_file("deep", below, "deep", 0o666);
        let target = NewKind::Symlink(Bytes::from(format!("/to/{secret}")));
        let link = filler.make(private, &format!("named-{secret}"), target, 0o777);
        let others = [
            ("home", home),
            ("private", private),
            ("notes", notes),
            ("program", program),
            ("below", below),
        ];
        filler.places.closed.extend(others.into_iter().chain([("link", link)]));
        filler.places
    }

    /// The fids that a stranger guesses. With access lists, fids are no secret: servers check the
    /// list at each call.
    #[must_use]
    pub fn guesses(&self, model: AccessRule) -> Vec<Fid> {
        match model {
            AccessRule::Lists => self.all.clone(),
            AccessRule::ModeBits => self.all.iter().flat_map(|fid| likely_fids(*fid)).collect(),
        }
    }

    /// All state of the closed files, as the superuser sees it.
    ///
    /// # Panics
    /// If a call is refused.
    pub fn snapshot(&self, ask: &mut Superuser<'_>) -> Vec<String> {
        let of = |(called, fid): (&&str, &Fid)| {
            let fid = *fid;
            let status = match ask(Call::GetStatus { fid }) {
                Ok(Answer::Status(status)) => status,
                other => panic!("{called}: {other:?}"),
            };
            let content = match status.kind {
                Kind::File => ask(Call::Read { fid, offset: 0, length: 100_000 }),
                Kind::Directory => ask(Call::ReadDir {
                    dir: fid,
                    cookie: Cookie::START,
                    bytes_max: 9000,
                    plus: false,
                }),
                _ => ask(Call::ReadLink { fid }),
            };
            let (names, list) = (ask(Call::XattrList { fid }), ask(Call::GetAcl { fid }));
            let status = Status { accessed: Timestamp::default(), ..status };
            format!("{called}: {status:?} {content:?} {names:?} {list:?}")
        };
        self.closed.iter().map(of).collect()
    }

    /// A call of the owner that strangers must not notice: it changes `private` and `deep`.
    #[must_use]
    pub fn work(&self, number: usize) -> Call {
        let (dir, secret, what) = (self.closed["private"], self.secret, RemoveWhat::File);
        let name = name(&format!("new-{secret}-{}", number % 7));
        match number % 3 {
            0 => Call::Make {
                dir,
                name,
                kind: NewKind::File,
                mode: 0o666,
                how: CreateHow::Unchecked,
            },
            1 => Call::Remove { dir, name, what, hold: number.is_multiple_of(2) },
            _ => Call::Write {
                fid: self.closed["deep"],
                offset: Some(0),
                data: Bytes::from(secret.to_string().repeat(number % 100 + 1)),
                stable: false,
                kill_privileges: false,
            },
        }
    }
}

/// The calls of a stranger, drawn from a seed; see the head of the file.
pub struct StrangerCalls {
    /// Also for other random choices of a test, so that one seed decides all.
    pub rng: SmallRng,
    runner: TestRunner,
    volume: Name,
    known: BTreeSet<Fid>,
    guesses: Vec<Fid>,
    open: [Fid; 2],
}

impl StrangerCalls {
    /// `volume` is the name of the volume that has the places.
    #[must_use]
    pub fn new(seed: u64, volume: Name, model: AccessRule, places: &Places) -> StrangerCalls {
        // The strategies reject some values, and a runner permits only few rejections by default.
        let config = Config { max_local_rejects: u32::MAX, ..Config::default() };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let runner =
            TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let (rng, guesses) = (SmallRng::seed_from_u64(seed), places.guesses(model));
        StrangerCalls {
            rng,
            runner,
            volume,
            known: BTreeSet::from([places.all[0]]),
            guesses,
            open: places.open,
        }
    }

    /// The next call. Calls that hash passwords or report the server's counters are left out: other
    /// tests have them, and the counters differ between any two servers.
    ///
    /// # Panics
    /// If a strategy of [`dafs::strategies`] cannot draw a call.
    pub fn next_call(&mut self) -> Call {
        loop {
            let drawn =
                dafs::strategies::call().new_tree(&mut self.runner).expect("a call can be drawn");
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

    /// Replaces fids and names of the call by those of the cell.
    fn aim(&mut self, call: &mut Call) {
        let count = call.fids_mut().len();
        let fids: Vec<Fid> = (0..count).map(|_| self.fid()).collect();
        call.fids_mut().into_iter().zip(fids).for_each(|(fid, other)| *fid = other);
        let (one, other) = (self.draw_name(), self.draw_name());
        if let Call::Lock { wait, .. } = call {
            *wait = false;
        }
        if let Call::Link { name, .. } = call {
            *name = one.clone();
        }
        match call {
            Call::Root { volume } if self.rng.random() => *volume = self.volume.clone(),
            Call::Lookup { name, .. } | Call::Make { name, .. } | Call::Remove { name, .. } => {
                *name = one;
            }
            Call::Rename { from, to, .. } => (*from, *to) = (one, other),
            Call::Read { offset, length, .. } | Call::ReadPacked { offset, length, .. } => {
                (*offset, *length) = (*offset % 50_000, *length % 60_000);
            }
            Call::XattrGet { fid, name } => {
                *name = Bytes::from_static(SECRET_XATTR);
                if self.rng.random_range(0..4) == 0 {
                    *fid = self.open[1];
                }
            }
            // Access lists require the link's directory to be the file's own, which is drawn too
            // seldom.
            Call::Link { fid, dir, .. } if self.rng.random_range(0..4) == 0 => {
                [*dir, *fid] = self.open;
            }
            _ => {}
        }
    }

    fn fid(&mut self) -> Fid {
        match self.rng.random_range(0..10) {
            0 => {
                let guess = self.guesses[self.rng.random_range(0..self.guesses.len())];
                let unique = if self.rng.random_range(0..2) == 0 {
                    guess.unique.0
                } else {
                    self.rng.random()
                };
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

    fn draw_name(&mut self) -> Name {
        let name = NAMES[self.rng.random_range(0..NAMES.len())];
        Name::new(name).expect("a constant that is a name")
    }

    /// Stores the fids of an answer for later calls.
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

/// Fids near this one, as a caller guesses who knows how vnodes are numbered.
#[must_use]
pub fn likely_fids(fid: Fid) -> [Fid; 4] {
    let unique = fid.slot() + 1;
    [unique, 1, fid.vnode.0, 0].map(|unique| Fid::new(fid.volume.0, fid.vnode.0, unique))
}
