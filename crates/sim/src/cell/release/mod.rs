//! A release to many sites: the bytes that each server sends, the time, and sites that are down or
//! die in the middle.
//!
//! The code under test is the code that ships: `vos::release`, `vice` over `store` in memory,
//! pulls. Simulated are the network, with the lines of [`fleet`], and the deaths. Each run makes a
//! volume and releases it; then four releases of changes of [`CHANGED`] files: one without faults;
//! one with sites that are down, and others that die in the middle; the same again when all are
//! back; and one whose leader is stopped somewhere, which the next leader ends.
//!
//! After each release, a site shows the released contents, byte for byte; or it lags, is reported
//! as lagging, and shows its earlier contents.

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

/// Files of the volume.
const FILES: u64 = 200;
/// Changed files of each release.
pub const CHANGED: u64 = 10;
/// Bytes of each changed file.
const CHANGE_BYTES: usize = 10_000;
/// Changed bytes of each release.
pub const CHANGE: u64 = CHANGED * CHANGE_BYTES as u64;
/// Most bytes out of the source for each byte that changed, also when sites fail.
const SOURCE_OUT_MAX: f64 = 8.0;
/// The same for a site: those that have the data first serve most.
const SITE_OUT_MAX: f64 = 12.0;
/// Most bytes into a site for each byte that changed.
const IN_MAX: f64 = 1.1;
/// Most bytes into a site that already has everything.
const NOTHING_MAX: u64 = 1024;
/// A leader is stopped within so many calls for each site.
const CALLS_A_SITE: usize = 10;
/// Calls of a leader that is never stopped.
const UNSTOPPED: usize = usize::MAX;

/// Measurements of a release.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReleaseFigures {
    /// Bytes out of the source for each byte that changed.
    pub source_out: f64,
    /// The same for the site that sent most.
    pub site_out: f64,
    /// Most servers that the data of a site passed through.
    pub depth: u32,
    /// Duration in the simulation's time.
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

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The release without faults.
    pub quiet: ReleaseFigures,
    /// The release with sites that are down or die.
    pub faulty: ReleaseFigures,
    /// The same release again, with all sites back.
    pub again: ReleaseFigures,
    /// The release whose leader is stopped, and which the next leader ends.
    pub stopped: ReleaseFigures,
}

/// Runs one seed.
///
/// # Errors
/// The rule that did not hold.
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
    /// A client's call to the source.
    fn call(&self, call: &Call) -> Result<Answer, String> {
        let answer = self.fleet.lock().perform(0, call).ok_or("the source is gone")?;
        answer.map_err(|fault| format!("{call:?}: {fault}"))
    }

    /// Makes the volume with its files, and its group with all sites.
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

    /// Leads a release and stops the leader after `calls` calls.
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

    /// One site in twenty is down, and one in twenty dies during the release.
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

    /// All sites are back: only missing data is sent.
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
            // Lets events that are due happen.
            let later = fleet.now + Duration::from_secs(1);
            fleet.pass_until(later);
            has.retain(|no| fleet.houses[*no].up.is_some());
            (0..=self.sites).for_each(|no| fleet.start(no));
            // Grace ends at servers that had sessions.
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

    /// Measures a release and checks the limits.
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

    /// Checks that each readable site shows the released contents, that lagging sites are not
    /// readable, and that only `may_lag` lag.
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
                // It died after the release.
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

/// The contents of a volume of a server.
fn image_of(fleet: &Fleet, no: usize, text: &str) -> Result<Option<VolumeImage>, String> {
    let Some(life) = &fleet.houses[no].up else { return Ok(None) };
    let partition = life.vice.partitions().iter().next().ok_or("it has no partition")?;
    let found = partition.volumes().volume_named(text.as_bytes()).map_err(say)?;
    found.map(|volume| shown(&volume)).transpose()
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a short name")
}

fn say(error: impl fmt::Display) -> String {
    error.to_string()
}
