//! This client's caches: `fs flush`, `flushvolume`, `flushmount`, `checkvolumes` and
//! `getcacheparms`.

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

pub(super) const FLUSH_HELP: &str = "\
EXAMPLES
    rialto fs flush ~/tree/alice/letter.txt
    rialto fs flush -path ~/tree/alice

Unsent changes go to the server first. Cached files are always up to date; this command is
not needed for that.";

pub(super) const FLUSHVOLUME_HELP: &str = "\
EXAMPLES
    rialto fs flushvolume ~/tree/alice";

pub(super) const FLUSHMOUNT_HELP: &str = "\
EXAMPLES
    rialto fs flushmount ~/tree/alice";

pub(super) const CHECKVOLUMES_HELP: &str = "\
EXAMPLES
    rialto fs checkvolumes";

pub(super) const GETCACHEPARMS_HELP: &str = "\
EXAMPLES
    rialto fs getcacheparms";

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
