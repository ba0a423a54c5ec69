//! The one binary: every command of Rialto.
//!
//! This file turns what was typed into a call of one command and its outcome into an exit code; a command is one
//! file below `commands/`. What they share: `cell` (the cell's directory), `daemon` (processes that outlive the
//! command), `mounts` (what the kernel has mounted), `failure` (how an error reads), `show` (tables and JSON).

mod ask;
mod bench;
mod cell;
mod commands;
mod daemon;
mod doctor;
mod failure;
mod logging;
mod mounts;
mod scrubbing;
mod show;
mod stopping;
mod transport;
mod unmounting;

use std::process::ExitCode;

use clap::Parser;
use commands::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let name = cli.command.name();
    match cli.command.run() {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("rialto {name}: {failure}");
            failure.exit_code()
        }
    }
}
