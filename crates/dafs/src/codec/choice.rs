//! Decoding of one-byte choices.

use types::{
    AllocateMode, BreakReason, Lending, LockFamily, LockMode, RemoveWhat, RenameMode, SeekWhat,
    XattrMode,
};

/// Declares the decoder of an enum whose discriminants are wire values.
macro_rules! from_wire {
    ($($function:ident: $name:ident { $($variant:ident),* })*) => {
        $(pub(crate) fn $function(value: u8) -> Option<$name> {
            [$($name::$variant),*].into_iter().find(|choice| *choice as u8 == value)
        })*
    };
}

from_wire! {
    rename_mode: RenameMode { Replace, NoReplace, Exchange, MountPoint }
    allocate_mode: AllocateMode { Extend, KeepSize, PunchHole, ZeroExtend, ZeroKeepSize }
    lending: Lending { Read, Write, Join }
    remove_what: RemoveWhat { File, Directory, MountPoint }
    seek_what: SeekWhat { Data, Hole }
    xattr_mode: XattrMode { Either, Create, Replace }
    lock_family: LockFamily { Posix, Flock }
    lock_mode: LockMode { Shared, Exclusive }
    break_reason: BreakReason { Data, Status, Removed, Pressure, Recall }
}
