//! `vos snapshot`: named snapshots of a volume.

use clap::{Args, Subcommand};
use local::failure::Failure;
use serde_json::json;
use types::{Timestamp, VolumeCall, VolumeKind};

use super::context::{LocatedVolume, VosContext, now_secs, text};
use super::typed::TypedSite;
use super::{clone, show};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos snapshot create home.alice             named by the time
    rialto vos snapshot create home.alice before
    rialto vos snapshot list home.alice
    rialto vos snapshot remove home.alice before

A snapshot is a volume of its own, called VOLUME.snapshot.NAME: it can be examined and
mounted as any other.";

/// Makes, lists and removes snapshots of a volume.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
pub struct SnapshotCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Makes a snapshot of a volume's current state.
    Create {
        /// The read-write volume.
        volume: String,
        /// The snapshot's name [default: the time, as 20261122T100501Z]
        name: Option<String>,
    },
    /// Lists the snapshots of a volume.
    List {
        /// Any volume of the group.
        volume: String,
    },
    /// Removes a snapshot.
    Remove {
        /// The volume of the snapshot.
        volume: String,
        /// The snapshot's name.
        name: String,
    },
}

impl SnapshotCommand {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        match self.verb {
            Verb::Create { volume, name } => create(context, &volume, name),
            Verb::List { volume } => list(context, &volume),
            Verb::Remove { volume, name } => remove(context, &volume, &name),
        }
    }
}

fn create(context: &VosContext, wanted: &str, name: Option<String>) -> Result<(), Failure> {
    let volume = context.volume(wanted, &TypedSite::default())?;
    let to = full(&volume, &name.unwrap_or_else(now));
    let Some(made) = clone::clone(context, &volume, &to, VolumeKind::Snapshot, false)? else {
        return Ok(());
    };
    local::show::answer(
        context.json,
        &show::volume_json(context, &made),
        format_args!("Created snapshot {to} ({}) of {}", made.id.0, text(&volume.name)),
    );
    Ok(())
}

fn list(context: &VosContext, wanted: &str) -> Result<(), Failure> {
    let group = context.group(wanted, &TypedSite::default())?;
    let mut snapshots: Vec<_> =
        group.iter().filter(|one| one.kind == VolumeKind::Snapshot).collect();
    snapshots.sort_by_key(|one| (one.created, one.id));
    for snapshot in snapshots {
        local::show::answer(
            context.json,
            &show::volume_json(context, snapshot),
            format_args!("{} {}", show::line(snapshot), show::date(snapshot.created)),
        );
    }
    Ok(())
}

fn remove(context: &VosContext, wanted: &str, name: &str) -> Result<(), Failure> {
    let group = context.group(wanted, &TypedSite::default())?;
    let called = full(&group[0], name);
    let found =
        group.iter().find(|one| one.kind == VolumeKind::Snapshot && text(&one.name) == called);
    let found = found.ok_or_else(|| {
        Failure::new(
            format!("finding the snapshot {name} of {wanted}"),
            "there is none with that name",
        )
        .mend(format!("'rialto vos snapshot list {wanted}' shows which there are"))
    })?;
    let what = format!("removing the snapshot {called}");
    match context.change(&what, found.server, VolumeCall::Remove { id: found.id })? {
        Some(_) if context.json => {
            local::show::json(&json!({ "removed": found.id.0, "name": called }));
        }
        Some(_) => println!("Removed snapshot {called}"),
        None => {}
    }
    Ok(())
}

fn full(volume: &LocatedVolume, name: &str) -> String {
    format!("{}.snapshot.{name}", text(&volume.name))
}

fn now() -> String {
    show::stamp(Timestamp::new(now_secs(), 0))
}
