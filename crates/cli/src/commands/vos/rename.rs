//! `vos rename`.

use clap::Args;
use local::failure::Failure;
use serde_json::json;
use types::{VolumeCall, WhichVolume};

use super::context::{VosContext, text};
use super::typed::{TypedSite, name, read_write_name, which};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos rename home.alice home.alice-b
    rialto vos rename -oldname home.alice -newname home.alice-b

Its backup and read-only volumes get the new name too, at all sites. Snapshots keep theirs.
Repeating an interrupted command finishes it.";

/// Gives a volume another name.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct VosRename {
    /// Its name or number now.
    #[arg(long, value_name = "VOLUME", required_unless_present = "words")]
    oldname: Option<String>,
    /// Its name from now on.
    #[arg(long, value_name = "NAME", required_unless_present = "words")]
    newname: Option<String>,
    /// VOLUME NAME, instead of the options.
    #[arg(value_name = "VOLUME", num_args = 2, conflicts_with_all = ["oldname", "newname"])]
    words: Vec<String>,
}

impl VosRename {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let mut words = self.words.into_iter();
        let missing = || {
            Failure::new("reading the command", "a name is missing")
                .mend("name the old and the new one")
        };
        let old = self.oldname.or_else(|| words.next()).ok_or_else(missing)?;
        let new = self.newname.or_else(|| words.next()).ok_or_else(missing)?;
        let what = format!("renaming the volume {old} to {new}");
        let (from, to) = (name(&old)?, read_write_name(&what, &new)?);
        let from = match which(&old)? {
            WhichVolume::Id(_) => context.known(&old)?.record.name,
            WhichVolume::Name(_) => from,
        };
        match context.lead(&what, |job| vos::rename(job, &from, &to)) {
            // A snapshot, or a volume that the database does not have.
            Err(_)
                if context.db().group_named(&from).is_ok_and(|known| known.is_none())
                    && !context.dry_run =>
            {
                let found = context.volume(&old, &TypedSite::default())?;
                context.change(
                    &what,
                    found.server,
                    VolumeCall::Rename { id: found.id, name: to },
                )?;
            }
            done => done?,
        }
        let (renamed, was) = (!context.dry_run, text(&from));
        match (renamed, context.json) {
            (true, true) => local::show::json(&json!({ "was": was, "name": new })),
            (true, false) => println!("Renamed volume {was} to {new}"),
            (false, _) => {}
        }
        Ok(())
    }
}
