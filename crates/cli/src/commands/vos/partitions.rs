//! `vos partinfo` and `vos status`.

use clap::Args;
use local::failure::Failure;
use local::show::bytes;
use serde_json::{Value, json};
use types::{Answer, IncomingTree, PartitionInfo, ServerId, TaskInfo, TaskState, VolumeCall};

use super::context::{LocatedPartition, VosContext, text};
use super::health::ailment;
use super::standby;
use super::typed::{TypedPlace, TypedSite, place};

/// As many as OpenAFS shows.
const PARTITIONS_IN_A_LINE: usize = 6;

const PARTINFO_HELP: &str = "\
EXAMPLES
    rialto vos partinfo
    rialto vos partinfo -partition vicep --json | jq .free_bytes";

const LISTPART_HELP: &str = "\
EXAMPLES
    rialto vos listpart afs1
    rialto vos listpart -server afs1 --json | jq -r .partition";

const STATUS_HELP: &str = "\
EXAMPLES
    rialto vos status
    rialto vos status afs2 -all            recently ended ones too

Transactions are fetches of a server from another one, for a release, a copy or a move.
Unfinished data was received by an interrupted command: repeating that command finishes it,
and 'rialto vos abandon' gives it up.";

/// Shows the free space on partitions.
#[derive(Args, Debug)]
#[command(after_help = PARTINFO_HELP)]
pub struct Partinfo {
    #[command(flatten)]
    place: TypedPlace,
    /// Show the sum too.
    #[arg(long)]
    summary: bool,
}

/// Lists the partitions of a server.
#[derive(Args, Debug)]
#[command(after_help = LISTPART_HELP)]
pub struct Listpart {
    #[command(flatten)]
    site: TypedSite,
    /// SERVER, instead of the option.
    #[arg(value_name = "SERVER", num_args = 0..=1)]
    words: Vec<String>,
}

/// Shows the volume tasks of a server.
#[derive(Args, Debug)]
#[command(after_help = STATUS_HELP)]
pub struct VosStatus {
    #[command(flatten)]
    site: TypedSite,
    /// Show recently ended ones too.
    #[arg(long)]
    all: bool,
    /// SERVER, instead of the option.
    #[arg(value_name = "SERVER", num_args = 0..=1)]
    words: Vec<String>,
}

impl Listpart {
    pub(crate) fn run(mut self, context: &VosContext) -> Result<(), Failure> {
        place(&mut self.site, self.words);
        let spots = context.spots(&self.site)?;
        if context.json {
            for spot in &spots {
                local::show::json(&json!({
                    "server": context.server_name(spot.server), "partition": spot.partition.name,
                    "health": spot.health,
                }));
            }
            return Ok(());
        }
        println!("The partitions on the server are:");
        for some in spots.chunks(PARTITIONS_IN_A_LINE) {
            let names: Vec<_> =
                some.iter().map(|spot| format!("    {:<8}", spot.partition.name)).collect();
            println!("{}", names.concat().trim_end());
        }
        println!("Total: {}", spots.len());
        for spot in &spots {
            if let Some(how) = ailment(&spot.health) {
                println!("The disk of {} is {how}", spot.partition.name);
            }
        }
        Ok(())
    }
}

pub(super) fn free_space(wanted: Partinfo, context: &VosContext) -> Result<(), Failure> {
    let spots = context.spots(&wanted.place.site())?;
    let several = spots.iter().any(|spot| spot.server != spots[0].server);
    for LocatedPartition { server, partition, health } in &spots {
        let server = context.server_name(*server);
        let (name, free, total) = (&partition.name, partition.free_bytes, partition.total_bytes);
        if context.json {
            local::show::json(&json!({
                "server": server, "partition": name, "free_bytes": free, "total_bytes": total,
                "compression": partition.compression, "health": health,
            }));
        } else {
            let (free, total) = (free / 1024, total / 1024);
            let name = if several { format!("{server} {name}") } else { name.clone() };
            println!("Free space on partition {name}: {free} K blocks out of total {total}");
            if partition.compression != "none" {
                println!("    Snapshots and copies are compressed: {}", partition.compression);
            }
            if let Some(how) = ailment(health) {
                println!("    It gets no new volumes: its disk is {how}");
            }
        }
    }
    if wanted.summary && !context.json {
        let sum = |of: fn(&PartitionInfo) -> u64| {
            spots.iter().map(|spot| of(&spot.partition) / 1024).sum::<u64>()
        };
        println!(
            "Summary: {} KB free out of {} KB on {} partitions",
            sum(|one| one.free_bytes),
            sum(|one| one.total_bytes),
            spots.len()
        );
    }
    Ok(())
}

fn state(state: TaskState) -> &'static str {
    match state {
        TaskState::Runs => "fetches",
        TaskState::Done => "done",
        TaskState::Failed => "failed",
    }
}

fn task_json(task: &TaskInfo) -> Value {
    json!({
        "number": task.number, "volume": task.tree.0, "state": state(task.state),
        "since": task.since,
        "epoch": task.epoch, "bytes": task.bytes, "total_bytes": task.total_bytes,
        "text": task.text,
    })
}

fn unfinished_json(context: &VosContext, server: ServerId, one: &IncomingTree) -> Value {
    json!({
        "volume": one.tree.0, "partition": context.name_of(server, one.partition), "over": one.over,
        "since": one.since, "epoch": one.epoch, "bytes": one.bytes, "used_bytes": one.used_bytes,
    })
}

impl VosStatus {
    pub(crate) fn run(mut self, context: &VosContext) -> Result<(), Failure> {
        place(&mut self.site, self.words);
        for server in context.chosen(&self.site)? {
            let name = context.server_name(server);
            let what = format!("reading the tasks of {name}");
            let Answer::Tasks(tasks) = context.ask(&what, server, VolumeCall::Tasks)? else {
                return Err(Failure::new(what, "the server answered something else"));
            };
            let active: Vec<_> =
                tasks.iter().filter(|task| self.all || task.state == TaskState::Runs).collect();
            let runs =
                |tree| tasks.iter().any(|task| task.tree == tree && task.state == TaskState::Runs);
            let Answer::Incoming { mut trees, .. } =
                context.ask(&what, server, VolumeCall::Incoming { tree: None })?
            else {
                return Err(Failure::new(what, "the server answered something else"));
            };
            trees.retain(|one| !runs(one.tree));
            let followed = standby::followed(context, server);
            if context.json {
                let transactions: Vec<_> = active.iter().map(|task| task_json(task)).collect();
                let unfinished: Vec<_> =
                    trees.iter().map(|one| unfinished_json(context, server, one)).collect();
                let standbys = standby::volumes_json(context, &followed);
                local::show::json(&json!({ "server": name, "transactions": transactions,
                        "unfinished": unfinished, "standbys": standbys }));
                continue;
            }
            match active[..] {
                [] => println!("No active transactions on {name}"),
                _ => println!("Total transactions: {} on {name}", active.len()),
            }
            for task in active {
                let of = if task.total_bytes == 0 {
                    String::new()
                } else {
                    format!(" of {}", bytes(task.total_bytes))
                };
                let (number, tree, text) = (task.number, task.tree.0, &task.text);
                println!(
                    "{number:>6}  volume {tree}  {}  {}{of}  {text}",
                    state(task.state),
                    bytes(task.bytes)
                );
            }
            for group in &followed {
                println!("Standbys of {} ({})", text(&group.name), group.read_write.0);
                standby::lines(context, group, &mut |line| println!("{line}"));
            }
            if !trees.is_empty() {
                println!("Unfinished: {} on {name}", trees.len());
            }
            for one in trees {
                let since = if one.since == 0 {
                    String::new()
                } else {
                    format!(" since epoch {}", one.since)
                };
                let over = if one.over { ", over the volume" } else { "" };
                let (partition, came) = (context.name_of(server, one.partition), bytes(one.bytes));
                println!(
                    "        volume {}  on {partition}  epoch {}{since}{over}  {came} came",
                    one.tree.0, one.epoch
                );
            }
        }
        Ok(())
    }
}
