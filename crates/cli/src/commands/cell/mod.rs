//! `rialto cell`: the records of the cell's database as text, the way back, and where it is.

pub(super) mod entry;
mod export;
pub(super) mod import;
mod invite;
mod level;
pub(super) mod migrate;
mod remove_server;
mod sign;
pub(super) mod state;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use local::failure::Failure;

use super::cell_client::CellOptions;
use invite::{INVITE_HELP, InviteOptions, UNINVITE_HELP};
use level::{STATUS_HELP, UPGRADE_HELP, UpgradeOptions};
use migrate::{MIGRATE_HELP, MigrateOptions};
use remove_server::{REMOVE_HELP, RemoveOptions};
use sign::{SIGN_HELP, SignOptions};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto cell export > cell.txt                users, groups, rules, servers, locations
    rialto cell export users groups > people.txt
    rialto cell import --dry-run people.txt      the changes that would be made
    rialto cell import people.txt
    rialto cell migrate --to etcd --endpoints db1:2379,db2:2379,db3:2379 --cacert ca.pem
    rialto cell invite                           lets a further server in
    rialto cell remove-server afs2               ends one
    rialto cell status                           level and programs of the servers
    rialto cell upgrade                          raises the level

Each line of an export is a record; lines are sorted, so that diff compares two exports.
There are no passwords in it: 'rialto backup cell' has those, and everything else.

EXIT CODES
    0  done
    1  failed
    3  no cell there, or its server does not run";

/// Shows the cell's users, groups, rules, servers and locations as text, and makes them of it;
/// moves its database; invites servers; raises its level.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct CellCommand {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    options: CellOptions,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Prints the records of the cell, one a line.
    #[command(after_help = EXPORT_HELP)]
    Export {
        /// Only these [default: all]
        sections: Vec<Section>,
    },
    /// Makes users, groups and rules as a file has them.
    #[command(after_help = IMPORT_HELP)]
    Import {
        /// The file; - is standard input.
        file: PathBuf,
        /// Only print the changes.
        #[arg(long, short = 'n')]
        dry_run: bool,
        /// Remove what the file does not have: of users, of groups with members, and of rules, each
        /// only if the file has any of them.
        #[arg(long)]
        prune: bool,
    },
    /// Shows the level of the cell, and the programs of its servers.
    #[command(after_help = STATUS_HELP)]
    Status,
    /// Raises the level of the cell, when all its servers know the next one.
    #[command(after_help = UPGRADE_HELP)]
    Upgrade(UpgradeOptions),
    /// Prints a line of text that lets a further server into the cell.
    #[command(after_help = INVITE_HELP)]
    Invite(InviteOptions),
    /// Lists the invitations, with the servers that they have let in.
    #[command(after_help = "EXAMPLES\n    rialto cell invitations\n    rialto cell invitations \
                            --json")]
    Invitations,
    /// Ends an invitation.
    #[command(after_help = UNINVITE_HELP)]
    Uninvite {
        /// Its number in the list.
        number: u64,
    },
    /// Ends a server of the cell: its keys, its sessions and its record.
    #[command(after_help = REMOVE_HELP)]
    RemoveServer(RemoveOptions),
    /// Signs a server's certificate where the key of the authority is off line.
    #[command(after_help = SIGN_HELP)]
    Sign(SignOptions),
    /// Moves the database to etcd, or back to this server.
    #[command(after_help = MIGRATE_HELP)]
    Migrate(MigrateOptions),
}

const EXPORT_HELP: &str = "\
EXAMPLES
    rialto cell export
    rialto cell export users groups rules
    rialto cell export --json locations | jq .name";

const IMPORT_HELP: &str = "\
EXAMPLES
    rialto cell import --dry-run cell.txt
    rialto cell import cell.txt
    rialto cell import --prune people.txt

Missing users, groups, members, fences and administrators are made, with the numbers in the
file; fields that the file has and that differ are changed; a user with a number and without
locked=yes is not locked. Servers and locations are only shown. The calls are those of
'rialto pts', 'fence' and 'admin', so the same rules hold. A user or group that has another
number in the cell than in the file stops all of it; one of another name that has the number of a
record, and is not in the file itself, is renamed.";

/// A part of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Section {
    /// Users.
    Users,
    /// Groups and host sets, with their members.
    Groups,
    /// Fences and administrators of parts.
    Rules,
    /// Servers.
    Servers,
    /// Volumes and their places.
    Locations,
}

impl CellCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.verb {
            Verb::Export { sections } => export::run(&self.options, &sections),
            Verb::Import { file, dry_run, prune } => {
                let pruned = if prune { import::Pruned::All } else { import::Pruned::None };
                let way = import::ImportWay { dry_run, pruned, is_told: true, keeps_locks: false };
                import::run(&self.options, &file, way)
            }
            Verb::Status => level::status(&self.options),
            Verb::Upgrade(upgrade) => upgrade.run(&self.options),
            Verb::Invite(invite) => invite.run(&self.options),
            Verb::Invitations => invite::list(&self.options),
            Verb::Uninvite { number } => invite::end(&self.options, number),
            Verb::RemoveServer(remove) => remove.run(&self.options),
            Verb::Sign(sign) => sign.run(self.options.json),
            Verb::Migrate(migrate) => {
                migrate.run(self.options.reach.dir.as_deref(), self.options.json)
            }
        }
    }
}
