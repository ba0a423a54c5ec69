//! `rialto vos`: volumes, with OpenAFS's verbs, options and answers. A binary that is called as
//! `vos` is this command. `commands/openafs` reads its words.

mod abandon;
mod addresses;
mod afs_dump;
mod balance;
mod clone;
mod context;
mod copy;
mod create;
mod delentry;
mod dump;
mod dump_io;
mod dumpfile;
mod endtrans;
mod examine;
mod fields;
mod formatted;
mod health;
mod list;
mod locks;
mod model;
mod moving;
mod partitions;
mod release;
mod remove;
mod rename;
mod shadow;
mod show;
mod sites;
mod size;
mod snapshot;
mod standby;
mod sync;
mod take_over;
mod trust;
mod typed;
mod upgrade;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use local::failure::Failure;

use super::cell_client::CellOptions;

pub(crate) use context::now_secs;
pub(crate) use health::ailment;
pub(crate) use show::{iso, stamp};
pub(crate) use typed::quota;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos create home.alice -maxquota 20G        a volume, where most space is free
    rialto vos listvol                                all volumes
    rialto vos examine home.alice
    rialto vos snapshot create home.alice before      its current state
    rialto vos release home.alice                     its read-only sites show it
    rialto vos dump home.alice -file alice.dump       and 'vos restore' makes a volume of it
    rialto mount --volume home.alice unix:/srv/rialto/server.sock /mnt/alice
    rialto vos listvol --via fs1.example.org:7620     from another machine, by your login
    rialto vos VERB --help                            more, with examples

Verbs, options and their order are OpenAFS's. Options may be written -name or --name. The
server and partition may be left out: volumes are looked up, and lists show all servers of
the cell. A server has a name, an address or an id ('vos listaddrs'). Repeating an
interrupted command finishes it. Called through a link named vos, the program is
this command. Sizes are in KiB, or have a unit (20G).

EXIT CODES
    0  done
    1  refused or failed: the message names the remedy
    2  wrong usage
    3  no cell there, or its server does not run or answer";

/// Connections to other servers of the cell show the keys of this one.
const AS_UID: &str = "Ask as the user with this uid, as somebody who has the server's socket and \
    keys may, and not as the superuser";

/// Volumes: make, list, change, snapshot and remove them.
#[derive(Args, Debug)]
#[command(
    after_help = AFTER_HELP,
    arg_required_else_help = true
)]
#[command(mut_arg("as_uid", |arg| arg.help(AS_UID)))]
pub struct Vos {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    options: CellOptions<Telling>,
}

/// Options for the steps of a verb.
#[derive(Args, Debug)]
pub struct Telling {
    /// Check whether it could be done, report the steps, and change nothing.
    #[arg(long, global = true, aliases = ["dryrun", "noexecute"])]
    dry_run: bool,
    /// Report the steps.
    #[arg(long, global = true)]
    verbose: bool,
    /// The cell's keys of AFS, for servers of AFS: a keytab with afs/CELL, KeyFileExt or KeyFile
    /// [default: those of [afs] in the cell.toml of this machine's server]
    #[arg(long, value_name = "FILE", global = true)]
    keys: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Create(create::Create),
    Remove(remove::Remove),
    Zap(remove::Zap),
    Abandon(abandon::Abandon),
    Rename(rename::VosRename),
    Examine(examine::VosExamine),
    Listvol(list::Listvol),
    Listvldb(list::Listvldb),
    Partinfo(partitions::Partinfo),
    Listpart(partitions::Listpart),
    Delentry(delentry::Delentry),
    Status(partitions::VosStatus),
    Endtrans(endtrans::Endtrans),
    /// Makes or renews the backup volume of a volume.
    #[command(after_help = clone::BACKUP_HELP)]
    Backup(typed::TypedVolume),
    Backupsys(clone::Backupsys),
    Clone(clone::Clone),
    Snapshot(snapshot::SnapshotCommand),
    /// Brings a volume back online.
    #[command(after_help = fields::ONLINE_HELP)]
    Online(typed::SitedVolume),
    /// Takes a volume offline, so that no client can use it.
    #[command(after_help = fields::OFFLINE_HELP)]
    Offline(typed::SitedVolume),
    Setfields(fields::VosSetfields),
    Release(release::Release),
    Copy(copy::Copy),
    Shadow(shadow::Shadow),
    Dump(dump::Dump),
    Size(size::Size),
    Restore(dump::Restore),
    Move(moving::Move),
    Evacuate(moving::Evacuate),
    Balance(balance::Balance),
    #[command(name = "convertROtoRW")]
    ConvertRoToRw(take_over::ConvertRoToRw),
    Addsite(sites::Addsite),
    Addstandby(standby::Addstandby),
    /// Removes a standby of a volume.
    #[command(after_help = standby::REMSTANDBY_HELP)]
    #[command(mut_arg("words", |arg| arg.help(sites::WORDS)))]
    Remstandby(typed::SitedVolume),
    Failover(standby::Failover),
    Upgradepartition(upgrade::Upgradepartition),
    Trustpart(trust::Trustpart),
    Changeloc(sites::Changeloc),
    /// Removes a read-only site of a volume from the record.
    #[command(after_help = sites::REMSITE_HELP, mut_arg("words", |arg| arg.help(sites::WORDS)))]
    Remsite(typed::SitedVolume),
    /// Locks a volume against other operations.
    #[command(after_help = locks::LOCK_HELP)]
    Lock(typed::TypedVolume),
    /// Frees a volume that is locked.
    #[command(after_help = locks::UNLOCK_HELP)]
    Unlock(typed::TypedVolume),
    /// Frees all volumes that are locked.
    #[command(after_help = locks::UNLOCKVLDB_HELP)]
    Unlockvldb(typed::TypedPlace),
    Syncvldb(sync::Syncvldb),
    /// Checks that servers have the volumes that the database records.
    #[command(after_help = sync::SYNCSERV_HELP)]
    Syncserv(typed::TypedPlace),
    Listaddrs(addresses::Listaddrs),
    Changeaddr(addresses::Changeaddr),
}

impl Vos {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let context = context::VosContext::open(&self.options)?;
        match self.verb {
            Verb::Create(create) => create.run(&context),
            Verb::Remove(remove) => remove.run(&context),
            Verb::Zap(zap) => zap.run(&context),
            Verb::Abandon(abandon) => abandon.run(&context),
            Verb::Rename(rename) => rename.run(&context),
            Verb::Examine(examine) => examine.run(&context),
            Verb::Listvol(listvol) => listvol.run(&context),
            Verb::Listvldb(listvldb) => listvldb.run(&context),
            Verb::Partinfo(wanted) => partitions::free_space(wanted, &context),
            Verb::Listpart(listpart) => listpart.run(&context),
            Verb::Delentry(delentry) => delentry.run(&context),
            Verb::Status(status) => status.run(&context),
            Verb::Endtrans(end) => end.run(&context),
            Verb::Backup(volume) => clone::back_up(volume, &context),
            Verb::Backupsys(backupsys) => backupsys.run(&context),
            Verb::Clone(clone) => clone.run(&context),
            Verb::Snapshot(snapshot) => snapshot.run(&context),
            Verb::Online(volume) => fields::bring_online(volume, &context),
            Verb::Offline(volume) => fields::take_offline(volume, &context),
            Verb::Setfields(setfields) => setfields.run(&context),
            Verb::Move(moving) => moving.run(&context),
            Verb::Evacuate(evacuate) => evacuate.run(&context),
            Verb::Balance(balance) => balance.run(&context),
            Verb::ConvertRoToRw(convert) => convert.run(&context),
            Verb::Copy(copy) => copy.run(&context),
            Verb::Shadow(shadow) => shadow.run(&context),
            Verb::Release(release) => release.run(&context),
            Verb::Dump(dump) => dump.run(&context),
            Verb::Size(size) => size.run(&context),
            Verb::Restore(restore) => restore.run(&context),
            Verb::Addsite(addsite) => addsite.run(&context),
            Verb::Addstandby(add) => add.run(&context),
            Verb::Remstandby(volume) => standby::remove(volume, &context),
            Verb::Failover(failover) => failover.run(&context),
            Verb::Upgradepartition(upgrade) => upgrade.run(&context),
            Verb::Trustpart(trust) => trust.run(&context),
            Verb::Changeloc(changeloc) => changeloc.run(&context),
            Verb::Remsite(volume) => sites::remove(volume, &context),
            Verb::Lock(volume) => locks::lock(volume, &context),
            Verb::Unlock(volume) => locks::unlock_one(volume, &context),
            Verb::Unlockvldb(place) => locks::unlock_all(place, &context),
            Verb::Syncvldb(syncvldb) => sync::sync_database(syncvldb, &context),
            Verb::Syncserv(place) => sync::sync_servers(place, &context),
            Verb::Listaddrs(listaddrs) => listaddrs.run(&context),
            Verb::Changeaddr(changeaddr) => changeaddr.run(&context),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use crate::commands::Cli;

    #[test]
    fn every_verb_has_examples() {
        let mut cli = Cli::command();
        cli.build();
        let vos = cli.find_subcommand("vos").expect("a command");
        for verb in vos.get_subcommands().filter(|verb| verb.get_name() != "help") {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("EXAMPLES") && verb.get_about().is_some(), "{}", verb.get_name());
        }
    }
}
