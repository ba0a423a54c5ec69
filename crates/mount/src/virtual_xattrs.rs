//! Extended attributes that are not stored: by them a mount reports on volumes, and takes orders
//! (`docs/spec/volumes.md`). `rialto fs` needs nothing else. All names begin with `rialto.`:
//!
//! - `fid`: the file's volume, vnode and uniquifier.
//! - `volume`: the number of the file's volume.
//! - `about`: JSON: the volume, its use, and its sites.
//! - `cell`: the cell's name.
//! - `servers`: JSON: the cell's servers, the preferred one first; `servers:check` contacts each.
//! - `acl`: the access list that decides, a line an entry: `give NUMBER RIGHTS`, `deny NUMBER
//!   RIGHTS`. Set: the file's own list; on a volume's root lists decide from now on. Removed: it
//!   inherits its directory's list; on a root, mode bits decide.
//! - `acl:SUM`: set: as `acl` if the list with this sum (`Acl::sum`, in hexadecimal) decides,
//!   otherwise ECANCELED.
//! - `acl:of`: the fid of the directory that has this list, as `fid`.
//! - `who:WHO`: the number of the user or group with this name, or the name for a number.
//! - `rights`: the caller's rights, in letters.
//! - `quota`: the limits of the volume in bytes and files; 0: no limit. The superuser may set it.
//! - `cache`: JSON: the disk cache of this mount.
//! - `connection`: JSON: the client's number at the servers of this cell, whether connections are
//!   encrypted, and the fingerprints of the authorities that vouch for the server.
//! - `waits`: JSON: how long this process's requests took (`docs/spec/signals.md`).
//! - `sysname`: the names for `@sys` (`sysname.rs`), separated by spaces.
//! - `mount:NAME`: of a directory: the target of its mount point NAME. Set: creates it. Removed:
//!   removes it, but not the volume.
//! - `move:NAME`: set to `FID/NEW`: moves the mount point NAME into the directory FID as NEW.
//! - `find:TARGET`: JSON, as `about`, for the volume that a mount point with this target means.
//! - `do:ORDER`: carries an order out, without a value (`cache_control.rs`).
//!
//! Those of access lists, `fid` and `who` also exist under `system.rialto.`. For these the kernel
//! checks no permission, only the server does: an administrator of a file may have neither `r` nor
//! `w` for it, which the kernel requires for every other attribute.
//!
//! No list of attributes has them: a program that copies a file's attributes must not copy these.

use bytes::Bytes;
use guard::Acl;
use rustix::io::Errno;
use serde_json::{Value, json};
use types::{
    Caller, Fault, Fid, Kind, MountPoint, Name, NewKind, RenameMode, ServerInfo, VolumeKind,
    VolumeState, unhex_array,
};
use venus::{Error, LookupReply, RequestContext, VolumeSummary, Volumes};

use crate::cache_control::CacheOrder;
use crate::errno::RequestRefusal;
use crate::task::MountShared;
use crate::volume_view::VolumeView;

const PREFIX: &[u8] = b"rialto.";
/// The kernel checks no permission for these names.
const OPEN_PREFIX: &[u8] = b"system.rialto.";

/// One of these attributes.
pub(crate) enum Virtual {
    Fid,
    Volume,
    About,
    Cell,
    /// Whether each server is contacted.
    Servers(bool),
    Acl,
    /// The file whose list decides.
    AclOf,
    /// Replaces the list only if it has this sum.
    AclInstead([u8; 32]),
    Rights,
    Who(String),
    Quota,
    Cache,
    Connection,
    /// Times of the process's requests ([`observe::Wait`]), as JSON.
    Waits,
    Sysnames,
    Mount(Name),
    Move(Name),
    Find(MountPoint),
    Do(CacheOrder),
}

impl Virtual {
    /// `None`: it is a stored attribute.
    ///
    /// # Errors
    /// `ENODATA` if there is no such name, or the error in the text after its colon.
    pub fn of(name: &[u8]) -> Option<Result<Virtual, RequestRefusal>> {
        let door = name.strip_prefix(OPEN_PREFIX).filter(|rest| {
            let word = rest.split(|byte| *byte == b':').next().unwrap_or_default();
            [&b"acl"[..], b"fid", b"rights", b"who"].contains(&word)
        });
        Some(parse(door.or_else(|| name.strip_prefix(PREFIX))?))
    }
}

fn parse(rest: &[u8]) -> Result<Virtual, RequestRefusal> {
    let (word, argument) = match rest.iter().position(|byte| *byte == b':') {
        Some(colon) => (&rest[..colon], Some(&rest[colon + 1..])),
        None => (rest, None),
    };
    Ok(match (word, argument) {
        (b"fid", None) => Virtual::Fid,
        (b"volume", None) => Virtual::Volume,
        (b"about", None) => Virtual::About,
        (b"cell", None) => Virtual::Cell,
        (b"servers", None) => Virtual::Servers(false),
        (b"servers", Some(b"check")) => Virtual::Servers(true),
        (b"acl", None) => Virtual::Acl,
        (b"acl", Some(b"of")) => Virtual::AclOf,
        (b"acl", Some(seen)) => Virtual::AclInstead(unhex_array(seen).ok_or(Errno::INVAL)?),
        (b"rights", None) => Virtual::Rights,
        (b"who", Some(who)) => {
            Virtual::Who(String::from_utf8(who.to_vec()).map_err(|_| Errno::INVAL)?)
        }
        (b"quota", None) => Virtual::Quota,
        (b"cache", None) => Virtual::Cache,
        (b"connection", None) => Virtual::Connection,
        (b"waits", None) => Virtual::Waits,
        (b"sysname", None) => Virtual::Sysnames,
        (b"mount", Some(name)) => Virtual::Mount(Name::new(name)?),
        (b"move", Some(name)) => Virtual::Move(Name::new(name)?),
        (b"find", Some(target)) => {
            Virtual::Find(MountPoint::parse(target).map_err(|_| Errno::INVAL)?)
        }
        (b"do", Some(order)) => Virtual::Do(CacheOrder::parse(order)?),
        _ => return Err(RequestRefusal(Errno::NODATA)),
    })
}

/// The virtual attributes of one file.
pub(crate) struct VirtualXattrs<'a> {
    pub on: &'a VolumeView,
    pub mount: &'a MountShared,
    pub request: RequestContext<'a>,
    pub fid: Fid,
    /// Mount points lead to read-only volumes if they can.
    pub read_only: bool,
}

impl VirtualXattrs<'_> {
    pub(crate) fn value(&self, wanted: Virtual) -> Result<Bytes, RequestRefusal> {
        let (fid, request, venus) = (self.fid, self.request, &self.on.venus);
        Ok(match wanted {
            Virtual::Fid => fid.to_string().into(),
            Virtual::Volume => fid.volume.0.to_string().into(),
            Virtual::About => self
                .with_all_sites(&self.on.volumes, &venus.control().about(&request, fid)?)
                .to_string()
                .into(),
            Virtual::Cell => self.cell()?.into(),
            Virtual::Servers(check) => self.servers(check).to_string().into(),
            Virtual::Acl => venus.access().acl(&request, fid)?.1.to_string().into(),
            Virtual::AclOf => venus.access().acl(&request, fid)?.0.to_string().into(),
            Virtual::Rights => venus.access().rights(&request, fid)?.0.to_string().into(),
            Virtual::Who(who) => venus.access().who(&request, &who)?.ok_or(Errno::NODATA)?.into(),
            Virtual::Quota => {
                let volume = venus.control().about(&request, fid)?.volume;
                format!("{} {}", volume.quota_bytes, volume.quota_files).into()
            }
            Virtual::Cache => {
                let (used, most) = venus.control().disk_cache().unzip();
                json!({ "used_bytes": used, "bytes_max": most }).to_string().into()
            }
            Virtual::Connection => self.connection().to_string().into(),
            Virtual::Waits => json!(observe::waits()).to_string().into(),
            Virtual::Sysnames => self
                .mount
                .sysnames
                .get()
                .iter()
                .map(Name::as_bytes)
                .collect::<Vec<_>>()
                .join(&b' ')
                .into(),
            Virtual::Mount(name) => {
                let leaf = self.mount_point_named(fid, &name)?;
                venus.readlink(&request, leaf)?
            }
            Virtual::Find(point) => {
                let volumes = self.on.volumes.of_cell(&point)?;
                let volume =
                    volumes.follow(&request, &point, self.read_only || point.cell.is_some())?;
                self.with_all_sites(&volumes, &VolumeSummary::of(&*volume, &request, volume.id())?)
                    .to_string()
                    .into()
            }
            Virtual::Do(order) => {
                self.carry_out(fid, &order)?;
                Bytes::new()
            }
            Virtual::AclInstead(_) | Virtual::Move(_) => return Err(RequestRefusal(Errno::NODATA)),
        })
    }

    /// The directory's entry of this name, if that is a mount point.
    fn mount_point_named(&self, dir: Fid, name: &Name) -> Result<Fid, RequestRefusal> {
        let LookupReply::Entry(entry) = self.on.venus.lookup(&self.request, dir, name)? else {
            return Err(RequestRefusal(Errno::NODATA));
        };
        // The look-up counted a reference that the kernel does not get.
        self.on.venus.forget(entry.status.fid, 1);
        if entry.status.kind == Kind::MountPoint {
            Ok(entry.status.fid)
        } else {
            Err(RequestRefusal(Errno::NODATA))
        }
    }

    /// Adds the volume's other sites after the one in use.
    fn with_all_sites(&self, volumes: &Volumes, about: &VolumeSummary) -> Value {
        let mut value = shown(about);
        let places =
            volumes.cell().places_of(about.volume.id, self.request.cancel).unwrap_or_default();
        let others = places.iter().filter(|(server, _)| server.id != about.server.id);
        if let Some(sites) = value["sites"].as_array_mut() {
            sites.extend(others.map(|(server, partition)| site(server, partition)));
        }
        value
    }

    fn servers(&self, check: bool) -> Value {
        let (cell, request) = (self.on.volumes.cell(), self.request);
        let servers = if check {
            cell.check_servers(request.cancel)
        } else {
            cell.known_servers(request.cancel)
        };
        let shown = servers.iter().map(|server| {
            json!({
                "server": server.info.id.to_string(), "host": server.info.name,
                "addresses": server.info.addresses, "up": server.up, "rank": server.rank,
                "round_trip_us": server.round_trip.map(|time| time.as_micros() as u64),
            })
        });
        shown.collect()
    }

    fn connection(&self) -> Value {
        let report = self.on.volumes.cell().home().connection();
        json!({
            "client": report.client.map(|client| format!("{:032x}", client.0)),
            "encrypted": !report.is_clear_text, "authorities": report.authorities,
        })
    }

    /// The name is no secret, so it needs no user's token, which may have expired.
    fn cell(&self) -> Result<String, RequestRefusal> {
        let report = self.on.venus.control().report(&RequestContext::of(&Caller::ROOT))?;
        let report: Value = serde_json::from_str(&report).map_err(|_| Errno::PROTO)?;
        let name = report["server"]["cell"].as_str().filter(|name| !name.is_empty());
        Ok(name.ok_or(Errno::NODATA)?.to_owned())
    }

    pub(crate) fn set(&self, wanted: Virtual, value: &[u8]) -> Result<(), RequestRefusal> {
        let (fid, request) = (self.fid, self.request);
        match wanted {
            Virtual::Mount(name) => {
                let kind = NewKind::MountPoint(Bytes::copy_from_slice(value));
                let made = self.on.venus.changes().make(&request, fid, &name, kind, 0)?;
                self.on.venus.forget(made.status.fid, 1);
                self.on.notifier.name_changed(fid, &name);
            }
            Virtual::Move(from) => {
                let (dir, to) = self.destination(value)?;
                self.on.venus.changes().rename(
                    &request,
                    (fid, &from),
                    (dir, &to),
                    RenameMode::MountPoint,
                )?;
                self.on.notifier.name_changed(fid, &from);
                self.on.notifier.name_changed(dir, &to);
            }
            Virtual::Acl => {
                self.on.venus.access().set_acl(&request, fid, Some(&list(value)?), None)?;
            }
            Virtual::AclInstead(seen) => {
                match self.on.venus.access().set_acl(&request, fid, Some(&list(value)?), Some(seen))
                {
                    // The kernel turns EAGAIN into EOPNOTSUPP.
                    Err(Error::Fault(Fault::Conflict)) => {
                        return Err(RequestRefusal(Errno::CANCELED));
                    }
                    done => done?,
                }
            }
            Virtual::Quota => {
                let (bytes, files) = limits(value).ok_or(Errno::INVAL)?;
                self.on.venus.control().set_quota(&request, fid, bytes, files)?;
            }
            _ => return Err(RequestRefusal(Errno::PERM)),
        }
        Ok(())
    }

    /// `FID/NAME`. The kernel must know the directory, since the caller walked to it.
    fn destination(&self, value: &[u8]) -> Result<(Fid, Name), RequestRefusal> {
        let slash = value.iter().position(|byte| *byte == b'/').ok_or(Errno::INVAL)?;
        let dir =
            std::str::from_utf8(&value[..slash]).ok().and_then(|text| text.parse::<Fid>().ok());
        let dir = dir.ok_or(Errno::INVAL)?;
        if dir.volume != self.fid.volume {
            return Err(RequestRefusal(Errno::XDEV));
        }
        if !self.on.nodes.knows(dir) {
            return Err(RequestRefusal(Errno::STALE));
        }
        Ok((dir, Name::new(&value[slash + 1..])?))
    }

    pub(crate) fn remove(&self, wanted: Virtual) -> Result<(), RequestRefusal> {
        let dir = self.fid;
        let name = match wanted {
            Virtual::Mount(name) => name,
            Virtual::Acl => {
                self.on.venus.access().set_acl(&self.request, dir, None, None)?;
                return Ok(());
            }
            _ => return Err(RequestRefusal(Errno::PERM)),
        };
        self.on.venus.changes().remove_mount_point(&self.request, dir, &name)?;
        self.on.notifier.name_changed(dir, &name);
        Ok(())
    }

    /// Carries out an order (`cache_control.rs`).
    fn carry_out(&self, fid: Fid, order: &CacheOrder) -> Result<(), RequestRefusal> {
        match order {
            CacheOrder::Flush => self.on.venus.control().refresh(&self.request, fid)?,
            CacheOrder::FlushVolume => {
                self.on.venus.control().refresh_volume(&self.request, fid.volume)?;
            }
            CacheOrder::FlushAll => {
                let mut done = Ok(());
                for (volume, venus) in self.on.volumes.all_open() {
                    // The others are dropped though one cannot send what was written.
                    done = done.and(venus.control().refresh_volume(&self.request, volume));
                }
                done?;
            }
            CacheOrder::CacheSize(bytes) if self.request.caller.is_root() => {
                let bytes = Some(*bytes).filter(|bytes| *bytes > 0);
                // Volumes share the cache of their cell.
                let resized = self
                    .on
                    .volumes
                    .all_open()
                    .iter()
                    .filter(|(_, venus)| venus.control().resize_disk_cache(bytes))
                    .count();
                if resized == 0 {
                    return Err(RequestRefusal(Errno::NODEV));
                }
            }
            CacheOrder::FlushMount(name) => {
                let point = self.mount_point_named(fid, name)?;
                let number = self.on.nodes.number(point);
                self.mount.edges.as_ref().map_or(Ok(()), |edges| edges.leave(number))?;
                if let Some(flat) = &self.mount.flat {
                    flat.leave(number);
                    self.on.notifier.name_changed(fid, name);
                }
            }
            CacheOrder::Rank(server, rank) if self.request.caller.is_root() => {
                self.on.volumes.cell().set_rank(*server, *rank);
            }
            CacheOrder::Sysnames(list) if self.request.caller.is_root() => {
                self.mount.sysnames.set(list).map_err(|_| Errno::INVAL)?;
            }
            CacheOrder::Rank(..) | CacheOrder::Sysnames(_) | CacheOrder::CacheSize(_) => {
                return Err(RequestRefusal(Errno::PERM));
            }
            CacheOrder::CheckVolumes => {
                self.mount.edges.iter().for_each(|edges| edges.leave_all());
                if let Some(flat) = &self.mount.flat {
                    flat.leave_all();
                    self.on.notifier.end_names();
                }
            }
        }
        Ok(())
    }
}

/// An access list.
fn list(text: &[u8]) -> Result<Acl, RequestRefusal> {
    let text = std::str::from_utf8(text).map_err(|_| Errno::INVAL)?;
    Ok(Acl::parse(text).map_err(|_| Errno::INVAL)?)
}

/// `BYTES FILES`.
fn limits(value: &[u8]) -> Option<(u64, u64)> {
    let (bytes, files) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    Some((bytes.parse().ok()?, files.parse().ok()?))
}

fn shown(VolumeSummary { volume, partition, server }: &VolumeSummary) -> Value {
    let kind = match volume.kind {
        VolumeKind::ReadWrite => "rw",
        VolumeKind::ReadOnly => "ro",
        VolumeKind::Backup => "backup",
        VolumeKind::Snapshot => "snapshot",
    };
    let mut asked = site(server, &partition.name);
    asked["free_bytes"] = partition.free_bytes.into();
    asked["total_bytes"] = partition.total_bytes.into();
    json!({
        "id": volume.id.0, "name": String::from_utf8_lossy(volume.name.as_bytes()), "kind": kind,
        "online": volume.state == VolumeState::Online, "tree": volume.tree.0,
        "quota_bytes": volume.quota_bytes, "quota_files": volume.quota_files,
        "used_bytes": volume.used_bytes, "used_files": volume.used_files,
        "sites": [asked],
    })
}

fn site(server: &ServerInfo, partition: &str) -> Value {
    let id = server.id.to_string();
    let addresses = &server.addresses;
    json!({ "server": id, "host": server.name, "addresses": addresses, "partition": partition })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_two_numbers() {
        assert_eq!(limits(b"5368709120 0"), Some((5 << 30, 0)));
        for bad in [&b""[..], b"5", b"5 ", b"5 x", b"-1 0", b"5 6 7", b"\xff 1"] {
            assert_eq!(limits(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn names_are_a_word_and_the_text_after_its_colon() {
        let refused = |name: &[u8]| Virtual::of(name).unwrap().err().map(|refusal| refusal.0);
        assert!(Virtual::of(b"user.rialto.fid").is_none());
        let rank = format!("rialto.do:rank:{:032x}:5", 7);
        for good in [
            &b"rialto.fid"[..],
            b"rialto.servers",
            b"rialto.servers:check",
            b"rialto.sysname",
            b"rialto.acl",
            b"rialto.acl:of",
            b"rialto.acl:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
            b"rialto.do:sysname:a b",
            rank.as_bytes(),
            b"rialto.mount:a:b",
            b"rialto.find:#root.cell",
            b"rialto.do:flush",
            b"rialto.do:flushall",
            b"rialto.do:cachesize:0",
            b"rialto.connection",
        ] {
            assert_eq!(refused(good), None, "{}", String::from_utf8_lossy(good));
        }
        assert_eq!(refused(b"system.rialto.acl:of"), None);
        assert!(
            Virtual::of(b"system.rialto.quota").is_none()
                && Virtual::of(b"system.rialto.login").is_none()
        );
        for absent in
            [&b"rialto."[..], b"rialto.fid:", b"rialto.mount", b"rialto.other", b"rialto.do:other"]
        {
            assert_eq!(refused(absent), Some(Errno::NODATA), "{}", String::from_utf8_lossy(absent));
        }
        for bad in [&b"rialto.do:rank:7:5"[..], b"rialto.do:cachesize:", b"rialto.do:cachesize:+1"]
        {
            assert_eq!(refused(bad), Some(Errno::INVAL), "{}", String::from_utf8_lossy(bad));
        }
        assert_eq!(refused(b"rialto.find:root.cell"), Some(Errno::INVAL));
        assert_eq!(refused(b"rialto.mount:a/b"), Some(Errno::INVAL));
        let tail = "1".repeat(62);
        for bad in [
            "",
            "of ",
            "11",
            &"1".repeat(65),
            &format!("+1{tail}"),
            &format!("g1{tail}"),
            &format!("é{tail}"),
        ] {
            assert_eq!(
                refused(format!("rialto.acl:{bad}").as_bytes()),
                Some(Errno::INVAL),
                "{bad}"
            );
        }
    }
}
