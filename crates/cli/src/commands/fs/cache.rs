//! This client's caches: `fs flush`, `flushvolume`, `flushall`, `flushmount`, `checkvolumes`,
//! `getcacheparms`, `setcachesize` and `storebehind`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use local::failure::Failure;
use local::show;
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::json;

use super::Paths;
use super::tree::{self, ask, ask_json, split};
use crate::commands::vos::quota;

pub(super) const FLUSH_HELP: &str = "\
EXAMPLES
    rialto fs flush ~/tree/alice/letter.txt
    rialto fs flush -path ~/tree/alice

Unsent changes go to the server first. Cached files are always up to date; this command is
not needed for that.";

pub(super) const FLUSHVOLUME_HELP: &str = "\
EXAMPLES
    rialto fs flushvolume ~/tree/alice";

pub(super) const FLUSHALL_HELP: &str = "\
EXAMPLES
    rialto fs flushall

Of all volumes of the tree, those of other cells too. Unsent changes go to the server first.";

pub(super) const FLUSHMOUNT_HELP: &str = "\
EXAMPLES
    rialto fs flushmount ~/tree/alice";

pub(super) const CHECKVOLUMES_HELP: &str = "\
EXAMPLES
    rialto fs checkvolumes";

pub(super) const GETCACHEPARMS_HELP: &str = "\
EXAMPLES
    rialto fs getcacheparms";

const SETCACHESIZE_HELP: &str = "\
EXAMPLES
    rialto fs setcachesize 20G
    rialto fs setcachesize -blocks 1000000         in KiB
    rialto fs setcachesize -reset                  the size that the mount began with

What does not fit any more is dropped at once. The size counts until the tree is unmounted,
for each cell whose volumes are in use; 'rialto mount --cache-size' is the one to begin with.
Only root may set it.";

const STOREBEHIND_HELP: &str = "\
EXAMPLES
    rialto fs storebehind
    rialto fs storebehind -allfiles 0

No written byte may be missing at the server when close(2) returns, so that other clients
see all of a closed file: the only asynchrony is 0. Before that, writes go to the server in
the background, and fsync(2) waits until they are on its disk.";

/// Sets the size of the disk cache.
#[derive(Args, Debug)]
#[command(after_help = SETCACHESIZE_HELP)]
pub struct Setcachesize {
    /// The size: KiB, or with a unit (20G); 0: as with -reset
    #[arg(long, value_name = "SIZE", value_parser = quota, conflicts_with = "words")]
    blocks: Option<u64>,
    /// The size that the mount began with.
    #[arg(long, conflicts_with_all = ["blocks", "words"])]
    reset: bool,
    /// SIZE, instead of the option.
    #[arg(value_name = "SIZE", num_args = 0..=1, value_parser = quota)]
    words: Vec<u64>,
    #[command(flatten)]
    place: Place,
}

/// Shows how much of a closed file may be missing at the server: nothing.
#[derive(Args, Debug)]
#[command(after_help = STOREBEHIND_HELP)]
pub struct Storebehind {
    /// The asynchrony of the named files; only 0 is accepted
    #[arg(long, value_name = "KBYTES")]
    kbytes: Option<u64>,
    /// The files.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    files: Vec<PathBuf>,
    /// The asynchrony of all files; only 0 is accepted
    #[arg(long, value_name = "KBYTES")]
    allfiles: Option<u64>,
    /// Show what was set.
    #[arg(long)]
    verbose: bool,
}

/// A client, given by any path in one of its mounts.
#[derive(Args, Debug)]
pub struct Place {
    /// A place in the tree [default: here, or else the first tree that is mounted]
    #[arg(long = "path", value_name = "PATH")]
    path: Option<PathBuf>,
}

impl Place {
    pub(super) fn find(&self) -> Result<PathBuf, Failure> {
        tree::some_place(self.path.as_deref())
    }
}

/// Sets an attribute on each path to carry out an order.
fn order(paths: Paths, json: bool, attribute: &str, what: &str) -> Result<ExitCode, Failure> {
    paths.each(|path| {
        ask(path, attribute, || format!("{what} {}", path.display()))?;
        done(path, json);
        Ok(())
    })
}

fn done(path: &Path, json: bool) {
    if json {
        show::json(&json!({ "path": path }));
    }
}

pub(super) fn flush(paths: Paths, json: bool) -> Result<ExitCode, Failure> {
    order(paths, json, "rialto.do:flush", "forgetting")
}

pub(super) fn flush_volume(paths: Paths, json: bool) -> Result<ExitCode, Failure> {
    order(paths, json, "rialto.do:flushvolume", "forgetting the volume of")
}

pub(super) fn flush_all(place: &Place, json: bool) -> Result<ExitCode, Failure> {
    let place = place.find()?;
    ask(&place, "rialto.do:flushall", || "forgetting all volumes".to_owned())?;
    done(&place, json);
    Ok(ExitCode::SUCCESS)
}

impl Setcachesize {
    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        let what = || "setting the size of the disk cache".to_owned();
        let size = self.blocks.or(self.words.first().copied());
        let bytes = match (size, self.reset) {
            (Some(bytes), false) => bytes,
            (None, true) => 0,
            _ => {
                return Err(Failure::new(what(), "the size is missing")
                    .mend("give it in KiB, or -reset")
                    .wrong_usage());
            }
        };
        let place = self.place.find()?;
        match tree::get(&place, &format!("rialto.do:cachesize:{bytes}")) {
            Err(Errno::PERM) => Err(Failure::new(what(), "only root may").mend("run it as root")),
            Err(Errno::NODEV) => {
                Err(Failure::new(what(), "there is no disk cache: the server is on this machine"))
            }
            Err(error) => Err(tree::refusal(&place, what(), error)),
            Ok(_) => {
                if json {
                    show::json(&json!({ "path": place, "bytes_max": size }));
                } else {
                    println!("New cache size set.");
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl Storebehind {
    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        if self.kbytes.or(self.allfiles).is_some_and(|kbytes| kbytes > 0) {
            return Err(Failure::new(
                "setting the asynchrony of stores",
                "a file is at its server when close(2) returns, for its other readers",
            )
            .mend("a program that need not wait closes in another thread"));
        }
        let shows = self.verbose || self.kbytes.or(self.allfiles).is_none();
        for path in &self.files {
            ask(path, "rialto.fid", || format!("asking for {}", path.display()))?;
            if json {
                show::json(&json!({ "path": path, "kbytes": 0 }));
            } else if shows {
                println!("Will store {} according to default.", path.display());
            }
        }
        match shows && (self.files.is_empty() || self.verbose) {
            true if json => show::json(&json!({ "kbytes": 0 })),
            true => println!("Default store asynchrony is 0 kbytes."),
            false => {}
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub(super) fn flush_mount(paths: Paths, json: bool) -> Result<ExitCode, Failure> {
    paths.each(|path| {
        let (dir, name) = split(path)?;
        let what = format!("dropping the cached target of {}", path.display());
        match tree::get(&dir, &format!("rialto.do:flushmount:{name}")) {
            Err(Errno::NODATA) if tree::get(&dir, "rialto.fid").is_ok() => {
                Err(Failure::new(what, "it is no mount point")
                    .mend("'rialto fs flush' drops files and directories"))
            }
            answer => {
                answer.map(|_| done(path, json)).map_err(|error| tree::refusal(&dir, what, error))
            }
        }
    })
}

pub(super) fn check_volumes(place: &Place, json: bool) -> Result<ExitCode, Failure> {
    let place = place.find()?;
    ask(&place, "rialto.do:checkvolumes", || {
        "dropping the cached targets of mount points".to_owned()
    })?;
    if json {
        done(&place, json);
    } else {
        println!("All volumeID/name mappings checked.");
    }
    Ok(ExitCode::SUCCESS)
}

/// The attribute `rialto.cache`.
#[derive(Deserialize)]
struct Cache {
    /// `None`: the server is on this machine, so there is no disk cache for it.
    used_bytes: Option<u64>,
    bytes_max: Option<u64>,
}

pub(super) fn cache_use(place: &Place, json: bool) -> Result<ExitCode, Failure> {
    let place = place.find()?;
    let Cache { used_bytes, bytes_max } =
        ask_json(&place, "rialto.cache", "asking for the disk cache")?;
    match (used_bytes, bytes_max) {
        _ if json => {
            show::json(&json!({ "path": place, "used_bytes": used_bytes, "bytes_max": bytes_max }));
        }
        (Some(used), Some(most)) => println!(
            "Rialto using {} of the cache's available {} 1K byte blocks.",
            used.div_ceil(1024),
            most.div_ceil(1024),
        ),
        _ => println!("Rialto uses no disk cache: the server is on this machine."),
    }
    Ok(ExitCode::SUCCESS)
}
