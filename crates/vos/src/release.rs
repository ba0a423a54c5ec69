//! What a volume holds now becomes what all its read-only sites show.
//!
//! Steps: (1) the group is claimed; (2) at the source `NAME.releasing` is sealed; (3) every site
//! fetches it, from the source or from another site that has it, as `NAME.releasing`; (4) the
//! database says which epoch the release is, and who has it; (5) at the source and at each of those
//! sites `NAME.readonly` shows it, and `NAME.releasing` goes; (6) the claim goes.
//!
//! Sites fetch at the same time. When there are many of them the source serves a few, and who has
//! it serves the next (*relay*): the time grows like the depth of a tree, and what leaves the
//! source does not grow. Who gets nothing out of a relay asks another one, and goes on there with
//! what came already. A site that fails lags: it keeps what it had, and readers are not sent there
//! any more. A release that was stopped is brought to its end first, with what it sealed, because
//! some sites may show that already; then what the volume holds now is released.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use types::{
    Finish, Name, PartitionNo, Revised, ServerId, Site, SiteKind, VolumeCall, VolumeGroup,
    VolumeId, VolumeInfo, VolumeKind, WhichVolume,
};

use crate::claim::Claim;
use crate::moving::remove_undecided;
use crate::pulling::{PullOrder, pull};
use crate::remove::remove_at;
use crate::servers::partition_no;
use crate::{Job, Servers, VosError, examine};

const OPERATION: &str = "release";
/// What the name of a release ends with that is kept for sites that lag.
pub(crate) const LAGGING: &str = ".lagging";
/// And that of what is being released.
pub(crate) const RELEASING: &str = ".releasing";
/// Sites that one server serves at the same time.
const SERVED_AT_ONCE: usize = 3;
/// Sites that the source serves while others could.
const SERVED_BY_SOURCE: usize = 3;
/// Sites that are led at the same time: a thread each, which mostly sleeps. Fewer would make a line
/// of the tree.
const AT_ONCE: usize = 256;
/// Relays that a site tries to fetch from.
const TRIED_MAX: usize = 8;
/// Between looks whether somebody can serve.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const LOOK_MAX: Duration = Duration::from_millis(50);

/// How a release ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// The epoch that readers see now; 0: that was only said.
    pub epoch: u64,
    /// Servers that have it, with the bytes that they fetched.
    pub sites: Vec<(ServerId, u64)>,
    /// Servers that lag, and why.
    pub lagging: Vec<(ServerId, VosError)>,
}

/// Releases the group.
///
/// # Errors
/// `Busy`; `Unfit` if there is nothing to release or no site; the first site's if none could be
/// served, after which everything is as it was.
pub fn release(job: &Job<'_>, group: Revised<VolumeGroup>) -> Result<Released, VosError> {
    let source = group.record.read_write_site().cloned();
    let source = source.ok_or_else(|| VosError::Unfit("it has no read-write volume".to_owned()))?;
    if read_only_sites(&group.record).is_empty() {
        return Err(VosError::Unfit(
            "it has no read-only sites: 'vos addsite' adds them".to_owned(),
        ));
    }
    let mut claim = Claim::of(job, group, OPERATION)?;
    let releasing = named(&claim.group.name, RELEASING)?;
    let left = if job.dry_run { None } else { have(job.servers, source.server, &releasing)? };
    if let Some(sealed) = left {
        job.note(format_args!("a release was begun before: it comes first ({})", sealed.id.0));
        bring_to_end(job, &mut claim, &source, &sealed)?;
    }
    let of = claim.group.read_write;
    let call = VolumeCall::Clone {
        id: None,
        of,
        name: releasing,
        kind: VolumeKind::Snapshot,
        replace: true,
    };
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
        group
            .sites
            .iter_mut()
            .filter(|site| lagging.contains(&site.server) && is_read_only(site))
            .for_each(|site| {
                site.epoch = if site.epoch == group.released_epoch { 0 } else { site.epoch };
            });
    })?;
    Ok(released)
}

/// The steps that `--dry-run` says.
fn say(job: &Job<'_>, claim: Claim<'_, '_>, source: &Site) -> Result<Released, VosError> {
    let sites = read_only_sites(&claim.group);
    for site in sites.iter().filter(|site| site.server != source.server) {
        job.step(
            format_args!(
                "{}: fetch what changed since epoch {}",
                job.servers.name(site.server),
                site.epoch
            ),
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
) -> Result<Released, VosError> {
    let sites = read_only_sites(&claim.group);
    let far: Vec<Site> =
        sites.iter().filter(|site| site.server != source.server).cloned().collect();
    let mut released = fetch_all(job, &claim.group, source, sealed, &far)?;
    if let (Some((_, error)), true) =
        (released.lagging.first(), released.sites.is_empty() && far.len() == sites.len())
    {
        return Err(VosError::Unfit(format!("no site could be served; the first: {error}")));
    }
    released.epoch = sealed.epoch;
    let has: Vec<ServerId> =
        released.sites.iter().map(|(server, _)| *server).chain([source.server]).collect();
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
            for site in group
                .sites
                .iter_mut()
                .filter(|site| is_read_only(site) && has.contains(&site.server))
            {
                site.epoch = epoch;
            }
        },
    )?;
    keep_for_lagging(job, &claim.group, source, epoch)?;
    show_all(job, &claim.group, source, sealed, &mut released)?;
    Ok(released)
}

/// The source shows the last release alone, so who missed one would be sent all of the volume by
/// the next. While sites lag, it keeps the release that they have as `NAME.lagging` too: one, that
/// of those who lag longest; others are sent everything.
fn keep_for_lagging(
    job: &Job<'_>,
    group: &VolumeGroup,
    source: &Site,
    epoch: u64,
) -> Result<(), VosError> {
    let here =
        examine(job.servers, source.server, WhichVolume::Id(group.read_write))?.unwrap_or_default();
    let lags = |at: u64| {
        group.sites.iter().any(|site| is_read_only(site) && site.epoch == at && at < epoch)
    };
    let kept = here.iter().find(|volume| is_kept_for_lagging(volume));
    if kept.is_some_and(|kept| lags(kept.epoch)) {
        return Ok(());
    }
    let last = here.iter().find(|volume| volume.kind == VolumeKind::ReadOnly && lags(volume.epoch));
    match (last, kept) {
        (Some(last), _) => {
            let (of, name) = (last.id, named(&group.name, LAGGING)?);
            let call =
                VolumeCall::Clone { id: None, of, name, kind: VolumeKind::Snapshot, replace: true };
            job.call("keep what lagging sites have", source.server, call).map(drop)
        }
        (None, Some(kept)) => remove_at(job, source.server, kept.id),
        (None, None) => Ok(()),
    }
}

/// Whether a volume is there for sites that lag alone.
pub(crate) fn is_kept_for_lagging(volume: &VolumeInfo) -> bool {
    volume.kind == VolumeKind::Snapshot && volume.name.as_bytes().ends_with(LAGGING.as_bytes())
}

/// Step 3. What a site fails for is that site's alone.
fn fetch_all(
    job: &Job<'_>,
    group: &VolumeGroup,
    source: &Site,
    sealed: &VolumeInfo,
    far: &[Site],
) -> Result<Released, VosError> {
    let numbers = match u32::try_from(far.len()) {
        Ok(count) if count > 0 => job.servers.db().take_numbers(VolumeId(0), count)?,
        _ => return Ok(Released::default()),
    };
    for site in far {
        job.step(
            format_args!("{}: fetch epoch {}", job.servers.name(site.server), sealed.epoch),
            || Ok(()),
        )?;
    }
    let here =
        examine(job.servers, source.server, WhichVolume::Id(group.read_write))?.unwrap_or_default();
    let shows = here
        .iter()
        .filter(|volume| volume.kind != VolumeKind::ReadWrite && volume.epoch < sealed.epoch);
    let relay = Relay::new(source.server, sealed.id, shows.map(|volume| volume.epoch).collect());
    let round = Round { servers: job.servers, tell: job.tell, group, sealed, relay };
    let orders = Mutex::new(
        (0..).map(VolumeId).zip(far).map(|(at, site)| (VolumeId(numbers.0 + at.0), site)),
    );
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
    tell: &'r (dyn Fn(crate::JobEvent<'_>) + Sync),
    group: &'r VolumeGroup,
    sealed: &'r VolumeInfo,
    relay: Relay,
}

impl Round<'_> {
    /// One site fetches it; how many bytes.
    fn fetch(&self, number: VolumeId, site: &Site) -> Result<u64, VosError> {
        let epoch = self.sealed.epoch;
        let (read_only, releasing) =
            (named(&self.group.name, ".readonly")?, named(&self.group.name, RELEASING)?);
        let here = self.all_of(site.server, [&read_only, &releasing])?;
        let called = |name: &Name| here.iter().find(|volume| volume.name == *name);
        let shows = called(&read_only).map_or(0, |volume| volume.epoch);
        if shows == epoch {
            return Ok(0);
        }
        let fetched = called(&releasing);
        if let Some(there) = fetched.filter(|there| there.epoch == epoch) {
            self.relay.joins(site.server, there.id, shows);
            return Ok(0);
        }
        remove_undecided(self.servers, self.group, site.server, &here)?;
        // The newest that it has, which may be of a release that it could not be told to show.
        let base = fetched.map_or(shows, |there| there.epoch.max(shows));
        let partition = partition_no(self.servers, site.server, &site.partition)?;
        let (bytes, from) = self.fetch_from_some((number, base), site, partition, &releasing)?;
        let there = have(self.servers, site.server, &releasing);
        if let Some(there) =
            there.as_ref().ok().and_then(Option::as_ref).filter(|there| there.epoch == epoch)
        {
            self.relay.joins(site.server, there.id, shows);
        }
        // In this order: while somebody is served, others wait for him to have it.
        self.relay.served(from, true);
        there?
            .filter(|there| there.epoch == epoch)
            .ok_or_else(|| VosError::Odd(self.servers.name(site.server)))?;
        Ok(bytes)
    }

    /// What a site has of the group, under any of its names or as the volume that is written.
    fn all_of(&self, server: ServerId, names: [&Name; 2]) -> Result<Vec<VolumeInfo>, VosError> {
        let names = names.into_iter().cloned().map(WhichVolume::Name);
        for which in names.chain([WhichVolume::Id(self.group.read_write)]) {
            if let Some(here) = examine(self.servers, server, which)? {
                return Ok(here);
            }
        }
        Ok(Vec::new())
    }

    /// From one after the other until one has served it: a relay may have trouble of its own. What
    /// came from one is not sent again by the next. Who served it counts as serving until the site
    /// has joined.
    fn fetch_from_some(
        &self,
        (number, base): (VolumeId, u64),
        site: &Site,
        partition: PartitionNo,
        releasing: &Name,
    ) -> Result<(u64, ServerId), VosError> {
        let mut tried = 1;
        loop {
            let from = self.relay.choose(base, self.servers);
            let fetched = self.fetch_from(from, number, site, partition, releasing);
            let error = match fetched {
                Ok(bytes) => return Ok((bytes, from.0)),
                Err(error) => error,
            };
            self.relay.served(from.0, false);
            match error {
                // The site itself does not answer.
                VosError::Away { .. } => return Err(error),
                _ if tried < TRIED_MAX && from.0 != self.relay.source.0 => tried += 1,
                _ => return Err(error),
            }
        }
    }

    fn fetch_from(
        &self,
        (from, id): (ServerId, VolumeId),
        number: VolumeId,
        site: &Site,
        partition: PartitionNo,
        releasing: &Name,
    ) -> Result<u64, VosError> {
        let finish = Finish::View {
            id: Some(number),
            name: releasing.clone(),
            kind: VolumeKind::Snapshot,
            replace: true,
        };
        let tree = self.group.read_write;
        let order =
            PullOrder { by: site.server, partition: Some(partition), from, id, tree, finish };
        pull(self.servers, order, self.tell).map(|task| task.bytes)
    }
}

/// Who has what is released, and how many fetch it from each.
///
/// A difference can be had from who shows the epoch that it starts from. So sites that lag get
/// theirs from the source, which keeps that epoch, and then from each other.
struct Relay {
    source: (ServerId, VolumeId),
    holders: Mutex<Vec<Holder>>,
}

struct Holder {
    server: ServerId,
    id: VolumeId,
    /// Epochs that it shows beside.
    shows: Vec<u64>,
    serving: usize,
    /// How many it served, by the epoch that they started from; 0: all of it.
    served: HashMap<u64, usize>,
    /// Somebody got nothing out of it: others come first.
    failed: bool,
}

impl Holder {
    fn new(server: ServerId, id: VolumeId, shows: Vec<u64>) -> Self {
        Holder { server, id, shows, serving: 0, served: HashMap::new(), failed: false }
    }

    fn served_from(&self, base: u64) -> usize {
        self.served.get(&base).copied().unwrap_or(0)
    }
}

impl Relay {
    fn new(source: ServerId, id: VolumeId, shows: Vec<u64>) -> Self {
        Relay { source: (source, id), holders: Mutex::new(vec![Holder::new(source, id, shows)]) }
    }

    /// Waits until somebody can serve a site that shows this epoch; 0: none.
    fn choose(&self, base: u64, servers: &dyn Servers) -> (ServerId, VolumeId) {
        let mut pause = POLL_INTERVAL;
        loop {
            if let Some(chosen) = self.choose_now(base) {
                return chosen;
            }
            servers.pause(pause);
            pause = (pause * 3 / 2).min(LOOK_MAX);
        }
    }

    /// The one that has served least of those that can serve. The source serves its share, and more
    /// only where nobody else has it.
    fn choose_now(&self, base: u64) -> Option<(ServerId, VolumeId)> {
        let mut holders = self.holders.lock();
        let known = holders.iter().any(|holder| holder.shows.contains(&base));
        let base = if known { base } else { 0 };
        let can = |holder: &&mut Holder| {
            let is_source = holder.server == self.source.0;
            let share = !is_source || holder.served_from(base) < SERVED_BY_SOURCE;
            share && holder.serving < SERVED_AT_ONCE && (base == 0 || holder.shows.contains(&base))
        };
        let idle = holders.iter().all(|holder| holder.serving == 0);
        let order = |holder: &&mut Holder| {
            (holder.failed, holder.served.values().sum::<usize>(), holder.serving)
        };
        let chosen = match holders.iter_mut().filter(can).min_by_key(order) {
            Some(best) => best,
            // Everybody failed whom it served: it is the source after all.
            None if idle => holders.first_mut().expect("the source has it"),
            None => return None,
        };
        chosen.serving += 1;
        *chosen.served.entry(base).or_default() += 1;
        Some((chosen.server, chosen.id))
    }

    /// A fetch from it ended.
    fn served(&self, server: ServerId, well: bool) {
        if let Some(holder) = self.holders.lock().iter_mut().find(|holder| holder.server == server)
        {
            holder.serving -= 1;
            holder.failed |= !well;
        }
    }

    /// Another has it, and shows that epoch until the end of the release.
    fn joins(&self, server: ServerId, id: VolumeId, shows: u64) {
        self.holders.lock().push(Holder::new(server, id, vec![shows]));
    }
}

/// Step 5, at all servers at once: readers' promises are broken, which may take a lease.
fn show_all(
    job: &Job<'_>,
    group: &VolumeGroup,
    source: &Site,
    sealed: &VolumeInfo,
    released: &mut Released,
) -> Result<(), VosError> {
    let servers = job.servers;
    let at: Vec<ServerId> = [source.server]
        .into_iter()
        .chain(released.sites.iter().map(|(server, _)| *server))
        .collect();
    let shown = Mutex::new(Vec::with_capacity(at.len()));
    servers.together(at.len(), &|one| {
        let result = show(servers, group, at[one], sealed.epoch);
        shown.lock().push((at[one], result));
    });
    for (server, result) in shown.into_inner() {
        match result {
            Ok(()) => {
                job.done(format_args!("{}: shows epoch {}", servers.name(server), sealed.epoch));
            }
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
fn show(
    servers: &dyn Servers,
    group: &VolumeGroup,
    server: ServerId,
    epoch: u64,
) -> Result<(), VosError> {
    let (read_only, releasing) = (named(&group.name, ".readonly")?, named(&group.name, RELEASING)?);
    let sealed = have(servers, server, &releasing)?;
    let shows = have(servers, server, &read_only)?.is_some_and(|shown| shown.epoch == epoch);
    match &sealed {
        Some(sealed) if !shows => {
            let (id, of) = (group.read_only, sealed.id);
            servers.call(
                server,
                VolumeCall::Clone {
                    id,
                    of,
                    name: read_only,
                    kind: VolumeKind::ReadOnly,
                    replace: true,
                },
            )?;
        }
        None if !shows => {
            return Err(VosError::Unfit(format!(
                "{} has lost what it fetched",
                servers.name(server)
            )));
        }
        _ => {}
    }
    if let Some(sealed) = sealed {
        servers.call(server, VolumeCall::Remove { id: sealed.id })?;
    }
    Ok(())
}

/// The volume with this name that a server has.
pub(crate) fn have(
    servers: &dyn Servers,
    server: ServerId,
    name: &Name,
) -> Result<Option<VolumeInfo>, VosError> {
    let there = examine(servers, server, WhichVolume::Name(name.clone()))?;
    Ok(there.and_then(|volumes| volumes.into_iter().next()))
}

/// A name of the group.
pub(crate) fn named(base: &Name, ending: &str) -> Result<Name, VosError> {
    Name::new(&[base.as_bytes(), ending.as_bytes()].concat())
        .map_err(|_| VosError::Unfit(format!("its name is too long for {ending} behind it")))
}

fn is_read_only(site: &Site) -> bool {
    site.kind == SiteKind::ReadOnly
}

fn read_only_sites(group: &VolumeGroup) -> Vec<Site> {
    group.sites.iter().filter(|site| is_read_only(site)).cloned().collect()
}
