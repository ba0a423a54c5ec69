//! `vos lock`, `vos unlock` and `vos unlockvldb`.

use local::failure::Failure;
use serde_json::json;
use types::{Revised, VolumeGroup};

use super::context::{VosContext, text};
use super::typed::{TypedPlace, TypedVolume};

pub(super) const LOCK_HELP: &str = "\
EXAMPLES
    rialto vos lock home.alice

Releases, moves, renames and removals are refused until 'vos unlock'. Clients are not
affected.";

pub(super) const UNLOCK_HELP: &str = "\
EXAMPLES
    rialto vos unlock home.alice

Also frees a volume that an interrupted operation has claimed. To finish that operation,
repeat its command; otherwise 'vos syncvldb' and 'vos syncserv' repair the records.";

pub(super) const UNLOCKVLDB_HELP: &str = "\
EXAMPLES
    rialto vos unlockvldb
    rialto vos unlockvldb -server afs2";

pub(super) fn lock(volume: TypedVolume, context: &VosContext) -> Result<(), Failure> {
    let wanted = volume.name()?;
    let group = context.known(&wanted)?;
    let name = text(&group.record.name);
    context.lead(&format!("locking the volume {name}"), |job| vos::lock(job, group))?;
    report(context, true, &format!("Locked VLDB entry for volume {name}"), &name);
    Ok(())
}

pub(super) fn unlock_one(volume: TypedVolume, context: &VosContext) -> Result<(), Failure> {
    let wanted = volume.name()?;
    unlock(context, context.known(&wanted)?).map(drop)
}

pub(super) fn unlock_all(place: TypedPlace, context: &VosContext) -> Result<(), Failure> {
    let site = place.site();
    let spots = context.spots(&site)?;
    let everywhere = site.server.is_none() && site.partition.is_none();
    let is_meant = |seen: &Revised<VolumeGroup>| {
        let here = |site: &types::Site| {
            spots
                .iter()
                .any(|spot| (spot.server, &spot.partition.name) == (site.server, &site.partition))
        };
        seen.record.busy.is_some() && (everywhere || seen.record.sites.iter().any(here))
    };
    let mut count = 0;
    context.each_group(&mut |groups| {
        for group in groups.into_iter().filter(is_meant) {
            count += u64::from(unlock(context, group)?);
        }
        Ok(())
    })?;
    if !context.json {
        println!("Unlocked volumes: {count}");
    }
    Ok(())
}

fn unlock(context: &VosContext, group: Revised<VolumeGroup>) -> Result<bool, Failure> {
    let name = text(&group.record.name);
    let unlocked =
        context.lead(&format!("unlocking the volume {name}"), |job| vos::unlock(job, group))?;
    let done = if unlocked {
        format!("Released lock on vldb entry for volume {name}")
    } else {
        format!("There is no lock on volume {name}")
    };
    report(context, false, &done, &name);
    Ok(unlocked && !context.dry_run)
}

fn report(context: &VosContext, locked: bool, done: &str, name: &str) {
    match (context.dry_run, context.json) {
        (true, _) => {}
        (false, true) => local::show::json(&json!({ "name": name, "locked": locked })),
        (false, false) => println!("{done}"),
    }
}
