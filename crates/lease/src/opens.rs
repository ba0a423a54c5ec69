//! Opens: which sessions have a file open at the server, what they deny to others, and by which key
//! (docs/spec/sharing.md, SH-1, SH-2, SH-4 and SH-6).
//!
//! The model. An open belongs to a session and a file. It has uses of the data (*access*), denies
//! uses to everyone else, and has a key or none. All opens of a file have the same key, or none has
//! one. A file's *tally* counts its opens by what they have and deny; each session's part of it is
//! counted too, so a check costs the same however many opens a file has: what others deny is what
//! all deny, less what the session's own opens deny.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use types::{DataUse, Fault, Fid, OpenId, SessionId, ShareKey, VolumeId};

/// A request for an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The file.
    pub fid: Fid,
    /// The session that asks.
    pub session: SessionId,
    /// The uses that the session has of the data.
    pub access: DataUse,
    /// The uses that no one else has meanwhile.
    pub deny: DataUse,
    /// The key that all must have who have the file open.
    pub key: Option<ShareKey>,
}

impl OpenRequest {
    /// Whether other sessions may do less with the file while it is open so.
    pub fn excludes(&self) -> bool {
        self.deny != DataUse::Nothing || self.key.is_some()
    }
}

/// An open, by its number.
#[derive(Clone, Copy, Debug)]
struct Made {
    fid: Fid,
    session: SessionId,
    access: DataUse,
    deny: DataUse,
}

/// Counts of opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    opens: usize,
    read: usize,
    written: usize,
    denies_read: usize,
    denies_write: usize,
}

impl Tally {
    fn counts(&mut self, access: DataUse, deny: DataUse) -> [(&mut usize, bool); 5] {
        [
            (&mut self.opens, true),
            (&mut self.read, access.reads()),
            (&mut self.written, access.writes()),
            (&mut self.denies_read, deny.reads()),
            (&mut self.denies_write, deny.writes()),
        ]
    }

    fn add(&mut self, access: DataUse, deny: DataUse) {
        self.counts(access, deny).into_iter().for_each(|(count, has)| *count += usize::from(has));
    }

    fn take(&mut self, access: DataUse, deny: DataUse) {
        self.counts(access, deny).into_iter().for_each(|(count, has)| *count -= usize::from(has));
    }

    /// Whether some open has one of these uses.
    fn uses(&self, any: DataUse) -> bool {
        any.reads() && self.read > 0 || any.writes() && self.written > 0
    }

    /// Whether some open that is not counted in `own` denies one of these uses.
    fn denies(&self, any: DataUse, own: &Tally) -> bool {
        any.reads() && self.denies_read > own.denies_read
            || any.writes() && self.denies_write > own.denies_write
    }
}

/// The opens of one file.
#[derive(Debug, Default)]
struct OpenFile {
    key: Option<ShareKey>,
    all: Tally,
    sessions: BTreeMap<SessionId, Tally>,
}

/// See the head of the file.
#[derive(Debug)]
pub struct Opens {
    made: HashMap<OpenId, Made>,
    files: HashMap<Fid, OpenFile>,
    sessions: HashMap<SessionId, BTreeSet<OpenId>>,
    last: u64,
}

impl Opens {
    /// `next_session`: above every session number that was ever used, and with each start of the
    /// server another one. The numbers of opens begin with it, so that no number comes again.
    pub(crate) fn new(next_session: SessionId) -> Opens {
        Opens {
            made: HashMap::new(),
            files: HashMap::new(),
            sessions: HashMap::new(),
            last: next_session.0 << 32,
        }
    }

    /// Opens of all sessions.
    pub(crate) fn len(&self) -> usize {
        self.made.len()
    }

    /// Opens of a session.
    pub(crate) fn count(&self, session: SessionId) -> usize {
        self.sessions.get(&session).map_or(0, BTreeSet::len)
    }

    /// Whether another session has the file open.
    pub(crate) fn is_open_elsewhere(&self, fid: Fid, session: SessionId) -> bool {
        self.files.get(&fid).is_some_and(|file| file.sessions.keys().any(|one| *one != session))
    }

    /// Whether the session may use the file's data so, as far as opens of others decide (SH-2,
    /// SH-4). It has no open that another's denies (SH-1), so its own opens allow nothing here;
    /// but with a key each use needs one.
    ///
    /// # Errors
    /// `ShareConflict`, `KeyConflict`.
    pub fn check(&self, session: SessionId, fid: Fid, uses: DataUse) -> Result<(), Fault> {
        let Some(file) = self.files.get(&fid) else { return Ok(()) };
        let own = file.sessions.get(&session);
        if file.key.is_some() && own.is_none() {
            return Err(Fault::KeyConflict);
        }
        let own = own.copied().unwrap_or_default();
        if file.all.denies(uses, &own) { Err(Fault::ShareConflict) } else { Ok(()) }
    }

    /// Adds an open (SH-1, SH-4).
    ///
    /// # Errors
    /// `ShareConflict`, `KeyConflict`; `Invalid` without an access.
    pub(crate) fn add(&mut self, request: &OpenRequest) -> Result<OpenId, Fault> {
        let OpenRequest { fid, session, access, deny, key } = *request;
        if access == DataUse::Nothing {
            return Err(Fault::Invalid);
        }
        if let Some(file) = self.files.get(&fid) {
            if file.key != key {
                return Err(Fault::KeyConflict);
            }
            if file.all.denies(access, &Tally::default()) || file.all.uses(deny) {
                return Err(Fault::ShareConflict);
            }
        }
        self.last += 1;
        let id = OpenId(self.last);
        let file = self.files.entry(fid).or_default();
        file.key = key;
        file.all.add(access, deny);
        file.sessions.entry(session).or_default().add(access, deny);
        self.sessions.entry(session).or_default().insert(id);
        self.made.insert(id, Made { fid, session, access, deny });
        debug_assert_eq!(self.check(session, fid, access), Ok(()), "SH-1: {id:?} cannot be used");
        Ok(id)
    }

    /// Ends an open of the session (SH-6).
    ///
    /// # Errors
    /// `Stale`: the session has no such open of this file.
    pub fn close(&mut self, session: SessionId, fid: Fid, id: OpenId) -> Result<(), Fault> {
        self.of_session(session, fid, id)?;
        self.remove(id);
        Ok(())
    }

    /// Takes uses, or denials, from an open of the session.
    ///
    /// # Errors
    /// `Stale` as [`Opens::close`]; `Invalid`: no access is left, or there is more than it had.
    pub fn downgrade(
        &mut self,
        session: SessionId,
        fid: Fid,
        id: OpenId,
        access: DataUse,
        deny: DataUse,
    ) -> Result<(), Fault> {
        let had = self.of_session(session, fid, id)?;
        if access == DataUse::Nothing || !had.access.contains(access) || !had.deny.contains(deny) {
            return Err(Fault::Invalid);
        }
        let file = self.files.get_mut(&fid).expect("SH-1: the file of an open is in the table");
        let own = file.sessions.get_mut(&session).expect("SH-1: so is the session's part of it");
        for tally in [&mut file.all, own] {
            tally.take(had.access, had.deny);
            tally.add(access, deny);
        }
        self.made.insert(id, Made { access, deny, ..had });
        Ok(())
    }

    fn of_session(&self, session: SessionId, fid: Fid, id: OpenId) -> Result<Made, Fault> {
        let made = self.made.get(&id).copied();
        made.filter(|made| (made.session, made.fid) == (session, fid)).ok_or(Fault::Stale)
    }

    fn remove(&mut self, id: OpenId) {
        let Some(Made { fid, session, access, deny }) = self.made.remove(&id) else { return };
        let file = self.files.get_mut(&fid).expect("SH-1: the file of an open is in the table");
        let own = file.sessions.get_mut(&session).expect("SH-1: so is the session's part of it");
        own.take(access, deny);
        if own.opens == 0 {
            file.sessions.remove(&session);
        }
        file.all.take(access, deny);
        if file.all.opens == 0 {
            self.files.remove(&fid);
        }
        let had = self.sessions.get_mut(&session).expect("SH-6: an open is listed at its session");
        had.remove(&id);
        if had.is_empty() {
            self.sessions.remove(&session);
        }
    }

    /// Ends all opens of a session.
    pub(crate) fn end(&mut self, session: SessionId) {
        let all = self.sessions.get(&session).cloned().unwrap_or_default();
        all.into_iter().for_each(|id| self.remove(id));
    }

    /// The file is gone: ends its opens.
    pub(crate) fn forget_file(&mut self, fid: Fid) {
        if self.files.contains_key(&fid) {
            self.end_where(|made| made.fid == fid);
        }
    }

    /// Whether any session has a file of the volume open.
    pub fn has_any_in(&self, volume: VolumeId) -> bool {
        self.files.keys().any(|fid| fid.volume == volume)
    }

    /// The sessions that have files of the volume open.
    pub(crate) fn sessions_in(&self, volume: VolumeId) -> BTreeSet<SessionId> {
        let of_volume = self.made.values().filter(|made| made.fid.volume == volume);
        of_volume.map(|made| made.session).collect()
    }

    /// The volume is at another server, and no client trusts an open that it had here any more.
    pub fn forget_volume(&mut self, volume: VolumeId) {
        self.end_where(|made| made.fid.volume == volume);
    }

    fn end_where(&mut self, ends: impl Fn(&Made) -> bool) {
        let all = self.made.iter().filter(|(_, made)| ends(made));
        let all: Vec<OpenId> = all.map(|(id, _)| *id).collect();
        all.into_iter().for_each(|id| self.remove(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fid = Fid::new(1, 2, 1);
    const OTHER: Fid = Fid::new(2, 4, 1);
    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    fn opens() -> Opens {
        Opens::new(SessionId(9))
    }

    fn request(session: SessionId, access: DataUse, deny: DataUse) -> OpenRequest {
        OpenRequest { fid: FILE, session, access, deny, key: None }
    }

    fn keyed(session: SessionId, key: Option<u8>) -> OpenRequest {
        let key = key.map(|byte| ShareKey([byte; 16]));
        OpenRequest { key, ..request(session, DataUse::Both, DataUse::Nothing) }
    }

    #[test]
    fn sh1_every_pair_of_opens_bears_each_other_or_not() {
        let accesses = [DataUse::Read, DataUse::Write, DataUse::Both];
        for (first, second) in [(A, B), (A, A)] {
            for access in accesses {
                for deny in DataUse::ALL {
                    for wanted in accesses {
                        for denied in DataUse::ALL {
                            let mut opens = opens();
                            opens.add(&request(first, access, deny)).unwrap();
                            let found = opens.add(&request(second, wanted, denied));
                            let conflict = deny.meets(wanted) || denied.meets(access);
                            let expected = conflict.then_some(Fault::ShareConflict);
                            assert_eq!(found.err(), expected, "{access:?} {deny:?} {wanted:?}");
                            assert_eq!(opens.len(), 2 - usize::from(conflict));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn sh2_a_denial_is_for_other_sessions_and_ends_with_the_open() {
        let mut opens = opens();
        let id = opens.add(&request(A, DataUse::Read, DataUse::Write)).unwrap();
        assert_eq!(opens.check(B, FILE, DataUse::Write), Err(Fault::ShareConflict));
        assert_eq!(opens.check(B, FILE, DataUse::Both), Err(Fault::ShareConflict));
        assert_eq!(opens.check(B, FILE, DataUse::Read), Ok(()));
        assert_eq!(opens.check(B, OTHER, DataUse::Write), Ok(()));
        assert_eq!(opens.check(A, FILE, DataUse::Write), Ok(()), "its own denial");
        opens.close(A, FILE, id).unwrap();
        assert_eq!(opens.check(B, FILE, DataUse::Write), Ok(()));
        assert_eq!(opens.files.len() + opens.sessions.len() + opens.made.len(), 0);
    }

    #[test]
    fn sh4_every_pair_of_keys_agrees_or_not() {
        let keys = [None, Some(1), Some(2)];
        for first in keys {
            for second in keys {
                for session in [A, B] {
                    let mut opens = opens();
                    opens.add(&keyed(A, first)).unwrap();
                    let found = opens.add(&keyed(session, second));
                    let expected = (first != second).then_some(Fault::KeyConflict);
                    assert_eq!(found.err(), expected, "{first:?} {second:?}");
                }
            }
        }
        let mut opens = opens();
        opens.add(&keyed(A, Some(1))).unwrap();
        assert_eq!(opens.check(B, FILE, DataUse::Read), Err(Fault::KeyConflict));
        assert_eq!(opens.check(A, FILE, DataUse::Read), Ok(()));
        let joined = opens.add(&keyed(B, Some(1))).unwrap();
        assert_eq!(opens.check(B, FILE, DataUse::Both), Ok(()));
        opens.end(A);
        assert_eq!(opens.check(A, FILE, DataUse::Read), Err(Fault::KeyConflict), "B has it");
        opens.close(B, FILE, joined).unwrap();
        opens.add(&keyed(A, None)).unwrap();
        assert_eq!(opens.add(&keyed(B, Some(1))), Err(Fault::KeyConflict), "open without a key");
    }

    #[test]
    fn sh6_a_close_of_an_open_of_others_changes_nothing() {
        let mut opens = opens();
        let id = opens.add(&request(A, DataUse::Read, DataUse::Write)).unwrap();
        assert_eq!(opens.close(B, FILE, id), Err(Fault::Stale));
        assert_eq!(opens.close(A, OTHER, id), Err(Fault::Stale));
        assert_eq!(opens.close(A, FILE, OpenId(id.0 + 1)), Err(Fault::Stale));
        let none = DataUse::Nothing;
        assert_eq!(opens.downgrade(B, FILE, id, DataUse::Read, none), Err(Fault::Stale));
        assert_eq!(opens.check(B, FILE, DataUse::Write), Err(Fault::ShareConflict));
        opens.close(A, FILE, id).unwrap();
        assert_eq!(opens.close(A, FILE, id), Err(Fault::Stale), "it was closed");
    }

    #[test]
    fn a_downgrade_gives_up_and_never_gains() {
        let mut opens = opens();
        let id = opens.add(&request(A, DataUse::Both, DataUse::Both)).unwrap();
        assert!(opens.add(&request(B, DataUse::Read, DataUse::Nothing)).is_err());
        opens.downgrade(A, FILE, id, DataUse::Read, DataUse::Write).unwrap();
        for (access, deny) in [
            (DataUse::Both, DataUse::Nothing),
            (DataUse::Write, DataUse::Nothing),
            (DataUse::Read, DataUse::Both),
            (DataUse::Read, DataUse::Read),
            (DataUse::Nothing, DataUse::Nothing),
        ] {
            assert_eq!(opens.downgrade(A, FILE, id, access, deny), Err(Fault::Invalid));
        }
        opens.add(&request(B, DataUse::Read, DataUse::Write)).unwrap();
        assert!(opens.add(&request(B, DataUse::Write, DataUse::Nothing)).is_err());
    }

    #[test]
    fn opens_end_with_session_file_and_volume() {
        let mut opens = opens();
        for (session, fid) in [(A, FILE), (A, OTHER), (B, FILE)] {
            opens
                .add(&OpenRequest { fid, ..request(session, DataUse::Read, DataUse::Write) })
                .unwrap();
        }
        assert_eq!(opens.sessions_in(OTHER.volume), BTreeSet::from([A]));
        assert!(opens.is_open_elsewhere(OTHER, B) && !opens.is_open_elsewhere(OTHER, A));
        opens.forget_volume(OTHER.volume);
        assert!(!opens.has_any_in(OTHER.volume) && opens.has_any_in(FILE.volume));
        opens.end(A);
        assert_eq!((opens.count(A), opens.count(B), opens.len()), (0, 1, 1));
        opens.forget_file(FILE);
        assert_eq!(opens.files.len() + opens.sessions.len() + opens.made.len(), 0);
    }

    #[test]
    fn a_number_does_not_come_again_after_a_restart() {
        let first = Opens::new(SessionId(9)).add(&request(A, DataUse::Read, DataUse::Nothing));
        let later = Opens::new(SessionId(10)).add(&request(A, DataUse::Read, DataUse::Nothing));
        assert_ne!(first, later);
    }
}
