//! The one binary's commands.
//!
//! This file turns what was typed into a call of one command and its outcome into an exit code; a
//! command is one file below `commands/`. What commands share with `bench` is in crate `local`, and
//! what serves and mounts files is in the crates that they put together. Only the program's main,
//! crate `rialto`, depends on this crate.

mod cells;
mod commands;
mod doctor;
mod dynroot;
mod joining;
mod keeping;
mod logging;
mod scrubbing;
mod security;
mod sessions;
mod stopping;
mod transport;
mod unmounting;

use std::process::ExitCode;

use clap::Parser;
use commands::Cli;

/// Runs the command that was typed.
pub fn run() -> ExitCode {
    let cli = Cli::parse_from(commands::typed(std::env::args_os()));
    let name = cli.command.name();
    match cli.command.run() {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("rialto {name}: {failure}");
            failure.exit_code()
        }
    }
}
