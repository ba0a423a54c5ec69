//! A machine that boots with a drive: ext4 on a loop device on the drive's file, a boot id of its
//! own, and empty memory file systems.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mount::KernelTransport;
use mount::handler_mount::Handled;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use crate::served::{NAME, Served};
use crate::{Drive, DriveImage, Flushes};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Directories that a loss of power empties.
const VOLATILE: [&str; 2] = ["/run", "/dev/shm"];
/// With `auto_da_alloc` ext4 would hide that a program does not sync a file before it renames it.
const EXT4_OPTIONS: &str = "noauto_da_alloc";

static BOOTS: AtomicU64 = AtomicU64::new(0);

/// A machine that runs. Dropping it cuts the power.
pub struct DrivenMachine {
    drive: Arc<Drive>,
    root: PathBuf,
    /// Mount points, in the order in which they were mounted.
    mounted: Vec<PathBuf>,
    served: Option<Handled<Served>>,
}

impl DrivenMachine {
    /// Boots with a drive that holds `image`, an ext4 file system, in the directory `at`. A mount
    /// name space can have one machine at a time, and must be private ([`crate::isolated`]).
    ///
    /// # Errors
    /// Those of the kernel or losetup; no mount or device is left then.
    pub fn boot(at: &Path, image: DriveImage, flushes: Flushes) -> io::Result<DrivenMachine> {
        let [drive_dir, root, boot_id] = ["drive", "fs", "boot_id"].map(|name| at.join(name));
        fs::create_dir_all(&drive_dir)?;
        fs::create_dir_all(&root)?;
        let number = BOOTS.fetch_add(1, Ordering::Relaxed);
        fs::write(&boot_id, format!("{:08x}-0000-4000-8000-{number:012x}\n", std::process::id()))?;
        let drive = Arc::new(Drive::new(image, flushes));
        let handler = Arc::new(Served(Arc::clone(&drive)));
        let served = Handled::start(&drive_dir, "powercut", handler, KernelTransport::Device)
            .map_err(io::Error::other)?;
        let mut machine =
            DrivenMachine { drive, root: root.clone(), mounted: Vec::new(), served: Some(served) };
        mount_loop(&drive_dir.join(NAME), &root)?;
        machine.mounted.push(root);
        for dir in VOLATILE {
            mount("tmpfs", dir, "tmpfs", MountFlags::empty(), None)?;
            machine.mounted.push(dir.into());
        }
        mount_bind(&boot_id, BOOT_ID)?;
        machine.mounted.push(BOOT_ID.into());
        Ok(machine)
    }

    /// The root of its file system.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The machine's drive.
    pub fn drive(&self) -> &Arc<Drive> {
        &self.drive
    }

    /// Shuts down and returns the drive's contents. No process may use its file system any more.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn stop(mut self) -> io::Result<DriveImage> {
        self.end()?;
        Ok(self.drive.after_stop())
    }

    /// Cuts the power, if it is on, and returns the contents of the medium, which `seed` chooses.
    /// No process may use its file system any more: end the processes first, or cut the drive's
    /// power, then end them.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn lose_power(mut self, seed: u64) -> io::Result<DriveImage> {
        self.drive.cut();
        self.end()?;
        Ok(self.drive.after_loss(seed))
    }

    fn end(&mut self) -> io::Result<()> {
        while let Some(path) = self.mounted.pop() {
            unmount(&path, UnmountFlags::empty()).map_err(|error| {
                io::Error::other(format!("unmounting {}: {error}", path.display()))
            })?;
        }
        if let Some(served) = self.served.take() {
            drop(served);
        }
        Ok(())
    }
}

impl Drop for DrivenMachine {
    fn drop(&mut self) {
        self.drive.cut();
        for path in std::mem::take(&mut self.mounted).iter().rev() {
            let _ = unmount(path, UnmountFlags::DETACH);
        }
    }
}

/// Mounts the file at a directory. The loop device goes with the mount.
fn mount_loop(file: &Path, at: &Path) -> io::Result<()> {
    let device =
        run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(file))?;
    let device = device.trim();
    let mounted = mount_ext4(device, at);
    // While the device is in use, this makes its last user detach it.
    let detached = run(Command::new("losetup").arg("--detach").arg(device));
    mounted?;
    detached.map(drop)
}

fn mount_ext4(device: &str, at: &Path) -> io::Result<()> {
    let options = std::ffi::CString::new(EXT4_OPTIONS)?;
    mount(device, at, "ext4", MountFlags::NOATIME, &*options).map_err(|error| {
        io::Error::other(format!("ext4 of the drive's image on {device}: {error}"))
    })
}

fn run(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{command:?}: {}", said.trim())))
}
