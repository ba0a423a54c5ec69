//! Runs seeds of the simulation: `sim --seeds 0..10000`, or one seed with a trace of all events:
//! `sim --seed 17 --trace`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use sim::{Mutation, RunOptions, RunOutcome};

/// Seeded simulation of a cell under faults.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  sim --seeds 0..10000\n  sim --seed 17 --trace\n  sim --seeds \
        0..200 --mutation no-grace\n  sim --kind volumes --seeds 0..200 --mutate skip-hold"
)]
struct Arguments {
    /// Run this one seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run the seeds from A up to, but without, B.
    #[arg(long, value_name = "A..B", value_parser = range, default_value = "0..1000")]
    seeds: (u64, u64),
    /// Print every event.
    #[arg(long)]
    trace: bool,
    /// Break a rule on purpose.
    #[arg(long, value_enum)]
    mutation: Option<Mutation>,
    /// Do one step of the volume operations wrongly on purpose.
    #[arg(long, value_enum, conflicts_with = "mutation")]
    mutate: Option<sim::cell::StepMutation>,
    /// Break a rule of standbys on purpose.
    #[arg(long, value_enum, conflicts_with_all = ["mutation", "mutate"])]
    bend: Option<sim::takeover::TakeoverMutation>,
    /// The part of the system to simulate.
    #[arg(long, value_enum, default_value = "both")]
    kind: Kind,
    /// Number of sites of a release.
    #[arg(long, default_value = "240", value_parser = clap::value_parser!(u16).range(2..250))]
    sites: u16,
    /// Continue after a seed that fails.
    #[arg(long)]
    keep_going: bool,
}

/// The part of the system that a run simulates.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Clients of one server.
    Sessions,
    /// Volumes of several servers.
    Volumes,
    /// Sessions and volumes, for each seed.
    Both,
    /// A release to many sites.
    Release,
    /// A volume with standbys.
    Standbys,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let parts =
        text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    parts.filter(|(from, to)| from < to).ok_or_else(|| "expected A..B with A below B".to_owned())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (from, to) = arguments.seed.map_or(arguments.seeds, |seed| (seed, seed + 1));
    let options = RunOptions { mutation: arguments.mutation, trace: arguments.trace };
    if arguments.kind == Kind::Release {
        return run_releases(from..to, usize::from(arguments.sites), arguments.keep_going);
    }
    if arguments.kind == Kind::Standbys {
        return run_standbys(from..to, &arguments);
    }
    let begun = Instant::now();
    let mut failed = 0_u64;
    let mut totals = sim::history::SessionTally::default();
    let mut volumes = sim::cell::VolumeTally::default();
    let both = arguments.kind == Kind::Both;
    for seed in from..to {
        if both && options.mutation.is_none() || arguments.kind == Kind::Volumes {
            failed += u64::from(run_volumes(seed, options.trace, arguments.mutate, &mut volumes));
        }
        if !both && arguments.kind != Kind::Sessions {
            if failed > 0 && !arguments.keep_going {
                break;
            }
            continue;
        }
        match catch_unwind(AssertUnwindSafe(|| sim::run(seed, options))) {
            Ok(outcome) => {
                totals.add(&outcome.tally);
                failed += u64::from(report(seed, &outcome, options));
            }
            Err(_) => {
                failed += 1;
                say_replay(seed, options, "panicked");
            }
        }
        if failed > 0 && !arguments.keep_going {
            break;
        }
    }
    println!(
        "{} seeds, {failed} failed, {:.1} s: {totals:?}",
        to - from,
        begun.elapsed().as_secs_f64()
    );
    println!("{volumes:?}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_releases(seeds: std::ops::Range<u64>, sites: usize, keep_going: bool) -> ExitCode {
    let (begun, count, mut failed) = (Instant::now(), seeds.end - seeds.start, 0_u64);
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| sim::cell::release::run(seed, sites))) {
            Ok(Ok(sim::cell::release::Report { quiet, faulty, again, stopped })) => {
                println!(
                    "seed {seed}, {sites} sites\n  quiet:   {quiet}\n  faulty:  {faulty}\n  \
                        again:   {again}\n  stopped: {stopped}"
                );
            }
            other => {
                failed += 1;
                println!(
                    "seed {seed}: {}",
                    other
                        .map_or("panicked".to_owned(), |outcome| outcome.err().unwrap_or_default())
                );
                println!(
                    "  replay: cargo run --release -p sim -- --kind release --sites {sites} \
                        --seed {seed}"
                );
                if !keep_going {
                    break;
                }
            }
        }
    }
    println!("{count} seeds, {failed} failed, {:.1} s", begun.elapsed().as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_standbys(seeds: std::ops::Range<u64>, arguments: &Arguments) -> ExitCode {
    let (begun, count, mut failed) = (Instant::now(), seeds.end - seeds.start, 0_u64);
    let mut totals = sim::takeover::TakeoverTally::default();
    for seed in seeds {
        let run = |trace| {
            let options = sim::takeover::TakeoverOptions { mutation: arguments.bend, trace };
            catch_unwind(AssertUnwindSafe(|| sim::takeover::run(seed, options)))
        };
        let outcome = run(arguments.trace);
        if let Ok(outcome) = &outcome {
            totals.add(&outcome.tally);
            print!("{}", outcome.history);
            if outcome.violation.is_none() {
                continue;
            }
        }
        failed += 1;
        let what =
            outcome.map_or("panicked".to_owned(), |outcome| outcome.violation.unwrap_or_default());
        println!(
            "seed {seed}: {what}\n  replay: cargo run --release -p sim -- --kind standbys --seed \
                {seed} --trace"
        );
        if !arguments.keep_going {
            break;
        }
    }
    println!("{count} seeds, {failed} failed, {:.1} s", begun.elapsed().as_secs_f64());
    println!("{totals:?}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns whether the seed failed; a failed seed runs again with a trace.
fn run_volumes(
    seed: u64,
    trace: bool,
    mutate: Option<sim::cell::StepMutation>,
    totals: &mut sim::cell::VolumeTally,
) -> bool {
    let run = |trace| catch_unwind(AssertUnwindSafe(|| sim::cell::run_broken(seed, trace, mutate)));
    let outcome = run(trace);
    if let Ok(outcome) = &outcome {
        totals.add(&outcome.tally);
        print!("{}", outcome.history);
        if outcome.violation.is_none() {
            return false;
        }
    }
    if !trace && let Ok(again) = run(true) {
        print!("{}", again.history);
    }
    let what =
        outcome.map_or("panicked".to_owned(), |outcome| outcome.violation.unwrap_or_default());
    println!(
        "seed {seed}: {what}\n  replay: cargo run --release -p sim -- --kind volumes --seed \
            {seed} --trace"
    );
    true
}

/// Returns whether the seed failed, and prints how to replay it.
fn report(seed: u64, outcome: &RunOutcome, options: RunOptions) -> bool {
    let Some(violation) = &outcome.violation else { return false };
    let at = violation.at.since_start().as_secs_f64();
    say_replay(seed, options, &format!("{} at {at:.6} s: {}", violation.invariant, violation.what));
    true
}

fn say_replay(seed: u64, options: RunOptions, what: &str) {
    let mutation = options.mutation.map_or(String::new(), |mutation| {
        let name =
            clap::ValueEnum::to_possible_value(&mutation).map(|value| value.get_name().to_owned());
        format!(" --mutation {}", name.unwrap_or_default())
    });
    println!(
        "seed {seed}: {what}\n  replay: cargo run --release -p sim -- --seed {seed} \
            --trace{mutation}"
    );
}
