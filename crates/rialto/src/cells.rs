//! Other cells, which mount points lead to: where their servers are, as `cells.toml` says, and for cells that it does not name DNS (`srv.rs`). It is read when somebody comes by, so what is added there
//! needs no new mount.
//!
//! ```toml
//! ["example.org"]
//! servers = ["afs1.example.org:7620", "192.0.2.7:7620"]
//! ```

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::{Cell, Endpoint, Identity, Session, SessionConfig, dial_addresses};
use serde::Deserialize;
use types::Fault;
use venus::{Error, VenusConfig, Volumes};

use crate::ask::endpoint;
use crate::srv::CellsOfDns;

/// For all mounts of a machine.
const OF_MACHINE: &str = "/etc/rialto/cells.toml";
/// How long one server of a cell may take.
const DIAL_WITHIN: Duration = Duration::from_secs(3);

#[derive(Deserialize, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// As `HOST:PORT` or `unix:PATH`, the best first.
    servers: Vec<String>,
}

/// How a mount reaches other cells.
pub struct Cells {
    files: Vec<PathBuf>,
    /// For cells that no file names.
    dns: CellsOfDns,
    /// Where each has a directory for its cache and identity.
    cache: PathBuf,
    cache_bytes_max: u64,
    /// What servers are told of this client.
    display: String,
}

impl Cells {
    /// By this file, or else by those of the directory and of the machine.
    pub fn new(file: Option<&Path>, dir: &Path, cache: &Path, cache_bytes_max: u64, display: String) -> Self {
        let files = match file {
            Some(file) => vec![file.to_owned()],
            None => vec![dir.join("cells.toml"), PathBuf::from(OF_MACHINE)],
        };
        let dns = CellsOfDns::new(None);
        Cells { files, dns, cache: cache.to_owned(), cache_bytes_max, display }
    }

    /// Asks these name servers instead of the machine's.
    #[must_use]
    pub fn with_name_servers(self, servers: Vec<SocketAddr>) -> Self {
        if servers.is_empty() { self } else { Cells { dns: CellsOfDns::new(Some(servers)), ..self } }
    }

    /// The servers of a cell, as the first file says that knows it, or else DNS.
    pub fn servers(&self, cell: &str) -> Option<Vec<Endpoint>> {
        self.each_file().find_map(|known| known.get(cell).cloned()).or_else(|| self.dns.servers_of(cell))
    }

    /// The cells that the files name.
    pub fn listed(&self) -> Vec<String> {
        self.each_file().flat_map(HashMap::into_keys).collect()
    }

    fn each_file(&self) -> impl Iterator<Item = HashMap<String, Vec<Endpoint>>> {
        self.files.iter().filter_map(|file| {
            let text = std::fs::read_to_string(file).ok()?;
            parse(&text).inspect_err(|why| tracing::error!(file = %file.display(), why, "not used")).ok()
        })
    }

    /// Begins a session with a server of the cell.
    ///
    /// # Errors
    /// `NoVolume` if neither a file nor DNS knows it; why the last of its servers cannot be reached.
    pub fn reach(&self, cell: &str) -> Result<Arc<Volumes>, Error> {
        let servers = self.servers(cell).ok_or(Fault::NoVolume)?;
        // The name has a place of its own whatever it is.
        let dir = self.cache.join(format!("cell-{cell}"));
        let identity = std::fs::create_dir_all(dir.join("data")).map_err(|error| error.to_string());
        let identity = identity.and_then(|()| Identity::load(&dir.join("identity")).map_err(|error| error.to_string()));
        let identity = identity.map_err(Error::NoCache)?;
        let (again, display) = (identity.again(), self.display.clone());
        let config =
            move |endpoint| SessionConfig { display: display.clone(), ..SessionConfig::new(endpoint, again.again()) };
        let mut why = Error::Closed(format!("no server of {cell} is known"));
        for server in servers {
            let within = SessionConfig { attach_within: Some(DIAL_WITHIN), ..config(server.clone()) };
            match Session::connect(within) {
                Ok(session) => {
                    tracing::info!(cell, %server, "cell reached");
                    let venus = VenusConfig {
                        cache_dir: Some(dir.join("data")),
                        cache_bytes_max: self.cache_bytes_max,
                        ..VenusConfig::default()
                    };
                    // The identity is this process's as long as the session is.
                    let dial = move |endpoint| {
                        let _held = &identity;
                        config(endpoint)
                    };
                    return Ok(Volumes::new(Cell::of_servers(Arc::new(session), dial_addresses(dial)), venus));
                }
                Err(error) => why = error.into(),
            }
        }
        Err(why)
    }
}

fn parse(text: &str) -> Result<HashMap<String, Vec<Endpoint>>, String> {
    let entries: HashMap<String, Entry> = toml::from_str(text).map_err(|error| error.to_string())?;
    let each = entries.into_iter().map(|(cell, entry)| {
        let servers: Result<Vec<_>, _> = entry.servers.iter().map(|server| endpoint(server)).collect();
        Ok((cell, servers?))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_cells_with_their_servers() {
        let known = parse("[\"a.org\"]\nservers = [\"x:1\", \"unix:/y\"]\n[b]\nservers = []\n").unwrap();
        assert_eq!(known["a.org"], [Endpoint::Tcp("x:1".into()), Endpoint::Unix("/y".into())]);
        assert_eq!(known["b"], []);
        for bad in ["[a]\nserver = []", "[a]\nservers = [\"x\"]", "a = 1", "["] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_directorys_file_comes_before_the_machines_and_an_unknown_cell_is_no_volume() {
        let dir = tempfile::tempdir().unwrap();
        let cells = Cells::new(None, dir.path(), dir.path(), 0, String::new());
        assert_eq!(cells.files[1], Path::new(OF_MACHINE));
        assert_eq!(cells.servers("far"), None);
        assert_eq!(cells.reach("far").err(), Some(Error::Fault(Fault::NoVolume)));
        std::fs::write(dir.path().join("cells.toml"), "[\"far\"]\nservers = [\"unix:/absent\"]").unwrap();
        assert_eq!(cells.servers("far"), Some(vec![Endpoint::Unix("/absent".into())]));
        assert!(cells.reach("far").is_err());
    }
}
