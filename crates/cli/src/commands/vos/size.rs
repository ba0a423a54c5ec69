//! `vos size`.

use clap::Args;
use local::failure::Failure;
use serde_json::json;

use super::context::{VosContext, text};
use super::dump::dump_size;
use super::typed::SitedVolume;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos size home.alice -dump                       of a full dump
    rialto vos size home.alice -dump -time '2026-11-22 03:00'
    rialto vos size -id home.alice -dump --json | jq .dump_size

The bytes that 'vos dump' would write now, as a program for backups reserves them. The
volume is read for that, so it takes as long as the dump does. 'vos examine' shows the
space that a volume uses.";

/// Shows the size of a dump of a volume, without the dump.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Size {
    #[command(flatten)]
    volume: SitedVolume,
    /// Show the size of a dump.
    #[arg(long)]
    dump: bool,
    /// Of a dump with only the changes since about this time, as of 'vos dump'; 0: of a full one
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
}

impl Size {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let (wanted, site) = self.volume.parts()?;
        let what = format!("asking for the size of {wanted}");
        let group = context.group(&wanted, &site)?;
        let name = text(&group[0].name);
        let size =
            if self.dump { dump_size(context, &what, &group, self.time.as_deref())? } else { None };
        if context.json {
            local::show::json(&json!({ "name": name, "dump_size": size }));
            return Ok(());
        }
        println!("Volume: {name}");
        if let Some(size) = size {
            println!("dump_size: {size}");
        }
        Ok(())
    }
}
