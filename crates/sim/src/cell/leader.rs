//! The leader of an operation: calls servers and the database as `vos` does over sessions, and may
//! be stopped at any of its calls.

use std::sync::Arc;
use std::time::Duration;

use celldb::{Access, CellCopy, CellDb, CellError};
use parking_lot::{Condvar, Mutex};
use rand::Rng;
use types::{
    Answer, Call, Changed, Fault, Name, Revised, Revision, ServerId, ServerInfo, VolumeCall,
    VolumeGroup, VolumeId, VolumeKind,
};
use vos::{Servers, VosError};

use super::database::{DatabaseLink, KnowsRootOnly};
use super::mutation::StepMutation;
use super::reference::Sealed;
use super::sessions::SessionUser;
use super::wires::Fate;
use super::world::World;

/// Time limit of one call with all its attempts.
const CALL_WITHIN: Duration = Duration::from_secs(20);
/// Pause between two calls that replace one.
const BETWEEN: Duration = Duration::from_millis(500);
/// Longest round trip to a server.
const WAY_MAX: Duration = Duration::from_millis(4);

/// One run of an operation; see the head of the file.
pub struct Leader<'w> {
    world: &'w Mutex<World>,
    number: u64,
    line: DatabaseLink,
    left: Mutex<Left>,
    /// The place among leaders that run at the same time.
    seat: Option<LeaderSeat<'w>>,
}

/// One of several leaders that run at the same time, each in a thread. Only one of them runs at a
/// time, and at each call the seed chooses the next one, so that a seed replays.
#[derive(Clone, Copy)]
pub struct LeaderSeat<'w> {
    /// The table that these leaders share.
    pub table: &'w Table,
    /// The leader's index in the table.
    pub at: usize,
}

/// The state that leaders in several threads share; see [`LeaderSeat`].
pub struct Table {
    /// The leader that runs, and for each leader whether it has not finished.
    turn: Mutex<(usize, Vec<bool>)>,
    comes: Condvar,
}

impl Table {
    /// A table for `count` leaders; the first one begins.
    pub fn new(count: usize) -> Self {
        Table { turn: Mutex::new((0, vec![true; count])), comes: Condvar::new() }
    }
}

impl LeaderSeat<'_> {
    /// Waits for the leader's first turn.
    pub fn wait(&self) {
        let mut turn = self.table.turn.lock();
        self.table.comes.wait_while(&mut turn, |turn| turn.0 != self.at);
    }

    /// Lets a leader that is drawn continue. The caller must have locked nothing of the world.
    pub fn pass_on(&self, world: &Mutex<World>) {
        self.give(world);
        self.wait();
    }

    /// The leader has finished.
    pub fn leave(&self, world: &Mutex<World>) {
        self.table.turn.lock().1[self.at] = false;
        self.give(world);
    }

    fn give(&self, world: &Mutex<World>) {
        let mut turn = self.table.turn.lock();
        let there: Vec<usize> =
            turn.1.iter().enumerate().filter(|(_, there)| **there).map(|(at, _)| at).collect();
        if !there.is_empty() {
            turn.0 = there[world.lock().rng.random_range(0..there.len())];
        }
        drop(turn);
        self.table.comes.notify_all();
    }
}

/// Calls until the leader is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The leader is never stopped.
    All,
    /// So many more calls. The flag: the next call is still executed, and only its answer is lost.
    Some(u32, bool),
    /// The leader was stopped.
    None,
}

/// The treatment of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Go {
    On,
    Unheard,
    Stopped,
}

impl<'w> Leader<'w> {
    /// A new leader with a number of its own.
    pub fn new(world: &'w Mutex<World>, left: Left, seat: Option<LeaderSeat<'w>>) -> Self {
        let mut at = world.lock();
        at.leaders += 1;
        let number = at.leaders;
        at.enter(SessionUser::Leader(number));
        let line = DatabaseLink { database: Arc::clone(&at.database), wires: at.wires.clone() };
        let leader = Leader { world, number, line, left: Mutex::new(left), seat };
        at.leading.insert(leader.by());
        leader
    }

    /// The leader's name in claims.
    pub fn by(&self) -> String {
        format!("leader {}", self.number)
    }

    /// The leader ends; returns whether it was stopped before.
    pub fn ends(self) -> bool {
        let stopped = *self.left.lock() == Left::None;
        let mut world = self.world.lock();
        world.leading.remove(&self.by());
        world.leave(SessionUser::Leader(self.number), !stopped);
        stopped
    }

    /// Decides on a call. The caller must have locked nothing of the world.
    fn go(&self) -> Go {
        if let Some(seat) = &self.seat {
            seat.pass_on(self.world);
        }
        let mut left = self.left.lock();
        match *left {
            Left::All => Go::On,
            Left::Some(0, unheard) => {
                *left = Left::None;
                if unheard { Go::Unheard } else { Go::Stopped }
            }
            Left::Some(more, unheard) => {
                *left = Left::Some(more - 1, unheard);
                Go::On
            }
            Left::None => Go::Stopped,
        }
    }

    fn ask_db<T>(
        &self,
        what: &str,
        ask: impl FnOnce(&DatabaseLink) -> Result<T, CellError>,
    ) -> Result<T, CellError> {
        let away = || CellError::Away(Fault::CellAway);
        let go = self.go();
        if go == Go::Stopped {
            return Err(away());
        }
        let mut world = self.world.lock();
        let way = world.upto(WAY_MAX);
        world.pass(way);
        let result = ask(&self.line);
        world.note(|| {
            format!("database: {what} -> {}", if result.is_ok() { "done" } else { "not done" })
        });
        if go == Go::Unheard { Err(away()) } else { result }
    }

    /// Calls a server as a session does: a call that a server did not answer before its death is
    /// sent again to its next life, which answers calls that were done from its record.
    fn ask(
        &self,
        world: &mut World,
        no: usize,
        call: &VolumeCall,
    ) -> Result<Result<Answer, Fault>, String> {
        let until = world.now + CALL_WITHIN;
        let who = SessionUser::Leader(self.number);
        let mut sent: Option<types::ReplyAddress> = None;
        loop {
            let way = world.upto(WAY_MAX);
            world.pass(way);
            if world.now > until {
                return Err("it takes too long".to_owned());
            }
            let fate = world.wires.fate(no);
            if fate == Fate::Lost {
                let pause = world.upto(Duration::from_secs(2));
                world.pass(pause);
                if world.one_in(4) {
                    return Err("it cannot be reached".to_owned());
                }
                continue;
            }
            self.note_seal(world, no, call);
            let put = Call::Volume(call.clone());
            let origin = match sent.filter(|origin| world.has_seat(who, no, origin.session)) {
                Some(origin) => {
                    world.at_risk(no, |world| world.perform(no, origin, put));
                    origin
                }
                None if sent.is_some() => return Err("its session is over".to_owned()),
                None => match world.at_risk(no, |world| world.put(who, no, &put)) {
                    Ok(origin) => origin,
                    Err(_) => continue,
                },
            };
            sent = Some(origin);
            if let VolumeCall::Clone { of, .. } = call {
                world.seals_later(no, origin, *of);
            }
            let reply = world.wait_for(no, origin, until);
            if world.houses[no].up.is_none() {
                continue;
            }
            match reply {
                Some(_) if fate == Fate::AnswerLost => {
                    return Err("its answer does not come".to_owned());
                }
                Some(reply) => return Ok(reply),
                None => return Err("it does not answer".to_owned()),
            }
        }
    }

    /// Makes these calls in place of the intended one, and returns the last answer.
    fn ask_each(
        &self,
        world: &mut World,
        no: usize,
        calls: &[VolumeCall],
    ) -> Result<Result<Answer, Fault>, String> {
        let mut answer = Ok(Answer::Done);
        for (at, call) in calls.iter().enumerate() {
            if at > 0 {
                // Lets clients work in between.
                world.pass(BETWEEN);
            }
            answer = self.ask(world, no, call)?;
        }
        Ok(answer)
    }

    /// Records the model's present contents for an epoch that is about to be sealed.
    fn note_seal(&self, world: &mut World, no: usize, call: &VolumeCall) {
        let VolumeCall::Clone { of, name, kind, .. } = call else { return };
        let Some(sealed) = world.trees.get(of).map(|reference| Sealed::of(&reference.tree)) else {
            return;
        };
        for partition in world.partitions(no) {
            if let Ok(Some(volume)) = partition.volumes().volume(*of) {
                let key = (*of, volume.epoch());
                if volume.is_arriving() {
                    // It has epochs that were sealed at the source of the move, whose volume may
                    // have changed since.
                    world.sealed.entry(key).or_insert_with(|| Arc::clone(&sealed));
                } else {
                    world.sealed.insert(key, Arc::clone(&sealed));
                }
            }
        }
        if *kind == VolumeKind::ReadWrite {
            world.coming.entry(name.clone()).or_default().push(Arc::clone(&sealed));
        }
        self.note_coming(world, name, &sealed);
    }

    /// Records that a copy may begin with this sealed epoch.
    fn note_coming(&self, world: &mut World, name: &Name, sealed: &Arc<Sealed>) {
        let number = name
            .as_bytes()
            .strip_prefix(b"copying.")
            .and_then(|number| std::str::from_utf8(number).ok());
        let number = number.and_then(|number| number.parse().ok()).map(VolumeId);
        if let Some(Ok(Some(group))) = number.map(|number| world.database.group_of(number)) {
            world.coming.entry(group.record.name).or_default().push(Arc::clone(sealed));
        }
    }
}

impl Servers for Leader<'_> {
    fn db(&self) -> &dyn CellDb {
        self
    }

    fn call(&self, server: ServerId, call: VolumeCall) -> Result<Answer, VosError> {
        let go = self.go();
        let world = &mut *self.world.lock();
        let no = world.number_of(server);
        let away =
            |why: &str| Err(VosError::Away { server: format!("server{no}"), why: why.to_owned() });
        if go == Go::Stopped {
            return away("stopped");
        }
        let asked = match world.mutation {
            None => self.ask(world, no, &call),
            Some(mutation) => self.ask_each(world, no, &mutation.bend(world, &call)),
        };
        if let (Ok(Ok(Answer::Volumes { volumes, .. })), VolumeCall::Clone { of, name, .. }) =
            (&asked, &call)
            && !volumes.iter().any(|one| one.kind == VolumeKind::ReadWrite)
            && let Some(sealed) =
                volumes.first().and_then(|one| world.sealed.get(&(*of, one.epoch)).map(Arc::clone))
        {
            self.note_coming(world, name, &sealed);
        }
        world.note(|| {
            let text = match &asked {
                Ok(Ok(Answer::Volumes { volumes, .. })) => volumes
                    .iter()
                    .map(|one| {
                        format!(
                            "{} {} epoch {} {:?}",
                            one.id.0,
                            super::judge::text(&one.name),
                            one.epoch,
                            one.state
                        )
                    })
                    .collect::<Vec<_>>()
                    .join(", "),
                Ok(Ok(_)) => "done".to_owned(),
                Ok(Err(fault)) => fault.to_string(),
                Err(why) => why.clone(),
            };
            format!("server {no}: {call:?} -> {text}")
        });
        world.judge();
        match asked {
            Ok(_) if go == Go::Unheard => away("stopped"),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(fault)) => Err(VosError::Refused { server: format!("server{no}"), fault }),
            Err(why) => {
                world.forget_seat(SessionUser::Leader(self.number), no);
                away(&why)
            }
        }
    }

    fn name(&self, server: ServerId) -> String {
        format!("server{}", self.world.lock().number_of(server))
    }

    fn pause(&self, pause: Duration) {
        if *self.left.lock() != Left::None {
            self.world.lock().pass(pause);
            if let Some(seat) = &self.seat {
                seat.pass_on(self.world);
            }
        }
    }

    fn together(&self, count: usize, each: &(dyn Fn(usize) + Sync)) {
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            let other = self.world.lock().rng.random_range(0..=at);
            order.swap(at, other);
        }
        order.into_iter().for_each(each);
    }
}

impl CellDb for Leader<'_> {
    fn group_named(&self, name: &Name) -> Result<Option<Revised<VolumeGroup>>, CellError> {
        self.ask_db("look", |db| db.group_named(name))
    }
    fn group_of(&self, number: VolumeId) -> Result<Option<Revised<VolumeGroup>>, CellError> {
        self.ask_db("look", |db| db.group_of(number))
    }
    fn groups(&self, after: VolumeId, max: usize) -> Result<Vec<Revised<VolumeGroup>>, CellError> {
        self.ask_db("list", |db| db.groups(after, max))
    }
    fn put_group(&self, group: &VolumeGroup, expected: Revision) -> Result<Revision, CellError> {
        let mutation = self.world.lock().mutation;
        let bent = mutation.map(|mutation| mutation.bend_record(&*self.line.database, group));
        let group = bent.as_ref().unwrap_or(group);
        self.ask_db(&format!("put {group:?} from {}", expected.0), |db| {
            db.put_group(group, expected)
        })
    }
    fn remove_group(
        &self,
        read_write: VolumeId,
        expected: Revision,
    ) -> Result<Revision, CellError> {
        let keeps = self.world.lock().mutation.is_some_and(StepMutation::keeps_record);
        self.ask_db(&format!("remove group {} from {}", read_write.0, expected.0), |db| {
            if keeps { Ok(expected) } else { db.remove_group(read_write, expected) }
        })
    }
    fn take_numbers(&self, above: VolumeId, count: u32) -> Result<VolumeId, CellError> {
        self.ask_db("take numbers", |db| db.take_numbers(above, count))
    }
    fn servers(&self) -> Result<Vec<Revised<ServerInfo>>, CellError> {
        self.ask_db("servers", CellDb::servers)
    }
    fn put_server(&self, server: &ServerInfo, expected: Revision) -> Result<Revision, CellError> {
        self.ask_db("put server", |db| db.put_server(server, expected))
    }
    fn remove_server(&self, id: ServerId, expected: Revision) -> Result<Revision, CellError> {
        self.ask_db("remove server", |db| db.remove_server(id, expected))
    }
    fn revision(&self) -> Result<Revision, CellError> {
        self.ask_db("revision", CellDb::revision)
    }
    fn changes(&self, since: Revision, max: usize) -> Result<Vec<(Revision, Changed)>, CellError> {
        self.ask_db("changes", |db| db.changes(since, max))
    }
    fn copy(&self) -> Result<Box<dyn CellCopy>, CellError> {
        self.ask_db("copy", CellDb::copy)
    }
    fn access(&self) -> &dyn Access {
        &KnowsRootOnly
    }
}
