//! Faults of the world: a seeded schedule.

use std::time::Duration;

use rand::Rng;

use super::wire::{Asker, Wire};
use super::world::{Occurrence, StandbyWorld};

/// The longest time for which a server is down, cut off or stopped.
const LONG: Duration = Duration::from_secs(30);
/// The longest time for which messages are lost here and there.
const LOSSY: Duration = Duration::from_secs(20);

/// A fault that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server reaches none, and is reached by none.
    Isolated(usize),
    /// The server does not reach the database.
    NoDatabase(usize),
    Cut(Wire),
    /// Messages are lost here and there.
    LossyNetwork,
    /// Questions to the database are lost here and there.
    LossyDatabase,
}

impl StandbyWorld {
    /// Plans so many faults in the coming time.
    pub fn plan_faults(&mut self, count: u32, over: Duration) {
        self.faults_left = count;
        for _ in 0..count {
            let at = Duration::from_secs(4) + self.upto(over);
            self.after(at, Occurrence::Strike);
        }
    }

    /// A time that is often short, and up to that.
    fn span(&mut self, most: Duration) -> Duration {
        let span = self.upto(most);
        if self.one_in(3) { span / 20 } else { span }
    }

    /// A fault strikes.
    pub fn strike(&mut self) {
        if self.faults_left == 0 {
            return;
        }
        self.faults_left -= 1;
        // The volume's server more often than another.
        let no = match self.one_in(2) {
            true => self.home(),
            false => self.rng.random_range(0..self.houses.len()),
        };
        let other = self.rng.random_range(0..self.houses.len());
        let wire = match self.clients.len() {
            clients if self.one_in(2) => {
                Wire { asker: Asker::Client(self.rng.random_range(0..clients)), server: no }
            }
            _ => Wire { asker: Asker::Server(other), server: no },
        };
        let fault = match self.rng.random_range(0..13) {
            0..2 => return self.strike_down(no),
            2 => return self.leave_behind(),
            3 => {
                let stall = self.span(LONG);
                self.note(|| format!("server {no} is stopped for {stall:?}"));
                // Another stop does not shorten it: later messages would overtake those that wait.
                let until = self.now + stall;
                let house = &mut self.houses[no];
                house.stalled_until = house.stalled_until.max(until);
                return;
            }
            4..6 => Fault::Isolated(no),
            6 => Fault::NoDatabase(no),
            7..9 => Fault::Cut(wire),
            9 => Fault::LossyNetwork,
            10 => Fault::LossyDatabase,
            _ => return self.order(),
        };
        self.begin(fault);
        let most = match fault {
            Fault::LossyNetwork | Fault::LossyDatabase => LOSSY,
            _ => LONG,
        };
        let span = self.span(most);
        self.after(span, Occurrence::Mend(fault));
    }

    /// A server dies for a while.
    pub fn strike_down(&mut self, no: usize) {
        let power = self.one_in(3);
        self.die(no, power);
        let down = self.span(LONG);
        self.after(down, Occurrence::Up(no));
    }

    /// The volume's server dies soon after its standbys have heard from it for the last time, and
    /// while they may be in step: that is what an asynchronous one lacks. The database is not
    /// heard well, either.
    fn leave_behind(&mut self) {
        let home = self.home();
        for other in (0..self.houses.len()).filter(|other| *other != home) {
            let cut = Fault::Cut(Wire { asker: Asker::Server(other), server: home });
            self.begin(cut);
            self.after(LONG / 10, Occurrence::Mend(cut));
        }
        let delay = Duration::from_millis(200) + self.upto(Duration::from_millis(700));
        self.after(delay, Occurrence::Death(home));
        if self.one_in(2) {
            self.begin(Fault::LossyDatabase);
            self.after(LOSSY / 2, Occurrence::Mend(Fault::LossyDatabase));
        }
    }

    fn begin(&mut self, fault: Fault) {
        self.note(|| format!("begins: {fault:?}"));
        match fault {
            Fault::Isolated(no) => {
                self.network.isolated.insert(no);
                self.houses[no].line.cut(true);
            }
            Fault::NoDatabase(no) => self.houses[no].line.cut(true),
            Fault::Cut(wire) => _ = self.network.cut.insert(wire),
            Fault::LossyNetwork => self.network.lossy = self.rng.random_range(5..60),
            Fault::LossyDatabase => {
                let one_in = self.rng.random_range(2..6);
                self.houses.iter().for_each(|house| house.line.lose(one_in));
            }
        }
    }

    /// The fault is over.
    pub fn mend(&mut self, fault: Fault) {
        self.note(|| format!("ends: {fault:?}"));
        match fault {
            Fault::Isolated(no) => {
                self.network.isolated.remove(&no);
                self.houses[no].line.cut(false);
            }
            Fault::NoDatabase(no) => self.houses[no].line.cut(false),
            Fault::Cut(wire) => _ = self.network.cut.remove(&wire),
            Fault::LossyNetwork => self.network.lossy = 0,
            Fault::LossyDatabase => self.houses.iter().for_each(|house| house.line.lose(0)),
        }
    }

    /// All faults are over, and all servers are up. One that is stopped goes on at its time: no
    /// message overtakes those that wait for it.
    pub fn heal(&mut self) {
        self.note(|| "faults are over".to_owned());
        self.faults_left = 0;
        (self.network.lossy, self.is_quiet) = (0, true);
        self.network.isolated.clear();
        self.network.cut.clear();
        for no in 0..self.houses.len() {
            let house = &mut self.houses[no];
            house.line.cut(false);
            house.line.lose(0);
            self.start(no);
        }
    }
}
