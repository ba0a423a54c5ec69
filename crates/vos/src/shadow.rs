//! A shadow: a copy of a read-write volume at another server that the group's record does not name
//! as a site.
//!
//! Model: the record has each volume once, so a shadow is not a second read-write volume of that
//! number. It is a snapshot of the group's tree at a server that need not be a site, under a name
//! and number of its own. Releases, moves and `sync` leave it as it is, and clients are not sent
//! there. It outlives the volume: a writable clone of it, or a dump, is the volume of that moment.
//!
//! Steps: (1) the group is claimed; (2) the volume's server seals its state as the shadow's *base*;
//! (3) the other server fetches it, and the shadow shows it from then on; (4) the base of the
//! former state is removed, and the claim. The base stays, because the next difference is read
//! against it. There are two names of bases by turns, so that the former one stays until the new
//! state has come. An attempt that was interrupted in step 3 goes on with the base that it sealed.

use types::{
    Fault, Finish, Name, Revised, ServerId, Site, VolumeCall, VolumeChange, VolumeGroup, VolumeId,
    VolumeInfo, VolumeKind, VolumeState, WhichVolume, is_volume_name,
};

use crate::claim::Claim;
use crate::find::find;
use crate::own_volumes::{LAGGING, LEFT, have, named, remove_at, remove_left_by_force};
use crate::pulling::{PullOrder, pull, wait_idle};
use crate::servers::need_one_partition;
use crate::{Job, VosError, base_name, examine, incoming, partition_no};

/// The ending of a shadow's name, if it gets no other one.
const SHADOW: &str = ".shadow";
/// Endings of the names of its bases.
const BASES: [&str; 2] = [".base", ".base2"];

/// Which shadow is made or brought up to date.
#[derive(Clone, Debug)]
pub struct NewShadow {
    /// Its name; `None`: that of the group with `.shadow` behind it.
    pub name: Option<Name>,
    /// Its number; `None`: that which it has, or the cell's next.
    pub number: Option<VolumeId>,
    /// The server that will have it.
    pub server: ServerId,
    /// The partition, as the server names it.
    pub partition: String,
    /// It is taken offline at the end.
    pub is_offline: bool,
}

/// Makes a shadow of the group's read-write volume, or brings it up to date; `None` in a dry run.
///
/// # Errors
/// `Busy`; `Unfit` if the server cannot have it, or its name or number is that of another volume;
/// errors of the servers and of the database. Repeating it continues it.
pub fn shadow(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    new: &NewShadow,
) -> Result<Option<VolumeInfo>, VosError> {
    let source = group.record.read_write_site().cloned();
    let source = source.ok_or_else(|| VosError::Unfit("it has no read-write volume".to_owned()))?;
    let name = match &new.name {
        Some(name) => name.clone(),
        None => named(&group.record.name, SHADOW)?,
    };
    need_place(job, &group.record, &source, new)?;
    let before = need_free(job, &group.record, &name, new)?;
    let text = String::from_utf8_lossy(name.as_bytes()).into_owned();
    if let (Some(number), None) = (new.number, &before) {
        let take = || Ok(job.servers.db().take_numbers(number, 1)?);
        job.step("database: no other volume gets its number", take)?;
    }
    let operation = format!("shadow {text} at {} {}", new.server, new.partition);
    let claim = Claim::of(job, group, &operation)?;
    let shadowing = Shadowing { job, group: claim.group.clone(), source, name, new, before };
    match shadowing.run() {
        Ok(made) => {
            claim.done("the shadow is complete", |_| {})?;
            Ok(made)
        }
        Err(error) if error.is_refusal() => Err(claim.give_up(error)),
        Err(error) => Err(error),
    }
}

/// Checks that the server may have the shadow.
fn need_place(
    job: &Job<'_>,
    group: &VolumeGroup,
    source: &Site,
    new: &NewShadow,
) -> Result<(), VosError> {
    let server = job.servers.name(new.server);
    if source.server == new.server {
        return Err(VosError::Unfit(format!(
            "{server} has the volume itself: name another server, or make a snapshot or a copy \
             there"
        )));
    }
    if group.standbys().any(|site| site.server == new.server) {
        return Err(VosError::Unfit(format!("{server} is a standby of it: name another server")));
    }
    need_one_partition(job.servers, group, new.server, &new.partition)
}

/// Checks that no other volume has the shadow's name or number; returns the shadow that is there.
fn need_free(
    job: &Job<'_>,
    group: &VolumeGroup,
    name: &Name,
    new: &NewShadow,
) -> Result<Option<VolumeInfo>, VosError> {
    let text = String::from_utf8_lossy(name.as_bytes()).into_owned();
    let is_used = |ending: &&str| name.as_bytes().ends_with(ending.as_bytes());
    let is_taken = LEFT.iter().chain(&BASES).chain(&[LAGGING]).any(is_used);
    let is_of_group = base_name(name) != *name || group.name == *name;
    if !is_volume_name(name.as_bytes(), VolumeKind::Snapshot) || is_taken || is_of_group {
        return Err(VosError::Unfit(format!("{text} cannot be a shadow's name")));
    }
    let no = partition_no(job.servers, new.server, &new.partition)?;
    let before = have(job.servers, new.server, name)?;
    let is_shadow = |one: &VolumeInfo| {
        let is_of_group = one.tree == group.read_write && one.kind == VolumeKind::Snapshot;
        is_of_group && one.partition == no && new.number.is_none_or(|number| number == one.id)
    };
    if let Some(other) = before.as_ref().filter(|one| !is_shadow(one)) {
        let server = job.servers.name(new.server);
        let why = format!("{server} has another volume of the name {text}, number {}", other.id.0);
        return Err(VosError::Unfit(why));
    }
    if before.is_some() {
        return Ok(before);
    }
    // Names mean one volume in a cell. Servers that do not answer are not waited for.
    if let Ok(found) = find(job.servers, &WhichVolume::Name(name.clone()), None) {
        let server = job.servers.name(found.server);
        return Err(VosError::Unfit(format!("{server} has a volume of the name {text}")));
    }
    if let Some(number) = new.number
        && (job.servers.db().group_of(number)?.is_some()
            || find(job.servers, &WhichVolume::Id(number), None).is_ok())
    {
        return Err(VosError::Unfit(format!("a volume has the number {}", number.0)));
    }
    Ok(None)
}

/// One shadow of a claimed group.
struct Shadowing<'j, 'a> {
    job: &'j Job<'a>,
    group: VolumeGroup,
    source: Site,
    name: Name,
    new: &'j NewShadow,
    /// The shadow, as it was.
    before: Option<VolumeInfo>,
}

impl Shadowing<'_, '_> {
    /// Steps 2 to 4.
    fn run(&self) -> Result<Option<VolumeInfo>, VosError> {
        let job = self.job;
        let bases = self.bases()?;
        let Some(sealed) = self.sealed(&bases)? else {
            self.fetched(None)?;
            return Ok(None);
        };
        let fetched = self.fetched(Some(&sealed));
        let made = match (fetched, have(job.servers, self.new.server, &self.name)) {
            // An interrupted attempt had begun it, and the server has finished that.
            (_, Ok(Some(made))) if made.epoch == sealed.epoch => made,
            (Err(error), _) => {
                if error.is_refusal() {
                    remove_at(job, self.source.server, sealed.id)?;
                }
                return Err(error);
            }
            (Ok(()), Err(error)) => return Err(error),
            (Ok(()), Ok(_)) => return Err(VosError::Odd(job.servers.name(self.new.server))),
        };
        for former in bases.iter().flatten().filter(|one| one.id != sealed.id) {
            remove_at(job, self.source.server, former.id)?;
        }
        self.taken_offline(made).map(Some)
    }

    /// The bases that the volume's server has.
    fn bases(&self) -> Result<[Option<VolumeInfo>; 2], VosError> {
        let mut bases = [None, None];
        for (base, ending) in bases.iter_mut().zip(BASES) {
            *base = have(self.job.servers, self.source.server, &named(&self.name, ending)?)?;
        }
        Ok(bases)
    }

    /// Step 2: the state that is to come; that of an interrupted attempt, if some of it came.
    fn sealed(&self, bases: &[Option<VolumeInfo>; 2]) -> Result<Option<VolumeInfo>, VosError> {
        let (job, server) = (self.job, self.new.server);
        let comes = |one: &&VolumeInfo| {
            let trees = incoming(job.servers, server).unwrap_or_default();
            trees.iter().any(|tree| tree.tree == one.tree && tree.epoch == one.epoch)
        };
        if let Some(begun) = bases.iter().flatten().find(comes)
            && !job.dry_run
        {
            job.note("continuing with the state that was sealed before");
            return Ok(Some(begun.clone()));
        }
        let is_shown =
            |one: &VolumeInfo| self.before.as_ref().is_some_and(|before| before.epoch == one.epoch);
        // The base of the present state stays until the next state has come.
        let free = usize::from(bases[0].as_ref().is_some_and(is_shown));
        let call = VolumeCall::Clone {
            id: None,
            of: self.group.read_write,
            name: named(&self.name, BASES[free])?,
            kind: VolumeKind::Snapshot,
            replace: true,
        };
        job.call_one("seal its current state", self.source.server, call)
    }

    /// Step 3; without a state only as a step of a dry run.
    fn fetched(&self, sealed: Option<&VolumeInfo>) -> Result<(), VosError> {
        let (job, by, tree) = (self.job, self.new.server, self.group.read_write);
        let partition = partition_no(job.servers, by, &self.new.partition)?;
        let since = self.before.as_ref().map_or(0, |before| before.epoch);
        let what = match since {
            0 => "fetch it".to_owned(),
            epoch => format!("fetch what changed since epoch {epoch}"),
        };
        job.step(format_args!("{}: {what}", job.servers.name(by)), || {
            let Some(sealed) = sealed else { return Ok(()) };
            wait_idle(job.servers, by, tree)?;
            let here = examine(job.servers, by, WhichVolume::Id(tree))?.unwrap_or_default();
            remove_left_by_force(job.servers, &self.group, by, &here)?;
            let (from, id) = (self.source.server, sealed.id);
            let finish = Finish::View {
                id: self.new.number.or(self.before.as_ref().map(|before| before.id)),
                name: self.name.clone(),
                kind: VolumeKind::Snapshot,
                replace: true,
            };
            let partition = Some(partition);
            pull(job.servers, PullOrder { by, partition, from, id, tree, finish }, job.tell)
                .map(drop)
        })
        .map(drop)
    }

    fn taken_offline(&self, made: VolumeInfo) -> Result<VolumeInfo, VosError> {
        if !self.new.is_offline || made.state == VolumeState::Offline {
            return Ok(made);
        }
        let change = VolumeChange { state: Some(VolumeState::Offline), ..VolumeChange::default() };
        let call = VolumeCall::SetFields { id: made.id, change };
        match self.job.call("take the shadow offline", self.new.server, call) {
            Err(VosError::Refused { fault: Fault::NoVolume, .. }) => {
                Err(VosError::Odd(self.job.servers.name(self.new.server)))
            }
            done => done.map(|_| VolumeInfo { state: VolumeState::Offline, ..made }),
        }
    }
}
