//! Security of connections between machines: the certificates that a server shows, and those that a
//! client accepts.
//!
//! A client accepts as a server of the cell a peer that shows a certificate of the cell's
//! authority. The client has that authority from its own directory (`keys/ca.pem`), from
//! `cells.toml`, or by its fingerprint in `known_cells`, where it is written on first use. There it
//! follows the authority to its successors, and removes those that the cell does not show any more.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use client::ClientOptions;
use fabric::tls::pki_types::CertificateDer;
use fabric::tls::{ClientTls, Fingerprint, ServerTls, TlsIdentity, Trust};
use guard::{Certifier, JoinFacts};
use keys::{CellCertifier, CellKeys, KeyError, TokenKeys};
use local::cell::{AfsClients, CellDir, Kerberos};
use local::failure::{Doing, Failure};
use login::{Service, TokenIssuer};
use parking_lot::Mutex;
use rx::rxkad::RxkadKeys;
use server::{AfsConfig, OwnKeys, ServerConfig};
use types::KeyPrint;

use crate::{certifying, withdrawn};

/// Returns the options for connections to the server or cell `peer`, from the directory `dir`.
pub(crate) fn options(dir: &Path, peer: &str, clear: bool) -> Result<ClientOptions, Failure> {
    let trust = if clear { None } else { Some(first_use(dir, peer)) };
    let options = with_identity(trust, host_identity(dir)?)?;
    options.connection.tls.iter().for_each(|tls| withdrawn::load(dir, tls));
    Ok(options)
}

/// Returns the options for connections that `trust` checks; none: in clear text.
pub(crate) fn with(trust: Option<Trust>) -> Result<ClientOptions, Failure> {
    with_identity(trust, None)
}

fn with_identity(
    trust: Option<Trust>,
    identity: Option<TlsIdentity>,
) -> Result<ClientOptions, Failure> {
    let tls = trust.map(|trust| ClientTls::new(trust, identity)).transpose();
    let tls = tls.doing(|| "preparing TLS".to_owned())?;
    Ok(from_reserved_port(tls).into())
}

/// A server that trusts this host accepts only connections of root's processes.
fn from_reserved_port(tls: Option<ClientTls>) -> fabric::ConnectionOptions {
    fabric::ConnectionOptions { tls, reserved_port: true, ..fabric::ConnectionOptions::default() }
}

/// The host certificate that an administrator put into `DIR/keys` of a client: `host.pem` and
/// `host.key`.
fn host_identity(dir: &Path) -> Result<Option<TlsIdentity>, Failure> {
    let (certificate, key) = (dir.join("keys/host.pem"), dir.join("keys/host.key"));
    if !certificate.exists() || !key.exists() {
        return Ok(None);
    }
    keys::identity_in(&certificate, &key)
        .map(Some)
        .doing(|| "reading this machine's host certificate".to_owned())
}

/// Returns the options for connections to servers of the cell in `dir`. A process that can read a
/// server's own key there acts as that server, and may do everything: as with OpenAFS's
/// `-localauth`.
pub(crate) fn as_server(dir: &Path, cell: &str, clear: bool) -> Result<ClientOptions, Failure> {
    // Other servers may show certificates of the authority in [certificate].
    let cell_dir = CellDir::find(dir)?;
    let given = cell_dir
        .as_ref()
        .and_then(|cell| cell.config.certificate.as_ref().map(|given| (cell.dir(), given)));
    let authorities =
        given.map(|(dir, given)| keys::authorities_in(&dir.join(&given.authority))).transpose();
    let authorities = authorities
        .doing(|| "reading the authority of [certificate]".to_owned())?
        .unwrap_or_default();
    let keys = CellKeys::of(dir.join("keys"));
    // As the server does: its own certificate, or without one the given certificate.
    let own = keys.shown().or_else(|error| match given {
        Some((dir, given)) => keys::identity_in(&dir.join(&given.chain), &dir.join(&given.key)),
        None => Err(error),
    });
    match own.and_then(|own| with_keys_and(&keys, own, authorities)) {
        Ok(options) if !clear => Ok(options),
        _ => options(dir, cell, clear),
    }
}

/// Returns the options of a server with these keys for connections to the others of its cell.
///
/// # Errors
/// If keys are missing, or this process may not read them.
pub fn with_keys(keys: &CellKeys) -> Result<ClientOptions, KeyError> {
    with_keys_and(keys, keys.shown()?, Vec::new())
}

fn with_keys_and(
    keys: &CellKeys,
    own: TlsIdentity,
    others: Vec<CertificateDer<'static>>,
) -> Result<ClientOptions, KeyError> {
    let tls = ClientTls::new(
        Trust::Authorities([keys.authority().certificates()?, others].concat()),
        Some(own),
    );
    let tls = tls.map_err(|error| KeyError { path: "TLS".to_owned(), why: error.to_string() })?;
    Ok(from_reserved_port(Some(tls)).into())
}

/// The issuer and verifier of the cell's tokens. The server that has the cell database makes the
/// first signing key; others have a copy.
///
/// # Errors
/// If the key cannot be made.
pub fn mint(cell: &CellDir) -> Result<Arc<TokenIssuer>, Failure> {
    let keys = TokenKeys::of(cell.dir());
    let what = || "preparing the keys that sign tokens".to_owned();
    if cell.config.has_database() && keys.numbers().doing(what)?.is_empty() {
        keys.make().doing(what)?;
    }
    Ok(Arc::new(TokenIssuer::new(&cell.config.name, Arc::new(keys))))
}

/// Lets other servers into the cell, where this one has the cell's certificates.
pub fn certifier(cell: &CellDir) -> Option<Arc<dyn Certifier>> {
    let has_authority = cell.keys().authority().file().exists();
    let certifier = || {
        let database = cell.config.database.clone();
        CellCertifier::of(cell.dir().to_owned(), &cell.config.name, database)
    };
    has_authority.then(|| Arc::new(certifier()) as _)
}

/// The first bytes of a keytab.
const KEYTAB_BEGIN: &[u8] = &[5, 2];

/// The verifier of Kerberos tickets for the cell; `None`: tickets are not accepted.
///
/// # Errors
/// If the keytab cannot be used.
pub fn kerberos(cell: &CellDir) -> Result<Option<Arc<Service>>, Failure> {
    let Some(Kerberos { keytab, realm, create }) = &cell.config.kerberos else { return Ok(None) };
    let keytab = cell.dir().join(keytab);
    let realm = realm.clone().unwrap_or_else(|| cell.config.name.to_uppercase());
    let service = Service::new(&keytab, &realm, *create).map_err(|error| {
        Failure::new(format!("reading the keytab {}", keytab.display()), error).mend(
            "'klist -k FILE' shows what is in one; 'kadmin -q \"ktadd -k FILE \
                rialto/CELL\"' writes it",
        )
    })?;
    Ok(Some(Arc::new(service)))
}

/// The ports for AFS's own clients; `None`: none are opened.
///
/// # Errors
/// If the file of keys cannot be used.
pub fn afs(cell: &CellDir) -> Result<Option<AfsConfig>, Failure> {
    let Some(AfsClients { listen, keys, realm, databases }) = &cell.config.afs else {
        return Ok(None);
    };
    let realm = realm.clone().unwrap_or_else(|| cell.config.name.to_uppercase());
    let keys = keys.as_ref().map(|file| afs_keys(&cell.dir().join(file), &cell.config.name));
    let keys = Arc::new(keys.transpose()?.unwrap_or_default());
    Ok(Some(AfsConfig { listen: *listen, keys, realm, databases: databases.clone() }))
}

/// The keys in a keytab, a `KeyFileExt` or a `KeyFile`.
///
/// # Errors
/// If it cannot be read, or has no key of that cell.
pub fn afs_keys(file: &Path, cell: &str) -> Result<RxkadKeys, Failure> {
    let what = || format!("reading the keys of AFS in {}", file.display());
    let bytes = std::fs::read(file).doing(what)?;
    let keys = if bytes.starts_with(KEYTAB_BEGIN) {
        rx::rxkad::read_keytab(&bytes, cell)
    } else if file.file_name().is_some_and(|name| name == "KeyFile") {
        rx::rxkad::read_key_file(&bytes)
    } else {
        rx::rxkad::read_key_file_ext(&bytes)
    };
    let keys = keys.map_err(|error| Failure::new(what(), error))?;
    if keys.is_empty() {
        return Err(Failure::new(what(), format!("there is no key of afs/{cell} in it"))
            .mend(format!("'kadmin -q \"ktadd -k FILE afs/{cell}\"' writes it")));
    }
    Ok(keys)
}

/// The authority of the cell in `dir`, or the one recorded under this name, or else the first that
/// is shown.
fn first_use(dir: &Path, peer: &str) -> Trust {
    let own = CellKeys::of(dir.join("keys")).authority().certificates().unwrap_or_default();
    let known = KnownCells { file: dir.join("known_cells") };
    let peer = peer.to_owned();
    Trust::Asked(Arc::new(move |shown| {
        if shown.iter().any(|one| own.contains(one)) { Ok(()) } else { known.judge(&peer, shown) }
    }))
}

/// A file of lines `NAME sha256:...`, with the fingerprints of successors before their
/// predecessors'. The last line of a name is valid.
struct KnownCells {
    file: PathBuf,
}

impl KnownCells {
    /// Checks the authorities `shown`, each of which proves the server; a successor comes before
    /// its predecessor.
    fn judge(&self, peer: &str, shown: &[CertificateDer<'_>]) -> Result<(), String> {
        let file = self.file.display();
        let text = match std::fs::read_to_string(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{file}: {error}")),
        };
        let prints: Vec<Fingerprint> = shown.iter().map(|one| Fingerprint::of(one)).collect();
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let Some((_, known)) = lines.rfind(|(name, _)| *name == peer) else {
            let first = successors(shown, shown.len() - 1);
            self.remember(peer, &prints[first..])?;
            let own = prints[first];
            eprintln!("rialto: {peer} is known from now on by its authority's fingerprint, {own}");
            return Ok(());
        };
        let known: Vec<Fingerprint> =
            known.split_whitespace().filter_map(|one| one.parse().ok()).collect();
        let Some(at) = prints.iter().position(|one| known.contains(one)) else {
            let (now, was) = (
                prints[prints.len() - 1],
                known.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "),
            );
            return Err(format!(
                "the authority of {peer} has the fingerprint {now}, known is {was}. Another \
                 machine may intercept the connection. If the cell was made anew, remove its \
                 line from {file}"
            ));
        };
        let first = successors(shown, at);
        let is_newest = known.first() == prints.get(first);
        // A server that does not have the successor yet does not show it.
        if first < at || is_newest && known != prints[first..] {
            self.remember(peer, &prints[first..])?;
            if !is_newest {
                eprintln!(
                    "rialto: {peer} has a new authority, {}, which its predecessor signed",
                    prints[first]
                );
            }
        }
        Ok(())
    }

    fn remember(&self, peer: &str, prints: &[Fingerprint]) -> Result<(), String> {
        let prints = prints.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let written = self.file.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| {
            let mut file =
                std::fs::OpenOptions::new().append(true).create(true).open(&self.file)?;
            file.write_all(format!("{peer} {prints}\n").as_bytes())
        });
        written.map_err(|error| format!("{}: {error}", self.file.display()))
    }
}

/// Index of the newest authority in the chain of successors of the one at `at`.
fn successors(shown: &[CertificateDer<'_>], at: usize) -> usize {
    (0..at)
        .rev()
        .take_while(|newer| keys::succeeds(&shown[*newer], &shown[newer + 1]))
        .last()
        .unwrap_or(at)
}

/// The authority of a cell in `cells.toml`: a file of certificates, or a fingerprint.
pub(crate) fn stated(
    ca: Option<&Path>,
    fingerprint: Option<&str>,
) -> Result<Option<Trust>, String> {
    match (ca, fingerprint) {
        (Some(_), Some(_)) => Err("give either ca or fingerprint".to_owned()),
        (Some(ca), None) => keys::authorities_in(ca)
            .map(|all| Some(Trust::Authorities(all)))
            .map_err(|error| error.to_string()),
        (None, Some(print)) => Ok(Some(Trust::Pinned(print.parse()?))),
        (None, None) => Ok(None),
    }
}

/// The certificates that the server of `cell` shows, and its options for connections to the others.
/// `None` where it does not listen in the network.
///
/// # Errors
/// If keys cannot be made or read.
pub fn secure_server(
    cell: &CellDir,
    config: &mut ServerConfig,
) -> Result<Option<Renewal>, Failure> {
    let elsewhere = !cell.config.has_database();
    if cell.config.listen.is_none() && !elsewhere {
        return Ok(None);
    }
    let mut renewal = Renewal::new(cell);
    let loaded = renewal.load().doing(|| "preparing this server's keys".to_owned())?;
    let what = || "preparing TLS".to_owned();
    renewal.listed.want(loaded.keys());
    config.own_keys = Some(Arc::clone(&renewal.listed));
    let (trust, own) = loaded.to_others();
    let client = ClientTls::new(trust, Some(own)).doing(what)?;
    let tls =
        Arc::new(ServerTls::with_hosts(loaded.shown, &loaded.servers, &loaded.hosts).doing(what)?);
    config.tls = Some(Arc::clone(&tls));
    config.clear = cell.config.clear;
    renewal.client = Some(client.clone());
    config.options.connection.tls = Some(client);
    Ok(Some(renewal))
}

/// Renews a server's certificate.
pub struct Renewal {
    keys: CellKeys,
    given: Option<(PathBuf, PathBuf, PathBuf)>,
    makes_authority: Option<String>,
    names: Vec<String>,
    /// Its client side, for connections to the others.
    client: Option<ClientTls>,
    /// Its keys that the cell database lists.
    listed: Arc<OwnKeys>,
    cell: CellDir,
    /// When another server was last asked for a certificate, without success.
    refused_at: Mutex<Option<Instant>>,
}

/// The pause between two questions for a certificate.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// How long the cell database may take to list the next key. Otherwise the next check asks again.
const LISTED_WITHIN: Duration = Duration::from_secs(5);

/// The certificates of a server, and the authorities that it accepts.
struct Loaded {
    /// Shown to clients: the given certificate, or the same as to servers.
    shown: TlsIdentity,
    /// Shown to other servers: its own, by the cell's authority, with which it can enter its key in
    /// the cell database; if it can make none, the given one.
    own: TlsIdentity,
    /// The key that replaces its own once the database lists it.
    next: Option<KeyPrint>,
    /// Certificates of the cell's own authorities.
    servers: Vec<CertificateDer<'static>>,
    /// Certificates of the given authority, which signs host certificates.
    hosts: Vec<CertificateDer<'static>>,
}

impl Loaded {
    /// All keys that it may show, the one for other servers first.
    fn keys(&self) -> Vec<KeyPrint> {
        let mut keys = Vec::new();
        for key in [self.own.key_print(), self.next, self.shown.key_print()].into_iter().flatten() {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// Its check of other servers, which may show a given certificate too, and its identity to
    /// them.
    fn to_others(&self) -> (Trust, TlsIdentity) {
        (Trust::Authorities([&self.servers[..], &self.hosts].concat()), self.own.clone())
    }
}

impl Renewal {
    fn new(cell: &CellDir) -> Renewal {
        let given = cell.config.certificate.as_ref().map(|given| {
            let file = |path: &Path| cell.dir().join(path);
            (file(&given.chain), file(&given.key), file(&given.authority))
        });
        let makes_authority = cell.config.has_database().then(|| cell.config.name.clone());
        let listed = Arc::default();
        Renewal {
            keys: cell.keys(),
            given,
            makes_authority,
            names: names(cell),
            client: None,
            listed,
            cell: cell.clone(),
            refused_at: Mutex::default(),
        }
    }

    fn load(&self) -> Result<Loaded, KeyError> {
        let now = SystemTime::now();
        if let Some(cell) = &self.makes_authority {
            self.keys.authority().make(cell, now)?;
        }
        let given = match &self.given {
            Some((chain, key, authority)) => {
                Some((keys::identity_in(chain, key)?, keys::authorities_in(authority)?))
            }
            None => None,
        };
        let own = match (self.keys.identity(&self.names, now), &given) {
            (Ok((own, _)), _) => own,
            (Err(_), Some((given, _))) if !self.keys.authority().can_sign() => given.clone(),
            (Err(error), _) => return Err(error),
        };
        let (servers, next) = (self.keys.authority().certificates()?, self.keys.next_key()?);
        let (shown, hosts) = given.unwrap_or_else(|| (own.clone(), Vec::new()));
        Ok(Loaded { shown, own, next, servers, hosts })
    }

    /// Loads the certificates to show from now on: the next key replaces the present one once the
    /// other servers know it.
    fn load_next(&self) -> Result<Loaded, KeyError> {
        let loaded = self.load()?;
        self.listed.want(loaded.keys());
        match loaded.next.filter(|next| self.listed.may_show(*next, LISTED_WITHIN)) {
            // Without the authority's key, another server signs first.
            Some(_) if !self.keys.authority().can_sign() && !self.ask_for_next()? => Ok(loaded),
            Some(next) => {
                self.keys.take_next_key()?;
                tracing::info!(key = %next, "this server shows a new key from now on, on new \
                    connections");
                self.load()
            }
            None => Ok(loaded),
        }
    }

    /// Asks for a certificate for the next key. Returns whether one came.
    fn ask_for_next(&self) -> Result<bool, KeyError> {
        let Some((_, request)) = self.keys.next_signing_request()? else { return Ok(false) };
        let Some(facts) = self.ask(&request) else { return Ok(false) };
        self.keys.accept_next(&facts.authorities, &facts.certificate)?;
        Ok(true)
    }

    /// Asks for a newer certificate where this server needs one and cannot make it.
    fn ask_for_certificate(&self) -> Result<(), KeyError> {
        if !self.keys.needs_certificate(&self.names, SystemTime::now()) {
            return Ok(());
        }
        let (_, request) = self.keys.signing_request()?;
        let Some(facts) = self.ask(&request) else { return Ok(()) };
        self.keys.accept(&facts.authorities, &facts.certificate, &self.names)?;
        tracing::info!("this server has a new certificate, which another server signed");
        Ok(())
    }

    fn ask(&self, request: &str) -> Option<JoinFacts> {
        let mut refused_at = self.refused_at.lock();
        if refused_at.is_some_and(|at| at.elapsed() < ASK_AGAIN) {
            return None;
        }
        let options = with_keys(&self.keys).map_err(|error| error.to_string());
        let asked =
            options.and_then(|options| certifying::certificate(&self.cell, &options, request));
        match asked {
            Ok(facts) => {
                *refused_at = None;
                Some(facts)
            }
            Err(why) => {
                *refused_at = Some(Instant::now());
                let ends = self.keys.own_certificate().map(|own| own.ends);
                let left = ends.and_then(|ends| ends.duration_since(SystemTime::now()).ok());
                tracing::warn!(
                    why,
                    days_left = left.map(|left| left.as_secs() / 86_400),
                    "this server gets no new certificate; it asks again every minute. If the key \
                     of the authority is off line: 'rialto keys request'"
                );
                None
            }
        }
    }

    /// Connects to no server with one of these keys from now on.
    pub fn refuse(&self, keys: Vec<KeyPrint>) {
        if let Some(client) = &self.client {
            client.refused().add(keys);
        }
    }

    /// Shows renewed certificates from the next connection on.
    pub fn renew(&self, tls: &ServerTls) {
        if self.given.is_none()
            && let Err(error) = self.ask_for_certificate()
        {
            tracing::error!(%error, "a new certificate of this server cannot be used");
        }
        let renewed = self.load_next().map_err(|error| error.to_string()).and_then(|loaded| {
            let (keys, (trust, own)) = (loaded.keys(), loaded.to_others());
            let client =
                self.client.as_ref().map_or(Ok(()), |client| client.replace(trust, Some(own)));
            let replaced = client.and_then(|()| {
                tls.replace_with_hosts(loaded.shown, &loaded.servers, &loaded.hosts)
            });
            // The previous key leaves the list when it is shown no more.
            replaced.map(|()| self.listed.want(keys)).map_err(|error| error.to_string())
        });
        if let Err(error) = renewed {
            tracing::error!(error, "this server's certificate cannot be renewed");
        }
    }
}

/// Names by which clients may know this server.
pub fn names(cell: &CellDir) -> Vec<String> {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let ip = |ip: IpAddr| (!ip.is_unspecified()).then(|| ip.to_string());
    let addresses = cell
        .config
        .listen
        .iter()
        .chain(&cell.config.addresses)
        .filter_map(|address| ip(address.ip()));
    let mut names: Vec<String> = addresses.collect();
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    names.extend(Some(machine).filter(|name| !name.is_empty() && name.bytes().all(letters)));
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_cell_with_another_fingerprint_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let known = KnownCells { file: dir.path().join("known_cells") };
        let shown = [&[1][..], &[2]].map(|bytes| [CertificateDer::from(bytes)]);
        let [one, two] = [1, 2].map(|byte| Fingerprint::of(&[byte]));
        assert_eq!(known.judge("a.org", &shown[0]), Ok(()));
        assert_eq!(known.judge("a.org", &shown[0]), Ok(()));
        assert_eq!(known.judge("b.org", &shown[1]), Ok(()));
        let refused = known.judge("a.org", &shown[1]).unwrap_err();
        assert!(
            refused.contains(&one.to_string()) && refused.contains(&two.to_string()),
            "{refused}"
        );
        assert!(refused.contains("known_cells"), "{refused}");
        assert_eq!(std::fs::read_to_string(&known.file).unwrap().lines().count(), 2);
    }

    #[test]
    fn successors_are_followed_and_unshown_ones_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let known = KnownCells { file: dir.path().join("known_cells") };
        let keys = CellKeys::of(dir.path().join("keys"));
        keys.authority().make("a.org", SystemTime::now()).unwrap();
        let mut shown = vec![keys.authority().certificates().unwrap()];
        for _ in 0..2 {
            keys.authority().succeed("a.org", SystemTime::now()).unwrap();
            shown.push(keys.authority().certificates().unwrap());
        }
        let (first, third) = (&shown[0], &shown[2]);
        assert_eq!(third.len(), 3);
        let line = || {
            let text = std::fs::read_to_string(&known.file).unwrap();
            text.lines()
                .last()
                .unwrap()
                .split(' ')
                .skip(1)
                .map(|print| print.parse().unwrap())
                .collect::<Vec<Fingerprint>>()
        };
        let prints = |of: &[CertificateDer<'_>]| {
            of.iter().map(|one| Fingerprint::of(one)).collect::<Vec<_>>()
        };
        assert_eq!(known.judge("a.org", first), Ok(()));
        assert_eq!(line(), prints(first));
        // One signed by an unknown authority comes first.
        let other = CellKeys::of(dir.path().join("other"));
        other.authority().make("a.org", SystemTime::now()).unwrap();
        let stranger = [other.authority().certificates().unwrap(), first.clone()].concat();
        assert_eq!(known.judge("a.org", &stranger), Ok(()));
        assert_eq!(line(), prints(first), "it is not remembered");
        assert!(known.judge("a.org", &stranger[..1]).is_err());
        assert_eq!(known.judge("a.org", third), Ok(()), "two at once");
        assert_eq!(line(), prints(third));
        assert_eq!(known.judge("a.org", first), Ok(()), "a server that has not heard");
        assert_eq!(line(), prints(third));
        assert_eq!(keys.authority().retire().unwrap(), 2);
        let left = keys.authority().certificates().unwrap();
        assert_eq!(known.judge("a.org", &left), Ok(()));
        assert_eq!(line(), prints(&third[..1]));
        assert!(known.judge("a.org", first).unwrap_err().contains("may intercept"));
        assert_eq!(keys.authority().retire().unwrap(), 0);
    }

    #[test]
    fn what_is_stated_is_one_thing() {
        let print = Fingerprint([1; 32]).to_string();
        assert!(matches!(stated(None, Some(&print)), Ok(Some(Trust::Pinned(_)))));
        assert!(matches!(stated(None, None), Ok(None)));
        assert!(stated(Some(Path::new("/absent")), None).is_err());
        assert!(stated(Some(Path::new("/x")), Some(&print)).is_err());
        assert!(stated(None, Some("sha256:1")).is_err());
    }
}
