//! `vos examine`.

use clap::Args;
use local::failure::Failure;
use serde_json::Value;
use types::{VolumeGroup, VolumeKind};

use super::context::{LocatedVolume, VosContext, text};
use super::model::{self, AccessModel};
use super::typed::{TypedSite, TypedVolume};
use super::{formatted, show, sites, standby};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos examine home.alice
    rialto vos examine -id 536870915 --json | jq .used_bytes";

/// Shows a volume, and the others of its group.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP, visible_alias = "volinfo")]
pub struct VosExamine {
    #[command(flatten)]
    volume: TypedVolume,
    /// Show a name and its value in each line, as OpenAFS does for programs.
    #[arg(long, conflicts_with = "json")]
    format: bool,
}

impl VosExamine {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let found = context.found(&self.volume.name()?, &TypedSite::default())?;
        let known = found.group.map(|seen| seen.record);
        let group: Vec<LocatedVolume> = found
            .volumes
            .into_iter()
            .map(|info| LocatedVolume { server: found.server, info })
            .collect();
        if context.json {
            let mut shown = show::volume_json(context, &group[0]);
            shown["group"] =
                group[1..].iter().map(|other| show::volume_json(context, other)).collect();
            let root = model::root_status(context, &group[0]).ok();
            shown["access"] = root.map(|root| AccessModel::of(&root).word()).into();
            shown["read_times"] = root.map(|root| root.read_times).into();
            shown["afs"] = model::refuses_afs(context, &group[0]).map(|refuses| !refuses).into();
            let seen = known.as_ref().map(|known| standby::seen(context, known));
            let standbys = known.as_ref().zip(seen).map(|(known, seen)| {
                standby::as_json(&|server| context.server_name(server), known, &seen)
            });
            shown["standbys"] = standbys.into();
            shown["database"] = known.map_or(Value::Null, |known| sites::json(context, &known));
            local::show::json(&shown);
        } else {
            if self.format {
                let lines = formatted::lines(context, &group[0], &formatted::by_tree(&group));
                println!("{}\n", lines.join("\n"));
                if let Some(known) = &known {
                    println!("{}", text(&known.name));
                }
            } else {
                print_volume(context, &group, known.as_ref());
            }
            print_sites(context, known.as_ref(), group[0].kind);
            if let Some(known) = &known {
                standby::lines(context, known, &mut |line| println!("{line}"));
            }
        }
        Ok(())
    }
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn print_volume(context: &VosContext, group: &[LocatedVolume], known: Option<&VolumeGroup>) {
    let volume = &group[0];
    let of = |kind| group.iter().find(|one| one.kind == kind);
    let in_database = |kind| {
        let known = known?;
        match kind {
            VolumeKind::ReadWrite => Some(known.read_write),
            VolumeKind::ReadOnly => known.read_only,
            VolumeKind::Backup => known.backup,
            VolumeKind::Snapshot => None,
        }
    };
    let number =
        |kind| of(kind).map(|one| one.id).or_else(|| in_database(kind)).map_or(0, |id| id.0);
    println!("{}", show::line(volume));
    println!(
        "    {} {}",
        context.server_name(volume.server),
        context.name_of(volume.server, volume.partition)
    );
    println!(
        "    RWrite {:>10} ROnly {:>10} Backup {:>10}",
        number(VolumeKind::ReadWrite),
        number(VolumeKind::ReadOnly),
        number(VolumeKind::Backup),
    );
    if let Some(origin) = volume.origin {
        println!("    Clone of    {}", origin.0);
    }
    if context.is_afs(volume.server) {
        println!("    Access      access lists, at a server of AFS");
    } else {
        print_model(context, volume);
    }
    println!("    MaxQuota {:>10} K", volume.quota_bytes / 1024);
    println!("    Files    {:>10}", volume.used_files);
    println!("    Creation    {}", show::date(volume.created));
    let backup =
        of(VolumeKind::Backup).map_or("Never".to_owned(), |backup| show::date(backup.created));
    println!("    Backup      {backup}");
    println!("    Last Update {}", show::date(volume.updated));
    let snapshots: Vec<_> =
        group[1..].iter().filter(|one| one.kind == VolumeKind::Snapshot).collect();
    if !snapshots.is_empty() {
        println!("    Snapshots");
    }
    for snapshot in snapshots {
        println!(
            "       {:<32} {:>10} {}",
            text(&snapshot.name),
            snapshot.id.0,
            show::date(snapshot.created)
        );
    }
    println!();
}

fn print_model(context: &VosContext, volume: &LocatedVolume) {
    let root = model::root_status(context, volume).ok();
    println!(
        "    Access      {}",
        root.map_or("unknown", |root| AccessModel::of(&root).for_people())
    );
    if root.is_some_and(|root| root.by_list) {
        let refused = model::refuses_afs(context, volume);
        let shown = refused.map_or("unknown", |refused| on_or_off(!refused));
        println!("    AFS clients {shown}");
    }
    println!("    Read times  {}", root.map_or("unknown", |root| on_or_off(root.read_times)));
    println!("    At rest     {}", show::at_rest(volume));
}

fn print_sites(context: &VosContext, known: Option<&VolumeGroup>, kind: VolumeKind) {
    match known {
        Some(known) => sites::lines(context, known, &mut |line| println!("{line}")),
        // A shadow, or a snapshot that the volume left behind.
        None if kind == VolumeKind::Snapshot => {
            println!(
                "    The database does not name it: 'vos clone -readwrite' makes a volume of it"
            );
        }
        None => println!("    The database does not have it: 'vos syncvldb' enters it"),
    }
}
