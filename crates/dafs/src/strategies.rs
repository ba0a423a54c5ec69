//! Random calls, answers and messages, for tests of this and other crates (feature `proptest`). The
//! protocol can carry each of them.

use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use types::{
    AllocateMode, Answer, Beside, BootVerifier, BreakId, BreakItem, BreakReason, Busy, ByteRange,
    Call, Caller, CellCall, Changed, ClientId, Cookie, CreateHow, DataUse, DataVersion, DirEntry,
    Fault, Fid, Finish, IncomingTree, KeyPrint, Kind, Lending, LockConflict, LockFamily, LockMode,
    LockOwner, Name, NewKind, OpenId, PartitionInfo, PartitionNo, PersistHow, PrincipalId, Pull,
    RemoveWhat, RenameMode, Revised, Revision, RunKey, SeekWhat, ServerId, ServerInfo, SessionId,
    SetTime, ShareKey, Site, SiteKind, Status, StatusChange, StatusVersion, StreamCursor, TaskInfo,
    TaskState, Timestamp, VnodeNo, VnodeSlots, VolumeCall, VolumeChange, VolumeGroup, VolumeId,
    VolumeInfo, VolumeKind, VolumeState, VolumeStatus, WhichVolume, XattrMode,
};

use crate::credentials::TokenProof;
use crate::limits::{CREDENTIALS_MAX, CREDITS_MIN};
use crate::message::{Attach, AttachAnswer, Bind, Message};
use types::limits::TOKEN_BYTES_MAX;

mod principals;
mod rules;
mod standby;

/// Any fid but [`Fid::CURRENT`].
pub fn fid() -> impl Strategy<Value = Fid> {
    (any::<u64>(), any::<u64>(), any::<u64>())
        .prop_map(|(volume, vnode, unique)| Fid::new(volume, vnode, unique))
        .prop_filter("means something else", |fid| *fid != Fid::CURRENT)
}

/// Any name.
pub fn name() -> impl Strategy<Value = Name> {
    let byte = any::<u8>().prop_filter("not in names", |byte| !matches!(byte, 0 | b'/'));
    vec(byte, 1..=255).prop_filter_map("dots", |bytes| Name::new(&bytes).ok())
}

/// Any time that a file can have.
pub fn timestamp() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0..1_000_000_000u32).prop_map(|(secs, nanos)| Timestamp { secs, nanos })
}

/// Up to `max` bytes.
fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..=max).prop_map(Bytes::from)
}

/// Any kind of file.
pub fn kind() -> impl Strategy<Value = Kind> {
    (1..=7u8).prop_map(|value| Kind::from_wire(value).expect("1 to 7 are kinds"))
}

/// Any status.
pub fn status() -> impl Strategy<Value = Status> {
    let numbers = (any::<[u64; 5]>(), any::<[u32; 3]>(), 0..=0o7777u16);
    let times = [timestamp(), timestamp(), timestamp(), timestamp()];
    (fid(), kind(), numbers, times).prop_map(|(fid, kind, (wide, narrow, mode), times)| Status {
        fid,
        kind,
        mode,
        by_list: narrow[0] % 2 == 1,
        own_list: narrow[0] % 4 == 3,
        read_times: narrow[0] % 8 > 3,
        uid: narrow[0],
        gid: narrow[1],
        links: narrow[2],
        size: wide[0],
        used: wide[1],
        device: wide[2],
        accessed: times[0],
        modified: times[1],
        changed: times[2],
        created: times[3],
        data_version: DataVersion(wide[3]),
        status_version: StatusVersion(wide[4]),
    })
}

/// Any caller.
pub fn caller() -> impl Strategy<Value = Caller> {
    (any::<u32>(), any::<u32>(), of(vec(any::<u32>(), 0..40))).prop_map(|(uid, gid, groups)| {
        Caller {
            uid,
            gid,
            groups: groups.map(Vec::into_boxed_slice),
            who: types::RequestIdentity::NAMED,
        }
    })
}

/// Any fault.
pub fn fault() -> impl Strategy<Value = Fault> {
    proptest::sample::select(&Fault::ALL[..])
}

fn new_kind() -> impl Strategy<Value = NewKind> {
    prop_oneof![
        Just(NewKind::File),
        Just(NewKind::Directory),
        bytes(100).prop_map(NewKind::Symlink),
        Just(NewKind::Fifo),
        Just(NewKind::Socket),
        any::<u64>().prop_map(NewKind::CharDevice),
        any::<u64>().prop_map(NewKind::BlockDevice),
        bytes(100).prop_map(NewKind::MountPoint),
    ]
}

fn create_how() -> impl Strategy<Value = CreateHow> {
    prop_oneof![
        Just(CreateHow::Unchecked),
        Just(CreateHow::Guarded),
        any::<u64>().prop_map(CreateHow::Exclusive)
    ]
}

fn set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![Just(SetTime::Now), timestamp().prop_map(SetTime::To)]
}

fn status_change() -> impl Strategy<Value = StatusChange> {
    let owner = (of(any::<u16>()), of(any::<u32>()), of(any::<u32>()), of(any::<u64>()));
    (owner, of(set_time()), of(set_time()), any::<[bool; 3]>()).prop_map(
        |((mode, uid, gid, size), accessed, modified, [kill_privileges, through_handle, hold])| {
            StatusChange {
                mode,
                uid,
                gid,
                size,
                accessed,
                modified,
                kill_privileges,
                through_handle,
                hold,
            }
        },
    )
}

fn range() -> impl Strategy<Value = ByteRange> {
    (any::<u64>(), any::<u64>()).prop_map(|(start, end)| ByteRange { start, end })
}

fn owner() -> impl Strategy<Value = LockOwner> {
    any::<u64>().prop_map(LockOwner)
}

fn family() -> impl Strategy<Value = LockFamily> {
    prop_oneof![Just(LockFamily::Posix), Just(LockFamily::Flock)]
}

fn data_use() -> impl Strategy<Value = DataUse> {
    proptest::sample::select(&DataUse::ALL)
}

fn persist_how() -> impl Strategy<Value = PersistHow> {
    prop_oneof![Just(PersistHow::New), Just(PersistHow::Claims), Just(PersistHow::Repairs)]
}

fn lock_mode() -> impl Strategy<Value = LockMode> {
    prop_oneof![Just(LockMode::Shared), Just(LockMode::Exclusive)]
}

/// Any call outside a chain.
pub fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        name_calls(),
        file_calls(),
        data_calls(),
        lock_calls(),
        delegation_calls(),
        volume_calls(),
        cell_calls(),
        principals::auth_calls(),
        principals::pts_calls(),
        rules::calls()
    ]
}

fn delegation_calls() -> impl Strategy<Value = Call> {
    let changes = prop_oneof![name_calls(), file_calls(), data_calls()]
        .prop_filter("delegable", Call::delegable);
    prop_oneof![
        fid().prop_map(|fid| Call::Delegate { fid }),
        vec(fid(), 0..50).prop_map(|fids| Call::Return { fids }),
        (timestamp(), any::<u64>(), changes).prop_map(|(at, slot, call)| Call::Delegated {
            at,
            slot,
            call: Box::new(call)
        }),
    ]
}

fn volume_id() -> impl Strategy<Value = VolumeId> {
    (1..=u64::MAX).prop_map(VolumeId)
}

fn volume_kind() -> impl Strategy<Value = VolumeKind> {
    proptest::sample::select(&VolumeKind::ALL[..])
}

fn volume_state() -> impl Strategy<Value = VolumeState> {
    prop::sample::select(VolumeState::ALL.to_vec())
}

fn volume_calls() -> impl Strategy<Value = Call> {
    let change = (of(any::<u64>()), of(any::<u64>()), of(volume_state()), of(any::<[bool; 2]>()))
        .prop_map(|(quota_bytes, quota_files, state, options)| VolumeChange {
            quota_bytes,
            quota_files,
            state,
            read_times: options.map(|[read_times, _]| read_times),
            afs: options.map(|[_, afs]| afs),
        });
    let which =
        prop_oneof![volume_id().prop_map(WhichVolume::Id), name().prop_map(WhichVolume::Name)];
    prop_oneof![
        (
            of(1..u64::MAX),
            of(0..u32::MAX),
            name(),
            any::<[u64; 2]>(),
            any::<(u32, u32)>(),
            any::<Option<bool>>()
        )
            .prop_map(|(id, partition, name, quota, owner, encrypt)| VolumeCall::Create {
                id: id.map(VolumeId),
                partition: partition.map(PartitionNo),
                name,
                quota_bytes: quota[0],
                quota_files: quota[1],
                owner,
                encrypt,
            }),
        volume_id().prop_map(|id| VolumeCall::Remove { id }),
        (volume_id(), name()).prop_map(|(id, name)| VolumeCall::Rename { id, name }),
        (of(1..u64::MAX), volume_id(), name(), volume_kind(), any::<bool>()).prop_map(
            |(id, of, name, kind, replace)| VolumeCall::Clone {
                id: id.map(VolumeId),
                of,
                name,
                kind,
                replace
            }
        ),
        (volume_id(), change).prop_map(|(id, change)| VolumeCall::SetFields { id, change }),
        (any::<u32>(), any::<u64>(), any::<u32>()).prop_map(|(partition, after, max)| {
            VolumeCall::List { partition: PartitionNo(partition), after: VolumeId(after), max }
        }),
        which.prop_map(|volume| VolumeCall::Examine { volume }),
        Just(VolumeCall::Partitions),
        Just(VolumeCall::Tasks),
        any::<u64>().prop_map(|number| VolumeCall::EndTask { number }),
        (volume_id(), any::<u64>(), cursor(), 0..=(1_u32 << 20), any::<bool>()).prop_map(
            |(id, since, cursor, bytes_max, packed)| VolumeCall::Changes {
                id,
                since,
                cursor,
                bytes_max,
                packed
            }
        ),
        (any::<u32>(), volume_id(), bytes(2000), any::<bool>()).prop_map(
            |(partition, tree, part, over)| {
                VolumeCall::Apply { partition: PartitionNo(partition), tree, part, over }
            }
        ),
        of(volume_id().prop_filter("0 is all", |id| id.0 != 0))
            .prop_map(|tree| VolumeCall::Incoming { tree }),
        (any::<u32>(), volume_id(), finish()).prop_map(|(partition, tree, finish)| {
            VolumeCall::Finish { partition: PartitionNo(partition), tree, finish }
        }),
        pull().prop_map(|pull| VolumeCall::Pull(Box::new(pull))),
        standby::calls(),
        (volume_id(), any::<u32>()).prop_map(|(id, millis)| VolumeCall::Hold { id, millis }),
        volume_id().prop_map(|id| VolumeCall::Serve { id }),
        (volume_id(), name(), any::<u64>()).prop_map(|(copy, name, above)| VolumeCall::TakeOver {
            copy,
            name,
            above
        }),
        (volume_id(), any::<u32>(), prop::sample::select(Beside::ALL.to_vec())).prop_map(
            |(id, partition, what)| {
                VolumeCall::Beside { id, partition: PartitionNo(partition), what }
            }
        ),
    ]
    .prop_map(Call::Volume)
}

fn incoming() -> impl Strategy<Value = IncomingTree> {
    (any::<u32>(), volume_id(), any::<bool>(), any::<[u64; 4]>()).prop_map(
        |(partition, tree, over, numbers)| {
            let ([since, epoch, bytes, used_bytes], partition) = (numbers, PartitionNo(partition));
            IncomingTree { partition, tree, over, since, epoch, bytes, used_bytes }
        },
    )
}

fn cursor() -> impl Strategy<Value = StreamCursor> {
    (any::<u64>(), any::<u8>(), any::<u64>()).prop_map(|(vnode, stage, position)| StreamCursor {
        vnode: VnodeNo(vnode),
        stage,
        position,
    })
}

fn finish() -> impl Strategy<Value = Finish> {
    let id = of(volume_id().prop_filter("0 is none", |id| id.0 != 0));
    prop_oneof![
        Just(Finish::Nothing),
        of(timestamp()).prop_map(|updated| Finish::Over { updated }),
        (id, name(), volume_kind(), any::<bool>())
            .prop_map(|(id, name, kind, replace)| Finish::View { id, name, kind, replace }),
        (name(), any::<[u64; 2]>(), timestamp(), any::<bool>(), of(timestamp())).prop_map(
            |(name, quota, created, arriving, updated)| {
                Finish::ReadWrite {
                    name,
                    quota_bytes: quota[0],
                    quota_files: quota[1],
                    created,
                    arriving,
                    updated,
                }
            }
        ),
    ]
}

fn pull() -> impl Strategy<Value = Pull> {
    let partition = of((0..u32::MAX).prop_map(PartitionNo));
    let addresses =
        vec((any::<[u8; 4]>(), any::<u16>()).prop_map(|(ip, port)| (ip, port).into()), 0..4);
    (addresses, volume_id(), partition, volume_id(), finish())
        .prop_map(|(from, id, partition, tree, finish)| Pull { from, id, partition, tree, finish })
}

fn task() -> impl Strategy<Value = TaskInfo> {
    let state = prop::sample::select(vec![TaskState::Runs, TaskState::Done, TaskState::Failed]);
    (any::<[u64; 5]>(), volume_id(), state, ".{0,60}").prop_map(|(numbers, tree, state, text)| {
        TaskInfo {
            number: numbers[0],
            tree,
            state,
            since: numbers[1],
            epoch: numbers[2],
            bytes: numbers[3],
            total_bytes: numbers[4],
            text,
        }
    })
}

fn revision() -> impl Strategy<Value = Revision> {
    any::<u64>().prop_map(Revision)
}

fn server_id() -> impl Strategy<Value = ServerId> {
    any::<u128>().prop_map(ServerId)
}

fn group() -> impl Strategy<Value = VolumeGroup> {
    let kind = prop_oneof![
        Just(SiteKind::ReadWrite),
        Just(SiteKind::ReadOnly),
        Just(SiteKind::Standby),
        Just(SiteKind::AsyncStandby)
    ];
    let site = (server_id(), ".{0,20}", kind, any::<u64>())
        .prop_map(|(server, partition, kind, epoch)| Site { server, partition, kind, epoch });
    let busy = (".{0,20}", ".{0,20}", any::<i64>()).prop_map(|(operation, by, since_secs)| Busy {
        operation,
        by,
        since_secs,
    });
    (
        name(),
        volume_id(),
        [of(volume_id()), of(volume_id())],
        vec(site, 0..5),
        any::<u64>(),
        of(busy),
    )
        .prop_map(|(name, read_write, [read_only, backup], sites, released_epoch, busy)| {
            VolumeGroup { name, read_write, read_only, backup, sites, released_epoch, busy }
        })
}

fn server() -> impl Strategy<Value = ServerInfo> {
    // An IPv4 address that is mapped to IPv6 has a second form.
    let address = (any::<std::net::IpAddr>(), any::<u16>())
        .prop_map(|(ip, port)| (ip.to_canonical(), port).into());
    let keys = vec(any::<[u8; 32]>().prop_map(KeyPrint), 0..3);
    (server_id(), ".{0,40}", vec(address, 0..4), keys)
        .prop_map(|(id, name, addresses, keys)| ServerInfo { id, name, addresses, keys })
}

fn cell_calls() -> impl Strategy<Value = Call> {
    let which =
        prop_oneof![volume_id().prop_map(WhichVolume::Id), name().prop_map(WhichVolume::Name)];
    prop_oneof![
        which.prop_map(|volume| CellCall::Group { volume }),
        (any::<u64>(), any::<u32>())
            .prop_map(|(after, max)| CellCall::Groups { after: VolumeId(after), max }),
        (group(), revision())
            .prop_map(|(group, expected)| CellCall::PutGroup { group: Box::new(group), expected }),
        (volume_id(), revision())
            .prop_map(|(read_write, expected)| CellCall::RemoveGroup { read_write, expected }),
        (any::<u64>(), any::<u32>())
            .prop_map(|(above, count)| CellCall::TakeNumbers { above: VolumeId(above), count }),
        Just(CellCall::Servers),
        (server(), revision())
            .prop_map(|(server, expected)| CellCall::PutServer { server, expected }),
        (server_id(), revision())
            .prop_map(|(id, expected)| CellCall::RemoveServer { id, expected }),
        (revision(), any::<u32>()).prop_map(|(since, max)| CellCall::Changes { since, max }),
        Just(CellCall::Me),
        principals::cell_calls(),
    ]
    .prop_map(Call::Cell)
}

fn cell_answers() -> impl Strategy<Value = Answer> {
    let seen_group =
        (group(), revision()).prop_map(|(record, revision)| Revised { record, revision });
    let seen_server =
        (server(), revision()).prop_map(|(record, revision)| Revised { record, revision });
    let changed = prop_oneof![
        volume_id().prop_map(Changed::Group),
        server_id().prop_map(Changed::Server),
        any::<i32>().prop_map(|id| Changed::Principal(PrincipalId(id))),
        Just(Changed::Principals),
        Just(Changed::Rules)
    ];
    prop_oneof![
        (vec(seen_group, 0..4), any::<bool>())
            .prop_map(|(groups, end)| Answer::Groups { groups, end }),
        vec(seen_server, 0..4).prop_map(Answer::Servers),
        revision().prop_map(Answer::Revision),
        volume_id().prop_map(Answer::Number),
        principals::answers(),
        rules::answers(),
        (revision(), of(vec((revision(), changed), 0..5)))
            .prop_map(|(at, changes)| Answer::Changes { at, changes }),
    ]
}

fn volume_info() -> impl Strategy<Value = VolumeInfo> {
    let numbers = (volume_id(), volume_id(), any::<u32>(), any::<[u64; 6]>());
    (numbers, volume_kind(), volume_state(), name(), [timestamp(), timestamp()], of(any::<u32>()))
        .prop_map(|((id, tree, partition, wide), kind, state, name, times, encrypted)| VolumeInfo {
            id,
            tree,
            kind,
            state,
            partition: PartitionNo(partition),
            epoch: wide[4],
            origin: Some(VolumeId(wide[5])).filter(|origin| origin.0 % 2 == 1),
            name,
            created: times[0],
            updated: times[1],
            quota_bytes: wide[0],
            quota_files: wide[1],
            used_bytes: wide[2],
            used_files: wide[3],
            encrypted,
        })
}

fn volume_answers() -> impl Strategy<Value = Answer> {
    let partition = (any::<u32>(), [".{0,60}", ".{0,30}"], any::<[u64; 2]>()).prop_map(
        |(no, [name, compression], bytes)| PartitionInfo {
            no: PartitionNo(no),
            name,
            total_bytes: bytes[0],
            free_bytes: bytes[1],
            compression,
        },
    );
    prop_oneof![
        (vec(volume_info(), 0..20), any::<bool>())
            .prop_map(|(volumes, end)| Answer::Volumes { volumes, end }),
        vec(partition, 0..10).prop_map(Answer::Partitions),
        bytes(2000).prop_map(Answer::Part),
        cursor().prop_map(Answer::Cursor),
        vec(task(), 0..4).prop_map(Answer::Tasks),
        (vec(incoming(), 0..4), any::<u64>())
            .prop_map(|(trees, base)| Answer::Incoming { trees, base }),
        standby::answers(),
    ]
}

fn name_calls() -> impl Strategy<Value = Call> {
    let renaming = prop_oneof![
        Just(RenameMode::Replace),
        Just(RenameMode::NoReplace),
        Just(RenameMode::Exchange),
        Just(RenameMode::MountPoint),
        Just(RenameMode::Whiteout)
    ];
    let removing = prop_oneof![
        Just(RemoveWhat::File),
        Just(RemoveWhat::Directory),
        Just(RemoveWhat::MountPoint)
    ];
    prop_oneof![
        name().prop_map(|volume| Call::Root { volume }),
        (fid(), name()).prop_map(|(dir, name)| Call::Lookup { dir, name }),
        (fid(), any::<u64>(), any::<u32>(), any::<bool>()).prop_map(
            |(dir, cookie, bytes_max, plus)| Call::ReadDir {
                dir,
                cookie: Cookie(cookie),
                bytes_max,
                plus
            }
        ),
        (fid(), name(), new_kind(), any::<u16>(), create_how())
            .prop_map(|(dir, name, kind, mode, how)| Call::Make { dir, name, kind, mode, how }),
        (fid(), any::<u16>()).prop_map(|(dir, mode)| Call::MakeUnnamed { dir, mode }),
        (fid(), fid(), name()).prop_map(|(fid, dir, name)| Call::Link { fid, dir, name }),
        (fid(), name(), removing, any::<bool>()).prop_map(|(dir, name, what, hold)| Call::Remove {
            dir,
            name,
            what,
            hold
        }),
        (fid(), name(), fid(), name(), renaming, any::<bool>()).prop_map(
            |(from_dir, from, to_dir, to, mode, hold)| {
                Call::Rename { from_dir, from, to_dir, to, mode, hold }
            }
        ),
        fid().prop_map(|fid| Call::ReadLink { fid }),
    ]
}

fn file_calls() -> impl Strategy<Value = Call> {
    let xattr =
        prop_oneof![Just(XattrMode::Either), Just(XattrMode::Create), Just(XattrMode::Replace)];
    prop_oneof![
        fid().prop_map(|fid| Call::GetStatus { fid }),
        (fid(), any::<bool>()).prop_map(|(fid, parent)| Call::ByVnode { fid, parent }),
        (fid(), status_change()).prop_map(|(fid, change)| Call::SetStatus { fid, change }),
        (fid(), bytes(255)).prop_map(|(fid, name)| Call::XattrGet { fid, name }),
        (fid(), bytes(255), bytes(1000), xattr)
            .prop_map(|(fid, name, value, mode)| Call::XattrSet { fid, name, value, mode }),
        fid().prop_map(|fid| Call::XattrList { fid }),
        (fid(), bytes(255)).prop_map(|(fid, name)| Call::XattrRemove { fid, name }),
        fid().prop_map(|fid| Call::VolumeStatus { fid }),
        (fid(), any::<u64>(), any::<u64>()).prop_map(|(fid, bytes, files)| Call::SetQuota {
            fid,
            bytes,
            files
        }),
        fid().prop_map(|fid| Call::GetAcl { fid }),
        (fid(), of(bytes(1000)), of(any::<[u8; 32]>()))
            .prop_map(|(fid, list, instead_of)| Call::SetAcl { fid, list, instead_of }),
        fid().prop_map(|fid| Call::Rights { fid }),
        fid().prop_map(|fid| Call::Commit { fid }),
        fid().prop_map(|fid| Call::CommitVolume { fid }),
        fid().prop_map(|fid| Call::OpenBody { fid }),
        (fid(), prop_oneof![Just(Lending::Read), Just(Lending::Write), Just(Lending::Join)])
            .prop_map(|(fid, how)| Call::LendBody { fid, how }),
        (fid(), any::<bool>()).prop_map(|(fid, back)| Call::SettleBody { fid, back }),
        fid().prop_map(|fid| Call::LendBlank { fid }),
        (fid(), any::<u64>()).prop_map(|(fid, blank)| Call::AdoptBody { fid, blank }),
    ]
}

fn data_calls() -> impl Strategy<Value = Call> {
    let allocating = prop_oneof![
        Just(AllocateMode::Extend),
        Just(AllocateMode::KeepSize),
        Just(AllocateMode::PunchHole),
        Just(AllocateMode::ZeroExtend),
        Just(AllocateMode::ZeroKeepSize),
    ];
    let seeking = prop_oneof![Just(SeekWhat::Data), Just(SeekWhat::Hole)];
    prop_oneof![
        (fid(), any::<u64>(), 0..=1u32 << 20).prop_map(|(fid, offset, length)| Call::Read {
            fid,
            offset,
            length
        }),
        (fid(), any::<u64>(), 0..=1u32 << 20).prop_map(|(fid, offset, length)| Call::ReadPacked {
            fid,
            offset,
            length
        }),
        (fid(), of(any::<u64>()), bytes(2000), any::<bool>(), any::<bool>()).prop_map(
            |(fid, offset, data, stable, kill_privileges)| Call::Write {
                fid,
                offset,
                data,
                stable,
                kill_privileges
            }
        ),
        (fid(), any::<u64>(), any::<u64>(), allocating)
            .prop_map(|(fid, offset, length, mode)| Call::Allocate { fid, offset, length, mode }),
        (fid(), timestamp(), timestamp()).prop_map(|(fid, was, at)| Call::NoteRead {
            fid,
            was,
            at
        }),
        (fid(), any::<u64>(), seeking).prop_map(|(fid, offset, what)| Call::Seek {
            fid,
            offset,
            what
        }),
        (fid(), any::<u64>(), any::<u32>()).prop_map(|(fid, first, count)| Call::ReadSums {
            fid,
            first,
            count
        }),
    ]
}

fn lock_calls() -> impl Strategy<Value = Call> {
    prop_oneof![
        (
            fid(),
            owner(),
            any::<u32>(),
            family(),
            range(),
            lock_mode(),
            any::<bool>(),
            any::<bool>()
        )
            .prop_map(|(fid, owner, pid, family, range, mode, wait, reclaim)| Call::Lock {
                fid,
                owner,
                pid,
                family,
                range,
                mode,
                wait,
                reclaim
            }),
        (fid(), owner(), family(), range()).prop_map(|(fid, owner, family, range)| Call::Unlock {
            fid,
            owner,
            family,
            range
        }),
        (fid(), owner(), family(), range(), lock_mode()).prop_map(
            |(fid, owner, family, range, mode)| Call::TestLock { fid, owner, family, range, mode }
        ),
        (fid(), data_use(), data_use(), of(any::<[u8; 16]>()), any::<bool>()).prop_map(
            |(fid, access, deny, key, claims)| {
                let key = key.map(ShareKey);
                Call::Open { fid, access, deny, key, claims }
            }
        ),
        (fid(), any::<u64>()).prop_map(|(fid, open)| Call::Close { fid, open: OpenId(open) }),
        (fid(), any::<u64>(), data_use(), data_use()).prop_map(|(fid, open, access, deny)| {
            Call::Downgrade { fid, open: OpenId(open), access, deny }
        }),
        (fid(), owner(), any::<u32>(), range(), persist_how()).prop_map(
            |(fid, owner, pid, range, how)| Call::PersistLock { fid, owner, pid, range, how }
        ),
        (fid(), owner(), range()).prop_map(|(fid, owner, range)| Call::FinishLock {
            fid,
            owner,
            range
        }),
        vec(fid(), 0..50).prop_map(|fids| Call::Hold { fids }),
        vec(fid(), 0..50).prop_map(|fids| Call::Unhold { fids }),
        Just(Call::ReclaimDone),
        Just(Call::ServerReport),
        any::<bool>().prop_map(|start| Call::Scrub { start }),
    ]
}

fn dir_entry() -> impl Strategy<Value = DirEntry> {
    let details = (status(), any::<bool>(), of(vec(any::<u8>(), 0..100)));
    (name(), fid(), kind(), any::<u64>(), of(details)).prop_map(
        |(name, fid, kind, cookie, details)| {
            let (status, sole, target) = details
                .map_or((None, false, None), |(status, sole, target)| (Some(status), sole, target));
            let target = target.filter(|_| kind == Kind::Symlink).map(Bytes::from);
            DirEntry { name, fid, kind, cookie: Cookie(cookie), status, sole, target }
        },
    )
}

fn version() -> impl Strategy<Value = DataVersion> {
    any::<u64>().prop_map(DataVersion)
}

fn verifier() -> impl Strategy<Value = BootVerifier> {
    any::<u64>().prop_map(BootVerifier)
}

/// Any answer.
pub fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        Just(Answer::Done),
        status_answers(),
        data_answers(),
        volume_answers(),
        cell_answers()
    ]
}

fn status_answers() -> impl Strategy<Value = Answer> {
    prop_oneof![
        status().prop_map(Answer::Status),
        (status(), version(), any::<bool>())
            .prop_map(|(status, dir_version, sole)| Answer::Entry { status, dir_version, sole }),
        (status(), any::<u64>(), any::<u32>(), any::<u128>()).prop_map(
            |(status, first, count, key)| {
                Answer::Delegation { status, slots: VnodeSlots { first, count, key: RunKey(key) } }
            }
        ),
        (vec(dir_entry(), 0..20), any::<bool>(), version())
            .prop_map(|(entries, end, dir_version)| Answer::Entries { entries, end, dir_version }),
        (status(), status(), any::<bool>()).prop_map(|(status, dir, existed)| Answer::Made {
            status,
            dir,
            existed
        }),
        (status(), status()).prop_map(|(status, dir)| Answer::Removed { status, dir }),
        (status(), of(status()), status(), status()).prop_map(
            |(status, other, from_dir, to_dir)| Answer::Renamed { status, other, from_dir, to_dir }
        ),
        status().prop_map(|status| Answer::Body { status }),
    ]
}

fn data_answers() -> impl Strategy<Value = Answer> {
    let conflict = (range(), lock_mode(), any::<u32>())
        .prop_map(|(range, mode, pid)| LockConflict { range, mode, pid });
    prop_oneof![
        bytes(4095).prop_map(Answer::Target),
        any::<u64>().prop_map(Answer::Blank),
        (any::<u64>(), status())
            .prop_map(|(open, status)| Answer::Opened { open: OpenId(open), status }),
        bytes(2000).prop_map(Answer::Xattr),
        vec(bytes(255), 0..20).prop_map(Answer::XattrNames),
        (fid(), bytes(1000)).prop_map(|(of, list)| Answer::Acl { of, list }),
        (fid(), any::<u32>()).prop_map(|(of, rights)| Answer::Rights { of, rights }),
        any::<[u64; 6]>().prop_map(|numbers| Answer::Volume(VolumeStatus {
            quota_bytes: numbers[0],
            quota_files: numbers[1],
            used_bytes: numbers[2],
            used_files: numbers[3],
            partition_bytes: numbers[4],
            partition_free_bytes: numbers[5],
        })),
        (bytes(2000), any::<bool>(), status()).prop_map(|(data, end, status)| Answer::Data {
            data,
            end,
            status
        }),
        (bytes(2000), any::<u16>(), any::<bool>(), status())
            .prop_filter("a run is not empty", |(data, ..)| !data.is_empty())
            .prop_map(|(data, chunk, end, status)| {
                let run =
                    crate::packed::pack(u64::from(chunk) * types::PackedRun::CHUNK_BYTES, &data);
                Answer::Packed { run, end, status }
            }),
        (any::<u32>(), any::<u64>(), status(), version(), verifier()).prop_map(
            |(count, offset, status, previous_version, verifier)| Answer::Written {
                count,
                offset,
                status,
                previous_version,
                verifier
            }
        ),
        any::<u64>().prop_map(Answer::Offset),
        verifier().prop_map(|verifier| Answer::Committed { verifier }),
        (version(), vec(any::<u32>(), 0..100))
            .prop_map(|(version, sums)| Answer::Sums { version, sums }),
        of(conflict).prop_map(Answer::LockTest),
        ".{0,100}".prop_map(Answer::Report),
    ]
}

fn break_item() -> impl Strategy<Value = BreakItem> {
    let reason = prop_oneof![
        Just(BreakReason::Data),
        Just(BreakReason::Status),
        Just(BreakReason::Removed),
        Just(BreakReason::Pressure),
        Just(BreakReason::Recall)
    ];
    (fid(), reason, of(name())).prop_map(|(fid, reason, name)| BreakItem { fid, reason, name })
}

/// Any message of a session but requests and replies.
pub fn message() -> impl Strategy<Value = Message> {
    prop_oneof![messages_to_server(), messages_to_client()]
}

fn messages_to_server() -> impl Strategy<Value = Message> {
    let attach = (any::<u128>(), any::<u64>(), of(1..=u64::MAX), "[ -~]{0,100}", any::<u32>())
        .prop_map(|(client, incarnation, resume, display, pid)| Attach {
            client: ClientId(client),
            incarnation,
            resume: resume.map(SessionId),
            display,
            pid,
        });
    prop_oneof![
        attach.prop_map(Message::Attach),
        (any::<u64>(), any::<u128>())
            .prop_map(|(session, key)| Message::Bind(Bind { session: SessionId(session), key })),
        (1..=CREDENTIALS_MAX as u32, caller())
            .prop_map(|(handle, caller)| Message::Credential { handle, caller }),
        (1..=CREDENTIALS_MAX as u32, vec(any::<u8>(), 0..=TOKEN_BYTES_MAX), any::<[u8; 32]>())
            .prop_map(|(handle, token, half)| Message::Token { handle, shown: shown(token, half) }),
        (any::<u32>(), any::<u64>()).prop_map(|(slot, request)| Message::Cancel { slot, request }),
        (any::<u64>(), vec(fid(), 0..30))
            .prop_map(|(id, held)| Message::BreakAck { id: BreakId(id), held }),
        any::<u64>().prop_map(Message::Renew),
        any::<u64>().prop_map(Message::CreditsTaken),
        Just(Message::Detach),
        any::<u64>().prop_map(Message::Probe),
    ]
}

fn shown(token: Vec<u8>, half: [u8; 32]) -> TokenProof {
    let mut proof = [0; 64];
    proof[..32].copy_from_slice(&half);
    TokenProof { token: token.into(), proof }
}

fn messages_to_client() -> impl Strategy<Value = Message> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u128>(), any::<u32>(), CREDITS_MIN..=128);
    let attached = (any::<u64>(), any::<[bool; 2]>(), numbers, any::<[u8; 32]>()).prop_map(
        |(session, [resumed, renewed], (server, boot, bind_key, lease, credits), challenge)| {
            AttachAnswer {
                session: SessionId(session),
                resumed,
                renewed,
                server,
                boot_verifier: BootVerifier(boot),
                lease: Duration::from_millis(lease.into()),
                credits,
                grant: server ^ boot,
                bind_key,
                challenge,
            }
        },
    );
    prop_oneof![
        attached.prop_map(Message::Attached),
        Just(Message::Bound),
        (any::<u64>(), vec(break_item(), 0..30))
            .prop_map(|(id, items)| Message::Break { id: BreakId(id), items }),
        (any::<u64>(), any::<bool>())
            .prop_map(|(number, renewed)| Message::Renewed { number, renewed }),
        (CREDITS_MIN..=128, any::<u64>())
            .prop_map(|(credits, grant)| Message::Credits { credits, grant }),
        (of(fault()), "[ -~]{0,100}")
            .prop_map(|(fault, reason)| Message::Goodbye { fault, reason }),
        any::<u64>().prop_map(Message::Probed),
        Just(Message::Lane),
        (any::<u32>(), any::<bool>())
            .prop_map(|(handle, begins)| Message::Region { handle, begins }),
        Just(Message::Bell),
        Just(Message::LaneOpen),
        (any::<u32>(), any::<bool>())
            .prop_map(|(handle, is_open)| Message::RegionOpen { handle, is_open }),
        Just(Message::Rung),
    ]
}
