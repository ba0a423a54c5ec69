//! The options of a mount that the kernel applies: read-only, `noexec`, times of access, security
//! labels. All mounts of one client have the same ones, those below mount points too, and `remount`
//! changes them in all.
//!
//! `nosuid` and `nodev` are not among them: every mount has them, since a server must not be able
//! to give set-uid programs and devices to its clients' machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::Mutex;
use rustix::mount::MountAttrFlags;

/// When the kernel updates times of access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// As far as programs depend on them.
    #[default]
    Relative,
    /// Never.
    Never,
    /// At each access.
    Always,
}

/// Options that the kernel applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// Changes fail with `EROFS`, in the volumes below too.
    pub read_only: bool,
    /// No program of it is executed.
    pub no_exec: bool,
    /// Times of access.
    pub access_times: AccessTimes,
    /// Times of access of directories are not updated.
    pub no_dir_times: bool,
    /// No symbolic link of it is followed.
    pub no_symlinks: bool,
    /// Security labels by the kernel's names, such as `context`.
    pub labels: Vec<(String, String)>,
}

impl MountOptions {
    /// The attributes of a mount with these options; `read_only`: its volume is.
    pub(crate) fn attributes(&self, read_only: bool) -> MountAttrFlags {
        let mut all = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        all.set(MountAttrFlags::MOUNT_ATTR_RDONLY, self.read_only || read_only);
        all.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, self.no_exec);
        all.set(MountAttrFlags::MOUNT_ATTR_NODIRATIME, self.no_dir_times);
        all.set(MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, self.no_symlinks);
        all | match self.access_times {
            AccessTimes::Relative => MountAttrFlags::MOUNT_ATTR_RELATIME,
            AccessTimes::Never => MountAttrFlags::MOUNT_ATTR_NOATIME,
            AccessTimes::Always => MountAttrFlags::MOUNT_ATTR_STRICTATIME,
        }
    }

    /// All options as words for `fusermount3`, which refuses those that it does not have: labels,
    /// `strictatime`, `nosymfollow`.
    pub(crate) fn words(&self, read_only: bool) -> Vec<String> {
        let times = match self.access_times {
            AccessTimes::Relative => None,
            AccessTimes::Never => Some("noatime"),
            AccessTimes::Always => Some("strictatime"),
        };
        let words = [
            Some(if self.read_only || read_only { "ro" } else { "rw" }),
            self.no_exec.then_some("noexec"),
            times,
            self.no_dir_times.then_some("nodiratime"),
            self.no_symlinks.then_some("nosymfollow"),
        ];
        let labels = self.labels.iter().map(|(name, value)| format!("{name}={value}"));
        words.into_iter().flatten().map(str::to_owned).chain(labels).collect()
    }
}

/// The present options of all mounts of a client.
#[derive(Clone, Default)]
pub(crate) struct LiveOptions(Arc<Live>);

#[derive(Default)]
struct Live {
    options: Mutex<MountOptions>,
    /// The same as in the options, for each request.
    read_only: AtomicBool,
    /// An [`AccessTimes`], and whether those of directories are not updated.
    access_times: AtomicU8,
    no_dir_times: AtomicBool,
}

impl LiveOptions {
    pub fn new(options: MountOptions) -> Self {
        let live = LiveOptions::default();
        live.set(options);
        live
    }

    pub fn get(&self) -> MountOptions {
        self.0.options.lock().clone()
    }

    pub fn set(&self, options: MountOptions) {
        let mut now = self.0.options.lock();
        self.0.read_only.store(options.read_only, Ordering::Release);
        self.0.access_times.store(options.access_times as u8, Ordering::Release);
        self.0.no_dir_times.store(options.no_dir_times, Ordering::Release);
        *now = options;
    }

    /// When reads of a file are recorded, or of a directory.
    pub fn access_times(&self, directory: bool) -> AccessTimes {
        if self.is_read_only() || directory && self.0.no_dir_times.load(Ordering::Acquire) {
            return AccessTimes::Never;
        }
        let all = [AccessTimes::Relative, AccessTimes::Always];
        let now = self.0.access_times.load(Ordering::Acquire);
        all.into_iter().find(|times| *times as u8 == now).unwrap_or(AccessTimes::Never)
    }

    /// Whether changes are refused, whatever the kernel's own flags are.
    pub fn is_read_only(&self) -> bool {
        self.0.read_only.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_user_id_programs_and_devices_are_always_refused() {
        let refused = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let plain = MountOptions::default();
        assert!(plain.attributes(false).contains(refused));
        assert!(plain.attributes(true).contains(MountAttrFlags::MOUNT_ATTR_RDONLY));
        assert_eq!(plain.words(false), ["rw"]);
        let options = MountOptions { read_only: true, no_exec: true, ..plain };
        assert!(options.attributes(false).contains(
            refused | MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOEXEC
        ));
        assert_eq!(options.words(false), ["ro", "noexec"]);
        let options = MountOptions {
            access_times: AccessTimes::Always,
            no_dir_times: true,
            no_symlinks: true,
            labels: vec![("context".to_owned(), "u:r:t".to_owned())],
            ..MountOptions::default()
        };
        assert_eq!(
            options.words(false),
            ["rw", "strictatime", "nodiratime", "nosymfollow", "context=u:r:t"],
            "fusermount3 is told of each, and none is left out"
        );
        assert!(options.attributes(false).contains(MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW));
    }

    #[test]
    fn all_mounts_see_what_a_remount_changed() {
        let live = LiveOptions::new(MountOptions::default());
        let other = live.clone();
        live.set(MountOptions { read_only: true, ..live.get() });
        assert!(other.is_read_only() && other.get().read_only);
    }
}
