//! `rialto fs`: a mounted tree for its users, with OpenAFS's verbs, options and answers. A binary
//! that is called as `fs` is this command. It asks only the mount, through the attributes
//! `rialto.*` of files and directories (`tree.rs`), so it needs neither the cell's directory nor
//! rights of its own: the mount checks the user's rights.

mod acls;
mod cache;
mod cells;
mod connection;
mod files;
mod points;
pub(in crate::commands) mod principals;
mod quotas;
mod servers;
mod sysname;
pub(crate) mod tree;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use local::failure::{FAILED, Failure};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto fs mkmount -dir ~/tree/alice -vol home.alice      shows the volume there
    rialto fs lsmount ~/tree/alice
    rialto fs listquota ~/tree/alice ~/tree/shared
    rialto fs setquota ~/tree/alice -max 20G
    rialto fs whereis ~/tree/alice
    rialto fs VERB --help                                    more, with examples

Verbs, options and their order are OpenAFS's. Options may be written -name or --name, and
verbs may be shortened. Called through a link named fs, the program is this command. Sizes
are in KiB, or have a unit (20G). Where a path may be left out, it is the directory that
the command runs in.

EXIT CODES
    0  done
    1  refused or failed, for one path at least: the message names the remedy
    2  wrong usage
    3  no tree is mounted";

/// Mounted trees: mount points, quotas, places of files, caches.
#[derive(Args, Debug)]
#[command(
    after_help = AFTER_HELP,
    arg_required_else_help = true
)]
pub struct Fs {
    #[command(subcommand)]
    verb: Verb,
    /// JSON: one value for each path.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Mkmount(points::Mkmount),
    /// Removes mount points.
    #[command(after_help = points::RMMOUNT_HELP, visible_alias = "removemount")]
    Rmmount(points::Points),
    /// Shows the volumes that mount points name.
    #[command(after_help = points::LSMOUNT_HELP)]
    Lsmount(points::Points),
    Mvmount(points::Mvmount),
    /// Shows the volume that a file or directory is in.
    #[command(after_help = quotas::EXAMINE_HELP, visible_aliases = ["listvol", "lv"])]
    Examine(Paths),
    /// Shows how much of its quota a volume uses.
    #[command(after_help = quotas::QUOTA_HELP)]
    Quota(Paths),
    Listquota(quotas::Listquota),
    Setquota(quotas::Setquota),
    Setvol(quotas::Setvol),
    Diskfree(quotas::Diskfree),
    Listacl(acls::Listacl),
    Setacl(acls::Setacl),
    Copyacl(acls::Copyacl),
    /// Removes entries of missing principals from access lists.
    #[command(after_help = acls::CLEANACL_HELP)]
    Cleanacl(Paths),
    /// Shows your own rights.
    #[command(after_help = acls::GETCALLERACCESS_HELP, visible_alias = "gca")]
    Getcalleraccess(Paths),
    /// Shows the servers that have a file.
    #[command(after_help = files::WHEREIS_HELP)]
    Whereis(Paths),
    /// Shows the cell that a file is in.
    #[command(after_help = files::WHICHCELL_HELP)]
    Whichcell(Paths),
    #[command(visible_alias = "primarycell")]
    Wscell(files::Wscell),
    Listcells(cells::Listcells),
    Newcell(cells::Newcell),
    Getfid(files::Getfid),
    /// Drops the cached data of files or directories.
    #[command(after_help = cache::FLUSH_HELP)]
    Flush(Paths),
    /// Drops the cached data of the volumes of files or directories.
    #[command(after_help = cache::FLUSHVOLUME_HELP)]
    Flushvolume(Paths),
    /// Drops the cached data of all volumes.
    #[command(after_help = cache::FLUSHALL_HELP)]
    Flushall(cache::Place),
    /// Drops the cached targets of mount points.
    #[command(after_help = cache::FLUSHMOUNT_HELP)]
    Flushmount(Paths),
    /// Drops the cached targets of all mount points.
    #[command(after_help = cache::CHECKVOLUMES_HELP)]
    Checkvolumes(cache::Place),
    Checkservers(servers::Checkservers),
    Getserverprefs(servers::Getserverprefs),
    Setserverprefs(servers::Setserverprefs),
    /// Shows how much of the disk cache is used.
    #[command(after_help = cache::GETCACHEPARMS_HELP)]
    Getcacheparms(cache::Place),
    #[command(visible_alias = "cachesize")]
    Setcachesize(cache::Setcachesize),
    #[command(visible_alias = "sb")]
    Storebehind(cache::Storebehind),
    /// Shows whether connections to servers are encrypted.
    #[command(after_help = connection::GETCRYPT_HELP)]
    Getcrypt(cache::Place),
    Setcrypt(connection::Setcrypt),
    /// Shows the number by which servers know this client.
    #[command(after_help = connection::UUID_HELP)]
    Uuid(cache::Place),
    Sysname(sysname::Sysname),
}

/// The paths of a verb.
#[derive(Args, Debug)]
pub struct Paths {
    /// Files or directories of the tree.
    #[arg(long = "path", value_name = "PATH", num_args = 1.., conflicts_with = "words")]
    path: Vec<std::path::PathBuf>,
    /// The same, without the option.
    #[arg(value_name = "PATH", default_value = ".")]
    words: Vec<std::path::PathBuf>,
}

impl Paths {
    /// Runs `one` for each path. A failure is reported at once, and the others are still done.
    fn each(
        self,
        mut one: impl FnMut(&std::path::Path) -> Result<(), Failure>,
    ) -> Result<ExitCode, Failure> {
        let paths = if self.path.is_empty() { self.words } else { self.path };
        let mut failed = false;
        for path in &paths {
            if let Err(failure) = one(path) {
                if paths.len() == 1 {
                    return Err(failure);
                }
                eprintln!("rialto fs: {failure}");
                failed = true;
            }
        }
        Ok(if failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
    }
}

impl Fs {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let json = self.json;
        match self.verb {
            Verb::Mkmount(verb) => verb.run(json),
            Verb::Rmmount(points) => points::remove(points, json),
            Verb::Lsmount(points) => points::list(points, json),
            Verb::Mvmount(verb) => verb.run(json),
            Verb::Examine(paths) => quotas::examine(paths, json),
            Verb::Quota(paths) => quotas::used(paths, json),
            Verb::Listquota(verb) => verb.run(json),
            Verb::Setquota(verb) => verb.run(json),
            Verb::Setvol(verb) => verb.run(json),
            Verb::Diskfree(verb) => verb.run(json),
            Verb::Listacl(verb) => verb.run(json),
            Verb::Setacl(verb) => verb.run(),
            Verb::Copyacl(verb) => verb.run(),
            Verb::Cleanacl(paths) => acls::clean_lists(paths),
            Verb::Getcalleraccess(paths) => acls::own_rights(paths, json),
            Verb::Whereis(paths) => files::where_is(paths, json),
            Verb::Whichcell(paths) => files::which_cell(paths, json),
            Verb::Wscell(verb) => verb.run(json),
            Verb::Listcells(verb) => verb.run(json),
            Verb::Newcell(verb) => verb.run(json),
            Verb::Getfid(verb) => files::fid(verb, json),
            Verb::Flush(paths) => cache::flush(paths, json),
            Verb::Flushvolume(paths) => cache::flush_volume(paths, json),
            Verb::Flushall(place) => cache::flush_all(&place, json),
            Verb::Flushmount(paths) => cache::flush_mount(paths, json),
            Verb::Checkvolumes(place) => cache::check_volumes(&place, json),
            Verb::Checkservers(verb) => verb.run(json),
            Verb::Getserverprefs(verb) => verb.run(json),
            Verb::Setserverprefs(verb) => verb.run(json),
            Verb::Getcacheparms(place) => cache::cache_use(&place, json),
            Verb::Setcachesize(verb) => verb.run(json),
            Verb::Storebehind(verb) => verb.run(json),
            Verb::Getcrypt(place) => connection::crypt_level(&place, json),
            Verb::Setcrypt(verb) => verb.run(json),
            Verb::Uuid(place) => connection::client_number(&place, json),
            Verb::Sysname(verb) => verb.run(json),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use crate::commands::Cli;

    #[test]
    fn every_verb_has_examples_and_openafs_spellings_are_taken() {
        let mut cli = Cli::command();
        cli.build();
        let fs = cli.find_subcommand("fs").expect("a command");
        for verb in fs.get_subcommands().filter(|verb| verb.get_name() != "help") {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("EXAMPLES") && verb.get_about().is_some(), "{}", verb.get_name());
        }
        for (line, verb) in [
            ("mkm d v", "mkmount"),
            ("mkm --dir d --vol v --rw --fast --cell c", "mkmount"),
            ("rmm --dir a b", "rmmount"),
            ("lsm a b", "lsmount"),
            ("exa", "examine"),
            ("lq --path a b --human", "listquota"),
            ("sq a 5G", "setquota"),
            ("sq --path a --max 5000", "setquota"),
            ("sv -p a b -m 5000", "setvol"),
            ("df", "diskfree"),
            ("whe a", "whereis"),
            ("la a b", "listacl"),
            ("sa a bob rl", "setacl"),
            ("sa --dir a b --acl bob rl eve none --clear --negative", "setacl"),
            ("ca a b", "copyacl"),
            ("copy --fromdir a --todir b c --clear", "copyacl"),
            ("cl a", "cleanacl"),
            ("gca", "getcalleraccess"),
            ("flushv a", "flushvolume"),
            ("flush", "flush"),
            ("checks --fast", "checkservers"),
            ("checkv", "checkvolumes"),
            ("getcac", "getcacheparms"),
            ("getse", "getserverprefs"),
            ("sets a 5 b 6", "setserverprefs"),
            ("sys --newsys a b", "sysname"),
            ("setserverprefs --servers a 5", "setserverprefs"),
        ] {
            let words = ["rialto", "fs"].into_iter().chain(line.split(' '));
            let words = crate::commands::typed(words.map(Into::into)).expect(line);
            let typed = Cli::command().try_get_matches_from(words);
            let typed = typed.unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(
                typed.subcommand_matches("fs").unwrap().subcommand_name(),
                Some(verb),
                "{line}"
            );
        }
    }
}
