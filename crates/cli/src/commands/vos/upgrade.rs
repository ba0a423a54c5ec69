//! `vos upgradepartition`: raises the format of a partition (`docs/spec/versions.md`).

use clap::Args;
use local::failure::Failure;
use local::show;
use serde_json::{Value, json};
use types::{Answer, VolumeCall};

use super::context::{LocatedPartition, VosContext};
use super::typed::TypedPlace;
use crate::commands::cell_client::odd;

const UPGRADE_HELP: &str = "\
EXAMPLES
    rialto vos upgradepartition afs1 vicep
    rialto vos upgradepartition -server afs1           all its partitions
    rialto vos upgradepartition -server afs1 -dryrun   only show their formats

Raises the format of a partition to that of the cell's level ('rialto cell status'), while
its volumes are in use. Nothing is converted, and it takes no time; but older programs do
not open the partition any more, and there is no way back. Volumes have standbys only on
partitions of format 3.";

/// Raises the format of a partition to that of the cell's level.
#[derive(Args, Debug)]
#[command(after_help = UPGRADE_HELP)]
pub struct Upgradepartition {
    #[command(flatten)]
    place: TypedPlace,
}

impl Upgradepartition {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        for spot in &context.spots(&self.place.site())? {
            raise(context, spot)?;
        }
        Ok(())
    }
}

fn raise(context: &VosContext, spot: &LocatedPartition) -> Result<(), Failure> {
    let (server, name) = (context.server_name(spot.server), &spot.partition.name);
    let what = format!("raising the format of {server} {name}");
    let format = |raise| {
        let call = VolumeCall::Format { partition: spot.partition.no, raise };
        match context.ask(&what, spot.server, call)? {
            Answer::Report(text) => serde_json::from_str::<Value>(&text).map_err(|_| odd(&what)),
            _ => Err(odd(&what)),
        }
    };
    let before = format(false)?;
    let after = if context.dry_run { before.clone() } else { format(true)? };
    let line = match (&before["format"], &after["format"], &after["cell"]) {
        (_, now, cell) if context.dry_run && now.as_u64() < cell.as_u64() => {
            format!("has format {now}; it can be raised to {cell}")
        }
        (old, now, _) if old != now => format!("has format {now}; before it had {old}"),
        (_, now, _) if now.as_u64() < after["newest"].as_u64() => {
            format!("has format {now}, that of the cell's level: 'rialto cell upgrade' raises it")
        }
        (_, now, _) => format!("has format {now}, the newest"),
    };
    let value = json!({
        "server": server, "partition": name, "before": before["format"],
        "format": after["format"], "cell": after["cell"],
    });
    show::answer(context.json, &value, format_args!("Partition {server} {name} {line}"));
    Ok(())
}
