//! Access lists: `fs listacl`, `setacl`, `copyacl`, `cleanacl` and `getcalleraccess`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use guard::{Acl, AclEntry, Rights};
use local::failure::Failure;
use local::show;
use rustix::io::Errno;
use serde_json::{Value, json};
use types::{Fid, hex};

use super::Paths;
use super::principals::{is_there, name_of, number_of};
use super::tree;

const ATTRIBUTE: &str = "system.rialto.acl";
const OF: &str = "system.rialto.acl:of";
const FID: &str = "system.rialto.fid";
/// Attempts of a change that conflicts with others: each conflict means that another change
/// succeeded.
const ATTEMPTS: usize = 1000;

const LISTACL_HELP: &str = "\
EXAMPLES
    rialto fs listacl ~/tree/alice
    rialto fs la ~/tree/* --json

The list of its directory applies to a file, as a remark after its name shows, unless
'fs setacl' gave it one of its own. To a directory without a list that of the directory
above applies.";

const SETACL_HELP: &str = "\
EXAMPLES
    rialto fs setacl ~/tree/alice bob read
    rialto fs sa -dir ~/tree/alice ~/tree/alice/letters -acl bob rl alice:friends write
    rialto fs sa ~/tree/alice bob none                     removes bob's entry
    rialto fs sa ~/tree/alice -clear -acl alice all        removes all other entries
    rialto fs sa ~/tree/alice eve rl -negative             denies eve, whoever allows it
    rialto fs sa ~/tree/alice/wish.txt bob rw              a list for this file alone
    rialto fs sa ~/tree/alice/wish.txt -inherit            its directory's applies again

RIGHTS are letters: r read files, l list, i make entries, d remove them, w write files, k
lock them, a change this list; A to H are free. Or a word: read (rl), write (rlidwk), all
(rlidwka), none. Volumes with mode bits have no lists: 'rialto vos setfields -model acl'
enables them.

A file's new list begins as a copy of its directory's. From then on only its own list gives
the rights to read, write, lock and administer it, also after it was moved; its owner has a.
The rights to see its name and to remove it stay the directory's: l, i and d in its list
mean nothing. A new directory gets a copy of the list above; -inherit makes it follow that
list.

A concurrent change of a list is not overwritten: the command repeats its change on the new
list.";

const COPYACL_HELP: &str = "\
EXAMPLES
    rialto fs copyacl ~/tree/alice ~/tree/alice/letters
    rialto fs ca -fromdir ~/tree/alice -todir ~/tree/bob ~/tree/carol -clear

Without -clear entries of the target lists stay if the copied list has none for the same
principal.";

pub(super) const CLEANACL_HELP: &str = "\
EXAMPLES
    rialto fs cleanacl ~/tree/alice

Removes entries whose principals were deleted.";

pub(super) const GETCALLERACCESS_HELP: &str = "\
EXAMPLES
    rialto fs getcalleraccess ~/tree/alice";

/// Shows access lists.
#[derive(Args, Debug)]
#[command(after_help = LISTACL_HELP, visible_aliases = ["la", "listal"])]
pub struct Listacl {
    #[command(flatten)]
    paths: Paths,
    /// Show the 'fs setacl' commands that give this list.
    #[arg(long, conflicts_with = "json")]
    cmd: bool,
    /// Refused: new directories copy the list of the directory that they are made in.
    #[arg(long)]
    id: bool,
    /// Refused: new files have no lists of their own.
    #[arg(long = "if")]
    files: bool,
}

/// Changes access lists.
#[derive(Args, Debug)]
#[command(after_help = SETACL_HELP, visible_alias = "sa")]
pub struct Setacl {
    /// The directories and files.
    #[arg(long = "dir", value_name = "PATH", num_args = 1..)]
    dirs: Vec<PathBuf>,
    /// Names, each with its rights.
    #[arg(long = "acl", value_name = "NAME RIGHTS", num_args = 2..)]
    acl: Vec<String>,
    /// Remove all other entries first.
    #[arg(long)]
    clear: bool,
    /// Set the rights that are denied, instead of those that are given.
    #[arg(long)]
    negative: bool,
    /// Remove the list: from now on that of the directory, or of the directory above, applies.
    #[arg(long, conflicts_with_all = ["acl", "clear", "negative"])]
    inherit: bool,
    /// Refused: new directories copy the list of the directory that they are made in.
    #[arg(long)]
    id: bool,
    /// Refused: new files have no lists of their own.
    #[arg(long = "if")]
    files: bool,
    /// PATH, then NAME RIGHTS, without the options.
    #[arg(value_name = "PATH NAME RIGHTS")]
    words: Vec<String>,
}

/// Copies an access list to other directories and files.
#[derive(Args, Debug)]
#[command(after_help = COPYACL_HELP, visible_alias = "ca")]
pub struct Copyacl {
    /// The directory or file whose list is copied.
    #[arg(long = "fromdir", value_name = "PATH")]
    from: Option<PathBuf>,
    /// The directories and files that get it.
    #[arg(long = "todir", value_name = "PATH", num_args = 1..)]
    to: Vec<PathBuf>,
    /// Remove the entries that these had.
    #[arg(long)]
    clear: bool,
    /// FROM, then TO, instead of the options.
    #[arg(value_name = "PATH")]
    words: Vec<PathBuf>,
}

/// Phrases the refusal of a volume without lists, or of a list that the caller may not see or
/// change.
fn refused(path: &Path, what: String, error: Errno) -> Failure {
    match error {
        Errno::OPNOTSUPP if tree::get(path, FID).is_ok() => {
            Failure::new(what, "this volume has mode bits, and not access lists")
                .mend("'rialto vos setfields VOLUME -model acl' changes that")
        }
        Errno::ACCESS => Failure::new(what, std::io::Error::from(error)).mend(
            "who lists the directory (l) may see its list, and who administers it (a) may change \
                it: 'rialto fs getcalleraccess' says what you may do",
        ),
        _ => tree::refusal(path, what, error),
    }
}

fn read(path: &Path) -> Result<Acl, Failure> {
    let what = || format!("reading the access list of {}", path.display());
    let text = tree::get(path, ATTRIBUTE).map_err(|error| refused(path, what(), error))?;
    Acl::parse(&text).map_err(|error| Failure::new(what(), error))
}

/// Whether the list that applies is the path's own, and not that of a directory above.
fn is_own(path: &Path) -> Result<bool, Failure> {
    let what = || format!("reading the access list of {}", path.display());
    let [of, fid] = [OF, FID].map(|name| tree::get(path, name));
    Ok(of.map_err(|error| refused(path, what(), error))?
        == fid.map_err(|error| refused(path, what(), error))?)
}

/// A remark after the name if the list is that of a directory above.
fn origin_remark(path: &Path, own: bool) -> &'static str {
    match own {
        true => "",
        false if path.is_dir() => " that of the directory above:",
        false => " that of its directory:",
    }
}

/// Sets the list that `change` makes of the one that applies; repeats if another client changed
/// that meanwhile. `None`: no change.
fn change(
    path: &Path,
    mut change: impl FnMut(Acl) -> Result<Option<Acl>, Failure>,
) -> Result<Option<Acl>, Failure> {
    let what = || format!("changing the access list of {}", path.display());
    for _ in 0..ATTEMPTS {
        let seen = read(path)?;
        let sum = hex(&seen.sum());
        let Some(list) = change(seen)? else { return Ok(None) };
        match tree::set(path, &format!("{ATTRIBUTE}:{sum}"), &list.to_string()) {
            Ok(()) => return Ok(Some(list)),
            Err(Errno::CANCELED) => {}
            Err(error) => return Err(refused(path, what(), error)),
        }
    }
    Err(Failure::new(what(), "other clients change it all the time; try again later")
        .mend("try again"))
}

/// Adds entries to a list.
fn put(
    path: &Path,
    mut list: Acl,
    entries: impl Iterator<Item = (AclEntry, bool)>,
) -> Result<Acl, Failure> {
    for (entry, negative) in entries {
        if !list.set(entry.who, entry.rights, negative) {
            let what = format!("changing the access list of {}", path.display());
            return Err(
                Failure::new(what, "it is full").mend("replace some of its users by a group")
            );
        }
    }
    Ok(list)
}

/// Adds entries to the path's list; `clear`: replaces all entries, including concurrent ones.
fn give(
    path: &Path,
    clear: bool,
    entries: impl Iterator<Item = (AclEntry, bool)> + Clone,
) -> Result<(), Failure> {
    if !clear {
        return change(path, |seen| put(path, seen, entries.clone()).map(Some)).map(drop);
    }
    let what = || format!("changing the access list of {}", path.display());
    let list = put(path, Acl::new(), entries)?;
    tree::set(path, ATTRIBUTE, &list.to_string()).map_err(|error| refused(path, what(), error))
}

/// Removes the path's list, so that the one above applies.
fn inherit(path: &Path) -> Result<(), Failure> {
    let what = || format!("removing the access list of {}", path.display());
    let fid = tree::get(path, FID).map_err(|error| refused(path, what(), error))?;
    if fid.parse().is_ok_and(|fid: Fid| fid == Fid::root(fid.volume)) {
        return Err(Failure::new(
            what(),
            "it is the root of a volume, above which there is no other directory of it",
        )
        .mend("'rialto vos setfields VOLUME -model posix' gives the volume mode bits"));
    }
    tree::remove(path, ATTRIBUTE).map_err(|error| refused(path, what(), error))
}

/// Refuses -id and -if: new files and directories have no initial lists.
fn no_initial(id: bool, files: bool) -> Result<(), Failure> {
    if !id && !files {
        return Ok(());
    }
    let why = "there are no initial lists: a new directory copies that of its directory, and a \
        new file has its directory's";
    Err(Failure::new("looking for an initial access list", why).mend("leave -id and -if out"))
}

fn shown(path: &Path, entries: &[AclEntry]) -> Vec<(String, Rights)> {
    entries.iter().map(|entry| (name_of(path, entry.who), entry.rights)).collect()
}

/// Prints the list in OpenAFS's format.
fn print(path: &Path, list: &Acl) {
    for (title, entries) in [("Normal", list.positive()), ("Negative", list.negative())] {
        if !entries.is_empty() {
            println!("{title} rights:");
        }
        shown(path, entries).iter().for_each(|(name, rights)| println!("  {name} {rights}"));
    }
}

/// Prints the commands that give the list, for a shell.
fn print_commands(path: &Path, list: &Acl) {
    for (entries, option) in [(list.positive(), ""), (list.negative(), " -negative")] {
        if entries.is_empty() {
            continue;
        }
        let entries = shown(path, entries);
        let pairs = entries.iter().map(|(name, rights)| format!("{} {rights}", quoted(name)));
        let pairs: Vec<String> = pairs.collect();
        let path = quoted(&path.to_string_lossy());
        println!("fs setacl -dir {path} -acl {}{option}", pairs.join(" "));
    }
}

/// One word of a shell, whatever is in it.
fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@+,".contains(&byte);
    if !text.is_empty() && !text.starts_with('-') && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    // A path that begins so is an option otherwise.
    let start = if text.starts_with('-') { "./" } else { "" };
    format!("'{start}{}'", text.replace('\'', "'\\''"))
}

impl Listacl {
    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        no_initial(self.id, self.files)?;
        let mut first = true;
        self.paths.each(|path| {
            let (list, own) = (read(path)?, is_own(path)?);
            if json {
                let (normal, negative) =
                    (shown(path, list.positive()), shown(path, list.negative()));
                let value = |entries: &[(String, Rights)]| -> Value {
                    entries
                        .iter()
                        .map(|(name, rights)| json!({ "name": name, "rights": rights.to_string() }))
                        .collect()
                };
                show::json(&json!({ "path": path, "own": own, "normal": value(&normal),
                        "negative": value(&negative) }));
                return Ok(());
            }
            if self.cmd {
                print_commands(path, &list);
                return Ok(());
            }
            if !std::mem::take(&mut first) {
                println!();
            }
            println!("Access list for {} is{}", path.display(), origin_remark(path, own));
            print(path, &list);
            Ok(())
        })
    }
}

impl Setacl {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        no_initial(self.id, self.files)?;
        let mut words = self.words;
        let mut dirs = self.dirs;
        if dirs.is_empty() && !words.is_empty() {
            dirs.push(PathBuf::from(words.remove(0)));
        }
        let mut pairs = self.acl;
        pairs.extend(words);
        if dirs.is_empty()
            || pairs.is_empty() && !self.clear && !self.inherit
            || pairs.len() % 2 == 1
        {
            let why = "the arguments are a path, then names, each with its rights";
            return Err(Failure::new("reading the access list", why)
                .mend("'rialto fs setacl --help' has examples"));
        }
        if self.inherit {
            if !pairs.is_empty() {
                let why = "with -inherit it has no entries of its own";
                return Err(Failure::new("reading the access list", why)
                    .mend("leave the names and rights out"));
            }
            return Paths { path: dirs, words: Vec::new() }.each(inherit);
        }
        let place = dirs.first().cloned().unwrap_or_default();
        let mut entries = Vec::new();
        for pair in pairs.chunks_exact(2) {
            let rights: Rights = pair[1].parse().map_err(|error| {
                Failure::new(format!("reading the rights of {}", pair[0]), error)
            })?;
            entries.push((AclEntry { who: number_of(&place, &pair[0])?, rights }, self.negative));
        }
        Paths { path: dirs, words: Vec::new() }
            .each(|path| give(path, self.clear, entries.iter().copied()))
    }
}

impl Copyacl {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut words = self.words;
        let from = match self.from {
            Some(from) => from,
            None if words.is_empty() => {
                return Err(Failure::new("copying an access list", "the source is missing")
                    .mend("'rialto fs copyacl --help' has examples"));
            }
            None => words.remove(0),
        };
        let to: Vec<PathBuf> = self.to.into_iter().chain(words).collect();
        if to.is_empty() {
            return Err(Failure::new("copying an access list", "the targets are missing")
                .mend("'rialto fs copyacl --help' has examples"));
        }
        let copied = read(&from)?;
        let parts = [(copied.positive(), false), (copied.negative(), true)];
        let all = parts
            .into_iter()
            .flat_map(|(entries, negative)| entries.iter().map(move |one| (*one, negative)));
        Paths { path: to, words: Vec::new() }.each(|path| give(path, self.clear, all.clone()))
    }
}

/// The list without missing principals; `None`: it has none.
fn clean(path: &Path, mut list: Acl) -> Result<Option<Acl>, Failure> {
    let mut missing = BTreeSet::new();
    for entry in list.positive().iter().chain(list.negative()) {
        if !is_there(path, entry.who)? {
            missing.insert(entry.who);
        }
    }
    list.retain(|who| !missing.contains(&who));
    Ok((!missing.is_empty()).then_some(list))
}

pub(super) fn clean_lists(paths: Paths) -> Result<ExitCode, Failure> {
    paths.each(|path| {
        if !is_own(path)? {
            // A cleaned copy would become the path's own list.
            println!("Access list for {} is another directory's: clean that one.", path.display());
            return Ok(());
        }
        let Some(list) = change(path, |seen| clean(path, seen))? else {
            println!("Access list for {} is fine.", path.display());
            return Ok(());
        };
        println!("Access list for {} is now", path.display());
        print(path, &list);
        Ok(())
    })
}

pub(super) fn own_rights(paths: Paths, json: bool) -> Result<ExitCode, Failure> {
    paths.each(|path| {
        let what = || format!("asking for your rights to {}", path.display());
        let rights = tree::get(path, "system.rialto.rights")
            .map_err(|error| refused(path, what(), error))?;
        show::answer(
            json,
            &json!({ "path": path, "rights": rights }),
            format_args!("Callers access to {} is {rights}", path.display()),
        );
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_shown_commands_stay_words() {
        for (text, shown) in [
            ("/afs/x.org/joe:friends", "/afs/x.org/joe:friends"),
            ("a b", "'a b'"),
            ("$(reboot)", "'$(reboot)'"),
            ("it's", "'it'\\''s'"),
            ("-clear", "'./-clear'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(text), shown);
        }
    }
}
