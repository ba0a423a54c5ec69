//! Who may do what: `fs listacl`, `setacl`, `copyacl`, `cleanacl` and `getcalleraccess`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use guard::{Acl, Entry, Rights};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::Paths;
use super::principals::{is_there, name_of, number_of};
use super::tree;
use crate::failure::Failure;
use crate::show;

const ATTRIBUTE: &str = "rialto.acl";

const LISTACL_HELP: &str = "\
EXAMPLES
    rialto fs listacl ~/tree/alice
    rialto fs la ~/tree/* --json

A file has the list of its directory. A directory whose own list was taken away has that of
the directory above.";

const SETACL_HELP: &str = "\
EXAMPLES
    rialto fs setacl ~/tree/alice bob read
    rialto fs sa -dir ~/tree/alice ~/tree/alice/letters -acl bob rl alice:friends write
    rialto fs sa ~/tree/alice bob none                     bob's entry is taken out
    rialto fs sa ~/tree/alice -clear -acl alice all        nobody else has anything
    rialto fs sa ~/tree/alice eve rl -negative             what eve is denied, whoever gives it

RIGHTS are letters: r read files, l list, i make entries, d remove them, w write files, k lock
them, a change this list; A to H are yours. Or a word: read (rl), write (rlidwk), all (rlidwka),
none. In volumes where mode bits decide there are no lists: 'rialto vos setfields -model acl'.";

const COPYACL_HELP: &str = "\
EXAMPLES
    rialto fs copyacl ~/tree/alice ~/tree/alice/letters
    rialto fs ca -fromdir ~/tree/alice -todir ~/tree/bob ~/tree/carol -clear

Entries of the lists that are copied to stay where the copied one has none for the same
principal, unless -clear is given.";

const CLEANACL_HELP: &str = "\
EXAMPLES
    rialto fs cleanacl ~/tree/alice

Takes entries out whose principals are there no longer.";

const GETCALLERACCESS_HELP: &str = "\
EXAMPLES
    rialto fs getcalleraccess ~/tree/alice";

/// Shows access lists.
#[derive(Args, Debug)]
#[command(after_help = LISTACL_HELP, visible_aliases = ["la", "listal"])]
pub struct Listacl {
    #[command(flatten)]
    paths: Paths,
    /// The list that new directories begin with: they copy that of the directory that they are made in.
    #[arg(long)]
    id: bool,
    /// The list that new files begin with: they have none of their own.
    #[arg(long = "if")]
    files: bool,
}

/// Changes access lists.
#[derive(Args, Debug)]
#[command(after_help = SETACL_HELP, visible_alias = "sa")]
pub struct Setacl {
    /// The directories.
    #[arg(long = "dir", value_name = "DIR", num_args = 1..)]
    dirs: Vec<PathBuf>,
    /// Names with what they get.
    #[arg(long = "acl", value_name = "NAME RIGHTS", num_args = 2..)]
    acl: Vec<String>,
    /// Everything else is taken out first.
    #[arg(long)]
    clear: bool,
    /// What is denied, instead of what is given.
    #[arg(long)]
    negative: bool,
    /// The list that new directories begin with: they copy that of the directory that they are made in.
    #[arg(long)]
    id: bool,
    /// The list that new files begin with: they have none of their own.
    #[arg(long = "if")]
    files: bool,
    /// DIR, then NAME RIGHTS, without the options.
    #[arg(value_name = "DIR NAME RIGHTS")]
    words: Vec<String>,
}

/// Copies an access list to other directories.
#[derive(Args, Debug)]
#[command(after_help = COPYACL_HELP, visible_alias = "ca")]
pub struct Copyacl {
    /// Where it is copied from.
    #[arg(long = "fromdir", value_name = "DIR")]
    from: Option<PathBuf>,
    /// Where it is copied to.
    #[arg(long = "todir", value_name = "DIR", num_args = 1..)]
    to: Vec<PathBuf>,
    /// What those had goes.
    #[arg(long)]
    clear: bool,
    /// The directories, without the options: from where, then to where.
    #[arg(value_name = "DIR")]
    words: Vec<PathBuf>,
}

/// Takes entries of principals that are gone out of access lists.
#[derive(Args, Debug)]
#[command(after_help = CLEANACL_HELP)]
pub struct Cleanacl {
    #[command(flatten)]
    paths: Paths,
}

/// Shows what you may do.
#[derive(Args, Debug)]
#[command(after_help = GETCALLERACCESS_HELP, visible_alias = "gca")]
pub struct Getcalleraccess {
    #[command(flatten)]
    paths: Paths,
}

/// What is said of a volume that has no lists, or of a list that one may not see or change.
fn refused(path: &Path, what: String, error: Errno) -> Failure {
    match error {
        Errno::OPNOTSUPP if tree::get(path, "rialto.fid").is_ok() => {
            Failure::new(what, "mode bits decide in this volume, and not access lists")
                .mend("'rialto vos setfields VOLUME -model acl' changes that")
        }
        Errno::ACCESS => Failure::new(what, std::io::Error::from(error)).mend(
            "who lists the directory (l) may see its list, and who administers it (a) may change it: 'rialto fs getcalleraccess' says what you may do",
        ),
        Errno::NOTDIR => Failure::new(what, "a file has the list of its directory").mend("name the directory"),
        _ => tree::refusal(path, what, error),
    }
}

fn read(path: &Path) -> Result<Acl, Failure> {
    let what = || format!("reading the access list of {}", path.display());
    let text = tree::get(path, ATTRIBUTE).map_err(|error| refused(path, what(), error))?;
    Acl::parse(&text).map_err(|error| Failure::new(what(), error))
}

fn write(path: &Path, list: &Acl) -> Result<(), Failure> {
    let what = || format!("changing the access list of {}", path.display());
    tree::set(path, ATTRIBUTE, &list.to_string()).map_err(|error| refused(path, what(), error))
}

/// New files and directories have no lists of their own to begin with.
fn no_initial(id: bool, files: bool) -> Result<(), Failure> {
    if !id && !files {
        return Ok(());
    }
    let why = "there are no initial lists: a new directory copies that of its directory, and files have none";
    Err(Failure::new("looking for an initial access list", why).mend("leave -id and -if out"))
}

fn shown(path: &Path, entries: &[Entry]) -> Vec<(String, Rights)> {
    entries.iter().map(|entry| (name_of(path, entry.who), entry.rights)).collect()
}

/// As OpenAFS does.
fn print(path: &Path, list: &Acl) {
    for (title, entries) in [("Normal", list.positive()), ("Negative", list.negative())] {
        if !entries.is_empty() {
            println!("{title} rights:");
        }
        shown(path, entries).iter().for_each(|(name, rights)| println!("  {name} {rights}"));
    }
}

impl Listacl {
    pub fn run(self, json: bool) -> Result<ExitCode, Failure> {
        no_initial(self.id, self.files)?;
        let mut first = true;
        self.paths.each(|path| {
            let list = read(path)?;
            if json {
                let (normal, negative) = (shown(path, list.positive()), shown(path, list.negative()));
                let value = |entries: &[(String, Rights)]| -> Value {
                    entries.iter().map(|(name, rights)| json!({ "name": name, "rights": rights.to_string() })).collect()
                };
                show::json(&json!({ "path": path, "normal": value(&normal), "negative": value(&negative) }));
                return Ok(());
            }
            if !std::mem::take(&mut first) {
                println!();
            }
            println!("Access list for {} is", path.display());
            print(path, &list);
            Ok(())
        })
    }
}

impl Setacl {
    pub fn run(self) -> Result<ExitCode, Failure> {
        no_initial(self.id, self.files)?;
        let mut words = self.words;
        let mut dirs = self.dirs;
        if dirs.is_empty() && !words.is_empty() {
            dirs.push(PathBuf::from(words.remove(0)));
        }
        let mut pairs = self.acl;
        pairs.extend(words);
        if dirs.is_empty() || pairs.is_empty() && !self.clear || pairs.len() % 2 == 1 {
            return Err(Failure::new("reading the access list", "it is a directory, then names, each with its rights")
                .mend("'rialto fs setacl --help' has examples"));
        }
        let place = dirs.first().cloned().unwrap_or_default();
        let mut entries = Vec::new();
        for pair in pairs.chunks_exact(2) {
            let rights: Rights =
                pair[1].parse().map_err(|error| Failure::new(format!("reading the rights of {}", pair[0]), error))?;
            entries.push((number_of(&place, &pair[0])?, rights));
        }
        Paths { path: dirs, words: Vec::new() }.each(|path| {
            let mut list = if self.clear { Acl::new() } else { read(path)? };
            for (who, rights) in &entries {
                if !list.set(*who, *rights, self.negative) {
                    return Err(Failure::new(
                        format!("changing the access list of {}", path.display()),
                        "it has no room for one more",
                    )
                    .mend("put some of those in it into a group"));
                }
            }
            write(path, &list)
        })
    }
}

impl Copyacl {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let mut words = self.words;
        let from = match self.from {
            Some(from) => from,
            None if words.is_empty() => {
                return Err(Failure::new("copying an access list", "from where is not said")
                    .mend("'rialto fs copyacl --help' has examples"));
            }
            None => words.remove(0),
        };
        let to: Vec<PathBuf> = self.to.into_iter().chain(words).collect();
        if to.is_empty() {
            return Err(Failure::new("copying an access list", "to where is not said")
                .mend("'rialto fs copyacl --help' has examples"));
        }
        let copied = read(&from)?;
        Paths { path: to, words: Vec::new() }.each(|path| {
            let mut list = if self.clear { Acl::new() } else { read(path)? };
            let parts = [(copied.positive(), false), (copied.negative(), true)];
            let all = parts.into_iter().flat_map(|(entries, negative)| entries.iter().map(move |one| (one, negative)));
            for (entry, negative) in all {
                if !list.set(entry.who, entry.rights, negative) {
                    return Err(Failure::new(
                        format!("changing the access list of {}", path.display()),
                        "both lists together are too long",
                    ));
                }
            }
            write(path, &list)
        })
    }
}

impl Cleanacl {
    pub fn run(self) -> Result<ExitCode, Failure> {
        self.paths.each(|path| {
            let mut list = read(path)?;
            let all = list.positive().iter().chain(list.negative()).map(|entry| entry.who);
            let mut gone = std::collections::BTreeSet::new();
            for who in all {
                if !is_there(path, who)? {
                    gone.insert(who);
                }
            }
            if gone.is_empty() {
                println!("Access list for {} is fine.", path.display());
                return Ok(());
            }
            list.retain(|who| !gone.contains(&who));
            write(path, &list)?;
            println!("Access list for {} is now", path.display());
            print(path, &list);
            Ok(())
        })
    }
}

impl Getcalleraccess {
    pub fn run(self, json: bool) -> Result<ExitCode, Failure> {
        self.paths.each(|path| {
            let what = || format!("asking for your rights to {}", path.display());
            let rights = tree::get(path, "rialto.rights").map_err(|error| refused(path, what(), error))?;
            if json {
                show::json(&json!({ "path": path, "rights": rights }));
            } else {
                println!("Callers access to {} is {rights}", path.display());
            }
            Ok(())
        })
    }
}
