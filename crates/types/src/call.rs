//! The calls of the file service, which all protocols, `vice` and the reference model share.

use bytes::Bytes;

use crate::limits::TARGET_BYTES_MAX;
use crate::{
    AuthCall, Behalf, ByteRange, CellCall, Cookie, DataUse, Fault, Fid, GuardCall, Kind,
    LockFamily, LockMode, LockOwner, MountPoint, MountPointError, Name, OpenId, PersistHow,
    PrincipalId, PtsCall, ShareKey, Timestamp, VolumeCall,
};

/// The kinds of file that `Make` makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewKind {
    /// An empty file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link with this target (1 to [`crate::limits::TARGET_BYTES_MAX`] bytes without
    /// NUL).
    Symlink(Bytes),
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device: `major << 32 | minor`.
    CharDevice(u64),
    /// A block device: `major << 32 | minor`.
    BlockDevice(u64),
    /// A mount point with this target (a text that [`crate::MountPoint::parse`] accepts).
    MountPoint(Bytes),
}

impl NewKind {
    /// The kind of the new file.
    pub const fn kind(&self) -> Kind {
        match self {
            NewKind::File => Kind::File,
            NewKind::Directory => Kind::Directory,
            NewKind::Symlink(_) => Kind::Symlink,
            NewKind::Fifo => Kind::Fifo,
            NewKind::Socket => Kind::Socket,
            NewKind::CharDevice(_) => Kind::CharDevice,
            NewKind::BlockDevice(_) => Kind::BlockDevice,
            NewKind::MountPoint(_) => Kind::MountPoint,
        }
    }

    /// The target, if it is of a kind that [has one](Kind::has_target).
    pub const fn target(&self) -> Option<&Bytes> {
        match self {
            NewKind::Symlink(target) | NewKind::MountPoint(target) => Some(target),
            _ => None,
        }
    }

    /// Refuses impossible targets.
    ///
    /// # Errors
    /// `NameTooLong`, `Invalid`.
    pub fn check_target(&self) -> Result<(), Fault> {
        match self {
            NewKind::Symlink(target) if target.len() > TARGET_BYTES_MAX => Err(Fault::NameTooLong),
            NewKind::Symlink(target) if target.is_empty() || target.contains(&0) => {
                Err(Fault::Invalid)
            }
            NewKind::MountPoint(target) => {
                MountPoint::parse(target).map(drop).map_err(MountPointError::fault)
            }
            _ => Ok(()),
        }
    }
}

/// The action of `Make` if the entry exists. Source: NFSv3 `createhow3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// An existing plain file is the answer (files only).
    Unchecked,
    /// Refuse with `Exists`.
    Guarded,
    /// Refuse with `Exists` unless the file was made with the same verifier: works for a client
    /// that lost the reply and its session.
    Exclusive(u64),
}

/// The action of `Rename` on an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RenameMode {
    /// Remove it.
    Replace = 1,
    /// Refuse with `Exists`.
    NoReplace = 2,
    /// The two change places; both must exist.
    Exchange = 3,
    /// A mount point moves, and nothing else may; refuse with `Exists`. All other modes refuse
    /// mount points with `Busy`.
    MountPoint = 4,
    /// As `Replace`, and the old name is that of a whiteout from then on: a character device 0, 0,
    /// by which an overlay marks a removed name.
    Whiteout = 5,
}

impl RenameMode {
    /// Whether an existing target is removed.
    pub const fn replaces(self) -> bool {
        matches!(self, RenameMode::Replace | RenameMode::Whiteout)
    }
}

/// The kinds of entry that `Remove` may remove. Wire values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RemoveWhat {
    /// Anything but a directory and a mount point.
    File = 0,
    /// An empty directory.
    Directory = 1,
    /// A mount point, known to the caller as such.
    MountPoint = 2,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock: any caller that may write may set it.
    Now,
    /// A given time: only the owner may set it.
    To(Timestamp),
}

/// The fields that `SetStatus` changes; `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusChange {
    /// Permission, set-id and sticky bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Cut or grow to this many bytes.
    pub size: Option<u64>,
    /// Access time.
    pub accessed: Option<SetTime>,
    /// Modification time.
    pub modified: Option<SetTime>,
    /// Clear set-user-id, and set-group-id where the group may execute, as a change by an
    /// unprivileged writer does.
    pub kill_privileges: bool,
    /// The caller has the file open for writing, so a trusted host's caller needs no write
    /// permission for `size`; other callers as for `Write`.
    pub through_handle: bool,
    /// This session has the file open for users other than its owner: they keep what the mode
    /// allowed them (`vice/sessions/open_rights.rs`).
    pub hold: bool,
}

/// The action of `Allocate` on its range. Source: Linux `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AllocateMode {
    /// Reserve; the file grows if the range ends past it.
    Extend = 1,
    /// Reserve; the size stays.
    KeepSize = 2,
    /// Make a hole; the size stays.
    PunchHole = 3,
    /// Zero; the file grows if the range ends past it.
    ZeroExtend = 4,
    /// Zero; the size stays.
    ZeroKeepSize = 5,
}

/// The use that a kernel will make of a lent body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Lending {
    /// Read and map it.
    Read = 1,
    /// Write into it too, if there is ample room.
    Write = 2,
    /// The same, however little room there is: the kernel has it for reading already.
    Join = 3,
}

/// The target of `Seek`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SeekWhat {
    /// The next byte with data.
    Data = 1,
    /// The next hole; the end of the file is one.
    Hole = 2,
}

/// The action of `XattrSet` on an existing attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum XattrMode {
    /// Make or replace.
    Either = 1,
    /// Refuse with `Exists` if it is there.
    Create = 2,
    /// Refuse with `NoXattr` if it is not.
    Replace = 3,
}

/// One request to the file service. Answers are in [`crate::Answer`], refusals in [`crate::Fault`].
///
/// Every call that returns a status, and every listing with status, carries a promise for what it
/// returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// The root directory of the volume with this name. Answer: `Status`.
    Root {
        /// Name of the volume, with the ending of its kind (`home.alice.readonly`).
        volume: Name,
    },
    /// One entry. Also promises the directory, for a refusal with `NotFound` too. Answer: `Entry`.
    Lookup {
        /// The directory.
        dir: Fid,
        /// Name of the entry; not `.` and not `..`.
        name: Name,
    },
    /// Entries from `cookie` on, in cookie order, without `.` and `..`. While the
    /// directory changes, each entry that stays is listed exactly once. `plus`: with status and
    /// promise. Answer: `Entries`.
    ReadDir {
        /// The directory.
        dir: Fid,
        /// Where to continue: the cookie of the last entry that was received.
        cookie: Cookie,
        /// Limit of the answer in bytes; at least one entry is returned.
        bytes_max: u32,
        /// Each entry carries its status and a promise for it.
        plus: bool,
    },
    /// A new file, directory, link or node. Answer: `Made`.
    Make {
        /// The directory.
        dir: Fid,
        /// Name of the new entry.
        name: Name,
        /// The kind of the new file.
        kind: NewKind,
        /// Permission bits; the umask is the client's matter.
        mode: u16,
        /// The treatment of an entry that exists.
        how: CreateHow,
    },
    /// A file without a name, held open by this session. Answer: `Status`.
    MakeUnnamed {
        /// The directory.
        dir: Fid,
        /// Permission bits; the umask is the client's matter.
        mode: u16,
    },
    /// One more name for a file that is no directory. Answer: `Made`.
    Link {
        /// The file that gets another name.
        fid: Fid,
        /// The directory.
        dir: Fid,
        /// The new name.
        name: Name,
    },
    /// Removes a name. A mount point is refused with `Busy` unless `what` is a mount point. `hold`:
    /// this session has the file open; the server keeps it although its last name goes. Answer:
    /// `Removed`.
    Remove {
        /// The directory.
        dir: Fid,
        /// Name of the entry in `dir`.
        name: Name,
        /// The kinds of entry that the caller agrees to remove; others are refused.
        what: RemoveWhat,
        /// This session has the file open, so it lives on without a name until `Unhold`.
        hold: bool,
    },
    /// Answer: `Renamed`. `hold` as in `Remove`, for the file that is replaced.
    Rename {
        /// The directory that has the entry now.
        from_dir: Fid,
        /// The entry's name now.
        from: Name,
        /// The directory that gets the entry; in the same volume.
        to_dir: Fid,
        /// The entry's new name.
        to: Name,
        /// The treatment of an entry that has the new name.
        mode: RenameMode,
        /// This session has the file open that is replaced.
        hold: bool,
    },
    /// A symbolic link's or mount point's target. Answer: `Target`.
    ReadLink {
        /// The symbolic link or mount point.
        fid: Fid,
    },

    /// Answer: `Status`.
    GetStatus {
        /// The file.
        fid: Fid,
    },
    /// The file of a vnode number, for the file handles of a kernel, which name a file by its
    /// number alone. A fid proves that its holder was let through the path, and the answer has the
    /// file's: only the superuser and administrators, whom no path stops, may make the call.
    /// Refused with `Stale` if no file that has a name is there. Answer: `Status`.
    ByVnode {
        /// Volume and vnode; the uniquifier is not looked at.
        fid: Fid,
        /// The directory that has this directory is meant; the root's is the root.
        parent: bool,
    },
    /// Answer: `Status`.
    SetStatus {
        /// The file.
        fid: Fid,
        /// The fields to change.
        change: StatusChange,
    },
    /// Answer: `Xattr`.
    XattrGet {
        /// The file.
        fid: Fid,
        /// Name of the attribute with its namespace, as `user.note`.
        name: Bytes,
    },
    /// Answer: `Status`.
    XattrSet {
        /// The file.
        fid: Fid,
        /// Name of the attribute with its namespace.
        name: Bytes,
        /// The new value; at most [`crate::limits::XATTR_BYTES_MAX`] bytes.
        value: Bytes,
        /// The treatment of an attribute that exists.
        mode: XattrMode,
    },
    /// Answer: `XattrNames`.
    XattrList {
        /// The file.
        fid: Fid,
    },
    /// Answer: `Status`.
    XattrRemove {
        /// The file.
        fid: Fid,
        /// Name of the attribute with its namespace; `NoXattr` if the file does not have it.
        name: Bytes,
    },
    /// Answer: `Volume`.
    VolumeStatus {
        /// Any file of the volume.
        fid: Fid,
    },
    /// The access list that decides for this file or directory. Answer: `Acl`.
    GetAcl {
        /// The file or directory.
        fid: Fid,
    },
    /// Its own list, as stored; `None`: it inherits the list of its directory, or of the directory
    /// above, from now on. The first list of a volume's root makes lists decide in the volume;
    /// without one mode bits decide; only administrators may change that. `instead_of`: only if the
    /// list that decides now has this sum (SHA-256 of it as stored), otherwise `Conflict`. Answer:
    /// `Done`.
    SetAcl {
        /// The file or directory.
        fid: Fid,
        /// The new list in its stored form; `None` removes the file's own list.
        list: Option<Bytes>,
        /// SHA-256 of the list that the caller has seen.
        instead_of: Option<[u8; 32]>,
    },
    /// The caller's rights to this file or directory. Promises [`Fid::rights`] of the volume.
    /// Answer: `Rights`.
    Rights {
        /// The file or directory.
        fid: Fid,
    },
    /// In bytes and files; 0 means no limit. Superuser only. Answer: `Volume`.
    SetQuota {
        /// Any file of the volume.
        fid: Fid,
        /// Limit for the bytes of all bodies; 0: none.
        bytes: u64,
        /// Limit for the number of files; 0: none.
        files: u64,
    },

    /// Up to `length` bytes (at most [`crate::limits::PAYLOAD_BYTES_MAX`]); fewer only at the end.
    /// Answer: `Data`.
    Read {
        /// The file.
        fid: Fid,
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        length: u32,
    },
    /// The same, for a client that can unpack. Answer: `Packed` if that is shorter, otherwise
    /// `Data`.
    ReadPacked {
        /// The file.
        fid: Fid,
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        length: u32,
    },
    /// `offset: None` appends: the server chooses the offset. `kill_privileges` as in
    /// [`StatusChange`]. For a trusted host's caller mode bits are not checked: its kernel did that
    /// at the open. Answer: `Written`.
    Write {
        /// The file.
        fid: Fid,
        /// First byte of the range; `None`: the end of the file, which the server determines.
        offset: Option<u64>,
        /// The bytes; at most [`crate::limits::PAYLOAD_BYTES_MAX`].
        data: Bytes,
        /// The data is on disk before the answer; otherwise a `Commit` puts it there.
        stable: bool,
        /// Clear the set-id bits, as the write of an unprivileged user does.
        kill_privileges: bool,
    },
    /// Answer: `Written`, with `count` 0.
    Allocate {
        /// The file.
        fid: Fid,
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        length: u64,
        /// The action on the range.
        mode: AllocateMode,
    },
    /// A program read the file (listed the directory, read the link) at `at`: its access time, if
    /// the volume records reads. It only moves forward, and not past the server's clock: nothing is
    /// changed if a later time is recorded, or if the status was changed behind `at` and the access
    /// time is not `was`. The versions stay, and no promise is broken. Answer: `Done`.
    NoteRead {
        /// The file.
        fid: Fid,
        /// The access time that the client knew.
        was: Timestamp,
        /// When the program read.
        at: Timestamp,
    },
    /// Answer: `Offset`.
    Seek {
        /// The file.
        fid: Fid,
        /// Where the search begins, in bytes.
        offset: u64,
        /// Data or a hole.
        what: SeekWhat,
    },
    /// All earlier changes of the file, or with a directory's fid of its entries, are stable before
    /// the answer. Answer: `Committed`.
    Commit {
        /// The file.
        fid: Fid,
    },
    /// Everything in the volume is stable before the answer. Answer: `Committed`.
    CommitVolume {
        /// Any file of the volume.
        fid: Fid,
    },
    /// A read-only descriptor of the body, over a connection that can pass one; `Unsupported` for
    /// inline bodies and other connections. Answer: `Body`.
    OpenBody {
        /// The file.
        fid: Fid,
    },
    /// As `OpenBody`, for the caller's kernel. The body stays in this file for ever. If the kernel
    /// may write, the loan lasts until `SettleBody` returns it; a body that is in no file is moved
    /// into one. Refused with `Busy` if room is scarce. Answer: `Body`.
    LendBody {
        /// The file.
        fid: Fid,
        /// The use that the caller's kernel makes of the body.
        how: Lending,
    },
    /// Records what kernels wrote into a lent body. `back`: this session's kernel writes no more.
    /// Answer: `Status`.
    SettleBody {
        /// The file.
        fid: Fid,
        /// The loan ends: the caller's kernel has closed the body.
        back: bool,
    },
    /// A preallocated body on the partition of this file's volume: the caller's kernel writes a new
    /// file's body into it (docs/spec/passthrough.md). It belongs to the session. Refused with
    /// `Busy` if room is scarce, or the session has enough. Answer: `Blank`.
    LendBlank {
        /// A file of the volume that will get the new file.
        fid: Fid,
    },
    /// The file's body is from now on this preallocated body of the session, with its content, and
    /// lent to the session. Answer: `Status`.
    AdoptBody {
        /// The file; `NotDelegated` if it may have promises of other sessions.
        fid: Fid,
        /// Number of the preallocated body, as `LendBlank` answered it.
        blank: u64,
    },
    /// Checksums (crc32c) of the body's blocks from block `first` on; none of a lent body. Answer:
    /// `Sums`.
    ReadSums {
        /// The file.
        fid: Fid,
        /// Number of the first block, from 0 on.
        first: u64,
        /// Number of blocks.
        count: u32,
    },

    /// `wait`: the answer comes when the lock is granted. `reclaim`: held before the server
    /// restarted. Answer: `Done`.
    Lock {
        /// The file.
        fid: Fid,
        /// The owner of the lock within this session.
        owner: LockOwner,
        /// The process that asks, for `F_GETLK` of others.
        pid: u32,
        /// POSIX or BSD: locks of different families do not conflict.
        family: LockFamily,
        /// The bytes that the lock covers.
        range: ByteRange,
        /// Shared or exclusive.
        mode: LockMode,
        /// The answer comes when the lock is granted; otherwise a conflict is refused at once.
        wait: bool,
        /// The session held the lock before the server restarted; only in the grace period.
        reclaim: bool,
    },
    /// Answer: `Done`.
    Unlock {
        /// The file.
        fid: Fid,
        /// The owner of the lock within this session.
        owner: LockOwner,
        /// POSIX or BSD: locks of different families do not conflict.
        family: LockFamily,
        /// The bytes that the lock covers.
        range: ByteRange,
    },
    /// Answer: `LockTest`.
    TestLock {
        /// The file.
        fid: Fid,
        /// The owner of the lock within this session.
        owner: LockOwner,
        /// POSIX or BSD: locks of different families do not conflict.
        family: LockFamily,
        /// The bytes that the lock covers.
        range: ByteRange,
        /// Shared or exclusive.
        mode: LockMode,
    },

    /// Makes an exclusive POSIX lock persistent, and takes it first if the owner does not have it;
    /// it does not wait. If the lock ends otherwise than by [`Call::FinishLock`], later requests
    /// for its bytes are refused with `LockBroken` until an owner repairs the file
    /// (docs/spec/sharing.md). Answer: `Done`, when the lock's record is on the disk.
    PersistLock {
        /// The file.
        fid: Fid,
        /// The owner of the lock within this session.
        owner: LockOwner,
        /// The process that asks, for `F_GETLK` of others.
        pid: u32,
        /// The bytes that the lock covers.
        range: ByteRange,
        /// How the session comes to it.
        how: PersistHow,
    },
    /// Ends persistent locks of the owner that lie in the range, normally: the file's data are on
    /// the disk, then the records go, then the bytes are unlocked. `Stale`: there is no such lock.
    /// Answer: `Done`.
    FinishLock {
        /// The file.
        fid: Fid,
        /// The owner of the lock within this session.
        owner: LockOwner,
        /// The bytes that are unlocked.
        range: ByteRange,
    },

    /// Opens a file: what the session does with its data, and what others may not do meanwhile
    /// (docs/spec/sharing.md). Refused with `ShareConflict` or `KeyConflict` beside opens that do
    /// not bear it. Answer: `Opened`.
    Open {
        /// The file.
        fid: Fid,
        /// The uses of the data that the session has; one or both.
        access: DataUse,
        /// The uses that no one else has meanwhile.
        deny: DataUse,
        /// All who have the file open have this key, or all have none.
        key: Option<ShareKey>,
        /// The session had this open before the server restarted; only in the grace period.
        claims: bool,
    },
    /// Ends an open of this session; `Stale`: it has no such open. Answer: `Done`.
    Close {
        /// The file.
        fid: Fid,
        /// The open.
        open: OpenId,
    },
    /// An open of this session has less access, or denies less, from now on; `Invalid`: that is
    /// more than it has. Answer: `Done`.
    Downgrade {
        /// The file.
        fid: Fid,
        /// The open.
        open: OpenId,
        /// The uses that the session keeps; one or both.
        access: DataUse,
        /// The uses that no one else has.
        deny: DataUse,
    },

    /// This session has these files open (after a server restart or a new session). Answer: `Done`.
    Hold {
        /// The files; those that are gone are passed over.
        fids: Vec<Fid>,
    },
    /// This session has closed these files. Answer: `Done`.
    Unhold {
        /// The files; those that are not held are passed over.
        fids: Vec<Fid>,
    },
    /// After a server restart: all locks and holds of this session are claimed. Answer: `Done`.
    ReclaimDone,

    /// An exclusive promise of a directory (`docs/spec/delegation.md`), and slots for new files.
    /// Answer: `Delegation`.
    Delegate {
        /// The directory.
        fid: Fid,
    },
    /// A change that this session answered itself, at the time `at`, under a delegation. `slot`:
    /// that of its new file; 0: it makes none, or the server chooses. `call` satisfies
    /// [`Call::delegable`]. Answer: that of `call`.
    Delegated {
        /// When the client answered the change to its caller.
        at: Timestamp,
        /// Number of the new file; 0: the change makes none, or the server chooses.
        slot: u64,
        /// The change.
        call: Box<Call>,
    },
    /// Delegations that this session returns, with all their changes. Answer: `Done`.
    Return {
        /// The directories.
        fids: Vec<Fid>,
    },

    /// Administration of volumes. Answers: see [`VolumeCall`].
    Volume(VolumeCall),
    /// The cell database. Answers: see [`CellCall`].
    Cell(CellCall),
    /// Users and groups. `on_behalf`: the caller of a server without database. Answers: see
    /// [`PtsCall`].
    Pts {
        /// The caller for whom a server without database asks.
        on_behalf: Option<PrincipalId>,
        /// The call about principals.
        call: Box<PtsCall>,
    },

    /// Authentication. `behalf`: the caller of a server without database. Answers: see
    /// [`AuthCall`].
    Auth {
        /// The caller for whom a server without database asks.
        behalf: Option<Behalf>,
        /// The call of authentication.
        call: Box<AuthCall>,
    },

    /// Fences and mandates of administration. `behalf`: the caller of a server without database;
    /// [`PrincipalId::NONE`]: its superuser. Answers: see [`GuardCall`].
    Guard {
        /// The caller for whom a server without database asks.
        behalf: Option<PrincipalId>,
        /// The call about fences and mandates.
        call: Box<GuardCall>,
    },

    /// The server's state, as JSON, for `rialto status`. Answer: `Report`.
    ServerReport,
    /// Verifies every checksum of the partition in the background (`start`), or reports the
    /// progress. Answer: `Report` (JSON).
    Scrub {
        /// Begin a scrub, unless one runs.
        start: bool,
    },
}
