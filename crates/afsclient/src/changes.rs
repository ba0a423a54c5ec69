//! Changes of names.
//!
//! AFS tells less of a change than Rialto does, so the file that loses a name is looked up before.
//! Another client may change the name in between: then the answer tells of the file that was there
//! before, and the callback of the directory, which that client's change makes, ends what is wrong.

use std::ops::Deref;
use std::time::{Duration, Instant};

use afs3::files::{FilesAnswer, FilesCall};
use afs3::structs::{AfsName, AfsPath, CallBack, FetchStatus, StoreStatus, store_mask};
use client::CallError;
use types::{
    Answer, CreateHow, Fault, Fid, Kind, Name, NewKind, RemoveWhat, RenameMode, VolumeId, hex,
};

use crate::context::{AfsCall, Answered, HiddenFile, Told};
use crate::data::now;
use crate::questions::{made_in, same_volume};
use crate::statuses::{foreign, kind};

/// The mode of a link, and that of a mount point.
const LINK_MODE: u32 = 0o755;
const POINT_MODE: u32 = 0o644;
/// How long the removal of a directory waits for files in it to lose their hidden names: the
/// kernel reports a close a moment after it returned.
const HIDDEN_PATIENCE: Duration = Duration::from_secs(1);
const HIDDEN_POLL: Duration = Duration::from_millis(20);
/// A hidden name begins with this. Source: OpenAFS `src/afs/VNOPS/afs_vnop_remove.c`.
const HIDDEN: &str = ".__afs";

fn afs_name(name: &Name) -> Result<AfsName, CallError> {
    AfsName::new(name.as_bytes()).map_err(|_| Fault::NameTooLong.into())
}

fn with_mode(mode: u32) -> StoreStatus {
    StoreStatus {
        mask: store_mask::MODE | store_mask::MOD_TIME,
        client_mod_time: now(),
        mode,
        ..StoreStatus::default()
    }
}

/// A directory with entries is one that exists, as AFS's servers say.
fn not_empty(error: CallError) -> CallError {
    if error == CallError::Fault(Fault::Exists) { Fault::NotEmpty.into() } else { error }
}

/// The file without one of its names.
fn without_name(told: &Told, kind: Kind) -> Told {
    let links = if kind == Kind::Directory { 0 } else { told.status.link_count.saturating_sub(1) };
    Told { status: FetchStatus { link_count: links, ..told.status }, ..*told }
}

/// The status that a call that makes a file told.
struct MadeFile {
    file: Told,
    dir: Told,
}

/// The calls about changes of names.
pub(crate) struct NameCalls<'c>(pub &'c AfsCall<'c>);

impl<'c> Deref for NameCalls<'c> {
    type Target = AfsCall<'c>;

    fn deref(&self) -> &AfsCall<'c> {
        self.0
    }
}

impl NameCalls<'_> {
    pub(crate) fn make(
        &self,
        dir: Fid,
        name: &Name,
        kind: &NewKind,
        mode: u16,
        how: CreateHow,
    ) -> Result<Answered, CallError> {
        kind.check_target()?;
        let made = match kind {
            NewKind::File => self.create_file(dir, name, mode),
            NewKind::Directory => self.make_directory(dir, name, mode),
            NewKind::Symlink(target) => self.make_link(dir, name, target.to_vec(), LINK_MODE),
            NewKind::MountPoint(target) => {
                self.make_link(dir, name, [target, &b"."[..]].concat(), POINT_MODE)
            }
            NewKind::Fifo | NewKind::Socket | NewKind::CharDevice(_) | NewKind::BlockDevice(_) => {
                Err(Fault::NotPermitted.into())
            }
        };
        let is_unchecked = *kind == NewKind::File && how == CreateHow::Unchecked;
        let (made, existed) = match made {
            Err(CallError::Fault(Fault::Exists)) if is_unchecked => {
                let file = self.fetch_status(self.named(dir, name)?)?;
                if file.shown()?.kind != Kind::File {
                    return Err(Fault::Exists.into());
                }
                (MadeFile { file, dir: self.status(dir)? }, true)
            }
            made => (made?, false),
        };
        let MadeFile { file, dir } = made;
        Ok(Answered {
            answer: Answer::Made { status: file.shown()?, dir: dir.shown()?, existed },
            claims: vec![file.claim(), dir.claim()],
        })
    }

    fn create_file(&self, dir: Fid, name: &Name, mode: u16) -> Result<MadeFile, CallError> {
        let (status, name) = (with_mode(mode.into()), afs_name(name)?);
        let call = FilesCall::CreateFile { dir: foreign(dir)?, name, status };
        let (answer, server, start) = self.change(dir.volume, &call)?;
        let FilesAnswer::CreateFile { fid, status, dir_status, callback, .. } = answer else {
            return Err(CallError::Unreadable);
        };
        let fid = made_in(dir, fid)?;
        let file = self.learn(server, start, (fid, status), callback);
        let [dir] = self.changed([(dir, dir_status)]);
        Ok(MadeFile { file, dir })
    }

    fn make_directory(&self, dir: Fid, name: &Name, mode: u16) -> Result<MadeFile, CallError> {
        let (status, name) = (with_mode(mode.into()), afs_name(name)?);
        let call = FilesCall::MakeDir { dir: foreign(dir)?, name, status };
        let (answer, server, start) = self.change(dir.volume, &call)?;
        let FilesAnswer::MakeDir { fid, status, dir_status, callback, .. } = answer else {
            return Err(CallError::Unreadable);
        };
        let fid = made_in(dir, fid)?;
        let file = self.learn(server, start, (fid, status), callback);
        let [dir] = self.changed([(dir, dir_status)]);
        Ok(MadeFile { file, dir })
    }

    fn make_link(
        &self,
        dir: Fid,
        name: &Name,
        target: Vec<u8>,
        mode: u32,
    ) -> Result<MadeFile, CallError> {
        let target = AfsPath::new(target).map_err(|_| Fault::NameTooLong)?;
        let (status, name) = (with_mode(mode), afs_name(name)?);
        let call = FilesCall::Symlink { dir: foreign(dir)?, name, target, status };
        let (answer, server, start) = self.change(dir.volume, &call)?;
        let FilesAnswer::Symlink { fid, status, dir_status, .. } = answer else {
            return Err(CallError::Unreadable);
        };
        let fid = made_in(dir, fid)?;
        // The call brings no promise.
        let file = self.learn(server, start, (fid, status), CallBack::default());
        let [dir] = self.changed([(dir, dir_status)]);
        Ok(MadeFile { file, dir })
    }

    /// A file of AFS has names in one directory.
    pub(crate) fn link(&self, fid: Fid, dir: Fid, name: &Name) -> Result<Answered, CallError> {
        let volume = same_volume(fid, dir)?;
        let (dir_fid, existing, name) = (foreign(dir)?, foreign(fid)?, afs_name(name)?);
        let call = FilesCall::Link { dir: dir_fid, name, existing };
        let (answer, ..) = self.change(volume, &call)?;
        let FilesAnswer::Link { status, dir_status, .. } = answer else {
            return Err(CallError::Unreadable);
        };
        let [file, dir] = self.changed([(fid, status), (dir, dir_status)]);
        Ok(Answered {
            answer: Answer::Made { status: file.shown()?, dir: dir.shown()?, existed: false },
            claims: vec![file.claim(), dir.claim()],
        })
    }

    pub(crate) fn remove(
        &self,
        dir: Fid,
        name: &Name,
        what: RemoveWhat,
        hold: bool,
    ) -> Result<Answered, CallError> {
        let victim = self.status(self.named(dir, name)?)?;
        let victim_kind = victim.shown()?.kind;
        match (what, victim_kind) {
            (RemoveWhat::File, Kind::Directory) => return Err(Fault::IsDirectory.into()),
            (RemoveWhat::File | RemoveWhat::Directory, Kind::MountPoint) => {
                return Err(Fault::Busy.into());
            }
            (RemoveWhat::Directory, Kind::Directory)
            | (RemoveWhat::MountPoint, Kind::MountPoint)
            | (RemoveWhat::File, _) => {}
            (RemoveWhat::Directory, _) => return Err(Fault::NotDirectory.into()),
            (RemoveWhat::MountPoint, _) => return Err(Fault::Invalid.into()),
        }
        let is_hidden = hold && victim_kind == Kind::File && victim.status.link_count <= 1;
        let dir_status = if is_hidden {
            self.hide(dir, name, victim.fid)?
        } else {
            let (parent, name) = (foreign(dir)?, afs_name(name)?);
            let call = match what {
                RemoveWhat::Directory => FilesCall::RemoveDir { dir: parent, name },
                RemoveWhat::File | RemoveWhat::MountPoint => {
                    FilesCall::RemoveFile { dir: parent, name }
                }
            };
            match self.change_emptied(dir.volume, &call, victim.fid)? {
                FilesAnswer::RemoveDir { dir_status, .. }
                | FilesAnswer::RemoveFile { dir_status, .. } => dir_status,
                _ => return Err(CallError::Unreadable),
            }
        };
        let [dir] = self.changed([(dir, dir_status)]);
        let gone = self.lost_name(&victim, victim_kind);
        let mut claims = vec![dir.claim()];
        if gone.status.link_count > 0 {
            claims.push(gone.claim());
        }
        let answer = Answer::Removed { status: gone.shown()?, dir: dir.shown()? };
        Ok(Answered { answer, claims })
    }

    /// A change that a directory with entries may prevent. Files that programs here have just
    /// closed may have hidden names in it, which go soon.
    fn change_emptied(
        &self,
        volume: VolumeId,
        call: &FilesCall,
        dir: Fid,
    ) -> Result<FilesAnswer, CallError> {
        let until = Instant::now() + HIDDEN_PATIENCE;
        loop {
            let hides = self.cell.hidden.lock().values().any(|hidden| hidden.dir == dir);
            match self.change(volume, call).map_err(not_empty) {
                Err(CallError::Fault(Fault::NotEmpty)) if hides && Instant::now() < until => {
                    std::thread::sleep(HIDDEN_POLL);
                }
                answer => return answer.map(|(answer, ..)| answer),
            }
        }
    }

    /// The server ends the promise for a file that lost a name, and tells this client nothing.
    fn lost_name(&self, victim: &Told, kind: Kind) -> Told {
        let start = self.cell.coherence.with(|promises| {
            promises.changed(&[victim.fid]);
            promises.forget(victim.fid);
            promises.begin()
        });
        Told { start, ..without_name(victim, kind) }
    }

    /// Gives a file that is open here a hidden name in place of its own.
    fn hide(&self, dir: Fid, name: &Name, fid: Fid) -> Result<FetchStatus, CallError> {
        let hidden = format!("{HIDDEN}{}", hex(&rand::random::<[u8; 6]>()));
        let hidden = Name::new(hidden.as_bytes()).map_err(|_| Fault::Invalid)?;
        let place = foreign(dir)?;
        let call = FilesCall::Rename {
            old_dir: place,
            old_name: afs_name(name)?,
            new_dir: place,
            new_name: afs_name(&hidden)?,
        };
        let (FilesAnswer::Rename { new_dir_status, .. }, ..) = self.change(dir.volume, &call)?
        else {
            return Err(CallError::Unreadable);
        };
        let file = HiddenFile { dir, name: hidden, user: self.user };
        self.cell.hidden.lock().insert(fid, file);
        Ok(new_dir_status)
    }

    /// Files that are closed here lose their hidden names.
    pub(crate) fn unhold(&self, fids: &[Fid]) {
        for fid in fids {
            let Some(hidden) = self.cell.hidden.lock().remove(fid) else { continue };
            let removing = AfsCall { user: hidden.user, ..*self.0 };
            let removed = foreign(hidden.dir).map_err(CallError::from).and_then(|dir| {
                let call = FilesCall::RemoveFile { dir, name: afs_name(&hidden.name)? };
                removing.change(hidden.dir.volume, &call)
            });
            match removed {
                Ok((FilesAnswer::RemoveFile { dir_status, .. }, ..)) => {
                    // The cache manager does not know of this change of the directory.
                    let [dir] = self.changed([(hidden.dir, dir_status)]);
                    self.cell.coherence.with(|promises| promises.forget(*fid));
                    self.break_promise(dir.fid);
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(
                    %fid,
                    %error,
                    name = %String::from_utf8_lossy(hidden.name.as_bytes()),
                    "a removed file that was open keeps a hidden name; remove it by hand"
                ),
            }
        }
    }

    pub(crate) fn rename(
        &self,
        (from_dir, from): (Fid, &Name),
        (to_dir, to): (Fid, &Name),
        mode: RenameMode,
        hold: bool,
    ) -> Result<Answered, CallError> {
        let volume = same_volume(from_dir, to_dir)?;
        if matches!(mode, RenameMode::Exchange | RenameMode::Whiteout) {
            return Err(Fault::Invalid.into());
        }
        let moved = self.status(self.named(from_dir, from)?)?;
        let victim = match self.named(to_dir, to) {
            Ok(fid) => Some(self.status(fid)?),
            Err(CallError::Fault(Fault::NotFound)) => None,
            Err(error) => return Err(error),
        };
        let is_point = |told: &Told| kind(told.fid, &told.status) == Some(Kind::MountPoint);
        match mode {
            RenameMode::MountPoint if !is_point(&moved) => return Err(Fault::Invalid.into()),
            RenameMode::MountPoint | RenameMode::NoReplace if victim.is_some() => {
                return Err(Fault::Exists.into());
            }
            RenameMode::MountPoint => {}
            _ if is_point(&moved) || victim.as_ref().is_some_and(is_point) => {
                return Err(Fault::Busy.into());
            }
            _ => {}
        }
        if victim.as_ref().is_some_and(|victim| victim.fid == moved.fid) {
            // Two names of one file: nothing is done. Source: POSIX.
            let (from_dir, to_dir) = (self.status(from_dir)?, self.status(to_dir)?);
            return renamed(&moved, None, &from_dir, &to_dir);
        }
        let victim = victim.map(|victim| Ok::<_, CallError>((victim.shown()?.kind, victim)));
        let victim = victim.transpose()?;
        if let Some((Kind::File, victim)) = &victim
            && hold
            && victim.status.link_count <= 1
        {
            let status = self.hide(to_dir, to, victim.fid)?;
            self.changed([(to_dir, status)]);
        }
        let call = FilesCall::Rename {
            old_dir: foreign(from_dir)?,
            old_name: afs_name(from)?,
            new_dir: foreign(to_dir)?,
            new_name: afs_name(to)?,
        };
        let over_directory = victim.as_ref().is_some_and(|(kind, _)| *kind == Kind::Directory);
        let answer = self.change(volume, &call);
        let answer = if over_directory { answer.map_err(not_empty) } else { answer };
        let FilesAnswer::Rename { old_dir_status, new_dir_status, .. } = answer?.0 else {
            return Err(CallError::Unreadable);
        };
        let [old_dir, new_dir] =
            self.changed([(from_dir, old_dir_status), (to_dir, new_dir_status)]);
        let other = victim.map(|(kind, victim)| self.lost_name(&victim, kind));
        // The file's own status changed: its parent, or the number of its names.
        self.cell.coherence.with(|promises| promises.changed(&[moved.fid]));
        let moved = self.fetch_status(moved.fid)?;
        renamed(&moved, other.as_ref(), &old_dir, &new_dir)
    }
}

fn renamed(
    moved: &Told,
    other: Option<&Told>,
    from_dir: &Told,
    to_dir: &Told,
) -> Result<Answered, CallError> {
    let mut claims = vec![moved.claim(), from_dir.claim(), to_dir.claim()];
    claims.extend(other.filter(|other| other.status.link_count > 0).map(Told::claim));
    let answer = Answer::Renamed {
        status: moved.shown()?,
        other: other.map(Told::shown).transpose()?,
        from_dir: from_dir.shown()?,
        to_dir: to_dir.shown()?,
    };
    Ok(Answered { answer, claims })
}
