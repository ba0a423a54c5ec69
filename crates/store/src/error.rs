//! Errors of a partition, sorted by cause, and the one place where they become a [`Fault`].

use std::io;

use types::{Fault, VnodeNo, VolumeId};

pub(crate) type Result<T> = std::result::Result<T, StoreError>;

/// Why the store refused a call.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    // Errors of the caller.
    /// The vnode, or the body that it was read from, is gone.
    #[error("vnode {}.{} is gone", .0.0, .1.0)]
    Gone(VolumeId, VnodeNo),
    /// The offset is above the largest that the store, or the file system below it, supports.
    #[error("body would be too large")]
    TooBig,
    /// More than [`crate::BUCKET_ENTRIES_MAX`] names of one directory share a hash.
    #[error("directory cannot take this name: too many names with its hash")]
    BucketFull,
    /// The volume shows a sealed epoch.
    #[error("volume {} is read-only", .0.0)]
    ReadOnly(VolumeId),
    /// The partition does not have this volume, or has it no more.
    #[error("there is no volume {}", .0.0)]
    NoVolume(VolumeId),
    /// Another volume of the partition has the name or the number.
    #[error("another volume has the {0}")]
    Taken(&'static str),
    /// The stream is malformed, incomplete, or does not fit the volume on this partition.
    #[error("{0}")]
    NoStream(&'static str),
    /// Another operation must end first; the caller may try again.
    #[error("busy: {0}")]
    Busy(&'static str),
    /// The call contradicts an earlier one.
    #[error("store misused: {0}")]
    Misuse(&'static str),

    /// The partition's format does not have such records.
    #[error(
        "the partition has format version {found}, and this needs {needed}; \
        'rialto vos upgradepartition' raises it"
    )]
    OldFormat {
        /// Its version.
        found: u32,
        /// The version that has them.
        needed: u32,
    },

    /// The volume is encrypted, and its key is not available.
    #[error("no key: {0}")]
    Locked(String),

    // Errors of the medium.
    /// The partition is full, or so nearly full that it accepts only removals.
    #[error("partition is full")]
    NoSpace,
    /// A record or a block fails its checksum, or is missing although it must exist.
    #[error("{0} is damaged")]
    Damaged(String),
    /// The disk failed. After a failed sync the partition refuses every change with this error
    /// until it is opened again.
    #[error("disk failed: {0}")]
    Medium(String),
}

impl StoreError {
    /// Converts an error of the operating system.
    pub(crate) fn from_io(what: &str, error: &io::Error) -> Self {
        use rustix::io::Errno;
        if let Some(StoreError::Locked(why)) =
            error.get_ref().and_then(|inner| inner.downcast_ref())
        {
            return StoreError::Locked(why.clone());
        }
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => StoreError::NoSpace,
            Some(Errno::FBIG) => StoreError::TooBig,
            None if error.kind() == io::ErrorKind::InvalidData => {
                StoreError::Damaged(format!("{what}: {error}"))
            }
            _ => StoreError::Medium(format!("{what}: {error}")),
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        match error {
            StoreError::Gone(..) => Fault::Stale,
            StoreError::TooBig => Fault::TooBig,
            StoreError::BucketFull | StoreError::NoSpace => Fault::NoSpace,
            StoreError::ReadOnly(_) => Fault::ReadOnly,
            StoreError::NoVolume(_) => Fault::NoVolume,
            StoreError::Taken(_) => Fault::Exists,
            StoreError::Misuse(_) | StoreError::NoStream(_) => Fault::Invalid,
            StoreError::Busy(_) => Fault::Busy,
            StoreError::Locked(_) => Fault::Offline,
            StoreError::OldFormat { .. } => Fault::Unsupported,
            StoreError::Damaged(_) => Fault::Damaged,
            StoreError::Medium(why) => {
                // The fault has no room for it.
                tracing::error!(%why, "the partition's medium failed; the call is refused");
                Fault::Medium
            }
        }
    }
}

/// Why a partition cannot be created or opened. Each message says what the administrator can do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory, or the file FORMAT in it, is missing.
    #[error(
        "{path} is no partition: {why}; name a partition's directory, or create one with `rialto \
            up`"
    )]
    NotAPartition {
        /// The directory of the partition.
        path: String,
        /// The missing part.
        why: String,
    },
    /// The directory already holds files.
    #[error("{path} is not empty; name an empty directory, or open the partition that it holds")]
    NotEmpty {
        /// The directory of the partition.
        path: String,
    },
    /// A program with another format wrote the partition. Nothing was changed.
    #[error("{path} has format version {found}, this program knows {known}; \
        {}", of_another_version(*found, *known))]
    UnknownVersion {
        /// The directory of the partition.
        path: String,
        /// The version of its format.
        found: u32,
        /// The newest version that this program supports.
        known: u32,
    },
    /// FORMAT or a record that every partition has is damaged.
    #[error(
        "{path} is damaged: {why}; restore it from a backup, or move it away and create a new one"
    )]
    Damaged {
        /// The directory of the partition.
        path: String,
        /// The damaged part.
        why: String,
    },
    /// Another process has the partition open.
    #[error("{path} is in use by another server; stop that one first (`rialto down`)")]
    InUse {
        /// The directory of the partition.
        path: String,
    },
    /// The disk or the operating system failed.
    #[error("{path}: {why}")]
    Medium {
        /// The directory of the partition.
        path: String,
        /// The failed operation, with its error.
        why: String,
    },
}

fn of_another_version(found: u32, known: u32) -> &'static str {
    if found > known {
        "use the program that wrote it, or a newer one"
    } else {
        "dump its volumes with the program that wrote it (`rialto vos dump`) and restore them \
            with this one"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_limit_are_not_a_failed_disk() {
        let sorted = |raw| StoreError::from_io("write", &io::Error::from_raw_os_error(raw));
        assert!(matches!(sorted(28), StoreError::NoSpace));
        assert!(matches!(sorted(122), StoreError::NoSpace));
        assert!(matches!(sorted(27), StoreError::TooBig));
        assert!(matches!(sorted(5), StoreError::Medium(_)));
    }
}
