//! Messages about transfers of volumes between servers.

use bytes::Bytes;
use types::limits::{ADDRESSES_MAX, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX, TASK_TEXT_BYTES_MAX};
use types::{
    Answer, Finish, IncomingTree, PartitionNo, Pull, StreamCursor, TaskInfo, TaskState, VnodeNo,
    VolumeCall, VolumeId, VolumeKind,
};

use super::fields::{
    ANY, get_addresses, get_name, get_number, get_text, number, put_addresses, put_text,
};
use crate::WireError;
use crate::wire::{FieldReader, Writer};

const NOTHING: u8 = 0;
const VIEW: u8 = 1;
const READ_WRITE: u8 = 2;
const OVER: u8 = 3;
/// Read-write source with the date of its last update before it.
const READ_WRITE_DATED: u8 = 4;
const OVER_DATED: u8 = 5;
/// Bytes of a task without its text.
const TASK_BYTES: usize = 51;
/// Bytes of an incoming tree.
const INCOMING_BYTES: usize = 45;

pub(super) fn put_cursor(to: &mut Writer, cursor: StreamCursor) -> &mut Writer {
    to.u64(cursor.vnode.0).u64(cursor.position).u8(cursor.stage)
}

pub(super) fn get_cursor(from: &mut FieldReader<'_>) -> Result<StreamCursor, WireError> {
    let (vnode, position) = (VnodeNo(from.u64()?), from.u64()?);
    Ok(StreamCursor { vnode, stage: from.u8()?, position })
}

pub(super) fn put_finish<'w>(to: &'w mut Writer, finish: &Finish) -> &'w mut Writer {
    match finish {
        Finish::Nothing => to.u8(NOTHING),
        Finish::Over { updated: None } => to.u8(OVER),
        Finish::Over { updated: Some(updated) } => to.u8(OVER_DATED).timestamp(*updated),
        Finish::View { id, name, kind, replace } => {
            to.u8(VIEW).u64(number(*id)).name_length(name).u8(*kind as u8).bool(*replace).name(name)
        }
        Finish::ReadWrite { name, quota_bytes, quota_files, created, arriving, updated } => {
            to.u8(if updated.is_some() { READ_WRITE_DATED } else { READ_WRITE });
            if let Some(updated) = updated {
                to.timestamp(*updated);
            }
            to.u64(*quota_bytes)
                .u64(*quota_files)
                .timestamp(*created)
                .bool(*arriving)
                .name_length(name)
                .name(name)
        }
    }
}

pub(super) fn get_finish(from: &mut FieldReader<'_>) -> Result<Finish, WireError> {
    Ok(match from.u8()? {
        NOTHING => Finish::Nothing,
        OVER => Finish::Over { updated: None },
        OVER_DATED => Finish::Over { updated: Some(from.timestamp()?) },
        VIEW => {
            let (id, length) =
                (get_number(from)?, from.length16("name bytes", types::limits::NAME_BYTES_MAX)?);
            let (kind, replace) =
                (from.choice("kind of volume", VolumeKind::from_wire)?, from.bool("replace")?);
            Finish::View { id, name: from.name(length)?, kind, replace }
        }
        tag @ (READ_WRITE | READ_WRITE_DATED) => {
            let updated = if tag == READ_WRITE { None } else { Some(from.timestamp()?) };
            let (quota_bytes, quota_files, created) = (from.u64()?, from.u64()?, from.timestamp()?);
            let arriving = from.bool("arriving")?;
            Finish::ReadWrite {
                name: get_name(from)?,
                quota_bytes,
                quota_files,
                created,
                arriving,
                updated,
            }
        }
        other => {
            return Err(WireError::BadValue { what: "what becomes of it", value: other.into() });
        }
    })
}

pub(super) fn put_pull<'w>(to: &'w mut Writer, pull: &Pull) -> &'w mut Writer {
    to.u64(pull.id.0)
        .u64(pull.tree.0)
        .require(pull.partition != Some(PartitionNo(ANY)), "partition", ANY.into())
        .u32(pull.partition.map_or(ANY, |partition| partition.0))
        .length16("addresses", pull.from.len(), ADDRESSES_MAX);
    put_finish(put_addresses(to, &pull.from), &pull.finish)
}

pub(super) fn get_pull(from: &mut FieldReader<'_>) -> Result<Pull, WireError> {
    let (id, tree, partition) = (VolumeId(from.u64()?), VolumeId(from.u64()?), from.u32()?);
    let count = from.length16("addresses", ADDRESSES_MAX)?;
    let addresses = get_addresses(from, count)?;
    let partition = (partition != ANY).then_some(PartitionNo(partition));
    Ok(Pull { from: addresses, id, partition, tree, finish: get_finish(from)? })
}

pub(super) fn get_apply(from: &mut FieldReader<'_>, part: Bytes) -> Result<VolumeCall, WireError> {
    let (tree, partition, over) =
        (VolumeId(from.u64()?), PartitionNo(from.u32()?), from.bool("over")?);
    if from.length32("bytes of a part", PAYLOAD_BYTES_MAX)? != part.len() {
        return Err(WireError::BadPayload);
    }
    Ok(VolumeCall::Apply { partition, tree, part, over })
}

/// Omits trees that do not fit.
pub(super) fn put_incoming(to: &mut Writer, trees: &[IncomingTree], base: u64) {
    let most = (MESSAGE_BYTES_MAX - 12) / INCOMING_BYTES;
    let trees = &trees[..trees.len().min(most)];
    to.u64(base).u32(trees.len() as u32);
    for tree in trees {
        to.u64(tree.tree.0)
            .u64(tree.since)
            .u64(tree.epoch)
            .u64(tree.bytes)
            .u64(tree.used_bytes)
            .u32(tree.partition.0)
            .bool(tree.over);
    }
}

pub(super) fn get_incoming(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let (base, count) = (from.u64()?, from.u32()? as usize);
    from.check_room(count, INCOMING_BYTES)?;
    let tree = |_| {
        let (tree, since, epoch) = (VolumeId(from.u64()?), from.u64()?, from.u64()?);
        let (bytes, used_bytes, partition) = (from.u64()?, from.u64()?, PartitionNo(from.u32()?));
        Ok(IncomingTree {
            partition,
            tree,
            over: from.bool("over")?,
            since,
            epoch,
            bytes,
            used_bytes,
        })
    };
    let trees = (0..count).map(tree).collect::<Result<_, WireError>>()?;
    Ok(Answer::Incoming { trees, base })
}

/// Omits tasks that do not fit, the oldest first.
pub(super) fn put_tasks(to: &mut Writer, tasks: &[TaskInfo]) {
    let most = (MESSAGE_BYTES_MAX - 4) / (TASK_BYTES + TASK_TEXT_BYTES_MAX);
    let tasks = &tasks[tasks.len().saturating_sub(most)..];
    to.u32(tasks.len() as u32);
    for task in tasks {
        to.u64(task.number)
            .u64(task.tree.0)
            .u64(task.since)
            .u64(task.epoch)
            .u64(task.bytes)
            .u64(task.total_bytes)
            .u8(task.state as u8);
        put_text(to, "bytes of a task's text", &task.text, TASK_TEXT_BYTES_MAX);
    }
}

pub(super) fn get_tasks(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let count = from.u32()? as usize;
    from.check_room(count, TASK_BYTES)?;
    let task = |_| {
        let (number, tree) = (from.u64()?, VolumeId(from.u64()?));
        let (since, epoch, bytes, total_bytes) =
            (from.u64()?, from.u64()?, from.u64()?, from.u64()?);
        let state = from.choice("state of a task", TaskState::from_wire)?;
        let text = get_text(from, "bytes of a task's text", TASK_TEXT_BYTES_MAX)?;
        Ok(TaskInfo { number, tree, state, since, epoch, bytes, total_bytes, text })
    };
    (0..count).map(task).collect::<Result<_, _>>().map(Answer::Tasks)
}
