//! The progress of streams that come in, as records.

use types::{StreamCursor, VnodeNo, VolumeId};

use super::codec::{StreamHead, get_cursor, get_head, put_cursor, put_head};
use crate::error::Result;
use crate::format::key;
use crate::format::record::{self, In, Out};
use crate::media::engine::Batch;

/// A tree that comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncomingInfo {
    /// The number of the tree.
    pub tree: VolumeId,
    /// The stream.
    pub head: StreamHead,
    /// The cursor from which the stream continues after a crash.
    pub cursor: StreamCursor,
    /// The bytes of the parts before that cursor.
    pub bytes: u64,
    /// The stream comes in over a read-write volume.
    pub over: bool,
}

/// The volume below a stream that comes in over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Under {
    /// The epoch that the stream starts from, as numbered here; 0: the stream is full.
    pub(crate) since: u64,
    /// How much higher versions are here than at the source.
    pub(crate) shift: u64,
    /// Orphans that clients had open.
    pub(crate) orphans: Vec<VnodeNo>,
}

/// The layout of the progress of a stream over a volume.
const PROGRESS_OVER: u8 = 2;

pub(super) fn put_progress(info: &IncomingInfo, under: Option<&Under>, batch: &mut Batch) {
    let key = key::progress(info.tree);
    let mut out =
        if under.is_some() { Out::with_version(160, PROGRESS_OVER) } else { Out::new(120) };
    put_head(&mut out, &info.head);
    put_cursor(&mut out, info.cursor);
    out.u64(info.bytes);
    if let Some(under) = under {
        out.u64(under.since);
        out.u64(under.shift);
        out.u32(u32::try_from(under.orphans.len()).expect("open files are far below 2^32"));
        under.orphans.iter().for_each(|no| out.u64(no.0));
    }
    batch.put(&key, &out.seal(&key));
}

pub(crate) fn get_progress(key: &[u8], value: &[u8]) -> Result<(IncomingInfo, Option<Under>)> {
    let decode = || {
        let tree = VolumeId(key::number_at(key, 0)?);
        let (version, mut fields) = In::open_any(key, value)
            .filter(|(version, _)| (1..=PROGRESS_OVER).contains(version))?;
        let (head, cursor, bytes) =
            (get_head(&mut fields)?, get_cursor(&mut fields)?, fields.u64()?);
        let mut under = None;
        if version == PROGRESS_OVER {
            let (since, shift, count) = (fields.u64()?, fields.u64()?, fields.u32()?);
            let orphans: Option<Vec<VnodeNo>> =
                (0..count).map(|_| fields.u64().map(VnodeNo)).collect();
            under = Some(Under { since, shift, orphans: orphans? });
        }
        let over = under.is_some();
        fields.end((IncomingInfo { tree, head, cursor, bytes, over }, under))
    };
    decode().ok_or_else(|| record::damaged("progress", key))
}
