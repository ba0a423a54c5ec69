//! `rialto gzip`: compresses files of a cell, or here, as gzip does; also called `rialto-gzip`.
//!
//! It reads ahead and writes behind, so that it computes while files move.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use clap::Args;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use local::failure::{Doing, Failure};
use types::Kind;

use super::Cells;
use super::sides::{Outcome, Side, Writer};
use crate::reach::ReachOptions;

const HELP: &str = "\
EXAMPLES
    rialto gzip rialto:///data/results.csv           becomes results.csv.gz
    rialto gzip -dk rialto://example.org/data/results.csv.gz
    rialto gzip -9c rialto:///data/a > a.gz
    rialto gzip -t rialto:///data/a.gz               is it whole?

The options are gzip's, and so is the format. Without FILE, or with -, standard input is
compressed to standard output. A link to this program with the name rialto-gzip is the same
command.

EXIT CODES
    0  done
    1  a file was not compressed, or is damaged; the others are done";

/// Compresses files of a cell, or here, as gzip does.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Gzip {
    /// Files: rialto://CELL/PATH, or files here.
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    /// To standard output; the files stay.
    #[arg(short = 'c', long, alias = "to-stdout")]
    stdout: bool,
    /// Decompresses.
    #[arg(short, long, alias = "uncompress")]
    decompress: bool,
    /// Over files that exist.
    #[arg(short, long)]
    force: bool,
    /// The files stay.
    #[arg(short, long)]
    keep: bool,
    /// Reads compressed files to their end, and writes nothing.
    #[arg(short, long, conflicts_with_all = ["stdout", "decompress"])]
    test: bool,
    /// One line for each file.
    #[arg(short, long)]
    verbose: bool,
    /// The name of the original is not kept in the compressed file.
    #[arg(short, long)]
    no_name: bool,
    #[command(flatten)]
    level: Level,
    #[command(flatten)]
    reach: ReachOptions,
}

/// How hard to compress; the last one counts.
#[derive(Args, Debug)]
struct Level {
    /// Fast.
    #[arg(short = '1', long = "fast")]
    one: bool,
    #[arg(short = '2', hide = true)]
    two: bool,
    #[arg(short = '3', hide = true)]
    three: bool,
    #[arg(short = '4', hide = true)]
    four: bool,
    #[arg(short = '5', hide = true)]
    five: bool,
    /// As usual.
    #[arg(short = '6')]
    six: bool,
    #[arg(short = '7', hide = true)]
    seven: bool,
    #[arg(short = '8', hide = true)]
    eight: bool,
    /// Small.
    #[arg(short = '9', long = "best")]
    nine: bool,
}

impl Level {
    /// The hardest one that was given.
    fn compression(&self) -> Compression {
        let given = [
            self.one, self.two, self.three, self.four, self.five, self.six, self.seven, self.eight,
            self.nine,
        ];
        let level = given.iter().rposition(|given| *given).map_or(6, |at| at + 1);
        Compression::new(level as u32)
    }
}

/// Where bytes go.
enum Out {
    File(Writer),
    Standard(io::Stdout),
    Nowhere,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Out::File(writer) => writer.write_all(bytes).map(|()| bytes.len()),
            Out::Standard(out) => out.write(bytes),
            Out::Nowhere => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Out::Standard(out) => out.flush(),
            Out::File(_) | Out::Nowhere => Ok(()),
        }
    }
}

impl Out {
    fn finish(self) -> io::Result<()> {
        match self {
            Out::File(writer) => writer.finish(),
            Out::Standard(mut out) => out.flush(),
            Out::Nowhere => Ok(()),
        }
    }
}

const SUFFIX: &str = ".gz";

impl Gzip {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut cells = Cells::new(&self.reach);
        let mut failed = Vec::new();
        if self.files.is_empty() {
            failed.extend(self.standard_input().err());
        }
        for file in &self.files {
            let done = match &**file {
                "-" => self.standard_input(),
                file => self.file(file, &mut cells),
            };
            failed.extend(done.err());
        }
        let last = failed.pop();
        for failure in failed {
            eprintln!("{failure}");
        }
        last.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    fn standard_input(&self) -> Outcome<()> {
        let out = if self.test { Out::Nowhere } else { Out::Standard(io::stdout()) };
        let doing = || "standard input".to_owned();
        self.pass(io::stdin().lock(), out, "").doing(doing)?.finish().doing(doing)
    }

    fn file(&self, text: &str, cells: &mut Cells<'_>) -> Outcome<()> {
        let from = Side::of(text, cells)?;
        let doing = || {
            let what = if self.undoes() { "decompressing" } else { "compressing" };
            format!("{what} {}", from.text())
        };
        let Some(found) = from.find(true)? else {
            return Err(Failure::new(doing(), "there is no such file"));
        };
        if found.kind != Kind::File {
            return Err(Failure::new(doing(), "it is no plain file"));
        }
        let stays = self.stdout || self.test;
        let to = match self.target(text) {
            _ if stays => None,
            Ok(to) => Some(Side::of(&to, cells)?),
            Err(why) => return Err(Failure::new(doing(), why)),
        };
        let out = match &to {
            None if self.test => Out::Nowhere,
            None => Out::Standard(io::stdout()),
            Some(to) => {
                if !self.force && to.find(false)?.is_some() {
                    return Err(Failure::new(doing(), format!("{} exists", to.text()))
                        .mend("-f writes over it"));
                }
                Out::File(to.writer(found.mode & 0o777)?)
            }
        };
        let name = from.name().map(|name| name.to_string_lossy().into_owned());
        let passed = self
            .pass(from.reader()?, out, name.as_deref().unwrap_or_default())
            .and_then(Out::finish);
        if let Err(error) = passed {
            // A part of a file would look like all of it.
            if let Some(to) = &to {
                to.remove()?;
            }
            return Err(Failure::new(doing(), error));
        }
        if !stays && !self.keep {
            from.remove()?;
        }
        if self.verbose {
            let to = to.map_or_else(String::new, |to| format!(" -> {}", to.text()));
            eprintln!("{}{to}", from.text());
        }
        Ok(())
    }

    fn undoes(&self) -> bool {
        self.decompress || self.test
    }

    /// The name of the file to write.
    fn target(&self, from: &str) -> Result<String, &'static str> {
        match (self.decompress, from.strip_suffix(SUFFIX)) {
            (true, Some(to)) if !to.is_empty() && !to.ends_with('/') => Ok(to.to_owned()),
            (true, _) => Err("its name does not end with .gz"),
            (false, Some(_)) if !self.force => Err("its name ends with .gz already"),
            (false, _) => Ok(format!("{from}{SUFFIX}")),
        }
    }

    fn pass(&self, mut from: impl Read, mut to: Out, name: &str) -> io::Result<Out> {
        let mut buffer = vec![0; 1 << 20];
        if self.undoes() {
            copy(&mut MultiGzDecoder::new(from), &mut to, &mut buffer)?;
            return Ok(to);
        }
        let header = match name {
            "" => GzBuilder::new(),
            _ if self.no_name => GzBuilder::new(),
            name => GzBuilder::new().filename(name.as_bytes()),
        };
        let mut encoder: GzEncoder<Out> = header.write(to, self.level.compression());
        copy(&mut from, &mut encoder, &mut buffer)?;
        encoder.finish()
    }
}

fn copy(from: &mut impl Read, to: &mut impl Write, buffer: &mut [u8]) -> io::Result<()> {
    loop {
        match from.read(buffer) {
            Ok(0) => return Ok(()),
            Ok(bytes) => to.write_all(&buffer[..bytes])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
