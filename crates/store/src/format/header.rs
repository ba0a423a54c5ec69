//! Headers: of a tree (`V`), and of a volume that shows a sealed epoch of one (`W`).
//!
//! A tree's header holds the fields of its read-write volume too, and stays as long as any volume
//! shows the tree. The first layout of `V`, without flags and without sealed epochs in use, is
//! still read.

use types::{Name, Timestamp, VnodeNo, VolumeId, VolumeKind};

use crate::error::Result;
use crate::format::record::{In, Out, damaged};

/// The current layout of trees' headers.
const TREE_VERSION: u8 = 2;
/// Followed by a base: the tree was restored and not changed since.
const TREE_VERSION_BASED: u8 = 3;
/// Followed by an origin and perhaps a base: the tree is a writable clone.
const TREE_VERSION_ORIGIN: u8 = 4;
/// As [`TREE_VERSION_BASED`], with the number of the tree that it was restored from.
const TREE_VERSION_BASED_ON: u8 = 5;
/// The byte before the base of a writable clone: no base, a base without the number of a tree, a
/// base with one.
const BASES: [u8; 3] = [0, 1, 2];
/// The layout without flags and without the time of the last change.
const TREE_VERSION_FIRST: u8 = 1;
/// The layout of a volume of a sealed epoch in which orphans were open.
const VIEW_VERSION_ORPHANS: u8 = 2;
/// The layout without orphans.
const VIEW_VERSION: u8 = 1;
/// The epoch that a new tree writes.
pub(crate) const FIRST_EPOCH: u64 = 1;

/// Limits of a volume; 0: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeQuota {
    /// In bytes.
    pub bytes: u64,
    /// In files.
    pub files: u64,
}

/// The usage of a volume: the sum over its vnodes (ST-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// `used` of every vnode.
    pub bytes: u64,
    /// Vnodes, the root directory included.
    pub files: u64,
}

const OFFLINE: u8 = 1;
const HEADLESS: u8 = 2;
const INCOMING: u8 = 4;
const ARRIVING: u8 = 8;
const HELD: u8 = 16;
/// The read-write volume is being restored over.
const FROZEN: u8 = 32;
/// The read-write volume has standbys elsewhere.
const HAS_STANDBYS: u8 = 64;
/// The head follows a read-write volume elsewhere.
const FOLLOWING: u8 = 128;

/// The header of a tree, the `V` record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeHeader {
    /// The name of the read-write volume.
    pub(crate) name: Name,
    /// The key of the hash of names.
    pub(crate) hash_key: u128,
    pub(crate) created: Timestamp,
    /// When an administrator last changed these fields.
    pub(crate) updated: Timestamp,
    pub(crate) quota: VolumeQuota,
    pub(crate) offline: bool,
    /// The owner of the head; [`TreeHeader::become_head`] changes it.
    pub(crate) head: HeadState,
    /// The read-write volume came from elsewhere and does not serve clients yet.
    pub(crate) arriving: bool,
    /// The read-write volume has standbys elsewhere, any of which may have taken over while this
    /// partition was closed.
    pub(crate) has_standbys: bool,
    /// Slots below this may be in use.
    pub(crate) next_slot: u64,
    /// The epoch that takes writes.
    pub(crate) epoch: u64,
    /// Epochs that volumes show, ascending.
    pub(crate) sealed: Vec<SealedEpoch>,
    /// The epoch of which the read-write volume, when it is not restored over, is still an exact
    /// copy.
    pub(crate) base: Option<Base>,
    /// The epoch with which the tree began; `None`: it began empty.
    pub(crate) origin: Option<ForkOrigin>,
}

/// The owner of a tree's head, and what it does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadState {
    /// The read-write volume takes changes.
    Serving,
    /// The read-write volume takes no changes: it is being moved away.
    Held,
    /// A stream fills the head over the read-write volume, which shows the newest sealed epoch
    /// meanwhile and counts as one that does (`stream/over.rs`).
    Restoring,
    /// That stream was taken back: the volume still shows the sealed epoch, until what came in is
    /// swept.
    TakenBack,
    /// A stream fills the head; there is no read-write volume.
    Incoming,
    /// The entries of a feed fill the head (`standby/`); there is no read-write volume.
    Following,
    /// There is no owner: the read-write volume was removed, or never was on this partition.
    Unowned,
}

impl HeadState {
    /// Whether there is a read-write volume.
    pub(crate) fn has_volume(self) -> bool {
        !matches!(self, HeadState::Incoming | HeadState::Following | HeadState::Unowned)
    }

    /// Whether the read-write volume shows a sealed epoch and takes no changes.
    pub(crate) fn is_being_restored(self) -> bool {
        matches!(self, HeadState::Restoring | HeadState::TakenBack)
    }

    /// Whether a stream (`stream/`) or a feed (`standby/`) fills the head.
    pub(crate) fn comes_in(self) -> bool {
        matches!(self, HeadState::Incoming | HeadState::Following | HeadState::Restoring)
    }

    /// Whether the head belongs to a volume or a stream: its records stay.
    pub(crate) fn has_head(self) -> bool {
        !matches!(self, HeadState::TakenBack | HeadState::Unowned)
    }

    /// Whether one step leads from this state to the other.
    fn leads_to(self, to: HeadState) -> bool {
        use HeadState::{Following, Held, Incoming, Restoring, Serving, TakenBack, Unowned};
        match self {
            Serving => matches!(to, Serving | Held | Restoring | Unowned),
            Held => matches!(to, Held | Serving | Unowned),
            Restoring => matches!(to, Serving | TakenBack),
            TakenBack => matches!(to, Serving | Unowned),
            Incoming => matches!(to, Incoming | Serving | Unowned),
            Following => matches!(to, Following | Serving | Unowned),
            Unowned => matches!(to, Unowned | Incoming | Following | Serving),
        }
    }

    fn flags(self) -> u8 {
        match self {
            HeadState::Serving => 0,
            HeadState::Held => HELD,
            HeadState::Restoring => INCOMING | FROZEN,
            HeadState::TakenBack => FROZEN,
            HeadState::Incoming => HEADLESS | INCOMING,
            HeadState::Following => HEADLESS | FOLLOWING,
            HeadState::Unowned => HEADLESS,
        }
    }

    /// The state with these flags; other combinations were never written.
    fn of(flags: u8) -> Option<HeadState> {
        use HeadState::{Following, Held, Incoming, Restoring, Serving, TakenBack, Unowned};
        let all = [Serving, Held, Restoring, TakenBack, Incoming, Following, Unowned];
        all.into_iter().find(|state| state.flags() == flags)
    }
}

/// A sealed epoch of another tree of the partition, which counts as shown for as long as any part
/// of this tree exists (`origin.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForkOrigin {
    pub(crate) tree: VolumeId,
    pub(crate) epoch: u64,
}

/// The source of a volume that was not changed since it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    /// The tree of the epoch at the source; 0: not known. Two copies of one volume that were
    /// changed apart may have epochs of one number.
    pub(crate) tree: VolumeId,
    /// The epoch's number at the source.
    pub(crate) epoch: u64,
    /// How much higher versions are here than at the source.
    pub(crate) shift: u64,
}

/// A sealed epoch of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealedEpoch {
    pub(crate) epoch: u64,
    /// How many volumes show it.
    pub(crate) volumes: u32,
}

/// The header of a volume that shows a sealed epoch, the `W` record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ViewHeader {
    pub(crate) kind: VolumeKind,
    pub(crate) name: Name,
    pub(crate) tree: VolumeId,
    pub(crate) epoch: u64,
    /// When the epoch was sealed.
    pub(crate) created: Timestamp,
    pub(crate) updated: Timestamp,
    /// The usage of the tree when the epoch was sealed.
    pub(crate) usage: Usage,
    pub(crate) offline: bool,
    /// Orphans that were open then: a writable clone does not begin with them.
    pub(crate) orphans: Vec<VnodeNo>,
}

impl TreeHeader {
    /// The newest sealed epoch; 0: none.
    pub(crate) fn floor(&self) -> u64 {
        self.sealed.last().map_or(0, |sealed| sealed.epoch)
    }

    /// Changes the owner of the head.
    pub(crate) fn become_head(&mut self, to: HeadState, why: &'static str) {
        assert!(self.head.leads_to(to), "VO-3: {:?} does not become {to:?}: {why}", self.head);
        self.head = to;
        debug_assert!(
            !to.is_being_restored() || self.floor() > 0,
            "VO-3: a volume that is restored over shows a sealed epoch: {why}"
        );
    }

    /// Counts one volume more that shows the epoch.
    pub(crate) fn show(&mut self, epoch: u64) {
        match self.sealed.binary_search_by_key(&epoch, |sealed| sealed.epoch) {
            Ok(at) => self.sealed[at].volumes += 1,
            Err(at) => self.sealed.insert(at, SealedEpoch { epoch, volumes: 1 }),
        }
    }

    /// Counts one volume less that shows the epoch; returns whether it was the last one.
    pub(crate) fn hide(&mut self, epoch: u64) -> bool {
        let Ok(at) = self.sealed.binary_search_by_key(&epoch, |sealed| sealed.epoch) else {
            return false;
        };
        assert!(self.sealed[at].volumes > 0, "VO-3: a shown epoch counts its volumes");
        self.sealed[at].volumes -= 1;
        let last = self.sealed[at].volumes == 0;
        if last {
            self.sealed.remove(at);
        }
        last
    }

    pub(crate) fn encode(&self, key: &[u8]) -> Vec<u8> {
        let version = match (self.origin, self.base) {
            (Some(_), _) => TREE_VERSION_ORIGIN,
            (None, Some(_)) => TREE_VERSION_BASED_ON,
            (None, None) => TREE_VERSION,
        };
        let mut out = Out::with_version(160 + self.name.as_bytes().len(), version);
        out.name(&self.name);
        out.0.extend_from_slice(&self.hash_key.to_le_bytes());
        out.time(self.created);
        out.time(self.updated);
        out.u64(self.quota.bytes);
        out.u64(self.quota.files);
        out.u8(flag(self.offline, OFFLINE)
            | flag(self.arriving, ARRIVING)
            | flag(self.has_standbys, HAS_STANDBYS)
            | self.head.flags());
        out.u64(self.next_slot);
        out.u64(self.epoch);
        out.u32(u32::try_from(self.sealed.len()).expect("sealed epochs are far below 2^32"));
        for sealed in &self.sealed {
            out.u64(sealed.epoch);
            out.u32(sealed.volumes);
        }
        if let Some(origin) = self.origin {
            out.u64(origin.tree.0);
            out.u64(origin.epoch);
            out.u8(if self.base.is_some() { BASES[2] } else { BASES[0] });
        }
        if let Some(base) = self.base {
            out.u64(base.epoch);
            out.u64(base.shift);
            out.u64(base.tree.0);
        }
        out.seal(key)
    }

    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<TreeHeader> {
        In::open_any(key, value)
            .and_then(|(version, fields)| match version {
                TREE_VERSION_FIRST..=TREE_VERSION_BASED_ON => TreeHeader::fields(fields, version),
                _ => None,
            })
            .ok_or_else(|| damaged("volume", key))
    }

    fn fields(mut fields: In<'_>, version: u8) -> Option<TreeHeader> {
        let now = version > TREE_VERSION_FIRST;
        let name = fields.name()?;
        let hash_key = fields.u128()?;
        let created = fields.time()?;
        let updated = if now { fields.time()? } else { created };
        let quota = VolumeQuota { bytes: fields.u64()?, files: fields.u64()? };
        let flags = if now { fields.u8()? } else { 0 };
        let mut header = TreeHeader {
            name,
            hash_key,
            created,
            updated,
            quota,
            offline: flags & OFFLINE != 0,
            head: HeadState::of(flags & !(OFFLINE | ARRIVING | HAS_STANDBYS))?,
            arriving: flags & ARRIVING != 0,
            has_standbys: flags & HAS_STANDBYS != 0,
            base: None,
            origin: None,
            next_slot: fields.u64()?,
            epoch: fields.u64()?,
            sealed: Vec::new(),
        };
        for _ in 0..fields.u32()? {
            header.sealed.push(SealedEpoch { epoch: fields.u64()?, volumes: fields.u32()? });
        }
        let mut based = match version {
            TREE_VERSION_BASED => BASES[1],
            TREE_VERSION_BASED_ON => BASES[2],
            _ => BASES[0],
        };
        if version == TREE_VERSION_ORIGIN {
            header.origin =
                Some(ForkOrigin { tree: VolumeId(fields.u64()?), epoch: fields.u64()? });
            based = fields.u8().filter(|based| BASES.contains(based))?;
        }
        if based != BASES[0] {
            let (epoch, shift) = (fields.u64()?, fields.u64()?);
            let tree = VolumeId(if based == BASES[2] { fields.u64()? } else { 0 });
            header.base = Some(Base { tree, epoch, shift });
        }
        let rising = header.sealed.windows(2).all(|pair| pair[0].epoch < pair[1].epoch);
        let older = header.sealed.last().is_none_or(|last| last.epoch < header.epoch);
        let shown = header.sealed.iter().all(|sealed| sealed.volumes > 0);
        let restored = !header.head.is_being_restored() || header.floor() > 0;
        fields.end(header).filter(|_| rising && older && shown && restored)
    }
}

impl ViewHeader {
    pub(crate) fn encode(&self, key: &[u8]) -> Vec<u8> {
        let version = if self.orphans.is_empty() { VIEW_VERSION } else { VIEW_VERSION_ORPHANS };
        let mut out =
            Out::with_version(80 + self.name.as_bytes().len() + 8 * self.orphans.len(), version);
        out.u8(self.kind as u8);
        out.name(&self.name);
        out.u64(self.tree.0);
        out.u64(self.epoch);
        out.time(self.created);
        out.time(self.updated);
        out.u64(self.usage.bytes);
        out.u64(self.usage.files);
        out.u8(flag(self.offline, OFFLINE));
        if !self.orphans.is_empty() {
            out.u32(u32::try_from(self.orphans.len()).expect("open files are far below 2^32"));
            self.orphans.iter().for_each(|no| out.u64(no.0));
        }
        out.seal(key)
    }

    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<ViewHeader> {
        In::open_any(key, value)
            .and_then(|(version, fields)| match version {
                VIEW_VERSION..=VIEW_VERSION_ORPHANS => ViewHeader::fields(fields, version),
                _ => None,
            })
            .ok_or_else(|| damaged("volume", key))
    }

    fn fields(mut fields: In<'_>, version: u8) -> Option<ViewHeader> {
        let kind =
            VolumeKind::from_wire(fields.u8()?).filter(|kind| *kind != VolumeKind::ReadWrite)?;
        let mut header = ViewHeader {
            kind,
            name: fields.name()?,
            tree: VolumeId(fields.u64()?),
            epoch: fields.u64()?,
            created: fields.time()?,
            updated: fields.time()?,
            usage: Usage { bytes: fields.u64()?, files: fields.u64()? },
            offline: false,
            orphans: Vec::new(),
        };
        let flags = fields.u8()?;
        header.offline = flags & OFFLINE != 0;
        if version == VIEW_VERSION_ORPHANS {
            for _ in 0..fields.u32()? {
                header.orphans.push(VnodeNo(fields.u64()?));
            }
        }
        let fits = (version == VIEW_VERSION_ORPHANS) != header.orphans.is_empty();
        fields.end(header).filter(|_| flags & !OFFLINE == 0 && fits)
    }
}

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}
