//! What administrators want, by seed, and whether they have it.

use bytes::Bytes;
use celldb::CellDb;
use rand::Rng;
use store::StreamPart;
use types::{
    Name, ServerId, SiteKind, StreamCursor, VolumeCall, VolumeGroup, VolumeId, VolumeInfo, VolumeKind, WhichVolume,
};
use vos::{Error, Job, NewVolume, Part, Sink};

use super::house::partition_name;
use super::judge::text;
use super::world::World;

/// One operation.
#[derive(Clone, Debug)]
pub enum Order {
    /// A new volume.
    Create(Name, ServerId),
    /// Yesterday's.
    Backup(Name),
    /// One more read-only site.
    AddSite(Name, ServerId),
    /// One less.
    RemoveSite(Name, ServerId),
    /// To all read-only sites.
    Release(Name),
    /// To another server.
    Move(Name, ServerId),
    /// A new volume with what another holds.
    Copy(Name, Name, ServerId),
    /// A dump of one becomes another.
    Restore(Name, Name, ServerId),
    /// From one name to another.
    Rename(Name, Name),
    /// A writable clone.
    Clone(Name, Name),
    /// A snapshot that stays.
    Snapshot(Name),
    /// The read-write volume goes.
    Remove(Name),
}

fn partition() -> String {
    partition_name(0)
}

fn new_volume(name: &Name, server: ServerId) -> NewVolume {
    NewVolume { name: name.clone(), id: None, server, partition: partition(), quota_bytes: 0, owner: (0, 0) }
}

impl Order {
    /// Something that can be done now.
    pub fn draw(world: &mut World, number: u32) -> Order {
        let groups = world.database.groups(VolumeId(0), usize::MAX).unwrap_or_default();
        let groups: Vec<VolumeGroup> = groups.into_iter().map(|seen| seen.record).collect();
        let servers: Vec<ServerId> = world.houses.iter().map(|house| house.info.id).collect();
        let server = servers[world.rng.random_range(0..servers.len())];
        let new = Name::new(format!("v{number}").as_bytes()).expect("a name");
        if groups.is_empty() || groups.len() < 3 && world.one_in(5) {
            return Order::Create(new, server);
        }
        let group = &groups[world.rng.random_range(0..groups.len())];
        let name = group.name.clone();
        if group.read_write_site().is_none() {
            return Order::Create(new, server);
        }
        let read_only: Vec<ServerId> =
            group.sites.iter().filter(|site| site.kind == SiteKind::ReadOnly).map(|site| site.server).collect();
        match world.rng.random_range(0..22) {
            0 => Order::Backup(name),
            1..4 => Order::AddSite(name, server),
            4 if !read_only.is_empty() => Order::RemoveSite(name, read_only[0]),
            5..10 if !read_only.is_empty() => Order::Release(name),
            10..15 => Order::Move(name, server),
            15 => Order::Copy(name, new, server),
            16 => Order::Restore(name, new, server),
            17 => Order::Rename(name, new),
            18 => Order::Remove(name),
            19 | 20 => Order::Clone(name, new),
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
            | Order::Snapshot(name)
            | Order::Remove(name) => vec![name],
            Order::Copy(name, new, _)
            | Order::Restore(name, new, _)
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
            Order::Create(name, server) => vos::create(job, &new_volume(name, *server)).map(drop),
            Order::Backup(name) => vos::backup(job, group(name)?).map(drop),
            Order::AddSite(name, server) => vos::add_site(job, group(name)?, *server, &partition()).map(drop),
            Order::RemoveSite(name, server) => vos::remove_site(job, group(name)?, *server).map(drop),
            Order::Release(name) => vos::release(job, group(name)?).map(drop),
            Order::Move(name, to) => vos::move_volume(job, group(name)?, *to, &partition()).map(drop),
            Order::Copy(name, new, server) => vos::copy(job, &group(name)?, &new_volume(new, *server)).map(drop),
            Order::Restore(name, new, server) => {
                let found = vos::find(job.servers, &WhichVolume::Name(name.clone()), None)?;
                let mut parts = Parts { coming: &|volume| coming(new, volume), parts: Vec::new() };
                vos::dump(job, found.server, found.volume(), 0, &mut parts)?;
                let mut parts = parts.parts.into_iter();
                let dump = vos::Dumped {
                    epoch: found.volume().epoch,
                    since: 0,
                    since_name: String::new(),
                    quota_files: 0,
                    created: None,
                    total_bytes: 0,
                };
                vos::restore(job, &new_volume(new, *server), &dump, &mut || Ok(parts.next())).map(drop)
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

/// A dump in memory.
struct Parts<'c> {
    coming: &'c dyn Fn(&VolumeInfo),
    parts: Vec<Part>,
}

impl Sink for Parts<'_> {
    fn begin(&mut self, volume: &VolumeInfo) -> Result<(), Error> {
        (self.coming)(volume);
        Ok(())
    }

    fn part(&mut self, bytes: Bytes) -> Result<StreamCursor, Error> {
        let part = StreamPart::open(&bytes).map_err(|error| Error::Unfit(error.to_string()))?;
        self.parts.push(Part { from: part.from, to: part.to, bytes });
        Ok(part.to)
    }
}
