//! `vos clone`, `vos backup` and `vos backupsys`.

use clap::Args;
use local::failure::Failure;
use types::{Revised, VolumeCall, VolumeGroup, VolumeKind};

use super::context::{LocatedVolume, VosContext, text};
use super::show;
use super::typed::{SitedVolume, TypedSite, TypedVolume, name, read_write_name};

const CLONE_HELP: &str = "\
EXAMPLES
    rialto vos clone home.alice -toname home.alice.before
    rialto vos clone -id 536870915
    rialto vos clone home.alice -toname home.alice.try -readwrite
    rialto vos clone home.alice.before -toname home.alice.again -readwrite

The new volume is read-only and shows the current state of the other; it takes no space
until that one changes. 'vos snapshot' makes any number of them under one name. With
-readwrite it is an independent volume with the other's quota, at the same server and
partition, that begins with the current state of the other (also a read-only one) and takes
space only for changes. Repeating an interrupted command finishes it.";

pub(super) const BACKUP_HELP: &str = "\
EXAMPLES
    rialto vos backup home.alice            home.alice.backup shows its state

The previous backup volume is replaced atomically; the number stays.";

const BACKUPSYS_HELP: &str = "\
EXAMPLES
    rialto vos backupsys                         all volumes
    rialto vos backupsys -prefix home            those whose names begin so
    rialto vos backupsys -prefix home -exclude   all others
    rialto vos backupsys -dryrun                 only list them

After a failure the others are still backed up; the exit code is 1 then.";

/// Makes a volume of the current state of a volume, read-only or read-write.
#[derive(Args, Debug)]
#[command(after_help = CLONE_HELP)]
pub struct Clone {
    #[command(flatten)]
    volume: SitedVolume,
    /// The new volume's name [default: VOLUME.clone]
    #[arg(long, value_name = "NAME")]
    toname: Option<String>,
    /// Make it writable and independent; needs -toname.
    #[arg(long, requires = "toname")]
    readwrite: bool,
    /// Accepted for OpenAFS's sake: without -readwrite it always is.
    #[arg(long, hide = true, conflicts_with = "readwrite")]
    readonly: bool,
}

/// Makes or renews the backup volumes of many volumes.
#[derive(Args, Debug)]
#[command(after_help = BACKUPSYS_HELP)]
pub struct Backupsys {
    #[command(flatten)]
    site: TypedSite,
    /// Only names that begin so; may be given several times.
    #[arg(long, value_name = "PREFIX", num_args = 1..)]
    prefix: Vec<String>,
    /// Of these not the names that begin so; may be given several times.
    #[arg(long, value_name = "PREFIX", num_args = 1..)]
    xprefix: Vec<String>,
    /// All but those.
    #[arg(long)]
    exclude: bool,
}

impl Clone {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let (wanted, site) = self.volume.parts()?;
        if let (true, Some(to)) = (self.readwrite, &self.toname) {
            return clone_writable(context, &wanted, &site, to);
        }
        let volume = context.volume(&wanted, &site)?;
        let to = self.toname.unwrap_or_else(|| format!("{}.clone", text(&volume.name)));
        let Some(made) = clone(context, &volume, &to, VolumeKind::Snapshot, false)? else {
            return Ok(());
        };
        local::show::answer(
            context.json,
            &show::volume_json(context, &made),
            format_args!("Created clone {to} ({}) for {}", made.id.0, text(&volume.name)),
        );
        Ok(())
    }
}

pub(super) fn back_up(volume: TypedVolume, context: &VosContext) -> Result<(), Failure> {
    let wanted = volume.name()?;
    backup(context, context.known(&wanted)?)
}

impl Backupsys {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        if self.exclude && self.prefix.is_empty() && self.xprefix.is_empty() {
            return Err(Failure::new("reading the command", "-exclude leaves out all volumes")
                .mend("name some with -prefix or -xprefix")
                .wrong_usage());
        }
        let spots = context.spots(&self.site)?;
        let is_here = |site: &types::Site| {
            spots
                .iter()
                .any(|spot| (spot.server, &spot.partition.name) == (site.server, &site.partition))
        };
        let chosen = |seen: &Revised<VolumeGroup>| {
            let name = text(&seen.record.name);
            let begins = |prefixes: &[String]| prefixes.iter().any(|one| name.starts_with(one));
            let named = (self.prefix.is_empty() || begins(&self.prefix)) && !begins(&self.xprefix);
            seen.record.read_write_site().is_some_and(is_here) && named != self.exclude
        };
        let (mut done, mut failed) = (0, 0);
        context.each_group(&mut |groups| {
            for group in groups.into_iter().filter(chosen) {
                if context.dry_run && !context.json {
                    println!("     {}", text(&group.record.name));
                }
                match backup(context, group) {
                    Ok(()) if context.dry_run => {}
                    Ok(()) => done += 1,
                    Err(failure) => {
                        eprintln!("rialto vos: {failure}");
                        failed += 1;
                    }
                }
            }
            Ok(())
        })?;
        if !context.json {
            println!("Total volumes backed up: {done}; failed to backup: {failed}");
        }
        let why = || format!("{failed} of {} volumes failed", done + failed);
        if failed == 0 {
            Ok(())
        } else {
            Err(Failure::new("backing up", why()).mend("the lines above have the reasons"))
        }
    }
}

fn backup(context: &VosContext, group: Revised<VolumeGroup>) -> Result<(), Failure> {
    let name = text(&group.record.name);
    let server = group.record.read_write_site().map_or(types::ServerId(0), |site| site.server);
    let what = format!("backing up the volume {name}");
    let Some(info) = context.lead(&what, |job| vos::backup(job, group))? else { return Ok(()) };
    local::show::answer(
        context.json,
        &show::volume_json(context, &LocatedVolume { server, info }),
        format_args!("Created backup volume for {name}"),
    );
    Ok(())
}

fn clone_writable(
    context: &VosContext,
    wanted: &str,
    site: &TypedSite,
    to: &str,
) -> Result<(), Failure> {
    let what = format!("cloning the volume {wanted} to {to}");
    let called = read_write_name(&what, to)?;
    let found = context.found(wanted, site)?;
    let Some(info) = context.lead(&what, |job| vos::clone_writable(job, &found, &called))? else {
        return Ok(());
    };
    let made = LocatedVolume { server: found.server, info };
    local::show::answer(
        context.json,
        &show::volume_json(context, &made),
        format_args!(
            "Created read-write clone {to} ({}) for {}",
            made.id.0,
            text(&found.volume().name)
        ),
    );
    Ok(())
}

/// Seals the state of `volume` under the name `to`.
pub(crate) fn clone(
    context: &VosContext,
    volume: &LocatedVolume,
    to: &str,
    kind: VolumeKind,
    replace: bool,
) -> Result<Option<LocatedVolume>, Failure> {
    let what = format!("cloning the volume {} to {to}", text(&volume.name));
    if volume.kind != VolumeKind::ReadWrite {
        let why = format!("{} is read-only already", text(&volume.name));
        return Err(Failure::new(what, why).mend("name the read-write volume of its group"));
    }
    let call = VolumeCall::Clone { id: None, of: volume.id, name: name(to)?, kind, replace };
    context.change_one(&what, volume.server, call)
}
