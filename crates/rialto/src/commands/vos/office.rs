//! Where verbs do their work: a session with the cell's server, and what was typed turned into its volumes and partitions.

use client::{CallError, Endpoint};
use types::{Answer, Fault, Name, PartitionInfo, PartitionNo, VolumeCall, VolumeId, VolumeInfo, WhichVolume};

use super::Common;
use crate::ask::Asking;
use crate::cell::{CellDir, Where};
use crate::failure::Failure;

/// Volumes that one question asks for: about what fits into an answer.
const LISTED_AT_ONCE: u32 = 2000;

/// See the head of the file.
pub struct Office {
    pub common: Common,
    cell: CellDir,
    asking: Asking,
    partitions: Vec<PartitionInfo>,
}

/// Which server and partition, as typed.
#[derive(clap::Args, Debug, Default)]
pub struct Site {
    /// The server: this machine's name; may be left out.
    #[arg(long, value_name = "MACHINE")]
    pub server: Option<String>,
    /// The partition, such as /vicepa or a; may be left out.
    #[arg(long, value_name = "PARTITION")]
    pub partition: Option<String>,
}

impl Office {
    pub fn open(common: Common) -> Result<Office, Failure> {
        let cell = Where { dir: common.dir.clone() }.cell()?;
        if let Some(name) = common.cell.as_ref().filter(|name| **name != cell.config.name) {
            let why = format!("{} holds the cell {}", cell.dir().display(), cell.config.name);
            return Err(Failure::new(format!("finding the cell {name}"), why).mend("name its directory with --dir"));
        }
        let asking = Asking::connect(Endpoint::Unix(cell.socket()))?;
        let mut office = Office { common, cell, asking, partitions: Vec::new() };
        office.partitions = match office.ask("asking for partitions", VolumeCall::Partitions)? {
            Answer::Partitions(partitions) => partitions,
            _ => return Err(office.asking.odd()),
        };
        Ok(office)
    }

    /// What the cell's server is called.
    pub fn server(&self) -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    pub fn partitions(&self) -> &[PartitionInfo] {
        &self.partitions
    }

    /// What a partition is called.
    pub fn name_of(&self, no: PartitionNo) -> &str {
        self.partitions.iter().find(|partition| partition.no == no).map_or("?", |partition| partition.name.as_str())
    }

    /// Something that is done, or only said with `--dry-run`.
    ///
    /// # Errors
    /// The server's refusal, with what to do about it.
    pub fn change(&self, what: &str, call: VolumeCall) -> Result<Option<Answer>, Failure> {
        if self.common.dry_run {
            eprintln!("would be done: {what}");
            return Ok(None);
        }
        self.ask(what, call).map(Some)
    }

    /// As [`Office::change`], of calls that answer with a volume.
    pub fn change_one(&self, what: &str, call: VolumeCall) -> Result<Option<VolumeInfo>, Failure> {
        match self.change(what, call)? {
            None => Ok(None),
            Some(Answer::Volumes { volumes, .. }) if !volumes.is_empty() => Ok(volumes.into_iter().next()),
            Some(_) => Err(self.asking.odd()),
        }
    }

    fn ask(&self, what: &str, call: VolumeCall) -> Result<Answer, Failure> {
        self.asking.administer(call).map_err(|error| refusal(what, &error))
    }

    /// The server and partition that were typed.
    ///
    /// # Errors
    /// If this cell has none such.
    pub fn site(&self, site: &Site) -> Result<Option<PartitionNo>, Failure> {
        if let Some(server) = &site.server {
            let ours = self.server();
            let short = ours.split('.').next().unwrap_or_default();
            let names = [&ours, short, "localhost", "127.0.0.1", "::1", &self.cell.config.name];
            if !names.contains(&server.as_str()) {
                let why = format!("the cell {} has one server, {ours}", self.cell.config.name);
                return Err(Failure::new(format!("finding the server {server}"), why).mend("name that, or none"));
            }
        }
        site.partition.as_ref().map(|name| self.partition(name)).transpose()
    }

    /// A partition as people write it: `/vicepa`, `vicepa`, `a`, or its number from 0 on.
    fn partition(&self, text: &str) -> Result<PartitionNo, Failure> {
        let names = [text.to_owned(), format!("/{text}"), format!("/vicep{text}")];
        let found = self.partitions.iter().find(|one| names.contains(&one.name) || one.no.0.to_string() == text);
        found.map(|one| one.no).ok_or_else(|| {
            let all: Vec<_> = self.partitions.iter().map(|one| one.name.as_str()).collect();
            let why = format!("the server has {}", all.join(", "));
            Failure::new(format!("finding the partition {text}"), why).mend("name one of these, or add it to cell.toml")
        })
    }

    /// A volume by name or number, and behind it the others of its group.
    ///
    /// # Errors
    /// If there is none, or not at this site.
    pub fn group(&self, text: &str, site: &Site) -> Result<Vec<VolumeInfo>, Failure> {
        let on = self.site(site)?;
        let what = format!("finding the volume {text}");
        let volume = which(text)?;
        let Answer::Volumes { volumes, .. } = self.ask(&what, VolumeCall::Examine { volume })? else {
            return Err(self.asking.odd());
        };
        match (volumes.first(), on) {
            (None, _) => Err(self.asking.odd()),
            (Some(found), Some(on)) if found.partition != on => {
                let why = format!("it is on {}, not on {}", self.name_of(found.partition), self.name_of(on));
                Err(Failure::new(what, why).mend("leave the partition out, or name that one"))
            }
            (Some(_), _) => Ok(volumes),
        }
    }

    /// A volume by name or number.
    pub fn volume(&self, text: &str, site: &Site) -> Result<VolumeInfo, Failure> {
        Ok(self.group(text, site)?.swap_remove(0))
    }

    /// The volumes of a partition, by number, some at a time.
    pub fn each(
        &self,
        partition: PartitionNo,
        visit: &mut dyn FnMut(Vec<VolumeInfo>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut after = VolumeId(0);
        loop {
            let call = VolumeCall::List { partition, after, max: LISTED_AT_ONCE };
            let Answer::Volumes { volumes, end } = self.ask("listing volumes", call)? else {
                return Err(self.asking.odd());
            };
            let Some(last) = volumes.last() else { return Ok(()) };
            after = last.id;
            visit(volumes)?;
            if end {
                return Ok(());
            }
        }
    }

    /// All volumes, of one partition or of all.
    pub fn all(&self, on: Option<PartitionNo>) -> Result<Vec<VolumeInfo>, Failure> {
        let mut all = Vec::new();
        for partition in self.partitions.iter().filter(|one| on.is_none_or(|on| on == one.no)) {
            self.each(partition.no, &mut |volumes| {
                all.extend(volumes);
                Ok(())
            })?;
        }
        Ok(all)
    }
}

/// A volume as typed: a number or a name.
fn which(text: &str) -> Result<WhichVolume, Failure> {
    match text.parse() {
        Ok(0) | Err(_) => name(text).map(WhichVolume::Name),
        Ok(number) => Ok(WhichVolume::Id(VolumeId(number))),
    }
}

/// A name that could be a volume's.
pub fn name(text: &str) -> Result<Name, Failure> {
    let good = text.bytes().all(|byte| byte.is_ascii_graphic());
    Name::new(text.as_bytes()).ok().filter(|_| good).ok_or_else(|| {
        Failure::new(format!("the name {text:?}"), "no volume can be called so")
            .mend("use letters, digits, dots, hyphens and underscores")
    })
}

/// The name as text; the server takes no other.
pub fn text(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

fn refusal(what: &str, error: &CallError) -> Failure {
    let failure = Failure::new(what, error);
    match error.fault() {
        Some(Fault::NoVolume) => failure.mend("'rialto vos listvol' shows which there are"),
        Some(Fault::Exists) => Failure::new(what, "a volume of this cell has that name").mend("choose another name"),
        Some(Fault::ReadOnly) => failure.mend("name the read-write volume of its group"),
        Some(Fault::Offline) => failure.mend("'rialto vos online' brings it back"),
        Some(Fault::NoSpace) => failure.mend("remove something from that partition, or name another"),
        Some(Fault::Busy) => failure.mend("somebody has files of it open for writing, or is at work on it: try again"),
        Some(Fault::NotPermitted) => failure.mend("only the server's user and root may: run it as one of them"),
        Some(Fault::Invalid) => Failure::new(what, "the server does not take these arguments")
            .mend("names have letters, digits, dots, hyphens and underscores, and end in .backup or .readonly only where they must"),
        _ => failure.mend("'rialto status' and 'rialto doctor' look for causes"),
    }
}
