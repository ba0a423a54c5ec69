//! `vos release`.

use clap::Args;
use local::failure::Failure;
use local::show::bytes;
use serde_json::json;

use super::context::{TypedSite, VosContext, text};
use super::create::last_word;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos addsite afs2 a home.alice       where it is to be shown
    rialto vos release home.alice
    rialto vos release home.alice -verbose     each step
    rialto vos release home.alice -dryrun      only say them

What changed since the last release goes to all sites at the same time; readers see the old or
the new, never a mixture. A site that cannot be reached keeps what it has, and readers are
sent elsewhere until it has caught up with a later release; the exit code is 1 then. Stopped in
the middle it is finished by the same command.";

/// Brings all read-only sites to the current state of a volume.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Release {
    /// The volume's name or number.
    #[arg(long, value_name = "VOLUME")]
    id: Option<String>,
    /// Accepted for OpenAFS's sake: a site that lost its volume always fetches all of it.
    #[arg(short, long = "force", hide = true)]
    force: bool,
    /// VOLUME, instead of the option.
    #[arg(value_name = "VOLUME", num_args = 0..=1)]
    words: Vec<String>,
}

impl Release {
    /// # Errors
    /// The refusal of a server, with its remedy.
    pub fn run(self, context: &VosContext) -> Result<(), Failure> {
        let wanted = last_word(&mut TypedSite::default(), self.words, self.id, "a volume")?;
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
            let site = |(server, bytes): &(types::ServerId, u64)| json!({ "server": context.server_name(*server), "bytes": bytes });
            local::show::json(&json!({
                "name": name, "epoch": released.epoch, "bytes": sent,
                "sites": released.sites.iter().map(site).collect::<Vec<_>>(),
                "lagging": released.lagging.iter().map(|(server, _)| context.server_name(*server)).collect::<Vec<_>>(),
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
