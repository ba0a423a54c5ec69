//! This server in its cell: it opens the cell database, or connects to the server that has it, and
//! enters itself.
//!
//! The id of a server's first partition is the server's id, for ever: sessions are recorded there
//! too, so where that partition is, there is the server.
//!
//! Volumes are served whatever the state of the database. A thread retries until this server has
//! opened it, if it is here, and has entered itself; until then, calls that need it are refused
//! with `CellAway`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use celldb::{CellDb, CellError, Embedded, Etcd, Following, RemoteCellDb};
use client::Endpoint;
use types::{
    CellLevel, Fault, KeyPrint, LevelAct, Name, Revised, Revision, ServerId, ServerInfo,
    ServerProgram, Site, SiteKind, VolumeGroup,
};
use vice::{CellAccess, CellOpening, Vice};

use crate::principal_snapshot::Learnt;
use crate::{CellPlace, OwnKeys, ServerConfig};

/// The version of this program, which the server tells the cell.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The pause between two attempts: at first, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// This server's record in the cell database.
pub(crate) fn me(config: &ServerConfig, id: ServerId, endpoints: &[Endpoint]) -> ServerInfo {
    let machine = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let address = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp(address) => address.parse().ok(),
        Endpoint::Unix(_) => None,
    };
    let addresses = match &config.addresses[..] {
        [] => endpoints
            .iter()
            .filter_map(address)
            .flat_map(reached_at)
            .take(types::limits::ADDRESSES_MAX)
            .collect(),
        given => given.to_vec(),
    };
    ServerInfo {
        id,
        name: config.name.clone().unwrap_or_else(machine),
        addresses,
        keys: Vec::new(),
    }
}

/// The addresses at which others reach a server that listens at `listen`.
fn reached_at(listen: SocketAddr) -> Vec<SocketAddr> {
    if !listen.ip().is_unspecified() {
        return vec![listen];
    }
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => listen.is_ipv6() && !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let addresses = interfaces.iter().map(if_addrs::Interface::ip).filter(usable);
    addresses.map(|ip| SocketAddr::new(ip, listen.port())).collect()
}

/// The server joins its cell: it opens the database, or enters its key there, then enters its
/// addresses. It does so again when it shows other keys, or when the database refuses it.
///
/// A server must have the cell's rules before it enters its addresses, and must be listed to get
/// them. So its key is entered first, in a record without addresses, by which no client finds it.
pub(crate) struct Joining {
    /// State that is stored for a start without the database.
    pub learnt: Option<Learnt>,
    place: CellPlace,
    me: ServerInfo,
    /// The highest level of a cell that its program knows.
    knows: u32,
    enters: Vec<Name>,
    /// The file of `learnt`, until the service is there.
    learnt_file: Option<PathBuf>,
    /// The order to open the database, until it is open here.
    opening: Option<CellOpening>,
    db: Option<Arc<dyn CellDb>>,
    /// The database, if another server has it.
    elsewhere: Option<Arc<RemoteCellDb>>,
    /// The database, if etcd has it.
    etcd: Option<Arc<Etcd>>,
    /// The changes and rules that this server received, if another place has the database.
    following: Option<Arc<Following>>,
    keys: Option<Arc<OwnKeys>>,
    /// The keys that it had at the last attempt.
    tried: Vec<KeyPrint>,
    pause: Duration,
    /// When the next attempt is made; `None`: nothing is left to do.
    due: Option<Instant>,
}

/// How far an attempt came.
enum Step {
    /// The key is entered: the next connection to the database is one of a server.
    Enrolled,
    Entered,
    /// Entered; the server that has the database is older than levels, and is told later.
    Untold,
}

impl Joining {
    /// Returns the service's access to the database too. The connection to another server's
    /// database, or to etcd, exists at once; it opens with the first call.
    ///
    /// # Errors
    /// `Misuse` if etcd cannot be used as configured.
    pub fn new(
        place: CellPlace,
        me: ServerInfo,
        config: &ServerConfig,
    ) -> Result<(Self, CellAccess), CellError> {
        let mut following = Following::default();
        following.away_at_most(config.cell_away_max);
        let (mut opening, mut elsewhere, mut etcd, mut followed) = (None, None, None, None);
        if !matches!(place, CellPlace::Here(_)) {
            config.rules.iter().for_each(|file| following.keep_rules_in(file.clone()));
        }
        let following = Arc::new(following);
        let (access, db): (_, Option<Arc<dyn CellDb>>) = match &place {
            CellPlace::Here(_) => {
                let (access, order) = CellAccess::opening();
                opening = Some(order);
                (access, None)
            }
            CellPlace::At(endpoint) => {
                let cell = RemoteCellDb::at(endpoint.clone(), config.options.clone())
                    .knowing(config.cell_level_known);
                let cell = Arc::new(cell.following(Arc::clone(&following)));
                (elsewhere, followed) = (Some(Arc::clone(&cell)), Some(following));
                (CellAccess::Database(Arc::clone(&cell) as Arc<dyn CellDb>), Some(cell as _))
            }
            CellPlace::Etcd(reached) => {
                let cell = config.cell_name.as_deref().unwrap_or_default();
                let db = Arc::new(Etcd::new(reached, cell, Arc::clone(&following))?);
                (etcd, followed) = (Some(Arc::clone(&db)), Some(following));
                (CellAccess::Database(Arc::clone(&db) as Arc<dyn CellDb>), Some(db as _))
            }
        };
        let joining = Joining {
            learnt: None,
            place,
            me,
            knows: config.cell_level_known,
            enters: config.enters.clone(),
            // In the directory of the rules, which are stored for the same reason.
            learnt_file: config.rules.as_ref().map(|rules| rules.with_file_name("learnt")),
            opening,
            db,
            elsewhere,
            etcd,
            following: followed,
            keys: config.own_keys.clone(),
            tried: Vec::new(),
            pause: PAUSE,
            due: Some(Instant::now()),
        };
        Ok((joining, access))
    }

    /// The database, if etcd has it.
    pub fn etcd(&self) -> Option<Arc<Etcd>> {
        self.etcd.clone()
    }

    /// The service is there. Makes the first attempt if it calls no other server. Returns the
    /// remaining work.
    pub fn begin(mut self, vice: &Vice) -> Option<Self> {
        if let Some(cell) = &self.following {
            let file = self.learnt_file.take();
            self.learnt = file.map(|file| Learnt::of(file, vice, Arc::clone(cell)));
        }
        if self.is_here() {
            self.go_on(vice);
        }
        Some(self).filter(|joining| !joining.is_over())
    }

    /// Does an attempt call no other server, because the database is here?
    fn is_here(&self) -> bool {
        matches!(self.place, CellPlace::Here(_))
    }

    /// Is nothing left to do, now and later?
    pub fn is_over(&self) -> bool {
        self.due.is_none() && self.keys.is_none()
    }

    /// Makes an attempt if one is due. One thread calls it several times a second. Returns whether
    /// the next one is due at once.
    pub fn go_on(&mut self, vice: &Vice) -> bool {
        if let Some(keys) = &self.keys {
            let is_refused = self.elsewhere.as_ref().is_some_and(|cell| cell.is_refused());
            if self.due.is_none() && is_refused {
                keys.forget();
                self.due = Some(Instant::now() + PAUSE);
            } else if keys.wanted() != self.tried || self.due.is_none() && !keys.is_entered() {
                self.due = Some(Instant::now());
            }
        }
        if self.due.is_some_and(|due| due <= Instant::now()) {
            let pause = self.attempt(vice);
            self.due = pause.map(|pause| Instant::now() + pause);
        }
        self.due.is_some_and(|due| due <= Instant::now())
    }

    /// Does the remaining steps. Returns the pause before the next attempt, or `None` if all is
    /// done.
    fn attempt(&mut self, vice: &Vice) -> Option<Duration> {
        let wanted = self.keys.as_ref().map(|keys| keys.wanted()).unwrap_or_default();
        if !self.tried.is_empty() && self.tried.first() != wanted.first() {
            self.connect_anew();
        }
        self.tried = wanted;
        let error = match self.try_all(vice) {
            Ok(Step::Entered) => {
                self.pause = PAUSE;
                return None;
            }
            Ok(Step::Untold) => return Some(PAUSE_MAX),
            Ok(Step::Enrolled) => {
                self.connect_anew();
                return Some(Duration::ZERO);
            }
            Err(error) => error,
        };
        let what = if self.db.is_some() {
            "entering this server in its cell"
        } else {
            "opening the cell's database"
        };
        match self.keys.as_ref().filter(|_| Fault::from(error.clone()) == Fault::NotPermitted) {
            Some(keys) => {
                keys.refused();
                // The connection may be one that shows the previous key.
                self.connect_anew();
                tracing::error!(
                    %error,
                    key = ?self.tried.first(),
                    "{what} was refused: this server's key was withdrawn, or its record lists \
                     other keys. No server accepts it as one of the cell. If it shall be one, \
                     withdraw the keys of its record \
                     ('rialto keys withdraw SERVER'), then make a new one here ('rialto keys \
                     rotate certificate')"
                );
            }
            None => tracing::warn!(%error, "{what} failed; trying again"),
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        Some(pause)
    }

    fn connect_anew(&self) {
        self.elsewhere.iter().for_each(|cell| cell.connect_anew());
    }

    fn try_all(&mut self, vice: &Vice) -> Result<Step, CellError> {
        if let (None, CellPlace::Here(path)) = (&self.db, &self.place) {
            let db: Arc<dyn CellDb> = Arc::new(Embedded::open(path)?);
            if let Some(opening) = self.opening.take() {
                opening.opened(Arc::clone(&db));
            }
            self.db = Some(db);
        }
        let Some(db) = &self.db else { return Ok(Step::Entered) };
        if !self.is_here() {
            match enrol(&**db, &self.me, self.tried.first()) {
                Ok(true) => return Ok(Step::Enrolled),
                Ok(false) => {}
                Err(error) => {
                    if Fault::from(error.clone()) == Fault::NotPermitted {
                        self.keys.iter().for_each(|keys| keys.expelled());
                    }
                    return Err(error);
                }
            }
            if db.access().rules_at() == Revision(0) {
                // No client may find a server that does not have the cell's fences yet.
                return Err(CellError::Away(Fault::CellAway));
            }
        }
        // In a cell of a level that it does not know a server enters no more than its key (VE-2).
        let level = levels(&**db, &LevelAct::Ask)?.map(|found| found.level);
        vice.partitions().learn_level(level.unwrap_or(1));
        enter(&**db, &self.me, self.keys.as_ref().map(|_| &self.tried[..]))?;
        if let Some(keys) = &self.keys {
            keys.entered(self.tried.clone());
        }
        self.enters.iter().try_for_each(|name| enter_volume(&**db, vice, &self.me, name))?;
        let (server, version) = (self.me.id, VERSION.to_owned());
        let program = ServerProgram { server, knows: self.knows, version };
        let told = levels(&**db, &LevelAct::Tell(program))?;
        Ok(if told.is_some() { Step::Entered } else { Step::Untold })
    }
}

/// Asks about the cell's level, or tells the program; `None`: the server that has the database is
/// older than levels.
fn levels(db: &dyn CellDb, act: &LevelAct) -> Result<Option<CellLevel>, CellError> {
    match db.access().level(act) {
        Ok(found) => Ok(Some(found)),
        Err(CellError::Away(Fault::Unsupported)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Enters this server's present key where the database does not list it, and changes nothing else
/// (`guard::may_enrol`). Returns whether it did.
fn enrol(db: &dyn CellDb, me: &ServerInfo, present: Option<&KeyPrint>) -> Result<bool, CellError> {
    let Some(present) = present else { return Ok(false) };
    let known = db.servers()?.into_iter().find(|seen| seen.record.id == me.id);
    if known.as_ref().is_some_and(|seen| seen.record.keys.contains(present)) {
        return Ok(false);
    }
    let keys = vec![*present];
    let (record, expected) = match known {
        Some(Revised { record, revision }) => (ServerInfo { keys, ..record }, revision),
        None => (ServerInfo { keys, addresses: Vec::new(), ..me.clone() }, Revision(0)),
    };
    db.put_server(&record, expected)?;
    tracing::info!(key = %present, "this server's key is entered in the cell's database");
    Ok(true)
}

/// Enters this server's addresses and keys, if the cell has others. A server that shows no keys
/// leaves the list as it is: it may show them again.
fn enter(db: &dyn CellDb, me: &ServerInfo, keys: Option<&[KeyPrint]>) -> Result<(), CellError> {
    let known = db.servers()?.into_iter().find(|seen| seen.record.id == me.id);
    let listed = known.as_ref().map(|seen| seen.record.keys.clone()).unwrap_or_default();
    let me = ServerInfo { keys: keys.map_or(listed, <[_]>::to_vec), ..me.clone() };
    match known {
        Some(seen) if seen.record == me => Ok(()),
        Some(seen) => db.put_server(&me, seen.revision).map(drop),
        None => db.put_server(&me, Revision(0)).map(drop),
    }
}

/// Enters a volume that no other server can have entered.
fn enter_volume(
    db: &dyn CellDb,
    vice: &Vice,
    me: &ServerInfo,
    name: &Name,
) -> Result<(), CellError> {
    if db.group_named(name)?.is_some() {
        return Ok(());
    }
    let Some((id, partition)) = vice.find_volume(name).map_err(CellError::Away)? else {
        return Ok(());
    };
    let site = Site { server: me.id, partition, kind: SiteKind::ReadWrite, epoch: 0 };
    db.put_group(&VolumeGroup::new(name.clone(), id, site), Revision(0)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_no_place_to_be_reached_at() {
        let at = |text: &str| reached_at(text.parse().unwrap());
        assert_eq!(at("127.0.0.1:7620"), ["127.0.0.1:7620".parse().unwrap()]);
        for listen in ["0.0.0.0:7620", "[::]:7620"] {
            let usable =
                |address: &SocketAddr| !address.ip().is_unspecified() && address.port() == 7620;
            assert!(at(listen).iter().all(usable), "{:?}", at(listen));
        }
    }
}
