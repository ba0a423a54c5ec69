//! The one binary's commands.
//!
//! This file parses the command line, runs one command and turns its outcome into an exit code; a
//! command is one file below `commands/`. Code that commands share with `bench` is in crate
//! `local`, and the crates that serve and mount files are put together here. Only the program's
//! main, crate `rialto`, depends on this crate.
//!
//! A function fails with a [`Failure`](local::failure::Failure): the step, the reason and the
//! remedy. Only errors of other kinds are documented at the function.

mod afs_databases;
mod backup_record;
mod cell_file;
mod cells;
mod certifying;
mod commands;
mod control;
mod dialing;
mod doctor;
mod dynroot;
mod ending;
mod etcd_place;
mod evacuating;
mod joining;
mod keeper;
mod keeping;
mod levels;
mod logging;
mod mount_words;
mod partitions;
mod predecessor;
mod quiet_line;
mod reach;
mod registry;
mod scrubbing;
mod security;
mod sessions;
mod stopping;
mod supervisor;
mod tokens;
mod transport;
mod unmounting;
mod withdrawn;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use commands::{Cli, ProgramExit};
use local::failure::{Doing, WRONG_USAGE};

/// Runs the command of the command line.
pub fn run() -> ExitCode {
    mem::ending::end_without_cleaning_up();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let program = arguments.first().cloned();
    let end = |words: &[OsString], code: ExitCode| {
        let of_program = ProgramExit::of(program.as_deref(), words);
        of_program.map_or(code, |exit| exit.code(code))
    };
    let typed = match commands::typed(arguments.iter().cloned()) {
        Ok(typed) => typed,
        Err(failure) => {
            eprintln!("rialto: {failure}");
            return end(&arguments, failure.exit_code());
        }
    };
    match Cli::try_parse_from(&typed) {
        Ok(cli) => end(&typed, run_command(cli)),
        Err(refused) if refused.use_stderr() => {
            // Nothing remains that could report that the standard error is gone.
            let _ = refused.print();
            end(&typed, ExitCode::from(WRONG_USAGE))
        }
        // The help, or the version.
        Err(shown) => shown.exit(),
    }
}

/// The path of this program, which an upgrade may have replaced.
fn own_program() -> std::io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    // The kernel says so of a file that was replaced.
    let path = program.to_string_lossy();
    Ok(path.strip_suffix(" (deleted)").map_or(program.clone(), PathBuf::from))
}

fn run_command(cli: Cli) -> ExitCode {
    let name = cli.command.name();
    let ready = if cli.command.ends_without_reader() {
        mem::pipe::end_without_reader().doing(|| "preparing for the end of a reader".to_owned())
    } else {
        Ok(())
    };
    match ready.and_then(|()| cli.command.run()) {
        Ok(code) => code,
        Err(failure) => {
            let of = if name.starts_with("mount.") { "" } else { "rialto " };
            eprintln!("{of}{name}: {failure}");
            failure.exit_code()
        }
    }
}
