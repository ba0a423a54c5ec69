//! `vos balance`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use local::failure::Failure;
use local::show::bytes;
use serde_json::{Value, json};
use types::{
    Answer, Revised, Site, SiteKind, VolumeCall, VolumeGroup, VolumeId, VolumeKind, VolumeState,
};
use vos::{BalanceBy, FilledPartition, MovableVolume, PlannedMove, unevenness};

use super::context::{LocatedPartition, VosContext, text};
use super::moving::{fits, move_one};
use super::typed::{TypedPlace, quota};
use crate::commands::cell_client::odd;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos balance -dryrun              show what would move, and move nothing
    rialto vos balance                      over all servers
    rialto vos balance -server afs1         between the partitions of one server
    rialto vos balance -rate 20M -most 10   ten volumes at most, 20 MB/s on average
    rialto vos balance -by load -dryrun     by the uses of volumes instead of their room

Moves read-write volumes, with their snapshots, from the fullest partitions to the emptiest,
one after the other and while clients use them, until all partitions are filled alike within
the tolerance. By load (-by load) it moves them from the most used to the least used, until
the volumes of all partitions are used alike; a use is a call on a file, or 64 KiB read or
written, as servers counted them over the last day at most. A volume moves at most once.
Volumes that are locked, offline or have read-only sites on another partition of the
destination stay. If interrupted (Ctrl-C), the volume that is moving is whole at one of its
places, and the command goes on where it was.";

/// Bytes that count as one use.
const USE_BYTES: u64 = 64 << 10;

/// The measure, as it is typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TypedMeasure {
    /// How full partitions are.
    Room,
    /// How much their volumes are used.
    Load,
}

impl From<TypedMeasure> for BalanceBy {
    fn from(typed: TypedMeasure) -> BalanceBy {
        match typed {
            TypedMeasure::Room => BalanceBy::Room,
            TypedMeasure::Load => BalanceBy::Load,
        }
    }
}

/// Moves volumes until partitions are filled, or used, alike.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Balance {
    #[command(flatten)]
    place: TypedPlace,
    /// The measure that is to be alike.
    #[arg(long, value_name = "MEASURE", value_enum, default_value = "room")]
    by: TypedMeasure,
    /// Differences that may stay, in percent of a partition, or by load of all uses.
    #[arg(long, value_name = "PERCENT", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    tolerance: u32,
    /// Kilobytes for each second, or a size such as 20M, on average over the moves [default: no
    /// limit]
    #[arg(long, value_name = "SIZE", value_parser = quota)]
    rate: Option<u64>,
    /// Volumes that move at most.
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    most: usize,
}

impl Balance {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let mut spots = context.spots(&self.place.site())?;
        // Servers of AFS are filled as their administrators say.
        spots.retain(|spot| !context.is_afs(spot.server));
        let by = BalanceBy::from(self.by);
        let found = Filling::of(context, &spots, by)?;
        let fits = |id: VolumeId, to: usize| {
            let group = found.groups.get(&id);
            spots[to].is_well() && group.is_some_and(|seen| may_be_at(&seen.record, &spots[to]))
        };
        // The plan counts in thousandths.
        let tolerance = self.tolerance * 10;
        let plan = vos::balance(&found.partitions, by, &fits, tolerance, self.most);
        show_plan(context, &spots, &found, &plan);
        if context.dry_run {
            return Ok(());
        }
        let (began, mut sent, mut failed) = (Instant::now(), 0_u64, 0);
        for one in &plan {
            // Its record may have changed since.
            let moved = context
                .known(&one.volume.0.to_string())
                .and_then(|group| move_one(context, group, &spots[one.to], true));
            match moved {
                Ok(()) => sent += one.bytes,
                Err(failure) => {
                    eprintln!("rialto vos: {failure}");
                    failed += 1;
                }
            }
            if let Some(rate) = self.rate.filter(|rate| *rate > 0) {
                let due = Duration::from_secs_f64(sent as f64 / rate as f64);
                std::thread::sleep(due.saturating_sub(began.elapsed()));
            }
        }
        if !context.json {
            println!("Total volumes moved: {}; failed to move: {failed}", plan.len() - failed);
        }
        if failed == 0 {
            return Ok(());
        }
        Err(Failure::new("balancing", format!("{failed} of {} volumes failed", plan.len()))
            .mend("the lines above have the reasons; repeating the command goes on"))
    }
}

/// The partitions, and the groups of the volumes that could move.
struct Filling {
    by: BalanceBy,
    partitions: Vec<FilledPartition>,
    groups: HashMap<VolumeId, Revised<VolumeGroup>>,
}

impl Filling {
    fn of(
        context: &VosContext,
        spots: &[LocatedPartition],
        by: BalanceBy,
    ) -> Result<Filling, Failure> {
        let mut groups = HashMap::new();
        context.each_group(&mut |some| {
            groups.extend(some.into_iter().map(|seen| (seen.record.read_write, seen)));
            Ok(())
        })?;
        let mut partitions = Vec::new();
        for spot in spots {
            let loads = match by {
                BalanceBy::Room => HashMap::new(),
                BalanceBy::Load => loads(context, spot)?,
            };
            let mut one = FilledPartition {
                free_bytes: spot.partition.free_bytes,
                ..FilledPartition::default()
            };
            context.each(spot, &mut |volumes| {
                for volume in volumes {
                    let load = loads.get(&volume.id).copied().unwrap_or(0);
                    let is_free = |seen: &Revised<VolumeGroup>| {
                        seen.record.busy.is_none()
                            && seen.record.read_write_site().is_some_and(|site| is_at(site, spot))
                    };
                    let moves = volume.kind == VolumeKind::ReadWrite
                        && volume.state == VolumeState::Online
                        && groups.get(&volume.id).is_some_and(is_free);
                    if moves {
                        let bytes = volume.used_bytes;
                        one.volumes.push(MovableVolume { id: volume.id, bytes, load });
                        continue;
                    }
                    one.fixed_load = one.fixed_load.saturating_add(load);
                    // Snapshots share what they have with their volume.
                    if matches!(volume.kind, VolumeKind::ReadWrite | VolumeKind::ReadOnly) {
                        one.fixed_bytes += volume.used_bytes;
                    }
                }
                Ok(())
            })?;
            partitions.push(one);
        }
        Ok(Filling { by, partitions, groups })
    }
}

/// The uses of volumes of a partition, as its server counted them.
fn loads(context: &VosContext, spot: &LocatedPartition) -> Result<HashMap<VolumeId, u64>, Failure> {
    let (mut loads, mut after) = (HashMap::new(), VolumeId(0));
    let what = format!("asking {} how much its volumes are used", context.server_name(spot.server));
    loop {
        let call = VolumeCall::Loads { partition: spot.partition.no, after, max: u32::MAX };
        let Answer::Report(text) = context.ask(&what, spot.server, call)? else {
            return Err(odd(&what));
        };
        let report: Value = serde_json::from_str(&text).map_err(|_| odd(&what))?;
        for one in report["volumes"].as_array().into_iter().flatten() {
            let number = |field: &str| one[field].as_u64().unwrap_or(0);
            after = VolumeId(number("id"));
            let uses = number("calls").saturating_add(number("bytes") / USE_BYTES);
            loads.insert(after, uses);
        }
        if report["end"] != false {
            return Ok(loads);
        }
    }
}

fn is_at(site: &Site, spot: &LocatedPartition) -> bool {
    site.server == spot.server && site.partition == spot.partition.name
}

/// A server has a group on one partition.
fn may_be_at(group: &VolumeGroup, spot: &LocatedPartition) -> bool {
    let from = group.read_write_site().map(|site| site.server);
    let others = group.sites.iter().filter(|site| site.kind != SiteKind::ReadWrite);
    from == Some(spot.server) || others.into_iter().all(|site| fits(site, spot))
}

fn show_plan(
    context: &VosContext,
    spots: &[LocatedPartition],
    found: &Filling,
    plan: &[PlannedMove],
) {
    let place = |at: usize| {
        let spot = &spots[at];
        format!("{} {}", context.server_name(spot.server), spot.partition.name)
    };
    let name = |id: VolumeId| {
        found.groups.get(&id).map_or_else(|| id.0.to_string(), |seen| text(&seen.record.name))
    };
    let uneven = unevenness(&found.partitions, found.by);
    if context.json {
        let moves = plan.iter().map(|one| {
            json!({
                "volume": name(one.volume), "bytes": one.bytes, "uses": one.load,
                "from": place(one.from), "to": place(one.to),
            })
        });
        local::show::json(&json!({
            "difference_percent": f64::from(uneven) / 10.0,
            "moves": moves.collect::<Vec<_>>(),
            "bytes": plan.iter().map(|one| one.bytes).sum::<u64>(),
        }));
        return;
    }
    let percent = f64::from(uneven) / 10.0;
    match found.by {
        BalanceBy::Room => {
            println!("The fullest and the emptiest partition differ by {percent:.1} %");
        }
        BalanceBy::Load => {
            println!("The most and the least used partition differ by {percent:.1} % of all uses");
        }
    }
    for one in plan {
        let uses = match found.by {
            BalanceBy::Room => String::new(),
            BalanceBy::Load => format!(", {} uses", one.load),
        };
        println!(
            "    {} ({}{uses}) from {} to {}",
            name(one.volume),
            bytes(one.bytes),
            place(one.from),
            place(one.to)
        );
    }
    let total = plan.iter().map(|one| one.bytes).sum();
    println!("{} volumes to move, {}", plan.len(), bytes(total));
}
