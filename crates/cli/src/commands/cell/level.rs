//! `rialto cell status` and `rialto cell upgrade`: the level of the cell, and its servers' programs
//! (`docs/spec/versions.md`).

use std::process::ExitCode;

use client::CallError;
use local::failure::Failure;
use local::show;
use serde_json::{Value, json};
use types::{Fault, LevelAct, ServerInfo};

use crate::commands::cell_client::{CELL_AWAY, CellClient, CellOptions};
use crate::levels::{Levels, Next, ask_level};

pub(super) const STATUS_HELP: &str = "\
EXAMPLES
    rialto cell status
    rialto cell status --json | jq .level

The level says which records the cell's database may have: a program serves only a cell
whose level it knows. A server tells its version and the level that it knows when it starts.";

pub(super) const UPGRADE_HELP: &str = "\
EXAMPLES
    rialto cell upgrade --dry-run
    rialto cell upgrade

Raises the level by one, once each server of the cell runs a program that knows the next
one. From then on older programs cannot serve the cell, and there is no way back. Partitions
are raised one by one afterwards: 'rialto vos upgradepartition'.

EXIT CODES
    0  the level is raised, or is the newest one
    1  a server does not know the next level: the message names it
    3  no cell there, or its server does not run";

#[derive(clap::Args, Debug)]
pub(super) struct UpgradeOptions {
    /// Only say whether the level could be raised.
    #[arg(long, short = 'n')]
    dry_run: bool,
}

fn open(options: &CellOptions) -> Result<CellClient, Failure> {
    CellClient::open(options, refused)
}

fn refused(doing: &str, error: &CallError) -> Failure {
    let mend = match error.fault() {
        Some(Fault::NotPermitted) => "only members of system:administrators may",
        Some(Fault::Unsupported) => {
            "the server that has the database is older than levels: upgrade it first"
        }
        Some(Fault::Conflict) => "a server came that does not know it: 'rialto cell status'",
        Some(Fault::CellAway) => CELL_AWAY,
        _ => return Failure::new(doing, error),
    };
    Failure::new(doing, error).mend(mend)
}

fn fetch(client: &CellClient) -> Result<Levels, Failure> {
    let found = ask_level(|call| client.ask("asking for the cell's level", call), LevelAct::Ask)?;
    Ok(Levels::of(found, client.servers()?))
}

/// Shows level and servers.
pub(super) fn status(options: &CellOptions) -> Result<ExitCode, Failure> {
    let client = open(options)?;
    let levels = fetch(&client)?;
    let next = levels.next();
    if options.json {
        let server = |one: &ServerInfo| {
            let program = levels.found.program(one.id);
            json!({
                "name": one.name, "id": one.id.to_string(),
                "knows": program.map(|program| program.knows),
                "version": program.map(|program| &program.version),
            })
        };
        let servers: Vec<Value> = levels.servers.iter().map(server).collect();
        show::json(&json!({
            "cell": client.reached.name, "level": levels.found.level,
            "next": next.level(), "behind": next.behind(), "servers": servers,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    println!("cell      {}", client.reached.name);
    println!("level     {}", levels.found.level);
    println!("upgrade   {}", next.text());
    let row = |one: &ServerInfo| {
        let program = levels.found.program(one.id);
        let known = program.map_or_else(|| "-".to_owned(), |program| program.knows.to_string());
        let version = program.map_or("not told", |program| &program.version);
        vec![one.name.clone(), known, version.to_owned()]
    };
    let rows = levels.servers.iter().map(row).collect();
    println!("\n{}", show::table(&["server", "knows", "version"], &[1], rows));
    Ok(ExitCode::SUCCESS)
}

impl UpgradeOptions {
    pub(super) fn run(&self, options: &CellOptions) -> Result<ExitCode, Failure> {
        let client = open(options)?;
        let levels = fetch(&client)?;
        let before = levels.found.level;
        let (to, line) = match levels.next() {
            Next::Newest => (before, format!("the cell is at level {before}, the newest")),
            next @ Next::Waits { .. } => {
                return Err(Failure::new("raising the cell's level", next.text()).mend(
                    "upgrade these servers and start them; 'rialto cell remove-server' ends one \
                     that never comes back",
                ));
            }
            Next::Ready { level } if self.dry_run => {
                (before, format!("the cell is at level {before}, and can be raised to {level}"))
            }
            Next::Ready { level } => {
                let doing = format!("raising the cell's level to {level}");
                let raise = LevelAct::Raise(level);
                let found = ask_level(|call| client.ask(&doing, call), raise)?;
                let line = format!(
                    "the cell is at level {}; 'rialto vos upgradepartition' raises its partitions",
                    found.level
                );
                (found.level, line)
            }
        };
        let value = json!({
            "before": before, "level": to, "next": levels.next().level(), "dry_run": self.dry_run,
        });
        show::answer(options.json, &value, format_args!("{line}"));
        Ok(ExitCode::SUCCESS)
    }
}
