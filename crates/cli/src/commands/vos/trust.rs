//! `vos trustpart`: a partition whose disk was repaired gets new volumes again
//! (`docs/spec/health.md`).

use clap::Args;
use local::failure::Failure;
use local::show;
use serde_json::json;
use types::VolumeCall;

use super::context::{LocatedPartition, VosContext};
use super::health::ailment;
use super::typed::TypedPlace;

const TRUST_HELP: &str = "\
EXAMPLES
    rialto vos trustpart afs1 vicepb
    rialto vos trustpart -server afs1 -dryrun   only show how its disks are

Says that the disk of a partition works: the server forgets its errors and slow flushes, and
the partition gets new volumes again. 'rialto vos partinfo' shows what is wrong with it. A
partition that takes no changes since a failed flush is opened first: start its server again.";

/// Says that the disk of a partition works again.
#[derive(Args, Debug)]
#[command(after_help = TRUST_HELP)]
pub struct Trustpart {
    #[command(flatten)]
    place: TypedPlace,
}

impl Trustpart {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let site = self.place.site();
        if site.server.is_none() {
            return Err(Failure::new("reading the command", "the server is missing")
                .mend("name it with -server, or as 'rialto vos trustpart SERVER PARTITION'")
                .wrong_usage());
        }
        context.spots(&site)?.iter().try_for_each(|spot| trust(context, spot))
    }
}

fn trust(context: &VosContext, spot: &LocatedPartition) -> Result<(), Failure> {
    let (server, name) = (context.server_name(spot.server), &spot.partition.name);
    let how = ailment(&spot.health);
    if how.is_some() && !context.dry_run {
        let what = format!("trusting {server} {name}");
        let call = VolumeCall::Trust { partition: spot.partition.no };
        context.ask(&what, spot.server, call).map_err(|failure| {
            failure.mend(
                "'rialto doctor' on that machine finds causes; a partition that takes no changes \
                    is opened by a new start of the server",
            )
        })?;
    }
    let line = match &how {
        None => "is well".to_owned(),
        Some(how) if context.dry_run => format!("would be trusted: its disk is {how}"),
        Some(how) => format!("gets new volumes again; its disk was {how}"),
    };
    let value = json!({
        "server": server, "partition": name, "was": spot.health["state"],
        "trusted": how.is_some() && !context.dry_run,
    });
    show::answer(context.json, &value, format_args!("Partition {server} {name} {line}"));
    Ok(())
}
