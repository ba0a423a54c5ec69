//! `vos listvol` and `vos listvldb`.

use std::collections::BTreeMap;

use clap::Args;
use types::{PartitionNo, VolumeId, VolumeInfo, VolumeState};

use super::create::last_word;
use super::examine::sites;
use super::office::{Office, Site, text};
use super::show;
use crate::failure::Failure;

const LISTVOL_HELP: &str = "\
EXAMPLES
    rialto vos listvol
    rialto vos listvol -partition b -fast              only numbers
    rialto vos listvol --json | jq -r .name            one value a line";

const LISTVLDB_HELP: &str = "\
EXAMPLES
    rialto vos listvldb
    rialto vos listvldb -name home.alice
    rialto vos listvldb --json | jq -r .name

This cell keeps where volumes are on their partitions, so it shows what is there.";

/// Lists the volumes of the server.
#[derive(Args, Debug)]
#[command(after_help = LISTVOL_HELP)]
pub struct Listvol {
    #[command(flatten)]
    site: Site,
    /// Only numbers.
    #[arg(long)]
    fast: bool,
    /// With quota, files and times.
    #[arg(long)]
    long: bool,
    /// Without the lines that count.
    #[arg(long)]
    quiet: bool,
    /// [SERVER] PARTITION, instead of the options; one word alone is a server, or a partition if it begins with a slash.
    #[arg(value_name = "SERVER", num_args = 0..=2)]
    words: Vec<String>,
}

/// Lists where volumes are.
#[derive(Args, Debug)]
#[command(after_help = LISTVLDB_HELP)]
pub struct Listvldb {
    #[command(flatten)]
    site: Site,
    /// Only this volume's group.
    #[arg(long, value_name = "VOLUME")]
    name: Option<String>,
    /// Without the line that counts.
    #[arg(long)]
    quiet: bool,
    /// Taken for OpenAFS's sake: the order is that of names.
    #[arg(long, hide = true)]
    nosort: bool,
    /// Only what somebody has locked: nothing here ever is.
    #[arg(long)]
    locked: bool,
    /// VOLUME, instead of the option.
    #[arg(value_name = "VOLUME", num_args = 0..=1)]
    words: Vec<String>,
}

impl Listvol {
    pub fn run(mut self, office: &Office) -> Result<(), Failure> {
        place(&mut self.site, std::mem::take(&mut self.words));
        let on = office.site(&self.site)?;
        show::write(|put| {
            let chosen = office.partitions().iter().filter(|one| on.is_none_or(|on| on == one.no));
            for partition in chosen {
                self.list(office, partition.no, put)?;
            }
            Ok(())
        })
    }

    fn list(
        &self,
        office: &Office,
        on: PartitionNo,
        put: &mut dyn FnMut(&str) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        let bare = self.quiet || office.common.json;
        let (mut online, mut offline) = (0_u64, 0_u64);
        let mut lines = Vec::new();
        office.each(on, &mut |volumes| {
            let off = volumes.iter().filter(|volume| volume.state == VolumeState::Offline).count() as u64;
            offline += off;
            online += volumes.len() as u64 - off;
            // The first line counts all of them, as OpenAFS's does; without it nothing needs to be kept.
            lines.extend(volumes.iter().map(|volume| self.shown(office, volume)));
            if bare {
                return lines.drain(..).try_for_each(|line| show::ignore_leaving(put(&line)));
            }
            Ok(())
        })?;
        if !bare {
            let (server, partition, all) = (office.server(), office.name_of(on), online + offline);
            lines.insert(0, format!("Total number of volumes on server {server} partition {partition}: {all}"));
            lines.push(String::new());
            lines.push(format!("Total volumes onLine {online} ; Total volumes offLine {offline} ; Total busy 0"));
            lines.push(String::new());
        }
        lines.into_iter().try_for_each(|line| show::ignore_leaving(put(&line)))
    }

    fn shown(&self, office: &Office, volume: &VolumeInfo) -> String {
        if office.common.json {
            return show::volume_json(office, volume).to_string();
        }
        if self.fast {
            return volume.id.0.to_string();
        }
        let line = show::line(volume);
        if !self.long {
            return line;
        }
        format!(
            "{line}\n    {} {}\n    RWrite {:>10}\n    MaxQuota {:>10} K\n    Files    {:>10}\n    Creation    {}\n    Last Update {}\n",
            office.server(),
            office.name_of(volume.partition),
            volume.tree.0,
            volume.quota_bytes / 1024,
            volume.used_files,
            show::date(volume.created),
            show::date(volume.updated),
        )
    }
}

impl Listvldb {
    pub fn run(mut self, office: &Office) -> Result<(), Failure> {
        let one = match (self.name.take(), std::mem::take(&mut self.words)) {
            (None, words) if words.is_empty() => None,
            (name, words) => Some(last_word(&mut self.site, words, name, "a volume")?),
        };
        let groups = match one {
            Some(wanted) => vec![office.group(&wanted, &self.site)?],
            None if self.locked => Vec::new(),
            None => groups(office.all(office.site(&self.site)?)?),
        };
        show::write(|put| {
            for group in &groups {
                let mut lines = Vec::new();
                if office.common.json {
                    let mut shown = show::volume_json(office, &group[0]);
                    shown["group"] = group[1..].iter().map(|other| show::volume_json(office, other)).collect();
                    lines.push(shown.to_string());
                } else {
                    lines.push(text(&group[0].name));
                    sites(office, group, &mut |line| lines.push(line.to_owned()));
                    lines.push(String::new());
                }
                lines.iter().try_for_each(|line| show::ignore_leaving(put(line)))?;
            }
            if !self.quiet && !office.common.json {
                show::ignore_leaving(put(&format!("Total entries: {}", groups.len())))?;
            }
            Ok(())
        })
    }
}

/// One word alone is a server, unless it looks like a partition.
pub fn place(site: &mut Site, words: Vec<String>) {
    let alone = words.len() == 1;
    for (at, word) in words.into_iter().enumerate() {
        if at == 1 || alone && word.starts_with('/') {
            site.partition.get_or_insert(word);
        } else {
            site.server.get_or_insert(word);
        }
    }
}

/// Volumes by their trees, the read-write volume first, in the order of names.
fn groups(volumes: Vec<VolumeInfo>) -> Vec<Vec<VolumeInfo>> {
    let mut groups: BTreeMap<VolumeId, Vec<VolumeInfo>> = BTreeMap::new();
    for volume in volumes {
        groups.entry(volume.tree).or_default().push(volume);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.iter_mut().for_each(|group| group.sort_by_key(|volume| (volume.kind, volume.id)));
    groups.sort_by(|one, other| one[0].name.as_bytes().cmp(other[0].name.as_bytes()));
    groups
}
