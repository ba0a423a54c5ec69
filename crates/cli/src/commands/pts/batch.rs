//! `pts interactive` and `source`: one command a line, in one session.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};
use local::failure::{Doing, Failure};

use super::Verb;
use super::client::PtsClient;
use crate::commands::{Cli, Command, typed};

const INTERACTIVE_HELP: &str = "\
EXAMPLES
    rialto pts interactive < FILE
    rialto pts in                              asks for one command after the other

A line is a command without the word pts: 'createuser joe'. Double quotes keep spaces in a
word. A refusal is reported, and the next line is read; the exit code is 1 then. The end of
the input or 'quit' ends it. Options of the cell are those of the command itself.";

const SOURCE_HELP: &str = "\
EXAMPLES
    rialto pts source FILE

The lines are as in 'rialto pts interactive'.";

const SLEEP_HELP: &str = "\
EXAMPLES
    sleep 5                                    a line of 'rialto pts source FILE'";

/// Files may name others; so deep at most, since a file may name itself.
const SOURCES_MAX: usize = 16;

/// Reads commands from the standard input.
#[derive(Args, Debug)]
#[command(after_help = INTERACTIVE_HELP)]
pub struct Interactive {}

/// Reads commands from a file.
#[derive(Args, Debug)]
#[command(after_help = SOURCE_HELP)]
pub struct Source {
    /// The file.
    #[arg(long, value_name = "FILE", required_unless_present = "word")]
    file: Option<PathBuf>,
    /// FILE, instead of the option.
    #[arg(value_name = "FILE", conflicts_with = "file")]
    word: Option<PathBuf>,
}

/// Waits, between two commands of a file.
#[derive(Args, Debug)]
#[command(after_help = SLEEP_HELP)]
pub struct Sleep {
    /// How many seconds.
    #[arg(long, value_name = "SECONDS", required_unless_present = "word")]
    delay: Option<u64>,
    /// SECONDS, instead of the option.
    #[arg(value_name = "SECONDS", conflicts_with = "delay")]
    word: Option<u64>,
}

/// How a sequence of commands goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchFlow {
    Continues,
    Quits,
}

/// The commands of a batch, which may name further files.
pub(super) struct Batch<'c> {
    client: &'c PtsClient,
    depth: usize,
    failed: u64,
}

impl<'c> Batch<'c> {
    pub fn new(client: &'c PtsClient) -> Self {
        Batch { client, depth: 0, failed: 0 }
    }

    /// Runs one verb, with the commands that it reads.
    ///
    /// # Errors
    /// The verb's; at the outermost level, that commands of a batch failed.
    pub fn run(&mut self, verb: Verb) -> Result<BatchFlow, Failure> {
        match verb {
            Verb::Quit => return Ok(BatchFlow::Quits),
            Verb::Sleep(sleep) => {
                let secs = sleep.delay.or(sleep.word).unwrap_or(0);
                std::thread::sleep(Duration::from_secs(secs));
            }
            Verb::Interactive(_) => {
                let input = std::io::stdin();
                let prompt = if input.is_terminal() { "pts> " } else { "" };
                self.lines(input.lock(), prompt)?;
            }
            Verb::Source(source) => {
                let path = source.file.or(source.word).unwrap_or_default();
                let what = || format!("reading commands from {}", path.display());
                if self.depth == SOURCES_MAX {
                    return Err(Failure::new(what(), "too many files name one another"));
                }
                let file = std::fs::File::open(&path).doing(what)?;
                self.lines(BufReader::new(file), "")?;
            }
            verb => verb.run(self.client)?,
        }
        if self.depth == 0 && self.failed > 0 {
            return Err(Failure::new("running the commands", format!("{} failed", self.failed))
                .mend("the lines above have the reasons"));
        }
        Ok(BatchFlow::Continues)
    }

    fn lines(&mut self, input: impl BufRead, prompt: &str) -> Result<(), Failure> {
        let doing = || "reading commands".to_owned();
        let ask = || {
            print!("{prompt}");
            std::io::stdout().flush().doing(doing)
        };
        self.depth += 1;
        ask()?;
        for line in input.lines() {
            match self.line(&line.doing(doing)?) {
                Ok(BatchFlow::Quits) => break,
                Ok(BatchFlow::Continues) => {}
                Err(failure) => {
                    eprintln!("rialto pts: {failure}");
                    self.failed += 1;
                }
            }
            ask()?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<BatchFlow, Failure> {
        let words = words(line)?;
        if words.is_empty() {
            return Ok(BatchFlow::Continues);
        }
        let all = ["rialto", "pts"].into_iter().map(str::to_owned).chain(words);
        let parsed = Cli::try_parse_from(typed(all.map(Into::into))?);
        match parsed.map(|cli| cli.command) {
            Ok(Command::Pts(pts)) => self.run(pts.verb),
            Ok(_) => Err(Failure::new("reading a command", "it is no command of pts")),
            Err(error) if !error.use_stderr() => {
                print!("{error}");
                Ok(BatchFlow::Continues)
            }
            Err(error) => Err(Failure::new(format!("reading {line:?}"), error.to_string().trim())),
        }
    }
}

/// The words of a line; double quotes keep spaces, as OpenAFS has it.
fn words(line: &str) -> Result<Vec<String>, Failure> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), None::<String>, false);
    for letter in line.chars() {
        match letter {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            space if space.is_whitespace() && !is_quoted => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    if is_quoted {
        return Err(Failure::new(format!("reading {line:?}"), "a quote has no end"));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_spaces_and_need_an_end() {
        let of = |line: &str| words(line).ok();
        let owned = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(of("  cu joe\t-id 5 "), owned(&["cu", "joe", "-id", "5"]));
        assert_eq!(of("rename \"a b\"c \"\""), owned(&["rename", "a bc", ""]));
        assert_eq!(of("   "), owned(&[]));
        assert_eq!(of("cu \"joe"), None);
    }
}
