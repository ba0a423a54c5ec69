//! Usage and limits of volumes: `fs examine`, `quota`, `listquota`, `setquota` and `diskfree`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use local::failure::Failure;
use local::show;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Paths;
use super::servers;
use super::tree::{self, ask_json, refusal};
use crate::commands::vos::quota;

pub(super) const EXAMINE_HELP: &str = "\
EXAMPLES
    rialto fs examine
    rialto fs examine -path ~/tree/alice --json | jq .used_bytes";

pub(super) const QUOTA_HELP: &str = "\
EXAMPLES
    rialto fs quota ~/tree/alice";

const LISTQUOTA_HELP: &str = "\
EXAMPLES
    rialto fs listquota ~/tree/alice ~/tree/bob
    rialto fs lq -human";

const SETQUOTA_HELP: &str = "\
EXAMPLES
    rialto fs setquota ~/tree/alice 20G
    rialto fs sq -path ~/tree/alice -max 0                no limit
    rialto fs setquota ~/tree/alice -files 100000

Only root may set limits.";

const SETVOL_HELP: &str = "\
EXAMPLES
    rialto fs setvol ~/tree/alice ~/tree/bob -max 20G

'rialto fs setquota' sets the limit of files too.";

const DISKFREE_HELP: &str = "\
EXAMPLES
    rialto fs diskfree ~/tree/alice
    rialto fs df -human";

/// Shows volumes with quota and usage, in KiB.
#[derive(Args, Debug)]
#[command(after_help = LISTQUOTA_HELP, visible_alias = "lq")]
pub struct Listquota {
    #[command(flatten)]
    paths: Paths,
    /// Show sizes with units.
    #[arg(long)]
    human: bool,
}

/// Sets the limits of a volume.
#[derive(Args, Debug)]
#[command(after_help = SETQUOTA_HELP, visible_alias = "sq")]
pub struct Setquota {
    /// A file or directory of the volume [default: .]
    #[arg(long = "path", value_name = "PATH")]
    path: Option<PathBuf>,
    /// Limit of its size: KiB, or with a unit (20G); 0: no limit.
    #[arg(long, value_name = "SIZE", value_parser = quota)]
    max: Option<u64>,
    /// Limit of its files; 0: no limit.
    #[arg(long, value_name = "COUNT")]
    files: Option<u64>,
    /// [PATH] SIZE, instead of the options.
    #[arg(value_name = "SIZE", num_args = 0..=2)]
    words: Vec<String>,
}

/// Sets the quota of the volumes of files or directories.
#[derive(Args, Debug)]
#[command(after_help = SETVOL_HELP, visible_alias = "sv")]
pub struct Setvol {
    #[command(flatten)]
    paths: Paths,
    /// Limit of its size: KiB, or with a unit (20G); 0: no limit.
    #[arg(long, value_name = "SIZE", value_parser = quota, required = true)]
    max: u64,
}

/// Shows the free space on the partition of a volume, in KiB.
#[derive(Args, Debug)]
#[command(after_help = DISKFREE_HELP, visible_alias = "df")]
pub struct Diskfree {
    #[command(flatten)]
    paths: Paths,
    /// Show sizes with units.
    #[arg(long)]
    human: bool,
}

/// The attribute `rialto.about`.
#[derive(Deserialize, Serialize)]
pub struct VolumeAbout {
    pub id: u64,
    pub name: String,
    pub kind: String,
    pub online: bool,
    pub quota_bytes: u64,
    pub quota_files: u64,
    pub used_bytes: u64,
    pub used_files: u64,
    pub sites: Vec<SiteReport>,
}

/// A site of a volume.
#[derive(Deserialize, Serialize)]
pub struct SiteReport {
    pub server: String,
    pub host: String,
    pub addresses: Vec<String>,
    pub partition: String,
    /// Free bytes of the site that is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
}

impl SiteReport {
    /// The server's name for people.
    pub fn machine(&self) -> String {
        servers::machine(&self.host, &self.addresses, &self.server)
    }
}

/// Returns a path's volume, and the values of `--json` for both.
///
/// # Errors
/// If the path is in no mounted tree, or its server does not answer.
pub fn about(path: &Path) -> Result<VolumeAbout, Failure> {
    ask_json(path, "rialto.about", &format!("asking about {}", path.display()))
}

fn print_json(path: &Path, about: &VolumeAbout) {
    let mut value = serde_json::to_value(about).expect("our reports have only string keys");
    value["path"] = path.to_string_lossy().into();
    show::json(&value);
}

/// A line for the volume of each path, below the titles of its columns.
fn table(
    paths: Paths,
    json: bool,
    titles: &str,
    row: impl Fn(&VolumeAbout) -> String,
) -> Result<ExitCode, Failure> {
    if !json {
        println!("{titles}");
    }
    paths.each(|path| {
        let about = about(path)?;
        if json {
            print_json(path, &about);
        } else {
            println!("{}", row(&about));
        }
        Ok(())
    })
}

fn kib(bytes: u64) -> u64 {
    bytes.div_ceil(1024)
}

/// KiB, or with a unit.
fn size(bytes: u64, human: bool) -> String {
    if human { show::bytes(bytes) } else { kib(bytes).to_string() }
}

/// Percentage of the whole; 0 without a limit.
fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { (u128::from(part) * 100 / u128::from(whole)) as u64 }
}

impl VolumeAbout {
    fn limit(&self, human: bool) -> String {
        if self.quota_bytes == 0 { "no limit".to_owned() } else { size(self.quota_bytes, human) }
    }

    /// Used and total bytes of the partition of the read-write volume.
    fn partition(&self) -> (u64, u64) {
        let numbers =
            self.sites.first().and_then(|site| Some((site.free_bytes?, site.total_bytes?)));
        numbers.map_or((0, 0), |(free, total)| (total.saturating_sub(free), total))
    }
}

pub(super) fn examine(paths: Paths, json: bool) -> Result<ExitCode, Failure> {
    paths.each(|path| {
        let about = about(path)?;
        if json {
            print_json(path, &about);
            return Ok(());
        }
        let fid = tree::ask(path, "rialto.fid", || format!("asking about {}", path.display()))?;
        println!("File {} ({fid}) contained in volume {}", path.display(), about.id);
        println!("Volume status for vid = {} named {}", about.id, about.name);
        match about.quota_bytes {
            0 => println!("Current disk quota is unlimited"),
            bytes => println!("Current disk quota is {}", kib(bytes)),
        }
        println!("Current blocks used are {}", kib(about.used_bytes));
        let (used, total) = about.partition();
        println!("The partition has {} blocks available out of {}", kib(total - used), kib(total));
        println!();
        Ok(())
    })
}

pub(super) fn used(paths: Paths, json: bool) -> Result<ExitCode, Failure> {
    paths.each(|path| {
        let about = about(path)?;
        if json {
            print_json(path, &about);
        } else {
            println!("{}% of quota used.", percent(about.used_bytes, about.quota_bytes));
        }
        Ok(())
    })
}

impl Listquota {
    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        let Listquota { paths, human } = self;
        let titles = format!(
            "{:<30} {:>12} {:>12} {:>6} {:>10}",
            "Volume Name", "Quota", "Used", "%Used", "Partition"
        );
        table(paths, json, &titles, |about| {
            let (used, total) = about.partition();
            let of_quota = format!("{}%", percent(about.used_bytes, about.quota_bytes));
            let of_partition = format!("{}%", percent(used, total));
            let (limit, used) = (about.limit(human), size(about.used_bytes, human));
            format!("{:<30} {limit:>12} {used:>12} {of_quota:>6} {of_partition:>10}", about.name)
        })
    }
}

impl Setquota {
    pub(crate) fn run(mut self, json: bool) -> Result<ExitCode, Failure> {
        let sizes =
            usize::from(self.max.is_none() && (self.files.is_none() || self.words.len() > 1));
        if let Some(word) = self.words.pop_if(|_| sizes > 0) {
            self.max =
                Some(quota(&word).map_err(|why| Failure::new(format!("the quota {word}"), why))?);
        }
        let path = self
            .path
            .take()
            .or_else(|| self.words.pop().map(PathBuf::from))
            .unwrap_or_else(|| ".".into());
        let what = || format!("limiting the volume of {}", path.display());
        if !self.words.is_empty() || self.max.is_none() && self.files.is_none() {
            return Err(Failure::new(what(), "a limit is wanted, -max or -files")
                .mend("'--help' shows how"));
        }
        let about = about(&path)?;
        let (bytes, files) =
            (self.max.unwrap_or(about.quota_bytes), self.files.unwrap_or(about.quota_files));
        let answer = tree::set(&path, "rialto.quota", &format!("{bytes} {files}"));
        answer.map_err(|error| match error {
            // The directory's mode forbids it, before the server checks the caller.
            Errno::ACCESS => {
                Failure::new(what(), std::io::Error::from(error)).mend("only root may")
            }
            _ => refusal(&path, what(), error),
        })?;
        if json {
            print_json(&path, &VolumeAbout { quota_bytes: bytes, quota_files: files, ..about });
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Setvol {
    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        let max = Some(self.max);
        self.paths.each(|path| {
            let (path, words) = (Some(path.to_owned()), Vec::new());
            Setquota { path, max, files: None, words }.run(json).map(drop)
        })
    }
}

impl Diskfree {
    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        let Diskfree { paths, human } = self;
        let titles = format!(
            "{:<30} {:>14} {:>14} {:>14} {:>6}",
            "Volume Name",
            if human { "total" } else { "kbytes" },
            "used",
            "avail",
            "%used"
        );
        table(paths, json, &titles, |about| {
            let (used, total) = about.partition();
            let (all, taken, left) =
                (size(total, human), size(used, human), size(total - used, human));
            format!(
                "{:<30} {all:>14} {taken:>14} {left:>14} {:>5}%",
                about.name,
                percent(used, total)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_whole_percents_and_no_limit_is_not_used_up() {
        assert_eq!(
            (percent(1, 3), percent(3, 3), percent(5, 0), percent(u64::MAX, u64::MAX)),
            (33, 100, 0, 100)
        );
        assert_eq!((kib(0), kib(1), kib(1024), kib(1025)), (0, 1, 1, 2));
    }
}
