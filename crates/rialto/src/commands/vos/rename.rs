//! `vos rename`.

use clap::Args;
use serde_json::json;
use types::VolumeCall;

use super::office::{Office, Site, name, text};
use crate::failure::Failure;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos rename home.alice home.alice-b
    rialto vos rename -oldname home.alice -newname home.alice-b

Its backup and read-only volumes get the new name too. Snapshots keep theirs.";

/// Gives a volume another name.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Rename {
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

impl Rename {
    pub fn run(self, office: &Office) -> Result<(), Failure> {
        let mut words = self.words.into_iter();
        let missing = || Failure::new("reading the command", "a name is missing").mend("name the old and the new one");
        let old = self.oldname.or_else(|| words.next()).ok_or_else(missing)?;
        let new = self.newname.or_else(|| words.next()).ok_or_else(missing)?;
        let group = office.group(&old, &Site::default())?;
        let volume = &group[0];
        let (was, id) = (text(&volume.name), volume.id);
        let what = format!("renaming the volume {was} to {new}");
        let mut renamed = office.change(&what, VolumeCall::Rename { id, name: name(&new)? })?.is_some();
        for other in group.iter().skip(1).filter(|_| volume.id == volume.tree) {
            let Some(ending) =
                [".backup", ".readonly"].into_iter().find(|end| text(&other.name) == format!("{was}{end}"))
            else {
                continue;
            };
            let new = format!("{new}{ending}");
            let what = format!("renaming the volume {} to {new}", text(&other.name));
            renamed &= office.change(&what, VolumeCall::Rename { id: other.id, name: name(&new)? })?.is_some();
        }
        match (renamed, office.common.json) {
            (true, true) => crate::show::json(&json!({ "id": id.0, "was": was, "name": new })),
            (true, false) => println!("Renamed volume {was} to {new}"),
            (false, _) => {}
        }
        Ok(())
    }
}
