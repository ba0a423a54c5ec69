//! This server in its cell: it opens the database, or finds the way to it, and enters itself.
//!
//! A server is known by its first partition's id, for ever: sessions lie there too, so where that partition is, there is the server.
//!
//! Volumes are served whatever becomes of the database. A thread tries again until this server has opened it, if it is here, and has entered itself;
//! until it is open, what needs it is refused with `CellAway`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use celldb::{CellDb, CellError, Embedded};
use client::Endpoint;
use types::{Fault, Name, Revision, ServerId, ServerInfo, Site, SiteKind, VolumeGroup};
use vice::Vice;

use crate::learnt::Learnt;
use crate::{CellPlace, RemoteCell, ServerConfig};

/// Between one attempt and the next: at first, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What others may know of this server.
pub(crate) fn me(config: &ServerConfig, id: ServerId, endpoints: &[Endpoint]) -> ServerInfo {
    let machine = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let address = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp(address) => address.parse().ok(),
        Endpoint::Unix(_) => None,
    };
    let addresses = match &config.addresses[..] {
        [] => endpoints.iter().filter_map(address).flat_map(reached_at).take(types::limits::ADDRESSES_MAX).collect(),
        given => given.to_vec(),
    };
    ServerInfo { id, name: config.name.clone().unwrap_or_else(machine), addresses }
}

/// Where others reach who listens at `listen`.
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

/// What the server does about its cell, until it is done.
pub(crate) struct Joining {
    /// What is kept for a start without the database.
    pub learnt: Option<Learnt>,
    place: CellPlace,
    me: ServerInfo,
    enters: Vec<Name>,
    db: Option<Arc<dyn CellDb>>,
    pause: Duration,
}

impl Joining {
    /// The way to another server's database is there at once, since nobody goes it before somebody asks.
    pub fn new(place: CellPlace, me: ServerInfo, config: &ServerConfig, vice: &Vice) -> Self {
        vice.expects_cell();
        let mut learnt = None;
        let db = match &place {
            CellPlace::Here(_) => None,
            CellPlace::At(endpoint) => {
                let cell = RemoteCell::at(endpoint.clone(), config.options.clone()).away_at_most(config.cell_away_max);
                let cell = match &config.rules {
                    Some(file) => cell.keeping_rules_in(file.clone()),
                    None => cell,
                };
                let cell = Arc::new(cell);
                // Beside the rules, which are there for the same reason.
                let file = config.rules.as_ref().map(|rules| rules.with_file_name("learnt"));
                learnt = file.map(|file| Learnt::of(file, vice, Arc::clone(&cell)));
                Some(cell as Arc<dyn CellDb>)
            }
        };
        if let Some(db) = &db {
            vice.has_cell(Arc::clone(db));
        }
        Joining { learnt, place, me, enters: config.enters.clone(), db, pause: PAUSE }
    }

    /// Whether an attempt asks nobody: the database is here.
    pub fn is_here(&self) -> bool {
        matches!(self.place, CellPlace::Here(_))
    }

    /// Does what is left; how long to wait before the next attempt, or `None` if there is nothing left.
    pub fn attempt(&mut self, vice: &Vice) -> Option<Duration> {
        let error = match self.try_all(vice) {
            Ok(()) => return None,
            Err(error) => error,
        };
        let what = if self.db.is_some() { "entering this server in its cell" } else { "opening the cell's database" };
        tracing::warn!(%error, "{what} failed; trying again");
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        Some(pause)
    }

    fn try_all(&mut self, vice: &Vice) -> Result<(), CellError> {
        if let (None, CellPlace::Here(path)) = (&self.db, &self.place) {
            let db: Arc<dyn CellDb> = Arc::new(Embedded::open(path)?);
            vice.has_cell(Arc::clone(&db));
            self.db = Some(db);
        }
        let Some(db) = &self.db else { return Ok(()) };
        if !self.is_here() && db.access().rules_at() == Revision(0) {
            // Nobody is to find a server that never heard whom the cell keeps out.
            return Err(CellError::Away(Fault::CellAway));
        }
        enter(&**db, &self.me)?;
        self.enters.iter().try_for_each(|name| enter_volume(&**db, vice, &self.me, name))
    }
}

/// Says where this server is, if the cell does not know.
fn enter(db: &dyn CellDb, me: &ServerInfo) -> Result<(), CellError> {
    let known = db.servers()?.into_iter().find(|seen| seen.record.id == me.id);
    match known {
        Some(seen) if seen.record == *me => Ok(()),
        Some(seen) => db.put_server(me, seen.revision).map(drop),
        None => db.put_server(me, Revision(0)).map(drop),
    }
}

/// Says where a volume is that nobody else can have entered.
fn enter_volume(db: &dyn CellDb, vice: &Vice, me: &ServerInfo, name: &Name) -> Result<(), CellError> {
    if db.group_named(name)?.is_some() {
        return Ok(());
    }
    let Some((id, partition)) = vice.find_volume(name).map_err(CellError::Away)? else { return Ok(()) };
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
            let usable = |address: &SocketAddr| !address.ip().is_unspecified() && address.port() == 7620;
            assert!(at(listen).iter().all(usable), "{:?}", at(listen));
        }
    }
}
