//! `rialto export-afs`: gives users, groups and locations of volumes to databases of OpenAFS.
//!
//! Both cells are asked by AFS's calls: this one at its own ports. So what is given is what AFS's
//! clients see.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use afs3::locations::LocationsCall;

use afscell::{AfsCell, AfsCellError, AfsServer};
use clap::Args;
use local::cell::{AfsClients, CellDir, Where};
use local::failure::{Doing, Failure};
use serde_json::json;

use super::import_afs::addresses;
use crate::afs_databases;
use crate::reach::ReachOptions;
use crate::security::afs_keys;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto export-afs --servers db1.example.org --dry-run     the changes that would be made
    rialto export-afs --servers db1.example.org,db2.example.org
    rialto export-afs --servers db1.example.org --prune --hand-over

Users, groups, file servers and volumes there become like those here. With --prune what
is there alone is removed, too: use it to give back a cell that was taken over.

--hand-over writes 'databases' into cell.toml afterwards: when the server has started
again it follows those databases, and takes changes no more ('rialto import-afs').

EXIT CODES
    0  done
    1  failed
    3  no cell there, or its server does not run";

/// Numbers of volumes of one call.
const NUMBERS_AT_ONCE: u32 = 1000;
const WHAT: &str = "giving the databases to the other cell";

/// Gives users, groups and locations of volumes to databases of OpenAFS.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct ExportAfs {
    /// The database servers: host names or IPv4 addresses.
    #[arg(long, value_name = "HOST", value_delimiter = ',', required = true)]
    servers: Vec<String>,
    /// The keys of their cell: a keytab with afs/CELL, a KeyFileExt or a KeyFile [default: those
    /// of [afs] in cell.toml]
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// The name of their cell, by which a keytab has its key [default: that of this cell]
    #[arg(long, value_name = "CELL")]
    to: Option<String>,
    /// Only print the changes.
    #[arg(long, short = 'n', conflicts_with = "hand_over")]
    dry_run: bool,
    /// Remove there what is not here.
    #[arg(long)]
    prune: bool,
    /// Follow those databases from the server's next start on.
    #[arg(long)]
    hand_over: bool,
    /// JSON: one value for each line of the answer.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: ReachOptions,
}

impl ExportAfs {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let what = || WHAT.to_owned();
        let place = Where { dir: self.reach.dir.clone(), clear: false };
        let cell = place.cell()?;
        let (here, there, databases) = self.cells(&cell)?;
        let prunes = self.prune;
        let mut changes = 0;
        let people = afscell::people_changes(
            &afscell::principals(&here).doing(what)?,
            &afscell::principals(&there).doing(what)?,
            prunes,
        );
        for change in people {
            self.tell(&change.told);
            changes += 1;
            if !self.dry_run {
                there.protection(&change.call).doing(|| format!("{WHAT}: {}", change.told))?;
            }
        }
        let servers = afscell::servers(&here).doing(what)?;
        let known = afscell::servers(&there).doing(what)?;
        for server in servers.iter().filter(|one| !known.contains(one)) {
            let told = format!("server {}", server.addresses[0]);
            self.tell(&told);
            changes += 1;
            if !self.dry_run {
                there
                    .register(server.uuid, &server.addresses)
                    .doing(|| format!("{WHAT}: {told}"))?;
            }
        }
        let all: Vec<AfsServer> = servers.into_iter().chain(known).collect();
        let (ours, theirs) =
            (afscell::entries(&here).doing(what)?, afscell::entries(&there).doing(what)?);
        for change in afscell::entry_changes(&ours, &theirs, &all, prunes) {
            self.tell(&change.told);
            changes += 1;
            if !self.dry_run {
                there.locations(&change.call).doing(|| format!("{WHAT}: {}", change.told))?;
            }
        }
        if !self.dry_run {
            pass_numbers(&here, &there).doing(what)?;
        }
        if !self.json {
            let done = if self.dry_run { "to be made" } else { "made" };
            println!("{changes} changes {done}");
        }
        if self.hand_over {
            afs_databases::write(&cell, &databases).map_err(|why| Failure::new(WHAT, why))?;
            println!(
                "the cell follows those databases from its server's next start on: 'rialto down' \
                 and 'rialto up', or restart its service"
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    fn tell(&self, told: &str) {
        match self.json {
            true => local::show::json(&json!({ "change": told })),
            false => println!("{told}"),
        }
    }

    /// This cell, the other one, and the addresses of its databases.
    fn cells(&self, cell: &CellDir) -> Result<(AfsCell, AfsCell, Vec<Ipv4Addr>), Failure> {
        let what = || WHAT.to_owned();
        let Some(AfsClients { listen, keys: Some(own), databases, .. }) = &cell.config.afs else {
            return Err(Failure::new(WHAT, "[afs] in cell.toml names no address and keys")
                .mend("open AFS's ports first: docs/operations/afs-clients.md says how"));
        };
        if !databases.is_empty() {
            let why = "this cell follows databases of OpenAFS: it has none of its own to give";
            return Err(
                Failure::new(WHAT, why).mend("'rialto import-afs --take-over' makes them its own")
            );
        }
        let name = &cell.config.name;
        let own = cell.dir().join(own);
        let ours = Arc::new(afs_keys(&own, name)?);
        let file = self.keys.as_ref().unwrap_or(&own);
        let theirs = Arc::new(afs_keys(file, self.to.as_ref().unwrap_or(name))?);
        let there = addresses(&self.servers)?;
        if there.contains(listen) {
            return Err(Failure::new(WHAT, "--servers names this server itself")
                .mend("name the database servers of OpenAFS"));
        }
        let here = AfsCell::open(vec![*listen], Some(ours)).doing(what)?;
        let other = AfsCell::open(there.clone(), Some(theirs)).doing(what)?;
        other.need_superuser().doing(what)?;
        Ok((here, other, there))
    }
}

/// The numbers that are given there next are above those that were given here.
fn pass_numbers(here: &AfsCell, there: &AfsCell) -> Result<(), AfsCellError> {
    let ours = afscell::next_number(here)?;
    loop {
        let count = ours.saturating_sub(afscell::next_number(there)?).min(NUMBERS_AT_ONCE);
        if count == 0 {
            return Ok(());
        }
        there.locations(&LocationsCall::GetNewVolumeId { count })?;
    }
}
