//! The cell database as a server or a client sees it over the network: a question or its answer is
//! lost, or a change comes late.

use std::sync::Arc;

use celldb::{Access, CELL_LEVEL_KNOWN, CellCopy, CellDb, CellError, News};
use guard::PtsAsker;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{
    Answer, CellLevel, Changed, Fault, LevelAct, Name, Principal, PrincipalId, PtsCall, Revised,
    Revision, ServerId, ServerInfo, VolumeGroup, VolumeId, WhichPrincipal,
};

use super::mutation::TakeoverMutation;
use crate::cell::database::{Database, KnowsRootOnly};

type Result<T> = std::result::Result<T, CellError>;

/// The fate of one question to the database.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QuestionFate {
    Answered,
    Lost,
    /// It is done, and the asker does not learn of it.
    AnswerLost,
    /// A change is made later than its asker waits.
    Late,
}

/// A change that is under way, from this server.
pub(super) struct LateChange {
    pub group: VolumeGroup,
    pub expected: Revision,
}

/// The state of one line to the database.
struct LineState {
    rng: SmallRng,
    is_cut: bool,
    /// One question in so many is lost in some way; 0: none.
    lossy: u32,
    /// The database's revision when it was last reached.
    latest: Revision,
    late: Vec<LateChange>,
    /// Answers to changes that were lost since this was last read.
    lost_answers: u32,
}

/// A line to the database; clones share their state.
#[derive(Clone)]
pub(super) struct DatabaseLine {
    pub database: Arc<Database>,
    me: Option<ServerId>,
    mutation: Option<TakeoverMutation>,
    state: Arc<Mutex<LineState>>,
}

impl DatabaseLine {
    /// `me`: the server at the other end.
    pub fn new(
        database: &Arc<Database>,
        me: Option<ServerId>,
        mutation: Option<TakeoverMutation>,
        seed: u64,
    ) -> DatabaseLine {
        let state = LineState {
            rng: SmallRng::seed_from_u64(seed),
            is_cut: false,
            lossy: 0,
            latest: Revision(0),
            late: Vec::new(),
            lost_answers: 0,
        };
        let (database, state) = (Arc::clone(database), Arc::new(Mutex::new(state)));
        DatabaseLine { database, me, mutation, state }
    }

    /// The line is cut, or whole again.
    pub fn cut(&self, is_cut: bool) {
        self.state.lock().is_cut = is_cut;
    }

    /// One question in so many is lost from now on; 0: none.
    pub fn lose(&self, one_in: u32) {
        self.state.lock().lossy = one_in;
    }

    /// Changes that were asked for and are under way.
    pub fn take_late(&self) -> Vec<LateChange> {
        std::mem::take(&mut self.state.lock().late)
    }

    /// Whether the answer to a change was lost since the last question.
    pub fn take_lost_answers(&self) -> bool {
        std::mem::take(&mut self.state.lock().lost_answers) > 0
    }

    /// The server learns the database's revision, if it can.
    pub fn hear(&self) {
        let mut state = self.state.lock();
        if !state.is_cut {
            state.latest = self.database.revision().expect("it is in memory");
        }
    }

    /// Makes a change as the database does.
    ///
    /// # Errors
    /// Of the database.
    pub fn put_now(&self, group: &VolumeGroup, expected: Revision) -> Result<Revision> {
        let ignores = self.mutation == Some(TakeoverMutation::IgnoreRevision);
        let seen = self.database.group_of(group.read_write)?;
        let expected = match seen.filter(|_| ignores) {
            Some(seen) => seen.revision,
            None => expected,
        };
        self.database.put_group(group, expected)
    }

    fn fate(&self, changes: bool) -> QuestionFate {
        let mut state = self.state.lock();
        let lossy = state.lossy;
        if state.is_cut {
            return QuestionFate::Lost;
        }
        if lossy == 0 || state.rng.random_range(0..lossy) > 0 {
            return QuestionFate::Answered;
        }
        match state.rng.random_range(0..3) {
            0 => QuestionFate::Lost,
            1 => QuestionFate::AnswerLost,
            _ if changes => QuestionFate::Late,
            _ => QuestionFate::Lost,
        }
    }

    fn ask<T>(&self, act: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        let away = Err(CellError::Away(Fault::CellAway));
        match self.fate(false) {
            QuestionFate::Answered => act(&self.database),
            QuestionFate::AnswerLost => act(&self.database).and(away),
            QuestionFate::Lost | QuestionFate::Late => away,
        }
    }

    /// The record as a mutation shows it.
    fn bent(&self, seen: Option<Revised<VolumeGroup>>) -> Option<Revised<VolumeGroup>> {
        let mut seen = seen?;
        if self.mutation == Some(TakeoverMutation::BelieveOutOfStep) {
            let mine =
                |site: &&mut types::Site| Some(site.server) == self.me && site.kind.is_standby();
            seen.record.sites.iter_mut().filter(mine).for_each(|site| site.epoch = 1);
        }
        Some(seen)
    }
}

impl CellDb for DatabaseLine {
    fn group_named(&self, name: &Name) -> Result<Option<Revised<VolumeGroup>>> {
        self.ask(|db| db.group_named(name)).map(|seen| self.bent(seen))
    }
    fn group_of(&self, number: VolumeId) -> Result<Option<Revised<VolumeGroup>>> {
        self.ask(|db| db.group_of(number)).map(|seen| self.bent(seen))
    }
    fn groups(&self, after: VolumeId, max: usize) -> Result<Vec<Revised<VolumeGroup>>> {
        self.ask(|db| db.groups(after, max))
    }
    fn put_group(&self, group: &VolumeGroup, expected: Revision) -> Result<Revision> {
        let away = Err(CellError::Away(Fault::CellAway));
        match self.fate(true) {
            QuestionFate::Answered => self.put_now(group, expected),
            QuestionFate::Lost => away,
            QuestionFate::AnswerLost => {
                let done = self.put_now(group, expected);
                self.state.lock().lost_answers += u32::from(done.is_ok());
                done.and(away)
            }
            QuestionFate::Late => {
                let late = LateChange { group: group.clone(), expected };
                self.state.lock().late.push(late);
                away
            }
        }
    }
    fn remove_group(&self, id: VolumeId, expected: Revision) -> Result<Revision> {
        self.ask(|db| db.remove_group(id, expected))
    }
    fn take_numbers(&self, above: VolumeId, count: u32) -> Result<VolumeId> {
        self.ask(|db| db.take_numbers(above, count))
    }
    fn servers(&self) -> Result<Vec<Revised<ServerInfo>>> {
        self.ask(CellDb::servers)
    }
    fn put_server(&self, server: &ServerInfo, expected: Revision) -> Result<Revision> {
        self.ask(|db| db.put_server(server, expected))
    }
    fn remove_server(&self, id: ServerId, expected: Revision) -> Result<Revision> {
        self.ask(|db| db.remove_server(id, expected))
    }
    fn revision(&self) -> Result<Revision> {
        self.ask(CellDb::revision)
    }
    fn changes(&self, since: Revision, max: usize) -> Result<Vec<(Revision, Changed)>> {
        self.ask(|db| db.changes(since, max))
    }
    fn copy(&self) -> Result<Box<dyn CellCopy>> {
        self.ask(CellDb::copy)
    }
    fn access(&self) -> &dyn Access {
        self
    }
}

/// All but the news is as in a cell without principals.
impl Access for DatabaseLine {
    fn secret(&self, id: PrincipalId) -> Result<Option<String>> {
        KnowsRootOnly.secret(id)
    }
    fn set_secret(&self, id: PrincipalId, secret: &str, until: Option<i64>) -> Result<()> {
        KnowsRootOnly.set_secret(id, secret, until)
    }
    fn auth_elsewhere(
        &self,
        behalf: Option<types::Behalf>,
        call: &types::AuthCall,
    ) -> Option<std::result::Result<Answer, Fault>> {
        KnowsRootOnly.auth_elsewhere(behalf, call)
    }
    fn principal(&self, which: &WhichPrincipal) -> Result<Option<Principal>> {
        KnowsRootOnly.principal(which)
    }
    fn subdomain(
        &self,
        principal: PrincipalId,
        host: Option<std::net::IpAddr>,
    ) -> Result<(Revision, Vec<PrincipalId>)> {
        KnowsRootOnly.subdomain(principal, host)
    }
    fn level(&self, _: &LevelAct) -> Result<CellLevel> {
        self.ask(|_| Ok(CellLevel { level: CELL_LEVEL_KNOWN, programs: Vec::new() }))
    }
    fn pts(&self, asker: &PtsAsker, call: &PtsCall) -> std::result::Result<Answer, Fault> {
        KnowsRootOnly.pts(asker, call)
    }
    fn rules_at(&self) -> Revision {
        Revision(0)
    }
    fn rules(&self) -> Arc<Revised<guard::Rules>> {
        Arc::default()
    }
    fn guard(
        &self,
        me: ServerId,
        by: PrincipalId,
        now: i64,
        call: &types::GuardCall,
    ) -> std::result::Result<Answer, Fault> {
        KnowsRootOnly.guard(me, by, now, call)
    }
    fn latest(&self) -> Revision {
        self.state.lock().latest
    }
    fn news(&self, since: Revision) -> Result<News> {
        let latest = self.latest();
        // It keeps no list of changes: after any, all may have changed.
        Ok((latest, if latest == since { Some(Vec::new()) } else { None }))
    }
    fn watch(&self, _who: ServerId, since: Revision, _max: usize) -> Result<News> {
        self.news(since)
    }
    fn listen(&self, _me: ServerId) {}
}
