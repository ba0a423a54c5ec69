//! `vos remove` and `vos zap`.

use clap::Args;
use serde_json::json;
use types::{VolumeCall, VolumeInfo};

use super::create::last_word;
use super::office::{Office, Site, text};
use crate::cell::VOLUME;
use crate::failure::Failure;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos remove home.alice
    rialto vos remove -server afs1 -partition a -id 536870915
    rialto vos remove home.alice.backup        only that one of its group

It is gone at once: programs that use it get errors. What it took is given back in the
background. Its snapshots stay.";

const ZAP_HELP: &str = "\
EXAMPLES
    rialto vos zap a home.alice
    rialto vos zap -id 536870915 -backup       its backup volume too

As 'vos remove': here nothing is in a database that could disagree.";

/// Removes a volume.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Remove {
    #[command(flatten)]
    site: Site,
    /// The volume's name or number.
    #[arg(long, value_name = "VOLUME")]
    id: Option<String>,
    /// Remove even the root of the cell's tree.
    #[arg(long)]
    force: bool,
    /// [[SERVER] PARTITION] VOLUME, instead of the options.
    #[arg(value_name = "VOLUME", num_args = 0..=3)]
    words: Vec<String>,
}

/// Removes a volume without asking any database.
#[derive(Args, Debug)]
#[command(after_help = ZAP_HELP)]
pub struct Zap {
    #[command(flatten)]
    remove: Remove,
    /// Its backup volume too.
    #[arg(long)]
    backup: bool,
}

impl Remove {
    pub fn run(mut self, office: &Office) -> Result<(), Failure> {
        let wanted = last_word(&mut self.site, self.words, self.id, "a volume")?;
        let volume = office.volume(&wanted, &self.site)?;
        if remove(office, &volume, self.force)? && !office.common.json {
            let (partition, server) = (office.name_of(volume.partition), office.server());
            println!("Volume {} on partition {partition} server {server} deleted", volume.id.0);
        }
        Ok(())
    }
}

impl Zap {
    pub fn run(self, office: &Office) -> Result<(), Failure> {
        let Zap { remove: Remove { mut site, id, force, words }, backup } = self;
        let wanted = last_word(&mut site, words, id, "a volume")?;
        let group = office.group(&wanted, &site)?;
        let (volume, others) = group.split_first().expect("a group has a volume");
        let of_it = others.iter().filter(|other| backup && other.kind == types::VolumeKind::Backup);
        for volume in of_it.chain([volume]) {
            if remove(office, volume, force)? && !office.common.json {
                println!("Volume {} deleted", volume.id.0);
            }
        }
        Ok(())
    }
}

/// Removes one volume; whether it was.
pub fn remove(office: &Office, volume: &VolumeInfo, force: bool) -> Result<bool, Failure> {
    let (name, what) = (text(&volume.name), format!("removing the volume {} ({})", text(&volume.name), volume.id.0));
    if name == VOLUME && !force {
        return Err(Failure::new(what, "it is the root of the cell's tree").mend("if you mean it, add -force"));
    }
    let removed = office.change(&what, VolumeCall::Remove { id: volume.id })?.is_some();
    if removed && office.common.json {
        crate::show::json(&json!({ "removed": volume.id.0, "name": name }));
    }
    Ok(removed)
}
