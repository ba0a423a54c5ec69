//! The negotiation with the kernel before the first request.

use rustix::io::Errno;

use crate::abi::{self, init};

/// Requested if the kernel offers it. Left out on purpose:
/// - `WRITEBACK_CACHE`: venus does write-back, since it knows when others must see the data;
/// - `AUTO_INVAL_DATA`: only over a network ([`Wishes::bounded`]). Breaks end pages, and `mtime`
///   alone drops what we just wrote;
/// - `DONT_MASK`: the kernel applies the umask;
/// - `POSIX_ACL`: only if several users share the mount ([`negotiate`]);
/// - `ATOMIC_O_TRUNC`: the kernel would send the open before it checks whether the file is being
///   executed, and `open(O_RDONLY | O_TRUNC)` of a running program would empty it; without,
///   truncation is a request of its own;
/// - `NO_OPEN_SUPPORT`: venus must know what is open when a file's last name is removed.
const WANTED: u64 = init::ASYNC_READ
    | init::POSIX_LOCKS
    | init::FLOCK_LOCKS
    | init::EXPORT_SUPPORT
    | init::BIG_WRITES
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::NO_OPENDIR_SUPPORT
    | init::EXPLICIT_INVAL_DATA
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::DIRECT_IO_ALLOW_MMAP
    | init::PASSTHROUGH
    | init::INIT_EXT;

/// This crate depends on these.
const NEEDED: u64 = init::POSIX_LOCKS
    | init::FLOCK_LOCKS
    | init::EXPLICIT_INVAL_DATA
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT;

/// Concurrent requests without a waiting application (read-ahead, above all). The kernel's default
/// is 12.
const BACKGROUND_MAX: u16 = 64;

/// Body files are on file systems that are not stacked themselves. More would forbid to stack
/// anything on the mount.
const BACKING_DEPTH: u32 = 1;

const PAGE_BYTES: usize = 4096;
const PAGES_MAX: u16 = (types::limits::PAYLOAD_BYTES_MAX / PAGE_BYTES) as u16;

/// The result of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The kernel's minor version.
    pub minor: u32,
    /// The flags of both sides; [`abi::init`].
    pub flags: u64,
}

impl Agreement {
    /// Whether the kernel can read and write bodies itself, and their times show what it wrote.
    pub fn has_passthrough(&self) -> bool {
        self.flags & init::PASSTHROUGH != 0 && self.minor >= abi::MINOR_FINE_TIMES
    }

    /// Whether the kernel supports [`abi::notify::INC_EPOCH`].
    pub fn has_epochs(&self) -> bool {
        self.minor >= abi::MINOR_INC_EPOCH
    }

    /// Whether the kernel supports [`abi::notify::PRUNE`].
    pub fn has_prune(&self) -> bool {
        self.minor >= abi::MINOR_PRUNE
    }

    /// Whether the kernel may open directories without a request.
    pub fn has_silent_opendir(&self) -> bool {
        self.flags & init::NO_OPENDIR_SUPPORT != 0
    }

    /// Whether several users share it, and the kernel requests their rights (`access_cache.rs`).
    /// Otherwise the kernel excludes other users.
    pub fn is_shared(&self) -> bool {
        self.flags & init::POSIX_ACL != 0
    }

    /// Whether the kernel sends requests again that were received and not answered.
    pub fn has_resend(&self) -> bool {
        self.flags & init::HAS_RESEND != 0
    }

    /// Whether the kernel waits for rings.
    pub fn has_rings(&self) -> bool {
        self.flags & init::OVER_IO_URING != 0
    }
}

/// Options that differ between mounts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// To use io_uring.
    pub rings: bool,
    /// Several users share it. Then the kernel must request POSIX ACLs, also while mode bits
    /// decide: lists may be set at any time, and this cannot be negotiated later.
    pub shared: bool,
    /// The server is on another machine, so the kernel must not answer from its pages, nor from
    /// those of a directory, once their status has expired: it must send a request, and waits if
    /// this process is stopped.
    pub bounded: bool,
    /// It is kept for a successor of this process.
    pub kept: bool,
}

/// Answers the kernel's offer. `Ok(None)`: it has a newer major version and will send `INIT` again
/// with ours.
///
/// # Errors
/// `EPROTO` if it is too old, or lacks what a shared mount needs.
pub fn negotiate(
    of: abi::InitIn,
    flags2: u32,
    wishes: Wishes,
) -> Result<(abi::InitOut, Option<Agreement>), Errno> {
    let mut out = abi::InitOut { major: abi::MAJOR, minor: abi::MINOR, ..Default::default() };
    if of.major > abi::MAJOR {
        return Ok((out, None));
    }
    let offered = u64::from(of.flags) | u64::from(flags2) << 32;
    let wish = |wished, flag| if wished { flag } else { 0 };
    let needed = NEEDED | wish(wishes.shared, init::POSIX_ACL);
    if of.major < abi::MAJOR || of.minor < abi::MINOR_OLDEST || offered & needed != needed {
        tracing::error!(
            of.major,
            of.minor,
            flags = format!("{offered:#x}"),
            "kernel's FUSE is too old"
        );
        return Err(Errno::PROTO);
    }
    let wanted = WANTED
        | needed
        | wish(wishes.rings, init::OVER_IO_URING)
        | wish(wishes.kept, init::HAS_RESEND);
    let mut flags = offered & wanted;
    if wishes.bounded && offered & init::AUTO_INVAL_DATA != 0 {
        // One excludes the other.
        flags = (flags | init::AUTO_INVAL_DATA) & !init::EXPLICIT_INVAL_DATA;
    }
    out.max_readahead = of.max_readahead;
    out.flags = flags as u32;
    out.flags2 = (flags >> 32) as u32;
    out.max_background = BACKGROUND_MAX;
    out.congestion_threshold = BACKGROUND_MAX / 4 * 3;
    out.max_write = types::limits::PAYLOAD_BYTES_MAX as u32;
    out.time_gran = 1;
    out.max_pages = PAGES_MAX;
    if flags & init::PASSTHROUGH != 0 {
        out.max_stack_depth = BACKING_DEPTH;
    }
    Ok((out, Some(Agreement { minor: of.minor, flags })))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RINGS: Wishes = Wishes { rings: true, shared: false, bounded: false, kept: false };

    #[test]
    fn accepts_the_wanted_flags_of_those_offered() {
        let of = abi::InitIn { major: 7, minor: 45, max_readahead: 131_072, flags: u32::MAX };
        let (out, agreed) = negotiate(of, u32::MAX, Wishes::default()).unwrap();
        assert_eq!(agreed.unwrap().flags, WANTED);
        assert!(!agreed.unwrap().has_rings());
        assert!(negotiate(of, u32::MAX, RINGS).unwrap().1.unwrap().has_rings());
        assert!(!negotiate(of, 0, RINGS).unwrap().1.unwrap().has_rings(), "not offered");
        let shared = negotiate(of, u32::MAX, Wishes { shared: true, ..RINGS }).unwrap().1.unwrap();
        assert!(shared.is_shared() && !agreed.unwrap().is_shared());
        assert_eq!((out.max_write, out.max_pages, out.max_readahead), (1 << 20, 256, 131_072));
        assert!(agreed.unwrap().has_epochs());
        let bounded =
            negotiate(of, u32::MAX, Wishes { bounded: true, ..RINGS }).unwrap().1.unwrap();
        let data = init::AUTO_INVAL_DATA | init::EXPLICIT_INVAL_DATA;
        assert_eq!(
            bounded.flags & data,
            init::AUTO_INVAL_DATA,
            "the kernel asks before it answers from old pages"
        );
        assert_eq!(agreed.unwrap().flags & data, init::EXPLICIT_INVAL_DATA);
        let (out, agreed) =
            negotiate(abi::InitIn { minor: 43, flags: NEEDED as u32, ..of }, 0, RINGS).unwrap();
        assert_eq!(u64::from(out.flags), NEEDED);
        assert!(!agreed.unwrap().has_epochs());
    }

    #[test]
    fn refuses_old_kernels_and_lets_newer_majors_ask_again() {
        let of = abi::InitIn { major: 7, minor: 45, max_readahead: 0, flags: u32::MAX };
        assert_eq!(negotiate(abi::InitIn { minor: 32, ..of }, 0, RINGS), Err(Errno::PROTO));
        assert_eq!(negotiate(abi::InitIn { major: 6, ..of }, 0, RINGS), Err(Errno::PROTO));
        assert_eq!(negotiate(abi::InitIn { flags: 0, ..of }, 0, RINGS), Err(Errno::PROTO));
        let flags = NEEDED as u32;
        assert!(negotiate(abi::InitIn { flags, ..of }, 0, RINGS).is_ok());
        let shared = Wishes { shared: true, ..RINGS };
        assert_eq!(
            negotiate(abi::InitIn { flags, ..of }, 0, shared),
            Err(Errno::PROTO),
            "others would be shown too much"
        );
        let (out, agreed) = negotiate(abi::InitIn { major: 8, ..of }, 0, RINGS).unwrap();
        assert_eq!((out.major, agreed), (7, None));
    }
}
