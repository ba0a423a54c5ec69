//! Runs seeds of the simulation: `sim --seeds 0..10000`, or one with everything that happens: `sim --seed 17 --trace`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use sim::{Mutation, Options, Outcome};

/// Seeded simulation of a cell under faults.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  sim --seeds 0..10000\n  sim --seed 17 --trace\n  sim --seeds 0..200 --mutation no-grace"
)]
struct Arguments {
    /// One seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Seeds from A up to, without, B.
    #[arg(long, value_name = "A..B", value_parser = range, default_value = "0..1000")]
    seeds: (u64, u64),
    /// Tell everything that happens.
    #[arg(long)]
    trace: bool,
    /// Break a rule on purpose.
    #[arg(long, value_enum)]
    mutation: Option<Mutation>,
    /// Go on behind a seed that fails.
    #[arg(long)]
    keep_going: bool,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    parts.filter(|(from, to)| from < to).ok_or_else(|| "expected A..B with A below B".to_owned())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (from, to) = arguments.seed.map_or(arguments.seeds, |seed| (seed, seed + 1));
    let options = Options { mutation: arguments.mutation, trace: arguments.trace };
    let begun = Instant::now();
    let mut failed = 0_u64;
    let mut totals = sim::history::Tally::default();
    for seed in from..to {
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
    println!("{} seeds, {failed} failed, {:.1} s: {totals:?}", to - from, begun.elapsed().as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether the seed failed.
fn report(seed: u64, outcome: &Outcome, options: Options) -> bool {
    let Some(violation) = &outcome.violation else { return false };
    let at = violation.at.since_start().as_secs_f64();
    say_replay(seed, options, &format!("{} at {at:.6} s: {}", violation.invariant, violation.what));
    true
}

fn say_replay(seed: u64, options: Options, what: &str) {
    let mutation = options.mutation.map_or(String::new(), |mutation| {
        let name = clap::ValueEnum::to_possible_value(&mutation).map(|value| value.get_name().to_owned());
        format!(" --mutation {}", name.unwrap_or_default())
    });
    println!("seed {seed}: {what}\n  replay: cargo run --release -p sim -- --seed {seed} --trace{mutation}");
}
