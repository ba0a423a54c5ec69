//! Other cells, which mount points lead to: the servers that `cells.toml` lists, or DNS for
//! unlisted cells (crate `resolve`). The file is read at each lookup, so an added cell needs no new
//! mount.
//!
//! ```toml
//! ["example.org"]
//! servers = ["afs1.example.org:7620", "192.0.2.7:7620"]
//! fingerprint = "sha256:..."   # or ca = "FILE"; neither: as it is seen first
//! ```
//!
//! A cell of AFS, whose servers are not Rialto's, is in a `CellServDB`, as OpenAFS has it. A cell
//! that `cells.toml` lists is Rialto's, whatever the `CellServDB` says.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use afs3::cellserv::{CellHosts, parse_cell_serv_db};
use afsclient::AfsRemote;
use client::{Cell, ClientIdentity, Endpoint, Session, SessionConfig, TokenWallet};
use fabric::tls::Trust;
use local::ask::endpoint;
use local::cell::Where;
use local::failure::Failure;
use resolve::CellsOfDns;
use serde::Deserialize;
use types::Fault;
use venus::{Error, VenusConfig, Volumes};

use crate::dialing::dial_servers;
use crate::{security, withdrawn};

/// The list for all mounts of a machine.
pub const OF_MACHINE: &str = "/etc/rialto/cells.toml";
/// The list of cells of AFS for all mounts of a machine, in OpenAFS's form.
const AFS_OF_MACHINE: &str = "/etc/rialto/CellServDB";
/// How long the predecessor of this process may take to end.
const IDENTITY_PATIENCE: Duration = Duration::from_secs(20);
/// How long connecting to one server of a cell may take.
const DIAL_WITHIN: Duration = Duration::from_secs(3);

#[derive(Deserialize, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// As `HOST:PORT` or `unix:PATH`, the best first.
    servers: Vec<String>,
    /// The certificates of its authority, in PEM.
    ca: Option<PathBuf>,
    /// Instead: the fingerprint of its authority's certificate.
    fingerprint: Option<String>,
}

/// Servers and authority of a cell.
#[derive(Clone, Debug)]
pub struct KnownCell {
    /// The best first.
    pub servers: Vec<Endpoint>,
    /// The authority that the list states; `None`: as it is seen first.
    pub trust: Option<Trust>,
}

/// The list of cells: files, and DNS for those that no file lists.
pub struct CellList {
    files: Vec<PathBuf>,
    afs: PathBuf,
    dns: CellsOfDns,
    afs_dns: CellsOfDns,
}

/// Where a cell is.
enum FoundCell {
    Rialto(KnownCell),
    /// The database servers of a cell of AFS.
    Afs(Vec<Ipv4Addr>),
}

impl CellList {
    /// This file, or else those of the directory and of the machine.
    pub fn new(file: Option<&Path>, dir: Option<&Path>) -> CellList {
        let files = match file {
            Some(file) => vec![file.to_owned()],
            None => dir
                .map(|dir| dir.join("cells.toml"))
                .into_iter()
                .chain([PathBuf::from(OF_MACHINE)])
                .collect(),
        };
        let (dns, afs_dns) = (CellsOfDns::new(None), CellsOfDns::of_afs(None));
        CellList { files, afs: PathBuf::from(AFS_OF_MACHINE), dns, afs_dns }
    }

    /// The cell, as the first that knows it has it: `cells.toml`, the `CellServDB`, DNS, and there
    /// as Rialto's sooner than as one of AFS.
    fn locate(&self, cell: &str) -> Option<FoundCell> {
        let of_afs = || self.find_afs(cell).map(FoundCell::Afs);
        let by_dns = || self.find(cell).map(FoundCell::Rialto);
        let afs_by_dns = || self.afs_in_dns(cell).map(FoundCell::Afs);
        let ours = self.find_in_files(cell).map(FoundCell::Rialto);
        ours.or_else(of_afs).or_else(by_dns).or_else(afs_by_dns)
    }

    /// The database servers of a cell of AFS that DNS has. Those with an own port are left out: all
    /// of a cell's servers are called at AFS's ports.
    fn afs_in_dns(&self, cell: &str) -> Option<Vec<Ipv4Addr>> {
        let servers =
            self.afs_dns.addresses_of(cell)?.into_iter().filter_map(|address| match address {
                SocketAddr::V4(v4) if v4.port() == afs3::locations::PORT => Some(*v4.ip()),
                SocketAddr::V4(_) | SocketAddr::V6(_) => None,
            });
        let servers: Vec<Ipv4Addr> = servers.collect();
        (!servers.is_empty()).then_some(servers)
    }

    /// The database servers of a cell of AFS.
    fn find_afs(&self, cell: &str) -> Option<Vec<Ipv4Addr>> {
        let known = self.afs_cells().into_iter().find(|known| known.name == cell)?;
        let servers: Vec<_> = known.hosts.iter().map(|host| host.address).collect();
        (!servers.is_empty()).then_some(servers)
    }

    fn afs_cells(&self) -> Vec<CellHosts> {
        let Ok(text) = std::fs::read_to_string(&self.afs) else { return Vec::new() };
        parse_cell_serv_db(&text)
            .inspect_err(|why| tracing::error!(file = %self.afs.display(), %why, "not used"))
            .unwrap_or_default()
    }

    /// A cell, from the first file that lists it, or else from DNS.
    pub fn find(&self, cell: &str) -> Option<KnownCell> {
        let by_dns = || self.dns.servers_of(cell).map(|servers| KnownCell { servers, trust: None });
        self.find_in_files(cell).or_else(by_dns)
    }

    /// A cell, from the first file that lists it.
    pub fn find_in_files(&self, cell: &str) -> Option<KnownCell> {
        self.each_file().find_map(|mut known| known.remove(cell))
    }

    /// The cells that the files list, with their servers.
    pub fn listed(&self) -> BTreeMap<String, Vec<String>> {
        let mut all = BTreeMap::new();
        for (cell, known) in self.each_file().flatten() {
            let shown = |server: &Endpoint| match server {
                Endpoint::Tcp(address) => address.clone(),
                Endpoint::Unix(_) => server.to_string(),
            };
            let servers = || known.servers.iter().map(shown).collect();
            all.entry(cell).or_insert_with(servers);
        }
        all
    }

    /// The files, for people.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    fn each_file(&self) -> impl Iterator<Item = HashMap<String, KnownCell>> {
        self.files.iter().filter_map(|file| {
            let text = std::fs::read_to_string(file).ok()?;
            parse(&text)
                .inspect_err(|why| tracing::error!(file = %file.display(), why, "not used"))
                .ok()
        })
    }
}

/// Connects a mount to other cells.
pub struct Cells {
    list: CellList,
    dir: PathBuf,
    clear: bool,
    /// Parent of each cell's directory for cache and identity.
    cache: PathBuf,
    cache_bytes_max: u64,
    /// The client's name for servers.
    display: String,
    /// As in [`VenusConfig`].
    gives_up: bool,
}

impl Cells {
    /// Reads this file, or else those of the directory and of the machine.
    ///
    /// # Errors
    /// If a name server's list or the client's TLS cannot be used.
    pub fn new(
        file: Option<&Path>,
        place: &Where,
        cache: &Path,
        cache_bytes_max: u64,
        display: String,
    ) -> Result<Self, Failure> {
        let (dir, clear) = (place.path()?, place.is_clear());
        let list = CellList::new(file, Some(&dir));
        let (cache, gives_up) = (cache.to_owned(), false);
        Ok(Cells { list, dir, clear, cache, cache_bytes_max, display, gives_up })
    }

    /// Programs' requests end before a server that is away has answered.
    #[must_use]
    pub fn giving_up(self, gives_up: bool) -> Self {
        Cells { gives_up, ..self }
    }

    /// Asks these name servers instead of the machine's.
    #[must_use]
    pub fn with_name_servers(self, servers: Vec<SocketAddr>) -> Self {
        if servers.is_empty() {
            self
        } else {
            let (dns, afs_dns) =
                (CellsOfDns::new(Some(servers.clone())), CellsOfDns::of_afs(Some(servers)));
            let list = CellList { dns, afs_dns, ..self.list };
            Cells { list, ..self }
        }
    }

    /// Reads cells of AFS from this file instead of the machine's.
    #[must_use]
    pub fn with_cell_serv_db(mut self, file: Option<&Path>) -> Self {
        if let Some(file) = file {
            file.clone_into(&mut self.list.afs);
        }
        self
    }

    /// Whether the files or DNS have the cell.
    pub fn knows(&self, cell: &str) -> bool {
        self.list.locate(cell).is_some()
    }

    /// The cells that the files list.
    pub fn listed(&self) -> Vec<String> {
        let of_afs = self.list.afs_cells().into_iter().filter(|cell| !cell.hosts.is_empty());
        let ours = self.list.each_file().flat_map(HashMap::into_keys);
        ours.chain(of_afs.map(|cell| cell.name)).collect()
    }

    /// A session with a cell of AFS.
    fn reach_afs(&self, cell: &str, servers: &[Ipv4Addr]) -> Result<Arc<Volumes>, Error> {
        let dir = self.cache.join(format!("cell-{cell}")).join("data");
        std::fs::create_dir_all(&dir).map_err(|error| Error::NoCache(error.to_string()))?;
        let tokens = Arc::new(TokenWallet::of_afs());
        let remote = AfsRemote::open(cell, servers, Arc::clone(&tokens))
            .map_err(|error| Error::Closed(error.to_string()))?;
        let callbacks = remote.callback_address().ok();
        tracing::info!(cell, ?servers, ?callbacks, "cell of AFS");
        let venus = VenusConfig {
            cache_dir: Some(dir),
            cache_bytes_max: self.cache_bytes_max,
            gives_up: self.gives_up,
            tokens: Some(tokens),
            // Its servers delegate nothing, and have no checksums of bodies.
            delegations: false,
            passthrough: false,
            ..VenusConfig::default()
        };
        Ok(Volumes::of(remote, venus))
    }

    /// Begins a session with a server of the cell.
    ///
    /// # Errors
    /// `NoVolume` if neither a file nor DNS has the cell; the error of the last of its servers.
    pub fn reach(&self, cell: &str) -> Result<Arc<Volumes>, Error> {
        let KnownCell { servers, trust } = match self.list.locate(cell).ok_or(Fault::NoVolume)? {
            FoundCell::Rialto(known) => known,
            FoundCell::Afs(servers) => return self.reach_afs(cell, &servers),
        };
        let options = match trust.filter(|_| !self.clear) {
            Some(trust) => security::with(Some(trust)),
            None => security::options(&self.dir, cell, self.clear),
        };
        let mut options = options.map_err(|failure| Error::Closed(failure.to_string()))?;
        let tokens: Arc<TokenWallet> = Arc::default();
        options.wallet = Some(Arc::clone(&tokens) as _);
        let tls = options.connection.tls.clone();
        tls.iter().for_each(|tls| withdrawn::load(&self.dir, tls));
        // The directory's name includes the cell's, whatever that is.
        let dir = self.cache.join(format!("cell-{cell}"));
        let identity = std::fs::create_dir_all(dir.join("data")).map_err(|error| error.to_string());
        let identity = identity.and_then(|()| {
            // The process that served this place before may be ending.
            ClientIdentity::load_within(&dir.join("identity"), IDENTITY_PATIENCE)
                .map_err(|error| error.to_string())
        });
        let identity = identity.map_err(Error::NoCache)?;
        let (again, display) = (identity.again(), self.display.clone());
        let config = move |endpoint| SessionConfig {
            display: display.clone(),
            options: options.clone(),
            ..SessionConfig::new(endpoint, again.again())
        };
        let mut why = Error::Closed(format!("no server of {cell} is known"));
        for server in servers {
            let within =
                SessionConfig { attach_within: Some(DIAL_WITHIN), ..config(server.clone()) };
            match Session::connect(within) {
                Ok(session) => {
                    tracing::info!(cell, %server, "cell reached");
                    let venus = VenusConfig {
                        cache_dir: Some(dir.join("data")),
                        cache_bytes_max: self.cache_bytes_max,
                        gives_up: self.gives_up,
                        tokens: Some(Arc::clone(&tokens)),
                        ..VenusConfig::default()
                    };
                    // The identity belongs to this process for as long as the session exists.
                    let dial = move |endpoint| {
                        let _held = &identity;
                        config(endpoint)
                    };
                    let dial = dial_servers(dial, tokens);
                    let reached = Cell::of_servers(Arc::new(session), dial);
                    withdrawn::watch(&reached, tls, self.dir.clone());
                    return Ok(Volumes::new(reached, venus));
                }
                Err(error) => why = error.into(),
            }
        }
        Err(why)
    }
}

/// The text of a file with this cell in it, in the place of an entry that it has. The rest stays
/// as it is, and so does the authority of such an entry, unless another one is given.
///
/// # Errors
/// If the file or the entry is not valid.
pub fn with_cell(
    text: &str,
    cell: &str,
    servers: &[String],
    fingerprint: Option<&str>,
) -> Result<String, String> {
    let is_letter = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    if cell.is_empty() || cell.starts_with('.') || !cell.chars().all(is_letter) {
        return Err(format!("{cell:?} cannot be a cell's name"));
    }
    if servers
        .iter()
        .any(|server| server.contains(['"', '\\']) || server.contains(char::is_control))
    {
        return Err("a server has no such name".to_owned());
    }
    parse(text)?;
    let heads = [format!("[\"{cell}\"]"), format!("['{cell}']"), format!("[{cell}]")];
    let (mut kept, mut authority) = (String::new(), None);
    let mut is_entry = false;
    for line in text.lines() {
        let bare = line.trim();
        if bare.starts_with('[') {
            is_entry = heads.iter().any(|head| {
                bare.strip_prefix(head.as_str())
                    .is_some_and(|rest| rest.trim().is_empty() || rest.trim().starts_with('#'))
            });
        }
        let is_authority = bare.starts_with("fingerprint") || bare.starts_with("ca ");
        match (is_entry, is_authority || bare.starts_with("ca=")) {
            (false, _) => kept += &format!("{line}\n"),
            (true, true) => authority = Some(line.to_owned()),
            (true, false) => {}
        }
    }
    let given = fingerprint.map(|print| format!("fingerprint = \"{print}\""));
    let quoted: Vec<String> = servers.iter().map(|server| format!("\"{server}\"")).collect();
    kept += &format!("[\"{cell}\"]\nservers = [{}]\n", quoted.join(", "));
    if let Some(authority) = given.or(authority) {
        kept += &format!("{authority}\n");
    }
    parse(&kept)?;
    Ok(kept)
}

fn parse(text: &str) -> Result<HashMap<String, KnownCell>, String> {
    let entries: HashMap<String, Entry> =
        toml::from_str(text).map_err(|error| error.to_string())?;
    let each = entries.into_iter().map(|(cell, entry)| {
        let servers: Result<Vec<_>, _> =
            entry.servers.iter().map(|server| endpoint(server)).collect();
        let trust = security::stated(entry.ca.as_deref(), entry.fingerprint.as_deref())?;
        Ok((cell, KnownCell { servers: servers?, trust }))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_cells_with_their_servers() {
        let known =
            parse("[\"a.org\"]\nservers = [\"x:1\", \"unix:/y\"]\n[b]\nservers = []\n").unwrap();
        assert_eq!(
            known["a.org"].servers,
            [Endpoint::Tcp("x:1".into()), Endpoint::Unix("/y".into())]
        );
        assert_eq!(known["b"].servers, []);
        for bad in [
            "[a]\nservers = []\nfingerprint = \"md5\"",
            "[a]\nserver = []",
            "[a]\nservers = [\"x\"]",
            "a = 1",
            "[",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cell_is_entered_and_the_rest_of_the_file_stays() {
        let servers =
            |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let print = "sha256:".to_owned() + &"0".repeat(64);
        let first =
            with_cell("# ours\n", "a.org", &servers(&["x:1", "y:2"]), Some(&print)).unwrap();
        assert_eq!(
            first,
            format!(
                "# ours\n[\"a.org\"]\nservers = [\"x:1\", \"y:2\"]\nfingerprint = \"{print}\"\n"
            )
        );
        let two = with_cell(&first, "b", &servers(&["unix:/z"]), None).unwrap();
        let other = with_cell(&two, "a.org", &servers(&["z:3"]), None).unwrap();
        let known = parse(&other).unwrap();
        assert_eq!(known["a.org"].servers, [Endpoint::Tcp("z:3".into())]);
        assert!(known["a.org"].trust.is_some(), "the authority is not forgotten");
        assert_eq!(known["b"].servers, [Endpoint::Unix("/z".into())]);
        assert!(other.starts_with("# ours\n"), "{other}");
        for (text, cell, server) in [
            ("", "", "x:1"),
            ("", "a\"]\n[b", "x:1"),
            ("", "..", "x:1"),
            ("", "a", "x"),
            ("", "a", "x:1\"]\nfingerprint = \"y"),
            ("[", "a", "x:1"),
        ] {
            assert!(with_cell(text, cell, &servers(&[server]), None).is_err(), "{cell} {server}");
        }
        assert!(with_cell("", "a", &servers(&["x:1"]), Some("md5")).is_err());
    }

    #[test]
    fn a_cell_that_is_rialtos_is_not_taken_for_one_of_afs() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (dir.path().join("cells.toml"), dir.path().join("CellServDB"));
        std::fs::write(&ours, "[\"a.org\"]\nservers = [\"x:1\"]\n").unwrap();
        let line = "192.0.2.1 #host\n";
        std::fs::write(&theirs, format!(">a.org #\n{line}>b.org #\n{line}>c.org #\n")).unwrap();
        let place = Where { dir: Some(dir.path().to_owned()), clear: false };
        let cells = Cells::new(Some(&ours), &place, dir.path(), 0, String::new()).unwrap();
        let cells = cells.with_cell_serv_db(Some(&theirs));
        assert!(matches!(cells.list.locate("a.org"), Some(FoundCell::Rialto(_))));
        let servers = [Ipv4Addr::new(192, 0, 2, 1)];
        assert!(
            matches!(cells.list.locate("b.org"), Some(FoundCell::Afs(found)) if found == servers)
        );
        assert_eq!(cells.list.find_afs("c.org"), None, "without servers");
        let mut listed = cells.listed();
        listed.sort();
        assert_eq!(listed, ["a.org", "a.org", "b.org"]);
        std::fs::write(&theirs, "nothing").unwrap();
        assert_eq!(cells.listed(), ["a.org"], "a file with errors is not used");
    }

    #[test]
    fn the_directorys_file_precedes_the_machines() {
        let dir = tempfile::tempdir().unwrap();
        let cells = Cells::new(
            None,
            &Where { dir: Some(dir.path().to_owned()), clear: false },
            dir.path(),
            0,
            String::new(),
        )
        .unwrap();
        assert_eq!(cells.list.files[1], Path::new(OF_MACHINE));
        assert!(cells.list.find("far").is_none());
        assert_eq!(cells.reach("far").err(), Some(Error::Fault(Fault::NoVolume)));
        std::fs::write(dir.path().join("cells.toml"), "[\"far\"]\nservers = [\"unix:/absent\"]")
            .unwrap();
        assert_eq!(cells.list.find("far").unwrap().servers, [Endpoint::Unix("/absent".into())]);
        assert!(cells.reach("far").is_err());
    }
}
