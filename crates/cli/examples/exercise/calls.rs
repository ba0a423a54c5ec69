//! Random calls on one tree through many places, each done on another file system too.
//!
//! Model. There are two sides, each with the same number of places: directories at which one tree
//! appears (on one side mount points of a volume, on the other bind mounts of a directory). A call
//! is drawn from the seed and from what the reference has, so that both sides get the same one. It
//! is done on both, and what it returned must be equal. Then what it touched is looked at through
//! another place. Every some hundred calls the two trees are compared whole.
//!
//! Not compared, since file systems differ: sizes of directories, blocks, times that no call has
//! set, numbers of files (but that a file has one number at all places, and that links share it).

mod call;
mod side;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Instant;

use call::{Call, Kinds};
use clap::Parser;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use side::Side;

/// Most calls go through so many places, the first ones.
const FREQUENT: usize = 2;

#[derive(Parser)]
pub(crate) struct Calls {
    /// Directories whose directories are the places of one empty tree.
    #[arg(long, num_args = 1.., required = true)]
    places: Vec<PathBuf>,
    /// The same for the reference, with as many places.
    #[arg(long, num_args = 1.., required = true)]
    reference: Vec<PathBuf>,
    /// Another place of the first tree, in another mount, that is compared at the end.
    #[arg(long)]
    other: Option<PathBuf>,
    /// Count of calls.
    #[arg(long, default_value_t = 20_000)]
    ops: u64,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Calls between two comparisons of the trees.
    #[arg(long, default_value_t = 500)]
    every: u64,
    /// Calls that a failure shows.
    #[arg(long, default_value_t = 30)]
    shown: usize,
}

impl Calls {
    pub fn run(self) -> Result<String, String> {
        let start = Instant::now();
        let mut sides = Sides::new(&self)?;
        for number in 0..self.ops {
            let found = sides.step(number).and_then(|()| {
                let is_due = (number + 1) % self.every == 0 || number + 1 == self.ops;
                if is_due { sides.compare_trees() } else { Ok(()) }
            });
            found.map_err(|why| {
                format!(
                    "the calls before:\n{}\nseed {}, call {number}: {why}",
                    sides.history(),
                    self.seed
                )
            })?;
        }
        sides.close();
        sides.compare_trees().map_err(|why| format!("seed {}, at the end: {why}", self.seed))?;
        if let Some(other) = &self.other {
            let (seen, wanted) = (side::tree(other)?, side::tree(sides.reference.place(0))?);
            compare("the tree in the other mount", &seen, &wanted)?;
        }
        let rate = self.ops as f64 / start.elapsed().as_secs_f64();
        Ok(format!(
            "{} calls of {} kinds at {} places, no difference ({rate:.0} a second, seed {}, {} \
             entries at the end)\n{}",
            self.ops,
            sides.kinds.count(),
            sides.reference.places(),
            self.seed,
            side::tree(sides.reference.place(0))?.len(),
            sides.kinds
        ))
    }
}

struct Sides {
    tested: Side,
    reference: Side,
    random: SmallRng,
    kinds: Kinds,
    last: VecDeque<(u64, String)>,
    shown: usize,
}

impl Sides {
    fn new(from: &Calls) -> Result<Self, String> {
        let (tested, reference) = (places_in(&from.places)?, places_in(&from.reference)?);
        if tested.is_empty() || tested.len() != reference.len() {
            return Err(format!("{} places and {}", tested.len(), reference.len()));
        }
        // New files have the same modes on both sides.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        Ok(Sides {
            tested: Side::new(tested),
            reference: Side::new(reference),
            random: SmallRng::seed_from_u64(from.seed),
            kinds: Kinds::default(),
            last: VecDeque::new(),
            shown: from.shown,
        })
    }

    fn place(&mut self) -> usize {
        let count = self.reference.places();
        let most = if self.random.random_ratio(3, 5) { FREQUENT.min(count) } else { count };
        self.random.random_range(0..most)
    }

    fn step(&mut self, number: u64) -> Result<(), String> {
        let (place, second) = (self.place(), self.place());
        let call = Call::draw(&mut self.random, &self.reference, place, second);
        self.last.push_back((number, format!("{call:?}")));
        if self.last.len() > self.shown {
            self.last.pop_front();
        }
        if self.reference.changes_removed_directory(&call) {
            return Ok(());
        }
        let wanted = self.reference.execute(&call);
        let seen = self.tested.execute(&call);
        self.kinds.add(&call, wanted.is_ok());
        if seen != wanted {
            return Err(format!("{call:?}\n  returned {seen:?}\n  not      {wanted:?}"));
        }
        // Paths as they are now, since the call may have moved a file that is open.
        let other = self.place();
        let with_content = self.random.random_ratio(1, 8);
        for path in self.reference.touched(&call) {
            let wanted = self.reference.look(other, &path, with_content);
            let seen = self.tested.look(other, &path, with_content);
            if seen != wanted {
                return Err(format!(
                    "after {call:?}\n  place {other} has {} as {seen:?}\n  not {wanted:?}",
                    path.display()
                ));
            }
        }
        for slot in call.slots() {
            let (wanted, seen) = (self.reference.look_open(slot), self.tested.look_open(slot));
            if seen != wanted {
                return Err(format!("after {call:?}\n  slot {slot} is {seen:?}\n  not {wanted:?}"));
            }
        }
        Ok(())
    }

    fn compare_trees(&mut self) -> Result<(), String> {
        let place = self.place();
        let wanted = side::tree(self.reference.place(place))?;
        compare(&format!("place {place}"), &side::tree(self.tested.place(place))?, &wanted)
    }

    fn close(&mut self) {
        self.tested.close();
        self.reference.close();
    }

    fn history(&self) -> String {
        let lines: Vec<String> =
            self.last.iter().map(|(number, call)| format!("  {number}: {call}")).collect();
        lines.join("\n")
    }
}

/// The directories in `dirs`, by their names.
fn places_in(dirs: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut places = Vec::new();
    for dir in dirs {
        let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            places.push(entry.map_err(failed)?.path());
        }
    }
    places.retain(|place| place.is_dir());
    places.sort();
    Ok(places)
}

fn compare(what: &str, seen: &[String], wanted: &[String]) -> Result<(), String> {
    let first = seen.iter().zip(wanted).position(|(seen, wanted)| seen != wanted);
    let first = first.unwrap_or_else(|| seen.len().min(wanted.len()));
    let line = |of: &[String]| of.get(first).cloned().unwrap_or_else(|| "nothing".to_owned());
    if seen == wanted {
        return Ok(());
    }
    Err(format!("{what} has\n  {}\n  not {}", line(seen), line(wanted)))
}
