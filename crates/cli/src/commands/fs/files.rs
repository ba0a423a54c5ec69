//! Places of files: `fs whereis`, `whichcell`, `wscell` and `getfid`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use local::failure::Failure;
use local::show;
use rustix::io::Errno;
use serde_json::json;

use super::Paths;
use super::quotas::{SiteReport, about};
use super::tree;

pub(super) const WHEREIS_HELP: &str = "\
EXAMPLES
    rialto fs whereis ~/tree/alice
    rialto fs whereis ~/tree/* --json";

pub(super) const WHICHCELL_HELP: &str = "\
EXAMPLES
    rialto fs whichcell ~/tree/alice";

const WSCELL_HELP: &str = "\
EXAMPLES
    rialto fs wscell
    rialto fs wscell -path ~/tree";

const GETFID_HELP: &str = "\
EXAMPLES
    rialto fs getfid ~/tree/alice/letter.txt
    rialto fs getfid -literal ~/tree/alice/link        of the link, not of its target

A fid is the numbers of the volume and of the file in it, and the uniquifier.";

/// Shows the number by which servers know a file.
#[derive(Args, Debug)]
#[command(after_help = GETFID_HELP)]
pub struct Getfid {
    #[command(flatten)]
    paths: Paths,
    /// Of a symbolic link, and not of its target.
    #[arg(long)]
    literal: bool,
}

/// Shows the cell that this machine has mounted.
#[derive(Args, Debug)]
#[command(after_help = WSCELL_HELP)]
pub struct Wscell {
    /// A place in the tree [default: here, or else the first tree that is mounted]
    #[arg(long = "path", value_name = "PATH")]
    path: Option<PathBuf>,
}

/// The cell of a path; a server without a name for its cell has none to report.
fn cell(path: &Path) -> Result<String, Failure> {
    let what = || format!("asking for the cell of {}", path.display());
    match tree::get(path, "rialto.cell") {
        Err(Errno::NODATA) if tree::get(path, "rialto.fid").is_ok() => {
            Err(Failure::new(what(), "its server does not report it")
                .mend("check that it has the same version"))
        }
        answer => answer.map_err(|error| tree::refusal(path, what(), error)),
    }
}

pub(super) fn where_is(paths: Paths, json: bool) -> Result<ExitCode, Failure> {
    paths.each(|path| {
        let about = about(path)?;
        if json {
            show::json(&json!({ "path": path, "volume": about.name, "sites": about.sites }));
            return Ok(());
        }
        let hosts: Vec<String> = about.sites.iter().map(SiteReport::machine).collect();
        let word = if hosts.len() == 1 { "host" } else { "hosts" };
        println!("File {} is on {word} {}", path.display(), hosts.join(" "));
        Ok(())
    })
}

pub(super) fn which_cell(paths: Paths, json: bool) -> Result<ExitCode, Failure> {
    paths.each(|path| {
        let cell = cell(path)?;
        if json {
            show::json(&json!({ "path": path, "cell": cell }));
        } else {
            println!("File {} lives in cell '{cell}'", path.display());
        }
        Ok(())
    })
}

impl Wscell {
    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        let cell = cell(&tree::some_place(self.path.as_deref())?)?;
        show::answer(
            json,
            &json!({ "cell": cell }),
            format_args!("This workstation belongs to cell '{cell}'"),
        );
        Ok(ExitCode::SUCCESS)
    }
}

pub(super) fn fid(wanted: Getfid, json: bool) -> Result<ExitCode, Failure> {
    let Getfid { paths, literal } = wanted;
    paths.each(|path| {
        let what = || format!("asking for the fid of {}", path.display());
        let (fid, cell) = if literal {
            // The kernel refuses all other attributes of a link itself.
            let fid = tree::get_of_link(path, "system.rialto.fid");
            let dir = tree::split(path).ok();
            (fid, dir.and_then(|(dir, _)| cell(&dir).ok()))
        } else {
            (tree::get(path, "rialto.fid"), cell(path).ok())
        };
        let fid = fid.map_err(|error| tree::refusal(path, what(), error))?;
        if json {
            show::json(&json!({ "path": path, "fid": fid, "cell": cell }));
        } else {
            let place = cell.map(|cell| format!(" located in cell {cell}")).unwrap_or_default();
            println!("File {} ({fid}){place}", path.display());
        }
        Ok(())
    })
}
