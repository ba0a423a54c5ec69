//! `rialto umount`: unmounts one mount.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use local::cell::{MountRecords, Where};
use local::failure::{Doing, Failure};

use crate::unmounting::{UNMOUNT_PATIENCE, UnmountOutcome, unmount};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto umount /mnt/tree
    rialto umount --lazy /mnt/tree     even while processes use it

All unsent changes go to the server before the command returns. A mount whose process died
is removed too.

EXIT CODES
    0  it is unmounted
    1  it is in use, or did not finish
    3  no Rialto mount is there";

/// Unmounts a tree.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Umount {
    /// The mount point
    mount_point: PathBuf,
    /// Detach it from the tree now, even while it is in use; it ends with its last user.
    #[arg(long)]
    lazy: bool,
    #[command(flatten)]
    place: Where,
}

impl Umount {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let at = std::path::absolute(&self.mount_point)
            .doing(|| "finding the mount point".to_owned())?;
        let at = real_path(at);
        let records = MountRecords::of(&self.place.path()?);
        match unmount(&records, &at, self.lazy, UNMOUNT_PATIENCE)? {
            UnmountOutcome::Gone => Ok(ExitCode::SUCCESS),
            UnmountOutcome::WasNotThere => Err(Failure::new(
                format!("unmounting {}", at.display()),
                "nothing is mounted there",
            )
            .nothing_there()),
            UnmountOutcome::StillWorking(pid) => {
                let why = format!("its process {pid} has not finished");
                Err(Failure::new(format!("unmounting {}", at.display()), why)
                    .mend("it continues in the background; 'rialto doctor' checks the server"))
            }
        }
    }
}

/// The path as the kernel shows it: links before the last component resolved. The last one may be a
/// dead mount that does not answer.
fn real_path(at: PathBuf) -> PathBuf {
    match (at.parent().map(std::fs::canonicalize), at.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => at,
    }
}
