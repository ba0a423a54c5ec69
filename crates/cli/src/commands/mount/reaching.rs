//! How a mount reaches its server, the others of the cell, and other cells.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client::{Cell, ClientIdentity, Endpoint, Reply, Session, SessionConfig, TokenWallet};
use keep::{Keep, Keeper};
use local::cell::MountRecords;
use local::failure::Failure;
use serde_json::Value;
use types::{Answer, Call, Caller, ClientId};
use venus::{VenusConfig, Volumes};

use super::MountCommand;
use crate::cells::Cells;
use crate::dialing::dial_servers;
use crate::dynroot;
use crate::tokens::maintain_tokens;
use crate::{security, withdrawn};

/// How long it waits for the identity, which an ending process has until its last thread ends: less
/// than [`super::MOUNT_PATIENCE`].
const IDENTITY_PATIENCE: Duration = Duration::from_secs(20);
/// The same in a directory that another mount may use at the same time.
const SHARED_IDENTITY_PATIENCE: Duration = Duration::from_secs(2);

impl MountCommand {
    /// The session with the server, and the function that connects to others of its cell.
    fn session(
        &self,
        records: &MountRecords,
        at: &Path,
        server: &Endpoint,
        tokens: Arc<TokenWallet>,
        keep: Option<&Arc<Keep>>,
    ) -> Result<
        (Session, ClientId, impl Fn(Endpoint) -> SessionConfig + Send + Sync + use<>),
        Failure,
    > {
        let what = || format!("reaching the server at {server}");
        let cache = self.cache(records, at)?;
        let file = cache.join("identity");
        // The predecessor's pid file is gone before its last thread.
        let patience =
            if self.cache_dir.is_none() { IDENTITY_PATIENCE } else { SHARED_IDENTITY_PATIENCE };
        let loaded = match keep {
            Some(keep) => ClientIdentity::continue_within(&file, patience, keep),
            None => ClientIdentity::load_within(&file, patience),
        };
        let identity = loaded.map_err(|error| {
            Failure::new(what(), error).mend("give each mount its own --cache-dir")
        })?;
        let display = display(at);
        let (again, shown) = (identity.again(), display.clone());
        let client = identity.client;
        // A process that mounts at a server's own socket, and can read its keys, has that server's
        // rights at the others.
        let (dir, clear) = (self.place.path()?, self.place.is_clear());
        let mut options = match server {
            Endpoint::Unix(_) => security::as_server(&dir, &provisional_name(server), clear)?,
            Endpoint::Tcp(_) => security::options(&dir, &provisional_name(server), clear)?,
        };
        options.connection.tls.iter().for_each(|tls| withdrawn::load(&dir, tls));
        options.wallet = Some(tokens as _);
        options.keep = keep.cloned();
        let with = options.clone();
        let others = move |endpoint| SessionConfig {
            display: shown.clone(),
            options: with.clone(),
            ..SessionConfig::new(endpoint, again.again())
        };
        let config =
            SessionConfig { display, options, ..SessionConfig::new(server.clone(), identity) };
        let session = Session::connect(config).map_err(|error| {
            Failure::new(what(), error)
                .mend("check that it runs, with 'rialto status' or 'rialto doctor' on its machine")
        })?;
        Ok((session, client, others))
    }

    /// The mounted volumes, with connections to other cells.
    pub(super) fn all_volumes(
        &self,
        records: &MountRecords,
        at: &Path,
        keeper: Option<&Arc<Keeper>>,
    ) -> Result<Arc<Volumes>, Failure> {
        let cache = self.cache(records, at)?;
        let cells =
            Cells::new(self.cells.as_deref(), &self.place, &cache, self.cache_size, display(at))?;
        let cells = cells.with_name_servers(self.name_server.clone());
        let cells = cells.with_cell_serv_db(self.cellservdb.as_deref());
        let cells = cells.giving_up(self.soft.is_some());
        let volumes = match (&self.server, &self.cell) {
            (Some(server), _) => Some(self.volumes(records, at, server, keeper)?),
            (None, Some(cell)) => Some(cells.reach(cell).map_err(|error| {
                Failure::new(format!("reaching the cell {cell}"), error)
                    .mend("list its servers in cells.toml, or name one of them as HOST:PORT")
            })?),
            (None, None) => None,
        };
        let own = volumes.as_ref().and_then(cell_of);
        volumes.iter().for_each(|volumes| maintain_tokens(volumes, at));
        let place = at.to_owned();
        let reach = move |cells: &Cells, cell: &str| {
            let reached = cells.reach(cell)?;
            maintain_tokens(&reached, &place);
            Ok(reached)
        };
        match volumes {
            Some(volumes) if !self.dynroot => {
                volumes.has_neighbours(own, Box::new(move |cell| reach(&cells, cell)));
                Ok(volumes)
            }
            volumes => dynroot::volumes(own.zip(volumes), cells, reach),
        }
    }

    fn volumes(
        &self,
        records: &MountRecords,
        at: &Path,
        server: &Endpoint,
        keeper: Option<&Arc<Keeper>>,
    ) -> Result<Arc<Volumes>, Failure> {
        let cache = self.cache(records, at)?;
        let tokens = Arc::<TokenWallet>::default();
        let config = VenusConfig {
            cache_dir: Some(cache.join("data")),
            cache_bytes_max: self.cache_size,
            tokens: Some(Arc::clone(&tokens)),
            gives_up: self.soft.is_some(),
            keeper: keeper.cloned(),
            // Changes of names that are answered here are not recorded for a successor.
            delegations: keeper.is_none(),
            ..VenusConfig::default()
        };
        let keep = keeper.map(|keeper| keeper.records());
        let session = self.session(records, at, server, Arc::clone(&tokens), keep)?;
        let (session, client, others) = session;
        let tls = others(server.clone()).options.connection.tls;
        let cell = Cell::of_servers(Arc::new(session), dial_servers(others, tokens));
        withdrawn::watch(&cell, tls, self.place.path()?);
        keep.iter().for_each(|keep| cell.resume_others(keep, client));
        Ok(Volumes::new(cell, config))
    }
}

/// The server's name of its cell.
pub(super) fn cell_of(volumes: &Arc<Volumes>) -> Option<String> {
    let Ok(Reply { answer: Answer::Report(report), .. }) =
        volumes.cell().home().call(&Caller::ROOT, Call::ServerReport, None)
    else {
        return None;
    };
    serde_json::from_str::<Value>(&report).ok()?["server"]["cell"].as_str().map(str::to_owned)
}

/// The name of a server before it has reported its cell.
fn provisional_name(server: &Endpoint) -> String {
    match server {
        Endpoint::Tcp(address) => address.clone(),
        Endpoint::Unix(_) => "the cell on this machine".to_owned(),
    }
}

/// The client's name for servers.
fn display(at: &Path) -> String {
    format!("{}:{}", rustix::system::uname().nodename().to_string_lossy(), at.display())
}
