//! Adds a server to a cell: fetches the settings that it needs before it can start from the server
//! that has the cell database.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::SystemTime;

use client::Endpoint;
use guard::Network;
use keys::{CellKeys, TokenKeys};
use local::ask::{self, Asking};
use local::cell::{CellDir, Joins};
use local::failure::{Doing, Failure};
use types::ServerInfo;

use crate::security;

/// Settings of a server that joins.
pub struct NewServer<'a> {
    /// Where it listens; `None`: the address at which others reach this machine.
    pub listen: Option<SocketAddr>,
    /// Its name; `None`: the machine's.
    pub server: Option<&'a str>,
    /// The trusted hosts.
    pub trusted: &'a [Network],
    /// Root of trusted hosts is root of the cell's files.
    pub trusted_root: bool,
}

/// Makes the directory of a server that joins the cell whose database the server at `database` has.
///
/// # Errors
/// If that server does not answer, or has no database; if another server has the name; if `keys`
/// are not those of the cell.
pub fn join(
    dir: &Path,
    database: &str,
    keys: &Path,
    new: &NewServer<'_>,
) -> Result<CellDir, Failure> {
    let what = || format!("joining the cell of {database}");
    let endpoint = ask::endpoint(database).doing(what)?;
    // A holder of the cell's keys acts as one of its servers.
    let borrowed = tempfile::tempdir().doing(what)?;
    let shown = CellKeys::of(borrowed.path());
    shown.bring_authority(keys).doing(what)?;
    shown.identity(&[], SystemTime::now()).doing(what)?;
    let asking = Asking::reach(endpoint.clone(), security::with_keys(&shown).doing(what)?)?;
    let report = asking.report()?;
    let cell = report["server"]["cell"].as_str().ok_or_else(|| {
        Failure::new(what(), "that server does not report its cell")
            .mend("check that it has the same version")
    })?;
    let servers = asking.servers()?;
    let server = choose_name(&servers, new.server)
        .map_err(|why| Failure::new(what(), why).mend("choose another with --server"))?;
    let listen = new.listen.map_or_else(|| reached_from(&endpoint).doing(what), Ok)?;
    let (trusted, trusted_root) = (new.trusted.to_vec(), new.trusted_root);
    let joins = Joins { database: database.to_owned(), server, trusted, trusted_root };
    let made = CellDir::join(dir, cell, listen, joins)?;
    made.keys().bring_authority(keys).doing(what)?;
    TokenKeys::of(made.dir()).bring(keys).doing(what)?;
    Ok(made)
}

/// The requested name, or this machine's, with a number if another server has it.
fn choose_name(servers: &[ServerInfo], wanted: Option<&str>) -> Result<String, String> {
    let is_taken = |name: &str| servers.iter().any(|server| server.name == name);
    if let Some(wanted) = wanted {
        return if is_taken(wanted) {
            Err(format!("a server of it is called {wanted}"))
        } else {
            Ok(wanted.to_owned())
        };
    }
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let numbered = (2..).map(|number| format!("{machine}-{number}"));
    let mut names = std::iter::once(machine.clone()).chain(numbered);
    Ok(names.find(|name| !is_taken(name)).expect("numbers are unlimited, servers are not"))
}

/// A free port of this machine's address as that server would see it. No packet is sent.
fn reached_from(endpoint: &Endpoint) -> std::io::Result<SocketAddr> {
    let Endpoint::Tcp(there) = endpoint else { return Ok(SocketAddr::from(([127, 0, 0, 1], 0))) };
    let any = |there: &SocketAddr| if there.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let there = std::net::ToSocketAddrs::to_socket_addrs(there)?.next();
    let there = there.ok_or_else(|| std::io::Error::other("the name has no address"))?;
    let socket = UdpSocket::bind(any(&there))?;
    socket.connect(there)?;
    Ok(SocketAddr::new(socket.local_addr()?.ip(), 0))
}

#[cfg(test)]
mod tests {
    use types::ServerId;

    use super::*;

    #[test]
    fn servers_of_one_machine_have_names_of_their_own() {
        let called = |name: &str| ServerInfo {
            id: ServerId(1),
            name: name.to_owned(),
            addresses: Vec::new(),
            keys: Vec::new(),
        };
        let machine = choose_name(&[], None).unwrap();
        assert_eq!(choose_name(&[called(&machine)], None).unwrap(), format!("{machine}-2"));
        assert_eq!(choose_name(&[called("a")], Some("b")), Ok("b".to_owned()));
        assert!(choose_name(&[called("a")], Some("a")).is_err());
    }

    #[test]
    fn a_server_listens_where_the_others_reach_it() {
        let at = reached_from(&Endpoint::Tcp("127.0.0.1:7620".into())).unwrap();
        assert_eq!((at.ip().to_string().as_str(), at.port()), ("127.0.0.1", 0));
    }
}
