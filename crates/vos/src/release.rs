//! What a volume holds now becomes what all its read-only sites show.
//!
//! Steps: (1) the group is claimed; (2) at the source `NAME.releasing` is sealed; (3) every site fetches it, from the source or from another site that
//! has it, as `NAME.releasing`; (4) the database says which epoch the release is, and who has it; (5) at the source and at each of those sites
//! `NAME.readonly` shows it, and `NAME.releasing` goes; (6) the claim goes.
//!
//! Sites fetch at the same time. When there are many of them the source serves a few, and who has it serves the next (*relay*). A site that fails lags: it keeps
//! what it had, and readers are not sent there any more. A release that was stopped is brought to its end first, with what it sealed, because some sites may
//! show that already; then what the volume holds now is released.

use parking_lot::{Condvar, Mutex};
use types::{
    Finish, Name, PartitionNo, Seen, ServerId, Site, SiteKind, VolumeCall, VolumeGroup, VolumeId, VolumeInfo,
    VolumeKind, WhichVolume,
};

use crate::claim::Claim;
use crate::pulling::{Order, pull};
use crate::remove::remove_at;
use crate::servers::partition_no;
use crate::{Error, Job, Servers, examine};

const OPERATION: &str = "release";
/// Sites that one server serves at the same time.
const SERVED_AT_ONCE: usize = 3;
/// Sites that the source serves while others could.
const SERVED_BY_SOURCE: usize = 4;
/// Sites that fetch at the same time.
const AT_ONCE: usize = 32;

/// How a release ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// The epoch that readers see now; 0: that was only said.
    pub epoch: u64,
    /// Servers that have it, with the bytes that they fetched.
    pub sites: Vec<(ServerId, u64)>,
    /// Servers that lag, and why.
    pub lagging: Vec<(ServerId, Error)>,
}

/// Releases the group.
///
/// # Errors
/// `Busy`; `Unfit` if there is nothing to release or no site; the first site's if none could be served, after which everything is as it was.
pub fn release(job: &Job<'_>, group: Seen<VolumeGroup>) -> Result<Released, Error> {
    let source = group.record.read_write_site().cloned();
    let source = source.ok_or_else(|| Error::Unfit("it has no read-write volume".to_owned()))?;
    if read_only_sites(&group.record).is_empty() {
        return Err(Error::Unfit("it has no read-only sites: 'vos addsite' adds them".to_owned()));
    }
    let mut claim = Claim::of(job, group, OPERATION)?;
    let releasing = named(&claim.group.name, ".releasing")?;
    let left = if job.dry_run { None } else { have(job.servers, source.server, &releasing)? };
    if let Some(sealed) = left {
        job.note(format_args!("a release was begun before: it comes first ({})", sealed.id.0));
        bring_to_end(job, &mut claim, &source, &sealed)?;
    }
    let of = claim.group.read_write;
    let call = VolumeCall::Clone { id: None, of, name: releasing, kind: VolumeKind::Snapshot, replace: true };
    let sealed = match job.call_one("seal what it holds now", source.server, call) {
        Ok(sealed) => sealed,
        Err(error) if error.is_refusal() => return Err(claim.give_up(error)),
        Err(error) => return Err(error),
    };
    let Some(sealed) = sealed else { return say(job, claim, &source) };
    let released = match bring_to_end(job, &mut claim, &source, &sealed) {
        // Before anybody was told of it.
        Err(error) if error.is_refusal() && claim.group.released_epoch != sealed.epoch => {
            remove_at(job, source.server, sealed.id)?;
            return Err(claim.give_up(error));
        }
        released => released?,
    };
    let lagging: Vec<ServerId> = released.lagging.iter().map(|(server, _)| *server).collect();
    claim.done("the release is through", |group| {
        // Who could not be told to show it does not have it for readers.
        group.sites.iter_mut().filter(|site| lagging.contains(&site.server) && is_read_only(site)).for_each(|site| {
            site.epoch = if site.epoch == group.released_epoch { 0 } else { site.epoch };
        });
    })?;
    Ok(released)
}

/// The steps that `--dry-run` says.
fn say(job: &Job<'_>, claim: Claim<'_, '_>, source: &Site) -> Result<Released, Error> {
    let sites = read_only_sites(&claim.group);
    for site in sites.iter().filter(|site| site.server != source.server) {
        job.step(
            format_args!("{}: fetch what changed since epoch {}", job.servers.name(site.server), site.epoch),
            || Ok(()),
        )?;
    }
    for site in &sites {
        job.step(format_args!("{}: show it", job.servers.name(site.server)), || Ok(()))?;
    }
    claim.done("which epoch the release is, and who has it", |_| {})?;
    Ok(Released::default())
}

/// Steps 3 to 5 of what was sealed.
fn bring_to_end(
    job: &Job<'_>,
    claim: &mut Claim<'_, '_>,
    source: &Site,
    sealed: &VolumeInfo,
) -> Result<Released, Error> {
    let sites = read_only_sites(&claim.group);
    let far: Vec<Site> = sites.iter().filter(|site| site.server != source.server).cloned().collect();
    let mut released = fetch_all(job, &claim.group, source, sealed, &far)?;
    if let (Some((_, error)), true) = (released.lagging.first(), released.sites.is_empty() && far.len() == sites.len())
    {
        return Err(Error::Unfit(format!("no site could be served; the first: {error}")));
    }
    released.epoch = sealed.epoch;
    let has: Vec<ServerId> = released.sites.iter().map(|(server, _)| *server).chain([source.server]).collect();
    let read_only = match claim.group.read_only {
        Some(number) => number,
        None => job.servers.db().take_numbers(VolumeId(0), 1)?,
    };
    let epoch = sealed.epoch;
    claim.change(
        &format!("epoch {epoch} is released, and {} of {} sites have it", has.len() - 1, far.len()),
        |group| {
            group.released_epoch = epoch;
            group.read_only = Some(read_only);
            for site in group.sites.iter_mut().filter(|site| is_read_only(site) && has.contains(&site.server)) {
                site.epoch = epoch;
            }
        },
    )?;
    show_all(job, &claim.group, source, sealed, &mut released)?;
    Ok(released)
}

/// Step 3. What a site fails for is that site's alone.
fn fetch_all(
    job: &Job<'_>,
    group: &VolumeGroup,
    source: &Site,
    sealed: &VolumeInfo,
    far: &[Site],
) -> Result<Released, Error> {
    let numbers = match u32::try_from(far.len()) {
        Ok(count) if count > 0 => job.servers.db().take_numbers(VolumeId(0), count)?,
        _ => return Ok(Released::default()),
    };
    for site in far {
        job.step(format_args!("{}: fetch epoch {}", job.servers.name(site.server), sealed.epoch), || Ok(()))?;
    }
    let round =
        Round { servers: job.servers, tell: job.tell, group, sealed, relay: Relay::new(source.server, sealed.id) };
    let orders = Mutex::new((0..).map(VolumeId).zip(far).map(|(at, site)| (VolumeId(numbers.0 + at.0), site)));
    let released = Mutex::new(Released::default());
    job.servers.together(far.len().min(AT_ONCE), &|_| {
        loop {
            let next = orders.lock().next();
            let Some((number, site)) = next else { return };
            let fetched = round.fetch(number, site);
            let mut released = released.lock();
            match fetched {
                Ok(bytes) => released.sites.push((site.server, bytes)),
                Err(error) => released.lagging.push((site.server, error)),
            }
        }
    });
    Ok(released.into_inner())
}

/// What all sites of a release have in common while they fetch it.
struct Round<'r> {
    servers: &'r dyn Servers,
    tell: &'r (dyn Fn(crate::Told<'_>) + Sync),
    group: &'r VolumeGroup,
    sealed: &'r VolumeInfo,
    relay: Relay,
}

impl Round<'_> {
    /// One site fetches it; how many bytes.
    fn fetch(&self, number: VolumeId, site: &Site) -> Result<u64, Error> {
        let epoch = self.sealed.epoch;
        let shown = examine(self.servers, site.server, WhichVolume::Name(named(&self.group.name, ".readonly")?))?;
        if shown.is_some_and(|volumes| volumes.first().is_some_and(|volume| volume.epoch == epoch)) {
            return Ok(0);
        }
        let releasing = named(&self.group.name, ".releasing")?;
        if let Some(there) = have(self.servers, site.server, &releasing)?.filter(|there| there.epoch == epoch) {
            self.relay.joins(site.server, there.id);
            return Ok(0);
        }
        let partition = partition_no(self.servers, site.server, &site.partition)?;
        let first = self.relay.choose();
        let fetched = match self.fetch_from(first, number, site, partition, &releasing) {
            // From a relay that has trouble of its own.
            Err(_) if first.0 != self.relay.source.0 => {
                self.fetch_from(self.relay.source, number, site, partition, &releasing)
            }
            fetched => fetched,
        };
        self.relay.served(first.0);
        let bytes = fetched?;
        let there = have(self.servers, site.server, &releasing)?.filter(|there| there.epoch == epoch);
        let there = there.ok_or_else(|| Error::Odd(self.servers.name(site.server)))?;
        self.relay.joins(site.server, there.id);
        Ok(bytes)
    }

    fn fetch_from(
        &self,
        (from, id): (ServerId, VolumeId),
        number: VolumeId,
        site: &Site,
        partition: PartitionNo,
        releasing: &Name,
    ) -> Result<u64, Error> {
        let finish =
            Finish::View { id: Some(number), name: releasing.clone(), kind: VolumeKind::Snapshot, replace: true };
        let tree = self.group.read_write;
        let order = Order { by: site.server, partition: Some(partition), from, id, tree, finish };
        pull(self.servers, order, self.tell).map(|task| task.bytes)
    }
}

/// Who has what is released, and how many fetch it from each.
struct Relay {
    source: (ServerId, VolumeId),
    holders: Mutex<Vec<Holder>>,
    changed: Condvar,
}

struct Holder {
    server: ServerId,
    id: VolumeId,
    serving: usize,
    served: usize,
}

impl Relay {
    fn new(source: ServerId, id: VolumeId) -> Self {
        let holder = Holder { server: source, id, serving: 0, served: 0 };
        Relay { source: (source, id), holders: Mutex::new(vec![holder]), changed: Condvar::new() }
    }

    /// Waits until somebody can serve: the least busy one. The source serves its share, and more only where nobody else has it.
    fn choose(&self) -> (ServerId, VolumeId) {
        let mut holders = self.holders.lock();
        loop {
            let can = |holder: &&mut Holder| {
                let is_source = holder.server == self.source.0;
                holder.serving < SERVED_AT_ONCE && (!is_source || holder.served < SERVED_BY_SOURCE)
            };
            let idle = holders.iter().all(|holder| holder.serving == 0);
            let best = holders.iter_mut().filter(can).min_by_key(|holder| (holder.serving, holder.served));
            if let Some(best) = best {
                best.serving += 1;
                best.served += 1;
                return (best.server, best.id);
            }
            // Everybody failed whom it served: it is the source after all.
            if idle {
                let source = holders.first_mut().expect("the source has it");
                source.serving += 1;
                return self.source;
            }
            self.changed.wait(&mut holders);
        }
    }

    /// A fetch from it ended.
    fn served(&self, server: ServerId) {
        if let Some(holder) = self.holders.lock().iter_mut().find(|holder| holder.server == server) {
            holder.serving -= 1;
        }
        self.changed.notify_all();
    }

    /// Another has it.
    fn joins(&self, server: ServerId, id: VolumeId) {
        self.holders.lock().push(Holder { server, id, serving: 0, served: 0 });
        self.changed.notify_all();
    }
}

/// Step 5, at all servers at once: readers' promises are broken, which may take a lease.
fn show_all(
    job: &Job<'_>,
    group: &VolumeGroup,
    source: &Site,
    sealed: &VolumeInfo,
    released: &mut Released,
) -> Result<(), Error> {
    let servers = job.servers;
    let at: Vec<ServerId> =
        [source.server].into_iter().chain(released.sites.iter().map(|(server, _)| *server)).collect();
    let shown = Mutex::new(Vec::with_capacity(at.len()));
    servers.together(at.len(), &|one| {
        let result = show(servers, group, at[one], sealed.epoch);
        shown.lock().push((at[one], result));
    });
    for (server, result) in shown.into_inner() {
        match result {
            Ok(()) => job.done(format_args!("{}: shows epoch {}", servers.name(server), sealed.epoch)),
            Err(error) if server == source.server => return Err(error),
            Err(error) => {
                released.sites.retain(|(site, _)| *site != server);
                released.lagging.push((server, error));
            }
        }
    }
    Ok(())
}

/// `NAME.readonly` shows what `NAME.releasing` does, which goes.
fn show(servers: &dyn Servers, group: &VolumeGroup, server: ServerId, epoch: u64) -> Result<(), Error> {
    let (read_only, releasing) = (named(&group.name, ".readonly")?, named(&group.name, ".releasing")?);
    let sealed = have(servers, server, &releasing)?;
    let shows = have(servers, server, &read_only)?.is_some_and(|shown| shown.epoch == epoch);
    match &sealed {
        Some(sealed) if !shows => {
            let (id, of) = (group.read_only, sealed.id);
            servers.call(
                server,
                VolumeCall::Clone { id, of, name: read_only, kind: VolumeKind::ReadOnly, replace: true },
            )?;
        }
        None if !shows => return Err(Error::Unfit(format!("{} has lost what it fetched", servers.name(server)))),
        _ => {}
    }
    if let Some(sealed) = sealed {
        servers.call(server, VolumeCall::Remove { id: sealed.id })?;
    }
    Ok(())
}

/// The volume with this name that a server has.
pub(crate) fn have(servers: &dyn Servers, server: ServerId, name: &Name) -> Result<Option<VolumeInfo>, Error> {
    let there = examine(servers, server, WhichVolume::Name(name.clone()))?;
    Ok(there.and_then(|volumes| volumes.into_iter().next()))
}

/// A name of the group.
pub(crate) fn named(base: &Name, ending: &str) -> Result<Name, Error> {
    Name::new(&[base.as_bytes(), ending.as_bytes()].concat())
        .map_err(|_| Error::Unfit(format!("its name is too long for {ending} behind it")))
}

fn is_read_only(site: &Site) -> bool {
    site.kind == SiteKind::ReadOnly
}

fn read_only_sites(group: &VolumeGroup) -> Vec<Site> {
    group.sites.iter().filter(|site| is_read_only(site)).cloned().collect()
}
