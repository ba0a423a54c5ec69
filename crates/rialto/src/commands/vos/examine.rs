//! `vos examine`.

use clap::Args;
use types::{VolumeInfo, VolumeKind};

use super::create::last_word;
use super::office::{Office, Site, text};
use super::show;
use crate::failure::Failure;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos examine home.alice
    rialto vos examine -id 536870915 --json | jq .used_bytes";

/// Shows a volume, and the others of its group.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP, visible_alias = "volinfo")]
pub struct Examine {
    /// The volume's name or number.
    #[arg(long, value_name = "VOLUME")]
    id: Option<String>,
    /// Taken for OpenAFS's sake.
    #[arg(long, hide = true)]
    extended: bool,
    /// VOLUME, instead of the option.
    #[arg(value_name = "VOLUME", num_args = 0..=1)]
    words: Vec<String>,
}

impl Examine {
    pub fn run(self, office: &Office) -> Result<(), Failure> {
        let mut site = Site::default();
        let wanted = last_word(&mut site, self.words, self.id, "a volume")?;
        let group = office.group(&wanted, &site)?;
        if office.common.json {
            let mut shown = show::volume_json(office, &group[0]);
            shown["group"] = group[1..].iter().map(|other| show::volume_json(office, other)).collect();
            crate::show::json(&shown);
        } else {
            print(office, &group);
        }
        Ok(())
    }
}

fn print(office: &Office, group: &[VolumeInfo]) {
    let volume = &group[0];
    let of = |kind| group.iter().find(|one| one.kind == kind);
    let number = |kind| of(kind).map_or(0, |one| one.id.0);
    println!("{}", show::line(volume));
    println!("    {} {}", office.server(), office.name_of(volume.partition));
    println!(
        "    RWrite {:>10} ROnly {:>10} Backup {:>10}",
        number(VolumeKind::ReadWrite),
        number(VolumeKind::ReadOnly),
        number(VolumeKind::Backup),
    );
    println!("    MaxQuota {:>10} K", volume.quota_bytes / 1024);
    println!("    Files    {:>10}", volume.used_files);
    println!("    Creation    {}", show::date(volume.created));
    let backup = of(VolumeKind::Backup).map_or("Never".to_owned(), |backup| show::date(backup.created));
    println!("    Backup      {backup}");
    println!("    Last Update {}", show::date(volume.updated));
    let snapshots: Vec<_> = group[1..].iter().filter(|one| one.kind == VolumeKind::Snapshot).collect();
    if !snapshots.is_empty() {
        println!("    Snapshots");
    }
    for snapshot in snapshots {
        println!("       {:<32} {:>10} {}", text(&snapshot.name), snapshot.id.0, show::date(snapshot.created));
    }
    println!();
    sites(office, group, &mut |line| println!("{line}"));
}

/// Where a group is, as the location database shows it.
pub fn sites(office: &Office, group: &[VolumeInfo], put: &mut dyn FnMut(&str)) {
    let names = [(VolumeKind::ReadWrite, "RWrite"), (VolumeKind::ReadOnly, "ROnly"), (VolumeKind::Backup, "Backup")];
    let of = |(kind, name): &(VolumeKind, &str)| {
        let found = group.iter().find(|one| one.kind == *kind)?;
        Some(format!("{name}: {:<10}", found.id.0))
    };
    let numbers: Vec<_> = names.iter().filter_map(of).collect();
    put(format!("    {}", numbers.join("    ")).trim_end());
    let sited: Vec<_> =
        group.iter().filter(|one| matches!(one.kind, VolumeKind::ReadWrite | VolumeKind::ReadOnly)).collect();
    put(&format!("    number of sites -> {}", sited.len()));
    for one in sited {
        let (partition, kind) = (office.name_of(one.partition), show::kind(one.kind));
        put(&format!("       server {} partition {partition} {kind} Site", office.server()));
    }
}
