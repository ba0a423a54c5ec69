//! A mount whose open files and locks outlive its process: it is made at a keeper and served under
//! one, and its process is replaced.

use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use keep::Keeper;
use local::cell::MountRecords;
use local::failure::{Doing, Failure};
use local::mounts::{self, Health};

use super::{MOUNT_PATIENCE, MountCommand};
use crate::predecessor::wait_for_predecessor;
use crate::{keeper, registry};

impl MountCommand {
    /// Connects to a keeper that did not start this process.
    pub(super) fn begin_at_keeper(
        &self,
        socket: &Path,
        records: &MountRecords,
        at: &Path,
    ) -> Result<Arc<Keeper>, Failure> {
        let what = || format!("reaching the keeper at {}", socket.display());
        let keeper = Keeper::at(socket, at).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                Failure::new(what(), "none listens there").mend("start 'rialto keeper'")
            }
            ErrorKind::AddrInUse => {
                let why = format!("another process serves {}", at.display());
                Failure::new(what(), why).mend("end that one first")
            }
            ErrorKind::PermissionDenied => Failure::new(what(), "it is another user's"),
            _ => unusable_legacy(what(), error),
        })?;
        if !keeper.is_successor() {
            if self.mount_point()? != at {
                let what = format!("mounting on {}", at.display());
                return Err(Failure::new(what, "a symbolic link is on the way")
                    .mend("with --keeper write the path without links"));
            }
            wait_for_predecessor(records, at)?;
        }
        Ok(keeper)
    }

    /// The mount point by its name alone, without what is no part of it: the keeper and the records
    /// know the mount by that.
    pub(super) fn named_mount_point(&self) -> Result<PathBuf, Failure> {
        let what = || format!("mounting on {}", self.mount_point.display());
        let at = std::path::absolute(&self.mount_point).doing(what)?;
        if at.components().any(|part| part == Component::ParentDir) {
            return Err(Failure::new(what(), "'..' is on the way")
                .mend("with --keeper write the path without '..' and links"));
        }
        Ok(at.components().collect())
    }

    /// Whether the keeper is the parent of this process.
    pub(super) fn is_child_of(&self, keeper: Option<&Arc<Keeper>>) -> bool {
        keeper.is_some() && self.keeper.is_none()
    }

    /// Serves under a keeper, which waited for the place. The path of the mount is not looked at:
    /// what is there may be the mount itself, which nothing serves yet.
    pub(super) fn serve_kept(mut self, keeper: &Arc<Keeper>) -> Result<ExitCode, Failure> {
        self.take_words()?;
        let records = MountRecords::of(&self.place.path()?);
        let at = self.mount_point.clone();
        self.server = self.server()?;
        self.serve(&records, &at, Some(keeper))?;
        keeper.ends();
        Ok(ExitCode::SUCCESS)
    }

    pub(super) fn replace_daemon(&self) -> Result<ExitCode, Failure> {
        let what = || format!("replacing the process of {}", self.mount_point.display());
        let at = std::fs::canonicalize(&self.mount_point).doing(what)?;
        // Mounts of mount(8) have another directory than those of this command.
        let pid_file = registry::records(&at, Some(&self.place))?.pid_file(&at);
        if !keeper::is_keeper(&pid_file) {
            return Err(Failure::new(what(), "no keeper serves this mount").mend(
                "only a mount that was made with --keep has one; with --keeper the supervisor \
                    restarts the process",
            ));
        }
        keeper::replace(&pid_file)?;
        match mounts::health(&at, MOUNT_PATIENCE) {
            Health::Answers => Ok(ExitCode::SUCCESS),
            _ => Err(Failure::new(what(), "the successor does not answer")
                .mend("'rialto doctor' finds causes")),
        }
    }
}

/// The failure to go on with what a predecessor left.
pub(super) fn unusable_legacy(what: String, error: std::io::Error) -> Failure {
    let is_legacy = error.kind() == ErrorKind::InvalidData;
    let failure = Failure::new(what, error);
    if !is_legacy {
        return failure;
    }
    failure.mend(
        "the mount waits: install the version of the program that served it, or unmount it, which \
            ends what is open",
    )
}
