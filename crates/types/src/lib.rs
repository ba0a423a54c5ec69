//! The vocabulary: ids, times, status, limits, and the calls and answers of the file service.
//!
//! Nothing here does I/O, and nothing here knows a protocol: `dafs` encodes [`Call`]s, `vice`
//! executes them, `model` executes them in the obvious way.

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod answer;
mod assembly;
mod auth;
pub mod buffer;
mod call;
mod call_table;
mod caller;
mod cell;
mod fault;
mod fid;
mod health;
mod hex;
mod host;
mod joining;
pub mod limits;
mod lock;
mod mountpoint;
mod name;
mod packed;
pub mod posix;
mod principal;
mod print;
mod pts;
mod rules;
mod session;
mod share;
mod standby;
mod status;
mod time;
mod transfer;
mod tree_key;
mod volume;
mod volume_call;

pub use answer::{Answer, Cookie, DirEntry, VolumeStatus};
pub use assembly::{Assembly, AssemblyReport, ComingEntry, ComingVnode};
pub use auth::{AuthCall, Behalf, Secret};
pub use call::{
    AllocateMode, Call, CreateHow, Lending, NewKind, RemoveWhat, RenameMode, SeekWhat, SetTime,
    StatusChange, XattrMode,
};
pub use call_table::{
    AnswerKind, CallAccess, CallBlocking, CallData, CallEffect, CallTraits, Procedure,
};
pub use caller::Caller;
pub use cell::{
    AFS_FILE_PORT, Busy, CellCall, CellLevel, Changed, LevelAct, Revised, Revision, ServerId,
    ServerIdError, ServerInfo, ServerKind, ServerProgram, Site, SiteKind, VolumeGroup,
};
pub use fault::Fault;
pub use fid::{
    Fid, FidError, RUN_SLOTS, RunKey, SHORT_SLOT, Uniquifier, VnodeNo, VnodeSlots, VolumeId,
};
pub use health::DiskHealth;
pub use hex::{hex, unhex, unhex_array};
pub use host::Host;
pub use joining::{Invitation, InvitedServer, ServerRoles};
pub use lock::{ByteRange, LockConflict, LockFamily, LockMode, LockOwner, PersistHow};
pub use mountpoint::{MountPoint, MountPointError};
pub use name::{Name, NameError};
pub use packed::PackedRun;
pub use principal::{AuthLevel, OWN_IDS, PrincipalId, RequestIdentity, own_id};
pub use print::{KeyPrint, fmt_sha256, parse_sha256};
pub use pts::{
    NewPrincipal, Principal, PrincipalChange, PrincipalKind, Privacy, PrivacyError, PtsCall,
    WhichPrincipal,
};
pub use rules::{Fence, GuardCall, Mandate, Realm, Whom};
pub use session::{
    BootVerifier, BreakId, BreakItem, BreakReason, ClientId, ReplyAddress, SessionEpoch, SessionId,
};
pub use share::{DataUse, OpenId, ShareKey};
pub use standby::{FeedPlace, FeedStart, Follow, Inherited, StandbyInfo};
pub use status::{DataVersion, Kind, Status, StatusVersion};
pub use time::{Time, Timestamp};
pub use transfer::{Finish, IncomingTree, Pull, TaskInfo, TaskState};
pub use tree_key::{KeyKeeper, TREE_KEY_BYTES, TreeKey};
pub use volume::{
    Beside, EPOCHS_IN_GENERATION, PartitionInfo, PartitionNo, REFUSES_AFS, StreamCursor,
    VolumeChange, VolumeInfo, VolumeKind, VolumeState, WhichVolume, generation, is_volume_name,
    refilled_name,
};
pub use volume_call::VolumeCall;
