//! `rialto pagsh`: a shell with tokens of its own.
//!
//! The kernel shows its cached state of a tree (names, pages, permissions) by uid and gid, and a
//! mount cannot make it distinguish two processes of one user that have different identities in the
//! cell. So a session is no mark on a process, as AFS's process authentication groups are: it is a
//! mount name space in which the tree is attached once more, over itself, with its own token wallet
//! and kernel state. Processes of the session and their children see only this tree; other
//! processes do not see it.
//!
//! Root's mount serves it ([`crate::sessions`]). Root needs only the mount name space; other users
//! get it together with a user name space that maps their own number to itself, where they may
//! attach the received mount. The shell has none of the capabilities that this needs. `unshare`
//! (util-linux) makes both name spaces, because that must happen before any thread starts.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use local::failure::{Doing, Failure};
use local::mounts;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MoveMountFlags, move_mount};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::fs::tree;
use crate::sessions;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto pagsh                            a shell; a 'rialto login' in it is valid there
    rialto pagsh -c 'rialto login admin; vos release home'
    rialto pagsh -- make -C /afs/example.org/src
    rialto pagsh -c 'rialto login --kerberos; exec ./train'

In the shell and its children the tree is at the same place, without tokens at first.
'rialto login', 'logout' and 'tokens' in there affect this session alone: one user may have
two identities in the cell at once, or a token that no other process of the user can use.

The tree must be one that root mounted. Users other than root need user name spaces, which
most systems have. A session ends with the last process in it. All its volumes are in one
mount.

EXIT CODES
    that of the shell
    1    there is no session: the message names the remedy
    3    no tree is mounted";

/// Runs a shell, or a command, with tokens of its own.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Pagsh {
    /// A directory of the tree [default: the current directory, or the first tree that is mounted]
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// A command line for the shell, instead of an interactive one.
    #[arg(short, value_name = "LINE", conflicts_with = "program")]
    command: Option<String>,
    /// A program and its arguments [default: $SHELL, or /bin/sh]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
    /// In the name space: the descriptor of the session's tree.
    #[arg(long, hide = true, value_name = "NUMBER")]
    inside: Option<i32>,
}

impl Pagsh {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let at = tree_of(&tree::some_place(self.path.as_deref())?)?;
        match self.inside {
            Some(number) => {
                let mount = mem::inherit::taken(number)
                    .doing(|| "finding the session's tree".to_owned())?;
                Err(self.become_shell(&at, &mount)?)
            }
            None => Err(self.enter(&at)?),
        }
    }

    /// Runs the same command in a name space of its own; returns only on failure.
    fn enter(&self, at: &Path) -> Result<Failure, Failure> {
        let what = || "making a name space for the session".to_owned();
        let mut how = vec!["--mount", "--propagation", "slave"];
        if !rustix::process::geteuid().is_root() {
            how.extend(["--user", "--map-current-user", "--keep-caps"]);
        }
        // A trial first, so that its error is not taken for the shell's exit code.
        let tried = Command::new("unshare")
            .args(&how)
            .arg("true")
            .stdin(Stdio::null())
            .output()
            .doing(what)?;
        if !tried.status.success() {
            let message = String::from_utf8_lossy(&tried.stderr).trim().to_owned();
            return Err(Failure::new(what(), message).mend(
                "without root this needs user name spaces: see 'sysctl user.max_user_namespaces \
                    kernel.unprivileged_userns_clone'",
            ));
        }
        let program = std::env::current_exe().doing(what)?;
        // Requested outside of the name space, where root is recognizable.
        let mount = mem::inherit::left(sessions::ask(at)?).doing(what)?.to_string();
        let mut command = Command::new("unshare");
        command
            .args(&how)
            .arg("--")
            .arg(program)
            .args(["pagsh", "--inside", &mount, "--path"])
            .arg(at);
        match &self.command {
            Some(line) => command.args(["-c", line]),
            None => command.arg("--").args(&self.program),
        };
        Ok(Failure::new(what(), command.exec()))
    }

    /// Attaches the session's tree and executes the shell; returns only on failure.
    fn become_shell(&self, at: &Path, mount: &OwnedFd) -> Result<Failure, Failure> {
        let what = || format!("attaching the session's tree to {}", at.display());
        // By its name: the current directory itself is in the tree below.
        let here = std::env::current_dir().ok();
        let place =
            rustix::fs::open(at, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .doing(what)?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(mount, "", &place, "", flags).doing(what)?;
        drop(place);
        // The same name now leads into the session's tree, where it may be invisible without a
        // token.
        if let Some(here) = here
            && std::env::set_current_dir(&here).is_err()
        {
            eprintln!(
                "rialto: {} cannot be entered in this session yet: starting in /",
                here.display()
            );
            std::env::set_current_dir("/").doing(|| "entering /".to_owned())?;
        }
        drop_rights()?;
        let shell = || {
            std::env::var_os("SHELL")
                .filter(|shell| !shell.is_empty())
                .unwrap_or_else(|| "/bin/sh".into())
        };
        let mut command = match self.program.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
            None => {
                let mut command = Command::new(shell());
                command.args(self.command.iter().flat_map(|line| ["-c", line]));
                command
            }
        };
        let error = command.exec();
        Ok(Failure::new(format!("running {}", command.get_program().to_string_lossy()), error))
    }
}

/// The root of the mount that this path is in, not of a volume below it.
fn tree_of(place: &Path) -> Result<PathBuf, Failure> {
    let what = || format!("finding the tree of {}", place.display());
    let place = fs::canonicalize(place).doing(what)?;
    let mounted = mounts::all().doing(what)?;
    let ours =
        mounted.into_iter().filter(|mounted| mounted.is_rialto() && place.starts_with(&mounted.at));
    ours.map(|mounted| mounted.at).min_by_key(|at| at.as_os_str().len()).ok_or_else(|| {
        Failure::new(what(), "no tree is mounted there")
            .mend("'rialto mount' makes one")
            .nothing_there()
    })
}

/// The shell has no more rights than its user has elsewhere.
fn drop_rights() -> Result<(), Failure> {
    let what = || "dropping the rights of the name space".to_owned();
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    rustix::thread::clear_ambient_capability_set().doing(what)?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).doing(what)
}
