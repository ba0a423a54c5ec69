//! `vos addsite` and `vos remsite`, and the output of the database's records.

use local::failure::Failure;
use serde_json::{Value, json};
use types::{Site as CellSite, SiteKind, VolumeGroup};

use super::context::{VosContext, text};
use super::typed::{SitedVolume, TypedSite};

pub(super) const ADDSITE_HELP: &str = "\
EXAMPLES
    rialto vos addsite afs2 vicep home.alice
    rialto vos addsite -server afs2 -partition vicep -id home.alice

The site is empty until the next 'vos release'.";

pub(super) const REMSITE_HELP: &str = "\
EXAMPLES
    rialto vos remsite -server afs2 -id home.alice

Only the record of the site is removed: 'vos remove -server afs2 -id home.alice.readonly'
removes its volume too.";

/// A site is always given.
pub(super) const WORDS: &str = "[SERVER PARTITION] VOLUME, instead of the options";

pub(super) fn add(volume: SitedVolume, context: &VosContext) -> Result<(), Failure> {
    let (wanted, site) = volume.parts()?;
    needed_server(&site)?;
    let group = context.known(&wanted)?;
    let spot = context.roomiest(&site)?;
    let (name, server) = (text(&group.record.name), context.server_name(spot.server));
    let what = format!("adding {server} to the sites of {name}");
    let add = |job: &vos::Job<'_>| vos::add_site(job, group, spot.server, &spot.partition.name);
    let added = context.lead(&what, add)?;
    report(
        context,
        added,
        &format!("Added replication site {server} {} for volume {name}", spot.partition.name),
        || format!("{server} is a site of {name} already"),
    );
    Ok(())
}

pub(super) fn remove(volume: SitedVolume, context: &VosContext) -> Result<(), Failure> {
    let (wanted, site) = volume.parts()?;
    let server = needed_server(&site)?;
    let group = context.known(&wanted)?;
    let id = context.server(server)?;
    let (name, server) = (text(&group.record.name), context.server_name(id));
    let what = format!("taking {server} off the sites of {name}");
    let removed = context.lead(&what, |job| vos::remove_site(job, group, id))?;
    report(
        context,
        removed,
        &format!("Removed replication site {server} for volume {name}"),
        || format!("{server} is no read-only site of {name}"),
    );
    Ok(())
}

pub(super) fn needed_server(site: &TypedSite) -> Result<&str, Failure> {
    site.server.as_deref().ok_or_else(|| {
        Failure::new("reading the command", "the server is missing")
            .mend("name it with -server, before the volume")
    })
}

fn report(context: &VosContext, changed: bool, done: &str, otherwise: impl FnOnce() -> String) {
    match (context.dry_run, context.json) {
        (true, _) => {}
        (false, true) => local::show::json(&json!({ "changed": changed })),
        (false, false) if changed => println!("{done}"),
        (false, false) => println!("{}", otherwise()),
    }
}

/// The sites of a group, as OpenAFS shows its location database.
pub fn lines(context: &VosContext, group: &VolumeGroup, put: &mut dyn FnMut(&str)) {
    let names =
        [("RWrite", Some(group.read_write)), ("ROnly", group.read_only), ("Backup", group.backup)];
    let numbers =
        names.iter().filter_map(|(name, id)| id.map(|id| format!("{name}: {:<10}", id.0)));
    put(format!("    {}", numbers.collect::<Vec<_>>().join("    ")).trim_end());
    put(&format!("    number of sites -> {}", group.sites.len()));
    for site in &group.sites {
        let server = context.server_name(site.server);
        let state =
            release_state(group, site).map_or_else(String::new, |state| format!(" -- {state}"));
        put(&format!(
            "       server {server} partition {} {} Site{state}",
            site.partition,
            kind(site)
        ));
    }
    if let Some(busy) = &group.busy {
        put(&format!(
            "    Volume is currently LOCKED: {}, by {}, since {}",
            busy.operation,
            busy.by,
            since(busy.since_secs)
        ));
    }
}

fn since(secs: i64) -> String {
    super::show::date(types::Timestamp::new(secs, 0))
}

fn kind(site: &CellSite) -> &'static str {
    match site.kind {
        SiteKind::ReadWrite => "RW",
        SiteKind::ReadOnly => "RO",
    }
}

/// A remark on the state of a read-only site.
fn release_state(group: &VolumeGroup, site: &CellSite) -> Option<&'static str> {
    match site.kind {
        SiteKind::ReadOnly if site.epoch == 0 => Some("Not released"),
        SiteKind::ReadOnly if site.epoch != group.released_epoch => Some("Old release"),
        SiteKind::ReadOnly | SiteKind::ReadWrite => None,
    }
}

pub fn json(context: &VosContext, group: &VolumeGroup) -> Value {
    let site = |site: &CellSite| {
        json!({
            "server": context.server_name(site.server), "server_id": site.server.to_string(),
            "partition": site.partition, "kind": kind(site), "epoch": site.epoch,
            "state": release_state(group, site),
        })
    };
    json!({
        "name": text(&group.name), "read_write": group.read_write.0,
        "read_only": group.read_only.map(|id| id.0), "backup": group.backup.map(|id| id.0),
        "released_epoch": group.released_epoch,
        "sites": group.sites.iter().map(site).collect::<Vec<_>>(),
        "locked": group.busy.as_ref().map(|busy| json!({
            "operation": busy.operation, "by": busy.by, "since_secs": busy.since_secs,
        })),
    })
}
