//! Messages about transfers of volumes between servers.

use types::limits::{ADDRESSES_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, TASK_TEXT_BYTES_MAX};
use types::{Answer, Finish, IncomingTree, Pull, StreamCursor, TaskInfo};

use super::layout::{Flag, Layout, Plain, Short, get_all, layout, record};
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

record!(StreamCursor { vnode, position, stage });
record!(IncomingTree { tree, since, epoch, bytes, used_bytes, partition, over: Flag("over") });
record!(TaskInfo {
    number,
    tree,
    since,
    epoch,
    bytes,
    total_bytes,
    state,
    text: Short("bytes of a task's text", TASK_TEXT_BYTES_MAX),
});

impl Layout<Finish> for Plain {
    fn put(&self, to: &mut Writer, value: &Finish) {
        match value {
            Finish::Nothing => to.u8(NOTHING),
            Finish::Over { updated: None } => to.u8(OVER),
            Finish::Over { updated: Some(updated) } => to.u8(OVER_DATED).timestamp(*updated),
            Finish::View { id, name, kind, replace } => {
                self.put(to.u8(VIEW), id);
                to.name_length(name).u8(*kind as u8).bool(*replace).name(name)
            }
            Finish::ReadWrite { name, quota_bytes, quota_files, created, arriving, updated } => {
                to.u8(if updated.is_some() { READ_WRITE_DATED } else { READ_WRITE });
                updated.iter().for_each(|updated| self.put(to, updated));
                to.u64(*quota_bytes)
                    .u64(*quota_files)
                    .timestamp(*created)
                    .bool(*arriving)
                    .name_length(name)
                    .name(name)
            }
        };
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Finish, WireError> {
        Ok(match from.u8()? {
            NOTHING => Finish::Nothing,
            OVER => Finish::Over { updated: None },
            OVER_DATED => Finish::Over { updated: Some(from.timestamp()?) },
            VIEW => {
                let (id, length) = (self.get(from)?, from.length16("name bytes", NAME_BYTES_MAX)?);
                let (kind, replace) = (self.get(from)?, from.bool("replace")?);
                Finish::View { id, name: from.name(length)?, kind, replace }
            }
            tag @ (READ_WRITE | READ_WRITE_DATED) => Finish::ReadWrite {
                updated: (tag == READ_WRITE_DATED).then(|| from.timestamp()).transpose()?,
                quota_bytes: from.u64()?,
                quota_files: from.u64()?,
                created: from.timestamp()?,
                arriving: from.bool("arriving")?,
                name: self.get(from)?,
            },
            other => {
                return Err(WireError::BadValue {
                    what: "what becomes of it",
                    value: other.into(),
                });
            }
        })
    }
}

impl Layout<Pull> for Plain {
    fn put(&self, to: &mut Writer, pull: &Pull) {
        to.u64(pull.id.0).u64(pull.tree.0);
        self.put(to, &pull.partition);
        to.length16("addresses", pull.from.len(), ADDRESSES_MAX);
        pull.from.iter().for_each(|address| self.put(to, address));
        self.put(to, &pull.finish);
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Pull, WireError> {
        let (id, tree, partition) = (self.get(from)?, self.get(from)?, self.get(from)?);
        let count = from.length16("addresses", ADDRESSES_MAX)?;
        let addresses = get_all(from, count, 0, self)?;
        Ok(Pull { from: addresses, id, partition, tree, finish: self.get(from)? })
    }
}

/// Omits trees that do not fit.
pub(super) fn put_incoming(to: &mut Writer, trees: &[IncomingTree], base: u64) {
    let most = (MESSAGE_BYTES_MAX - 12) / INCOMING_BYTES;
    let trees = &trees[..trees.len().min(most)];
    to.u64(base).u32(trees.len() as u32);
    trees.iter().for_each(|tree| Plain.put(to, tree));
}

pub(super) fn get_incoming(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let (base, count) = (from.u64()?, from.u32()? as usize);
    Ok(Answer::Incoming { trees: get_all(from, count, INCOMING_BYTES, &Plain)?, base })
}

/// Omits tasks that do not fit, the oldest first.
pub(super) fn put_tasks(to: &mut Writer, tasks: &[TaskInfo]) {
    let most = (MESSAGE_BYTES_MAX - 4) / (TASK_BYTES + TASK_TEXT_BYTES_MAX);
    let tasks = &tasks[tasks.len().saturating_sub(most)..];
    to.u32(tasks.len() as u32);
    tasks.iter().for_each(|task| Plain.put(to, task));
}

pub(super) fn get_tasks(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let count = from.u32()? as usize;
    get_all(from, count, TASK_BYTES, &Plain).map(Answer::Tasks)
}
