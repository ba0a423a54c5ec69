//! `rialto man`: the manual pages, made from the same text as `--help`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use local::failure::{Doing, Failure};

use super::Cli;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto man | man -l -                    read the main page now
    rialto man ~/.local/share/man/man1       write all pages: rialto.1, rialto-up.1, ...";

/// Prints the main manual page, or writes all of them into a directory.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Man {
    /// The directory of the pages; made if it does not exist.
    dir: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.dir {
            Some(dir) => {
                std::fs::create_dir_all(&dir).doing(|| format!("making {}", dir.display()))?;
                let written = clap_mangen::generate_to(Cli::command(), &dir);
                written.doing(|| format!("writing manual pages to {}", dir.display()))?;
            }
            None => {
                let page = clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout());
                page.doing(|| "printing the manual page".to_owned())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_gets_a_page_with_its_examples() {
        let dir = tempfile::tempdir().unwrap();
        Man { dir: Some(dir.path().join("man1")) }.run().unwrap();
        let page = std::fs::read_to_string(dir.path().join("man1/rialto-doctor.1")).unwrap();
        assert!(page.contains("EXAMPLES") && page.contains("rialto doctor"), "{page}");
        assert!(dir.path().join("man1/rialto.1").exists());
    }
}
