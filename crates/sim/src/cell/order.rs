//! What administrators want, by seed, and whether they have it.

use std::sync::Arc;

use bytes::Bytes;
use celldb::CellDb;
use parking_lot::Mutex;
use rand::Rng;
use store::StreamPart;
use types::{
    Answer, Name, ServerId, SiteKind, StreamCursor, VolumeCall, VolumeGroup, VolumeId, VolumeInfo, VolumeKind,
    WhichVolume,
};
use vos::{Error, Job, NewVolume, Part, Sink};

use super::house::partition_name;
use super::judge::text;
use super::world::World;

/// A server, and which of its partitions.
#[derive(Clone, Copy, Debug)]
pub struct Spot(ServerId, usize);

/// One operation.
#[derive(Clone, Debug)]
pub enum Order {
    /// A new volume.
    Create(Name, Spot),
    /// Yesterday's.
    Backup(Name),
    /// One more read-only site.
    AddSite(Name, Spot),
    /// One less.
    RemoveSite(Name, ServerId),
    /// To all read-only sites.
    Release(Name),
    /// To another server, or another partition.
    Move(Name, Spot),
    /// A read-only site goes to another server, or another partition.
    MoveSite(Name, ServerId, Spot),
    /// A new volume with what another holds.
    Copy(Name, Name, Spot),
    /// A dump of one becomes another.
    Restore(Name, Name, Spot),
    /// A dump of the first is brought over the second: what was changed since that is a copy of it, or all.
    Over(Name, Name, DumpFile),
    /// From one name to another.
    Rename(Name, Name),
    /// A writable clone.
    Clone(Name, Name),
    /// A snapshot that stays.
    Snapshot(Name),
    /// The read-write volume goes.
    Remove(Name),
}

/// The dump that an order brings, once it was made.
#[derive(Clone, Default)]
pub struct DumpFile(Arc<Mutex<Option<Dump>>>);

/// What a dump brings, and its parts.
type Dump = (vos::Dumped, Vec<Part>);

impl std::fmt::Debug for DumpFile {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(if self.0.lock().is_some() { "the same dump" } else { "a new dump" })
    }
}

impl Spot {
    fn partition(self) -> String {
        partition_name(self.1)
    }
}

fn new_volume(name: &Name, spot: Spot) -> NewVolume {
    let partition = spot.partition();
    NewVolume { name: name.clone(), id: None, server: spot.0, partition, quota_bytes: 0, owner: (0, 0), encrypt: None }
}

impl Order {
    /// Something that can be done now.
    pub fn draw(world: &mut World, number: u32) -> Order {
        let groups = world.database.groups(VolumeId(0), usize::MAX).unwrap_or_default();
        let groups: Vec<VolumeGroup> = groups.into_iter().map(|seen| seen.record).collect();
        let no = world.rng.random_range(0..world.houses.len());
        let partition = world.rng.random_range(0..world.houses[no].machines.len());
        let spot = Spot(world.houses[no].info.id, partition);
        let new = Name::new(format!("v{number}").as_bytes()).expect("a name");
        if groups.is_empty() || groups.len() < 3 && world.one_in(5) {
            return Order::Create(new, spot);
        }
        let group = &groups[world.rng.random_range(0..groups.len())];
        let name = group.name.clone();
        if group.read_write_site().is_none() {
            return Order::Create(new, spot);
        }
        let read_only: Vec<ServerId> =
            group.sites.iter().filter(|site| site.kind == SiteKind::ReadOnly).map(|site| site.server).collect();
        match world.rng.random_range(0..26) {
            0 => Order::Backup(name),
            1..4 => Order::AddSite(name, spot),
            4 if !read_only.is_empty() => Order::RemoveSite(name, read_only[0]),
            5..10 if !read_only.is_empty() => Order::Release(name),
            10..15 => Order::Move(name, spot),
            15 => Order::Copy(name, new, spot),
            16 => Order::Restore(name, new, spot),
            17 => Order::Rename(name, new),
            23..26 => {
                let over = &groups[world.rng.random_range(0..groups.len())];
                if over.name == name {
                    Order::Restore(name, new, spot)
                } else {
                    Order::Over(name, over.name.clone(), DumpFile::default())
                }
            }
            18 => Order::Remove(name),
            19 | 20 => Order::Clone(name, new),
            22 if !read_only.is_empty() => Order::MoveSite(name, read_only[0], spot),
            _ => Order::Snapshot(name),
        }
    }

    /// The names of the groups that it changes.
    pub fn names(&self) -> Vec<&Name> {
        match self {
            Order::Create(name, _)
            | Order::Backup(name)
            | Order::AddSite(name, _)
            | Order::RemoveSite(name, _)
            | Order::Release(name)
            | Order::Move(name, _)
            | Order::MoveSite(name, ..)
            | Order::Snapshot(name)
            | Order::Remove(name) => vec![name],
            Order::Copy(name, new, _)
            | Order::Restore(name, new, _)
            | Order::Over(name, new, _)
            | Order::Clone(name, new)
            | Order::Rename(name, new) => vec![name, new],
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// That of the operation.
    pub fn lead(&self, job: &Job<'_>, coming: &dyn Fn(&Name, &VolumeInfo)) -> Result<(), Error> {
        let group = |name: &Name| job.servers.db().group_named(name)?.ok_or(Error::NoVolume);
        match self {
            Order::Create(name, spot) => vos::create(job, &new_volume(name, *spot)).map(drop),
            Order::Backup(name) => vos::backup(job, group(name)?).map(drop),
            Order::AddSite(name, spot) => vos::add_site(job, group(name)?, spot.0, &spot.partition()).map(drop),
            Order::RemoveSite(name, server) => vos::remove_site(job, group(name)?, *server).map(drop),
            Order::Release(name) => vos::release(job, group(name)?).map(drop),
            Order::Move(name, to) => vos::move_volume(job, group(name)?, to.0, &to.partition()).map(drop),
            Order::MoveSite(name, from, to) => vos::move_site(job, group(name)?, *from, to.0, &to.partition()),
            Order::Copy(name, new, spot) => vos::copy(job, &group(name)?, &new_volume(new, *spot)).map(drop),
            Order::Restore(name, new, spot) => {
                let (dump, parts) = dumped(job, name, 0, &|volume| coming(new, volume))?;
                let mut parts = parts.into_iter();
                vos::restore(job, &new_volume(new, *spot), &dump, &mut || Ok(parts.next())).map(drop)
            }
            Order::Over(name, over, file) => {
                let over_group = group(over)?;
                let (tree, site) = (over_group.record.read_write, over_group.record.read_write_site().cloned());
                let site = site.ok_or(Error::NoVolume)?;
                let since = match job.servers.call(site.server, VolumeCall::Incoming { tree: Some(tree) })? {
                    // What was begun before is done.
                    Answer::Incoming { trees, base } => trees.first().map_or(base, |one| one.since),
                    _ => 0,
                };
                let kept = file.0.lock().clone();
                let (dump, parts) = match kept {
                    // Who was stopped goes on with the same dump.
                    Some(kept) => kept,
                    None => match dumped(job, name, since, &|volume| coming(over, volume)) {
                        // It is no copy of that, or of what nobody shows any more.
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
            Order::Clone(name, new) => {
                let found = vos::find(job.servers, &WhichVolume::Name(name.clone()), None)?;
                vos::clone_writable(job, &found, new).map(drop)
            }
            Order::Rename(from, to) => vos::rename(job, from, to),
            Order::Snapshot(name) => {
                let found = vos::find(job.servers, &WhichVolume::Name(name.clone()), None)?;
                let of = found.volume().id;
                let name = Name::new(format!("{}.snapshot.kept", text(name)).as_bytes()).expect("a name");
                let (id, kind, replace) = (None, VolumeKind::Snapshot, true);
                let call = VolumeCall::Clone { id, of, name, kind, replace };
                job.servers.call(found.server, call).map(drop)
            }
            Order::Remove(name) => {
                let which = WhichVolume::Name(name.clone());
                match vos::find(job.servers, &which, None) {
                    Err(Error::NoVolume) if vos::finish_removal(job, &which)? => Ok(()),
                    found => vos::remove(job, &found?),
                }
            }
        }
    }

    /// Whether there is nothing left to do, as the database says, after the operation was refused: it was done before, or cannot be.
    pub fn is_settled(&self, world: &World) -> bool {
        let group = |name: &Name| world.database.group_named(name).ok().flatten().map(|seen| seen.record);
        let is_free = |name: &Name| group(name).is_none_or(|group| group.busy.is_none());
        self.names().into_iter().all(is_free)
    }
}

/// What a volume holds, or what was changed in it since an epoch.
fn dumped(job: &Job<'_>, name: &Name, since: u64, coming: &dyn Fn(&VolumeInfo)) -> Result<Dump, Error> {
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
    fn begin(&mut self, volume: &VolumeInfo) -> Result<(), Error> {
        (self.coming)(volume);
        self.epoch = volume.epoch;
        Ok(())
    }

    fn part(&mut self, bytes: Bytes) -> Result<StreamCursor, Error> {
        let part = StreamPart::open(&bytes).map_err(|error| Error::Unfit(error.to_string()))?;
        self.parts.push(Part { from: part.from, to: part.to, bytes });
        Ok(part.to)
    }
}
