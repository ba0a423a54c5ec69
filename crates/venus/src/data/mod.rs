//! One file's bytes on this machine, and the disk cache.
//!
//! Model: records that a lock of their file guards (`FileBytes`), or that have a lock of their own
//! (`DiskCache`, `CacheBody`). They make no calls and know no promises. Imports `base`.

mod block_sums;
mod body_stamp;
mod cache_body;
mod cache_body_sync;
mod disk_cache;
pub(crate) mod disk_cache_map;
mod extents;
mod file_data;
mod landed;
mod legacy;
mod mount_shared;
mod open_file;
mod pace;
mod passed_file;
mod read_cache;
mod scratch_body;
mod sequence;
mod unstable_writes;
mod verified_blocks;

pub(crate) use self::block_sums::{SUMMED, agree, block_sum, matches_sum, read_at};
pub(crate) use self::body_stamp::BodyStamp;
pub(crate) use self::cache_body::CacheBody;
pub(crate) use self::cache_body_sync::Body;
pub(crate) use self::disk_cache::{DiskCache, Taken};
pub(crate) use self::disk_cache_map::{CacheMap, Edition, PIECE, Piece, fid_of, file_name, map_of};
pub(crate) use self::extents::{CHUNK, Chunk, Extents, overlay};
pub(crate) use self::file_data::{Data, End, FileBytes, Granted, Tail};
pub(crate) use self::landed::Landed;
pub(crate) use self::legacy::VolumeLegacy;
pub(crate) use self::mount_shared::MountShared;
pub(crate) use self::open_file::Open;
pub(crate) use self::pace::Pace;
pub(crate) use self::passed_file::{Blank, Choice, PassedFile};
pub(crate) use self::read_cache::{Ahead, BLOCK, Block, DirectBody, GROUP, ReadCache};
pub(crate) use self::scratch_body::{ScratchBody, set_length};
pub(crate) use self::sequence::Sequence;
pub(crate) use self::unstable_writes::{Cut, UnstableWrites};
pub(crate) use self::verified_blocks::VerifiedBlocks;
