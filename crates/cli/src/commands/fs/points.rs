//! Mount points: `fs mkmount`, `rmmount`, `lsmount` and `mvmount`. None of them changes the volumes
//! that mount points name.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use local::failure::Failure;
use rustix::io::Errno;
use serde_json::json;
use types::MountPoint;

use super::Paths;
use super::tree::{self, refusal, split};

const MKMOUNT_USAGE: &str = "\
rialto fs mkmount [OPTIONS] PATH VOLUME [CELL]
       rialto fs mkmount [OPTIONS] --dir PATH --vol VOLUME [--cell CELL]";

const MKMOUNT_HELP: &str = "\
EXAMPLES
    rialto fs mkmount ~/tree/alice home.alice
    rialto fs mkmount -dir ~/tree/alice -vol home.alice -rw
    rialto fs mkmount ~/tree/there root.cell -cell example.org

Below read-only volumes the mount point shows the volume's released copy, if there is one;
with -rw always the volume of this very name. The right to make a directory there is the
right to make a mount point.";

pub(super) const RMMOUNT_HELP: &str = "\
EXAMPLES
    rialto fs rmmount ~/tree/alice
    rialto fs rmmount -dir ~/tree/alice ~/tree/bob

The volume and its content stay. Neither rm nor rmdir removes a mount point.";

pub(super) const LSMOUNT_HELP: &str = "\
EXAMPLES
    rialto fs lsmount ~/tree/alice
    rialto fs lsmount -dir ~/tree/* --json";

const MVMOUNT_HELP: &str = "\
EXAMPLES
    rialto fs mvmount ~/tree/alice ~/tree/people/alice

Both must lie in the same volume. The volume that it names is unchanged; mv does not
move mount points.";

/// Makes a mount point.
#[derive(Args, Debug)]
#[command(after_help = MKMOUNT_HELP, override_usage = MKMOUNT_USAGE)]
pub struct Mkmount {
    /// The new path in a mounted tree; it must not exist. (The cell's directory is not needed.)
    #[arg(long = "dir", value_name = "PATH")]
    dir: Option<PathBuf>,
    /// The volume that is shown there.
    #[arg(long = "vol", alias = "volume", value_name = "VOLUME")]
    vol: Option<String>,
    /// The cell that has it, if it is another one.
    #[arg(long, value_name = "CELL")]
    cell: Option<String>,
    /// Show the read-write volume, below read-only ones too.
    #[arg(long)]
    rw: bool,
    /// Do not check that the volume exists.
    #[arg(long)]
    fast: bool,
    /// PATH VOLUME [CELL], instead of the options.
    #[arg(value_name = "PATH", num_args = 0..=3)]
    words: Vec<String>,
}

/// Moves a mount point.
#[derive(Args, Debug)]
#[command(after_help = MVMOUNT_HELP)]
pub struct Mvmount {
    /// The mount point.
    from: PathBuf,
    /// The new path; it must not exist.
    to: PathBuf,
}

/// The mount points of a verb.
#[derive(Args, Debug)]
pub struct Points {
    /// Mount points.
    #[arg(long = "dir", value_name = "PATH", num_args = 1.., conflicts_with = "words")]
    dir: Vec<PathBuf>,
    /// The same, without the option.
    #[arg(value_name = "PATH", required_unless_present = "dir")]
    words: Vec<PathBuf>,
}

impl Points {
    fn each(self, one: impl FnMut(&Path) -> Result<(), Failure>) -> Result<ExitCode, Failure> {
        Paths { path: self.dir, words: self.words }.each(one)
    }
}

fn attribute(name: &str) -> String {
    format!("rialto.mount:{name}")
}

/// Phrases the refusal of an action on the mount point `name` in `dir`.
fn refused(dir: &Path, name: &str, what: String, error: Errno) -> Failure {
    match error {
        Errno::NODATA if tree::get(dir, "rialto.fid").is_ok() => {
            let path = dir.join(name);
            let why = match path.symlink_metadata() {
                Err(_) => "there is nothing with that name",
                Ok(_) => "it is no mount point",
            };
            Failure::new(what, why).mend("'rialto fs lsmount' shows a mount point itself")
        }
        Errno::EXIST => Failure::new(what, "the name exists already").mend("choose another name"),
        Errno::XDEV => Failure::new(what, "the two places lie in different volumes")
            .mend("remove it with 'rialto fs rmmount', and make it anew with 'rialto fs mkmount'"),
        _ => refusal(dir, what, error),
    }
}

impl Mkmount {
    /// The path, and the content of the mount point.
    fn wanted(&self) -> Result<(PathBuf, MountPoint), Failure> {
        let mut words = self.words.iter();
        let wrong = |why: String| {
            let order =
                "type 'rialto fs mkmount PATH VOLUME', or name them with -dir PATH and -vol VOLUME";
            Failure::new("reading the command", why).mend(order).wrong_usage()
        };
        let path = self
            .dir
            .clone()
            .or_else(|| words.next().map(PathBuf::from))
            .ok_or_else(|| wrong("the path of the new mount point is missing".to_owned()))?;
        let volume = self.vol.as_ref().or_else(|| words.next()).ok_or_else(|| {
            wrong(format!("the volume that {} is to show is missing", path.display()))
        })?;
        if volume.contains('/') {
            // With other commands -dir is the cell's directory.
            let used = self.dir.as_ref().map(|dir| {
                format!(", and -dir {} is the path of the new mount point", dir.display())
            });
            let used = used.unwrap_or_default();
            return Err(wrong(format!("{volume} stands for the volume and is a path{used}")));
        }
        let cell = self.cell.as_ref().or_else(|| words.next());
        if let Some(word) = words.next() {
            return Err(wrong(format!("{word:?} is one argument too many")));
        }
        let mark = if self.rw { '%' } else { '#' };
        let cell = cell.map(|cell| format!("{cell}:")).unwrap_or_default();
        let target = format!("{mark}{cell}{volume}");
        match MountPoint::parse(target.as_bytes()) {
            Ok(point) => Ok((path, point)),
            Err(error) => {
                Err(Failure::new(format!("making the mount point {}", path.display()), error))
            }
        }
    }

    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        let (path, point) = self.wanted()?;
        let (dir, name) = split(&path)?;
        let what = format!("making the mount point {}", path.display());
        if !self.fast && tree::get(&dir, &format!("rialto.find:{point}")) == Err(Errno::NODEV) {
            eprintln!(
                "rialto fs: the mount point names a volume {} that does not exist yet",
                shown(&point)
            );
        }
        tree::set(&dir, &attribute(&name), &point.to_string())
            .map_err(|error| refused(&dir, &name, what, error))?;
        if json {
            local::show::json(&json!({ "path": path, "target": point.to_string() }));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The volume, with its cell.
fn shown(point: &MountPoint) -> String {
    point.to_string().split_off(1)
}

pub(super) fn remove(points: Points, json: bool) -> Result<ExitCode, Failure> {
    points.each(|path| {
        let (dir, name) = split(path)?;
        let what = format!("removing the mount point {}", path.display());
        // The service refuses everything that is not a mount point.
        let answer =
            tree::get(&dir, &attribute(&name)).and_then(|_| tree::remove(&dir, &attribute(&name)));
        answer.map_err(|error| refused(&dir, &name, what, error))?;
        if json {
            local::show::json(&json!({ "path": path }));
        }
        Ok(())
    })
}

pub(super) fn list(points: Points, json: bool) -> Result<ExitCode, Failure> {
    points.each(|path| {
        let (dir, name) = split(path)?;
        let (target, through) = match tree::get(&dir, &attribute(&name)) {
            Ok(target) => (target, false),
            Err(error) => {
                (behind_link(path).ok_or_else(|| refused_look(&dir, &name, path, error))?, true)
            }
        };
        if json {
            local::show::json(&json!({ "path": path, "target": target, "through_link": through }));
        } else if through {
            println!(
                "'{}' is a symbolic link, leading to a mount point for volume '{target}'",
                path.display()
            );
        } else {
            println!("'{}' is a mount point for volume '{target}'", path.display());
        }
        Ok(())
    })
}

fn refused_look(dir: &Path, name: &str, path: &Path, error: Errno) -> Failure {
    refused(dir, name, format!("reading the mount point {}", path.display()), error)
}

/// The content of the mount point that a symbolic link leads to.
fn behind_link(path: &Path) -> Option<String> {
    if !path.symlink_metadata().ok()?.is_symlink() {
        return None;
    }
    let (dir, name) = split(&std::fs::canonicalize(path).ok()?).ok()?;
    tree::get(&dir, &attribute(&name)).ok()
}

impl Mvmount {
    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        let ((from_dir, from), (to_dir, to)) = (split(&self.from)?, split(&self.to)?);
        let what = || format!("moving the mount point {}", self.from.display());
        let there = tree::ask(&to_dir, "rialto.fid", what)?;
        let order = format!("{there}/{to}");
        let answer = tree::get(&from_dir, &attribute(&from))
            .and_then(|_| tree::set(&from_dir, &format!("rialto.move:{from}"), &order));
        answer.map_err(|error| refused(&from_dir, &from, what(), error))?;
        if json {
            local::show::json(&json!({ "path": self.to, "from": self.from }));
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Option<Mkmount> {
        use clap::{CommandFactory, FromArgMatches};
        let words = line.split(' ').filter(|word| !word.is_empty());
        let line = ["rialto", "fs", "mkmount"].into_iter().chain(words);
        let typed = crate::commands::Cli::command().try_get_matches_from(line).ok()?;
        let typed = typed.subcommand_matches("fs")?.subcommand_matches("mkmount")?;
        Mkmount::from_arg_matches(typed).ok()
    }

    fn wanted(line: &str) -> Option<(String, String)> {
        let (path, point) = typed(line)?.wanted().ok()?;
        Some((path.to_str()?.to_owned(), point.to_string()))
    }

    #[test]
    fn the_missing_or_misplaced_part_is_named() {
        for (line, part) in [
            ("--vol v", "the path of the new mount point is missing"),
            ("d", "the volume that d is to show is missing"),
            ("--dir d", "the volume that d is to show is missing"),
            ("v /mnt/d", "/mnt/d stands for the volume and is a path; type"),
            // Other commands have the cell's directory there.
            ("--dir /srv/cell /mnt/d v", "-dir /srv/cell is the path of the new mount point"),
            ("--dir d v c x", "\"x\" is one argument too many"),
        ] {
            let failure = typed(line).expect(line).wanted().expect_err(line);
            let text = failure.to_string();
            assert!(text.contains(part) && text.contains("PATH VOLUME"), "{line}: {text}");
            assert_eq!(failure.exit_code(), ExitCode::from(local::failure::WRONG_USAGE));
        }
    }

    #[test]
    fn words_and_options_say_the_same() {
        let some = |path: &str, target: &str| Some((path.to_owned(), target.to_owned()));
        assert_eq!(wanted("d v"), some("d", "#v"));
        assert_eq!(wanted("--dir d --vol v --rw"), some("d", "%v"));
        assert_eq!(wanted("--vol v d"), some("d", "#v"));
        assert_eq!(wanted("v --dir d"), some("d", "#v"));
        assert_eq!(wanted("d --volume v --cell a.org"), some("d", "#a.org:v"));
        assert_eq!(wanted("d v a.org --rw"), some("d", "%a.org:v"));
        assert_eq!(wanted("--cell a.org d v"), some("d", "#a.org:v"));
        for bad in ["d", "--dir d", "d v c x", "d a/b", "--dir d --vol v --cell c x"] {
            assert_eq!(wanted(bad), None, "{bad}");
        }
    }
}
