//! Messages about volumes and partitions: calls and answers.

use types::limits::{
    MESSAGE_BYTES_MAX, NAME_BYTES_MAX, PARTITION_NAME_BYTES_MAX, PAYLOAD_BYTES_MAX,
};
use types::{
    Answer, Beside, PartitionInfo, PartitionNo, VolumeCall, VolumeChange, VolumeId, VolumeInfo,
    VolumeKind, VolumeState,
};

use super::Procedure;
use super::fields::{ANY, get_name, get_number, get_which, number, put_which};
use super::transfer::{get_cursor, get_finish, get_pull, put_cursor, put_finish, put_pull};
use crate::WireError;
use crate::wire::{FieldReader, Writer, limit};

/// Flag in the bytes of a part: the part may have packed bodies.
const TAKES_PACKED: u32 = 1 << 31;
const _: () = assert!(PAYLOAD_BYTES_MAX < TAKES_PACKED as usize);
/// Flag in the length of a new volume's name: the caller asks for plain bodies.
const PLAIN: u16 = 1 << 14;
const ENCRYPTED: u16 = 1 << 15;
const _: () = assert!(NAME_BYTES_MAX < PLAIN as usize);
/// Flag in a volume's state: the number of the key that wraps its key follows the name.
const HAS_KEY: u8 = 0x80;
/// Bytes of a volume without its name and key.
const VOLUME_BYTES: usize = 96;
/// Bytes before the volumes of an answer.
const VOLUMES_HEAD_BYTES: usize = 5;
/// Bytes of a partition without its name.
const PARTITION_BYTES: usize = 24;

pub(super) fn put_volume_call<'w>(to: &'w mut Writer, call: &VolumeCall) -> &'w mut Writer {
    match call {
        VolumeCall::Create {
            id,
            partition,
            name,
            quota_bytes,
            quota_files,
            owner: (uid, gid),
            encrypt,
        } => {
            let flags = match encrypt {
                None => 0,
                Some(false) => PLAIN,
                Some(true) => ENCRYPTED,
            };
            to.u64(number(*id))
                .u64(*quota_bytes)
                .u64(*quota_files)
                .require(*partition != Some(PartitionNo(ANY)), "partition", ANY.into())
                .u32(partition.map_or(ANY, |partition| partition.0))
                .u32(*uid)
                .u32(*gid)
                .u16(name.as_bytes().len() as u16 | flags)
                .name(name)
        }
        VolumeCall::Remove { id } => to.u64(id.0),
        VolumeCall::Rename { id, name } => to.u64(id.0).name_length(name).name(name),
        VolumeCall::Clone { id, of, name, kind, replace } => to
            .u64(number(*id))
            .u64(of.0)
            .name_length(name)
            .u8(*kind as u8)
            .bool(*replace)
            .name(name),
        VolumeCall::SetFields { id, change } => to
            .u64(id.0)
            .u64(change.quota_bytes.unwrap_or(0))
            .u64(change.quota_files.unwrap_or(0))
            .u8(change.state.map_or(0, |state| state as u8))
            .u8(u8::from(change.quota_bytes.is_some())
                | u8::from(change.quota_files.is_some()) << 1),
        VolumeCall::List { partition, after, max } => to.u64(after.0).u32(partition.0).u32(*max),
        VolumeCall::Examine { volume } => put_which(to, volume),
        VolumeCall::Partitions | VolumeCall::Tasks => to,
        VolumeCall::Changes { id, since, cursor, bytes_max, packed } => {
            let packed = if *packed { TAKES_PACKED } else { 0 };
            put_cursor(to.u64(id.0).u64(*since), *cursor)
                .require(
                    *bytes_max as usize <= PAYLOAD_BYTES_MAX,
                    "bytes of a part",
                    u64::from(*bytes_max),
                )
                .u32(*bytes_max | packed)
        }
        VolumeCall::Apply { partition, tree, part, over } => to
            .u64(tree.0)
            .u32(partition.0)
            .bool(*over)
            .length32("bytes of a part", part.len(), PAYLOAD_BYTES_MAX),
        VolumeCall::Finish { partition, tree, finish } => {
            put_finish(to.u64(tree.0).u32(partition.0), finish)
        }
        VolumeCall::Pull(pull) => put_pull(to, pull),
        VolumeCall::Hold { id, millis } => to.u64(id.0).u32(*millis),
        VolumeCall::Serve { id } => to.u64(id.0),
        VolumeCall::Beside { id, partition, what } => to.u64(id.0).u32(partition.0).u8(*what as u8),
        VolumeCall::Incoming { tree } => to.u64(number(*tree)),
    }
}

pub(super) fn get_volume_call(
    from: &mut FieldReader<'_>,
    procedure: Procedure,
) -> Result<VolumeCall, WireError> {
    let id = VolumeId;
    Ok(match procedure {
        Procedure::VolumeCreate => {
            let id = get_number(from)?;
            let (quota_bytes, quota_files, partition) = (from.u64()?, from.u64()?, from.u32()?);
            let partition = (partition != ANY).then_some(PartitionNo(partition));
            let owner = (from.u32()?, from.u32()?);
            let word = from.u16()?;
            let encrypt = match word & (PLAIN | ENCRYPTED) {
                0 => None,
                PLAIN => Some(false),
                ENCRYPTED => Some(true),
                both => return Err(WireError::BadValue { what: "encryption", value: both.into() }),
            };
            let length = usize::from(word & !(PLAIN | ENCRYPTED));
            limit("name bytes", length, NAME_BYTES_MAX)?;
            let name = from.name(length)?;
            VolumeCall::Create { id, partition, name, quota_bytes, quota_files, owner, encrypt }
        }
        Procedure::VolumeRemove => VolumeCall::Remove { id: id(from.u64()?) },
        Procedure::VolumeRename => {
            VolumeCall::Rename { id: id(from.u64()?), name: get_name(from)? }
        }
        Procedure::VolumeClone => {
            let new = get_number(from)?;
            let (of, length) = (id(from.u64()?), from.length16("name bytes", NAME_BYTES_MAX)?);
            let (kind, replace) =
                (from.choice("kind of volume", VolumeKind::from_wire)?, from.bool("replace")?);
            VolumeCall::Clone { id: new, of, name: from.name(length)?, kind, replace }
        }
        Procedure::VolumeSetFields => {
            VolumeCall::SetFields { id: id(from.u64()?), change: get_change(from)? }
        }
        Procedure::VolumeList => {
            let (after, partition) = (id(from.u64()?), PartitionNo(from.u32()?));
            VolumeCall::List { partition, after, max: from.u32()? }
        }
        Procedure::VolumeExamine => VolumeCall::Examine { volume: get_which(from)? },
        Procedure::Partitions => VolumeCall::Partitions,
        Procedure::VolumeChanges => {
            let (id, since, cursor, bytes) =
                (id(from.u64()?), from.u64()?, get_cursor(from)?, from.u32()?);
            let (bytes_max, packed) = (bytes & !TAKES_PACKED, bytes & TAKES_PACKED != 0);
            if bytes_max as usize > PAYLOAD_BYTES_MAX {
                return Err(WireError::BadValue { what: "bytes of a part", value: bytes.into() });
            }
            VolumeCall::Changes { id, since, cursor, bytes_max, packed }
        }
        Procedure::VolumeFinish => {
            let (tree, partition) = (id(from.u64()?), PartitionNo(from.u32()?));
            VolumeCall::Finish { partition, tree, finish: get_finish(from)? }
        }
        Procedure::VolumePull => VolumeCall::Pull(Box::new(get_pull(from)?)),
        Procedure::Tasks => VolumeCall::Tasks,
        Procedure::VolumeHold => VolumeCall::Hold { id: id(from.u64()?), millis: from.u32()? },
        Procedure::VolumeServe => VolumeCall::Serve { id: id(from.u64()?) },
        Procedure::VolumeBeside => {
            let (id, partition) = (id(from.u64()?), PartitionNo(from.u32()?));
            VolumeCall::Beside {
                id,
                partition,
                what: from.choice("what is done beside", Beside::from_wire)?,
            }
        }
        Procedure::VolumeIncoming => VolumeCall::Incoming { tree: get_number(from)? },
        other => {
            return Err(WireError::BadValue { what: "procedure of volumes", value: other as u64 });
        }
    })
}

fn get_change(from: &mut FieldReader<'_>) -> Result<VolumeChange, WireError> {
    let (bytes, files, state, present) = (from.u64()?, from.u64()?, from.u8()?, from.u8()?);
    let bad = |what, value| Err(WireError::BadValue { what, value });
    let field = |bit: u8, value: u64| (present & bit != 0).then_some(value);
    let state = match (state, VolumeState::from_wire(state)) {
        (0, _) => None,
        (_, Some(state)) => Some(state),
        (state, None) => return bad("state of a volume", state.into()),
    };
    match (present, bytes, files) {
        (4.., ..) => bad("present", present.into()),
        (0 | 2, 1.., _) => bad("quota bytes", bytes),
        (0 | 1, _, 1..) => bad("quota files", files),
        _ => Ok(VolumeChange { quota_bytes: field(1, bytes), quota_files: field(2, files), state }),
    }
}

/// Omits volumes that do not fit, and then clears `end`.
pub(super) fn put_volumes(to: &mut Writer, volumes: &[VolumeInfo], end: bool) {
    let mut room = MESSAGE_BYTES_MAX - VOLUMES_HEAD_BYTES;
    let fit = volumes.iter().take_while(|volume| {
        let bytes = VOLUME_BYTES
            + volume.name.as_bytes().len()
            + volume.encrypted.map_or(0, |_| size_of::<u32>());
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    });
    let fit = fit.count();
    to.u32(fit as u32).bool(end && fit == volumes.len());
    for volume in volumes.iter().take(fit) {
        to.u64(volume.id.0)
            .u64(volume.tree.0)
            .timestamp(volume.created)
            .timestamp(volume.updated)
            .u64(volume.quota_bytes)
            .u64(volume.quota_files)
            .u64(volume.used_bytes)
            .u64(volume.used_files)
            .u64(volume.epoch)
            .u64(volume.origin.map_or(0, |origin| origin.0))
            .u32(volume.partition.0)
            .name_length(&volume.name)
            .u8(volume.kind as u8)
            .u8(volume.state as u8 | if volume.encrypted.is_some() { HAS_KEY } else { 0 })
            .name(&volume.name);
        if let Some(number) = volume.encrypted {
            to.u32(number);
        }
    }
}

pub(super) fn get_volumes(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let count = from.u32()? as usize;
    let end = from.bool("end")?;
    from.check_room(count, VOLUME_BYTES + 1)?;
    let volumes = (0..count).map(|_| get_volume(from)).collect::<Result<_, _>>()?;
    Ok(Answer::Volumes { volumes, end })
}

fn get_volume(from: &mut FieldReader<'_>) -> Result<VolumeInfo, WireError> {
    let (id, tree) = (VolumeId(from.u64()?), VolumeId(from.u64()?));
    let (created, updated) = (from.timestamp()?, from.timestamp()?);
    let (quota_bytes, quota_files) = (from.u64()?, from.u64()?);
    let (used_bytes, used_files, epoch) = (from.u64()?, from.u64()?, from.u64()?);
    let origin = Some(VolumeId(from.u64()?)).filter(|origin| origin.0 != 0);
    let partition = PartitionNo(from.u32()?);
    let length = from.length16("name bytes", NAME_BYTES_MAX)?;
    let kind = from.choice("kind of volume", VolumeKind::from_wire)?;
    let state = from.u8()?;
    let has_key = state & HAS_KEY != 0;
    let odd = WireError::BadValue { what: "state of a volume", value: state.into() };
    let state = VolumeState::from_wire(state & !HAS_KEY).ok_or(odd)?;
    let name = from.name(length)?;
    let encrypted = if has_key { Some(from.u32()?) } else { None };
    Ok(VolumeInfo {
        id,
        tree,
        kind,
        state,
        partition,
        epoch,
        origin,
        name,
        created,
        updated,
        quota_bytes,
        quota_files,
        used_bytes,
        used_files,
        encrypted,
    })
}

pub(super) fn put_partitions(to: &mut Writer, partitions: &[PartitionInfo]) {
    to.length32("partitions", partitions.len(), MESSAGE_BYTES_MAX / PARTITION_BYTES);
    for partition in partitions {
        to.u64(partition.total_bytes)
            .u64(partition.free_bytes)
            .u32(partition.no.0)
            .length16("bytes of a partition's name", partition.name.len(), PARTITION_NAME_BYTES_MAX)
            .raw(partition.name.as_bytes())
            .length16(
                "bytes of a compression's name",
                partition.compression.len(),
                PARTITION_NAME_BYTES_MAX,
            )
            .raw(partition.compression.as_bytes());
    }
}

pub(super) fn get_partitions(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let count = from.u32()? as usize;
    from.check_room(count, PARTITION_BYTES)?;
    let partition = |_| {
        let (total_bytes, free_bytes, no) = (from.u64()?, from.u64()?, PartitionNo(from.u32()?));
        let length = from.length16("bytes of a partition's name", PARTITION_NAME_BYTES_MAX)?;
        let name = from.text(length)?;
        let length = from.length16("bytes of a compression's name", PARTITION_NAME_BYTES_MAX)?;
        Ok(PartitionInfo { no, name, total_bytes, free_bytes, compression: from.text(length)? })
    };
    (0..count).map(partition).collect::<Result<_, _>>().map(Answer::Partitions)
}

const _: () = assert!(VOLUMES_HEAD_BYTES + VOLUME_BYTES + NAME_BYTES_MAX <= MESSAGE_BYTES_MAX);
