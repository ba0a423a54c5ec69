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
//! | `sysname:LIST` | the names for `@sys` (`sysname.rs`), separated by spaces; root's |

use rustix::io::Errno;
use types::{Fid, Name, ServerId};

use crate::dispatch::{RequestRefusal, Task};

const SYSNAME: &[u8] = b"sysname:";

/// One of them.
pub(crate) enum CacheOrder {
    Flush,
    FlushVolume,
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
            b"checkvolumes" => CacheOrder::CheckVolumes,
            _ if text.starts_with(SYSNAME) => CacheOrder::Sysnames(text[SYSNAME.len()..].to_vec()),
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

impl Task<'_> {
    pub(crate) fn carry_out(&self, fid: Fid, order: &CacheOrder) -> Result<(), RequestRefusal> {
        match order {
            CacheOrder::Flush => self.venus().control().refresh(&self.request(), fid)?,
            CacheOrder::FlushVolume => {
                self.venus().control().refresh_volume(&self.request(), fid.volume)?;
            }
            CacheOrder::FlushMount(name) => {
                let point = self.mount_point_named(fid, name)?;
                let number = self.on.nodes.number(point);
                self.on.edges.as_ref().map_or(Ok(()), |edges| edges.leave(number))?;
                if let Some(flat) = &self.on.flat {
                    flat.leave(number);
                    self.on.notifier.name_changed(fid, name);
                }
            }
            CacheOrder::Rank(server, rank) if self.request().caller.is_root() => {
                self.on.volumes.cell().set_rank(*server, *rank);
            }
            CacheOrder::Sysnames(list) if self.request().caller.is_root() => {
                self.on.sysnames.set(list).map_err(|_| Errno::INVAL)?;
            }
            CacheOrder::Rank(..) | CacheOrder::Sysnames(_) => {
                return Err(RequestRefusal(Errno::PERM));
            }
            CacheOrder::CheckVolumes => {
                self.on.edges.iter().for_each(|edges| edges.leave_all());
                if let Some(flat) = &self.on.flat {
                    flat.leave_all();
                    self.on.notifier.end_names();
                }
            }
        }
        Ok(())
    }
}
