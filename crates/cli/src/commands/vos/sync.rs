//! `vos syncvldb` and `vos syncserv`.

use clap::Args;
use local::failure::Failure;
use serde_json::json;
use types::WhichVolume;
use vos::Mended;

use super::context::VosContext;
use super::typed::{TypedPlace, which};

const SYNCVLDB_HELP: &str = "\
EXAMPLES
    rialto vos syncvldb                        the volumes of all servers
    rialto vos syncvldb -server afs2 -partition vicep
    rialto vos syncvldb -volume home.alice     those of one group alone
    rialto vos syncvldb -dryrun                only list the changes

Follows the servers. Groups that are locked or in an operation are not changed.";

pub(super) const SYNCSERV_HELP: &str = "\
EXAMPLES
    rialto vos syncserv
    rialto vos syncserv afs2 vicep

Follows the database. Volumes are not changed: records of missing volumes are removed.
Records of servers that do not answer stay.";

/// Enters the volumes of servers into the database.
#[derive(Args, Debug)]
#[command(after_help = SYNCVLDB_HELP)]
pub struct Syncvldb {
    #[command(flatten)]
    place: TypedPlace,
    /// Only the volumes of this one's group: its name or number.
    #[arg(long, value_name = "VOLUME")]
    volume: Option<String>,
}

pub(super) fn sync_database(wanted: Syncvldb, context: &VosContext) -> Result<(), Failure> {
    let mut all = Mended::default();
    let group = wanted.volume.as_deref().map(which).transpose()?.map(|group| match group {
        WhichVolume::Name(name) => WhichVolume::Name(vos::base_name(&name)),
        number @ WhichVolume::Id(_) => number,
    });
    for spot in context.spots(&wanted.place.site())? {
        let what = format!(
            "entering the volumes of {} on {}",
            context.server_name(spot.server),
            spot.partition.name
        );
        let partition = Some(spot.partition.name.as_str());
        let sync = |job: &vos::Job<'_>| match &group {
            Some(group) => vos::sync_volume(job, spot.server, partition, group),
            None => vos::sync_database(job, spot.server, partition),
        };
        let mended = context.lead(&what, sync)?;
        all.looked_at += mended.looked_at;
        all.changed += mended.changed;
        all.left += mended.left;
    }
    if let (Some(typed), 0) = (&wanted.volume, all.looked_at) {
        return Err(Failure::new(format!("entering the volume {typed}"), "no server has it")
            .mend("'rialto vos listvol' shows what the servers have"));
    }
    report(context, "VLDB synchronized with the servers", all)
}

pub(super) fn sync_servers(place: TypedPlace, context: &VosContext) -> Result<(), Failure> {
    let site = place.site();
    let server = site.server.as_ref().map(|server| context.server(server)).transpose()?;
    let partition = match &site.partition {
        Some(_) => context.spots(&site)?.into_iter().next().map(|spot| spot.partition.name),
        None => None,
    };
    let sync = |job: &vos::Job<'_>| vos::sync_servers(job, server, partition.as_deref());
    let all = context.lead("comparing the database with the servers", sync)?;
    report(context, "Servers synchronized with the VLDB", all)
}

fn report(
    context: &VosContext,
    done: &str,
    Mended { looked_at, changed, left }: Mended,
) -> Result<(), Failure> {
    local::show::answer(
        context.json,
        &json!({ "looked_at": looked_at, "changed": changed, "left": left }),
        format_args!("{done}: {looked_at} looked at, {changed} changed, {left} left"),
    );
    let why = || format!("{left} of {looked_at} do not agree");
    if left == 0 {
        Ok(())
    } else {
        Err(Failure::new("synchronizing", why()).mend("the lines above have the reasons"))
    }
}
