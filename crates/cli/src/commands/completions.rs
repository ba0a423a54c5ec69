//! `rialto completions`: completion scripts for shells.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use local::failure::Failure;

use super::Cli;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto completions bash > ~/.local/share/bash-completion/completions/rialto
    rialto completions zsh > ~/.zfunc/_rialto
    rialto completions fish > ~/.config/fish/completions/rialto.fish";

/// Prints the completions for a shell.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        clap_complete::generate(self.shell, &mut Cli::command(), "rialto", &mut std::io::stdout());
        Ok(ExitCode::SUCCESS)
    }
}
