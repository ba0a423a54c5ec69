//! Options of a volume.
//!
//! Model: an attribute of the root says that an option is set. Callers change none of these
//! attributes themselves, and clones, moves and dumps take them along without special care.

use store::{StoreError, VnodeEdit};
use types::{VnodeNo, VolumeChange};

/// The options that are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeOptions(u8);

impl VolumeOptions {
    /// Reads are recorded as access times.
    pub const READ_TIMES: VolumeOptions = VolumeOptions(1);
    /// Clients of AFS are not served.
    pub const REFUSES_AFS: VolumeOptions = VolumeOptions(2);

    const ATTRIBUTES: [(VolumeOptions, &[u8]); 2] = [
        (VolumeOptions::READ_TIMES, b"rialto.read-times"),
        (VolumeOptions::REFUSES_AFS, types::REFUSES_AFS.as_bytes()),
    ];

    /// Whether an attribute is that of an option.
    pub fn is_attribute(name: &[u8]) -> bool {
        Self::ATTRIBUTES.iter().any(|(_, known)| *known == name)
    }

    /// Those of a volume.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn of(store: &store::Volume) -> Result<VolumeOptions, StoreError> {
        let mut options = VolumeOptions::default();
        if let Some(root) = store.vnode(VnodeNo::ROOT)? {
            for (option, name) in Self::ATTRIBUTES {
                let is_set = store.xattr(&root, name)?.is_some();
                options = options.with(option, is_set);
            }
        }
        Ok(options)
    }

    pub fn has(self, option: VolumeOptions) -> bool {
        self.0 & option.0 != 0
    }

    fn with(self, option: VolumeOptions, on: bool) -> VolumeOptions {
        VolumeOptions(if on { self.0 | option.0 } else { self.0 & !option.0 })
    }

    /// Those after a change.
    pub fn after(self, change: &VolumeChange) -> VolumeOptions {
        let wanted = [
            (Self::READ_TIMES, change.read_times),
            (Self::REFUSES_AFS, change.afs.map(|serves| !serves)),
        ];
        let set = |options: VolumeOptions, (option, on): (_, Option<bool>)| {
            on.map_or(options, |on| options.with(option, on))
        };
        wanted.into_iter().fold(self, set)
    }

    /// Writes them to the root.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn write(self, root: &mut VnodeEdit<'_, '_>) -> Result<(), StoreError> {
        for (option, name) in Self::ATTRIBUTES {
            if self.has(option) {
                root.put_xattr(name, b"on")?;
            } else {
                root.remove_xattr(name)?;
            }
        }
        Ok(())
    }

    pub fn bits(self) -> u8 {
        self.0
    }

    pub fn from_bits(bits: u8) -> VolumeOptions {
        VolumeOptions(bits)
    }
}
