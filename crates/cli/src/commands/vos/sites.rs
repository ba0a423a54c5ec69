//! `vos addsite` and `vos remsite`, and the output of the database's records.

use clap::Args;
use local::failure::Failure;
use serde_json::{Value, json};
use types::{ServerId, Site as CellSite, SiteKind, VolumeGroup, VolumeId};

use super::context::{VosContext, text};
use super::typed::{SitedVolume, TypedSite};

const ADDSITE_HELP: &str = "\
EXAMPLES
    rialto vos addsite afs2 vicep home.alice
    rialto vos addsite -server afs2 -partition vicep -id home.alice
    rialto vos addsite afs2 vicep home.alice -valid     its copy is there already

The site is empty until the next 'vos release'. With -valid the server must have the
read-only volume: its record was lost, or it came with its disk.";

const CHANGELOC_HELP: &str = "\
EXAMPLES
    rialto vos changeloc afs2 vicep home.alice
    rialto vos changeloc -server afs2 -partition vicep -id home.alice

Changes the record alone, for a volume whose disk is in another server now. A server that
answers must have the volume there; one that does not answer is not asked. 'vos move' moves
a volume, 'vos syncvldb' enters all that a server has.";

pub(super) const REMSITE_HELP: &str = "\
EXAMPLES
    rialto vos remsite -server afs2 -id home.alice

Only the record of the site is removed: 'vos remove -server afs2 -id home.alice.readonly'
removes its volume too.";

/// A site is always given.
pub(super) const WORDS: &str = "[SERVER PARTITION] VOLUME, instead of the options";

/// Adds a read-only site to a volume.
#[derive(Args, Debug)]
#[command(after_help = ADDSITE_HELP, mut_arg("words", |arg| arg.help(WORDS)))]
pub struct Addsite {
    #[command(flatten)]
    volume: SitedVolume,
    /// The number of the read-only volume, if the group has none yet [default: the cell's next]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..u64::MAX))]
    roid: Option<u64>,
    /// The server has the read-only volume already: record what it shows.
    #[arg(long)]
    valid: bool,
}

/// Records where a volume is, without moving it.
#[derive(Args, Debug)]
#[command(after_help = CHANGELOC_HELP, mut_arg("words", |arg| arg.help(WORDS)))]
pub struct Changeloc {
    #[command(flatten)]
    volume: SitedVolume,
}

impl Addsite {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let (wanted, site) = self.volume.parts()?;
        needed_server(&site)?;
        let group = context.known(&wanted)?;
        let spot = context.roomiest(&site)?;
        let (name, server) = (text(&group.record.name), context.server_name(spot.server));
        let what = format!("adding {server} to the sites of {name}");
        let new = vos::NewSite { number: self.roid.map(VolumeId), is_there: self.valid };
        let at = (spot.server, spot.partition.name.as_str());
        let added = context.lead(&what, |job| vos::add_site_as(job, group, at, new))?;
        report(
            context,
            added,
            &format!("Added replication site {server} {} for volume {name}", spot.partition.name),
            || format!("{server} is a site of {name} already"),
        );
        Ok(())
    }
}

impl Changeloc {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let (wanted, site) = self.volume.parts()?;
        let server = context.server(needed_server(&site)?)?;
        let name = |group: &VolumeGroup| text(&group.name);
        let group = context.known(&wanted)?;
        let called = name(&group.record);
        let (partition, shown) = (partition(context, server, &site)?, context.server_name(server));
        let what = format!("recording {called} at {shown} {partition}");
        let change = |job: &vos::Job<'_>| vos::change_location(job, group, server, &partition);
        let changed = context.lead(&what, change)?;
        let done = format!("Changed location to {shown} {partition} for volume {called}");
        report(context, changed, &done, || format!("{called} is recorded there already"));
        Ok(())
    }
}

/// The partition's name as its server gives it, or as it is typed if the server does not answer.
fn partition(context: &VosContext, server: ServerId, site: &TypedSite) -> Result<String, Failure> {
    let Some(typed) = &site.partition else {
        return Err(Failure::new("reading the command", "the partition is missing")
            .mend("name it with -partition, before the volume"));
    };
    if context.partitions(server).is_err() {
        let bare = typed.trim_start_matches('/');
        let is_letters = bare.len() <= 2;
        return Ok(if is_letters { format!("/vicep{bare}") } else { format!("/{bare}") });
    }
    let spots = context.spots(site)?;
    spots.into_iter().next().map(|spot| spot.partition.name).ok_or_else(|| {
        Failure::new(format!("finding the partition {typed}"), "the server does not have it")
    })
}

pub(super) fn remove(volume: SitedVolume, context: &VosContext) -> Result<(), Failure> {
    let (wanted, site) = volume.parts()?;
    let server = needed_server(&site)?;
    let group = context.known(&wanted)?;
    let id = context.server(server)?;
    let (name, server) = (text(&group.record.name), context.server_name(id));
    let what = format!("taking {server} off the sites of {name}");
    let known = group.record.sites.iter().find(|site| is_read_only_at(site, id));
    let partition = known.map(|site| site.partition.clone()).unwrap_or_default();
    let number = group.record.read_write.0;
    let removed = context.lead(&what, |job| vos::remove_site(job, group, id))?;
    report(
        context,
        removed,
        &format!(
            "Deleting the replication site for volume {number} ... done\n\
            Removed replication site {server} {partition} for volume {name}"
        ),
        || format!("{server} is no read-only site of {name}"),
    );
    Ok(())
}

fn is_read_only_at(site: &CellSite, server: ServerId) -> bool {
    (site.server, site.kind) == (server, SiteKind::ReadOnly)
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
        SiteKind::Standby | SiteKind::AsyncStandby => "SB",
    }
}

/// A remark on the state of a read-only site.
fn release_state(group: &VolumeGroup, site: &CellSite) -> Option<&'static str> {
    match site.kind {
        SiteKind::ReadOnly if site.epoch == 0 => Some("Not released"),
        SiteKind::ReadOnly if site.epoch != group.released_epoch => Some("Old release"),
        SiteKind::Standby if site.epoch == 0 => Some("Not in step"),
        SiteKind::AsyncStandby if site.epoch == 0 => Some("Asynchronous, not in step"),
        SiteKind::AsyncStandby => Some("Asynchronous"),
        SiteKind::Standby | SiteKind::ReadOnly | SiteKind::ReadWrite => None,
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
