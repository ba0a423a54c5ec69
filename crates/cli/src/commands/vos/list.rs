//! `vos listvol` and `vos listvldb`.

use clap::Args;
use local::failure::Failure;
use types::{Revised, VolumeGroup, VolumeState};

use super::context::{LocatedPartition, LocatedVolume, VosContext, text};
use super::typed::{TypedSite, last_word, place};
use super::{formatted, show, sites};

const LISTVOL_HELP: &str = "\
EXAMPLES
    rialto vos listvol
    rialto vos listvol -partition vicep -fast          only numbers
    rialto vos listvol --json | jq -r .name            one value a line";

const LISTVLDB_HELP: &str = "\
EXAMPLES
    rialto vos listvldb
    rialto vos listvldb -name home.alice
    rialto vos listvldb -server afs1 -locked
    rialto vos listvldb --json | jq -r .name

It shows the records of the cell's database: 'vos syncvldb' brings them up to date with the
servers. Only servers have records of snapshots: 'vos examine' and 'vos listvol' show them.";

/// Lists the volumes of servers.
#[derive(Args, Debug)]
#[command(after_help = LISTVOL_HELP)]
pub struct Listvol {
    #[command(flatten)]
    site: TypedSite,
    /// Show only numbers.
    #[arg(long)]
    fast: bool,
    /// Show quota, files and times too.
    #[arg(long)]
    long: bool,
    /// Omit the lines with counts.
    #[arg(long)]
    quiet: bool,
    /// Show a name and its value in each line, as OpenAFS does for programs.
    #[arg(long, conflicts_with_all = ["fast", "long", "json"])]
    format: bool,
    /// [SERVER] PARTITION, instead of the options; one word alone is a server, or a partition if it
    /// begins with a slash.
    #[arg(value_name = "SERVER", num_args = 0..=2)]
    words: Vec<String>,
}

/// Lists the sites of volumes.
#[derive(Args, Debug)]
#[command(after_help = LISTVLDB_HELP)]
pub struct Listvldb {
    #[command(flatten)]
    site: TypedSite,
    /// Show only this volume's group.
    #[arg(long, value_name = "VOLUME")]
    name: Option<String>,
    /// Omit the line with the count.
    #[arg(long)]
    quiet: bool,
    /// Sort by numbers instead of names.
    #[arg(long)]
    nosort: bool,
    /// Show only groups that are locked or in an operation.
    #[arg(long)]
    locked: bool,
    /// VOLUME, instead of the option.
    #[arg(value_name = "VOLUME", num_args = 0..=1)]
    words: Vec<String>,
}

impl Listvol {
    pub(crate) fn run(mut self, context: &VosContext) -> Result<(), Failure> {
        place(&mut self.site, std::mem::take(&mut self.words));
        let spots = context.spots(&self.site)?;
        show::write(|put| spots.iter().try_for_each(|spot| self.list(context, spot, put)))
    }

    fn list(
        &self,
        context: &VosContext,
        spot: &LocatedPartition,
        put: &mut dyn FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        // Numbers come in their order; other lines are sorted by names.
        let bare = context.json || self.quiet && self.fast;
        let (mut online, mut offline) = (0_u64, 0_u64);
        let mut found = Vec::new();
        let mut lines = Vec::new();
        context.each(spot, &mut |volumes| {
            let off =
                volumes.iter().filter(|volume| volume.state == VolumeState::Offline).count() as u64;
            offline += off;
            online += volumes.len() as u64 - off;
            let located = |info| LocatedVolume { server: spot.server, info };
            if bare {
                let mut shown = volumes.into_iter().map(|info| self.shown(context, &located(info)));
                return shown.try_for_each(|line| put(&line));
            }
            found.extend(volumes.into_iter().map(located));
            Ok(())
        })?;
        if !self.fast {
            found.sort_by(|one, other| one.name.as_bytes().cmp(other.name.as_bytes()));
        }
        if self.format {
            let others = formatted::by_tree(&found);
            for volume in &found {
                let shown = formatted::lines(context, volume, &others);
                lines.push(format!("BEGIN_OF_ENTRY\n{}\nEND_OF_ENTRY\n", shown.join("\n")));
            }
        } else {
            lines.extend(found.iter().map(|volume| self.shown(context, volume)));
        }
        if !bare && !self.quiet {
            let (server, partition, all) =
                (context.server_name(spot.server), &spot.partition.name, online + offline);
            lines.insert(
                0,
                format!("Total number of volumes on server {server} partition {partition}: {all}"),
            );
            if !self.format {
                lines.push(String::new());
            }
            if !self.fast && !self.format {
                lines.push(format!(
                    "Total volumes onLine {online} ; Total volumes offLine {offline} ; Total busy 0"
                ));
                lines.push(String::new());
            }
        }
        lines.into_iter().try_for_each(|line| put(&line))
    }

    fn shown(&self, context: &VosContext, volume: &LocatedVolume) -> String {
        if context.json {
            return show::volume_json(context, volume).to_string();
        }
        if self.fast {
            return volume.id.0.to_string();
        }
        let line = show::line(volume);
        if !self.long {
            return line;
        }
        format!(
            "{line}\n    {} {}\n    RWrite {:>10}\n    MaxQuota {:>10} K\n    Files    \
             {:>10}\n    Creation    {}\n    Last Update {}\n",
            context.server_name(volume.server),
            context.name_of(volume.server, volume.partition),
            volume.tree.0,
            volume.quota_bytes / 1024,
            volume.used_files,
            show::date(volume.created),
            show::date(volume.updated),
        )
    }
}

impl Listvldb {
    pub(crate) fn run(mut self, context: &VosContext) -> Result<(), Failure> {
        let one = match (self.name.take(), std::mem::take(&mut self.words)) {
            (None, words) if words.is_empty() => None,
            (name, words) => Some(last_word(&mut self.site, words, name, "a volume")?),
        };
        let is_one = one.is_some();
        let mut groups = match one {
            Some(wanted) => vec![context.known(&wanted)?],
            None => self.chosen(context)?,
        };
        if !self.nosort {
            groups
                .sort_by(|one, other| one.record.name.as_bytes().cmp(other.record.name.as_bytes()));
        }
        let is_counted = !self.quiet && !context.json && !is_one;
        show::write(|put| {
            if is_counted {
                put(&self.title())?;
                put("")?;
            }
            for Revised { record: group, .. } in &groups {
                let mut lines = Vec::new();
                if context.json {
                    lines.push(sites::json(context, group).to_string());
                } else {
                    lines.push(text(&group.name));
                    sites::lines(context, group, &mut |line| lines.push(line.to_owned()));
                    lines.push(String::new());
                }
                lines.iter().try_for_each(|line| put(line))?;
            }
            if is_counted {
                put(&format!("Total entries: {}", groups.len()))?;
            }
            Ok(())
        })
    }

    fn title(&self) -> String {
        let mut title = match &self.site.server {
            Some(server) => format!("VLDB entries for server {server}"),
            None => "VLDB entries for all servers".to_owned(),
        };
        if let Some(partition) = &self.site.partition {
            title = format!("{title} partition {partition}");
        }
        if self.locked { format!("{title} which are locked:") } else { title }
    }

    fn chosen(&self, context: &VosContext) -> Result<Vec<Revised<VolumeGroup>>, Failure> {
        let server = self.site.server.as_ref().map(|server| context.server(server)).transpose()?;
        let partition = match &self.site.partition {
            Some(_) => Some(
                context
                    .spots(&self.site)?
                    .into_iter()
                    .map(|spot| spot.partition.name)
                    .collect::<Vec<_>>(),
            ),
            None => None,
        };
        let is_at = |site: &types::Site| {
            server.is_none_or(|server| server == site.server)
                && partition.as_ref().is_none_or(|names| names.contains(&site.partition))
        };
        let mut chosen = Vec::new();
        context.each_group(&mut |groups| {
            let meant = |seen: &Revised<VolumeGroup>| {
                (!self.locked || seen.record.busy.is_some()) && seen.record.sites.iter().any(is_at)
            };
            chosen.extend(groups.into_iter().filter(meant));
            Ok(())
        })?;
        Ok(chosen)
    }
}
