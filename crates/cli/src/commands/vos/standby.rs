//! `vos addstandby`, `vos remstandby` and `vos failover`, and the state of standbys for people.

use clap::Args;
use local::failure::Failure;
use local::show::{self, bytes};
use serde_json::{Value, json};
use types::{ServerId, Site, SiteKind, StandbyInfo, VolumeGroup};

use super::context::{VosContext, text};
use super::sites::needed_server;
use super::typed::{SitedVolume, TypedSite, TypedVolume};

const ADDSTANDBY_HELP: &str = "\
EXAMPLES
    rialto vos addstandby afs2 vicep home.alice
    rialto vos addstandby -server afs2 -partition vicep -id home.alice -sync
    rialto vos addstandby -server afs2 -id home.alice -async
    rialto vos addstandby -server afs2 -id home.alice -nowait

The server gets a copy of the read-write volume that follows each of its changes, and takes
over by itself if the volume's server is lost: clients go on there within half a minute, with
their locks and open files. With -sync (the default) a change is answered only when the standby has
it, and a synced one when it has it on disk: nothing that was acknowledged is lost. With
-async no change waits, and what the standby did not have yet is lost.

The command waits until the standby is in step, that is, until it may take over; the work goes
on without it. Repeating it finishes what was interrupted. On a standby of the other kind it
changes the kind. 'vos examine' shows how far standbys are. The quota counts at the volume's
server alone; 'vos release' and its read-only sites are independent of standbys.";

pub(super) const REMSTANDBY_HELP: &str = "\
EXAMPLES
    rialto vos remstandby -server afs2 -id home.alice
    rialto vos remstandby afs2 vicep home.alice

The server drops its copy. One that is away does so when it is back; the volume goes on
without it at once.";

const FAILOVER_HELP: &str = "\
EXAMPLES
    rialto vos failover home.alice
    rialto vos failover -id home.alice -toserver afs2
    rialto vos failover home.alice -dryrun            only list the steps
    rialto vos failover home.alice -toserver afs2 -force

A standby becomes the read-write volume, and the present server a standby of it. If the
present server answers, changes wait while the standby gets the last of them, and nothing is
lost; clients go on within moments. If it does not answer, the standby takes over as it would
by itself. One that is not in step is refused: with -force it takes over as it is, without
the changes that it lacks, which clients report.";

/// Adds a standby to a volume: a copy that follows each change and takes over.
#[derive(Args, Debug)]
#[command(after_help = ADDSTANDBY_HELP)]
#[command(mut_arg("words", |arg| arg.help(super::sites::WORDS)))]
pub struct Addstandby {
    #[command(flatten)]
    volume: SitedVolume,
    /// Changes are answered when the standby has them (the default).
    #[arg(long, conflicts_with = "is_async")]
    sync: bool,
    /// Changes do not wait for the standby.
    #[arg(id = "is_async", long = "async")]
    is_async: bool,
    /// Wait until the standby is in step (the default).
    #[arg(long, conflicts_with = "nowait")]
    wait: bool,
    /// Do not wait until the standby is in step.
    #[arg(long)]
    nowait: bool,
}

/// Makes a standby the read-write volume.
#[derive(Args, Debug)]
#[command(after_help = FAILOVER_HELP)]
pub struct Failover {
    #[command(flatten)]
    volume: TypedVolume,
    /// The standby's server [default: the standby that is best in step]
    #[arg(long, value_name = "MACHINE")]
    toserver: Option<String>,
    /// Take one too that is not in step: what it lacks is lost.
    #[arg(long)]
    force: bool,
}

impl Addstandby {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let kind = if self.is_async { SiteKind::AsyncStandby } else { SiteKind::Standby };
        let (wanted, mut site) = self.volume.parts()?;
        let server = context.server(needed_server(&site)?)?;
        let group = context.known(&wanted)?;
        let known = group.record.standbys().find(|one| one.server == server);
        if let Some(known) = known {
            site.partition.get_or_insert_with(|| known.partition.clone());
        }
        let spot = context.roomiest(&site)?;
        let (id, name) = (group.record.read_write, text(&group.record.name));
        let (partition, shown) = (&spot.partition.name, context.server_name(server));
        let what = format!("making {shown} a standby of {name}");
        let add = |job: &vos::Job<'_>| vos::add_standby(job, group, server, partition, kind);
        let added = context.lead(&what, add)?;
        if !self.nowait {
            if added != vos::StandbyAdded::Nothing && !context.dry_run && !context.json {
                eprintln!(
                    "rialto vos: {shown} gets a copy of {name}; -nowait does not wait for it"
                );
            }
            let what = format!("waiting until {shown} is in step with {name}");
            context.lead(&what, |job| vos::wait_in_step(job, id, server))?;
        }
        if context.dry_run {
            return Ok(());
        }
        let value = json!({
            "volume": name, "server": shown, "partition": partition, "kind": word(kind),
            "changed": added != vos::StandbyAdded::Nothing, "in_step": !self.nowait,
        });
        let how = if self.nowait { "gets in step" } else { "is in step" };
        let line = format!("Standby {shown} {partition} ({}) of volume {name} {how}", word(kind));
        show::answer(context.json, &value, format_args!("{line}"));
        Ok(())
    }
}

pub(super) fn remove(volume: SitedVolume, context: &VosContext) -> Result<(), Failure> {
    let (wanted, site) = volume.parts()?;
    let server = context.server(needed_server(&site)?)?;
    let group = context.known(&wanted)?;
    let known = group.record.standbys().find(|one| one.server == server).cloned();
    let (name, shown) = (text(&group.record.name), context.server_name(server));
    let what = format!("removing the standby {shown} of {name}");
    let partition = partition(context, &site, known.as_ref())?;
    let remove = |job: &vos::Job<'_>| vos::remove_standby(job, group, server, partition.as_deref());
    let removed = context.lead(&what, remove)?;
    let line = if removed {
        format!("Removed standby {shown} for volume {name}")
    } else {
        format!("{shown} is no standby of {name}")
    };
    if !context.dry_run {
        show::answer(context.json, &json!({ "changed": removed }), format_args!("{line}"));
    }
    Ok(())
}

/// The partition's name as its server gives it. A server that is away is not asked: the record
/// decides.
fn partition(
    context: &VosContext,
    site: &TypedSite,
    known: Option<&Site>,
) -> Result<Option<String>, Failure> {
    let same = |typed: &str, known: &str| {
        let bare = |text: &str| text.trim_start_matches('/').to_owned();
        bare(typed) == bare(known) || format!("vicep{}", bare(typed)) == bare(known)
    };
    match (&site.partition, known) {
        (None, _) => Ok(None),
        (Some(typed), Some(known)) if same(typed, &known.partition) => {
            Ok(Some(known.partition.clone()))
        }
        (Some(_), _) => Ok(context.spots(site)?.into_iter().next().map(|spot| spot.partition.name)),
    }
}

impl Failover {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let group = context.known(&self.volume.name()?)?;
        let to = self.toserver.as_deref().map(|typed| context.server(typed)).transpose()?;
        let name = text(&group.record.name);
        let what = format!("failing over the volume {name}");
        let done = context.lead(&what, |job| vos::fail_over(job, group, to, self.force))?;
        if context.dry_run {
            return Ok(());
        }
        let shown = context.server_name(done.to);
        let millis = done.held.as_millis();
        let value = json!({
            "volume": name, "from": done.from.map(|from| context.server_name(from)),
            "server": shown, "former_answered": done.was_alive, "held_millis": millis,
        });
        let line = format!("Volume {name} is read-write on server {shown} now ({millis} ms)");
        show::answer(context.json, &value, format_args!("{line}"));
        Ok(())
    }
}

/// The kind of a standby, as options have it.
fn word(kind: SiteKind) -> &'static str {
    if kind == SiteKind::AsyncStandby { "async" } else { "sync" }
}

/// The standbys of a group as the volume's server sees them; empty if it does not say, or the group
/// has none.
pub(super) fn seen(context: &VosContext, group: &VolumeGroup) -> Vec<StandbyInfo> {
    if group.standbys().next().is_none() {
        return Vec::new();
    }
    let Some(source) = group.read_write_site() else { return Vec::new() };
    vos::standbys(&context.reach, source.server, group.read_write).unwrap_or_default()
}

/// A line for each standby.
pub(super) fn lines(context: &VosContext, group: &VolumeGroup, put: &mut dyn FnMut(&str)) {
    let seen = seen(context, group);
    for site in group.standbys() {
        let its = seen.iter().find(|one| one.server == site.server);
        let (server, partition) = (context.server_name(site.server), &site.partition);
        let kind = word(site.kind);
        put(&format!("    Standby     {server} {partition} {kind}, {}", for_people(site, its)));
    }
}

fn for_people(site: &Site, its: Option<&StandbyInfo>) -> String {
    let step = if site.is_in_step() { "in step" } else { "not in step" };
    let Some(its) = its else { return format!("{step}; the volume's server does not say more") };
    let heard = match its.heard_millis {
        u64::MAX => ", has not asked yet".to_owned(),
        0..10_000 => String::new(),
        millis => format!(", silent for {}", show::duration(millis / 1000)),
    };
    let behind = if its.behind == 0 {
        "behind 0 changes".to_owned()
    } else {
        let (millis, size) = (its.lag_millis, bytes(its.behind_bytes));
        format!("behind {} changes ({size}, {millis} ms)", its.behind)
    };
    format!("{step}, {behind}{heard}")
}

/// The groups with standbys whose read-write volume is at this server; none if the database does
/// not answer.
pub(super) fn followed(context: &VosContext, server: ServerId) -> Vec<VolumeGroup> {
    let mut found = Vec::new();
    let is_here = |group: &VolumeGroup| {
        let here = group.read_write_site().is_some_and(|site| site.server == server);
        here && group.standbys().next().is_some()
    };
    let asked = context.each_group(&mut |some| {
        found.extend(some.into_iter().map(|seen| seen.record).filter(is_here));
        Ok(())
    });
    if let Err(failure) = asked {
        eprintln!("rialto vos: {failure}");
    }
    found
}

/// Their standbys for programs.
pub(super) fn volumes_json(context: &VosContext, groups: &[VolumeGroup]) -> Vec<Value> {
    let one = |group: &VolumeGroup| {
        let seen = seen(context, group);
        let standbys = as_json(&|server| context.server_name(server), group, &seen);
        json!({
            "volume": text(&group.name), "id": group.read_write.0, "standbys": standbys,
        })
    };
    groups.iter().map(one).collect()
}

/// The standbys for programs; null where the volume's server does not say it.
pub(super) fn as_json(
    server: &dyn Fn(ServerId) -> String,
    group: &VolumeGroup,
    seen: &[StandbyInfo],
) -> Vec<Value> {
    let one = |site: &Site| {
        let its = seen.iter().find(|one| one.server == site.server);
        let heard = its.map(|its| its.heard_millis).filter(|millis| *millis != u64::MAX);
        json!({
            "server": server(site.server), "partition": site.partition, "kind": word(site.kind),
            "in_step": site.is_in_step(), "behind": its.map(|its| its.behind),
            "behind_bytes": its.map(|its| its.behind_bytes),
            "lag_millis": its.map(|its| its.lag_millis), "heard_millis": heard,
        })
    };
    group.standbys().map(one).collect()
}

#[cfg(test)]
mod tests {
    use types::{Name, VolumeId};

    use super::*;

    fn group() -> VolumeGroup {
        let site = |server, kind, epoch| Site {
            server: ServerId(server),
            partition: "/vicepa".to_owned(),
            kind,
            epoch,
        };
        let mut group = VolumeGroup::new(
            Name::new(b"home").unwrap(),
            VolumeId(7),
            site(1, SiteKind::ReadWrite, 0),
        );
        let standbys = [site(2, SiteKind::Standby, 1), site(3, SiteKind::AsyncStandby, 0)];
        group.sites.extend(standbys);
        group
    }

    fn info(behind: u64, heard_millis: u64) -> StandbyInfo {
        StandbyInfo {
            server: ServerId(2),
            is_sync: true,
            in_step: true,
            behind,
            behind_bytes: 2048,
            lag_millis: 40,
            heard_millis,
        }
    }

    #[test]
    fn a_standby_is_shown_as_record_and_server_say() {
        let group = group();
        let sites: Vec<&Site> = group.standbys().collect();
        assert_eq!(for_people(sites[0], Some(&info(0, 5))), "in step, behind 0 changes");
        assert_eq!(
            for_people(sites[0], Some(&info(3, 40_000))),
            "in step, behind 3 changes (2.0 KiB, 40 ms), silent for 40 s"
        );
        assert!(for_people(sites[1], Some(&info(0, u64::MAX))).ends_with("has not asked yet"));
        assert!(for_people(sites[1], None).starts_with("not in step; "));
        let shown = as_json(&|server| server.0.to_string(), &group, &[info(3, u64::MAX)]);
        assert_eq!(shown[0]["behind"], 3);
        assert_eq!((&shown[0]["kind"], &shown[1]["kind"]), (&json!("sync"), &json!("async")));
        assert_eq!((&shown[0]["heard_millis"], &shown[1]["behind"]), (&Value::Null, &Value::Null));
        assert_eq!(shown[1]["in_step"], false);
    }
}
