//! Finding files: by the volume's name, by name, by fid, in lists.
//!
//! Each function registers the promises of its answer while it holds the stripe of what it read, or
//! before it reads it (CB-2); and after the check of the caller's right.

use bytes::Bytes;
use lease::Listed;
use store::{StoreError, Vnode};
use types::{Answer, Cookie, DirEntry, Fault, Fid, Kind, Name, VnodeNo, limits};

use crate::access::{self, Right};
use crate::call::{CallContext, CallOutcome};
use crate::files::Files;
use crate::sessions::GivenSlots;
use crate::volumes::ViceVolume;

/// Bytes of an entry in a message, without its name: fid, kind, cookie and lengths. No less than in
/// a kernel's listing, padding included.
const ENTRY_BYTES: usize = 36;
/// Bytes of its status, in a message and in a kernel's listing.
const STATUS_BYTES: usize = 128;
/// Entries that are read from the store in one call.
const ENTRIES_AT_ONCE: usize = 256;
/// Listings leave this many bytes of a message for its other parts.
const LISTING_BYTES_MAX: usize = limits::MESSAGE_BYTES_MAX - (4 << 10);

pub(crate) fn root(
    files: &Files,
    ask: &mut CallContext<'_>,
    name: &Name,
) -> Result<CallOutcome, Fault> {
    let id = files.volumes().partitions().named(name.as_bytes())?.ok_or(Fault::NoVolume)?;
    get_status(files, ask, Fid::root(id))
}

pub(crate) fn get_status(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
) -> Result<CallOutcome, Fault> {
    let (volume, _seen) = files.look_at(ask, fid)?;
    let vnode = volume.vnode(fid)?;
    access::need(ask.asker(), &volume, &vnode, Right::See)?;
    files.promise(ask, &volume, &[fid])?;
    Ok(CallOutcome::Answer(Answer::Status(vnode.status)))
}

/// The file of a number, or the directory that has the directory of a number. The caller gets a fid
/// without a way to the file, so nothing is looked at before it is known to need none (AC-9).
pub(crate) fn by_vnode(
    files: &Files,
    given: &GivenSlots,
    ask: &mut CallContext<'_>,
    fid: Fid,
    parent: bool,
) -> Result<CallOutcome, Fault> {
    if !ask.asker().is_administrator()? {
        return Err(Fault::NotPermitted);
    }
    let volume = files.volume(fid.volume)?;
    let is_there = volume.store.vnode(fid.vnode)?.is_some();
    if !is_there && given.are_others(ask.origin.session, fid.volume, fid.slot()) {
        // Its maker may not have sent it yet.
        files.need_all_back(ask, fid.volume)?;
    }
    let mut found = named(&volume, fid.vnode)?;
    if parent {
        // A move of the directory is seen whole: its record names one parent.
        let (volume, _seen) = files.look_at(ask, found)?;
        let above = volume.directory(found)?.parent;
        found = named(&volume, above)?;
    }
    get_status(files, ask, found)
}

/// The file of this number, if it has a name.
fn named(volume: &ViceVolume, no: VnodeNo) -> Result<Fid, Fault> {
    let vnode = volume.store.vnode(no)?.filter(|vnode| vnode.status.links > 0);
    Ok(vnode.ok_or(Fault::Stale)?.status.fid)
}

pub(crate) fn read_link(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
) -> Result<CallOutcome, Fault> {
    let (volume, _seen) = files.look_at(ask, fid)?;
    let vnode = volume.vnode(fid)?;
    access::need(ask.asker(), &volume, &vnode, Right::See)?;
    files.promise(ask, &volume, &[fid])?;
    if !vnode.status.kind.has_target() {
        return Err(Fault::Invalid);
    }
    Ok(CallOutcome::Answer(Answer::Target(target(&volume, &vnode)?)))
}

/// The target of a symbolic link or mount point, which is its body.
fn target(volume: &ViceVolume, vnode: &Vnode) -> Result<Bytes, StoreError> {
    volume.store.reader_of(vnode)?.read(0, usize::MAX)
}

pub(crate) fn lookup(
    files: &Files,
    ask: &mut CallContext<'_>,
    dir: Fid,
    name: &Name,
) -> Result<CallOutcome, Fault> {
    let (volume, _seen) = files.look_at(ask, dir)?;
    let parent = volume.directory(dir)?;
    access::need(ask.asker(), &volume, &parent, Right::Search)?;
    files.promise(ask, &volume, &[dir])?;
    let fid = volume.entry(dir, name)?.ok_or(Fault::NotFound)?;
    files.promise(ask, &volume, &[fid])?;
    let sole = files.coherence().leases().found(ask.origin.session, dir, fid);
    let status = volume.vnode(fid)?.status;
    Ok(CallOutcome::Answer(Answer::Entry { status, dir_version: parent.status.data_version, sole }))
}

pub(crate) fn read_dir(
    files: &Files,
    ask: &mut CallContext<'_>,
    dir: Fid,
    cookie: Cookie,
    bytes_max: u32,
    plus: bool,
) -> Result<CallOutcome, Fault> {
    let (volume, _seen) = files.look_at(ask, dir)?;
    let vnode = volume.directory(dir)?;
    access::need(ask.asker(), &volume, &vnode, Right::List)?;
    let judged = plus || !ask.caller.who.level.is_trusted();
    let searches = !judged || access::may(ask.asker(), &volume, &vnode, Right::Search)?;
    files.promise(ask, &volume, &[dir])?;
    let plus = plus && searches;
    let each = ENTRY_BYTES + if plus { STATUS_BYTES } else { 0 };
    let (mut entries, end) =
        list(&volume, dir, cookie, (bytes_max as usize).min(LISTING_BYTES_MAX), each)?;
    if !searches && !ask.caller.who.level.is_trusted() {
        // A directory that may be listed but not searched shows only names: with a fid the
        // caller could reach the file without it.
        entries.iter_mut().for_each(|entry| entry.fid = entry.fid.masked());
    }
    if plus {
        add_status(files, ask, &volume, dir, &mut entries)?;
    }
    Ok(CallOutcome::Answer(Answer::Entries {
        entries,
        end,
        dir_version: vnode.status.data_version,
    }))
}

/// Entries that other sessions cover are listed without status: each would need a recall.
fn add_status(
    files: &Files,
    ask: &mut CallContext<'_>,
    volume: &ViceVolume,
    dir: Fid,
    entries: &mut [DirEntry],
) -> Result<(), Fault> {
    let mut leases = files.coherence().leases();
    let session = ask.origin.session;
    let listed: Vec<Listed> = entries
        .iter()
        .map(|entry| leases.list(ask.now, session, dir, entry.fid, &mut ask.events))
        .collect();
    drop(leases);
    let mut promised: Vec<(&mut DirEntry, bool)> = Vec::with_capacity(entries.len());
    for (entry, listed) in entries.iter_mut().zip(listed) {
        if let Listed::Promised { sole } = listed {
            promised.push((entry, sole));
        }
    }
    promised.sort_unstable_by_key(|(entry, _)| entry.fid.vnode);
    let nos: Vec<VnodeNo> = promised.iter().map(|(entry, _)| entry.fid.vnode).collect();
    for ((entry, sole), vnode) in promised.into_iter().zip(volume.store.vnodes(&nos)?) {
        match vnode {
            Ok(Some(vnode)) if vnode.status.fid == entry.fid => {
                (entry.sole, entry.status) = (sole, Some(volume.status_of(&vnode)));
                let listed = vnode.status.kind == Kind::Symlink
                    && vnode.status.size <= limits::TARGET_LISTED_BYTES_MAX as u64;
                // A later call of this target returns the error. A target that does not fit
                // into the message is listed with the next one.
                entry.target = if listed { target(volume, &vnode).ok() } else { None };
            }
            // The listing continues; a call on the file returns the error.
            Ok(_) | Err(StoreError::Damaged(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// As many entries as fit, but one at least.
fn list(
    volume: &ViceVolume,
    dir: Fid,
    cookie: Cookie,
    bytes_max: usize,
    bytes_each: usize,
) -> Result<(Vec<DirEntry>, bool), Fault> {
    let (mut entries, mut bytes, mut cookie) = (Vec::new(), 0, cookie);
    loop {
        let wanted = (bytes_max.saturating_sub(bytes) / bytes_each).clamp(1, ENTRIES_AT_ONCE);
        let (found, end) = volume.store.read_dir(dir.vnode, cookie, wanted)?;
        for entry in found {
            bytes += bytes_each + entry.name.as_bytes().len();
            if bytes > bytes_max && !entries.is_empty() {
                return Ok((entries, false));
            }
            cookie = entry.cookie;
            let fid =
                Fid { volume: dir.volume, vnode: entry.target.vnode, unique: entry.target.unique };
            entries.push(DirEntry {
                name: entry.name,
                fid,
                kind: entry.target.kind,
                cookie,
                status: None,
                sole: false,
                target: None,
            });
        }
        if end || bytes >= bytes_max {
            return Ok((entries, end));
        }
    }
}
