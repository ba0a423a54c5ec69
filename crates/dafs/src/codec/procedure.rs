//! The numbers of calls and of kinds of answers. Wire values: never renumber.

use types::{Answer, AuthCall, Call, CellCall, GuardCall, PtsCall, VolumeCall};

/// Declares an enum of wire values with its way back from the wire.
macro_rules! wire_numbers {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum $name { $($(#[$doc])* $variant = $value,)* }

        impl $name {
            /// Every value.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The one with the given wire value.
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
    /// Which call a request holds.
    #[allow(missing_docs)] // named as in `types::Call`
    Procedure {
        Root = 1,
        Lookup = 2,
        ReadDir = 3,
        Make = 4,
        MakeUnnamed = 5,
        Link = 6,
        Remove = 7,
        Rename = 8,
        ReadLink = 9,
        GetStatus = 10,
        SetStatus = 11,
        XattrGet = 12,
        XattrSet = 13,
        XattrList = 14,
        XattrRemove = 15,
        VolumeStatus = 16,
        SetQuota = 17,
        Read = 18,
        Write = 19,
        Allocate = 20,
        Seek = 21,
        Commit = 22,
        CommitVolume = 23,
        OpenBody = 24,
        ReadSums = 25,
        Lock = 26,
        Unlock = 27,
        TestLock = 28,
        Hold = 29,
        Unhold = 30,
        ReclaimDone = 31,
        ServerReport = 32,
        Scrub = 33,
        Delegate = 34,
        Return = 35,
        LendBody = 36,
        SettleBody = 37,
        LendBlank = 38,
        AdoptBody = 39,
        VolumeCreate = 40,
        VolumeRemove = 41,
        VolumeRename = 42,
        VolumeClone = 43,
        VolumeSetFields = 44,
        VolumeList = 45,
        VolumeExamine = 46,
        Partitions = 47,
        VolumeChanges = 48,
        VolumeApply = 49,
        VolumeFinish = 50,
        VolumePull = 51,
        Tasks = 52,
        VolumeHold = 53,
        VolumeServe = 54,
        VolumeIncoming = 55,
        GetAcl = 56,
        SetAcl = 57,
        Rights = 58,
        VolumeBeside = 59,
        ReadPacked = 60,
        CellGroup = 64,
        CellGroups = 65,
        CellPutGroup = 66,
        CellRemoveGroup = 67,
        CellTakeNumbers = 68,
        CellServers = 69,
        CellPutServer = 70,
        CellRemoveServer = 71,
        CellChanges = 72,
        CellMe = 73,
        CellPrincipal = 74,
        CellSubdomain = 75,
        CellWatch = 76,
        PtsNames = 80,
        PtsNumbers = 81,
        PtsExamine = 82,
        PtsCreate = 83,
        PtsDelete = 84,
        PtsRename = 85,
        PtsChangeOwner = 86,
        PtsSetFields = 87,
        PtsJoin = 88,
        PtsLeave = 89,
        PtsMembership = 90,
        PtsOwned = 91,
        PtsEntries = 92,
        PtsMax = 93,
        PtsSetMax = 94,
        AuthPassword = 96,
        AuthAttest = 97,
        AuthRenew = 98,
        AuthSetPassword = 99,
        AuthKerberos = 100,
        GuardFences = 104,
        GuardAddFence = 105,
        GuardRemoveFence = 106,
        GuardMandates = 107,
        GuardAddMandate = 108,
        GuardRemoveMandate = 109,
        GuardWithdrawKeys = 110,
    }
}

wire_numbers! {
    /// Which kind of answer a reply holds.
    #[allow(missing_docs)] // named as in `types::Answer`
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
        Fences = 48,
        Mandates = 49,
        Enforced = 50,
    }
}

impl Procedure {
    /// Set in the number of a request whose call is [`Call::Delegated`]; the rest is the number of the call inside.
    pub const DELEGATED: u16 = 1 << 15;

    /// The procedure of a call; of a delegated one that of the call inside.
    pub fn of(call: &Call) -> Procedure {
        match call {
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
            Call::Hold { .. } => Procedure::Hold,
            Call::Unhold { .. } => Procedure::Unhold,
            Call::ReclaimDone => Procedure::ReclaimDone,
            Call::ServerReport => Procedure::ServerReport,
            Call::Scrub { .. } => Procedure::Scrub,
            Call::Delegate { .. } => Procedure::Delegate,
            Call::Delegated { call, .. } => Procedure::of(call),
            Call::Return { .. } => Procedure::Return,
            Call::Volume(call) => Procedure::of_volume(call),
            Call::Cell(call) => Procedure::of_cell(call),
            Call::Pts { call, .. } => Procedure::of_pts(call),
            Call::Auth { call, .. } => Procedure::of_auth(call),
            Call::Guard { call, .. } => Procedure::of_guard(call),
        }
    }

    const fn of_guard(call: &GuardCall) -> Procedure {
        match call {
            GuardCall::Fences { .. } => Procedure::GuardFences,
            GuardCall::AddFence { .. } => Procedure::GuardAddFence,
            GuardCall::RemoveFence { .. } => Procedure::GuardRemoveFence,
            GuardCall::Mandates { .. } => Procedure::GuardMandates,
            GuardCall::AddMandate { .. } => Procedure::GuardAddMandate,
            GuardCall::RemoveMandate { .. } => Procedure::GuardRemoveMandate,
            GuardCall::WithdrawKeys { .. } => Procedure::GuardWithdrawKeys,
        }
    }

    const fn of_auth(call: &AuthCall) -> Procedure {
        match call {
            AuthCall::Password { .. } => Procedure::AuthPassword,
            AuthCall::Attest { .. } => Procedure::AuthAttest,
            AuthCall::Kerberos { .. } => Procedure::AuthKerberos,
            AuthCall::Renew { .. } => Procedure::AuthRenew,
            AuthCall::SetPassword { .. } => Procedure::AuthSetPassword,
        }
    }

    const fn of_volume(call: &VolumeCall) -> Procedure {
        match call {
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
            VolumeCall::Hold { .. } => Procedure::VolumeHold,
            VolumeCall::Serve { .. } => Procedure::VolumeServe,
            VolumeCall::Beside { .. } => Procedure::VolumeBeside,
            VolumeCall::Incoming { .. } => Procedure::VolumeIncoming,
        }
    }

    const fn of_cell(call: &CellCall) -> Procedure {
        match call {
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
        }
    }

    const fn of_pts(call: &PtsCall) -> Procedure {
        match call {
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

    /// The one kind of answer that belongs to it.
    pub const fn answer(self) -> AnswerKind {
        match self {
            Procedure::Root
            | Procedure::GetStatus
            | Procedure::SetStatus
            | Procedure::MakeUnnamed
            | Procedure::XattrSet
            | Procedure::XattrRemove
            | Procedure::SettleBody
            | Procedure::AdoptBody => AnswerKind::Status,
            Procedure::Lookup => AnswerKind::Entry,
            Procedure::ReadDir => AnswerKind::Entries,
            Procedure::Make | Procedure::Link => AnswerKind::Made,
            Procedure::Remove => AnswerKind::Removed,
            Procedure::Rename => AnswerKind::Renamed,
            Procedure::ReadLink => AnswerKind::Target,
            Procedure::XattrGet => AnswerKind::Xattr,
            Procedure::XattrList => AnswerKind::XattrNames,
            Procedure::VolumeStatus | Procedure::SetQuota => AnswerKind::Volume,
            Procedure::Read => AnswerKind::Data,
            // Or data.
            Procedure::ReadPacked => AnswerKind::Packed,
            Procedure::Write | Procedure::Allocate => AnswerKind::Written,
            Procedure::Seek => AnswerKind::Offset,
            Procedure::Commit | Procedure::CommitVolume => AnswerKind::Committed,
            Procedure::OpenBody | Procedure::LendBody => AnswerKind::Body,
            Procedure::LendBlank => AnswerKind::Blank,
            Procedure::ReadSums => AnswerKind::Sums,
            Procedure::TestLock => AnswerKind::LockTest,
            Procedure::Lock
            | Procedure::Unlock
            | Procedure::Hold
            | Procedure::Unhold
            | Procedure::ReclaimDone
            | Procedure::Return
            | Procedure::VolumeRemove
            | Procedure::VolumeRename
            | Procedure::VolumeSetFields
            | Procedure::VolumeHold
            | Procedure::VolumeServe
            | Procedure::PtsDelete
            | Procedure::PtsRename
            | Procedure::PtsChangeOwner
            | Procedure::PtsSetFields
            | Procedure::PtsJoin
            | Procedure::PtsLeave
            | Procedure::PtsSetMax
            | Procedure::AuthSetPassword
            | Procedure::SetAcl => AnswerKind::Done,
            Procedure::GetAcl => AnswerKind::Acl,
            Procedure::Rights => AnswerKind::Rights,
            Procedure::VolumeCreate
            | Procedure::VolumeClone
            | Procedure::VolumeList
            | Procedure::VolumeExamine
            | Procedure::VolumeFinish => AnswerKind::Volumes,
            Procedure::VolumeChanges => AnswerKind::Part,
            Procedure::VolumeApply => AnswerKind::Cursor,
            Procedure::VolumePull | Procedure::VolumeBeside | Procedure::Tasks => AnswerKind::Tasks,
            Procedure::VolumeIncoming => AnswerKind::Incoming,
            Procedure::Partitions => AnswerKind::Partitions,
            Procedure::CellGroup | Procedure::CellGroups => AnswerKind::Groups,
            Procedure::CellPutGroup
            | Procedure::CellRemoveGroup
            | Procedure::CellPutServer
            | Procedure::CellRemoveServer => AnswerKind::Revision,
            Procedure::CellTakeNumbers => AnswerKind::Number,
            Procedure::CellServers | Procedure::CellMe => AnswerKind::Servers,
            Procedure::CellChanges | Procedure::CellWatch => AnswerKind::Changes,
            Procedure::CellPrincipal | Procedure::PtsExamine | Procedure::PtsCreate | Procedure::PtsEntries => {
                AnswerKind::Principals
            }
            Procedure::CellSubdomain => AnswerKind::Subdomain,
            Procedure::AuthPassword | Procedure::AuthAttest | Procedure::AuthRenew => AnswerKind::Token,
            Procedure::AuthKerberos => AnswerKind::Ticket,
            Procedure::PtsNames
            | Procedure::PtsNumbers
            | Procedure::PtsMembership
            | Procedure::PtsOwned
            | Procedure::PtsMax => AnswerKind::Names,
            Procedure::GuardFences => AnswerKind::Fences,
            Procedure::GuardMandates => AnswerKind::Mandates,
            Procedure::GuardAddFence
            | Procedure::GuardRemoveFence
            | Procedure::GuardAddMandate
            | Procedure::GuardRemoveMandate
            | Procedure::GuardWithdrawKeys => AnswerKind::Enforced,
            Procedure::Delegate => AnswerKind::Delegation,
            Procedure::ServerReport | Procedure::Scrub => AnswerKind::Report,
        }
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
            Answer::Token(_) => AnswerKind::Token,
            Answer::Ticket { .. } => AnswerKind::Ticket,
            Answer::Fences { .. } => AnswerKind::Fences,
            Answer::Mandates { .. } => AnswerKind::Mandates,
            Answer::Enforced { .. } => AnswerKind::Enforced,
        }
    }

    /// Whether such an answer says what [`types::Fid::CURRENT`] means next, as [`Answer::current`] does.
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
            | AnswerKind::Fences
            | AnswerKind::Mandates
            | AnswerKind::Enforced => false,
        }
    }
}
