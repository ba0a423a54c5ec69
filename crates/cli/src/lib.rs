//! The one binary's commands.
//!
//! This file parses the command line, runs one command and turns its outcome into an exit code; a
//! command is one file below `commands/`. Code that commands share with `bench` is in crate
//! `local`, and the crates that serve and mount files are put together here. Only the program's
//! main, crate `rialto`, depends on this crate.
//!
//! A function fails with a [`Failure`](local::failure::Failure): the step, the reason and the
//! remedy. Only errors of other kinds are documented at the function.

mod backup_record;
mod cells;
mod certifying;
mod commands;
mod control;
mod doctor;
mod dynroot;
mod ending;
mod joining;
mod keeper;
mod keeping;
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

use std::process::ExitCode;

use clap::Parser;
use commands::Cli;
use local::failure::Doing;

/// Runs the command of the command line.
pub fn run() -> ExitCode {
    let typed = match commands::typed(std::env::args_os()) {
        Ok(typed) => typed,
        Err(failure) => {
            eprintln!("rialto: {failure}");
            return failure.exit_code();
        }
    };
    let cli = Cli::parse_from(typed);
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
