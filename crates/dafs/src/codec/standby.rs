//! Messages of standbys and the servers that they follow.

use types::limits::{REPLY_RECORD_BYTES_MAX, SITES_MAX};
use types::{FeedPlace, FeedStart, Follow, Inherited, ReplyAddress, SessionId, StandbyInfo};

use super::layout::{Flag, Layout, Long, LongList, Plain, layout, record};
use crate::WireError;
use crate::wire::{FieldReader, Writer};

/// Bytes of a standby.
const STANDBY_BYTES: usize = 50;

/// The standbys of a volume.
pub(super) const STANDBYS: LongList<Plain> = LongList("standbys", SITES_MAX, STANDBY_BYTES, Plain);

record!(FeedPlace { feed, position });
record!(FeedStart { place, base, epoch });
record!(Follow { id, standby, base, applied, synced, heard, bytes_max });
record!(StandbyInfo {
    server,
    behind,
    behind_bytes,
    lag_millis,
    heard_millis,
    is_sync: Flag("is_sync"),
    in_step: Flag("in_step"),
});
record!(Inherited { origin, answer: Long("bytes of a reply record", REPLY_RECORD_BYTES_MAX) });

impl Layout<ReplyAddress> for Plain {
    fn put(&self, to: &mut Writer, value: &ReplyAddress) {
        to.u64(value.session.0).u32(value.slot).u64(value.request);
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<ReplyAddress, WireError> {
        let session = SessionId(from.u64()?);
        Ok(ReplyAddress { session, slot: from.u32()?, request: from.u64()? })
    }
}
