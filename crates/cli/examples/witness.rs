//! Records, outside a file system, the changes that the file system acknowledged, and checks later
//! that all of them are there.
//!
//! `witness run` changes files below a directory with several threads and writes to a log, outside
//! of it, the intention before each change and the acknowledgement after it. A change is
//! acknowledged when its `fsync` returned (for a removal: when `unlink` returned and the directory
//! was synced). `witness check` reads the log, after the processes that were killed in between were
//! started again: each file must be as its last acknowledged change left it, or as a later
//! intention would have. Anything else was lost, applied twice, or made up.
//!
//! Before each change its thread makes a *mark*: an empty file with the next number, without a
//! sync. A client that crashes may lose the last marks, but never one before another that is there,
//! nor one that was made before an acknowledged change (its `fsync` covers them). With `--all` no
//! mark may be missing: only the server crashed.
//!
//! A mount that is taken away leaves the directory under it: what that acknowledges does not count,
//! so a change in another file system than the first one is an error.
//!
//! With `--until-error` an error ends the run successfully (the file system was killed); without,
//! it is a failure: the file system must wait for its server and continue.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Files that each thread changes: few, so that each is changed often.
const FILES: u64 = 24;

#[derive(Parser)]
enum Command {
    /// Changes files and logs the acknowledgements.
    Run(Run),
    /// Checks the files against the log.
    Check(Check),
}

#[derive(Parser)]
struct Run {
    /// The directory of the changed files.
    dir: PathBuf,
    /// The log; continued if it exists.
    log: PathBuf,
    /// Duration.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Threads.
    #[arg(long, default_value_t = 4)]
    threads: u64,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// End successfully at an error.
    #[arg(long)]
    until_error: bool,
}

#[derive(Parser)]
struct Check {
    /// The directory of the changed files.
    dir: PathBuf,
    /// The log.
    log: PathBuf,
    /// Unsynced marks must be there too.
    #[arg(long)]
    all: bool,
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Run(run) => run.run(),
        Command::Check(check) => check.run(),
    };
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("witness: {text}");
            ExitCode::FAILURE
        }
    }
}

/// A change of one file. In the log: a letter, the file, and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Replaced by a new file of this version, under a name that existed or not.
    Replace(u64),
    /// The part of this version appended.
    Append(u64),
    /// Removed.
    Remove,
}

/// Content of a file: the versions of its parts, in order; `None`: it does not exist.
type Content = Option<Vec<u64>>;

impl Run {
    fn run(self) -> Result<String, String> {
        let before = if self.log.exists() { Log::read(&self.log)? } else { Log::default() };
        fs::create_dir_all(&self.dir)
            .map_err(|error| format!("{}: {error}", self.dir.display()))?;
        let device = fs::metadata(&self.dir)
            .map_err(|error| format!("{}: {error}", self.dir.display()))?
            .dev();
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = Mutex::new(log.map_err(|error| format!("{}: {error}", self.log.display()))?);
        let version = AtomicU64::new(before.version_max + 1);
        let (changes, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let end = Instant::now() + Duration::from_secs_f64(self.seconds);
        let errors: Vec<String> = std::thread::scope(|scope| {
            let start = |thread| {
                let (run, log, version, before) = (&self, &log, &version, &before);
                let worker = Worker { run, device, log, version, thread, before };
                let (changes, stop) = (&changes, &stop);
                scope.spawn(move || {
                    let ended = worker.work(end, changes, stop);
                    stop.fetch_or(ended.is_err(), Ordering::Relaxed);
                    ended.err()
                })
            };
            let threads: Vec<_> = (0..self.threads).map(start).collect();
            threads
                .into_iter()
                .filter_map(|thread| thread.join().expect("a thread panicked"))
                .collect()
        });
        match errors.first() {
            Some(error) if !self.until_error => Err(error.clone()),
            _ => Ok(format!("{} changes acknowledged", changes.load(Ordering::Relaxed))),
        }
    }
}

/// One thread, with files that no other thread changes.
struct Worker<'a> {
    run: &'a Run,
    /// The file system that is changed.
    device: u64,
    log: &'a Mutex<File>,
    version: &'a AtomicU64,
    thread: u64,
    before: &'a Log,
}

impl Worker<'_> {
    fn work(&self, end: Instant, changes: &AtomicU64, stop: &AtomicBool) -> Result<(), String> {
        let mut random =
            SmallRng::seed_from_u64(self.run.seed.wrapping_mul(1009).wrapping_add(self.thread));
        // The state of a file after an unfinished change is read from the file.
        let mut known: BTreeMap<u64, Content> = BTreeMap::new();
        for file in self.thread * FILES..(self.thread + 1) * FILES {
            let content = read_versions(&self.run.dir, file)
                .map_err(|error| format!("reading file {file}: {error}"))?;
            self.before.check(file, &content)?;
            self.note_found(file, &content);
            known.insert(file, content);
        }
        let mut mark = self.before.check_marks(&self.run.dir, self.thread, false)?;
        self.write(&format!("P {} {mark}\n", self.thread));
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            mark += 1;
            make_mark(&self.run.dir, self.thread, mark)
                .map_err(|error| format!("mark {mark}: {error}"))?;
            self.write(&format!("M {} {mark}\n", self.thread));
            let file = self.thread * FILES + random.random_range(0..FILES);
            let content = known.get_mut(&file).expect("every file is known");
            let change = self.choose(&mut random, content);
            self.note('B', file, change);
            apply((&self.run.dir, self.device), file, change, content)
                .map_err(|error| format!("{change:?} of file {file}: {error}"))?;
            self.note('E', file, change);
            changes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn choose(&self, random: &mut SmallRng, content: &Content) -> Change {
        let next = self.version.fetch_add(1, Ordering::Relaxed);
        match (random.random_range(0..10), content) {
            (0..1, Some(_)) => Change::Remove,
            (1..5, Some(parts)) if parts.len() < 8 && !parts.contains(&0) => Change::Append(next),
            _ => Change::Replace(next),
        }
    }

    /// One line, in one write, so that the log of a killed witness ends between lines.
    fn note(&self, letter: char, file: u64, change: Change) {
        let line = match change {
            Change::Replace(version) => format!("{letter} {file} replace {version}\n"),
            Change::Append(version) => format!("{letter} {file} append {version}\n"),
            Change::Remove => format!("{letter} {file} remove 0\n"),
        };
        self.write(&line);
    }

    /// Logs the result of an unfinished change of an earlier run: from here on it is known.
    fn note_found(&self, file: u64, content: &Content) {
        if self.before.files.contains_key(&file) {
            let parts = content.as_ref().map_or_else(
                || "-".to_owned(),
                |parts| parts.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
            );
            self.write(&format!("O {file} {parts}\n"));
        }
    }

    fn write(&self, line: &str) {
        self.log
            .lock()
            .expect("no thread panics with it")
            .write_all(line.as_bytes())
            .expect("the log takes a line");
    }
}

fn marks(dir: &Path, thread: u64) -> PathBuf {
    dir.join(format!("marks-{thread}"))
}

fn make_mark(dir: &Path, thread: u64, mark: u64) -> io::Result<()> {
    let marks = marks(dir, thread);
    fs::create_dir_all(&marks)?;
    File::create_new(marks.join(format!("{mark:06}"))).map(drop)
}

fn path(dir: &Path, file: u64) -> PathBuf {
    dir.join(format!("{:02}", file % 7)).join(format!("file-{file:04}"))
}

/// The bytes of one part: its version determines its length and content.
fn part(version: u64) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(version);
    let length = [200, 3000, 16_384, 70_000, 300_000][random.random_range(0..5)];
    let mut bytes = vec![0; length];
    random.fill(bytes.as_mut_slice());
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes[8..16].copy_from_slice(&(length as u64).to_le_bytes());
    bytes
}

/// An open file is in the file system that is changed.
fn need_there(open: &File, device: u64) -> io::Result<()> {
    if open.metadata()?.dev() == device {
        return Ok(());
    }
    Err(io::Error::other("the file system is not there any more"))
}

fn apply(
    (dir, device): (&Path, u64),
    file: u64,
    change: Change,
    content: &mut Content,
) -> io::Result<()> {
    let path = path(dir, file);
    let parent = path.parent().expect("it has a directory");
    match change {
        Change::Replace(version) => {
            fs::create_dir_all(parent)?;
            // Opened before the change: a mount that was killed and made again in between would
            // sync without the change.
            let directory = File::open(parent)?;
            need_there(&directory, device)?;
            let draft = path.with_extension("new");
            let mut new = File::create(&draft)?;
            need_there(&new, device)?;
            new.write_all(&part(version))?;
            new.sync_all()?;
            fs::rename(&draft, &path)?;
            directory.sync_all()?;
            *content = Some(vec![version]);
        }
        Change::Append(version) => {
            let open = OpenOptions::new().write(true).open(&path)?;
            need_there(&open, device)?;
            let end = open.metadata()?.len();
            open.write_all_at(&part(version), end)?;
            open.sync_all()?;
            content.as_mut().expect("only what is there is appended to").push(version);
        }
        Change::Remove => {
            let directory = File::open(parent)?;
            need_there(&directory, device)?;
            fs::remove_file(&path)?;
            directory.sync_all()?;
            *content = None;
        }
    }
    Ok(())
}

/// The versions of a file's parts; an unfinished last part counts as version 0.
fn read_versions(dir: &Path, file: u64) -> io::Result<Content> {
    let mut bytes = Vec::new();
    match File::open(path(dir, file)) {
        Ok(mut open) => open.read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut versions = Vec::new();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let version = rest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let expected = part(version);
        if version == 0 || !rest.starts_with(&expected) {
            versions.push(0);
            break;
        }
        versions.push(version);
        rest = &rest[expected.len()..];
    }
    Ok(Some(versions))
}

/// The log's record of one file since its state was last read.
#[derive(Default)]
struct Known {
    found: Content,
    /// Changes since, in order, and whether each was acknowledged.
    changes: Vec<(Change, bool)>,
}

/// The log, file by file.
#[derive(Default)]
struct Log {
    files: BTreeMap<u64, Known>,
    /// For each thread the last mark, and the last one made before an acknowledged change.
    marks: BTreeMap<u64, (u64, u64)>,
    version_max: u64,
    acknowledged: u64,
}

impl Log {
    fn read(path: &Path) -> Result<Log, String> {
        let text =
            fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut log = Log::default();
        for line in text.lines() {
            log.take(line).ok_or_else(|| format!("{}: cannot read {line:?}", path.display()))?;
        }
        Ok(log)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let (letter, file) = (words.next()?, words.next()?.parse().ok()?);
        if matches!(letter, "M" | "P") {
            let (made, stable) = self.marks.entry(file).or_default();
            *made = words.next()?.parse().ok()?;
            if letter == "P" {
                *stable = *made;
            }
            return Some(());
        }
        let known = self.files.entry(file).or_default();
        if letter == "O" {
            *known = Known { found: parse_parts(words.next()?)?, changes: Vec::new() };
            return Some(());
        }
        let (kind, version): (_, u64) = (words.next()?, words.next()?.parse().ok()?);
        let change = match kind {
            "replace" => Change::Replace(version),
            "append" => Change::Append(version),
            "remove" => Change::Remove,
            _ => return None,
        };
        self.version_max = self.version_max.max(version);
        match letter {
            "B" => known.changes.push((change, false)),
            "E" => {
                let (last, acknowledged) = known.changes.last_mut()?;
                assert_eq!(*last, change, "an acknowledgement belongs to the last intention");
                *acknowledged = true;
                self.acknowledged += 1;
                let (made, stable) = self.marks.entry(file / FILES).or_default();
                *stable = *made;
            }
            _ => return None,
        }
        Some(())
    }

    /// Returns every content that `file` may have. A change without acknowledgement happened, or
    /// did not.
    fn allowed(&self, file: u64) -> Vec<Content> {
        let Some(known) = self.files.get(&file) else { return vec![None] };
        let mut allowed: Vec<Content> = vec![known.found.clone()];
        for (change, acknowledged) in &known.changes {
            let mut after: Vec<Content> = Vec::new();
            for content in &allowed {
                let changed = match (change, content) {
                    (Change::Replace(version), _) => Some(vec![*version]),
                    (Change::Append(version), Some(parts)) => {
                        Some([parts.as_slice(), &[*version]].concat())
                    }
                    (Change::Append(_), None) => continue,
                    (Change::Remove, _) => None,
                };
                after.push(changed);
            }
            if !acknowledged {
                // Appending may also stop half-way: an unfinished part at the end.
                if let Change::Append(_) = change {
                    let torn = allowed
                        .iter()
                        .flatten()
                        .map(|parts| Some([parts.as_slice(), &[0]].concat()));
                    after.extend(torn.collect::<Vec<_>>());
                }
                after.extend(allowed);
            }
            after.sort();
            after.dedup();
            allowed = after;
        }
        allowed
    }

    /// Returns the last existing mark of a thread. Fails if one before it is missing, or a required
    /// one.
    fn check_marks(&self, dir: &Path, thread: u64, all: bool) -> Result<u64, String> {
        let (made, stable) = self.marks.get(&thread).copied().unwrap_or_default();
        let entries = match fs::read_dir(marks(dir, thread)) {
            Ok(entries) => entries.collect::<io::Result<Vec<_>>>(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let entries = entries.map_err(|error| format!("marks of thread {thread}: {error}"))?;
        let mut found: Vec<u64> = entries
            .iter()
            .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
            .collect();
        found.sort_unstable();
        let last = found.last().copied().unwrap_or(0);
        let least = if all { made } else { stable };
        if found.iter().copied().ne(1..=last) {
            return Err(format!(
                "marks of thread {thread} up to {last} are there, but only {} of them",
                found.len()
            ));
        }
        // A mark may exist that was being made when the thread was stopped.
        if last < least || last > made + 1 {
            return Err(format!(
                "the last mark of thread {thread} is {last}; {least} to {} may be",
                made + 1
            ));
        }
        Ok(last)
    }

    fn check(&self, file: u64, found: &Content) -> Result<(), String> {
        let allowed = self.allowed(file);
        if allowed.contains(found) {
            return Ok(());
        }
        Err(format!(
            "file {file} has parts {found:?}; the log allows {allowed:?} (0 is an unfinished part)"
        ))
    }
}

/// Versions with commas between them, or `-` for no file. Empty: an empty file.
fn parse_parts(text: &str) -> Option<Content> {
    match text {
        "-" => Some(None),
        "" => Some(Some(Vec::new())),
        parts => {
            parts.split(',').map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>().map(Some)
        }
    }
}

impl Check {
    fn run(self) -> Result<String, String> {
        let log = Log::read(&self.log)?;
        for file in log.files.keys() {
            let found = read_versions(&self.dir, *file)
                .map_err(|error| format!("reading file {file}: {error}"))?;
            log.check(*file, &found)?;
        }
        for thread in log.marks.keys() {
            log.check_marks(&self.dir, *thread, self.all)?;
        }
        Ok(format!(
            "{} acknowledged changes of {} files are all there",
            log.acknowledged,
            log.files.len()
        ))
    }
}
