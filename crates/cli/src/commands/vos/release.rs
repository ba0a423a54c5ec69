//! `vos release`.

use clap::Args;
use local::failure::Failure;
use local::show::bytes;
use serde_json::json;

use super::context::{VosContext, text};
use super::typed::TypedVolume;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos addsite afs2 vicep home.alice   a site for it
    rialto vos release home.alice
    rialto vos release home.alice -verbose     each step
    rialto vos release home.alice -dryrun      only list them

Changes since the last release are sent to all sites concurrently; readers see the old state
or the new one, never a mixture. An unreachable site stays at its state, and readers are
sent elsewhere until a later release reaches it; the exit code is 1 then. Repeating an
interrupted command finishes it.";

/// Brings all read-only sites to the current state of a volume.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Release {
    #[command(flatten)]
    volume: TypedVolume,
}

impl Release {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let wanted = self.volume.name()?;
        let group = context.known(&wanted)?;
        let name = text(&group.record.name);
        let what = format!("releasing the volume {name}");
        let released = context.lead(&what, |job| vos::release(job, group))?;
        if context.dry_run {
            return Ok(());
        }
        for (server, error) in &released.lagging {
            eprintln!("rialto vos: {} lags: {error}", context.server_name(*server));
        }
        let sent: u64 = released.sites.iter().map(|(_, bytes)| bytes).sum();
        if context.json {
            let site = |(server, bytes): &(types::ServerId, u64)| {
                json!({
                    "server": context.server_name(*server), "bytes": bytes
                })
            };
            let lagging = released.lagging.iter();
            let lagging: Vec<_> = lagging.map(|(server, _)| context.server_name(*server)).collect();
            local::show::json(&json!({
                "name": name, "epoch": released.epoch, "bytes": sent,
                "sites": released.sites.iter().map(site).collect::<Vec<_>>(),
                "lagging": lagging,
            }));
        } else {
            let count = released.sites.len();
            let how = if released.lagging.is_empty() { " successfully" } else { "" };
            println!("Released volume {name}{how}: {} to {count} servers", bytes(sent));
        }
        let lagging = released.lagging.len();
        if lagging == 0 {
            return Ok(());
        }
        Err(Failure::new(what, format!("{lagging} of its sites lag"))
            .mend("release it again when they are back"))
    }
}
