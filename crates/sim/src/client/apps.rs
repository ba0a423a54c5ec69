//! The operations of a client's applications, and the handling of their answers.

use std::time::Duration;

use dafs::{CallFailure, CallId};
use rand::Rng;
use types::{Answer, ByteRange, Call, Fault, Fid, Time};

use super::{Client, Doing, HeldLock, Life, Running, THREADS, Thread, owner_of};
use crate::event::SimEvent;
use crate::ground::Ground;
use crate::history::{Belief, Done, History, OpNo};
use crate::mutation::Mutation;
use crate::op::{self, Op};
use crate::server::SharedTree;

impl Client {
    pub(super) fn think(&mut self, ground: &mut Ground, thread: usize) {
        let (client, life) = (self.index, self.life);
        let delay = match (ground.healed, ground.rng.random_range(0..10)) {
            (true, _) | (false, 0..5) => {
                ground.between(Duration::from_micros(50), Duration::from_millis(20))
            }
            (false, 5..8) => ground.between(Duration::from_millis(20), Duration::from_millis(1500)),
            _ => ground.between(Duration::from_secs(1), Duration::from_secs(8)),
        };
        ground.after(delay, SimEvent::Step { client, life, thread });
    }

    /// Continues an application.
    pub fn step(&mut self, ground: &mut Ground, tree: &SharedTree, life: u64, thread: usize) {
        if life != self.life || self.up.is_none() {
            return;
        }
        if thread == THREADS {
            return self.look(ground, tree);
        }
        self.watch_lease(ground);
        let Some(up) = self.up.as_mut() else { return };
        if up.claims > 0 {
            return self.think(ground, thread);
        }
        match up.threads[thread] {
            Thread::Calling => {}
            Thread::Locked => self.unlock(ground, thread),
            Thread::Opened(fid) => self.begin(ground, tree, thread, Op::ReadOpen(fid)),
            Thread::Idle if self.left[thread] > 0 => {
                self.left[thread] -= 1;
                let number = ground.history.begin();
                let op = op::draw(ground, tree, self.index, number);
                self.begin_numbered(ground, tree, thread, op, number);
            }
            Thread::Idle => {}
        }
    }

    fn begin(&mut self, ground: &mut Ground, tree: &SharedTree, thread: usize, op: Op) {
        let number = ground.history.begin();
        self.begin_numbered(ground, tree, thread, op, number);
    }

    fn begin_numbered(
        &mut self,
        ground: &mut Ground,
        tree: &SharedTree,
        thread: usize,
        op: Op,
        number: OpNo,
    ) {
        if self.work_in_nest(ground, tree, thread, &op) {
            return;
        }
        if self.answer_from_cache(ground, tree, &op) {
            ground.history.tally.cached += 1;
            ground.history.tally.done += 1;
            return self.think(ground, thread);
        }
        let owner = owner_of(thread);
        let Some(up) = self.up.as_mut() else { return };
        up.threads[thread] = Thread::Calling;
        let call = op.call(tree, number, owner);
        match &op {
            Op::Write { .. } => ground.history.may_write(number),
            Op::Append { .. } => ground.history.append_begins(number),
            Op::MakeOwn(name) => ground.history.own_name(name),
            Op::RemoveOwn(name) => ground.history.own_removing(name),
            _ => {}
        }
        let began = ground.now;
        let shared = op.shared_names().into_iter().map(|(name, makes)| {
            let at = ground.history.shared_begins(&name, makes, began);
            (name, at)
        });
        let shared = shared.collect();
        let mark = up.cache.mark(tree.dir);
        let changes = op.changes(tree);
        if let Some(fid) = changes {
            up.cache.own_begins(fid);
        }
        let nest = match &op {
            Op::NestMake(name) | Op::NestRemove(name) => {
                let makes = matches!(op, Op::NestMake(_));
                Some(ground.history.nest.begins(self.index, name, makes, None))
            }
            _ => None,
        };
        let running = Running {
            nest,
            thread,
            number,
            op,
            began,
            timeline: ground.history.timeline(),
            floors: ground.history.floors(),
            snapshot: up.holder.begin(),
            mark,
            dir: tree.dir,
            changes,
            verifier: up.verifier,
            shared,
        };
        self.submit(ground, Doing::App(Box::new(running)), call);
    }

    /// Answers from the cache if it can and may, most of the time.
    pub(super) fn answer_from_cache(
        &mut self,
        ground: &mut Ground,
        tree: &SharedTree,
        op: &Op,
    ) -> bool {
        let now = self.now(ground);
        let Some(up) = self.up.as_ref() else { return false };
        if !up.holder.trusted(now) || ground.one_in(5) {
            return false;
        }
        let floors = ground.history.floors();
        let verdict = match op {
            Op::Read(fid) => {
                let Some((version, data)) = up.cache.data(*fid) else { return false };
                ground.note(|| format!("client {}: {fid} {version:?} from the cache", self.index));
                let fresh = ground.history.check_data_version(&floors, *fid, version, true);
                fresh.and_then(|()| ground.history.check_value(*fid, version, data))
            }
            Op::Stat(fid) => {
                let Some(status) = up.cache.status(*fid) else { return false };
                ground.note(|| {
                    format!(
                        "client {}: {fid} {:?} from the cache",
                        self.index, status.status_version
                    )
                });
                ground.history.check_status(&floors, &status, true)
            }
            Op::Lookup(name) => {
                let Some((version, found)) = up.cache.name(tree.dir, name) else { return false };
                ground.note(|| {
                    format!(
                        "client {}: {name:?} {found:?} at {version:?} from the cache",
                        self.index
                    )
                });
                let timeline = ground.history.timeline();
                match found {
                    Some(_) => ground.history.check_data_version(&floors, tree.dir, version, true),
                    None => {
                        ground.history.check_absent(name, timeline, ground.now, ground.now, true)
                    }
                }
            }
            _ => return false,
        };
        ground.judge(verdict);
        true
    }

    fn unlock(&mut self, ground: &mut Ground, thread: usize) {
        let owner = owner_of(thread);
        let Some(up) = self.up.as_mut() else { return };
        let held = up.locks.remove(&thread);
        ground.history.unlocked(self.index, thread);
        match held {
            // The application waits: a server may execute two calls that are under way together in
            // any order.
            Some(HeldLock { fid, family, .. }) => {
                up.threads[thread] = Thread::Calling;
                self.submit(
                    ground,
                    Doing::Unlock(thread),
                    Call::Unlock { fid, owner, family, range: ByteRange::ALL },
                );
            }
            None => {
                up.threads[thread] = Thread::Idle;
                self.think(ground, thread);
            }
        }
    }

    pub(super) fn done(
        &mut self,
        ground: &mut Ground,
        id: CallId,
        result: Result<Answer, CallFailure>,
    ) {
        let Some(doing) = self.up.as_mut().and_then(|up| up.calls.remove(&id)) else {
            return ground.violate(
                "DA-4",
                format!("client {}: {id:?} is answered twice or was never asked", self.index),
            );
        };
        ground.note(|| format!("client {}: done {id:?} {result:?}", self.index));
        match doing {
            Doing::Aside => {}
            Doing::NestAsked(thread, snapshot) => self.nest_asked(ground, thread, snapshot, result),
            Doing::NestSent => self.nest_sent(ground, id, result),
            Doing::NestReturned => self.nest_returned(),
            Doing::Unlock(thread) => {
                if let Some(up) = self.up.as_mut() {
                    up.threads[thread] = Thread::Idle;
                }
                self.think(ground, thread);
            }
            Doing::Claim(reclaim) if self.is_present(reclaim) => self.claimed(ground),
            Doing::Claim(_) => {}
            // The server has restarted again since, and the lock was claimed again.
            Doing::ClaimLock(thread, held, reclaim) if !self.is_present(reclaim) => {
                self.give_back(ground, thread, held);
            }
            Doing::ClaimLock(thread, held, _) => {
                let refused = result.is_err();
                let now = self.now(ground);
                let Some(up) = self.up.as_mut() else { return };
                let trusted = up.holder.trusted(now);
                if !refused {
                    // It is as good as the session again.
                    up.locks.entry(thread).and_modify(|lock| lock.doubtful &= !trusted);
                } else if let Some(lost) = up.locks.remove(&thread) {
                    ground.history.unlocked(self.index, thread);
                    if trusted && !lost.doubtful {
                        let what = format!(
                            "client {}: {held:?} is claimed, and not given back",
                            self.index
                        );
                        ground.violate("LK-4", what);
                    }
                }
                self.give_back(ground, thread, held);
                self.claimed(ground);
            }
            Doing::App(running) => self.finish(ground, &running, result),
        }
    }

    fn finish(
        &mut self,
        ground: &mut Ground,
        running: &Running,
        result: Result<Answer, CallFailure>,
    ) {
        let thread = running.thread;
        if let Some(up) = self.up.as_mut() {
            up.threads[thread] = Thread::Idle;
            if let Some(fid) = running.changes {
                up.cache.own_ends(fid);
            }
        }
        match result {
            Ok(answer) => {
                ground.history.tally.done += 1;
                self.answered(ground, running, answer);
            }
            Err(CallFailure::Fault(fault))
                if !matches!(fault, Fault::Expired | Fault::Cancelled) =>
            {
                ground.history.tally.done += 1;
                self.refused(ground, running, fault);
            }
            // A successor cancels its predecessor's questions.
            Err(CallFailure::Fault(_) | CallFailure::SessionLost) => {
                ground.history.tally.unknown += 1;
                if let Op::ReadOpen(fid) = running.op {
                    self.close(ground, fid);
                }
            }
            Err(failure) => {
                ground
                    .violate("progress", format!("client {}: {failure}: {running:?}", self.index));
            }
        }
        self.think(ground, thread);
    }

    fn answered(&mut self, ground: &mut Ground, running: &Running, answer: Answer) {
        let Some(up) = self.up.as_mut() else { return };
        let (now, number) = (ground.now, running.number);
        let done = Done { timeline: running.timeline, verifier: running.verifier, now };
        let promised = |up: &Life, fid| {
            up.holder.promised(fid, running.snapshot)
                || ground.mutation == Some(Mutation::IgnoreSnapshots)
        };
        let floors = &running.floors;
        let history = &mut ground.history;
        let mut removed = None;
        let verdict = match (&running.op, answer) {
            (Op::Read(_), Answer::Data { data, status, .. }) => {
                if promised(up, status.fid) {
                    up.cache.put(&status, Some(&data));
                }
                let fresh = history.check_status(floors, &status, false);
                fresh.and_then(|()| history.check_value(status.fid, status.data_version, &data))
            }
            (Op::ReadOpen(fid), Answer::Data { .. }) => {
                let fid = *fid;
                return self.close(ground, fid);
            }
            (Op::Stat(_), Answer::Status(status)) => {
                if promised(up, status.fid) {
                    up.cache.put(&status, None);
                }
                history.check_status(floors, &status, false)
            }
            (Op::Write { stable, .. }, Answer::Written { status, verifier: written, .. }) => {
                up.cache.saw(&status);
                let verdict = history.wrote(number, Done { verifier: written, ..done }, &status);
                if *stable && done.timeline == history.timeline() {
                    history.stable_up_to(status.fid, status.data_version);
                }
                verdict
            }
            (
                Op::Append { stable, .. },
                Answer::Written { status, offset, verifier: written, .. },
            ) => {
                up.cache.saw(&status);
                history.appended(number, offset, *stable, done.timeline);
                history.changed(Done { verifier: written, ..done }, &status);
                if *stable && done.timeline == history.timeline() {
                    history.stable_up_to(status.fid, status.data_version);
                }
                Ok(())
            }
            (Op::Commit(fid), Answer::Committed { verifier }) => {
                history.committed(*fid, running.began, verifier);
                Ok(())
            }
            (Op::Chmod(..), Answer::Status(status)) => {
                up.cache.saw(&status);
                history.changed(done, &status);
                Ok(())
            }
            (Op::MakeOwn(name), Answer::Made { status, dir, existed: false }) => {
                history.own_made(name, status.fid, dir.data_version, done.timeline);
                up.cache.saw(&dir);
                history.changed(done, &dir);
                Ok(())
            }
            (Op::RemoveOwn(name), Answer::Removed { dir, status }) => {
                removed = Some(status);
                history.own_removed(name, dir.data_version, done.timeline);
                up.cache.saw(&dir);
                history.changed(done, &dir);
                Ok(())
            }
            (Op::MakeShared { guarded, .. }, Answer::Made { dir, existed, .. })
                if !(existed && *guarded) =>
            {
                running.shared_done(history, !existed, now);
                up.cache.saw(&dir);
                if !existed {
                    history.changed(done, &dir);
                }
                Ok(())
            }
            (Op::RemoveShared(_), Answer::Removed { dir, status }) => {
                removed = Some(status);
                running.shared_done(history, true, now);
                up.cache.saw(&dir);
                history.changed(done, &dir);
                Ok(())
            }
            (Op::RenameShared(from, to), Answer::Renamed { to_dir, other, .. }) => {
                removed = other;
                running.shared_done(history, from != to, now);
                up.cache.saw(&to_dir);
                if from != to {
                    history.changed(done, &to_dir);
                }
                Ok(())
            }
            (Op::Lookup(name) | Op::Open(name), Answer::Entry { status, dir_version, .. }) => {
                let dir = running.dir;
                if promised(up, dir) {
                    up.cache.put_name(dir, dir_version, name, status.fid);
                }
                let known = promised(up, status.fid);
                if known {
                    up.cache.put(&status, None);
                }
                let verdict = history.check_data_version(floors, dir, dir_version, false);
                let trusted = up.holder.trusted(self.clock.read(now));
                // An own removal, for which this client receives no break, may have come between.
                let quiet = up.cache.is_quiet_since(dir, running.mark);
                if known && trusted && quiet && matches!(running.op, Op::Open(_)) {
                    *up.open.entry(status.fid).or_default() += 1;
                    up.threads[running.thread] = Thread::Opened(status.fid);
                }
                verdict
            }
            (Op::NestMake(_), Answer::Made { existed: false, .. })
            | (Op::NestRemove(_), Answer::Removed { .. }) => {
                if let Some(at) = running.nest {
                    history.nest.answered(at, now);
                    history.nest.sure(at);
                }
                Ok(())
            }
            (Op::NestList, Answer::Entries { entries, end: true, .. }) => {
                let names = entries.into_iter().map(|entry| entry.name).collect();
                let same = running.timeline == history.timeline();
                if same { history.nest.check(&names, running.began, false) } else { Ok(()) }
            }
            (Op::Lock { fid, exclusive, family }, Answer::Done) => {
                let (fid, exclusive, family) = (*fid, *exclusive, *family);
                up.locks
                    .insert(running.thread, HeldLock { fid, exclusive, family, doubtful: false });
                up.threads[running.thread] = Thread::Locked;
                history.locked(
                    Belief { client: self.index, thread: running.thread, fid, exclusive },
                    now,
                )
            }
            (op, answer) => Err(("answer", format!("{op:?} is answered with {answer:?}"))),
        };
        ground.judge(verdict);
        if let Some(status) = removed.filter(|status| status.links == 0) {
            self.keep_or_let_go(ground, status.fid);
        }
    }

    /// A file lost its last name through this client, and the server holds it as requested: keeps
    /// the hold if the file is open here, otherwise releases it.
    fn keep_or_let_go(&mut self, ground: &mut Ground, fid: Fid) {
        let Some(up) = self.up.as_mut() else { return };
        if up.open.contains_key(&fid) {
            up.held.insert(fid);
        } else {
            self.submit(ground, Doing::Aside, Call::Unhold { fids: vec![fid] });
        }
    }

    fn refused(&mut self, ground: &mut Ground, running: &Running, fault: Fault) {
        let Some(up) = self.up.as_mut() else { return };
        let (now, began) = (ground.now, running.began);
        let verdict = match (&running.op, fault) {
            (Op::Lookup(name) | Op::Open(name), Fault::NotFound) => {
                let may = up.holder.promised(running.dir, running.snapshot)
                    || ground.breaks(Mutation::IgnoreSnapshots);
                if may {
                    up.cache.put_absent(running.dir, name, running.mark);
                }
                ground.history.check_absent(name, running.timeline, began, now, false)
            }
            (Op::MakeShared { .. }, Fault::Exists)
            | (Op::RemoveShared(_) | Op::RenameShared(..), Fault::NotFound) => {
                running.shared_done(&mut ground.history, false, now);
                Ok(())
            }
            // A client with a delegation may have removed it first, or a loss of power took it.
            (Op::NestRemove(name), Fault::NotFound) => {
                let lost = running.timeline != ground.history.timeline()
                    || ground.history.nest.is_contended(name);
                if lost {
                    Ok(())
                } else {
                    Err(("EO-1", format!("{:?} does not find its name", running.op)))
                }
            }
            (Op::RemoveOwn(name), Fault::NotFound) => ground.history.own_missing(name),
            (Op::MakeOwn(name), Fault::Exists) => {
                Err(("EO-1", format!("{name:?} is made once, and exists already")))
            }
            (Op::ReadOpen(fid), _) => {
                let fid = *fid;
                let lost =
                    running.timeline != ground.history.timeline() || !up.open.contains_key(&fid);
                self.close(ground, fid);
                match lost {
                    true => Ok(()),
                    false => Err((
                        "HO-1",
                        format!("client {}: {fid} is open, and refused: {fault}", self.index),
                    )),
                }
            }
            (op, fault) => Err(("answer", format!("{op:?} is refused with {fault:?}"))),
        };
        ground.judge(verdict);
    }

    fn close(&mut self, ground: &mut Ground, fid: Fid) {
        let Some(up) = self.up.as_mut() else { return };
        let Some(count) = up.open.get_mut(&fid) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        up.open.remove(&fid);
        if up.held.remove(&fid) {
            self.submit(ground, Doing::Aside, Call::Unhold { fids: vec![fid] });
        }
    }
}

impl Running {
    fn shared_done(&self, history: &mut History, happened: bool, now: Time) {
        for (name, at) in &self.shared {
            history.shared_done(name, *at, self.timeline, happened, now);
        }
    }
}
