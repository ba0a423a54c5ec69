//! `vos syncvldb` and `vos syncserv`.

use local::failure::Failure;
use serde_json::json;
use vos::Mended;

use super::context::VosContext;
use super::typed::TypedPlace;

pub(super) const SYNCVLDB_HELP: &str = "\
EXAMPLES
    rialto vos syncvldb                        the volumes of all servers
    rialto vos syncvldb -server afs2 -partition vicep
    rialto vos syncvldb -dryrun                only list the changes

Follows the servers. Groups that are locked or in an operation are not changed.";

pub(super) const SYNCSERV_HELP: &str = "\
EXAMPLES
    rialto vos syncserv
    rialto vos syncserv afs2 vicep

Follows the database. Volumes are not changed: records of missing volumes are removed.
Records of servers that do not answer stay.";

pub(super) fn sync_database(place: TypedPlace, context: &VosContext) -> Result<(), Failure> {
    let mut all = Mended::default();
    for spot in context.spots(&place.site())? {
        let what = format!(
            "entering the volumes of {} on {}",
            context.server_name(spot.server),
            spot.partition.name
        );
        let sync =
            |job: &vos::Job<'_>| vos::sync_database(job, spot.server, Some(&spot.partition.name));
        let mended = context.lead(&what, sync)?;
        all.looked_at += mended.looked_at;
        all.changed += mended.changed;
        all.left += mended.left;
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
