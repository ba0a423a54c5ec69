//! Messages about volumes and partitions: calls and answers.

use bytes::Bytes;
use types::limits::{
    MESSAGE_BYTES_MAX, NAME_BYTES_MAX, PARTITION_NAME_BYTES_MAX, PAYLOAD_BYTES_MAX,
};
use types::{Answer, PartitionInfo, VolumeCall, VolumeChange, VolumeInfo, VolumeState};

use super::Procedure;
use super::layout::{Flag, Layout, LongList, Plain, Short, get_page, layout, messages, record};
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

messages! {
    VolumeCall by Procedure:
    fn put_volume_call(to);
    fn get_volume_call(from, number, payload: Bytes);
    {
        VolumeRemove => Remove { id }
        VolumeRename => Rename { id, name }
        VolumeSetFields => SetFields { id, change }
        VolumeList => List { after, partition, max }
        VolumeExamine => Examine { volume }
        Partitions => Partitions {}
        VolumeFinish => Finish { tree, partition, finish }
        Tasks => Tasks {}
        VolumeEndTask => EndTask { number }
        VolumeHold => Hold { id, millis }
        VolumeServe => Serve { id }
        VolumeBeside => Beside { id, partition, what }
        VolumeIncoming => Incoming { tree }
        VolumeTakeOver => TakeOver { copy, above, name }
        VolumeStandBy => StandBy { tree, partition }
        VolumeFormat => Format { partition, raise: Flag("raise") }
        VolumeTrust => Trust { partition }
        VolumeLoads => Loads { partition, after, max }
        VolumeFeed => Feed { id, standby }
        VolumeStandbys => Standbys { id }
        VolumeFailOver => FailOver { id, force: Flag("force") }
        VolumeInherit => Inherit { id, origin }
    }
    (
        VolumePull => Pull;
        VolumeFollow => Follow;
    )
    put {
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
            Plain.put(to, id);
            to.u64(*quota_bytes).u64(*quota_files);
            Plain.put(to, partition);
            to.u32(*uid).u32(*gid).u16(name.as_bytes().len() as u16 | flags).name(name);
        }
        VolumeCall::Clone { id, of, name, kind, replace } => {
            Plain.put(to, id);
            to.u64(of.0).name_length(name).u8(*kind as u8).bool(*replace).name(name);
        }
        VolumeCall::Changes { id, since, cursor, bytes_max, packed } => {
            let is_part = *bytes_max as usize <= PAYLOAD_BYTES_MAX;
            Plain.put(to.u64(id.0).u64(*since), cursor);
            to.require(is_part, "bytes of a part", u64::from(*bytes_max))
                .u32(*bytes_max | if *packed { TAKES_PACKED } else { 0 });
        }
        VolumeCall::Apply { partition, tree, part, over } => {
            to.u64(tree.0).u32(partition.0).bool(*over).length32(
                "bytes of a part",
                part.len(),
                PAYLOAD_BYTES_MAX,
            );
        }
    }
    get {
        Procedure::VolumeCreate => {
            let (id, quota_bytes, quota_files) = (Plain.get(from)?, from.u64()?, from.u64()?);
            let (partition, owner) = (Plain.get(from)?, (from.u32()?, from.u32()?));
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
        Procedure::VolumeClone => {
            let (id, of) = (Plain.get(from)?, Plain.get(from)?);
            let length = from.length16("name bytes", NAME_BYTES_MAX)?;
            let (kind, replace) = (Plain.get(from)?, from.bool("replace")?);
            VolumeCall::Clone { id, of, name: from.name(length)?, kind, replace }
        }
        Procedure::VolumeChanges => {
            let (id, since) = (Plain.get(from)?, from.u64()?);
            let (cursor, bytes) = (Plain.get(from)?, from.u32()?);
            let (bytes_max, packed) = (bytes & !TAKES_PACKED, bytes & TAKES_PACKED != 0);
            if bytes_max as usize > PAYLOAD_BYTES_MAX {
                return Err(WireError::BadValue { what: "bytes of a part", value: bytes.into() });
            }
            VolumeCall::Changes { id, since, cursor, bytes_max, packed }
        }
        Procedure::VolumeApply => {
            let (tree, partition) = (Plain.get(from)?, Plain.get(from)?);
            let over = from.bool("over")?;
            if from.length32("bytes of a part", PAYLOAD_BYTES_MAX)? != payload.len() {
                return Err(WireError::BadPayload);
            }
            VolumeCall::Apply { partition, tree, part: payload, over }
        }
        other => {
            return Err(WireError::BadValue { what: "procedure of volumes", value: other as u64 });
        }
    }
}

record!(PartitionInfo {
    total_bytes,
    free_bytes,
    no,
    name: Short("bytes of a partition's name", PARTITION_NAME_BYTES_MAX),
    compression: Short("bytes of a compression's name", PARTITION_NAME_BYTES_MAX),
});

/// In `present` of a change of a volume's fields: reads are recorded from now on.
const READ_TIMES: u8 = 4;
/// In `present`: reads are not recorded from now on.
const NO_READ_TIMES: u8 = 8;
/// In `present`: clients of AFS are served from now on.
const AFS: u8 = 16;
/// In `present`: clients of AFS are refused from now on.
const NO_AFS: u8 = 32;

impl Layout<VolumeChange> for Plain {
    fn put(&self, to: &mut Writer, change: &VolumeChange) {
        to.u64(change.quota_bytes.unwrap_or(0))
            .u64(change.quota_files.unwrap_or(0))
            .u8(change.state.map_or(0, |state| state as u8))
            .u8(u8::from(change.quota_bytes.is_some())
                | u8::from(change.quota_files.is_some()) << 1
                | change.read_times.map_or(0, |on| if on { READ_TIMES } else { NO_READ_TIMES })
                | change.afs.map_or(0, |on| if on { AFS } else { NO_AFS }));
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<VolumeChange, WireError> {
        let (bytes, files, state, present) = (from.u64()?, from.u64()?, from.u8()?, from.u8()?);
        let bad = |what, value| Err(WireError::BadValue { what, value });
        let field = |bit: u8, value: u64| (present & bit != 0).then_some(value);
        let state = match (state, VolumeState::from_wire(state)) {
            (0, _) => None,
            (_, Some(state)) => Some(state),
            (state, None) => return bad("state of a volume", state.into()),
        };
        let option = |yes: u8, no: u8| match present & (yes | no) {
            0 => Ok(None),
            both if both == yes | no => bad("present", present.into()).map(|_: VolumeChange| None),
            one => Ok(Some(one == yes)),
        };
        let (read_times, afs) = (option(READ_TIMES, NO_READ_TIMES)?, option(AFS, NO_AFS)?);
        if present & !(3 | READ_TIMES | NO_READ_TIMES | AFS | NO_AFS) != 0 {
            return bad("present", present.into());
        }
        match (present & 3, bytes, files) {
            (0 | 2, 1.., _) => bad("quota bytes", bytes),
            (0 | 1, _, 1..) => bad("quota files", files),
            _ => Ok(VolumeChange {
                quota_bytes: field(1, bytes),
                quota_files: field(2, files),
                state,
                read_times,
                afs,
            }),
        }
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
    volumes.iter().take(fit).for_each(|volume| Plain.put(to, volume));
}

pub(super) fn get_volumes(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    get_page(from, VOLUME_BYTES + 1, &Plain).map(|(volumes, end)| Answer::Volumes { volumes, end })
}

impl Layout<VolumeInfo> for Plain {
    fn put(&self, to: &mut Writer, volume: &VolumeInfo) {
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
        volume.encrypted.iter().for_each(|number| self.put(to, number));
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<VolumeInfo, WireError> {
        let (id, tree) = (self.get(from)?, self.get(from)?);
        let (created, updated) = (from.timestamp()?, from.timestamp()?);
        let (quota_bytes, quota_files) = (from.u64()?, from.u64()?);
        let (used_bytes, used_files, epoch) = (from.u64()?, from.u64()?, from.u64()?);
        let (origin, partition) = (self.get(from)?, self.get(from)?);
        let length = from.length16("name bytes", NAME_BYTES_MAX)?;
        let kind = self.get(from)?;
        let state = from.u8()?;
        let has_key = state & HAS_KEY != 0;
        let odd = WireError::BadValue { what: "state of a volume", value: state.into() };
        Ok(VolumeInfo {
            id,
            tree,
            kind,
            state: VolumeState::from_wire(state & !HAS_KEY).ok_or(odd)?,
            partition,
            epoch,
            origin,
            name: from.name(length)?,
            created,
            updated,
            quota_bytes,
            quota_files,
            used_bytes,
            used_files,
            encrypted: has_key.then(|| from.u32()).transpose()?,
        })
    }
}

/// The partitions of a server.
pub(super) const PARTITIONS: LongList<Plain> =
    LongList("partitions", MESSAGE_BYTES_MAX / PARTITION_BYTES, PARTITION_BYTES, Plain);

const _: () = assert!(VOLUMES_HEAD_BYTES + VOLUME_BYTES + NAME_BYTES_MAX <= MESSAGE_BYTES_MAX);
