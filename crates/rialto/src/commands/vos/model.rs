//! What decides in a volume who may do what: mode bits, or access lists (`docs/access.md`).

use std::collections::BTreeMap;

use clap::ValueEnum;
use guard::{Acl, Rights};
use serde_json::json;
use types::{Answer, Call, Fid, Kind, PrincipalId, Status};

use super::office::{Office, There, text};
use crate::failure::Failure;

/// What decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// Mode bits, owners and groups.
    Posix,
    /// Access lists of directories.
    Acl,
}

impl Model {
    /// As typed.
    pub fn word(self) -> &'static str {
        match self {
            Model::Posix => "posix",
            Model::Acl => "acl",
        }
    }

    /// For people.
    pub fn told(self) -> &'static str {
        match self {
            Model::Posix => "mode bits",
            Model::Acl => "access lists",
        }
    }
}

/// What a listing takes at most.
const LISTING_BYTES: u32 = 1 << 20;
const OTHERS: u16 = 0o077;

fn status(office: &Office, what: &str, volume: &There, fid: Fid) -> Result<Status, Failure> {
    match office.ask_files(what, volume.server, Call::GetStatus { fid })? {
        Answer::Status(status) => Ok(status),
        _ => Err(Failure::new(what, "the server answered something else")),
    }
}

/// What decides now.
///
/// # Errors
/// The server's refusal.
pub fn of(office: &Office, volume: &There) -> Result<Model, Failure> {
    let status = status(office, "looking at the volume", volume, Fid::root(volume.id))?;
    Ok(if status.by_list { Model::Acl } else { Model::Posix })
}

/// Makes `model` decide; with `--dry-run` says for whose files that would be another.
///
/// # Errors
/// The server's refusal.
pub fn set_model(office: &Office, volume: &There, model: Model) -> Result<(), Failure> {
    let what = format!("changing what decides in {}", text(&volume.name));
    if of(office, volume)? == model {
        println!("In {} {} decide already.", text(&volume.name), model.told());
        return Ok(());
    }
    if office.common.dry_run {
        return tell(office, &what, volume, model);
    }
    let list = (model == Model::Acl).then(|| {
        let mut list = Acl::new();
        let fits = list.set(PrincipalId::ADMINISTRATORS, Rights::ALL, false);
        debug_assert!(fits, "one entry");
        list.encode().into()
    });
    office.ask_files(&what, volume.server, Call::SetAcl { fid: Fid::root(volume.id), list, instead_of: None })?;
    if office.common.json {
        crate::show::json(&json!({ "id": volume.id.0, "name": text(&volume.name), "access": model.word() }));
    }
    Ok(())
}

/// Files and directories by owner: all, and those that groups or others may use by their mode bits.
fn tell(office: &Office, what: &str, volume: &There, model: Model) -> Result<(), Failure> {
    let mut owners: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut dirs = vec![Fid::root(volume.id)];
    while let Some(dir) = dirs.pop() {
        let (mut cookie, mut more) = (0, true);
        while more {
            let call = Call::ReadDir { dir, cookie, bytes_max: LISTING_BYTES, plus: true };
            let Answer::Entries { entries, end, .. } = office.ask_files(what, volume.server, call)? else {
                return Err(Failure::new(what, "the server answered something else"));
            };
            for entry in entries {
                cookie = entry.cookie;
                // One that a client has to itself comes without a status.
                let status = entry.status.map_or_else(|| status(office, what, volume, entry.fid), Ok)?;
                if status.kind == Kind::Directory {
                    dirs.push(status.fid);
                }
                let (all, open) = owners.entry(status.uid).or_default();
                *all += 1;
                *open += u64::from(!status.kind.has_target() && status.mode & OTHERS != 0);
            }
            more = !end;
        }
    }
    if office.common.json {
        let owners = owners.iter().map(|(uid, (all, open))| json!({ "uid": uid, "files": all, "open_by_mode": open }));
        crate::show::json(&json!({ "id": volume.id.0, "access": model.word(), "owners": owners.collect::<Vec<_>>() }));
        return Ok(());
    }
    println!("In {} {} would decide.", text(&volume.name), model.told());
    for (uid, (all, open)) in owners {
        println!("    uid {uid}: {all} files and directories, {open} of which mode bits open to groups or others");
    }
    match model {
        Model::Acl => println!("Nobody but administrators would get at them before the root's list says so."),
        Model::Posix => println!("Those that mode bits open would be open again, whatever lists say."),
    }
    Ok(())
}
