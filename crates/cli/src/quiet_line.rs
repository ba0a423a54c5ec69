//! Secrets that people type: a line from the terminal without echo.

use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;

use local::failure::{Doing, Failure};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::logging;

/// Reads a line from standard input: with a prompt, and if that is a terminal, without echo. Empty:
/// there is none.
pub(crate) fn read(
    prompt: Option<&str>,
    what: fn() -> String,
) -> Result<Zeroizing<String>, Failure> {
    logging::protect_memory();
    let stdin = std::io::stdin();
    let mut line = Zeroizing::new(String::new());
    if let Some(prompt) = prompt.filter(|_| stdin.is_terminal()) {
        eprint!("{prompt}");
        let _ = std::io::stderr().flush();
        let before = tcgetattr(&stdin).doing(what)?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Flush, &quiet).doing(what)?;
        let read = stdin.lock().read_line(&mut line);
        tcsetattr(&stdin, OptionalActions::Flush, &before).doing(what)?;
        eprintln!();
        read.doing(what)?;
    } else {
        stdin.lock().read_line(&mut line).doing(what)?;
    }
    trim(&mut line);
    Ok(line)
}

/// The first line of a file.
pub(crate) fn read_file(path: &Path) -> Result<Zeroizing<String>, Failure> {
    logging::protect_memory();
    let what = || format!("reading the passphrase in {}", path.display());
    let text = Zeroizing::new(std::fs::read_to_string(path).doing(what)?);
    let mut line = Zeroizing::new(text.lines().next().unwrap_or_default().to_owned());
    trim(&mut line);
    if line.is_empty() {
        return Err(Failure::new(what(), "its first line is empty"));
    }
    Ok(line)
}

fn trim(line: &mut String) {
    let length = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(length);
}
