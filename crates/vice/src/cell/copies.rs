//! Copies of the cell's database that sessions read part by part. Each holds a snapshot, which
//! keeps old records on the disk, so there are few, and one ends with its session, with its last
//! part, or after a minute without a call.

use std::collections::BTreeMap;
use std::time::Duration;

use celldb::{CellCopy, CellDb, CopyCursor, CopyPart};
use parking_lot::Mutex;
use types::limits::{CELL_COPIES_MAX, PAYLOAD_BYTES_MAX};
use types::{Answer, Fault, SessionId, Time};

/// A copy that was not asked for this long has ended.
const UNUSED_MAX: Duration = Duration::from_secs(60);

/// See the head of the file.
#[derive(Default)]
pub(crate) struct CellCopies(Mutex<Copies>);

#[derive(Default)]
struct Copies {
    last: u64,
    held: BTreeMap<u64, HeldCopy>,
}

struct HeldCopy {
    session: SessionId,
    used: Time,
    /// `None`: a thread reads it.
    copy: Option<Box<dyn CellCopy>>,
}

impl CellCopies {
    /// The part of the copy with this number from `cursor` on; 0: of a new one.
    ///
    /// # Errors
    /// `Busy` if there are as many copies as there may be, or a call reads this one; `NothingThere`
    /// if the session has no such copy (any more); the database's.
    pub fn part(
        &self,
        db: &dyn CellDb,
        (session, now): (SessionId, Time),
        number: u64,
        cursor: &CopyCursor,
    ) -> Result<Answer, Fault> {
        let number = if number == 0 { self.begin(db, session, now)? } else { number };
        let mut copy = self.take(session, now, number)?;
        // Without the lock: it may take as long as the disk, or another server.
        let read = copy.part(cursor, PAYLOAD_BYTES_MAX);
        let at = copy.at();
        match read {
            Ok(CopyPart { bytes, end }) => {
                self.put_back(number, (!end).then_some(copy));
                Ok(Answer::Records { copy: number, at, end, part: bytes.into() })
            }
            Err(error) => {
                self.put_back(number, None);
                Err(error.into())
            }
        }
    }

    fn begin(&self, db: &dyn CellDb, session: SessionId, now: Time) -> Result<u64, Fault> {
        self.expire(now);
        let number = {
            let mut copies = self.0.lock();
            if copies.held.len() >= CELL_COPIES_MAX {
                return Err(Fault::Busy);
            }
            copies.last += 1;
            let number = copies.last;
            copies.held.insert(number, HeldCopy { session, used: now, copy: None });
            number
        };
        match db.copy() {
            Ok(copy) => {
                self.put_back(number, Some(copy));
                Ok(number)
            }
            Err(error) => {
                self.put_back(number, None);
                Err(error.into())
            }
        }
    }

    fn take(&self, session: SessionId, now: Time, number: u64) -> Result<Box<dyn CellCopy>, Fault> {
        let mut copies = self.0.lock();
        let held = copies.held.get_mut(&number).filter(|held| held.session == session);
        let held = held.ok_or(Fault::NothingThere)?;
        held.used = now;
        held.copy.take().ok_or(Fault::Busy)
    }

    /// `None`: the copy has ended. It has ended too if its session ended meanwhile.
    fn put_back(&self, number: u64, copy: Option<Box<dyn CellCopy>>) {
        let mut copies = self.0.lock();
        match (copy, copies.held.get_mut(&number)) {
            (Some(copy), Some(held)) => held.copy = Some(copy),
            (copy, _) => {
                copies.held.remove(&number);
                drop(copies);
                drop(copy);
            }
        }
    }

    /// Ends the copies of a session that ended.
    pub fn remove_session(&self, session: SessionId) {
        self.end_those(|held| held.session == session);
    }

    /// Ends the copies that are no longer asked for; returns when to do so again.
    pub fn expire(&self, now: Time) -> Time {
        self.end_those(|held| held.copy.is_some() && held.used + UNUSED_MAX <= now);
        let copies = self.0.lock();
        let ends = copies.held.values().map(|held| held.used + UNUSED_MAX);
        ends.min().map_or(Time::NEVER, |first| first.max(now + Duration::from_secs(1)))
    }

    /// Their threads are waited for without the lock.
    fn end_those(&self, ends: impl Fn(&HeldCopy) -> bool) {
        let mut ended = Vec::new();
        let mut copies = self.0.lock();
        let numbers: Vec<u64> =
            copies.held.iter().filter(|(_, held)| ends(held)).map(|(number, _)| *number).collect();
        for number in numbers {
            ended.extend(copies.held.remove(&number));
        }
        drop(copies);
    }
}

#[cfg(test)]
mod tests {
    use celldb::Embedded;
    use types::ServerId;

    use super::*;

    const ONE: SessionId = SessionId(1);
    const TWO: SessionId = SessionId(2);

    struct Test {
        copies: CellCopies,
        db: Embedded,
        _dir: tempfile::TempDir,
    }

    impl Test {
        fn new() -> Test {
            let dir = tempfile::tempdir().unwrap();
            let db = Embedded::open(dir.path()).unwrap();
            // More records than one part holds.
            for id in 1..=8 {
                let server = types::ServerInfo {
                    id: ServerId(id),
                    name: "x".repeat(PAYLOAD_BYTES_MAX / 6),
                    addresses: Vec::new(),
                    keys: Vec::new(),
                };
                db.put_server(&server, types::Revision(0)).unwrap();
            }
            Test { copies: CellCopies::default(), db, _dir: dir }
        }

        fn ask(&self, session: SessionId, secs: u64, copy: u64) -> Result<(u64, bool), Fault> {
            let now = Time::ZERO + Duration::from_secs(secs);
            let cursor = CopyCursor { after: Vec::new(), skip: usize::from(copy != 0) << 20 };
            match self.copies.part(&self.db, (session, now), copy, &cursor)? {
                Answer::Records { copy, end, .. } => Ok((copy, end)),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn ac14_a_copy_is_its_sessions_and_ends_with_the_last_part() {
        let test = Test::new();
        let (first, end) = test.ask(ONE, 0, 0).unwrap();
        assert!(!end);
        assert_eq!(test.ask(TWO, 0, first), Err(Fault::NothingThere), "another session's");
        assert_eq!(test.ask(ONE, 0, first + 1), Err(Fault::NothingThere), "no such copy");
        assert_eq!(test.ask(ONE, 0, first), Ok((first, true)));
        assert_eq!(test.ask(ONE, 0, first), Err(Fault::NothingThere), "it has ended");
    }

    #[test]
    fn ac14_copies_are_few_and_end_with_sessions_and_unused() {
        let test = Test::new();
        let begun: Vec<u64> =
            (0..CELL_COPIES_MAX).map(|_| test.ask(ONE, 0, 0).unwrap().0).collect();
        assert_eq!(test.ask(TWO, 59, 0), Err(Fault::Busy));
        test.copies.remove_session(ONE);
        assert_eq!(test.ask(ONE, 59, begun[0]), Err(Fault::NothingThere));
        let (first, _) = test.ask(TWO, 59, 0).unwrap();
        let at = |secs| Time::ZERO + Duration::from_secs(secs);
        assert_eq!(test.copies.expire(at(118)), at(119));
        assert_eq!(test.copies.expire(at(119)), Time::NEVER);
        assert_eq!(test.ask(TWO, 119, first), Err(Fault::NothingThere));
        // Each of these is unused when the next one begins.
        for secs in [200, 300, 400, 500, 600, 700] {
            test.ask(ONE, secs, 0).unwrap();
        }
    }
}
