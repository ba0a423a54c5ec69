//! The access model of a volume: mode bits, or access lists (`docs/spec/access.md`).

use std::collections::BTreeMap;

use clap::ValueEnum;
use guard::{Acl, Rights};
use local::failure::Failure;
use serde_json::json;
use types::{Answer, Call, Cookie, Fault, Fid, Kind, PrincipalId, PtsCall, ServerId, Status};

use super::context::{LocatedVolume, VosContext, text};
use crate::commands::fs::principals;

/// The source of rights in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AccessModel {
    /// Mode bits, owners and groups.
    Posix,
    /// Access lists of directories.
    Acl,
}

impl AccessModel {
    /// That of the volume whose root has this status.
    pub fn of(root: &Status) -> AccessModel {
        if root.by_list { AccessModel::Acl } else { AccessModel::Posix }
    }

    /// As typed.
    pub fn word(self) -> &'static str {
        match self {
            AccessModel::Posix => "posix",
            AccessModel::Acl => "acl",
        }
    }

    /// The model for people.
    pub fn for_people(self) -> &'static str {
        match self {
            AccessModel::Posix => "mode bits",
            AccessModel::Acl => "access lists",
        }
    }
}

/// Limit of the bytes of a listing.
const LISTING_BYTES: u32 = 1 << 20;
const OTHERS: u16 = 0o077;

fn status(
    context: &VosContext,
    what: &str,
    volume: &LocatedVolume,
    fid: Fid,
) -> Result<Status, Failure> {
    match context.ask_files(what, volume.server, Call::GetStatus { fid })? {
        Answer::Status(status) => Ok(status),
        _ => Err(Failure::new(what, "the server answered something else")),
    }
}

/// The status of the volume's root, which shows the options of the volume.
pub(crate) fn root_status(context: &VosContext, volume: &LocatedVolume) -> Result<Status, Failure> {
    status(context, "reading the volume", volume, Fid::root(volume.id))
}

/// Whether clients of AFS are refused; `None`: a server of an older version does not tell.
pub(crate) fn refuses_afs(context: &VosContext, volume: &LocatedVolume) -> Option<bool> {
    let (fid, name) = (Fid::root(volume.id), types::REFUSES_AFS.into());
    let call = Call::XattrGet { fid, name };
    match context.reach.send(volume.server, call) {
        Ok(Answer::Xattr(_)) => Some(true),
        Err(error) if error.fault() == Some(Fault::NoXattr) => Some(false),
        _ => None,
    }
}

/// Returns the present model.
pub(crate) fn of(context: &VosContext, volume: &LocatedVolume) -> Result<AccessModel, Failure> {
    root_status(context, volume).map(|root| AccessModel::of(&root))
}

/// Sets the model; with `--dry-run` reports the files whose access would change.
pub(crate) fn set_model(
    context: &VosContext,
    volume: &LocatedVolume,
    model: AccessModel,
    given: &[String],
) -> Result<(), Failure> {
    let what = format!("changing the access model of {}", text(&volume.name));
    let list = first_list(context, volume.server, Some(model), given)?;
    if of(context, volume)? == model {
        if !given.is_empty() {
            return Err(Failure::new(what, "access lists decide already, and the root has one")
                .mend("'rialto fs setacl DIR NAME RIGHTS' changes it"));
        }
        println!("In {} {} decide already.", text(&volume.name), model.for_people());
        return Ok(());
    }
    if context.dry_run {
        return report_owners(context, &what, volume, model, &list);
    }
    decide_by(context, &what, volume, (model == AccessModel::Acl).then_some(&list[..]))?;
    if context.json {
        local::show::json(
            &json!({ "id": volume.id.0, "name": text(&volume.name), "access": model.word() }),
        );
    }
    Ok(())
}

/// Sets or removes the root's list, which selects the model.
pub(crate) fn decide_by(
    context: &VosContext,
    what: &str,
    volume: &LocatedVolume,
    list: Option<&[First]>,
) -> Result<(), Failure> {
    let list = list.map(|list| {
        let mut all = Acl::new();
        let fits = list.iter().all(|entry| all.set(entry.who, entry.rights, false));
        debug_assert!(fits, "the command line is shorter than a limit");
        all.encode().into()
    });
    context
        .ask_files(
            what,
            volume.server,
            Call::SetAcl { fid: Fid::root(volume.id), list, instead_of: None },
        )
        .map(drop)
}

/// An entry of the root's first list.
pub struct First {
    name: String,
    who: PrincipalId,
    rights: Rights,
}

/// Returns a list of administrators with all rights, and the entries NAME RIGHTS.
///
/// # Errors
/// Entries without access lists; invalid names and rights; the server's refusal.
pub fn first_list(
    context: &VosContext,
    server: ServerId,
    model: Option<AccessModel>,
    given: &[String],
) -> Result<Vec<First>, Failure> {
    let what = "reading the first access list";
    if model != Some(AccessModel::Acl) && !given.is_empty() {
        return Err(Failure::new(what, "a volume with mode bits has none")
            .mend("leave -acl out, or say -model acl"));
    }
    let odd = || {
        Failure::new(what, "it is names, each with its rights")
            .mend("'rialto vos setfields --help' has examples")
    };
    let administrators = "system:administrators".to_owned();
    let mut list =
        vec![First { name: administrators, who: PrincipalId::ADMINISTRATORS, rights: Rights::ALL }];
    for pair in given.chunks(2) {
        let [name, rights] = pair else { return Err(odd()) };
        let rights: Rights = rights
            .parse()
            .map_err(|error| Failure::new(format!("reading the rights of {name}"), error))?;
        let who = number_of(context, server, name)?;
        list.retain(|entry| entry.who != who);
        if rights != Rights::NONE {
            list.push(First { name: name.clone(), who, rights });
        }
    }
    Ok(list)
}

fn number_of(context: &VosContext, server: ServerId, name: &str) -> Result<PrincipalId, Failure> {
    if let Some(number) =
        principals::fixed_number(name).or_else(|| name.parse().ok().map(PrincipalId))
    {
        return Ok(number);
    }
    let what = format!("looking for {name}");
    let numbers = PtsCall::Numbers { names: vec![name.to_owned()] };
    let call = Call::Pts { on_behalf: None, call: Box::new(numbers) };
    let found = match context.ask_files(&what, server, call)? {
        Answer::Names { names, .. } => {
            names.first().map(|(id, _)| *id).filter(|id| *id != PrincipalId::NONE)
        }
        _ => return Err(Failure::new(what, "the server answered something else")),
    };
    found.ok_or_else(|| principals::no_such_principal(name))
}

/// Reports files and directories by owner: all, and those that groups or others may use by their
/// mode bits.
fn report_owners(
    context: &VosContext,
    what: &str,
    volume: &LocatedVolume,
    model: AccessModel,
    list: &[First],
) -> Result<(), Failure> {
    let mut owners: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut dirs = vec![Fid::root(volume.id)];
    while let Some(dir) = dirs.pop() {
        let (mut cookie, mut more) = (Cookie::START, true);
        while more {
            let call = Call::ReadDir { dir, cookie, bytes_max: LISTING_BYTES, plus: true };
            let Answer::Entries { entries, end, .. } =
                context.ask_files(what, volume.server, call)?
            else {
                return Err(Failure::new(what, "the server answered something else"));
            };
            for entry in entries {
                cookie = entry.cookie;
                // An entry under a client's delegation has no status.
                let status =
                    entry.status.map_or_else(|| status(context, what, volume, entry.fid), Ok)?;
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
    if context.json {
        let owners = owners
            .iter()
            .map(|(uid, (all, open))| json!({ "uid": uid, "files": all, "open_by_mode": open }));
        let list = list
            .iter()
            .map(|entry| json!({ "name": entry.name, "rights": entry.rights.to_string() }));
        let list = (model == AccessModel::Acl).then(|| list.collect::<Vec<_>>());
        local::show::json(&json!({
            "id": volume.id.0, "access": model.word(), "owners": owners.collect::<Vec<_>>(),
            "list": list,
        }));
        return Ok(());
    }
    println!("In {} {} would decide.", text(&volume.name), model.for_people());
    for (uid, (all, open)) in owners {
        println!(
            "    uid {uid}: {all} files and directories, {open} of which mode bits open to groups \
                or others"
        );
    }
    match model {
        AccessModel::Acl => {
            println!("All but what has a list from an earlier time would have this one:");
            list.iter().for_each(|entry| println!("    {} {}", entry.name, entry.rights));
            if list.iter().all(|entry| entry.who == PrincipalId::ADMINISTRATORS) {
                println!(
                    "Only administrators would have access until the root's list gives others some."
                );
            } else {
                println!("Callers that are not in it would have no access, owners of files too.");
            }
            println!("Owners of directories may always list them, and change their lists.");
        }
        AccessModel::Posix => {
            println!("Those that mode bits open would be open again, without regard to lists.");
        }
    }
    Ok(())
}
