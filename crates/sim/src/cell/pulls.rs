//! Pulls continue, a step at a time.

use std::time::Duration;

use rand::Rng;
use types::{Answer, Call};
use vice::{Fetch, Unanswered, Work};

use super::sessions::SessionUser;
use super::wires::Fate;
use super::world::{Happening, World};
use crate::server::wall;

impl World {
    pub(super) fn begin_pulls(&mut self, no: usize) {
        let house = &mut self.houses[no];
        let (Some(life), of) = (&mut house.up, house.life) else { return };
        let ordered: Vec<_> = std::mem::take(&mut *life.pulls.ordered.lock());
        let mut begun = Vec::new();
        for (pull, task) in ordered {
            let number = task.number;
            life.fetches.insert(number, Fetch::new(pull.clone(), task).in_small_parts());
            self.pulls.insert((no, of, number), pull);
            begun.push(Happening::Pull(no, of, number));
        }
        begun.into_iter().for_each(|pull| self.after(Duration::from_millis(1), pull));
    }

    /// One step of a pull: a call with its answer, or work.
    pub(super) fn pull_on(&mut self, no: usize, life: u64, task: u64) {
        if self.houses[no].life != life {
            return;
        }
        let Some(mut fetch) = self.houses[no].up.as_mut().and_then(|up| up.fetches.remove(&task))
        else {
            return;
        };
        let is_to_end = |world: &World| {
            world.houses[no].up.as_ref()?.pulls.tasks.lock().is_to_end(task).then_some(())
        };
        if is_to_end(self).is_some() {
            fetch.give_up("an administrator ended it".to_owned());
        }
        let work = match fetch.question() {
            Some(call) => {
                let answer = self.ask_source(no, life, task, &Call::Volume(call));
                fetch.answered(answer);
                Work::Did
            }
            None => self.at_risk(no, |world| {
                let Some((vice, now)) = world.service(no) else { return Work::Over };
                let mut effects = Vec::new();
                let work = vice.work(&mut fetch, now, wall(world.now), &mut effects);
                world.deliver(no, effects);
                work
            }),
        };
        let Some(up) = &mut self.houses[no].up else { return };
        up.pulls.tasks.lock().put(fetch.task());
        let told = fetch.task().clone();
        let delay = match work {
            Work::Pause(pause) => pause,
            _ if self.rng.random_range(0..8) > 0 => self.upto(Duration::from_millis(3)),
            _ => self.upto(Duration::from_millis(800)),
        };
        if work == Work::Over {
            self.note(|| {
                format!(
                    "server {no}: task {task} of tree {} ends {:?}: {}",
                    told.tree.0, told.state, told.text
                )
            });
            self.pulls.remove(&(no, life, task));
            self.leave(SessionUser::Puller(no, life, task), true);
        } else {
            self.houses[no].up.as_mut().expect("it is up").fetches.insert(task, fetch);
            self.after(delay, Happening::Pull(no, life, task));
        }
    }

    fn ask_source(
        &mut self,
        no: usize,
        life: u64,
        task: u64,
        call: &Call,
    ) -> Result<Answer, Unanswered> {
        let lost = || Unanswered::Lost("it does not answer".to_owned());
        let is_local = self.pulls.get(&(no, life, task)).is_some_and(|pull| pull.from.is_empty());
        if let (true, Some((vice, _)), Call::Volume(call)) = (is_local, self.service(no), call) {
            return vice.answer_here(call).map_err(Unanswered::Refused);
        }
        let from = self
            .pulls
            .get(&(no, life, task))
            .and_then(|pull| pull.from.first().copied())
            .ok_or_else(lost)?;
        let source = self
            .houses
            .iter()
            .position(|house| house.info.addresses.contains(&from))
            .ok_or_else(lost)?;
        let fate = self.wires.fate(source);
        if fate == Fate::Lost {
            return Err(lost());
        }
        let origin = self
            .put(SessionUser::Puller(no, life, task), source, call)
            .map_err(Unanswered::Refused)?;
        match self.reply(source, origin).ok_or_else(lost)? {
            _ if fate == Fate::AnswerLost => Err(lost()),
            answer => answer.map_err(Unanswered::Refused),
        }
    }
}
