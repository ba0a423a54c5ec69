//! `rialto keeper`: a keeper for mounts whose daemons something else restarts.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use local::failure::Failure;

use crate::keeper;

/// Where it listens, unless that is given.
pub(super) const SOCKET: &str = "/run/rialto/keeper.sock";

const AFTER_HELP: &str = "\
EXAMPLES
    rialto keeper                                     in a service that is never restarted
    rialto mount --keeper /run/rialto/keeper.sock files.example.org:7620 /mnt/tree

'rialto mount --keep' starts a keeper of its own, which restarts the mount's process itself.
This command is for mounts that systemd, Kubernetes or another supervisor restarts: such a
mount is made with 'rialto mount --keeper SOCKET'. Its process may end unasked, or be
replaced by one of another version. The keeper holds open what the kernel needs for the next
process with the same mount point: programs keep their open files and locks, and wait.

One keeper serves all mounts of its user. If it ends, they go on until their processes end.

EXIT CODES
    0  a signal ended it
    1  it could not listen";

/// Holds mounts while a supervisor restarts their processes.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct KeeperCommand {
    /// The socket where it listens; its directory is made.
    #[arg(default_value = SOCKET)]
    socket: PathBuf,
}

impl KeeperCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        keeper::hold_for_others(&self.socket)?;
        Ok(ExitCode::SUCCESS)
    }
}
