//! Orders to this client, not to a file system, to drop cached state. They are read
//! (`rialto.do:ORDER`, see `virtual_xattrs.rs`) and not set, because a read-only volume refuses to
//! set anything. None of them has an effect that applications can see.
//!
//! | order | |
//! |---|---|
//! | `flush` | drops what is cached of this file or directory |
//! | `flushvolume` | drops what is cached of this volume |
//! | `flushmount:NAME` | drops the target of this directory's mount point NAME; `EBUSY` if in use |
//! | `checkvolumes` | drops the targets of all mount points below that are not in use |
//! | `rank:SERVER:NUMBER` | of several servers the lowest rank is preferred; root's |
//! | `flushall` | drops what is cached of all volumes |
//! | `cachesize:BYTES` | the limit of the disk cache; 0: that of its start; root's |
//! | `sysname:LIST` | the names for `@sys` (`sysname.rs`), separated by spaces; root's |

use rustix::io::Errno;
use types::{Name, ServerId};

use crate::errno::RequestRefusal;

const SYSNAME: &[u8] = b"sysname:";
const CACHE_SIZE: &[u8] = b"cachesize:";

/// One of them.
pub(crate) enum CacheOrder {
    Flush,
    FlushVolume,
    FlushAll,
    CacheSize(u64),
    FlushMount(Name),
    CheckVolumes,
    Rank(ServerId, u16),
    Sysnames(Vec<u8>),
}

impl CacheOrder {
    /// # Errors
    /// `ENODATA` if there is none such.
    pub fn parse(text: &[u8]) -> Result<CacheOrder, RequestRefusal> {
        Ok(match text {
            b"flush" => CacheOrder::Flush,
            b"flushvolume" => CacheOrder::FlushVolume,
            b"flushall" => CacheOrder::FlushAll,
            b"checkvolumes" => CacheOrder::CheckVolumes,
            _ if text.starts_with(SYSNAME) => CacheOrder::Sysnames(text[SYSNAME.len()..].to_vec()),
            _ if text.starts_with(CACHE_SIZE) => {
                let bytes = std::str::from_utf8(&text[CACHE_SIZE.len()..]).ok();
                let bytes = bytes.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                CacheOrder::CacheSize(bytes.and_then(|text| text.parse().ok()).ok_or(Errno::INVAL)?)
            }
            _ => match (text.strip_prefix(b"flushmount:"), text.strip_prefix(b"rank:")) {
                (Some(name), _) => CacheOrder::FlushMount(Name::new(name)?),
                (_, Some(rank)) => parse_rank(rank).ok_or(Errno::INVAL)?,
                _ => return Err(RequestRefusal(Errno::NODATA)),
            },
        })
    }
}

/// `SERVER:NUMBER`.
fn parse_rank(text: &[u8]) -> Option<CacheOrder> {
    let (server, number) = std::str::from_utf8(text).ok()?.split_once(':')?;
    Some(CacheOrder::Rank(server.parse().ok()?, number.parse().ok()?))
}
