//! The form of entries on their way to a standby: the tree, the place where they begin, and items
//! as in streams (`stream/codec.rs`), each entry closed by a mark; with a version and a checksum
//! over all of it.
//!
//! A reply is sent with the client that may ask for it, since sessions end with their server.

use types::{ClientId, FeedPlace, ReplyAddress, SessionId, VolumeId};

use crate::StoreError;
use crate::error::Result;
use crate::format::header::VolumeQuota;
use crate::format::record::{In, Out};
use crate::format::vnode::BodyLocation;
use crate::stream::{BodyForm, Item, ItemsOut, Run, get_bytes, get_item, put_bytes};
use crate::tree::feed::{BlockRun, Feed, FeedEntry, Heir, VnodeChange};

const VERSION: u8 = 1;
/// Part of every checksum, so that no other data passes for entries.
const MAGIC: &[u8] = b"rialto feed";
const MALFORMED: StoreError = StoreError::NoStream("entries of a feed are malformed");

/// The tags of what only entries have; all are above those of items.
mod tag {
    pub(super) const QUOTA: u8 = 128;
    pub(super) const REPLY: u8 = 129;
    pub(super) const END: u8 = 130;
}

impl Feed {
    /// Appends whole entries from a place on, as [`crate::Standbys::apply`] takes them, and returns
    /// the place behind them: at least one and about `bytes_max` bytes; none at the end. `None`:
    /// the place is not in the feed (any more). `client_of`: the client of a session that exists.
    pub fn read(
        &self,
        from: FeedPlace,
        bytes_max: usize,
        client_of: &dyn Fn(SessionId) -> Option<ClientId>,
        to: &mut Vec<u8>,
    ) -> Option<FeedPlace> {
        let entries = self.entries(from, bytes_max)?;
        let begin = to.len();
        let bytes: usize = entries.iter().map(|entry| entry.bytes()).sum();
        to.reserve(bytes + (1 << 10));
        let mut out = Out(std::mem::take(to));
        out.u8(VERSION);
        out.u64(self.tree.0);
        out.0.extend_from_slice(&self.hash_key.to_le_bytes());
        out.u64(from.feed);
        out.u64(from.position);
        out.u32(u32::try_from(entries.len()).expect("entries that fit into memory"));
        let mut items = ItemsOut::after(out);
        entries.iter().for_each(|entry| put_entry(&mut items, entry, client_of));
        *to = items.out.seal_from(begin, MAGIC);
        Some(FeedPlace { position: from.position + entries.len() as u64, ..from })
    }
}

/// The place behind encoded entries, as they say; they may be damaged. `None`: there are none.
pub fn place_behind(entries: &[u8]) -> Option<FeedPlace> {
    let (_, fields) = entries.split_first()?;
    Some(EntriesHead::read(&mut In::of(fields))?.to())
}

fn put_entry(
    items: &mut ItemsOut,
    entry: &FeedEntry,
    client_of: &dyn Fn(SessionId) -> Option<ClientId>,
) {
    for change in &entry.vnodes {
        put_change(items, change);
    }
    if let Some(quota) = entry.quota {
        items.out.u8(tag::QUOTA);
        items.out.u64(quota.bytes);
        items.out.u64(quota.files);
    }
    for Heir { client, origin, reply } in &entry.heirs {
        put_reply(items, *client, *origin, reply);
    }
    for (origin, reply) in &entry.replies {
        // A session that has been over for long: its client knows that.
        let Some(client) = client_of(origin.session) else { continue };
        put_reply(items, client, *origin, reply);
    }
    items.out.u8(tag::END);
}

fn put_reply(items: &mut ItemsOut, client: ClientId, origin: ReplyAddress, reply: &[u8]) {
    items.out.u8(tag::REPLY);
    items.out.0.extend_from_slice(&client.0.to_le_bytes());
    items.out.u64(origin.session.0);
    items.out.u32(origin.slot);
    items.out.u64(origin.request);
    put_bytes(&mut items.out, reply);
}

fn put_change(items: &mut ItemsOut, change: &VnodeChange) {
    let Some(vnode) = &change.vnode else { return items.gone(change.no) };
    let form = match (vnode.place, &change.inline) {
        (BodyLocation::None, _) => BodyForm::None,
        (BodyLocation::Inline, inline) => BodyForm::Inline(inline.as_deref().unwrap_or_default()),
        _ => BodyForm::File,
    };
    items.vnode(vnode, form);
    for (name, value) in &change.xattrs {
        match value {
            Some(value) => items.xattr(name, value),
            None => items.xattr_gone(name),
        }
    }
    if !change.buckets.is_empty() {
        items.buckets(0, u64::MAX, false, &change.buckets);
    }
    for run in &change.blocks {
        match run {
            BlockRun::Hole(first, count) => items.blocks(Run::Hole, *first, *count),
            BlockRun::Zeros(first, count) => items.blocks(Run::Zeros, *first, *count),
            BlockRun::Data(first, data) => items.data(*first, data),
        }
    }
    if !change.has_more {
        items.whole(vnode.status.used);
    }
}

/// A reply that came with an entry.
pub(super) struct HeirReply<'a> {
    pub(super) client: ClientId,
    pub(super) origin: ReplyAddress,
    pub(super) reply: &'a [u8],
}

/// The fields before entries.
pub(super) struct EntriesHead {
    pub(super) tree: VolumeId,
    pub(super) hash_key: u128,
    pub(super) from: FeedPlace,
    pub(super) count: u32,
}

impl EntriesHead {
    fn read(rest: &mut In<'_>) -> Option<EntriesHead> {
        let (tree, hash_key) = (VolumeId(rest.u64()?), rest.u128()?);
        let from = FeedPlace { feed: rest.u64()?, position: rest.u64()? };
        let count = rest.u32()?;
        from.position.checked_add(count.into())?;
        Some(EntriesHead { tree, hash_key, from, count })
    }

    /// The place behind all of them.
    pub(super) fn to(&self) -> FeedPlace {
        FeedPlace { position: self.from.position + u64::from(self.count), ..self.from }
    }
}

/// Entries whose checksum is right.
pub(super) struct EntriesIn<'a> {
    pub(super) head: EntriesHead,
    rest: In<'a>,
}

impl<'a> EntriesIn<'a> {
    /// # Errors
    /// `NoStream`.
    pub(super) fn open(bytes: &'a [u8]) -> Result<EntriesIn<'a>> {
        let mut rest = In::open_any(MAGIC, bytes)
            .filter(|(version, _)| *version == VERSION)
            .ok_or(StoreError::NoStream("entries of a feed are damaged, or of a newer form"))?
            .1;
        let head = EntriesHead::read(&mut rest).ok_or(MALFORMED)?;
        Ok(EntriesIn { head, rest })
    }

    /// The next entry.
    ///
    /// # Errors
    /// `NoStream`.
    pub(super) fn entry(&mut self) -> Result<EntryIn<'a>> {
        let mut entry = EntryIn { items: Vec::new(), quota: None, replies: Vec::new() };
        loop {
            match self.rest.peek().ok_or(MALFORMED)? {
                tag::END => {
                    self.rest.u8();
                    return Ok(entry);
                }
                tag::QUOTA => entry.quota = Some(self.quota().ok_or(MALFORMED)?),
                tag::REPLY => entry.replies.push(self.reply().ok_or(MALFORMED)?),
                _ => entry.items.push(get_item(&mut self.rest).ok_or(MALFORMED)?),
            }
        }
    }

    fn quota(&mut self) -> Option<VolumeQuota> {
        self.rest.u8()?;
        Some(VolumeQuota { bytes: self.rest.u64()?, files: self.rest.u64()? })
    }

    fn reply(&mut self) -> Option<HeirReply<'a>> {
        let rest = &mut self.rest;
        rest.u8()?;
        let client = ClientId(rest.u128()?);
        let (session, slot) = (SessionId(rest.u64()?), rest.u32()?);
        let origin = ReplyAddress { session, slot, request: rest.u64()? };
        Some(HeirReply { client, origin, reply: get_bytes(rest)? })
    }

    /// Whether nothing follows the last entry.
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }
}

/// One entry.
pub(super) struct EntryIn<'a> {
    pub(super) items: Vec<Item<'a>>,
    pub(super) quota: Option<VolumeQuota>,
    pub(super) replies: Vec<HeirReply<'a>>,
}
