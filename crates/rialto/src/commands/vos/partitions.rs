//! `vos partinfo` and `vos status`.

use clap::Args;
use serde_json::json;

use super::list::place;
use super::office::{Office, Site, Spot};
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
        let spots = office.spots(&self.site)?;
        let several = spots.iter().any(|spot| spot.server != spots[0].server);
        for Spot { server, partition } in &spots {
            let server = office.server_name(*server);
            let (name, free, total) = (&partition.name, partition.free_bytes, partition.total_bytes);
            if office.common.json {
                crate::show::json(&json!({
                    "server": server, "partition": name, "free_bytes": free, "total_bytes": total,
                    "compression": partition.compression,
                }));
            } else {
                let (free, total) = (free / 1024, total / 1024);
                let name = if several { format!("{server} {name}") } else { name.clone() };
                println!("Free space on partition {name}: {free} K blocks out of total {total}");
                if partition.compression != "none" {
                    println!("    Snapshots and copies are compressed: {}", partition.compression);
                }
            }
        }
        Ok(())
    }
}

impl Status {
    pub fn run(mut self, office: &Office) -> Result<(), Failure> {
        place(&mut self.site, self.words);
        for server in office.chosen(&self.site)? {
            office.partitions(server)?;
            let server = office.server_name(server);
            if office.common.json {
                crate::show::json(&json!({ "server": server, "transactions": [] }));
            } else {
                println!("No active transactions on {server}");
            }
        }
        Ok(())
    }
}
