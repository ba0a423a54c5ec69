//! `vos abandon`.

use clap::Args;
use local::failure::Failure;
use serde_json::json;
use types::VolumeId;

use super::context::VosContext;
use super::typed::{TypedSite, last_word, place};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos status                          shows unfinished ones
    rialto vos abandon 536870915
    rialto vos abandon -server afs2 -id home.alice.old
    rialto vos abandon -server afs2 -all       all unfinished ones there
    rialto vos abandon -all -dryrun

Gives up the data that an interrupted restore, copy, release or move left at a server: a
volume under it is as before, and the space is freed in the background. Data that a server
receives at the moment stays. Repeating the interrupted command instead finishes it.";

/// Gives up an unfinished restore or copy at a server.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Abandon {
    #[command(flatten)]
    site: TypedSite,
    /// The volume that it was for: its number, or its name if the cell has it.
    #[arg(long, value_name = "VOLUME", conflicts_with = "all")]
    id: Option<String>,
    /// Give up all unfinished ones.
    #[arg(long)]
    all: bool,
    /// VOLUME, instead of the option.
    #[arg(value_name = "VOLUME", num_args = 0..=1)]
    words: Vec<String>,
}

impl Abandon {
    pub(crate) fn run(mut self, context: &VosContext) -> Result<(), Failure> {
        let wanted = if self.all {
            place(&mut self.site, self.words);
            None
        } else {
            let typed = last_word(&mut TypedSite::default(), self.words, self.id, "a volume")?;
            Some((number(context, &typed)?, typed))
        };
        let what = "listing unfinished operations";
        let spots = context.spots(&self.site)?;
        let mut servers: Vec<_> = spots.iter().map(|spot| spot.server).collect();
        servers.dedup();
        let (mut found, mut failed) = (0, 0);
        for server in servers {
            let trees = context.lead(what, |job| vos::incoming(job.servers, server))?;
            let is_here = |one: &&types::IncomingTree| {
                spots.iter().any(|spot| (spot.server, spot.partition.no) == (server, one.partition))
            };
            let meant =
                |one: &&types::IncomingTree| wanted.as_ref().is_none_or(|(id, _)| *id == one.tree);
            for one in trees.iter().filter(is_here).filter(meant) {
                found += 1;
                let name = context.server_name(server);
                let what =
                    format!("giving up the data received for volume {} at {name}", one.tree.0);
                match context.lead(&what, |job| vos::abandon(job, server, one.tree)) {
                    Ok(()) if context.dry_run => {}
                    Ok(()) if context.json => {
                        local::show::json(&json!({ "abandoned": one.tree.0, "server": name }));
                    }
                    Ok(()) => println!("Gave up what came in for volume {} at {name}", one.tree.0),
                    Err(failure) if wanted.is_some() => return Err(failure),
                    Err(failure) => {
                        eprintln!("rialto vos: {failure}");
                        failed += 1;
                    }
                }
            }
        }
        match wanted {
            Some((_, typed)) if found == 0 => {
                let why = format!("no data was received for {typed}");
                Err(Failure::new(what, why).mend("'rialto vos status' lists unfinished operations"))
            }
            _ if failed > 0 => {
                let why = format!("{failed} of {found} stay");
                Err(Failure::new("giving up unfinished operations", why)
                    .mend("the lines above have the reasons"))
            }
            _ => Ok(()),
        }
    }
}

/// The number of the tree. Received data has no name of its own.
fn number(context: &VosContext, typed: &str) -> Result<VolumeId, Failure> {
    match typed.parse() {
        Ok(number) => Ok(VolumeId(number)),
        Err(_) => Ok(context.known(typed)?.record.read_write),
    }
}
