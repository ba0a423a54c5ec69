//! A disk for measurements only.
//!
//! A file system mounted with `discard` makes every removal wait until the device has trimmed the
//! freed blocks, which is not what is measured. There, an ext4 in a preallocated file without
//! discard takes its place.

use std::path::{Path, PathBuf};
use std::process::Command;

use local::failure::{Doing, Failure};
use local::mounts;

/// Whether the file system below `dir` trims freed blocks at once.
pub fn waits_for_trim(dir: &Path) -> bool {
    let Ok(Some(mounted)) = mounts::below(dir) else { return false };
    let lines = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let at = format!(" {} ", mounted.at.display());
    lines
        .lines()
        .filter(|line| line.contains(&at))
        .any(|line| line.split([' ', ',']).any(|word| word == "discard"))
}

/// Bytes per inode that ext4 uses by default.
const BYTES_PER_INODE: u64 = 16 << 10;

/// An ext4 in a file, mounted; unmounted and removed when dropped.
pub struct LoopDisk {
    image: PathBuf,
    at: PathBuf,
}

impl LoopDisk {
    /// Makes and mounts one of `bytes` below `dir`, with inodes for `files` files. Needs root.
    ///
    /// # Errors
    /// Without root, or if the file system cannot be made or mounted.
    pub fn new(dir: &Path, bytes: u64, files: u64) -> Result<Self, Failure> {
        let disk = LoopDisk { image: dir.join("disk.img"), at: dir.join("disk") };
        std::fs::create_dir_all(&disk.at).doing(|| format!("making {}", disk.at.display()))?;
        let image = disk.image.as_os_str();
        // Written, not only reserved: the kernel would convert unwritten blocks during the
        // measurement.
        let mut write = Command::new("dd");
        write
            .args(["if=/dev/zero", "bs=16M", "oflag=direct", "status=none"])
            .arg(format!("count={}", bytes >> 24));
        run(write.arg(format!("of={}", disk.image.display())))?;
        let options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        let inodes = files.max(bytes / BYTES_PER_INODE).to_string();
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-E", options, "-N", &inodes]).arg(image))?;
        run(Command::new("mount").args(["-o", "loop,nodiscard"]).arg(image).arg(&disk.at))?;
        Ok(disk)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let mounted = mounts::at(&self.at).ok().flatten().is_some();
        let unmounted = if mounted { run(Command::new("umount").arg(&self.at)) } else { Ok(()) };
        if let Err(failure) = unmounted {
            eprintln!("rialto bench: {failure}");
            return;
        }
        let _ = std::fs::remove_file(&self.image);
        let _ = std::fs::remove_dir(&self.at);
    }
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let what = || format!("making a disk with {program}");
    let output = command.output().doing(what)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::new(what(), String::from_utf8_lossy(&output.stderr).trim())
        .mend("use --no-loop, or be root"))
}
