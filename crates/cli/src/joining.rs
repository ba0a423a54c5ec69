//! Adds a server to a cell: fetches the settings that it needs before it can start from the server
//! that has the cell database.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, SystemTime};

use client::{CallError, Endpoint};
use fabric::tls::{Fingerprint, Trust};
use guard::{JoinCode, JoinFacts, JoinRequest, Network};
use keys::{CellKeys, SignOrder, TokenKeys};
use local::ask::{self, AskLimits, Asking};
use local::cell::{CellDir, Joins, prepare_cell_dir};
use local::daemon::Process;
use local::failure::{Doing, Failure};
use types::{Answer, Call, CellCall, Fault, Secret, ServerInfo};

use crate::{certifying, security};

/// How long one server may take to begin a session, and to answer.
const LIMITS: AskLimits =
    AskLimits { attach: Duration::from_secs(5), answer: Duration::from_secs(30) };

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
    shown.authority().bring(keys).doing(what)?;
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
    made.keys().authority().bring(keys).doing(what)?;
    TokenKeys::of(made.dir()).bring(keys).doing(what)?;
    Ok(made)
}

/// How a server's join ended.
pub enum Joined {
    /// It can start.
    Ready(CellDir),
    /// An administrator has to sign its certificate, where the key of the authority is.
    Waits(CellDir),
}

/// Makes the directory of a server that an invitation lets into its cell. Repeated with the same
/// directory it goes on where it stopped.
///
/// # Errors
/// If no server of the cell answers, the code lets no server in any more, or another cell is here.
pub fn join_by_code(dir: &Path, code: &JoinCode, new: &NewServer<'_>) -> Result<Joined, Failure> {
    let what = || format!("joining the cell {}", code.cell);
    let present = CellDir::find(dir)?;
    if let Some(present) = &present {
        need_same_cell(present, code)?;
    }
    let dir = prepare_cell_dir(dir)?;
    let keys = CellKeys::of(dir.join("keys"));
    // The present key may be one that was withdrawn. It stays until the new one was let in.
    let comes_back = keys.own_certificate().is_some();
    let request = if comes_back {
        keys.make_next_key().doing(what)?;
        keys.next_signing_request().doing(what)?
    } else {
        keys.signing_request().map(Some).doing(what)?
    };
    let (key, signing_request) =
        request.ok_or_else(|| Failure::new(what(), "the new key is gone"))?;
    let mut unreached = None;
    let mut pending = None;
    let mut endpoints: Vec<Endpoint> =
        code.addresses.iter().filter_map(|text| ask::endpoint(text).ok()).collect();
    let mut at = 0;
    while let Some(endpoint) = endpoints.get(at).cloned() {
        at += 1;
        let asking = match begin(&endpoint, code) {
            Ok(asking) => asking,
            Err(error) => {
                unreached = Some(Failure::new(format!("asking {endpoint}"), error));
                continue;
            }
        };
        let servers = asking.servers().unwrap_or_default();
        for other in certifying::reached_at(servers.iter().cloned(), None) {
            if !endpoints.contains(&other) {
                endpoints.push(other);
            }
        }
        let listen = match present.as_ref().and_then(|present| present.config.listen) {
            Some(listen) => listen,
            None => new.listen.map_or_else(|| reached_from(&endpoint).doing(what), Ok)?,
        };
        let name = match present.as_ref().and_then(|present| present.config.server.clone()) {
            Some(name) => name,
            None => choose_name(&servers, new.server)
                .map_err(|why| Failure::new(what(), why).mend("choose another with --server"))?,
        };
        let request = JoinRequest {
            cell: code.cell.clone(),
            authority: code.authority,
            invitation: code.signer().public(),
            key,
            // The invitation may say the name; without one this server asks for one.
            name: if new.server.is_some() || present.is_some() {
                name.clone()
            } else {
                String::new()
            },
            hosts: vec![listen.ip().to_string()],
            signing_request: signing_request.clone(),
        };
        let (facts, secrets) = match send(&asking, request, &name, code) {
            Ok(joined) => joined,
            // It has no part in joining; another one may.
            Err(CallError::Fault(Fault::Unsupported)) => continue,
            Err(error) => return Err(refused(&what(), &error)),
        };
        let answer = Answered { endpoint, listen, facts, secrets };
        if !answer.facts.certificate.is_empty() {
            return answer.settle(&dir, present, &signing_request, new);
        }
        pending.get_or_insert(answer);
    }
    match (pending, unreached) {
        (Some(answer), _) => answer.settle(&dir, present, &signing_request, new),
        (None, Some(failure)) => {
            Err(failure.mend("check the addresses in the line, and the firewall"))
        }
        (None, None) => Err(Failure::new(what(), "no server of it lets others in")
            .mend("invite with 'rialto cell invite' on a server of this version")),
    }
}

fn need_same_cell(present: &CellDir, code: &JoinCode) -> Result<(), Failure> {
    let what = || format!("joining the cell {}", code.cell);
    let known = present.keys().authority().fingerprints().unwrap_or_default();
    if present.config.name != code.cell
        || !known.is_empty() && known.iter().all(|one| one.0 != code.authority)
    {
        let why = format!("{} has a server of another cell", present.dir().display());
        return Err(Failure::new(what(), why).mend("name another directory with --dir"));
    }
    if present.config.has_database() || present.keys().authority().can_sign() {
        let why = "this server has the cell's database or the key of its authority";
        return Err(Failure::new(what(), why).mend("name another directory with --dir"));
    }
    match Process::recorded(&present.server_pid_file()).ok().flatten() {
        Some(process) => Err(Failure::new(what(), format!("its server runs: {}", process.pid))
            .mend("'rialto down' ends it")),
        None => Ok(()),
    }
}

/// A session without an identity, with a server that has the authority's certificate.
fn begin(endpoint: &Endpoint, code: &JoinCode) -> Result<Asking, CallError> {
    let options = security::with(Some(Trust::Pinned(Fingerprint(code.authority))));
    let options = options.map_err(|error| CallError::Refused(error.to_string()))?;
    Asking::begin(endpoint.clone(), options, LIMITS)
}

/// Sends the request. An invitation that gives no name answers `Invalid` to a request without one.
fn send(
    asking: &Asking,
    request: JoinRequest,
    name: &str,
    code: &JoinCode,
) -> Result<(JoinFacts, Secret), CallError> {
    let once = |request: &JoinRequest| {
        let request = request.sign(&code.signer());
        match asking.call(Call::Cell(CellCall::Join { request }))? {
            Answer::Joined { facts, secrets } => serde_json::from_str(&facts)
                .map(|facts| (facts, secrets))
                .map_err(|_| CallError::Fault(Fault::Invalid)),
            _ => Err(CallError::Fault(Fault::Invalid)),
        }
    };
    match once(&request) {
        Err(CallError::Fault(Fault::Invalid)) if request.name.is_empty() => {
            once(&JoinRequest { name: name.to_owned(), ..request })
        }
        outcome => outcome,
    }
}

/// The answer of a server that lets this one in.
struct Answered {
    endpoint: Endpoint,
    listen: SocketAddr,
    facts: JoinFacts,
    secrets: Secret,
}

impl Answered {
    /// Writes what came, the certificate last: a server without one does not start.
    fn settle(
        self,
        dir: &Path,
        present: Option<CellDir>,
        signing_request: &str,
        new: &NewServer<'_>,
    ) -> Result<Joined, Failure> {
        let Answered { endpoint, listen, facts, secrets } = self;
        let what = || format!("joining the cell {}", facts.cell);
        let keys = CellKeys::of(dir.join("keys"));
        keys.authority().bring_certificates(&facts.authorities).doing(what)?;
        TokenKeys::of(dir).import(secrets.reveal()).doing(what)?;
        let reached = match endpoint {
            Endpoint::Tcp(address) => address,
            Endpoint::Unix(path) => format!("unix:{}", path.display()),
        };
        let database = facts.database.clone().unwrap_or(reached);
        let cell = match present {
            Some(present) => present,
            None => {
                let (trusted, trusted_root) = (new.trusted.to_vec(), new.trusted_root);
                let joins = Joins { database, server: facts.name.clone(), trusted, trusted_root };
                CellDir::join(dir, &facts.cell, listen, joins)?
            }
        };
        let names = security::names(&cell);
        if facts.certificate.is_empty() {
            let order = SignOrder {
                cell: facts.cell.clone(),
                server: facts.name.clone(),
                roles: facts.roles.clone(),
                hosts: names,
                signing_request: signing_request.to_owned(),
            };
            order.write(&keys).doing(what)?;
            return Ok(Joined::Waits(cell));
        }
        if keys.next_key().doing(what)?.is_some() {
            keys.accept_next(&facts.authorities, &facts.certificate).doing(what)?;
            keys.take_next_key().doing(what)?;
        }
        keys.accept(&facts.authorities, &facts.certificate, &names).doing(what)?;
        Ok(Joined::Ready(cell))
    }
}

/// A refusal in words.
fn refused(what: &str, error: &CallError) -> Failure {
    let invite = "'rialto cell invite' on a server of the cell prints another line";
    let (why, mend) = match error.fault() {
        Some(Fault::AccessDenied) => {
            ("no invitation has this code: it is wrong, or was taken back", invite)
        }
        Some(Fault::TokenExpired) => ("the code has ended", invite),
        Some(Fault::Exists) => ("the code was used: it lets no other server in", invite),
        Some(Fault::Conflict) => (
            "a server of the cell has that name, or the code is for another one",
            "choose another with --server",
        ),
        Some(Fault::NotPermitted) => ("the key of this server was withdrawn", invite),
        Some(Fault::Busy) => (
            "this machine has sent codes that are wrong",
            "wait some minutes, then try again with the right one",
        ),
        _ => return Failure::new(what, error),
    };
    Failure::new(what, why).mend(mend)
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
