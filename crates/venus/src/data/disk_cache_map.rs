//! The map that the disk cache writes for a file: its pieces and their sums; and the file's name
//! (`disk_cache.rs`).

use std::collections::HashMap;

use types::{BootVerifier, DataVersion, Fid, Status};

use super::{SUMMED, block_sum};

/// The unit that is valid or not as a whole.
pub(crate) const PIECE: u64 = 64 << 10;

const MAGIC: &[u8; 8] = b"RIALTOC3";

/// Bytes of a map before its pieces: magic, edition, count.
const HEAD: usize = 40;

/// Bytes of a piece in a map: index, length, sum.
const ROW: usize = 16;

/// Identity of a file's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edition {
    pub version: DataVersion,
    /// Time of the file's last change, by the server's clock, in nanoseconds.
    pub(super) changed: u64,
    /// The server instance; the default: unknown.
    pub(super) instance: BootVerifier,
}

impl Edition {
    /// The edition of this status, which came in that server instance.
    pub fn of(status: &Status, instance: BootVerifier) -> Edition {
        let changed = status.changed.secs.cast_unsigned().wrapping_mul(1_000_000_000)
            + u64::from(status.changed.nanos);
        Edition { version: status.data_version, changed, instance }
    }

    /// An edition of which only the version is known.
    pub fn in_this_instance(version: DataVersion) -> Edition {
        Edition { version, ..Edition::default() }
    }

    pub fn is(&self, other: &Edition) -> bool {
        self.version == other.version
            && (self.instance == other.instance || self.changed == other.changed)
    }
}

/// Sums of a piece's blocks, as the server has them.
type Blocks = [u32; (PIECE / SUMMED) as usize];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(super) bytes: u32,
    /// Sum over its blocks' sums: the bytes are summed once, for this and for the server's sums.
    pub(super) sum: u32,
    /// Sums of a piece that came, or was compared with its sum, since the start.
    pub(super) blocks: Option<Blocks>,
}

impl Piece {
    pub fn of(bytes: &[u8]) -> Piece {
        let blocks = blocks_of(bytes);
        let sum =
            blocks.iter().fold(0, |sum, block| crc32c::crc32c_append(sum, &block.to_le_bytes()));
        Piece { bytes: bytes.len() as u32, sum, blocks: Some(blocks) }
    }
}

fn blocks_of(piece: &[u8]) -> Blocks {
    let mut blocks = Blocks::default();
    for (sum, block) in blocks.iter_mut().zip(piece.chunks(SUMMED as usize)) {
        *sum = block_sum(block);
    }
    blocks
}

/// The content of a map file: magic, edition (version, last change, instance), count, rows of
/// (index, bytes, sum), crc32c of everything before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CacheMap {
    pub(super) edition: Edition,
    pub(super) pieces: HashMap<u64, Piece>,
}

impl CacheMap {
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        map_of(self.edition, &self.pieces)
    }

    pub(crate) fn parse(map: &[u8]) -> Option<CacheMap> {
        let (body, sum) = map.split_last_chunk::<4>()?;
        if body.len() < HEAD
            || &body[..8] != MAGIC
            || crc32c::crc32c(body) != u32::from_le_bytes(*sum)
        {
            return None;
        }
        let long = |at: usize| Some(u64::from_le_bytes(*body.get(at..)?.first_chunk()?));
        let short = |at: usize| Some(u32::from_le_bytes(*body.get(at..)?.first_chunk()?));
        let rows = (body.len() - HEAD) / ROW;
        if long(32)? != rows as u64 || !(body.len() - HEAD).is_multiple_of(ROW) {
            return None;
        }
        let row = |n: usize| {
            let at = HEAD + n * ROW;
            Some((long(at)?, Piece { bytes: short(at + 8)?, sum: short(at + 12)?, blocks: None }))
        };
        let edition = Edition {
            version: DataVersion(long(8)?),
            changed: long(16)?,
            instance: BootVerifier(long(24)?),
        };
        Some(CacheMap { edition, pieces: (0..rows).map(row).collect::<Option<_>>()? })
    }
}

pub(crate) fn map_of(edition: Edition, pieces: &HashMap<u64, Piece>) -> Vec<u8> {
    let mut map = Vec::with_capacity(HEAD + pieces.len() * ROW + 4);
    map.extend_from_slice(MAGIC);
    for part in [edition.version.0, edition.changed, edition.instance.0] {
        map.extend_from_slice(&part.to_le_bytes());
    }
    map.extend_from_slice(&(pieces.len() as u64).to_le_bytes());
    for (index, piece) in pieces {
        map.extend_from_slice(&index.to_le_bytes());
        map.extend_from_slice(&piece.bytes.to_le_bytes());
        map.extend_from_slice(&piece.sum.to_le_bytes());
    }
    let sum = crc32c::crc32c(&map);
    map.extend_from_slice(&sum.to_le_bytes());
    map
}

pub(crate) fn file_name(fid: Fid) -> String {
    format!("{:x}.{:x}.{:x}", fid.volume.0, fid.vnode.0, fid.unique.0)
}

/// The file that the cache stores under this name; another form of the same numbers is not
/// accepted.
pub(crate) fn fid_of(name: &str) -> Option<Fid> {
    let mut parts = name.split('.').map(|part| u64::from_str_radix(part, 16).ok());
    let fid = Fid::new(parts.next()??, parts.next()??, parts.next()??);
    (file_name(fid) == name).then_some(fid)
}
