//! `rialto umount`: unmounts one mount.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use local::cell::Where;
use local::failure::{Doing, Failure};

use crate::registry;
use crate::unmounting::{UNMOUNT_PATIENCE, UnmountOutcome, Way, elsewhere, unmount};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto umount /mnt/tree
    rialto umount --lazy /mnt/tree     even while processes use it
    rialto umount --force /mnt/tree    at once; lists what is lost if its server is away
    umount /mnt/tree                   the same as the first, by mount(8)'s rules

All unsent changes go to the servers before the command returns. If a server is away it
waits, and tells for which volume and how many files. Interrupting it is safe: the mount is
off its place, and its process goes on in the background until the server has all of it.
A mount whose process died is removed too.

EXIT CODES
    0  it is unmounted
    1  it failed; with --force: changes are lost, the message lists them
    3  no Rialto mount is there
    32 it is in use, as umount(8) says it; the message lists process, user and file";

/// Unmounts a tree.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Umount {
    /// The mount point
    mount_point: PathBuf,
    /// Detach it from the tree now, even while it is in use; it ends with its last user.
    #[arg(long, short)]
    lazy: bool,
    /// Unmount it at once, whatever uses it, and give up what its servers do not have yet.
    #[arg(long, short, conflicts_with = "lazy")]
    force: bool,
    // Options that umount(8) passes on to a helper, without a meaning here.
    #[arg(short = 'n', hide = true)]
    no_table: bool,
    #[arg(short = 'r', hide = true)]
    read_only: bool,
    #[arg(short = 'v', hide = true)]
    verbose: bool,
    #[arg(short = 't', hide = true, value_name = "TYPE")]
    kind: Option<String>,
    #[arg(short = 'N', hide = true, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    place: Where,
}

impl Umount {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let at = std::path::absolute(&self.mount_point)
            .doing(|| "finding the mount point".to_owned())?;
        let at = registry::real_path(at);
        let records = registry::records(&at, Some(&self.place))?;
        let way = match (self.lazy, self.force) {
            (true, _) => Way::Lazy,
            (false, true) => Way::Force,
            (false, false) => Way::Unused,
        };
        // The users of a lazy mount may go on for long.
        let patience = (way == Way::Lazy).then_some(UNMOUNT_PATIENCE);
        match unmount(&records, &at, way, patience)? {
            UnmountOutcome::Gone => Ok(ExitCode::SUCCESS),
            UnmountOutcome::WasNotThere => Err(Failure::new(
                format!("unmounting {}", at.display()),
                "nothing is mounted there",
            )
            .nothing_there()),
            UnmountOutcome::MountedElsewhere(by) => {
                eprintln!("rialto umount: {}", elsewhere(&at, &by));
                Ok(ExitCode::SUCCESS)
            }
            UnmountOutcome::StillWorking(pid) => {
                let why = format!("its process {pid} has not finished");
                Err(Failure::new(format!("unmounting {}", at.display()), why)
                    .mend("it continues in the background; 'rialto doctor' checks the server"))
            }
        }
    }
}
