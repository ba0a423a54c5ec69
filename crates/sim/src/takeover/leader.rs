//! Commands of administrators: the code of `vos`, while all else goes on.

use std::time::Duration;

use celldb::CellDb;
use parking_lot::Mutex;
use rand::Rng;
use types::{Answer, Busy, Fault, Revised, ServerId, SiteKind, Time, VolumeCall, VolumeGroup};
use vos::{Job, JobLeader, Servers, VosError};

use super::database::DatabaseLine;
use super::house::{PARTITION, id, number};
use super::mutation::TakeoverMutation;
use super::wire::{Asker, Wire};
use super::world::{StandbyWorld, TREE};

/// A call is given up after this time.
const CALL_WITHIN: Duration = Duration::from_secs(20);

/// A command that is not over after this time is stopped.
const STOPPED_AFTER: Duration = Duration::from_secs(60);

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StandbyOrder {
    FailOver(Option<usize>),
    /// Removes a standby and adds it again.
    Renew(usize),
}

struct StandbyLeader<'w> {
    world: &'w Mutex<StandbyWorld>,
    line: DatabaseLine,
    /// Calls before it is stopped; `None`: it is not.
    left: Mutex<Option<u32>>,
    /// The administrator stops it then at the latest.
    until: Time,
}

impl StandbyWorld {
    /// A command is drawn.
    pub fn order(&mut self) {
        let servers = self.houses.len();
        let order = match self.rng.random_range(0..4) {
            0 => StandbyOrder::Renew(self.rng.random_range(0..servers)),
            1 => StandbyOrder::FailOver(Some(self.rng.random_range(0..servers))),
            _ => StandbyOrder::FailOver(None),
        };
        self.orders.push(order);
    }
}

/// Carries a command out, as far as it goes.
pub(super) fn carry_out(world: &Mutex<StandbyWorld>, order: &StandbyOrder) {
    {
        let mut at = world.lock();
        at.note(|| format!("command: {order:?}"));
        at.tally.ordered += 1;
    }
    let done = match order {
        StandbyOrder::FailOver(to) => {
            give(world, true, |job, group| vos::fail_over(job, group, to.map(id), false).map(drop))
        }
        StandbyOrder::Renew(no) => renew(world, *no),
    };
    let mut at = world.lock();
    at.tally.refused += u64::from(done.is_err());
    at.note(|| format!("command: {order:?} -> {done:?}"));
}

/// Removes a standby and adds it. A command that adds it and is refused or stopped is given again,
/// and not stopped then: the end of a run expects that the server is listed.
fn renew(world: &Mutex<StandbyWorld>, no: usize) -> Result<(), VosError> {
    let is_async = world.lock().judge.is_async;
    let kind = if is_async { SiteKind::AsyncStandby } else { SiteKind::Standby };
    let removed = give(world, true, |job, group| {
        if group.record.standbys().any(|site| site.server == id(no)) {
            vos::remove_standby(job, group, id(no), None)?;
        }
        Ok(())
    });
    let mut may_stop = true;
    loop {
        let mut is_home = false;
        let added = give(world, may_stop, |job, group| {
            is_home = group.record.read_write_site().is_some_and(|site| site.server == id(no));
            if is_home {
                return Ok(());
            }
            // Also if the record lists it: its server may not have been told.
            vos::add_standby(job, group, id(no), PARTITION, kind).map(drop)
        });
        if is_home || added.is_ok() || world.lock().violation.is_some() {
            return removed.and(added);
        }
        may_stop = false;
        pause(world, Duration::from_secs(1));
    }
}

/// Gives a command on the volume as it is listed now. `may_stop`: the command is stopped at times,
/// after some calls.
fn give(
    world: &Mutex<StandbyWorld>,
    may_stop: bool,
    command: impl FnOnce(&Job<'_>, Revised<VolumeGroup>) -> Result<(), VosError>,
) -> Result<(), VosError> {
    let leader = {
        let mut at = world.lock();
        let seed = at.rng.random();
        let line = DatabaseLine::new(&at.database, None, None, seed);
        let left = (may_stop && at.one_in(3)).then(|| at.rng.random_range(0..12));
        StandbyLeader { world, line, left: Mutex::new(left), until: at.now + STOPPED_AFTER }
    };
    let is_over = |_: &Busy| true;
    let who = JobLeader { by: "admin".to_owned(), now_secs: &|| 7, is_over: &is_over };
    let job = Job { servers: &leader, who, dry_run: false, tell: &|_| {} };
    let group = leader.line.group_of(TREE)?.ok_or(VosError::NoVolume)?;
    command(&job, group)
}

fn pause(world: &Mutex<StandbyWorld>, pause: Duration) {
    let until = world.lock().now + pause;
    while world.lock().happens_by(until) {}
}

impl Servers for StandbyLeader<'_> {
    fn db(&self) -> &dyn CellDb {
        &self.line
    }

    fn call(&self, server: ServerId, call: VolumeCall) -> Result<Answer, VosError> {
        let no = number(server);
        let name = format!("server{no}");
        let gives_up = matches!(call, VolumeCall::StandBy { .. });
        let away = |why: &str| Err(VosError::Away { server: name.clone(), why: why.to_owned() });
        let is_stopped = {
            let mut left = self.left.lock();
            let is_stopped = *left == Some(0) || self.world.lock().now > self.until;
            *left = left.map(|left| left.saturating_sub(1));
            is_stopped
        };
        if is_stopped {
            return away("the command was stopped");
        }
        let (question, until) = {
            let mut world = self.world.lock();
            world.questions += 1;
            let question = world.questions;
            world.answers.insert(question, None);
            let text = format!("{call:?}");
            world.note(|| format!("command to {no}: {text}"));
            world.ask(Wire { asker: Asker::Leader, server: no }, question, call);
            (question, world.now + CALL_WITHIN)
        };
        loop {
            let mut world = self.world.lock();
            if let Some(Some(answer)) = world.answers.get(&question).cloned() {
                world.answers.remove(&question);
                world.note(|| format!("command hears {:?}", answer.as_ref().err()));
                let is_locked = answer == Err(Fault::Busy) && gives_up;
                if is_locked && world.breaks(TakeoverMutation::IgnoreLocks) {
                    return Ok(Answer::Done);
                }
                return answer.map_err(|fault| VosError::Refused { server: name, fault });
            }
            let is_over = world.violation.is_some();
            if is_over || !world.happens_by(until) {
                world.answers.remove(&question);
                world.network.connect_anew(Wire { asker: Asker::Leader, server: no });
                return away("it does not answer");
            }
        }
    }

    fn name(&self, server: ServerId) -> String {
        format!("server{}", number(server))
    }

    fn pause(&self, pause: Duration) {
        self::pause(self.world, pause);
    }

    fn together(&self, count: usize, each: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(each);
    }
}
