//! The values of `@sys` in names: `fs sysname`.

use std::process::ExitCode;

use clap::Args;
use local::failure::Failure;
use local::show;
use rustix::io::Errno;
use serde_json::json;

use super::cache::Place;
use super::tree;

const HELP: &str = "\
EXAMPLES
    rialto fs sysname
    rialto fs sysname -newsys debian12 amd64_linux26 linux

A name in the tree that is @sys, or ends so, means the first of these that exists: a link
to .../@sys/bin leads each kind of machine to its own directory. The list belongs to the
mount, until it is unmounted; only root may set it.";

/// Shows or sets the values of @sys in names.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Sysname {
    /// The new list, the best first.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    newsys: Vec<String>,
    #[command(flatten)]
    place: Place,
}

impl Sysname {
    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        let place = self.place.find()?;
        if !self.newsys.is_empty() {
            self.set(&place)?;
        }
        let list = tree::ask(&place, "rialto.sysname", || "reading the names for @sys".to_owned())?;
        let list: Vec<&str> = list.split(' ').collect();
        match list[..] {
            _ if json => show::json(&json!({ "path": place, "sysnames": list })),
            _ if self.newsys.len() == 1 => println!("fs: new sysname set."),
            _ if !self.newsys.is_empty() => println!("fs: new sysname list set."),
            [only] => println!("Current sysname is '{only}'"),
            _ => println!("Current sysname list is '{}'", list.join("' '")),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn set(&self, place: &std::path::Path) -> Result<(), Failure> {
        let what = || "setting the names for @sys".to_owned();
        let refused = |why: &str| {
            Failure::new(what(), why).mend("give up to 16 file names, at most 230 bytes in all")
        };
        if self.newsys.iter().any(|name| name.contains(' ')) {
            return Err(refused("a name has a space"));
        }
        let answer = tree::get(place, &format!("rialto.do:sysname:{}", self.newsys.join(" ")));
        answer.map(drop).map_err(|error| match error {
            Errno::INVAL | Errno::RANGE => refused("that is no list of names"),
            error => tree::refusal(place, what(), error),
        })
    }
}
