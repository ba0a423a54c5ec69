//! The call table: one row for each call of the service, with everything about it that does not
//! depend on its arguments.
//!
//! Model: a call is of one [`Procedure`]; its row is [`Procedure::traits`]. The wire numbers, the
//! kind of answer, exactly-once, retry, blocking, delegation, access and the names in counters and
//! logs follow from the row. Where arguments matter too, a method of [`Call`] adds them to the row
//! ([`Call::leaves_nothing`], [`Call::data`]). A call without a row does not compile.
//!
//! How to add a call: `docs/walks/add-a-call.md`.

use crate::limits::PAYLOAD_BYTES_MAX;
use crate::{
    Answer, AuthCall, Call, CellCall, Fid, GuardCall, Lending, LevelAct, PtsCall, VolumeCall,
    VolumeId,
};

/// The state that a successful call leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEffect {
    /// Nothing; it reads files or their status, and may be executed again at any time.
    Look,
    /// Nothing; it reads something else, or makes earlier changes stable.
    Ask,
    /// Something that the session or the server process has: a lock, a hold, a loan, a delegation.
    Session,
    /// A change on a partition, with its reply record: exactly once.
    File,
    /// A change of a record of the cell database. The record's revision reveals a repetition.
    Record,
}

impl CallEffect {
    /// Whether success leaves anything changed or held.
    pub const fn leaves_nothing(self) -> bool {
        matches!(self, CallEffect::Look | CallEffect::Ask)
    }

    /// Whether success changes files or records.
    pub const fn changes(self) -> bool {
        matches!(self, CallEffect::File | CallEffect::Record)
    }
}

/// The thing for which the thread that executes a call may have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallBlocking {
    /// Nothing that takes long.
    Never,
    /// The disk, if the body is not in the page cache or a large part of it is read.
    Body,
    /// The disk, depending on the arguments.
    Arguments,
    /// The disk.
    Disk,
    /// The cell database, which may be at another server.
    Database,
    /// The disk and the cell database.
    Both,
    /// A future change.
    Notice,
}

/// The rule that decides whether a caller may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAccess {
    /// None: the call reveals nothing protected, or only concerns the caller's session.
    Anybody,
    /// The file's: mode bits or access list.
    File,
    /// The caller showed its identity.
    Proved,
    /// The record's: its owner and its privacy flags.
    Record,
    /// The caller administers what the arguments name.
    Scopes,
    /// The caller is in `system:administrators`.
    Admin,
    /// The caller is a server of the cell, or one that enters its key.
    Enrolment,
    /// The caller is a server of the cell.
    Server,
}

/// The row of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTraits {
    /// Used in counters, traces and the audit log.
    pub name: &'static str,
    /// The one kind of answer that belongs to it; [`Procedure::ReadPacked`] has two.
    pub answer: AnswerKind,
    /// The state that it leaves behind.
    pub effect: CallEffect,
    /// The thing for which its thread may wait.
    pub blocking: CallBlocking,
    /// The rule that decides whether a caller may make it.
    pub access: CallAccess,
    /// Whether it may travel inside [`Call::Delegated`].
    pub delegable: bool,
}

/// Whether a row has the optional word.
const fn word(word: &str) -> bool {
    !word.is_empty()
}

/// Declares the table.
macro_rules! calls {
    ($($variant:ident = $value:literal, $name:literal, $answer:ident, $effect:ident,
       $blocking:ident, $access:ident $(, $delegable:ident)?;)*) => {
        /// The kinds of calls. The numbers are wire values: never renumber.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[allow(missing_docs, reason = "the variants are documented in `Call`")]
        pub enum Procedure { $($variant = $value,)* }

        impl Procedure {
            /// Every kind, in the order of the table.
            pub const ALL: &'static [Procedure] = &[$(Procedure::$variant,)*];

            /// The kind with the given wire value.
            pub const fn from_wire(value: u16) -> Option<Self> {
                match value {
                    $($value => Some(Procedure::$variant),)*
                    _ => None,
                }
            }

            /// The kind's index in [`Procedure::ALL`].
            pub const fn index(self) -> usize {
                /// The same kinds, numbered from 0.
                #[allow(dead_code, reason = "only their numbers are used")]
                enum Place { $($variant,)* }
                match self {
                    $(Procedure::$variant => Place::$variant as usize,)*
                }
            }

            /// The kind's row in the table.
            pub const fn traits(self) -> CallTraits {
                match self {
                    $(Procedure::$variant => CallTraits {
                        name: $name,
                        answer: AnswerKind::$answer,
                        effect: CallEffect::$effect,
                        blocking: CallBlocking::$blocking,
                        access: CallAccess::$access,
                        delegable: false $(|| word(stringify!($delegable)))?,
                    },)*
                }
            }
        }
    };
}

calls! {
    // Kind and number       name                   answer      leaves  waits for  decides
    Root = 1,                "root",                Status,     Look,   Never,     File;
    Lookup = 2,              "lookup",              Entry,      Look,   Never,     File;
    ReadDir = 3,             "read_dir",            Entries,    Look,   Never,     File;
    Make = 4,                "make",                Made,       File,   Never,     File, delegable;
    MakeUnnamed = 5,         "make_unnamed",        Status,     File,   Never,     File;
    Link = 6,                "link",                Made,       File,   Never,     File, delegable;
    Remove = 7,              "remove",              Removed,    File,   Never,     File, delegable;
    Rename = 8,              "rename",              Renamed,    File,   Never,     File, delegable;
    ReadLink = 9,            "read_link",           Target,     Look,   Never,     File;
    GetStatus = 10,          "get_status",          Status,     Look,   Never,     File;
    SetStatus = 11,          "set_status",          Status,     File,   Arguments, File, delegable;
    XattrGet = 12,           "xattr_get",           Xattr,      Look,   Never,     File;
    XattrSet = 13,           "xattr_set",           Status,     File,   Never,     File, delegable;
    XattrList = 14,          "xattr_list",          XattrNames, Look,   Never,     File;
    XattrRemove = 15,        "xattr_remove",        Status,     File,   Never,     File, delegable;
    VolumeStatus = 16,       "volume_status",       Volume,     Ask,    Never,     Anybody;
    SetQuota = 17,           "set_quota",           Volume,     File,   Never,     Scopes;
    Read = 18,               "read",                Data,       Look,   Body,      File;
    Write = 19,              "write",               Written,    File,   Arguments, File, delegable;
    Allocate = 20,           "allocate",            Written,    File,   Disk,      File;
    Seek = 21,               "seek",                Offset,     Look,   Never,     File;
    Commit = 22,             "commit",              Committed,  Ask,    Disk,      File;
    CommitVolume = 23,       "commit_volume",       Committed,  Ask,    Disk,      File;
    OpenBody = 24,           "open_body",           Body,       Look,   Body,      File;
    ReadSums = 25,           "read_sums",           Sums,       Look,   Body,      File;
    Lock = 26,               "lock",                Done,       Session,Never,     File;
    Unlock = 27,             "unlock",              Done,       Session,Never,     File;
    TestLock = 28,           "test_lock",           LockTest,   Ask,    Never,     File;
    Hold = 29,               "hold",                Done,       Session,Never,     Anybody;
    Unhold = 30,             "unhold",              Done,       Session,Never,     Anybody;
    ReclaimDone = 31,        "reclaim_done",        Done,       Session,Never,     Anybody;
    ServerReport = 32,       "server_report",       Report,     Ask,    Never,     Anybody;
    Scrub = 33,              "scrub",               Report,     Session,Disk,      Scopes;
    Delegate = 34,           "delegate",            Delegation, Session,Disk,      File;
    Return = 35,             "return",              Done,       Session,Never,     Anybody;
    LendBody = 36,           "lend_body",           Body,       Session,Disk,      File;
    SettleBody = 37,         "settle_body",         Status,     File,   Disk,      File;
    LendBlank = 38,          "lend_blank",          Blank,      Session,Disk,      File;
    AdoptBody = 39,          "adopt_body",          Status,     File,   Disk,      File;
    VolumeCreate = 40,       "volume_create",       Volumes,    File,   Both,      Scopes;
    VolumeRemove = 41,       "volume_remove",       Done,       File,   Disk,      Scopes;
    VolumeRename = 42,       "volume_rename",       Done,       File,   Disk,      Scopes;
    VolumeClone = 43,        "volume_clone",        Volumes,    File,   Both,      Scopes;
    VolumeSetFields = 44,    "volume_set_fields",   Done,       File,   Disk,      Scopes;
    VolumeList = 45,         "volume_list",         Volumes,    Ask,    Disk,      Anybody;
    VolumeExamine = 46,      "volume_examine",      Volumes,    Ask,    Disk,      Anybody;
    Partitions = 47,         "partitions",          Partitions, Ask,    Disk,      Anybody;
    VolumeChanges = 48,      "volume_changes",      Part,       Ask,    Disk,      Scopes;
    VolumeApply = 49,        "volume_apply",        Cursor,     File,   Disk,      Scopes;
    VolumeFinish = 50,       "volume_finish",       Volumes,    File,   Disk,      Scopes;
    VolumePull = 51,         "volume_pull",         Tasks,      File,   Disk,      Scopes;
    Tasks = 52,              "tasks",               Tasks,      Ask,    Disk,      Scopes;
    VolumeHold = 53,         "volume_hold",         Done,       File,   Disk,      Scopes;
    VolumeServe = 54,        "volume_serve",        Done,       File,   Disk,      Scopes;
    VolumeIncoming = 55,     "volume_incoming",     Incoming,   Ask,    Disk,      Scopes;
    GetAcl = 56,             "get_acl",             Acl,        Look,   Never,     File;
    SetAcl = 57,             "set_acl",             Done,       File,   Never,     File;
    Rights = 58,             "rights",              Rights,     Look,   Never,     File;
    VolumeBeside = 59,       "volume_beside",       Tasks,      File,   Disk,      Scopes;
    ReadPacked = 60,         "read_packed",         Packed,     Look,   Body,      File;
    ByVnode = 61,            "by_vnode",            Status,     Look,   Never,     File;
    NoteRead = 62,           "note_read",           Done,       File,   Never,     File;
    VolumeTakeOver = 63,     "volume_take_over",    Volumes,    File,   Disk,      Scopes;
    CellGroup = 64,          "cell_group",          Groups,     Ask,    Database,  Anybody;
    CellGroups = 65,         "cell_groups",         Groups,     Ask,    Database,  Anybody;
    CellPutGroup = 66,       "cell_put_group",      Revision,   Record, Database,  Scopes;
    CellRemoveGroup = 67,    "cell_remove_group",   Revision,   Record, Database,  Scopes;
    CellTakeNumbers = 68,    "cell_take_numbers",   Number,     Record, Database,  Scopes;
    CellServers = 69,        "cell_servers",        Servers,    Ask,    Database,  Anybody;
    CellPutServer = 70,      "cell_put_server",     Revision,   Record, Database,  Enrolment;
    CellRemoveServer = 71,   "cell_remove_server",  Revision,   Record, Database,  Admin;
    CellChanges = 72,        "cell_changes",        Changes,    Ask,    Database,  Anybody;
    CellMe = 73,             "cell_me",             Servers,    Ask,    Database,  Anybody;
    CellPrincipal = 74,      "cell_principal",      Principals, Ask,    Database,  Server;
    CellSubdomain = 75,      "cell_subdomain",      Subdomain,  Ask,    Database,  Server;
    CellWatch = 76,          "cell_watch",          Changes,    Ask,    Notice,    Server;
    CellCopy = 77,           "cell_copy",           Records,    Ask,    Database,  Server;
    PtsNames = 80,           "pts_names",           Names,      Ask,    Database,  Anybody;
    PtsNumbers = 81,         "pts_numbers",         Names,      Ask,    Database,  Anybody;
    PtsExamine = 82,         "pts_examine",         Principals, Ask,    Database,  Record;
    PtsCreate = 83,          "pts_create",          Principals, Record, Database,  Proved;
    PtsDelete = 84,          "pts_delete",          Done,       Record, Database,  Record;
    PtsRename = 85,          "pts_rename",          Done,       Record, Database,  Record;
    PtsChangeOwner = 86,     "pts_change_owner",    Done,       Record, Database,  Record;
    PtsSetFields = 87,       "pts_set_fields",      Done,       Record, Database,  Record;
    PtsJoin = 88,            "pts_join",            Done,       Record, Database,  Record;
    PtsLeave = 89,           "pts_leave",           Done,       Record, Database,  Record;
    PtsMembership = 90,      "pts_membership",      Names,      Ask,    Database,  Record;
    PtsOwned = 91,           "pts_owned",           Names,      Ask,    Database,  Record;
    PtsEntries = 92,         "pts_entries",         Principals, Ask,    Database,  Record;
    PtsMax = 93,             "pts_max",             Names,      Ask,    Database,  Anybody;
    PtsSetMax = 94,          "pts_set_max",         Done,       Record, Database,  Admin;
    AuthPassword = 96,       "auth_password",       Token,      Ask,    Database,  Anybody;
    AuthAttest = 97,         "auth_attest",         Token,      Ask,    Database,  Proved;
    AuthRenew = 98,          "auth_renew",          Token,      Ask,    Database,  Proved;
    AuthSetPassword = 99,    "auth_set_password",   Done,       Record, Database,  Record;
    AuthKerberos = 100,      "auth_kerberos",       Ticket,     Ask,    Database,  Anybody;
    GuardFences = 104,       "guard_fences",        Fences,     Ask,    Database,  Admin;
    GuardAddFence = 105,     "guard_add_fence",     Enforced,   Record, Database,  Admin;
    GuardRemoveFence = 106,  "guard_remove_fence",  Enforced,   Record, Database,  Admin;
    GuardMandates = 107,     "guard_mandates",      Mandates,   Ask,    Database,  Admin;
    GuardAddMandate = 108,   "guard_add_mandate",   Enforced,   Record, Database,  Admin;
    GuardRemoveMandate = 109,"guard_remove_mandate",Enforced,   Record, Database,  Admin;
    GuardWithdrawKeys = 110, "guard_withdraw_keys", Enforced,   Record, Database,  Admin;
    GuardAuditLines = 111,   "guard_audit_lines",   Report,     Ask,    Disk,      Admin;
    CellInvite = 112,        "cell_invite",         Number,     Record, Database,  Admin;
    CellInvitations = 113,   "cell_invitations",    Invitations,Ask,    Database,  Admin;
    CellUninvite = 114,      "cell_uninvite",       Done,       Record, Database,  Admin;
    CellRedeem = 115,        "cell_redeem",         Invitations,Record, Database,  Server;
    CellJoin = 116,          "cell_join",           Joined,     Record, Database,  Anybody;
    CellCertify = 117,       "cell_certify",        Report,     Ask,    Database,  Server;
    CellServerRoles = 119,   "cell_server_roles",   Report,     Ask,    Database,  Anybody;
    VolumeStandBy = 120,     "volume_stand_by",     Done,       File,   Both,      Scopes;
    VolumeFeed = 121,        "volume_feed",         Feed,       File,   Disk,      Scopes;
    VolumeFollow = 122,      "volume_follow",       Part,       Ask,    Never,     Scopes;
    VolumeStandbys = 123,    "volume_standbys",     Standbys,   Ask,    Never,     Anybody;
    VolumeFailOver = 124,    "volume_fail_over",    Done,       File,   Both,      Scopes;
    VolumeInherit = 125,     "volume_inherit",      Inherited,  Ask,    Disk,      Anybody;
    VolumeEndTask = 126,     "volume_end_task",     Tasks,      Session,Never,     Scopes;
    VolumeFormat = 129,      "volume_format",       Report,     File,   Both,      Scopes;
    VolumeLoads = 130,       "volume_loads",        Report,     Ask,    Disk,      Proved;
    VolumeTrust = 131,       "volume_trust",        Done,       File,   Disk,      Scopes;
    CellLevel = 128,         "cell_level",          Level,      Record, Database,  Scopes;
    CellWithdrawn = 118,     "cell_withdrawn",      Report,     Ask,    Database,  Anybody;
    Open = 132,              "open",                Opened,     Session,Arguments, File;
    Close = 133,             "close",               Done,       Session,Never,     Anybody;
    Downgrade = 134,         "downgrade",           Done,       Session,Never,     Anybody;
    PersistLock = 135,       "persist_lock",        Done,       File,   Disk,      File;
    FinishLock = 136,        "finish_lock",         Done,       File,   Disk,      Anybody;
}

impl Procedure {
    /// Set in the number of a request whose call is [`Call::Delegated`]; the rest is the number of
    /// the call inside.
    pub const DELEGATED: u16 = 1 << 15;
}

/// Declares an enum of wire values with its way back from the wire.
macro_rules! wire_numbers {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $value:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum $name { $($variant = $value,)* }

        impl $name {
            /// Every value.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The value with the given wire value.
            pub const fn from_wire(value: u16) -> Option<Self> {
                match value {
                    $($value => Some($name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

wire_numbers! {
    /// The kinds of answers. The numbers are wire values: never renumber.
    #[allow(missing_docs, reason = "the variants are documented in `Answer`")]
    AnswerKind {
        Done = 1,
        Status = 2,
        Entry = 3,
        Entries = 4,
        Made = 5,
        Removed = 6,
        Renamed = 7,
        Target = 8,
        Xattr = 9,
        XattrNames = 10,
        Volume = 11,
        Data = 12,
        Written = 13,
        Offset = 14,
        Committed = 15,
        Body = 16,
        Sums = 17,
        LockTest = 18,
        Report = 19,
        Delegation = 20,
        Blank = 21,
        Volumes = 22,
        Partitions = 23,
        Part = 24,
        Cursor = 25,
        Tasks = 26,
        Incoming = 27,
        Acl = 28,
        Rights = 29,
        Groups = 32,
        Servers = 33,
        Revision = 34,
        Number = 35,
        Changes = 36,
        Principals = 37,
        Names = 38,
        Token = 40,
        Ticket = 60,
        Subdomain = 39,
        Packed = 41,
        Records = 42,
        Fences = 48,
        Mandates = 49,
        Enforced = 50,
        Invitations = 51,
        Joined = 52,
        Feed = 53,
        Standbys = 54,
        Inherited = 55,
        Level = 62,
        Opened = 63,
    }
}

impl AnswerKind {
    /// The kind of an answer.
    pub const fn of(answer: &Answer) -> AnswerKind {
        match answer {
            Answer::Done => AnswerKind::Done,
            Answer::Status(_) => AnswerKind::Status,
            Answer::Entry { .. } => AnswerKind::Entry,
            Answer::Entries { .. } => AnswerKind::Entries,
            Answer::Made { .. } => AnswerKind::Made,
            Answer::Removed { .. } => AnswerKind::Removed,
            Answer::Renamed { .. } => AnswerKind::Renamed,
            Answer::Target(_) => AnswerKind::Target,
            Answer::Xattr(_) => AnswerKind::Xattr,
            Answer::XattrNames(_) => AnswerKind::XattrNames,
            Answer::Acl { .. } => AnswerKind::Acl,
            Answer::Rights { .. } => AnswerKind::Rights,
            Answer::Volume(_) => AnswerKind::Volume,
            Answer::Data { .. } => AnswerKind::Data,
            Answer::Packed { .. } => AnswerKind::Packed,
            Answer::Written { .. } => AnswerKind::Written,
            Answer::Offset(_) => AnswerKind::Offset,
            Answer::Committed { .. } => AnswerKind::Committed,
            Answer::Body { .. } => AnswerKind::Body,
            Answer::Sums { .. } => AnswerKind::Sums,
            Answer::LockTest(_) => AnswerKind::LockTest,
            Answer::Report(_) => AnswerKind::Report,
            Answer::Delegation { .. } => AnswerKind::Delegation,
            Answer::Blank(_) => AnswerKind::Blank,
            Answer::Volumes { .. } => AnswerKind::Volumes,
            Answer::Partitions(_) => AnswerKind::Partitions,
            Answer::Part(_) => AnswerKind::Part,
            Answer::Cursor(_) => AnswerKind::Cursor,
            Answer::Tasks(_) => AnswerKind::Tasks,
            Answer::Incoming { .. } => AnswerKind::Incoming,
            Answer::Groups { .. } => AnswerKind::Groups,
            Answer::Servers(_) => AnswerKind::Servers,
            Answer::Revision(_) => AnswerKind::Revision,
            Answer::Number(_) => AnswerKind::Number,
            Answer::Changes { .. } => AnswerKind::Changes,
            Answer::Principals { .. } => AnswerKind::Principals,
            Answer::Names { .. } => AnswerKind::Names,
            Answer::Subdomain { .. } => AnswerKind::Subdomain,
            Answer::Records { .. } => AnswerKind::Records,
            Answer::Token(_) => AnswerKind::Token,
            Answer::Ticket { .. } => AnswerKind::Ticket,
            Answer::Fences { .. } => AnswerKind::Fences,
            Answer::Mandates { .. } => AnswerKind::Mandates,
            Answer::Enforced { .. } => AnswerKind::Enforced,
            Answer::Invitations { .. } => AnswerKind::Invitations,
            Answer::Joined { .. } => AnswerKind::Joined,
            Answer::Feed(_) => AnswerKind::Feed,
            Answer::Standbys(_) => AnswerKind::Standbys,
            Answer::Inherited(_) => AnswerKind::Inherited,
            Answer::Level(_) => AnswerKind::Level,
            Answer::Opened { .. } => AnswerKind::Opened,
        }
    }

    /// Whether such an answer sets [`Fid::CURRENT`] for the next call, as [`Answer::current`] does.
    pub const fn has_current(self) -> bool {
        match self {
            AnswerKind::Status
            | AnswerKind::Entry
            | AnswerKind::Made
            | AnswerKind::Renamed
            | AnswerKind::Data
            | AnswerKind::Packed
            | AnswerKind::Written
            | AnswerKind::Body
            | AnswerKind::Opened
            | AnswerKind::Delegation => true,
            AnswerKind::Done
            | AnswerKind::Entries
            | AnswerKind::Removed
            | AnswerKind::Target
            | AnswerKind::Xattr
            | AnswerKind::XattrNames
            | AnswerKind::Acl
            | AnswerKind::Rights
            | AnswerKind::Volume
            | AnswerKind::Offset
            | AnswerKind::Committed
            | AnswerKind::Sums
            | AnswerKind::Blank
            | AnswerKind::LockTest
            | AnswerKind::Report
            | AnswerKind::Token
            | AnswerKind::Ticket
            | AnswerKind::Volumes
            | AnswerKind::Partitions
            | AnswerKind::Part
            | AnswerKind::Cursor
            | AnswerKind::Tasks
            | AnswerKind::Incoming
            | AnswerKind::Groups
            | AnswerKind::Servers
            | AnswerKind::Revision
            | AnswerKind::Number
            | AnswerKind::Changes
            | AnswerKind::Principals
            | AnswerKind::Names
            | AnswerKind::Subdomain
            | AnswerKind::Records
            | AnswerKind::Fences
            | AnswerKind::Mandates
            | AnswerKind::Invitations
            | AnswerKind::Joined
            | AnswerKind::Feed
            | AnswerKind::Standbys
            | AnswerKind::Inherited
            | AnswerKind::Level
            | AnswerKind::Enforced => false,
        }
    }
}

/// How many bytes of file data or of lists a call moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallData {
    /// Bytes that the call carries.
    pub brings: usize,
    /// Bytes that the answer may carry.
    pub wants: usize,
    /// They travel after the message, as payload, and not in it.
    pub is_payload: bool,
}

impl CallData {
    /// The sum of both directions.
    pub const fn bytes(self) -> usize {
        self.brings + self.wants
    }
}

/// The file or the two files that a call names outside of a list, by reference or by mutable
/// reference.
macro_rules! files {
    ($call:expr, $again:ident) => {
        match $call {
            Call::Lookup { dir: fid, .. }
            | Call::ReadDir { dir: fid, .. }
            | Call::Make { dir: fid, .. }
            | Call::MakeUnnamed { dir: fid, .. }
            | Call::Remove { dir: fid, .. }
            | Call::ReadLink { fid }
            | Call::GetStatus { fid }
            | Call::ByVnode { fid, .. }
            | Call::SetStatus { fid, .. }
            | Call::XattrGet { fid, .. }
            | Call::XattrSet { fid, .. }
            | Call::XattrList { fid }
            | Call::XattrRemove { fid, .. }
            | Call::VolumeStatus { fid }
            | Call::GetAcl { fid }
            | Call::SetAcl { fid, .. }
            | Call::Rights { fid }
            | Call::SetQuota { fid, .. }
            | Call::Read { fid, .. }
            | Call::ReadPacked { fid, .. }
            | Call::Write { fid, .. }
            | Call::Allocate { fid, .. }
            | Call::NoteRead { fid, .. }
            | Call::Seek { fid, .. }
            | Call::Commit { fid }
            | Call::CommitVolume { fid }
            | Call::OpenBody { fid }
            | Call::LendBody { fid, .. }
            | Call::SettleBody { fid, .. }
            | Call::LendBlank { fid }
            | Call::AdoptBody { fid, .. }
            | Call::ReadSums { fid, .. }
            | Call::Lock { fid, .. }
            | Call::Unlock { fid, .. }
            | Call::TestLock { fid, .. }
            | Call::Open { fid, .. }
            | Call::Close { fid, .. }
            | Call::Downgrade { fid, .. }
            | Call::PersistLock { fid, .. }
            | Call::FinishLock { fid, .. }
            | Call::Delegate { fid } => [Some(fid), None],
            Call::Delegated { call, .. } => call.$again(),
            Call::Link { fid, dir, .. } => [Some(fid), Some(dir)],
            Call::Rename { from_dir, to_dir, .. } => [Some(from_dir), Some(to_dir)],
            Call::Root { .. }
            | Call::Hold { .. }
            | Call::Unhold { .. }
            | Call::Return { .. }
            | Call::ReclaimDone
            | Call::ServerReport
            | Call::Scrub { .. }
            | Call::Volume(_)
            | Call::Cell(_)
            | Call::Pts { .. }
            | Call::Auth { .. }
            | Call::Guard { .. } => [None, None],
        }
    };
}

impl Call {
    /// The call's row key; of a delegated call that of the call inside.
    pub fn procedure(&self) -> Procedure {
        match self {
            Call::Root { .. } => Procedure::Root,
            Call::Lookup { .. } => Procedure::Lookup,
            Call::ReadDir { .. } => Procedure::ReadDir,
            Call::Make { .. } => Procedure::Make,
            Call::MakeUnnamed { .. } => Procedure::MakeUnnamed,
            Call::Link { .. } => Procedure::Link,
            Call::Remove { .. } => Procedure::Remove,
            Call::Rename { .. } => Procedure::Rename,
            Call::ReadLink { .. } => Procedure::ReadLink,
            Call::GetStatus { .. } => Procedure::GetStatus,
            Call::ByVnode { .. } => Procedure::ByVnode,
            Call::SetStatus { .. } => Procedure::SetStatus,
            Call::XattrGet { .. } => Procedure::XattrGet,
            Call::XattrSet { .. } => Procedure::XattrSet,
            Call::XattrList { .. } => Procedure::XattrList,
            Call::XattrRemove { .. } => Procedure::XattrRemove,
            Call::VolumeStatus { .. } => Procedure::VolumeStatus,
            Call::SetQuota { .. } => Procedure::SetQuota,
            Call::GetAcl { .. } => Procedure::GetAcl,
            Call::SetAcl { .. } => Procedure::SetAcl,
            Call::Rights { .. } => Procedure::Rights,
            Call::Read { .. } => Procedure::Read,
            Call::ReadPacked { .. } => Procedure::ReadPacked,
            Call::Write { .. } => Procedure::Write,
            Call::Allocate { .. } => Procedure::Allocate,
            Call::NoteRead { .. } => Procedure::NoteRead,
            Call::Seek { .. } => Procedure::Seek,
            Call::Commit { .. } => Procedure::Commit,
            Call::CommitVolume { .. } => Procedure::CommitVolume,
            Call::OpenBody { .. } => Procedure::OpenBody,
            Call::LendBody { .. } => Procedure::LendBody,
            Call::SettleBody { .. } => Procedure::SettleBody,
            Call::LendBlank { .. } => Procedure::LendBlank,
            Call::AdoptBody { .. } => Procedure::AdoptBody,
            Call::ReadSums { .. } => Procedure::ReadSums,
            Call::Lock { .. } => Procedure::Lock,
            Call::Unlock { .. } => Procedure::Unlock,
            Call::TestLock { .. } => Procedure::TestLock,
            Call::Open { .. } => Procedure::Open,
            Call::Close { .. } => Procedure::Close,
            Call::Downgrade { .. } => Procedure::Downgrade,
            Call::PersistLock { .. } => Procedure::PersistLock,
            Call::FinishLock { .. } => Procedure::FinishLock,
            Call::Hold { .. } => Procedure::Hold,
            Call::Unhold { .. } => Procedure::Unhold,
            Call::ReclaimDone => Procedure::ReclaimDone,
            Call::ServerReport => Procedure::ServerReport,
            Call::Scrub { .. } => Procedure::Scrub,
            Call::Delegate { .. } => Procedure::Delegate,
            Call::Delegated { call, .. } => call.procedure(),
            Call::Return { .. } => Procedure::Return,
            Call::Volume(call) => call.procedure(),
            Call::Cell(call) => call.procedure(),
            Call::Pts { call, .. } => call.procedure(),
            Call::Auth { call, .. } => call.procedure(),
            Call::Guard { call, .. } => call.procedure(),
        }
    }

    /// Its row in the call table; of a delegated call that of the call inside.
    pub fn traits(&self) -> CallTraits {
        self.procedure().traits()
    }

    /// Whether success leaves something changed on a partition, so that the reply must be
    /// remembered for exactly-once. The records of the cell database have revisions instead.
    pub fn changes(&self) -> bool {
        self.traits().effect == CallEffect::File
            && !matches!(self, Call::Volume(VolumeCall::Format { raise: false, .. }))
    }

    /// Whether its reply is remembered while the session lasts: executed twice, the call would do
    /// something else. After a restart of the server a remembered change is still done, and an open
    /// is none any more.
    pub fn is_remembered(&self) -> bool {
        self.changes() || matches!(self, Call::Open { .. } | Call::Close { .. })
    }

    /// Whether the call leaves nothing behind, neither in files and records nor in the session: a
    /// caller may abandon it without knowing whether it was executed.
    pub fn leaves_nothing(&self) -> bool {
        match self {
            Call::LendBody { how: Lending::Read, .. }
            | Call::Scrub { start: false }
            | Call::Cell(CellCall::Level { act: LevelAct::Ask })
            | Call::Volume(VolumeCall::Format { raise: false, .. }) => true,
            call => call.traits().effect.leaves_nothing(),
        }
    }

    /// Whether it may travel inside [`Call::Delegated`].
    pub fn delegable(&self) -> bool {
        !matches!(self, Call::Delegated { .. }) && self.traits().delegable
    }

    /// Whether a server makes the call for one of its own callers.
    pub const fn is_on_behalf(&self) -> bool {
        matches!(
            self,
            Call::Pts { on_behalf: Some(_), .. }
                | Call::Auth { behalf: Some(_), .. }
                | Call::Guard { behalf: Some(_), .. }
        )
    }

    /// The file or the two files that it names outside of a list.
    pub fn files(&self) -> [Option<&Fid>; 2] {
        files!(self, files)
    }

    /// As [`Call::files`], by mutable reference.
    pub fn files_mut(&mut self) -> [Option<&mut Fid>; 2] {
        files!(self, files_mut)
    }

    /// Every fid that the call names, also in lists.
    pub fn fids_mut(&mut self) -> Vec<&mut Fid> {
        match self {
            Call::Hold { fids } | Call::Unhold { fids } | Call::Return { fids } => {
                fids.iter_mut().collect()
            }
            call => call.files_mut().into_iter().flatten().collect(),
        }
    }

    /// The volume whose files it changes; `None`: it changes no file.
    pub fn changed_volume(&self) -> Option<VolumeId> {
        // Two files are in one volume, or the call is refused.
        let first = self.files().into_iter().flatten().next();
        first.filter(|_| self.changes()).map(|fid| fid.volume)
    }

    /// The bytes that the call and its answer move.
    pub fn data(&self) -> CallData {
        let payload = |brings, wants| CallData { brings, wants, is_payload: true };
        let inline = |brings, wants| CallData { brings, wants, is_payload: false };
        match self {
            Call::Read { length, .. } | Call::ReadPacked { length, .. } => {
                payload(0, *length as usize)
            }
            Call::Write { data, .. } => payload(data.len(), 0),
            Call::Volume(VolumeCall::Changes { bytes_max, .. }) => payload(0, *bytes_max as usize),
            Call::Volume(VolumeCall::Follow(follow)) => payload(0, follow.bytes_max as usize),
            Call::Volume(VolumeCall::Apply { part, .. }) => payload(part.len(), 0),
            Call::Cell(CellCall::Copy { .. }) => payload(0, PAYLOAD_BYTES_MAX),
            Call::ReadDir { bytes_max, .. } => inline(0, *bytes_max as usize),
            Call::XattrSet { value, .. } => inline(value.len(), 0),
            Call::Delegated { call, .. } => call.data(),
            Call::Root { .. }
            | Call::Lookup { .. }
            | Call::Make { .. }
            | Call::MakeUnnamed { .. }
            | Call::Link { .. }
            | Call::Remove { .. }
            | Call::Rename { .. }
            | Call::ReadLink { .. }
            | Call::GetStatus { .. }
            | Call::ByVnode { .. }
            | Call::SetStatus { .. }
            | Call::XattrGet { .. }
            | Call::XattrList { .. }
            | Call::XattrRemove { .. }
            | Call::VolumeStatus { .. }
            | Call::SetQuota { .. }
            | Call::GetAcl { .. }
            | Call::SetAcl { .. }
            | Call::Rights { .. }
            | Call::Allocate { .. }
            | Call::NoteRead { .. }
            | Call::Seek { .. }
            | Call::Commit { .. }
            | Call::CommitVolume { .. }
            | Call::OpenBody { .. }
            | Call::LendBody { .. }
            | Call::SettleBody { .. }
            | Call::LendBlank { .. }
            | Call::AdoptBody { .. }
            | Call::ReadSums { .. }
            | Call::Lock { .. }
            | Call::Unlock { .. }
            | Call::TestLock { .. }
            | Call::Open { .. }
            | Call::Close { .. }
            | Call::Downgrade { .. }
            | Call::PersistLock { .. }
            | Call::FinishLock { .. }
            | Call::Hold { .. }
            | Call::Unhold { .. }
            | Call::ReclaimDone
            | Call::ServerReport
            | Call::Scrub { .. }
            | Call::Delegate { .. }
            | Call::Return { .. }
            | Call::Cell(_)
            | Call::Pts { .. }
            | Call::Auth { .. }
            | Call::Guard { .. }
            | Call::Volume(_) => CallData::default(),
        }
    }
}

impl VolumeCall {
    /// Its kind.
    pub const fn procedure(&self) -> Procedure {
        match self {
            VolumeCall::Create { .. } => Procedure::VolumeCreate,
            VolumeCall::Remove { .. } => Procedure::VolumeRemove,
            VolumeCall::Rename { .. } => Procedure::VolumeRename,
            VolumeCall::Clone { .. } => Procedure::VolumeClone,
            VolumeCall::SetFields { .. } => Procedure::VolumeSetFields,
            VolumeCall::List { .. } => Procedure::VolumeList,
            VolumeCall::Examine { .. } => Procedure::VolumeExamine,
            VolumeCall::Partitions => Procedure::Partitions,
            VolumeCall::Changes { .. } => Procedure::VolumeChanges,
            VolumeCall::Apply { .. } => Procedure::VolumeApply,
            VolumeCall::Finish { .. } => Procedure::VolumeFinish,
            VolumeCall::Pull(_) => Procedure::VolumePull,
            VolumeCall::Tasks => Procedure::Tasks,
            VolumeCall::EndTask { .. } => Procedure::VolumeEndTask,
            VolumeCall::Hold { .. } => Procedure::VolumeHold,
            VolumeCall::Serve { .. } => Procedure::VolumeServe,
            VolumeCall::Beside { .. } => Procedure::VolumeBeside,
            VolumeCall::TakeOver { .. } => Procedure::VolumeTakeOver,
            VolumeCall::Incoming { .. } => Procedure::VolumeIncoming,
            VolumeCall::StandBy { .. } => Procedure::VolumeStandBy,
            VolumeCall::Format { .. } => Procedure::VolumeFormat,
            VolumeCall::Trust { .. } => Procedure::VolumeTrust,
            VolumeCall::Loads { .. } => Procedure::VolumeLoads,
            VolumeCall::Feed { .. } => Procedure::VolumeFeed,
            VolumeCall::Follow(_) => Procedure::VolumeFollow,
            VolumeCall::Standbys { .. } => Procedure::VolumeStandbys,
            VolumeCall::FailOver { .. } => Procedure::VolumeFailOver,
            VolumeCall::Inherit { .. } => Procedure::VolumeInherit,
        }
    }

    /// Whether success leaves something changed.
    pub const fn changes(&self) -> bool {
        !matches!(self, VolumeCall::Format { raise: false, .. })
            && self.procedure().traits().effect.changes()
    }
}

impl CellCall {
    /// Its kind.
    pub const fn procedure(&self) -> Procedure {
        match self {
            CellCall::Group { .. } => Procedure::CellGroup,
            CellCall::Groups { .. } => Procedure::CellGroups,
            CellCall::PutGroup { .. } => Procedure::CellPutGroup,
            CellCall::RemoveGroup { .. } => Procedure::CellRemoveGroup,
            CellCall::TakeNumbers { .. } => Procedure::CellTakeNumbers,
            CellCall::Servers => Procedure::CellServers,
            CellCall::PutServer { .. } => Procedure::CellPutServer,
            CellCall::RemoveServer { .. } => Procedure::CellRemoveServer,
            CellCall::Changes { .. } => Procedure::CellChanges,
            CellCall::Me => Procedure::CellMe,
            CellCall::Principal { .. } => Procedure::CellPrincipal,
            CellCall::Subdomain { .. } => Procedure::CellSubdomain,
            CellCall::Watch { .. } => Procedure::CellWatch,
            CellCall::Copy { .. } => Procedure::CellCopy,
            CellCall::Invite { .. } => Procedure::CellInvite,
            CellCall::Invitations { .. } => Procedure::CellInvitations,
            CellCall::Uninvite { .. } => Procedure::CellUninvite,
            CellCall::Redeem { .. } => Procedure::CellRedeem,
            CellCall::Join { .. } => Procedure::CellJoin,
            CellCall::Certify { .. } => Procedure::CellCertify,
            CellCall::Withdrawn => Procedure::CellWithdrawn,
            CellCall::ServerRoles => Procedure::CellServerRoles,
            CellCall::Level { .. } => Procedure::CellLevel,
        }
    }

    /// Whether success leaves something changed.
    pub const fn changes(&self) -> bool {
        !matches!(self, CellCall::Level { act: LevelAct::Ask })
            && self.procedure().traits().effect.changes()
    }
}

impl PtsCall {
    /// Its kind.
    pub const fn procedure(&self) -> Procedure {
        match self {
            PtsCall::Names { .. } => Procedure::PtsNames,
            PtsCall::Numbers { .. } => Procedure::PtsNumbers,
            PtsCall::Examine { .. } => Procedure::PtsExamine,
            PtsCall::Create { .. } => Procedure::PtsCreate,
            PtsCall::Delete { .. } => Procedure::PtsDelete,
            PtsCall::Rename { .. } => Procedure::PtsRename,
            PtsCall::ChangeOwner { .. } => Procedure::PtsChangeOwner,
            PtsCall::SetFields { .. } => Procedure::PtsSetFields,
            PtsCall::Join { .. } => Procedure::PtsJoin,
            PtsCall::Leave { .. } => Procedure::PtsLeave,
            PtsCall::Membership { .. } => Procedure::PtsMembership,
            PtsCall::Owned { .. } => Procedure::PtsOwned,
            PtsCall::Entries { .. } => Procedure::PtsEntries,
            PtsCall::Max => Procedure::PtsMax,
            PtsCall::SetMax { .. } => Procedure::PtsSetMax,
        }
    }

    /// Whether success leaves something changed.
    pub const fn changes(&self) -> bool {
        self.procedure().traits().effect.changes()
    }
}

impl AuthCall {
    /// Its kind.
    pub const fn procedure(&self) -> Procedure {
        match self {
            AuthCall::Password { .. } => Procedure::AuthPassword,
            AuthCall::Attest { .. } => Procedure::AuthAttest,
            AuthCall::Kerberos { .. } => Procedure::AuthKerberos,
            AuthCall::Renew { .. } => Procedure::AuthRenew,
            AuthCall::SetPassword { .. } => Procedure::AuthSetPassword,
        }
    }

    /// Whether success leaves something changed.
    pub const fn changes(&self) -> bool {
        self.procedure().traits().effect.changes()
    }
}

impl GuardCall {
    /// Its kind.
    pub const fn procedure(&self) -> Procedure {
        match self {
            GuardCall::Fences { .. } => Procedure::GuardFences,
            GuardCall::AddFence { .. } => Procedure::GuardAddFence,
            GuardCall::RemoveFence { .. } => Procedure::GuardRemoveFence,
            GuardCall::Mandates { .. } => Procedure::GuardMandates,
            GuardCall::AddMandate { .. } => Procedure::GuardAddMandate,
            GuardCall::RemoveMandate { .. } => Procedure::GuardRemoveMandate,
            GuardCall::WithdrawKeys { .. } => Procedure::GuardWithdrawKeys,
            GuardCall::AuditLines { .. } => Procedure::GuardAuditLines,
        }
    }

    /// Whether success leaves something changed.
    pub const fn changes(&self) -> bool {
        self.procedure().traits().effect.changes()
    }
}
