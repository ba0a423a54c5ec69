//! `rialto ls`: directories of a cell.

use std::process::ExitCode;

use clap::Args;
use local::failure::Failure;
use local::show;
use rialto_client::{DirectEntry, list, status};
use serde_json::json;
use types::{Kind, Status};

use super::{CellPath, Cells, failure};
use crate::commands::vos::iso;
use crate::reach::ReachOptions;

const HELP: &str = "\
EXAMPLES
    rialto ls                            the root of the cell
    rialto ls -l /home/alice
    rialto ls --json rialto://example.org/data

EXIT CODES
    0  done
    1  it cannot be listed
    3  no cell there";

/// Lists a directory of a cell, without a mount.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Ls {
    /// A directory or file: rialto://CELL/PATH, or a path in the cell that other commands ask.
    #[arg(value_name = "PATH", default_value = "/")]
    path: String,
    /// With mode, owner, size and time of change.
    #[arg(short, long)]
    long: bool,
    /// Also names that begin with a dot.
    #[arg(short, long)]
    all: bool,
    /// JSON: one value for each name.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: ReachOptions,
}

impl Ls {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let place = CellPath::of_argument(&self.path);
        let cell = Cells::new(&self.reach).of(&place)?;
        let found =
            status(&cell, &place.path, true).map_err(|error| failure("listing", &place, error))?;
        let mut entries = if found.kind == Kind::Directory {
            list(&cell, &place.path).map_err(|error| failure("listing", &place, error))?
        } else {
            let name = types::Name::new(place.name().as_bytes())
                .map_err(|_| Failure::new(format!("listing {place}"), "it has no name"))?;
            vec![DirectEntry { name, kind: found.kind, status: Some(found) }]
        };
        entries.retain(|entry| self.all || entry.name.as_bytes().first() != Some(&b'.'));
        entries.sort_by(|one, other| one.name.as_bytes().cmp(other.name.as_bytes()));
        if self.json {
            entries.iter().for_each(|entry| show::json(&value(entry)));
        } else if self.long {
            let rows = entries.iter().map(row).collect();
            let header = ["mode", "owner", "group", "size", "changed", "name"];
            println!("{}", show::table(&header, &[3], rows));
        } else {
            entries.iter().for_each(|entry| println!("{}", text(entry)));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn text(entry: &DirectEntry) -> String {
    String::from_utf8_lossy(entry.name.as_bytes()).into_owned()
}

fn kind(kind: Kind) -> (&'static str, char) {
    match kind {
        Kind::File => ("file", '-'),
        Kind::Directory => ("directory", 'd'),
        Kind::Symlink => ("link", 'l'),
        Kind::MountPoint => ("mount point", 'm'),
        Kind::Fifo => ("pipe", 'p'),
        Kind::Socket => ("socket", 's'),
        Kind::CharDevice => ("character device", 'c'),
        Kind::BlockDevice => ("block device", 'b'),
    }
}

fn value(entry: &DirectEntry) -> serde_json::Value {
    let (kind, _) = kind(entry.kind);
    let status = entry.status.as_ref();
    json!({
        "name": text(entry),
        "kind": kind,
        "bytes": status.map(|status| status.size),
        "mode": status.map(|status| format!("{:o}", status.mode)),
        "uid": status.map(|status| status.uid),
        "gid": status.map(|status| status.gid),
        "modified": status.map(|status| status.modified.secs),
        "fid": status.map(|status| status.fid.to_string()),
    })
}

fn row(entry: &DirectEntry) -> Vec<String> {
    let (_, letter) = kind(entry.kind);
    let Some(status) = &entry.status else {
        let unknown = || "?".to_owned();
        let mode = format!("{letter}?????????");
        return vec![mode, unknown(), unknown(), unknown(), unknown(), text(entry)];
    };
    vec![
        mode(letter, status),
        status.uid.to_string(),
        status.gid.to_string(),
        status.size.to_string(),
        iso(status.modified),
        text(entry),
    ]
}

/// The mode as `ls` shows it, without the bits that `ls` folds into others.
fn mode(letter: char, status: &Status) -> String {
    let bit = |at: u32, letter: char| if status.mode >> at & 1 == 1 { letter } else { '-' };
    let all = (0..9).rev().map(|at| bit(at, ['x', 'w', 'r'][at as usize % 3]));
    std::iter::once(letter).chain(all).collect()
}
