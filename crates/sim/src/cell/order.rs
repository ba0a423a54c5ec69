//! Operations that administrators order, drawn from the seed, and whether they are done.

use std::sync::Arc;

use bytes::Bytes;
use celldb::CellDb;
use parking_lot::Mutex;
use rand::Rng;
use store::StreamPart;
use types::{
    Answer, Name, ServerId, SiteKind, StreamCursor, VolumeCall, VolumeGroup, VolumeId, VolumeInfo,
    VolumeKind, WhichVolume,
};
use vos::{Job, NewVolume, Part, Sink, VosError};

use super::house::partition_name;
use super::judge::text;
use super::world::World;

/// A server, and the index of one of its partitions.
#[derive(Clone, Copy, Debug)]
pub struct SitePlace(ServerId, usize);

/// One operation.
#[derive(Clone, Debug)]
pub enum VolumeOrder {
    /// Make a new volume.
    Create(Name, SitePlace),
    /// Make the backup volume.
    Backup(Name),
    /// Add a read-only site.
    AddSite(Name, SitePlace),
    /// Remove a read-only site.
    RemoveSite(Name, ServerId),
    /// Release to all read-only sites.
    Release(Name),
    /// Move to another server, or another partition.
    Move(Name, SitePlace),
    /// Move a read-only site to another server, or another partition.
    MoveSite(Name, ServerId, SitePlace),
    /// Copy a volume to a new one.
    Copy(Name, Name, SitePlace),
    /// Restore a dump of one volume as another.
    Restore(Name, Name, SitePlace),
    /// Restore a dump of the first over the second: the changes since the epoch of which that is a
    /// copy, or everything.
    Over(Name, Name, DumpFile),
    /// Rename from one name to another.
    Rename(Name, Name),
    /// Make a writable clone.
    Clone(Name, Name),
    /// Make a snapshot volume that stays.
    Snapshot(Name),
    /// Remove the read-write volume.
    Remove(Name),
}

/// The dump of an order, once it was made.
#[derive(Clone, Default)]
pub struct DumpFile(Arc<Mutex<Option<Dump>>>);

/// The description of a dump, and its parts.
type Dump = (vos::Dumped, Vec<Part>);

impl std::fmt::Debug for DumpFile {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(if self.0.lock().is_some() { "the same dump" } else { "a new dump" })
    }
}

impl SitePlace {
    fn partition(self) -> String {
        partition_name(self.1)
    }
}

fn new_volume(name: &Name, spot: SitePlace) -> NewVolume {
    let partition = spot.partition();
    NewVolume {
        name: name.clone(),
        id: None,
        server: spot.0,
        partition,
        quota_bytes: 0,
        owner: (0, 0),
        encrypt: None,
    }
}

impl VolumeOrder {
    /// Draws an operation that is possible now.
    pub fn draw(world: &mut World, number: u32) -> VolumeOrder {
        let groups = world.database.groups(VolumeId(0), usize::MAX).unwrap_or_default();
        let groups: Vec<VolumeGroup> = groups.into_iter().map(|seen| seen.record).collect();
        let no = world.rng.random_range(0..world.houses.len());
        let partition = world.rng.random_range(0..world.houses[no].machines.len());
        let spot = SitePlace(world.houses[no].info.id, partition);
        let new = Name::new(format!("v{number}").as_bytes()).expect("a name");
        if groups.is_empty() || groups.len() < 3 && world.one_in(5) {
            return VolumeOrder::Create(new, spot);
        }
        let group = &groups[world.rng.random_range(0..groups.len())];
        let name = group.name.clone();
        if group.read_write_site().is_none() {
            return VolumeOrder::Create(new, spot);
        }
        let read_only: Vec<ServerId> = group
            .sites
            .iter()
            .filter(|site| site.kind == SiteKind::ReadOnly)
            .map(|site| site.server)
            .collect();
        match world.rng.random_range(0..26) {
            0 => VolumeOrder::Backup(name),
            1..4 => VolumeOrder::AddSite(name, spot),
            4 if !read_only.is_empty() => VolumeOrder::RemoveSite(name, read_only[0]),
            5..10 if !read_only.is_empty() => VolumeOrder::Release(name),
            10..15 => VolumeOrder::Move(name, spot),
            15 => VolumeOrder::Copy(name, new, spot),
            16 => VolumeOrder::Restore(name, new, spot),
            17 => VolumeOrder::Rename(name, new),
            23..26 => {
                let over = &groups[world.rng.random_range(0..groups.len())];
                if over.name == name {
                    VolumeOrder::Restore(name, new, spot)
                } else {
                    VolumeOrder::Over(name, over.name.clone(), DumpFile::default())
                }
            }
            18 => VolumeOrder::Remove(name),
            19 | 20 => VolumeOrder::Clone(name, new),
            22 if !read_only.is_empty() => VolumeOrder::MoveSite(name, read_only[0], spot),
            _ => VolumeOrder::Snapshot(name),
        }
    }

    /// The names of the groups that it changes.
    pub fn names(&self) -> Vec<&Name> {
        match self {
            VolumeOrder::Create(name, _)
            | VolumeOrder::Backup(name)
            | VolumeOrder::AddSite(name, _)
            | VolumeOrder::RemoveSite(name, _)
            | VolumeOrder::Release(name)
            | VolumeOrder::Move(name, _)
            | VolumeOrder::MoveSite(name, ..)
            | VolumeOrder::Snapshot(name)
            | VolumeOrder::Remove(name) => vec![name],
            VolumeOrder::Copy(name, new, _)
            | VolumeOrder::Restore(name, new, _)
            | VolumeOrder::Over(name, new, _)
            | VolumeOrder::Clone(name, new)
            | VolumeOrder::Rename(name, new) => vec![name, new],
        }
    }

    /// Whether it dumps a volume.
    pub fn reads_a_dump(&self) -> bool {
        matches!(self, VolumeOrder::Restore(..) | VolumeOrder::Over(..))
    }

    /// Leads the operation.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn lead(&self, job: &Job<'_>, coming: &dyn Fn(&Name, &VolumeInfo)) -> Result<(), VosError> {
        let group = |name: &Name| job.servers.db().group_named(name)?.ok_or(VosError::NoVolume);
        match self {
            VolumeOrder::Create(name, spot) => vos::create(job, &new_volume(name, *spot)).map(drop),
            VolumeOrder::Backup(name) => vos::backup(job, group(name)?).map(drop),
            VolumeOrder::AddSite(name, spot) => {
                vos::add_site(job, group(name)?, spot.0, &spot.partition()).map(drop)
            }
            VolumeOrder::RemoveSite(name, server) => {
                vos::remove_site(job, group(name)?, *server).map(drop)
            }
            VolumeOrder::Release(name) => vos::release(job, group(name)?).map(drop),
            VolumeOrder::Move(name, to) => {
                vos::move_volume(job, group(name)?, to.0, &to.partition()).map(drop)
            }
            VolumeOrder::MoveSite(name, from, to) => {
                vos::move_site(job, group(name)?, *from, to.0, &to.partition())
            }
            VolumeOrder::Copy(name, new, spot) => {
                vos::copy(job, &group(name)?, &new_volume(new, *spot)).map(drop)
            }
            VolumeOrder::Restore(name, new, spot) => {
                let (dump, parts) = dumped(job, name, 0, &|volume| coming(new, volume))?;
                let mut parts = parts.into_iter();
                vos::restore(job, &new_volume(new, *spot), &dump, &mut || Ok(parts.next()))
                    .map(drop)
            }
            VolumeOrder::Over(name, over, file) => {
                let over_group = group(over)?;
                let (tree, site) =
                    (over_group.record.read_write, over_group.record.read_write_site().cloned());
                let site = site.ok_or(VosError::NoVolume)?;
                let since = match job
                    .servers
                    .call(site.server, VolumeCall::Incoming { tree: Some(tree) })?
                {
                    // An earlier attempt began with this epoch.
                    Answer::Incoming { trees, base } => trees.first().map_or(base, |one| one.since),
                    _ => 0,
                };
                let kept = file.0.lock().clone();
                let (dump, parts) = match kept {
                    // A stopped operation continues with the same dump.
                    Some(kept) => kept,
                    None => match dumped(job, name, since, &|volume| coming(over, volume)) {
                        // The target is no copy of it, or the epoch is not shown any more.
                        Err(error) if since != 0 && error.is_refusal() => {
                            dumped(job, name, 0, &|volume| coming(over, volume))?
                        }
                        made => made?,
                    },
                };
                *file.0.lock() = Some((dump.clone(), parts.clone()));
                let mut parts = parts.into_iter();
                vos::restore_over(job, over_group, &dump, &mut || Ok(parts.next())).map(drop)
            }
            VolumeOrder::Clone(name, new) => {
                let found = vos::find(job.servers, &WhichVolume::Name(name.clone()), None)?;
                vos::clone_writable(job, &found, new).map(drop)
            }
            VolumeOrder::Rename(from, to) => vos::rename(job, from, to),
            VolumeOrder::Snapshot(name) => {
                let found = vos::find(job.servers, &WhichVolume::Name(name.clone()), None)?;
                let of = found.volume().id;
                let name =
                    Name::new(format!("{}.snapshot.kept", text(name)).as_bytes()).expect("a name");
                let (id, kind, replace) = (None, VolumeKind::Snapshot, true);
                let call = VolumeCall::Clone { id, of, name, kind, replace };
                job.servers.call(found.server, call).map(drop)
            }
            VolumeOrder::Remove(name) => {
                let which = WhichVolume::Name(name.clone());
                match vos::find(job.servers, &which, None) {
                    Err(VosError::NoVolume) if vos::finish_removal(job, &which)? => Ok(()),
                    found => vos::remove(job, &found?),
                }
            }
        }
    }

    /// Returns whether the database shows no claim on its volumes after the operation was refused:
    /// it was done before, or is impossible.
    pub fn is_settled(&self, world: &World) -> bool {
        let group =
            |name: &Name| world.database.group_named(name).ok().flatten().map(|seen| seen.record);
        let is_free = |name: &Name| group(name).is_none_or(|group| group.busy.is_none());
        self.names().into_iter().all(is_free)
    }
}

/// Dumps a volume whole, or its changes since an epoch.
pub(super) fn dumped(
    job: &Job<'_>,
    name: &Name,
    since: u64,
    coming: &dyn Fn(&VolumeInfo),
) -> Result<Dump, VosError> {
    let found = vos::find(job.servers, &WhichVolume::Name(name.clone()), None)?;
    let mut parts = Parts { coming, epoch: 0, parts: Vec::new() };
    vos::dump(job, found.server, found.volume(), since, &mut parts)?;
    let dump = vos::Dumped {
        tree: found.volume().tree,
        epoch: parts.epoch,
        since,
        since_name: String::new(),
        quota_files: 0,
        created: None,
        updated: None,
        total_bytes: 0,
    };
    Ok((dump, parts.parts))
}

/// A dump in memory.
struct Parts<'c> {
    coming: &'c dyn Fn(&VolumeInfo),
    epoch: u64,
    parts: Vec<Part>,
}

impl Sink for Parts<'_> {
    fn begin(&mut self, volume: &VolumeInfo) -> Result<(), VosError> {
        (self.coming)(volume);
        self.epoch = volume.epoch;
        Ok(())
    }

    fn part(&mut self, bytes: Bytes) -> Result<StreamCursor, VosError> {
        let part = StreamPart::open(&bytes).map_err(|error| VosError::Unfit(error.to_string()))?;
        self.parts.push(Part { from: part.from, to: part.to, bytes });
        Ok(part.to)
    }
}
