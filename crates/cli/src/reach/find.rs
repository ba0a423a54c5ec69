//! The order in which the ways to a cell are looked for.

use std::env;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use client::Endpoint;
use local::cell::{CellDir, Where, cells_for_users, users_socket_of};
use local::failure::Failure;
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::token_files::{HeldToken, TokenDir};
use super::{FoundBy, LoginSource, NetworkWay, Reach, ReachOptions, Stated, mounted};
use crate::cells::CellList;

/// The variable that names the cell.
const VARIABLE: &str = "RIALTO_CELL";
/// The file with the name of the machine's cell.
const MACHINE_CELL: &str = "/etc/rialto/cell";
/// The directory of the cell that `make up` makes in a checkout.
const CHECKOUT: &str = ".rialto";

/// The places that had no cell, for the error.
#[derive(Default)]
struct Looked(Vec<String>);

impl Looked {
    fn at(&mut self, place: impl Into<String>) {
        self.0.push(place.into());
    }

    fn failure(self) -> Failure {
        Failure::new("finding the cell", self.0.join("; "))
            .mend(
                "make one with 'rialto up', or name it: --via HOST:PORT a server, --cell NAME \
                    one of cells.toml or DNS, --dir its directory",
            )
            .nothing_there()
    }
}

impl Reach {
    /// The way to the cell.
    ///
    /// # Errors
    /// If none is found; the error names the places that were looked at.
    pub fn find(options: &ReachOptions) -> Result<Reach, Failure> {
        if let Some(via) = &options.via {
            return NetworkWay::to_server(via.clone(), options).map(Reach::network);
        }
        if options.dir.is_some() || options.localauth {
            let cell = Where { dir: options.dir.clone(), clear: false }.cell()?;
            need_name(&cell, options.cell.as_deref())?;
            return of_directory(cell, options);
        }
        let mut looked = Looked::default();
        let own = own_directory(&mut looked)?;
        let named = options.cell.clone().map(|cell| (cell, FoundBy::CellOption));
        // A directory that the environment names comes before a cell that it names.
        let named = match (&own, named) {
            (_, Some(named)) => Some(named),
            (Some(Own { by_environment: true, .. }), None) => None,
            (_, None) => variable(VARIABLE).map(|cell| (cell, FoundBy::CellVariable)),
        };
        if let Some((name, found_by)) = named {
            return match own.filter(|own| own.cell.config.name == name) {
                Some(own) => of_directory(own.cell, options),
                None => NetworkWay::to_cell(&name, found_by, options).map(Reach::network),
            };
        }
        let own = match own {
            Some(own) if own.by_environment => return of_directory(own.cell, options),
            own => own.map(|own| own.cell),
        };
        match mounted::of_current_directory() {
            Some(here) if own.as_ref().is_none_or(|own| own.config.name != here.cell) => {
                return NetworkWay::of_mount(here, options).map(Reach::network);
            }
            Some(_) => {}
            None => looked.at("the current directory is in no mounted tree"),
        }
        if let Some(cell) = own {
            return of_directory(cell, options);
        }
        elsewhere(looked, options)
    }

    fn network(way: NetworkWay) -> Reach {
        Reach::Network(Box::new(way))
    }
}

/// The cell of the machine's configuration, or of the only login.
fn elsewhere(mut looked: Looked, options: &ReachOptions) -> Result<Reach, Failure> {
    match std::fs::read_to_string(MACHINE_CELL) {
        Ok(text) if !text.trim().is_empty() => {
            let found_by = FoundBy::Machine(PathBuf::from(MACHINE_CELL));
            return NetworkWay::to_cell(text.trim(), found_by, options).map(Reach::network);
        }
        _ => looked.at(format!("{MACHINE_CELL} names none")),
    }
    let held = match TokenDir::find()? {
        Some(dir) => dir.tokens()?,
        None => Vec::new(),
    };
    match &held[..] {
        [] => {
            looked.at(format!("{} has no login", TokenDir::place().display()));
            match &cells_for_users()[..] {
                [] => looked.at("root runs no server on this machine"),
                [only] => {
                    return NetworkWay::to_cell(only, FoundBy::Local, options).map(Reach::network);
                }
                several => looked
                    .at(format!("this machine serves {}: --cell chooses one", several.join(", "))),
            }
        }
        [only] => {
            let cell = only.token.cell.clone();
            return NetworkWay::to_cell(&cell, FoundBy::Login, options).map(Reach::network);
        }
        several => {
            let names: Vec<_> = several.iter().map(|held| held.token.cell.as_str()).collect();
            looked.at(format!("there are logins to {}: --cell chooses one", names.join(", ")));
        }
    }
    Err(looked.failure())
}

/// The cell's directory of this machine, where the command line names none.
struct Own {
    cell: CellDir,
    /// `$RIALTO_HOME` names it.
    by_environment: bool,
}

fn own_directory(looked: &mut Looked) -> Result<Option<Own>, Failure> {
    let by_environment = variable("RIALTO_HOME").is_some();
    if !by_environment && let Some(dir) = checkout_cell() {
        return Ok(CellDir::find(&dir)?.map(|cell| Own { cell, by_environment }));
    }
    let Ok(dir) = (Where { dir: None, clear: false }).path() else {
        looked.at("neither RIALTO_HOME nor HOME is set");
        return Ok(None);
    };
    // The directory of a server of another user shows its file to that user alone.
    if access(dir.join("cell.toml"), Access::READ_OK) == Err(Errno::ACCESS) {
        looked.at(format!("{} is not yours to read", dir.join("cell.toml").display()));
        return Ok(None);
    }
    match CellDir::find(&dir)? {
        Some(cell) => Ok(Some(Own { cell, by_environment })),
        None => {
            looked.at(format!("{} holds none", dir.display()));
            Ok(None)
        }
    }
}

/// The cell of `make up`, in the checkout that the current directory is in. Another user may have
/// made such a directory, so it must be this user's alone.
fn checkout_cell() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    let top = here.ancestors().find(|dir| dir.join(CHECKOUT).join("cell.toml").exists())?;
    let dir = top.join(CHECKOUT);
    let is_own = |path: &Path| {
        std::fs::symlink_metadata(path).is_ok_and(|status| {
            status.uid() == rustix::process::geteuid().as_raw() && status.mode() & 0o022 == 0
        })
    };
    (is_own(&dir) && is_own(&dir.join("cell.toml"))).then_some(dir)
}

/// Whether the environment names the cell.
pub fn is_cell_in_environment() -> bool {
    variable(VARIABLE).is_some()
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Refuses a directory that has another cell than the named one.
fn need_name(cell: &CellDir, name: Option<&str>) -> Result<(), Failure> {
    match name.filter(|name| *name != cell.config.name) {
        None => Ok(()),
        Some(name) => {
            let why = format!("{} holds the cell {}", cell.dir().display(), cell.config.name);
            Err(Failure::new(format!("finding the cell {name}"), why)
                .mend("name its directory with --dir"))
        }
    }
}

/// The socket of a cell's directory where this process may use it, or else that for users and the
/// address at which its server listens.
fn of_directory(cell: CellDir, options: &ReachOptions) -> Result<Reach, Failure> {
    let is_closed = access(cell.socket(), Access::WRITE_OK) == Err(Errno::ACCESS);
    let users = cell.users_socket().filter(|path| path.exists()).map(Endpoint::Unix);
    let listen = cell.config.listen.map(|listen| Endpoint::Tcp(listen.to_string()));
    let servers: Vec<Endpoint> = users.into_iter().chain(listen).collect();
    if servers.is_empty() || !is_closed || options.localauth {
        return Ok(Reach::Socket(Box::new(cell)));
    }
    let found_by = FoundBy::CellDirectory(cell.dir().to_owned());
    let name = cell.config.name.clone();
    Ok(Reach::network(NetworkWay::new(name, servers, found_by, options)))
}

impl NetworkWay {
    fn new(
        cell: String,
        servers: Vec<Endpoint>,
        found_by: FoundBy,
        options: &ReachOptions,
    ) -> NetworkWay {
        let place = Where { dir: options.dir.clone(), clear: false }.path().ok();
        let stated = Stated::in_list(&CellList::new(None, place.as_deref()), &cell);
        let (trust, login) = (cell.clone(), LoginSource::Files);
        NetworkWay { found_by, cell: Some(cell), servers, trust, stated, login, place }
    }

    /// The servers of a cell that is named.
    ///
    /// # Errors
    /// If nothing lists it.
    fn to_cell(
        cell: &str,
        found_by: FoundBy,
        options: &ReachOptions,
    ) -> Result<NetworkWay, Failure> {
        let way = NetworkWay::new(cell.to_owned(), Vec::new(), found_by, options);
        // A server on this machine comes first: it needs no login.
        let users = Some(users_socket_of(cell)).filter(|path| path.exists()).map(Endpoint::Unix);
        let behind = |servers: Vec<Endpoint>| users.iter().cloned().chain(servers).collect();
        let list = CellList::new(None, way.place.as_deref());
        if let Some(known) = list.find_in_files(cell) {
            return Ok(NetworkWay { servers: behind(known.servers), ..way });
        }
        let held = TokenDir::find()?.map(|dir| dir.token(cell)).transpose()?.flatten();
        if let Some(HeldToken { servers, trust, .. }) = held {
            let servers = servers.iter().filter_map(|text| text.parse().ok()).collect();
            return Ok(NetworkWay { servers: behind(servers), trust, ..way });
        }
        if users.is_some() {
            return Ok(NetworkWay { servers: behind(Vec::new()), ..way });
        }
        if let Some(known) = list.find(cell) {
            return Ok(NetworkWay { servers: known.servers, ..way });
        }
        let files: Vec<_> = list.files().map(|file| file.display().to_string()).collect();
        let why = format!("neither {}, nor a login, nor DNS has it", files.join(", nor "));
        Err(Failure::new(format!("finding the cell {cell}"), why)
            .mend("list its servers in cells.toml, or name one with --via HOST:PORT")
            .nothing_there())
    }

    /// One server, of the cell that it says.
    fn to_server(via: Endpoint, options: &ReachOptions) -> Result<NetworkWay, Failure> {
        let text = via.to_string();
        let logins = TokenDir::find()?.map(|dir| dir.tokens()).transpose()?.unwrap_or_default();
        let login = logins.into_iter().find(|held| held.servers.contains(&text));
        let name = match &via {
            Endpoint::Tcp(address) => address.clone(),
            Endpoint::Unix(path) => path.display().to_string(),
        };
        let way = NetworkWay::new(name, vec![via], FoundBy::Via, options);
        // The name of an address is in no list of cells.
        let way = NetworkWay { stated: Stated::No, ..way };
        Ok(match (login, &options.cell) {
            (Some(held), _) => {
                let stated =
                    Stated::in_list(&CellList::new(None, way.place.as_deref()), &held.trust);
                NetworkWay { cell: Some(held.token.cell), trust: held.trust, stated, ..way }
            }
            (None, Some(cell)) => {
                let of_cell = NetworkWay::new(cell.clone(), way.servers, FoundBy::Via, options);
                NetworkWay { found_by: FoundBy::Via, ..of_cell }
            }
            (None, None) => NetworkWay { cell: None, ..way },
        })
    }

    /// The way of a login without a mount, which stores its token in a file.
    ///
    /// # Errors
    /// If no cell is found.
    pub fn for_login(options: &ReachOptions) -> Result<NetworkWay, Failure> {
        match Reach::find(options)? {
            Reach::Network(way) => Ok(NetworkWay { login: LoginSource::Files, ..*way }),
            Reach::Socket(cell) => {
                let found_by = FoundBy::CellDirectory(cell.dir().to_owned());
                let server = match cell.config.listen {
                    Some(listen) => Endpoint::Tcp(listen.to_string()),
                    None => Endpoint::Unix(cell.socket()),
                };
                let name = cell.config.name.clone();
                Ok(NetworkWay::new(name, vec![server], found_by, options))
            }
        }
    }

    fn of_mount(tree: mounted::MountedCell, options: &ReachOptions) -> Result<NetworkWay, Failure> {
        let mounted::MountedCell { at, cell, servers, authorities } = tree;
        let held = TokenDir::find()?.map(|dir| dir.token(&cell)).transpose()?.flatten();
        let way = NetworkWay::new(cell, servers, FoundBy::Mount(at.clone()), options);
        // A login without a mount knows the authority already; otherwise the mount does.
        let stated = match (&way.stated, &held) {
            (Stated::No, None) => Stated::by_mount(authorities),
            _ => way.stated.clone(),
        };
        let trust = held.map_or(way.trust, |held| held.trust);
        Ok(NetworkWay { login: LoginSource::Mount(at), trust, stated, ..way })
    }
}
