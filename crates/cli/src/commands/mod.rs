//! The commands, one a file. Each has `run`, which returns the exit code or a [`Failure`] that
//! `main` prints.

mod audit;
mod backup;
mod backup_file;
mod bench;
mod cell;
mod cell_client;
mod completions;
mod doctor;
mod down;
mod export_afs;
mod files;
mod fs;
mod import_afs;
mod keeper;
mod kerberos;
mod keys;
mod logins;
mod man;
mod mount;
mod mount_helper;
mod network_login;
mod openafs;
mod pagsh;
mod pam;
mod pts;
mod readdir_helper;
mod restore;
mod rules;
mod server;
pub(crate) mod status;
mod typed;
mod umount;
mod up;
mod vos;
mod welcome;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use local::failure::Failure;

pub(crate) use fs::tree;
pub(crate) use kerberos::log_in_again;
pub use openafs::ProgramExit;
pub use typed::typed;
pub(crate) use vos::now_secs;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto up                        make a cell if there is none, start and mount it
    rialto status                    running processes, connected clients, usage
    rialto doctor                    what is wrong with this machine or cell
    rialto down                      unmount, stop the server; the data stays
    rialto vos create home.alice     a volume; 'rialto vos --help' has all verbs
    rialto fs listquota ~/shared     a directory's volume; 'rialto fs --help' has all verbs
    rialto pts createuser joe        a user; 'rialto pts --help' has all verbs
    rialto cp -r data rialto:///data  files without a mount; also ls, cat, mkdir, rm, gzip
    rialto login joe --via HOST:PORT   administer a cell from another machine
    rialto COMMAND --help            more, with examples

WHICH CELL
    vos, pts, fence, admin, audit, status, doctor, ls, cat, cp, mkdir and rm take the first of:
    --via HOST:PORT, --dir, --cell NAME, $RIALTO_HOME, $RIALTO_CELL, the mounted tree of the
    current directory, the cell's directory of this machine, /etc/rialto/cell, the only login
    without a mount.
    At the socket of this machine's server they act as the superuser, over the network as the
    user of 'rialto login'. 'rialto status' shows the way.

EXIT CODES
    0  done
    1  failed, or doctor found something that must be mended
    2  wrong usage
    3  nothing there: no cell, no mount, or its server does not run

ENVIRONMENT
    RIALTO_HOME   the cell's directory, where --dir is not given
    RIALTO_CELL   the cell's name, where neither --cell nor a directory is given
    RIALTO_TOKENS the directory of logins without a mount
    RIALTO_LOG    the log level: error, warn, info (default), debug or trace, or that of one
                  part, such as vice=debug";

/// One file system for a whole organisation: one tree on every machine, with coherent caches.
#[derive(Parser, Debug)]
#[command(
    name = "rialto",
    version,
    after_help = AFTER_HELP,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of `rialto`.
#[derive(Subcommand, Debug)]
pub enum Command {
    Up(up::Up),
    Down(down::Down),
    Status(status::StatusCommand),
    Server(server::ServerCommand),
    Mount(mount::MountCommand),
    Umount(umount::Umount),
    Keeper(keeper::KeeperCommand),
    Vos(vos::Vos),
    Fs(fs::Fs),
    Pts(pts::Pts),
    Ls(files::Ls),
    Cat(files::Cat),
    Cp(files::Cp),
    Mkdir(files::Mkdir),
    Rm(files::Rm),
    Gzip(files::Gzip),
    Fence(rules::FenceCommand),
    Admin(rules::Admin),
    Audit(audit::Audit),
    Login(logins::Login),
    Logout(logins::Logout),
    Tokens(logins::Tokens),
    Passwd(logins::Passwd),
    Pagsh(pagsh::Pagsh),
    Keys(keys::Keys),
    Cell(cell::CellCommand),
    ImportAfs(import_afs::ImportAfs),
    ExportAfs(export_afs::ExportAfs),
    Backup(backup::Backup),
    Restore(restore::RestoreCommand),
    Bench(bench::Bench),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
    Man(man::Man),
    #[command(hide = true, name = "mount.rialto")]
    MountHelper(mount_helper::MountHelper),
    #[command(hide = true)]
    Forerunner(readdir_helper::ReaddirCommand),
}

impl Command {
    /// The command's name, as typed.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Up(_) => "up",
            Command::Status(_) => "status",
            Command::Server(_) => "server",
            Command::Down(_) => "down",
            Command::Mount(_) => "mount",
            Command::Umount(_) => "umount",
            Command::Keeper(_) => "keeper",
            Command::Vos(_) => "vos",
            Command::Fs(_) => "fs",
            Command::Pts(_) => "pts",
            Command::Ls(_) => "ls",
            Command::Cat(_) => "cat",
            Command::Cp(_) => "cp",
            Command::Mkdir(_) => "mkdir",
            Command::Rm(_) => "rm",
            Command::Gzip(_) => "gzip",
            Command::Fence(_) => "fence",
            Command::Admin(_) => "admin",
            Command::Audit(_) => "audit",
            Command::Login(_) => "login",
            Command::Logout(_) => "logout",
            Command::Tokens(_) => "tokens",
            Command::Passwd(_) => "passwd",
            Command::Pagsh(_) => "pagsh",
            Command::Keys(_) => "keys",
            Command::Cell(_) => "cell",
            Command::ImportAfs(_) => "import-afs",
            Command::ExportAfs(_) => "export-afs",
            Command::Backup(_) => "backup",
            Command::Restore(_) => "restore",
            Command::Bench(_) => "bench",
            Command::Doctor(_) => "doctor",
            Command::Completions(_) => "completions",
            Command::Man(_) => "man",
            Command::MountHelper(_) => "mount.rialto",
            Command::Forerunner(_) => "forerunner",
        }
    }

    /// Whether the command ends when its output has no reader any more. The others serve, or have
    /// something to take away at their end.
    pub(crate) fn ends_without_reader(&self) -> bool {
        match self {
            Command::Up(_)
            | Command::Down(_)
            | Command::Status(_)
            | Command::Umount(_)
            | Command::Vos(_)
            | Command::Fs(_)
            | Command::Pts(_)
            | Command::Ls(_)
            | Command::Cat(_)
            | Command::Cp(_)
            | Command::Mkdir(_)
            | Command::Rm(_)
            | Command::Gzip(_)
            | Command::Fence(_)
            | Command::Admin(_)
            | Command::Audit(_)
            | Command::Login(_)
            | Command::Logout(_)
            | Command::Tokens(_)
            | Command::Passwd(_)
            | Command::Keys(_)
            | Command::Cell(_)
            | Command::ImportAfs(_)
            | Command::ExportAfs(_)
            | Command::Restore(_)
            | Command::Doctor(_)
            | Command::Completions(_)
            | Command::Man(_) => true,
            Command::Server(_)
            | Command::Mount(_)
            | Command::MountHelper(_)
            | Command::Keeper(_)
            | Command::Forerunner(_)
            | Command::Pagsh(_)
            | Command::Backup(_)
            | Command::Bench(_) => false,
        }
    }

    /// Runs the command.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Command::Up(up) => up.run(),
            Command::Status(status) => status.run(),
            Command::Server(server) => server.run(),
            Command::Down(down) => down.run(),
            Command::Mount(mount) => mount.run(),
            Command::Umount(umount) => umount.run(),
            Command::Keeper(keeper) => keeper.run(),
            Command::Vos(vos) => vos.run(),
            Command::Fs(fs) => fs.run(),
            Command::Pts(pts) => pts.run(),
            Command::Ls(ls) => ls.run(),
            Command::Cat(cat) => cat.run(),
            Command::Cp(cp) => cp.run(),
            Command::Mkdir(mkdir) => mkdir.run(),
            Command::Rm(rm) => rm.run(),
            Command::Gzip(gzip) => gzip.run(),
            Command::Fence(fence) => fence.run(),
            Command::Admin(admin) => admin.run(),
            Command::Audit(audit) => audit.run(),
            Command::Login(login) => login.run(),
            Command::Logout(logout) => logout.run(),
            Command::Tokens(tokens) => tokens.run(),
            Command::Passwd(passwd) => passwd.run(),
            Command::Pagsh(pagsh) => pagsh.run(),
            Command::Keys(keys) => keys.run(),
            Command::Cell(cell) => cell.run(),
            Command::ImportAfs(import) => import.run(),
            Command::ExportAfs(export) => export.run(),
            Command::Backup(backup) => backup.run(),
            Command::Restore(restore) => restore.run(),
            Command::Bench(bench) => bench.run(),
            Command::Doctor(doctor) => doctor.run(),
            Command::Completions(completions) => completions.run(),
            Command::Man(man) => man.run(),
            Command::MountHelper(helper) => helper.run(),
            Command::Forerunner(forerunner) => forerunner.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn examples(command: &clap::Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let own = help.lines().filter(|line| line.starts_with("    rialto ")).map(str::to_owned);
        own.chain(command.get_subcommands().flat_map(examples)).collect()
    }

    /// The cell that `rialto up` makes has the partition `vicep`.
    #[test]
    fn examples_name_partitions_that_new_cells_have() {
        let all = examples(&Cli::command());
        assert!(all.len() > 100, "{all:?}");
        // Remarks stand behind two spaces.
        let typed = |line: &&String| line.trim().split("  ").next().unwrap_or_default().to_owned();
        let is_other = |word: &str| ["a", "b", "/vicepa", "vicepa"].contains(&word);
        let about =
            |line: &&String| ["rialto vos", "rialto admin"].iter().any(|it| line.contains(it));
        let others: Vec<&String> = all
            .iter()
            .filter(about)
            .filter(|line| typed(line).split_whitespace().any(is_other))
            .collect();
        assert!(others.is_empty(), "{others:#?}");
    }

    #[test]
    fn commands_are_consistent_and_have_examples() {
        let mut cli = Cli::command();
        cli.build();
        cli.clone().debug_assert();
        for command in cli
            .get_subcommands()
            .filter(|command| command.get_name() != "help" && !command.is_hide_set())
        {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("EXAMPLES"), "{}", command.get_name());
            assert!(command.get_about().is_some(), "{}", command.get_name());
            let widest = help.lines().max_by_key(|line| line.chars().count()).unwrap_or_default();
            assert!(
                widest.chars().count() <= 92,
                "{}: a terminal would break {widest:?}",
                command.get_name()
            );
        }
    }
}
