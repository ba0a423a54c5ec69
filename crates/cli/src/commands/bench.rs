//! `rialto bench`: measures a mount against the disk below it, a plain pass-through, and its peers.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::{BenchOrder, Helper, Missing, Scenario};
use clap::Args;
use local::failure::Failure;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto bench --quick
    rialto bench --list
    rialto bench --scenario create-5000 --scenario unlink --runs 9
    rialto bench --against ~/bin/passthrough_ll --results bench/RESULTS.md
    rialto bench --peer gluster --scenario unpack
    rialto bench --null mount --null server --scenario create-5000
    rialto bench --json | jq -r '[.scenario, .ratio] | @tsv'

SIDES
  rialto is a cell of its own below --dir, or what --on names; native is a directory of the
  disk that it lies on. --against adds a program that passes everything through, or a
  mounted directory; --peer one of bench/peers/; --null the same mount with
  layers missing; tcp is a bare stream between two processes, for the remote scenarios.

STATES
  Warm is just touched, first is mounted anew; cold is with servers started anew and the
  page cache dropped (root only).

JSON
  One object a line: scenario, unit, better, rialto, native, ratio, runs, spread, and SIDE
  and ratio_SIDE for each other side. Figures are medians over the runs; ratios are rialto
  divided by the other; spread is, for each side, (largest - smallest) / median. per and
  cost: for each side and GiB or op, processor time, context switches, system calls, FUSE
  requests in all and by kind, and the growth of the mount's memory. over_limit: sides that
  exceeded their time, if any.

All its files are removed at the end, also after Ctrl-C. --clean removes those of a killed
measurement.

EXIT CODES
    0  measured
    1  something failed, or Ctrl-C was pressed; the figures so far are reported";

/// Measures a mount against the disk below it.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Bench {
    /// Measure only this one; may be given several times [default: all but the long ones].
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    scenario: Vec<Scenario>,
    /// List the scenarios, one a line.
    #[arg(long)]
    list: bool,
    /// Measure smaller amounts, in some minutes.
    #[arg(long)]
    quick: bool,
    /// Measure the scenarios with a million files too.
    #[arg(long, conflicts_with = "quick")]
    long: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
    /// Rounds [default: 5, with --quick 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    runs: Option<u16>,
    /// Where to measure: the disk below this directory is the native side [default: rialto-bench
    /// below $XDG_CACHE_HOME or ~/.cache]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Compare with this program too (libfuse's passthrough_ll; bench/peers/passthrough.sh builds
    /// it), or with this mounted directory; may be given several times.
    #[arg(long, value_name = "PROGRAM|DIR")]
    against: Vec<PathBuf>,
    /// Compare with this file system too, set up by its script in bench/peers; may be given several
    /// times.
    #[arg(long, value_name = "NAME")]
    peer: Vec<String>,
    /// Directory of the peers' scripts [default: bench/peers here or above]
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Compare with the same mount without what is below it (mount), or without wire, server and
    /// disk (server).
    #[arg(long, value_name = "LAYER")]
    null: Vec<Missing>,
    /// Measure on an ext4 of its own, in a file below --dir [default where the disk waits for TRIM
    /// on every removal, as root]
    #[arg(long = "loop", overrides_with = "no_loop")]
    on_loop: bool,
    /// Measure on the disk as it is.
    #[arg(long)]
    no_loop: bool,
    /// How long a peer may take for one scenario in one round, or to prepare its files; then it is
    /// left out of that scenario.
    #[arg(
        long, value_name = "SECONDS", default_value_t = 180,
        value_parser = clap::value_parser!(u64).range(1..),
    )]
    limit: u64,
    /// Do not count system calls and FUSE requests, which takes one more round.
    #[arg(long)]
    no_count: bool,
    /// Write a page with the results and this machine's kind.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Measure this mounted directory, in place of a cell of its own.
    #[arg(long, value_name = "DIR")]
    on: Option<PathBuf>,
    /// Instead of comparing, record with perf where the mount and the server spend their time, into
    /// files in this directory.
    #[arg(
        long, value_name = "DIR", conflicts_with_all = ["against", "peer", "null", "results", "on"],
    )]
    profile: Option<PathBuf>,
    /// Remove the files of killed measurements below --dir.
    #[arg(long)]
    clean: bool,
    /// Run as a helper process of a measurement.
    #[arg(long, hide = true)]
    helper: Option<Helper>,
}

impl Bench {
    /// # Errors
    /// The failure of the measurement.
    pub fn run(self) -> Result<ExitCode, Failure> {
        self.order().run().map(|()| ExitCode::SUCCESS)
    }

    fn order(self) -> BenchOrder {
        BenchOrder {
            scenario: self.scenario,
            list: self.list,
            quick: self.quick,
            long: self.long,
            json: self.json,
            runs: self.runs,
            dir: self.dir,
            against: self.against,
            peer: self.peer,
            peers: self.peers,
            null: self.null,
            on_loop: self.on_loop,
            no_loop: self.no_loop,
            limit: self.limit,
            no_count: self.no_count,
            results: self.results,
            on: self.on,
            profile: self.profile,
            clean: self.clean,
            helper: self.helper,
        }
    }
}
