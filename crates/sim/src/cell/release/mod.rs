//! A release to many sites: who sends how many bytes, how long it takes, and what becomes of sites
//! that are down or die in the middle.
//!
//! What runs is the code that ships: `vos::release`, `vice` over `store` in memory, pulls. What is
//! made up is the network, whose lines are as fast as [`fleet`] says, and who dies. Each run makes
//! a volume and releases it; then four releases of changes of [`CHANGED`] files: one where nothing
//! happens; one with sites that are down, and others that die in the middle; the same again when
//! all are back; and one whose leader is stopped somewhere, with the next that ends it.
//!
//! After each, a site shows what was released, byte for byte, or lags, is named as such, and shows
//! what it did before.

mod fleet;
mod turns;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use celldb::CellDb;
use parking_lot::Mutex;
use rand::Rng;
use types::{
    Answer, Busy, Call, CreateHow, Fid, Name, NewKind, Revision, Site, SiteKind, Time, VolumeCall,
    VolumeGroup, VolumeId,
};
use vos::{Job, JobLeader, Released, VosError};

use self::fleet::Fleet;
use self::turns::Turns;
use super::house::partition_name;
use super::reference::{VolumeImage, difference, shown};

/// Files that there are.
const FILES: u64 = 200;
/// Files that a release brings.
pub const CHANGED: u64 = 10;
/// Bytes of each.
const CHANGE_BYTES: usize = 10_000;
/// What changed, in bytes.
pub const CHANGE: u64 = CHANGED * CHANGE_BYTES as u64;
/// Bytes out of the source for each byte that changed, at most, also when others fail.
const SOURCE_OUT_MAX: f64 = 8.0;
/// The same of a site: those that have it first serve most.
const SITE_OUT_MAX: f64 = 12.0;
/// Bytes into a site for each byte that changed, at most.
const IN_MAX: f64 = 1.1;
/// What a site gets that lacks nothing.
const NOTHING_MAX: u64 = 1024;
/// Calls of a leader, for each site, within which it is stopped.
const CALLS_A_SITE: usize = 10;
/// A leader that nobody stops.
const UNSTOPPED: usize = usize::MAX;

/// What came of a release.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReleaseFigures {
    /// Bytes out of the source for each byte that changed.
    pub source_out: f64,
    /// The same of the site that sent most.
    pub site_out: f64,
    /// How many servers what a site got went through, at most.
    pub depth: u32,
    /// How long it took.
    pub took: Duration,
    /// Sites that lag.
    pub lagging: usize,
}

impl fmt::Display for ReleaseFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReleaseFigures { source_out, site_out, depth, took, lagging } = self;
        let millis = took.as_millis();
        write!(
            f,
            "{source_out:.2} times the change out of the source, {site_out:.2} out of a site, \
                depth {depth}, {millis} ms, {lagging} lag"
        )
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Nothing happens.
    pub quiet: ReleaseFigures,
    /// Sites are down or die.
    pub faulty: ReleaseFigures,
    /// All are back, and nothing else has changed.
    pub again: ReleaseFigures,
    /// The leader is stopped, and the next one ends it.
    pub stopped: ReleaseFigures,
}

/// Runs one seed.
///
/// # Errors
/// What did not hold.
pub fn run(seed: u64, sites: usize) -> Result<Report, String> {
    let fleet = Mutex::new(Fleet::new(seed, sites + 1));
    let run = Run { fleet: &fleet, sites };
    let mut files = run.fill()?;
    let first = run.release(UNSTOPPED)?;
    run.judge(&first, &BTreeSet::new())?;
    Ok(Report {
        quiet: run.quiet(&mut files)?,
        faulty: run.faulty(&mut files)?,
        again: run.again()?,
        stopped: run.stopped(&mut files)?,
    })
}

struct Run<'f> {
    fleet: &'f Mutex<Fleet>,
    sites: usize,
}

impl Run<'_> {
    /// Calls of somebody who works at the source.
    fn call(&self, call: &Call) -> Result<Answer, String> {
        let answer = self.fleet.lock().perform(0, call).ok_or("the source is gone")?;
        answer.map_err(|fault| format!("{call:?}: {fault}"))
    }

    /// The volume with its files, and its group with all sites.
    fn fill(&self) -> Result<Vec<Fid>, String> {
        let (name, id) = (name("home"), VolumeId(1));
        let create = VolumeCall::Create {
            id: Some(id),
            partition: None,
            name: name.clone(),
            quota_bytes: 0,
            quota_files: 0,
            owner: (0, 0),
            encrypt: None,
        };
        self.call(&Call::Volume(create))?;
        let mut files = Vec::new();
        for number in 0..FILES {
            let (dir, name) = (Fid::root(id), self::name(&format!("f{number}")));
            let make =
                Call::Make { dir, name, kind: NewKind::File, mode: 0o644, how: CreateHow::Guarded };
            match self.call(&make)? {
                Answer::Made { status, .. } => files.push(status.fid),
                other => return Err(format!("{other:?}")),
            }
            let length = self.fleet.lock().rng.random_range(0..3_000);
            self.write(files[number as usize], length)?;
        }
        let fleet = self.fleet.lock();
        let site = |no: usize, kind| Site {
            server: fleet.houses[no].info.id,
            partition: partition_name(0),
            kind,
            epoch: 0,
        };
        let mut group = VolumeGroup::new(name, id, site(0, SiteKind::ReadWrite));
        group.read_only = Some(fleet.database.take_numbers(id, 1).map_err(say)?);
        group.sites.extend((1..=self.sites).map(|no| site(no, SiteKind::ReadOnly)));
        fleet.database.put_group(&group, Revision(0)).map_err(say)?;
        Ok(files)
    }

    fn write(&self, fid: Fid, length: usize) -> Result<(), String> {
        let mut data = vec![0; length];
        self.fleet.lock().rng.fill(&mut data[..]);
        let data = Bytes::from(data);
        self.call(&Call::Write {
            fid,
            offset: Some(0),
            data,
            stable: false,
            kill_privileges: false,
        })
        .map(drop)
    }

    fn change(&self, files: &mut [Fid]) -> Result<(), String> {
        for at in 0..CHANGED as usize {
            let other = self.fleet.lock().rng.random_range(at..files.len());
            files.swap(at, other);
            self.write(files[at], CHANGE_BYTES)?;
        }
        self.fleet.lock().count_anew();
        Ok(())
    }

    fn release(&self, calls: usize) -> Result<Released, String> {
        self.lead(calls).map_err(say)
    }

    /// `calls`: after so many the leader is stopped.
    fn lead(&self, calls: usize) -> Result<Released, VosError> {
        let turns = Turns::new(self.fleet, calls);
        let group = self.fleet.lock().database.group_of(VolumeId(1))?.ok_or(VosError::NoVolume)?;
        let is_over = |_: &Busy| true;
        let who = JobLeader { by: "leader".to_owned(), now_secs: &|| 7, is_over: &is_over };
        vos::release(&Job { servers: &turns, who, dry_run: false, tell: &|_| {} }, group)
    }

    fn now(&self) -> Time {
        self.fleet.lock().now
    }

    fn quiet(&self, files: &mut [Fid]) -> Result<ReleaseFigures, String> {
        self.change(files)?;
        let begun = self.now();
        let released = self.release(UNSTOPPED)?;
        let measured = self.measured(&released, begun)?;
        self.judge(&released, &BTreeSet::new())?;
        if measured.lagging > 0 {
            return Err("a site lags, and nothing has happened".to_owned());
        }
        Ok(measured)
    }

    /// One site in twenty is down, and one in twenty dies while the release goes on.
    fn faulty(&self, files: &mut [Fid]) -> Result<ReleaseFigures, String> {
        self.change(files)?;
        let mut bad = BTreeSet::new();
        {
            let mut fleet = self.fleet.lock();
            let some = self.sites.div_ceil(20);
            while bad.len() < some {
                let no = fleet.rng.random_range(1..=self.sites);
                fleet.die(no);
                bad.insert(no);
            }
            for _ in 0..some {
                let (no, millis) =
                    (fleet.rng.random_range(1..=self.sites), fleet.rng.random_range(0..400));
                fleet.dies_in(Duration::from_millis(millis), no);
                bad.insert(no);
            }
        }
        let begun = self.now();
        let released = self.release(UNSTOPPED)?;
        let measured = self.measured(&released, begun)?;
        self.judge(&released, &bad)?;
        Ok(measured)
    }

    /// All are back: only what somebody lacks is sent.
    fn again(&self) -> Result<ReleaseFigures, String> {
        let mut has = BTreeSet::new();
        {
            let mut fleet = self.fleet.lock();
            let group = fleet
                .database
                .group_of(VolumeId(1))
                .map_err(say)?
                .ok_or("the group is gone")?
                .record;
            has.extend(group.readable_sites().map(|site| fleet.number_of(site.server)));
            // What is to happen has happened.
            let later = fleet.now + Duration::from_secs(1);
            fleet.pass_until(later);
            has.retain(|no| fleet.houses[*no].up.is_some());
            (0..=self.sites).for_each(|no| fleet.start(no));
            // Grace is over where somebody had a session.
            let later = fleet.now + Duration::from_secs(60);
            fleet.pass_until(later);
            fleet.count_anew();
        }
        let begun = self.now();
        let released = self.release(UNSTOPPED)?;
        let measured = self.measured(&released, begun)?;
        self.judge(&released, &BTreeSet::new())?;
        let fleet = self.fleet.lock();
        let wrong = has.iter().find(|no| fleet.arrived[**no] > NOTHING_MAX);
        wrong.map_or(Ok(measured), |no| {
            Err(format!("server {no} lacked nothing, and was sent {} bytes", fleet.arrived[*no]))
        })
    }

    fn stopped(&self, files: &mut [Fid]) -> Result<ReleaseFigures, String> {
        self.change(files)?;
        let begun = self.now();
        let calls = self.fleet.lock().rng.random_range(1..self.sites * CALLS_A_SITE);
        let stopped = self.lead(calls);
        let released =
            self.release(UNSTOPPED).map_err(|error| format!("{error}, after {stopped:?}"))?;
        let measured = self.measured(&released, begun)?;
        self.judge(&released, &BTreeSet::new())?;
        Ok(measured)
    }

    /// Counts, and that none is too high.
    fn measured(&self, released: &Released, begun: Time) -> Result<ReleaseFigures, String> {
        let fleet = self.fleet.lock();
        let of_change = |bytes: u64| bytes as f64 / CHANGE as f64;
        let measured = ReleaseFigures {
            source_out: of_change(fleet.sent[0]),
            site_out: fleet.sent.iter().skip(1).copied().max().map_or(0.0, of_change),
            depth: fleet.depth.values().copied().max().unwrap_or(0),
            took: fleet.now.since(begun),
            lagging: released.lagging.len(),
        };
        if let Some(no) = (0..=self.sites).find(|no| {
            let most = if *no == 0 { SOURCE_OUT_MAX } else { SITE_OUT_MAX };
            of_change(fleet.sent[*no]) > most
        }) {
            return Err(format!(
                "server {no} sent {} bytes of {CHANGE} that changed",
                fleet.sent[no]
            ));
        }
        let twice = |no: &usize| of_change(fleet.arrived[*no]) > IN_MAX && !fleet.died.contains(no);
        if let Some(no) = (1..=self.sites).find(twice) {
            return Err(format!(
                "server {no} was sent {} bytes of {CHANGE} that changed",
                fleet.arrived[no]
            ));
        }
        Ok(measured)
    }

    /// Who is said to have it shows it; who is said to lag is not offered to readers; nobody else
    /// lags than who may.
    fn judge(&self, released: &Released, may_lag: &BTreeSet<usize>) -> Result<(), String> {
        let fleet = self.fleet.lock();
        let wanted = image_of(&fleet, 0, "home")?.ok_or("the volume is gone")?;
        let group =
            fleet.database.group_of(VolumeId(1)).map_err(say)?.ok_or("the group is gone")?.record;
        if group.busy.is_some() || group.released_epoch != released.epoch {
            return Err(format!("the database says {group:?} of {released:?}"));
        }
        let readable: BTreeSet<usize> =
            group.readable_sites().map(|site| fleet.number_of(site.server)).collect();
        let lagging: BTreeSet<usize> =
            released.lagging.iter().map(|(server, _)| fleet.number_of(*server)).collect();
        let all: BTreeSet<usize> = (1..=self.sites).collect();
        if readable.intersection(&lagging).next().is_some() || &readable | &lagging != all {
            return Err(format!("{readable:?} are readable, and {lagging:?} lag"));
        }
        if let Some(no) = lagging.difference(may_lag).next() {
            let why = released.lagging.iter().find(|(server, _)| fleet.number_of(*server) == *no);
            return Err(format!("server {no} lags: {why:?}"));
        }
        for no in readable {
            match image_of(&fleet, no, "home.readonly")? {
                Some(found) if found == wanted => {}
                // It died behind the release.
                None if fleet.houses[no].up.is_none() => {}
                found => {
                    return Err(format!(
                        "server {no} shows something else: {}",
                        difference(&found.unwrap_or_default(), &wanted)
                    ));
                }
            }
            if fleet.houses[no].up.is_some() && image_of(&fleet, no, "home.releasing")?.is_some() {
                return Err(format!("something is left over at server {no}"));
            }
        }
        Ok(())
    }
}

/// What a volume of a server shows.
fn image_of(fleet: &Fleet, no: usize, text: &str) -> Result<Option<VolumeImage>, String> {
    let Some(life) = &fleet.houses[no].up else { return Ok(None) };
    let partition = life.vice.partitions().iter().next().ok_or("it has no partition")?;
    let found = partition.volume_named(text.as_bytes()).map_err(say)?;
    found.map(|volume| shown(&volume)).transpose()
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a short name")
}

fn say(error: impl fmt::Display) -> String {
    error.to_string()
}
