//! `vos partinfo` and `vos status`.

use clap::Args;
use serde_json::json;

use super::list::place;
use super::office::{Office, Site};
use crate::failure::Failure;

const PARTINFO_HELP: &str = "\
EXAMPLES
    rialto vos partinfo
    rialto vos partinfo -partition b --json | jq .free_bytes";

const STATUS_HELP: &str = "\
EXAMPLES
    rialto vos status

Transactions are moves, releases, dumps and restores that run. This server has none of them yet,
so it shows that the server answers.";

/// Shows the room on partitions.
#[derive(Args, Debug)]
#[command(after_help = PARTINFO_HELP)]
pub struct Partinfo {
    #[command(flatten)]
    site: Site,
    /// [SERVER] PARTITION, instead of the options.
    #[arg(value_name = "SERVER", num_args = 0..=2)]
    words: Vec<String>,
}

/// Shows what the server is at with volumes.
#[derive(Args, Debug)]
#[command(after_help = STATUS_HELP)]
pub struct Status {
    #[command(flatten)]
    site: Site,
    /// SERVER, instead of the option.
    #[arg(value_name = "SERVER", num_args = 0..=1)]
    words: Vec<String>,
}

impl Partinfo {
    pub fn run(mut self, office: &Office) -> Result<(), Failure> {
        place(&mut self.site, self.words);
        let on = office.site(&self.site)?;
        for partition in office.partitions().iter().filter(|one| on.is_none_or(|on| on == one.no)) {
            let (name, free, total) = (&partition.name, partition.free_bytes, partition.total_bytes);
            if office.common.json {
                crate::show::json(&json!({
                    "server": office.server(), "partition": name, "free_bytes": free, "total_bytes": total,
                }));
            } else {
                let (free, total) = (free / 1024, total / 1024);
                println!("Free space on partition {name}: {free} K blocks out of total {total}");
            }
        }
        Ok(())
    }
}

impl Status {
    pub fn run(mut self, office: &Office) -> Result<(), Failure> {
        place(&mut self.site, self.words);
        office.site(&self.site)?;
        if office.common.json {
            crate::show::json(&json!({ "server": office.server(), "transactions": [] }));
        } else {
            println!("No active transactions on {}", office.server());
        }
        Ok(())
    }
}
