//! `rialto cat`: files of a cell to standard output.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use local::failure::{Doing, Failure};
use rialto_client::{DirectFile, FileReader};

use super::{CellPath, Cells, failure};
use crate::reach::ReachOptions;

const HELP: &str = "\
EXAMPLES
    rialto cat /home/alice/letter.txt
    rialto cat rialto://example.org/data/large.csv | head
    rialto cat /data/a /data/b > both

EXIT CODES
    0  done
    1  a file cannot be read; the others are shown
    3  no cell there";

/// Shows files of a cell, without a mount.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Cat {
    /// Files: rialto://CELL/PATH, or a path in the cell that other commands ask.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    reach: ReachOptions,
}

impl Cat {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut cells = Cells::new(&self.reach);
        let mut out = std::io::stdout().lock();
        let mut failed = Vec::new();
        for file in &self.files {
            let place = CellPath::of_argument(file);
            let cell = cells.of(&place)?;
            let reader =
                DirectFile::open(&cell, &place.path).and_then(|file| FileReader::new(&cell, file));
            let mut reader = match reader {
                Ok(reader) => reader,
                Err(error) => {
                    failed.push(failure("reading", &place, error));
                    continue;
                }
            };
            loop {
                let bytes = match reader.chunk() {
                    Ok([]) => break,
                    Ok(chunk) => {
                        out.write_all(chunk).doing(|| format!("writing out {place}"))?;
                        chunk.len()
                    }
                    Err(error) => {
                        failed.push(failure("reading", &place, error));
                        break;
                    }
                };
                reader.consume(bytes);
            }
        }
        out.flush().doing(|| "writing to standard output".to_owned())?;
        let last = failed.pop();
        for failure in failed {
            eprintln!("{failure}");
        }
        last.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}
