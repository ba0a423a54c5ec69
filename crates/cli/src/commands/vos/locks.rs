//! `vos lock`, `vos unlock` and `vos unlockvldb`.

use clap::Args;
use local::failure::Failure;
use serde_json::json;
use types::{Revised, VolumeGroup};

use super::context::{TypedSite, VosContext, text};
use super::create::last_word;

const LOCK_HELP: &str = "\
EXAMPLES
    rialto vos lock home.alice

Releases, moves, renames and removals are refused until 'vos unlock'. Clients are not
affected.";

const UNLOCK_HELP: &str = "\
EXAMPLES
    rialto vos unlock home.alice

Also frees a volume that an interrupted operation has claimed. To finish that operation,
repeat its command; otherwise 'vos syncvldb' and 'vos syncserv' repair the records.";

const UNLOCKVLDB_HELP: &str = "\
EXAMPLES
    rialto vos unlockvldb
    rialto vos unlockvldb -server afs2";

/// Locks a volume against other operations.
#[derive(Args, Debug)]
#[command(after_help = LOCK_HELP)]
pub struct Lock {
    /// The volume's name or number.
    #[arg(long, value_name = "VOLUME")]
    id: Option<String>,
    /// VOLUME, instead of the option.
    #[arg(value_name = "VOLUME", num_args = 0..=1)]
    words: Vec<String>,
}

/// Frees a volume that is locked.
#[derive(Args, Debug)]
#[command(after_help = UNLOCK_HELP)]
pub struct Unlock {
    /// The volume's name or number.
    #[arg(long, value_name = "VOLUME")]
    id: Option<String>,
    /// VOLUME, instead of the option.
    #[arg(value_name = "VOLUME", num_args = 0..=1)]
    words: Vec<String>,
}

/// Frees all volumes that are locked.
#[derive(Args, Debug)]
#[command(after_help = UNLOCKVLDB_HELP)]
pub struct Unlockvldb {
    #[command(flatten)]
    site: TypedSite,
    /// [SERVER] PARTITION, instead of the options.
    #[arg(value_name = "SERVER", num_args = 0..=2)]
    words: Vec<String>,
}

impl Lock {
    /// # Errors
    /// The refusal of a server, with its remedy.
    pub fn run(self, context: &VosContext) -> Result<(), Failure> {
        let wanted = last_word(&mut TypedSite::default(), self.words, self.id, "a volume")?;
        let group = context.known(&wanted)?;
        let name = text(&group.record.name);
        context.lead(&format!("locking the volume {name}"), |job| vos::lock(job, group))?;
        report(context, "Locked", &name);
        Ok(())
    }
}

impl Unlock {
    /// # Errors
    /// The refusal of a server, with its remedy.
    pub fn run(self, context: &VosContext) -> Result<(), Failure> {
        let wanted = last_word(&mut TypedSite::default(), self.words, self.id, "a volume")?;
        unlock(context, context.known(&wanted)?).map(drop)
    }
}

impl Unlockvldb {
    /// # Errors
    /// The refusal of a server, with its remedy.
    pub fn run(mut self, context: &VosContext) -> Result<(), Failure> {
        super::list::place(&mut self.site, self.words);
        let spots = context.spots(&self.site)?;
        let everywhere = self.site.server.is_none() && self.site.partition.is_none();
        let is_meant = |seen: &Revised<VolumeGroup>| {
            let here = |site: &types::Site| {
                spots.iter().any(|spot| {
                    (spot.server, &spot.partition.name) == (site.server, &site.partition)
                })
            };
            seen.record.busy.is_some() && (everywhere || seen.record.sites.iter().any(here))
        };
        let mut count = 0;
        context.each_group(&mut |groups| {
            for group in groups.into_iter().filter(is_meant) {
                count += u64::from(unlock(context, group)?);
            }
            Ok(())
        })?;
        if !context.json {
            println!("Unlocked volumes: {count}");
        }
        Ok(())
    }
}

fn unlock(context: &VosContext, group: Revised<VolumeGroup>) -> Result<bool, Failure> {
    let name = text(&group.record.name);
    let unlocked =
        context.lead(&format!("unlocking the volume {name}"), |job| vos::unlock(job, group))?;
    report(context, if unlocked { "Unlocked" } else { "There is no lock on" }, &name);
    Ok(unlocked && !context.dry_run)
}

fn report(context: &VosContext, what: &str, name: &str) {
    match (context.dry_run, context.json) {
        (true, _) => {}
        (false, true) => local::show::json(&json!({ "name": name, "locked": what == "Locked" })),
        (false, false) => println!("{what} volume {name}"),
    }
}
