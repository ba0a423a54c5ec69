//! Body files as plain sparse files:
//! `bodies/<volume hex>/<low byte of half the vnode>/<vnode>.<epoch>.<generation>`, all hex; and
//! `blanks/<session>.<number>`.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use types::VolumeId;

use super::{BodyFile, Disk, Stamp};
use crate::StoreError;
use crate::format::names::{BlankName, BodyName, file_name, parse_name};
use crate::media::free_space::Space;

/// Exists while a sync has failed in this boot; its data may never have reached the disk.
const SYNC_FAILED: &str = "sync-failed";

/// The most directories that are recorded as stable; beyond that some are synced once more than
/// necessary.
const SETTLED_MAX: usize = 1 << 16;

/// The directory of blanks.
const BLANKS: &str = "blanks";

/// The kernel's identifier of the current boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

pub(crate) struct Files {
    root: PathBuf,
    bodies: PathBuf,
    /// The partition's id, the name of its notes outside of the partition.
    id: u128,
    /// Directories in memory for notes of failed syncs; the first that accepts one is used.
    note_dirs: Vec<PathBuf>,
    /// The root, open: every change queries the free room.
    dir: fs::File,
    /// The directory of bodies, open. Linux reports a failed write-back once to each descriptor
    /// that was open then, and otherwise only to the first one opened later, which may be another
    /// program's.
    bodies_dir: fs::File,
    /// Directories of bodies whose own names are on disk.
    settled: Mutex<HashSet<(VolumeId, u8)>>,
}

impl Files {
    /// The bodies of the partition in `root`, which has this id.
    pub(crate) fn open(root: &Path, id: u128) -> io::Result<Files> {
        let user = rustix::process::geteuid();
        let shared = PathBuf::from(format!("/dev/shm/rialto-{}", user.as_raw()));
        let system = user.is_root().then(|| PathBuf::from("/run/rialto"));
        Files::with_notes(root, id, system.into_iter().chain([shared]).collect())
    }

    fn with_notes(root: &Path, id: u128, note_dirs: Vec<PathBuf>) -> io::Result<Files> {
        let bodies = root.join("bodies");
        let (dir, bodies_dir) = (fs::File::open(root)?, fs::File::open(&bodies)?);
        Ok(Files {
            root: root.to_owned(),
            bodies,
            id,
            note_dirs,
            dir,
            bodies_dir,
            settled: Mutex::default(),
        })
    }

    /// A note of a failed sync that does not need the partition's file system.
    fn note(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{SYNC_FAILED}.{:032x}", self.id))
    }

    fn notes(&self) -> impl Iterator<Item = PathBuf> {
        let ours = self.note_dirs.iter().filter(|dir| is_own_dir(dir)).map(|dir| self.note(dir));
        ours.chain([self.root.join(SYNC_FAILED)])
    }

    fn volume_dir(&self, volume: VolumeId) -> PathBuf {
        self.bodies.join(format!("{:x}", volume.0))
    }

    fn dir(&self, name: BodyName) -> PathBuf {
        self.volume_dir(name.volume).join(format!("{:02x}", low_byte(name)))
    }

    fn path(&self, name: BodyName) -> PathBuf {
        self.dir(name).join(file_name(name))
    }

    fn blank(&self, name: BlankName) -> PathBuf {
        self.root.join(BLANKS).join(name.text())
    }
}

/// Selects a directory of the volume. Directories are created with the first body that needs them.
fn low_byte(name: BodyName) -> u8 {
    (name.vnode.0 >> 1) as u8
}

/// The entries of a directory; none if it does not exist.
fn inside(dir: &Path) -> io::Result<Box<dyn Iterator<Item = io::Result<fs::DirEntry>>>> {
    match fs::read_dir(dir) {
        Ok(found) => Ok(Box::new(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Box::new(std::iter::empty())),
        Err(error) => Err(error),
    }
}

fn open_as(path: PathBuf, flags: OFlags) -> io::Result<Option<Arc<dyn BodyFile>>> {
    match rustix::fs::open(
        &path,
        OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOATIME | flags,
        Mode::from(0o600),
    ) {
        Ok(fd) => Ok(Some(Arc::new(HostFile { file: fs::File::from(fd), path }))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Other users may create files beside our directory, so a directory that they made does not count.
fn is_own_dir(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == own)
}

fn read_boot_id(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

fn sync_dir(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

impl Disk for Files {
    fn create(&self, name: BodyName) -> io::Result<Arc<dyn BodyFile>> {
        let create = || open_as(self.path(name), OFlags::CREATE | OFlags::TRUNC);
        let file = match create()? {
            None => {
                fs::create_dir_all(self.dir(name))?;
                create()?
            }
            file => file,
        };
        file.ok_or_else(|| io::Error::other(format!("{} is gone", self.dir(name).display())))
    }

    fn copy(&self, from: BodyName, to: BodyName) -> io::Result<Arc<dyn BodyFile>> {
        let source = fs::File::open(self.path(from))?;
        let made = self.create(to)?;
        let target = fs::OpenOptions::new().write(true).open(self.path(to))?;
        match rustix::fs::ioctl_ficlone(&target, &source) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::XDEV | Errno::INVAL | Errno::NOSYS) => {
                copy_data(&source, &target)?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(made)
    }

    fn open(&self, name: BodyName) -> io::Result<Option<Arc<dyn BodyFile>>> {
        open_as(self.path(name), OFlags::empty())
    }

    fn remove(&self, name: BodyName) -> io::Result<()> {
        match rustix::fs::unlink(self.path(name)) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn list(
        &self,
        volume: VolumeId,
        visit: &mut dyn FnMut(Result<BodyName, String>),
    ) -> io::Result<()> {
        for dir in inside(&self.volume_dir(volume))? {
            for file in inside(&dir?.path())? {
                let file = file?;
                let name = file.file_name().to_str().and_then(|text| parse_name(volume, text));
                visit(name.ok_or_else(|| file.path().display().to_string()));
            }
        }
        Ok(())
    }

    fn clear(&self, volume: VolumeId, max: usize) -> io::Result<usize> {
        let mut removed = 0;
        let whole = self.volume_dir(volume);
        for dir in inside(&whole)? {
            let dir = dir?.path();
            for file in inside(&dir)? {
                if removed == max {
                    return Ok(removed);
                }
                fs::remove_file(file?.path())?;
                removed += 1;
            }
            fs::remove_dir(&dir)?;
        }
        match fs::remove_dir(&whole) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => {
                self.settled.lock().retain(|(of, _)| *of != volume);
                Ok(removed)
            }
        }
    }

    fn sync_name(&self, name: BodyName) -> Result<(), StoreError> {
        let failed = |e| StoreError::Medium(format!("sync of a body directory: {e}"));
        sync_dir(&self.dir(name)).map_err(failed)?;
        let dir = (name.volume, low_byte(name));
        if self.settled.lock().contains(&dir) {
            return Ok(());
        }
        // The volume's directory may be new too.
        sync_dir(&self.volume_dir(name.volume))
            .and_then(|()| sync_dir(&self.bodies))
            .map_err(failed)?;
        let mut settled = self.settled.lock();
        if settled.len() >= SETTLED_MAX {
            settled.clear();
        }
        settled.insert(dir);
        Ok(())
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        rustix::fs::syncfs(&self.bodies_dir).map_err(|e| StoreError::Medium(format!("syncfs: {e}")))
    }

    fn is_written(&self, name: BodyName) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOATIME;
        match rustix::fs::open(self.path(name), flags, Mode::empty()) {
            Ok(fd) => Ok(mem::lease::is_open_for_writing(fd.as_fd())?),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn has_descriptors(&self) -> bool {
        true
    }

    fn make_blank(&self, name: BlankName) -> io::Result<Arc<dyn BodyFile>> {
        let flags = OFlags::CREATE | OFlags::EXCL;
        let made = match open_as(self.blank(name), flags)? {
            None => {
                fs::create_dir_all(self.root.join(BLANKS))?;
                open_as(self.blank(name), flags)?
            }
            made => made,
        };
        made.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn open_blank(&self, name: BlankName) -> io::Result<Option<Arc<dyn BodyFile>>> {
        open_as(self.blank(name), OFlags::empty())
    }

    fn blanks(&self) -> io::Result<Vec<BlankName>> {
        let dir = match fs::read_dir(self.root.join(BLANKS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            dir => dir?,
        };
        let mut names = Vec::new();
        for file in dir {
            names.extend(file?.file_name().to_str().and_then(BlankName::parse));
        }
        Ok(names)
    }

    fn adopt_blank(
        &self,
        blank: BlankName,
        body: BodyName,
    ) -> io::Result<Option<Arc<dyn BodyFile>>> {
        self.remove(body)?;
        let link = || rustix::fs::link(self.blank(blank), self.path(body));
        let linked = match link() {
            Err(Errno::NOENT) => fs::create_dir_all(self.dir(body)).map(|()| link())?,
            linked => linked,
        };
        match linked {
            Ok(()) => self.open(body),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn remove_blank(&self, name: BlankName) -> io::Result<()> {
        match rustix::fs::unlink(self.blank(name)) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn space(&self) -> io::Result<Space> {
        let fs = rustix::fs::fstatvfs(&self.dir)?;
        Ok(Space { total_bytes: fs.f_blocks * fs.f_frsize, free_bytes: fs.f_bavail * fs.f_frsize })
    }

    fn boot_id(&self) -> io::Result<String> {
        read_boot_id(Path::new(BOOT_ID))
    }

    fn note_sync_failed(&self) {
        // The note matters only in this boot: after another one the verifier changes anyway. The
        // failed file system may refuse a note (it may be read-only now), so the directories in
        // memory come first.
        let in_memory = self.note_dirs.iter().find_map(|dir| {
            if !is_own_dir(dir) {
                fs::DirBuilder::new().mode(0o700).create(dir).ok()?;
            }
            fs::write(self.note(dir), "").ok()
        });
        let beside = fs::write(self.root.join(SYNC_FAILED), "");
        if let (None, Err(error)) = (in_memory, beside) {
            tracing::error!(
                %error, dirs = ?self.note_dirs,
                "the failed sync cannot be noted: restart the machine before the server, or lost \
                    data counts as stable"
            );
        }
    }

    fn has_sync_failed(&self) -> bool {
        // A note that cannot be checked counts.
        self.notes().any(|note| note.try_exists().unwrap_or(true))
    }

    fn forget_sync_failed(&self) {
        for note in self.notes() {
            match fs::remove_file(&note) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(
                        %error, note = %note.display(),
                        "the note of a failed sync cannot be removed: \
                         the next start changes the boot verifier again"
                    );
                }
                _ => {}
            }
        }
    }
}

/// Copies data, holes and length.
fn copy_data(source: &fs::File, target: &fs::File) -> io::Result<()> {
    let mut at = 0;
    while let Some(run) = data_at(source, at)? {
        let (mut from, mut to) = (run.start, run.start);
        while from < run.end {
            let count = usize::try_from(run.end - from).unwrap_or(usize::MAX);
            if rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), count)?
                == 0
            {
                break;
            }
        }
        at = run.end;
    }
    Ok(rustix::fs::ftruncate(target, source.metadata()?.len())?)
}

/// The next run of data at or behind `from`.
fn data_at(file: &fs::File, from: u64) -> io::Result<Option<Range<u64>>> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match rustix::fs::seek(file, SeekFrom::Hole(start)) {
        Ok(end) => Ok(Some(start..end)),
        // A kernel that has the body cut it in between: nothing is left from `start` on.
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

struct HostFile {
    file: fs::File,
    path: PathBuf,
}

impl HostFile {
    /// Duplicates the descriptor through /proc, so that it is the same file even if its name was
    /// removed meanwhile.
    fn reopen(&self, flags: OFlags) -> io::Result<OwnedFd> {
        use std::os::fd::AsRawFd;
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = flags | OFlags::CLOEXEC;
        match rustix::fs::open(own, flags, Mode::empty()) {
            Ok(fd) => Ok(fd),
            Err(Errno::NOENT) => Ok(rustix::fs::open(&self.path, flags, Mode::empty())?),
            Err(error) => Err(error.into()),
        }
    }
}

impl BodyFile for HostFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn append(&self, data: &[u8]) -> io::Result<u64> {
        use std::io::{Seek, Write};
        let mut file = fs::File::from(self.reopen(OFlags::WRONLY | OFlags::APPEND)?);
        // One call is one step; after a short write the caller continues.
        let count = file.write(data)?;
        if count < data.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(file.stream_position()? - data.len() as u64)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.file, length)?)
    }

    fn extend(&self, length: u64) -> io::Result<()> {
        let Some(last) = length.checked_sub(1) else { return Ok(()) };
        Ok(rustix::fs::fallocate(&self.file, FallocateFlags::empty(), last, 1)?)
    }

    fn settle_maps(&self) -> io::Result<()> {
        Ok(mem::writeback::start(self.file.as_fd())?)
    }

    fn stamp(&self) -> io::Result<Stamp> {
        let stat = rustix::fs::fstat(&self.file)?;
        let nanos = |secs: i64, nanos: u64| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
        let times = [
            nanos(stat.st_mtime, stat.st_mtime_nsec as u64),
            nanos(stat.st_ctime, stat.st_ctime_nsec as u64),
        ];
        Ok(Stamp { length: stat.st_size as u64, times })
    }

    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        data_at(&self.file, from)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, offset, length)?)
    }

    fn reserve(&self, offset: u64, length: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, length)?)
    }

    fn has_data(&self, offset: u64, length: u64) -> io::Result<bool> {
        match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(found) => Ok(found < offset + length),
            Err(Errno::NXIO) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        rustix::fs::fdatasync(self.file.as_fd())
            .map_err(|e| StoreError::Medium(format!("sync of a body: {e}")))
    }

    fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        self.reopen(OFlags::RDONLY).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(root: &Path, notes: &[&Path]) -> Files {
        fs::create_dir_all(root.join("bodies")).unwrap();
        Files::with_notes(root, 7, notes.iter().map(|dir| (*dir).to_owned()).collect()).unwrap()
    }

    #[test]
    fn m9_a_failed_sync_is_noted_without_the_failed_disk() {
        let (dir, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (root, notes, none) =
            (dir.path().join("p"), memory.path().join("own"), memory.path().join("no/such"));
        let before = files(&root, &[&none, &notes]);
        assert!(!before.has_sync_failed());
        // The partition refuses the note, also when the test runs as root.
        fs::rename(&root, dir.path().join("away")).unwrap();
        before.note_sync_failed();
        fs::rename(dir.path().join("away"), &root).unwrap();
        assert!(!root.join(SYNC_FAILED).exists(), "it was away");
        let again = files(&root, &[&none, &notes]);
        assert!(again.has_sync_failed() && again.has_sync_failed(), "until it is forgotten");
        again.forget_sync_failed();
        assert!(!files(&root, &[&none, &notes]).has_sync_failed());
        // Without any directory in memory the partition itself gets the note.
        again.note_dirs.iter().for_each(|dir| assert!(!again.note(dir).exists()));
        files(&root, &[&none]).note_sync_failed();
        assert!(files(&root, &[&none]).has_sync_failed());
    }

    #[test]
    fn m9_no_boot_id_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("boot_id");
        assert!(read_boot_id(&path).is_err());
        fs::write(&path, "abc\n").unwrap();
        assert_eq!(read_boot_id(&path).unwrap(), "abc");
    }

    #[test]
    fn m8_a_sync_uses_the_descriptor_from_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path(), &[]);
        // A descriptor opened for the sync would not find the directory.
        fs::rename(dir.path().join("bodies"), dir.path().join("other")).unwrap();
        files.sync_all().unwrap();
        assert!(files.space().unwrap().total_bytes > 0);
    }

    #[test]
    fn data_of_a_file_that_others_cut_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create_new(dir.path().join("body")).unwrap();
        let end = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(std::sync::atomic::Ordering::Relaxed) {
                    file.write_all_at(&[1; 4096], 1 << 20).unwrap();
                    file.set_len(0).unwrap();
                }
            });
            for _ in 0..20_000 {
                data_at(&file, 0).unwrap();
            }
            end.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
