//! `vos move` and `vos evacuate`.

use clap::Args;
use local::failure::Failure;
use local::show::bytes;
use serde_json::json;
use types::{Revised, SiteKind, VolumeGroup, VolumeKind};

use super::context::{LocatedPartition, VosContext, text};
use super::typed::{TypedSite, last_word};

const MOVE_HELP: &str = "\
EXAMPLES
    rialto vos move home.alice -toserver afs2
    rialto vos move -id home.alice -toserver afs2 -topartition vicep
    rialto vos move home.alice -toserver afs1 -topartition vicepb  to another partition
    rialto vos move home.alice -toserver afs2 -withgroup  its snapshots too
    rialto vos move home.alice -toserver afs2 -dryrun     only list the steps

Clients use it meanwhile: their calls wait while the last of it is sent. Its backup volume
and its snapshots are removed unless they move too (-withgroup): the dry run lists them. If
interrupted, it is whole at one of the two places, and repeating the command finishes it.
From and to servers of AFS it needs the cell's key (--keys), and [afs] at Rialto's server.
Read-only sites of a server move along to another of its partitions.";

const EVACUATE_HELP: &str = "\
EXAMPLES
    rialto vos evacuate -server afs1
    rialto vos evacuate -server afs1 -partition vicep -toserver afs2
    rialto vos evacuate -server afs1 -withgroup
    rialto vos evacuate -server afs1 -dryrun

Moves all volumes there, one after the other, each to where most space is free: read-write
volumes while clients use them, and read-only sites as they are (nothing is released), to
servers without a site of the volume, or to other partitions of the same server. After a
failure the others are still moved; the exit code is 1 then. The remaining volumes are
listed, such as those that the database does not have. Backup volumes and snapshots of moved
volumes are removed, unless they move too (-withgroup).";

/// Moves a volume to another server or partition while clients use it.
#[derive(Args, Debug)]
#[command(after_help = MOVE_HELP)]
pub struct Move {
    /// The volume's name or number.
    #[arg(long, value_name = "VOLUME", required_unless_present = "words")]
    id: Option<String>,
    /// The present server; looked up if left out.
    #[arg(long, value_name = "MACHINE")]
    fromserver: Option<String>,
    /// The present partition; looked up if left out.
    #[arg(long, value_name = "PARTITION")]
    frompartition: Option<String>,
    /// The destination.
    #[arg(long, value_name = "MACHINE")]
    toserver: Option<String>,
    /// The destination's partition [default: that with the most free space]
    #[arg(long, value_name = "PARTITION")]
    topartition: Option<String>,
    /// Move its backup volume and its snapshots too.
    #[arg(long)]
    withgroup: bool,
    /// VOLUME, or VOLUME FROMSERVER FROMPARTITION TOSERVER TOPARTITION, instead of the options.
    #[arg(value_name = "VOLUME", num_args = 0..=5)]
    words: Vec<String>,
}

/// Moves all volumes of a server or partition away.
#[derive(Args, Debug)]
#[command(after_help = EVACUATE_HELP)]
pub struct Evacuate {
    #[command(flatten)]
    site: TypedSite,
    /// The destination [default: any other server]
    #[arg(long, value_name = "MACHINE")]
    toserver: Option<String>,
    /// The destination's partition.
    #[arg(long, value_name = "PARTITION", requires = "toserver")]
    topartition: Option<String>,
    /// Move backup volumes and snapshots too.
    #[arg(long)]
    withgroup: bool,
}

impl Move {
    pub(crate) fn run(mut self, context: &VosContext) -> Result<(), Failure> {
        if self.words.len() == 5 {
            let rest = self.words.split_off(1);
            let places = [
                &mut self.fromserver,
                &mut self.frompartition,
                &mut self.toserver,
                &mut self.topartition,
            ];
            for (place, word) in places.into_iter().zip(rest) {
                place.get_or_insert(word);
            }
        }
        let wanted = last_word(&mut TypedSite::default(), self.words, self.id, "a volume")?;
        let Some(toserver) = self.toserver else {
            return Err(Failure::new("reading the command", "the destination is missing")
                .mend("name it with -toserver")
                .wrong_usage());
        };
        let group = context.known(&wanted)?;
        if self.fromserver.is_some() || self.frompartition.is_some() {
            context.found(
                &wanted,
                &TypedSite { server: self.fromserver, partition: self.frompartition },
            )?;
        }
        let is_named = self.topartition.is_some();
        let to = TypedSite { server: Some(toserver), partition: self.topartition };
        let is_there = |spot: &LocatedPartition| {
            group
                .record
                .read_write_site()
                .is_some_and(|site| is_at(site, spot.server, &spot.partition.name))
        };
        let spot = if is_named {
            context.roomiest(&to)?
        } else {
            roomiest_but(context, &to, &|spot| !is_there(spot))
                .or_else(|_| context.roomiest(&to))?
        };
        move_one(context, group, &spot, self.withgroup)
    }
}

impl Evacuate {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        if self.site.server.is_none() {
            return Err(Failure::new("reading the command", "the server is missing")
                .mend("name it with -server"));
        }
        let from = context.spots(&self.site)?;
        let is_here = |site: &types::Site| {
            from.iter().any(|spot| is_at(site, spot.server, &spot.partition.name))
        };
        let mut groups = Vec::new();
        context.each_group(&mut |some| {
            groups.extend(some.into_iter().filter(|seen| seen.record.sites.iter().any(is_here)));
            Ok(())
        })?;
        let to = TypedSite { server: self.toserver, partition: self.topartition };
        let (mut moved, mut failed) = (0, 0);
        let mut count = |done: Result<(), Failure>| match done {
            Ok(()) => moved += 1,
            Err(failure) => {
                eprintln!("rialto vos: {failure}");
                failed += 1;
            }
        };
        let place = |spot: &LocatedPartition| (spot.server, spot.partition.no);
        let away = |spot: &LocatedPartition| from.iter().all(|one| place(one) != place(spot));
        for group in groups {
            let name = text(&group.record.name);
            if group.record.read_write_site().is_some_and(is_here) {
                // A server has a group on one partition.
                let sites = &group.record.sites;
                let from = group.record.read_write_site().map(|site| site.server);
                let has_room = |spot: &LocatedPartition| {
                    away(spot)
                        && (from == Some(spot.server) || sites.iter().all(|site| fits(site, spot)))
                };
                let spot = roomiest_but(context, &to, &has_room);
                count(spot.and_then(|spot| move_one(context, group, &spot, self.withgroup)));
            }
            // The record after the move.
            let group = context.known(&name)?;
            for site in group.record.standbys().filter(|site| is_here(site)) {
                report_standby(context, &name, site);
            }
            let sites = group.record.sites.clone();
            for site in sites.iter().filter(|site| site.kind == SiteKind::ReadOnly && is_here(site))
            {
                let has_none = |spot: &LocatedPartition| {
                    let read_only = |one: &types::Site| {
                        one.server == spot.server && one.kind == SiteKind::ReadOnly
                    };
                    let same = spot.server == site.server;
                    away(spot)
                        && (same
                            || !sites.iter().any(read_only)
                                && sites.iter().all(|one| fits(one, spot)))
                };
                count(
                    roomiest_but(context, &to, &has_none)
                        .and_then(|spot| move_site(context, &name, site, &spot)),
                );
            }
        }
        if !context.dry_run {
            report_remaining(context, &from)?;
        }
        if !context.json && !context.dry_run {
            println!("Total volumes moved: {moved}; failed to move: {failed}");
        }
        let why = || format!("{failed} of {} volumes failed", moved + failed);
        if failed == 0 {
            Ok(())
        } else {
            Err(Failure::new("evacuating", why()).mend("the lines above have the reasons"))
        }
    }
}

fn is_at(site: &types::Site, server: types::ServerId, partition: &str) -> bool {
    (site.server, &*site.partition) == (server, partition)
}

/// Whether the site leaves the destination to the group: it is there, or at another server. A
/// standby has its server for itself.
pub(super) fn fits(site: &types::Site, spot: &LocatedPartition) -> bool {
    site.server != spot.server || !site.kind.is_standby() && site.partition == spot.partition.name
}

/// A standby does not move: another one is made, and this one is removed when that is in step.
fn report_standby(context: &VosContext, name: &str, site: &types::Site) {
    let server = context.server_name(site.server);
    eprintln!(
        "rialto vos: the standby of {name} on {server} {} is left there: 'rialto vos addstandby \
         -server OTHER -id {name}' makes another, and then 'rialto vos remstandby -server {server} \
         -id {name}'",
        site.partition
    );
}

/// Reports volumes that remain on the partitions and are not recorded as moved.
fn report_remaining(context: &VosContext, from: &[LocatedPartition]) -> Result<(), Failure> {
    for spot in from {
        let what = format!("listing the remaining volumes of {}", spot.partition.name);
        for one in
            context.lead(&what, |job| vos::list(job.servers, spot.server, spot.partition.no))?
        {
            let why = match one.kind {
                VolumeKind::ReadWrite => "a read-write volume",
                VolumeKind::ReadOnly => "a read-only volume",
                VolumeKind::Backup => "a backup volume",
                VolumeKind::Snapshot => "a snapshot",
            };
            eprintln!("rialto vos: {} ({}), {why}, is left there", text(&one.name), one.id.0);
        }
    }
    Ok(())
}

fn move_site(
    context: &VosContext,
    name: &str,
    site: &types::Site,
    spot: &LocatedPartition,
) -> Result<(), Failure> {
    let (from, to) = (context.server_name(site.server), context.server_name(spot.server));
    let what = format!("moving the read-only site of {name} from {from} to {to}");
    // Its record has changed since it was listed.
    let group = context.known(name)?;
    context.lead(&what, |job| {
        vos::move_site(job, group, site.server, spot.server, &spot.partition.name)
    })?;
    match (context.dry_run, context.json) {
        (true, _) => {}
        (false, true) => local::show::json(&json!({ "site": name, "from": from, "server": to })),
        (false, false) => {
            println!("Read-only site of {name} moved from {from} to {to} {}", spot.partition.name);
        }
    }
    Ok(())
}

fn roomiest_but(
    context: &VosContext,
    to: &TypedSite,
    is_good: &dyn Fn(&LocatedPartition) -> bool,
) -> Result<LocatedPartition, Failure> {
    let is_named = |spot: &LocatedPartition| to.server.is_some() || !context.is_afs(spot.server);
    let spots = context.spots(to)?.into_iter().filter(is_named);
    let good = spots.filter(|spot| spot.is_well() && is_good(spot));
    good.max_by_key(|spot| spot.partition.free_bytes).ok_or_else(|| {
        Failure::new("finding a partition", "no other server or partition of the cell can take it")
            .mend("add a server or a partition, or name one with -toserver")
    })
}

pub(super) fn move_one(
    context: &VosContext,
    group: Revised<VolumeGroup>,
    spot: &LocatedPartition,
    with_group: bool,
) -> Result<(), Failure> {
    let name = text(&group.record.name);
    let (to, partition) = (context.server_name(spot.server), &spot.partition.name);
    let what = format!("moving the volume {name} to {to}");
    let moved = context.lead(&what, |job| {
        let act = if with_group { vos::move_group } else { vos::move_volume };
        act(job, group, spot.server, partition)
    })?;
    match (context.dry_run, context.json) {
        (true, _) => {}
        (false, true) => local::show::json(&json!({
            "name": name, "server": to, "partition": partition, "rounds": moved.rounds,
            "bytes": moved.bytes,
            "held_bytes": moved.held_bytes, "held_millis": moved.held.as_millis(),
        })),
        // By AFS's protocol the servers do not tell how much they sent.
        (false, false) if moved.rounds == 0 => println!(
            "Volume {name} moved to {to} {partition}: changes waited {} ms",
            moved.held.as_millis()
        ),
        (false, false) => println!(
            "Volume {name} moved to {to} {partition}: {} in {} rounds, the last {} while changes \
                waited ({} ms)",
            bytes(moved.bytes),
            moved.rounds,
            bytes(moved.held_bytes),
            moved.held.as_millis(),
        ),
    }
    Ok(())
}
