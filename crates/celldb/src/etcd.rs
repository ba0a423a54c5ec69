//! The cell's database in etcd: each server reads and changes it itself.
//!
//! Model. A server follows the database as it follows one of another server: it has the rules and
//! the changes among principals as of the last revision that it received, and asks for the later
//! ones when a watch tells of a change, and every second. If etcd does not answer, or has no
//! quorum, calls fail at once with `NoQuorum` until it answers again.
//!
//! A server *acknowledges* the revision up to which it has all changes in force, by a key that
//! exists as long as its lease (`heard.rs`). It does so before it asks for later changes. So a
//! change that takes rights away waits for each server whose key has an earlier revision, and a
//! server whose key is not there asks after the change was made.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use serde_json::json;
use types::{Changed, Fault, Name, Revised, Revision, ServerId, ServerInfo, VolumeGroup, VolumeId};

use crate::copy::part;
use crate::engine::{Engine, View};
use crate::operations::{CHANGES_KEPT, Held, Operations};
use crate::{Access, CellCopy, CellDb, CellError, CopyCursor, CopyPart, Following, following};

mod access;
mod client;
mod fill;
mod heard;
#[cfg(test)]
pub(crate) mod process;
mod store;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use client::whole;
use client::{EtcdClient, host_of};
pub(crate) use fill::EtcdFill;
use heard::Heard;
pub(crate) use store::EtcdStore;
use store::{EtcdView, encoded, need_in_use, number};

type Result<T> = std::result::Result<T, CellError>;

/// The most changes that are received at once.
const CHANGES_MAX: usize = 1000;
/// Between two questions for changes without a reason.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// A watch that receives nothing for this long is begun again.
const WATCH_SILENCE: Duration = Duration::from_secs(60);
/// Before a watch that failed is begun again.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// How etcd is reached: the part `etcd` of `cell.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdConfig {
    /// `HOST:PORT` of each member.
    pub endpoints: Vec<String>,
    /// The certificates of the authority that signed etcd's, in PEM. Without it connections are in
    /// clear text, and only to this machine.
    pub ca: Option<PathBuf>,
    /// This server's certificate for etcd, in PEM.
    pub cert: Option<PathBuf>,
    /// Its private key, in PEM.
    pub key: Option<PathBuf>,
    /// The user in etcd, where it has users.
    pub user: Option<String>,
    /// The file with that user's password.
    pub password_file: Option<PathBuf>,
}

impl EtcdConfig {
    /// The same with files below this directory, where their paths are relative.
    #[must_use]
    pub fn below(&self, dir: &std::path::Path) -> EtcdConfig {
        let file = |path: &Option<PathBuf>| path.as_ref().map(|path| dir.join(path));
        EtcdConfig {
            ca: file(&self.ca),
            cert: file(&self.cert),
            key: file(&self.key),
            password_file: file(&self.password_file),
            ..self.clone()
        }
    }

    /// Checks that it is consistent.
    ///
    /// # Errors
    /// Why it is not.
    pub fn check(&self) -> std::result::Result<(), String> {
        if self.endpoints.is_empty() {
            return Err("etcd: endpoints = [\"HOST:PORT\", ...] lists its members".to_owned());
        }
        for endpoint in &self.endpoints {
            let port = endpoint.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            let host = host_of(endpoint);
            if port.is_none() || host.is_empty() || host.contains('/') {
                return Err(format!("etcd: {endpoint:?} is not HOST:PORT"));
            }
            let is_here = host.starts_with("127.") || ["localhost", "[::1]"].contains(&host);
            if self.ca.is_none() && !is_here {
                return Err(format!(
                    "etcd: {endpoint} is reached without TLS, and the database has hashes of \
                     passwords: name the authority's certificates with ca = \"FILE\""
                ));
            }
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err("etcd: cert and key belong together".to_owned());
        }
        if self.cert.is_some() && self.ca.is_none() {
            return Err("etcd: cert needs ca".to_owned());
        }
        if self.user.is_some() != self.password_file.is_some() {
            return Err("etcd: user and password_file belong together".to_owned());
        }
        Ok(())
    }
}

/// A member of etcd.
#[derive(Clone, Debug)]
pub struct EtcdMember {
    /// `HOST:PORT`.
    pub address: String,
    /// Its state, or why it does not answer.
    pub state: std::result::Result<EtcdMemberState, String>,
}

/// The state of a member that answers.
#[derive(Clone, Debug)]
pub struct EtcdMemberState {
    /// The version of its program.
    pub version: String,
    /// Bytes of its database on the disk.
    pub bytes: u64,
    /// Does it know a leader?
    pub has_leader: bool,
    /// Do the members refuse changes, since one of them has no space?
    pub is_full: bool,
}

/// See the head of the file.
pub struct Etcd {
    operations: Operations<EtcdStore>,
    following: Arc<Following>,
    heard: Heard,
    /// Why calls fail at once; `None`: etcd answered the last question for changes.
    away: RwLock<Option<CellError>>,
    /// When changes were asked for.
    asked: Mutex<Option<Instant>>,
    shared: Arc<Watched>,
}

/// Shared with the thread of the watch.
#[derive(Default)]
struct Watched {
    /// Something changed since changes were asked for.
    stirred: AtomicBool,
    /// A thread asks for changes, and so finds it when etcd answers again.
    listens: AtomicBool,
    ends: AtomicBool,
    wake: RwLock<Option<Box<dyn Fn() + Send + Sync>>>,
}

impl Watched {
    fn stir(&self) {
        self.stirred.store(true, Ordering::Release);
        if let Some(wake) = &*self.wake.read() {
            wake();
        }
    }
}

impl Etcd {
    /// The database of this cell. No member is asked yet.
    ///
    /// # Errors
    /// `Misuse` if the configuration or one of its files cannot be used.
    pub fn new(config: &EtcdConfig, cell: &str, following: Arc<Following>) -> Result<Etcd> {
        Self::keeping(config, cell, following, CHANGES_KEPT)
    }

    pub(crate) fn keeping(
        config: &EtcdConfig,
        cell: &str,
        following: Arc<Following>,
        changes_kept: u64,
    ) -> Result<Etcd> {
        let store = EtcdStore::new(EtcdClient::new(config)?, cell);
        let heard = Heard::of(store.clone());
        Ok(Etcd {
            operations: Operations::new(store, changes_kept),
            following,
            heard,
            away: RwLock::default(),
            asked: Mutex::default(),
            shared: Arc::default(),
        })
    }

    /// The records alone.
    ///
    /// # Errors
    /// As [`Etcd::new`].
    pub(crate) fn store(config: &EtcdConfig, cell: &str) -> Result<EtcdStore> {
        Ok(EtcdStore::new(EtcdClient::new(config)?, cell))
    }

    /// Checks that the database is here and in use, and that this program knows the cell's level.
    ///
    /// # Errors
    /// `Moved`, `Version`, `Level`, `Damaged`; `Misuse`: there is none; `NoQuorum`, `Medium`.
    pub fn check(&self) -> Result<()> {
        let store = &self.operations.engine;
        need_in_use(store.state()?.as_ref(), &store.beside("format"))?;
        (&store.view() as &dyn View).need_known_level()
    }

    /// Calls `wake` when something in the database changes: [`Access::listen`] should be called
    /// then. Starts a thread for that.
    pub fn wake_by(&self, wake: Box<dyn Fn() + Send + Sync>) {
        *self.shared.wake.write() = Some(wake);
        let (store, shared) = (self.operations.engine.clone(), Arc::downgrade(&self.shared));
        let work = move || {
            let body = json!({"create_request": {"key": encoded(store.counters_key())}});
            while let Some(shared) = shared.upgrade() {
                let mut take = || {
                    shared.stir();
                    !shared.ends.load(Ordering::Acquire)
                };
                let ended = store.client.stream("/v3/watch", &body, WATCH_SILENCE, &mut take);
                if shared.ends.load(Ordering::Acquire) {
                    return;
                }
                tracing::debug!(?ended, "the watch of the cell's database ended; it is begun anew");
                drop(shared);
                std::thread::sleep(WATCH_PAUSE);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("etcd-watch".into()).spawn(work) {
            tracing::error!(
                %error,
                "no thread for the watch of the cell's database: changes are asked for every \
                 second only"
            );
        }
    }

    /// Asks each member about itself.
    pub fn members(&self) -> Vec<EtcdMember> {
        let client = &self.operations.engine.client;
        let is_full = client
            .call("/v3/maintenance/alarm", &json!({"action": "GET"}))
            .is_ok_and(|answer| answer.to_string().contains("NOSPACE"));
        let state = |status: serde_json::Value| EtcdMemberState {
            version: status["version"].as_str().unwrap_or_default().to_owned(),
            bytes: number(&status["dbSize"]).cast_unsigned(),
            has_leader: number(&status["leader"]) != 0,
            is_full,
        };
        let all = client.each_member().into_iter();
        all.map(|(address, status)| EtcdMember { address, state: status.map(state) }).collect()
    }

    fn need_etcd(&self) -> Result<&Operations<EtcdStore>> {
        match &*self.away.read() {
            None => Ok(&self.operations),
            Some(error) => Err(error.clone()),
        }
    }

    /// Reads. If nothing answers, later calls fail at once.
    fn read<T>(&self, act: impl FnOnce(&dyn View) -> Result<T>) -> Result<T> {
        let found = self.need_etcd()?.read(act);
        if let Err(error @ CellError::NoQuorum(_)) = &found
            && self.shared.listens.load(Ordering::Acquire)
        {
            self.report(&Err(error.clone()));
        }
        found
    }

    /// Makes a change. If nothing answers, later calls fail at once.
    fn write<T, F>(
        &self,
        act: impl FnOnce(&Operations<EtcdStore>, &Held<'_>) -> std::result::Result<T, F>,
    ) -> std::result::Result<T, F>
    where
        F: From<CellError> + Clone,
        Fault: From<F>,
    {
        let held = self.operations.hold();
        // A change before this one may have found that nothing answers.
        let made = act(self.need_etcd()?, &held);
        let fault = made.as_ref().err().cloned().map(Fault::from);
        if fault == Some(Fault::CellAway) && self.shared.listens.load(Ordering::Acquire) {
            self.report(&Err(CellError::NoQuorum("a change was not answered".to_owned())));
        }
        made
    }

    /// Receives the changes; `me`: this server.
    fn receive(&self, me: ServerId) -> Result<()> {
        self.check()?;
        loop {
            let asked = following::now();
            let since = self.following.received.at();
            self.heard.acknowledge(me, since)?;
            self.heard.forget_silent(me, Instant::now())?;
            let view = self.operations.engine.view();
            let view: &dyn View = &view;
            let at = Revision(view.counters()?.revision);
            let changes = match view.changes(since, CHANGES_MAX) {
                // An older database has taken the place of the one that this server followed.
                Ok(_) if since > at => None,
                Ok(changes) => Some(changes),
                Err(CellError::Forgotten { .. }) => None,
                Err(error) => return Err(error),
            };
            let last = changes
                .as_ref()
                .filter(|changes| changes.len() == CHANGES_MAX)
                .and_then(|all| all.last());
            let more = last.is_some();
            let until = last.map_or(at, |(revision, _)| *revision);
            if self.following.ruled.is_touched_by(changes.as_deref()) {
                self.following.ruled.renew(view.rules()?.record, at);
            }
            self.following.received.add(until, changes);
            if !more {
                self.following.confirm(asked);
                return Ok(());
            }
        }
    }

    fn report(&self, outcome: &Result<()>) {
        let mut away = self.away.write();
        match (outcome, &*away) {
            (Ok(()), Some(_)) => {
                tracing::info!("etcd, which has the cell's database, answers again");
            }
            (Err(error), None) => tracing::warn!(
                %error,
                "the cell's database cannot be asked; requests that need it are refused until it \
                 answers"
            ),
            _ => {}
        }
        *away = outcome.as_ref().err().cloned();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // The thread finds it with the next answer of the watch; it holds only a connection.
        self.shared.ends.store(true, Ordering::Release);
        *self.shared.wake.write() = None;
        self.heard.leave();
    }
}

/// A copy is a view, which etcd keeps until it compacts its history.
struct EtcdCopy {
    at: Revision,
    view: EtcdView,
}

impl CellCopy for EtcdCopy {
    fn at(&self) -> Revision {
        self.at
    }

    fn part(&mut self, cursor: &CopyCursor, max: usize) -> Result<CopyPart> {
        part(&self.view, cursor, max)
    }
}

impl CellDb for Etcd {
    fn group_named(&self, name: &Name) -> Result<Option<Revised<VolumeGroup>>> {
        self.read(|view| view.group_named(name))
    }

    fn group_of(&self, number: VolumeId) -> Result<Option<Revised<VolumeGroup>>> {
        self.read(|view| view.group_of(number))
    }

    fn groups(&self, after: VolumeId, max: usize) -> Result<Vec<Revised<VolumeGroup>>> {
        self.read(|view| view.groups(after, max))
    }

    fn put_group(&self, group: &VolumeGroup, expected: Revision) -> Result<Revision> {
        self.write(|operations, held| operations.put_group(held, group, expected))
    }

    fn remove_group(&self, read_write: VolumeId, expected: Revision) -> Result<Revision> {
        self.write(|operations, held| operations.remove_group(held, read_write, expected))
    }

    fn take_numbers(&self, above: VolumeId, count: u32) -> Result<VolumeId> {
        self.write(|operations, held| operations.take_numbers(held, above, count))
    }

    fn servers(&self) -> Result<Vec<Revised<ServerInfo>>> {
        self.read(|view| view.listed_servers())
    }

    fn put_server(&self, server: &ServerInfo, expected: Revision) -> Result<Revision> {
        let (revision, changes_keys) =
            self.write(|operations, held| operations.put_server(held, server, expected))?;
        if changes_keys {
            // The server itself makes this call, and fetches no changes meanwhile.
            self.wait_for(revision, Some(server.id));
        }
        Ok(revision)
    }

    fn remove_server(&self, id: ServerId, expected: Revision) -> Result<Revision> {
        let revision =
            self.write(|operations, held| operations.remove_server(held, id, expected))?;
        self.wait_for(revision, Some(id));
        Ok(revision)
    }

    fn revision(&self) -> Result<Revision> {
        Ok(Revision(self.read(|view| view.counters())?.revision))
    }

    fn changes(&self, since: Revision, max: usize) -> Result<Vec<(Revision, Changed)>> {
        self.read(|view| view.changes(since, max))
    }

    fn copy(&self) -> Result<Box<dyn CellCopy>> {
        let view = self.need_etcd()?.engine.view();
        let at = Revision((&view as &dyn View).counters()?.revision);
        Ok(Box::new(EtcdCopy { at, view }))
    }

    fn access(&self) -> &dyn Access {
        self
    }
}
