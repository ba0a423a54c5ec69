//! How connections between machines are secured: what a server shows, and whom a client believes.
//!
//! A client takes for a server of the cell who shows a certificate of the cell's authority. It knows that authority from its own directory (`keys/ca.pem`), from
//! `cells.toml`, or by its fingerprint in `known_cells`, where it is written on first use.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use client::Options;
use fabric::tls::{ClientTls, Fingerprint, ServerTls, Trust};
use keys::{CellKeys, KeyError, TokenKeys};
use login::{Mint, Service};
use server::ServerConfig;

use crate::cell::{CellDir, Kerberos};
use crate::failure::{Doing, Failure};

/// The environment's wish for clear text, for scripts that start many cells.
const CLEAR_VARIABLE: &str = "RIALTO_CLEAR";

/// Whether the environment asks for clear text.
pub fn clear_by_environment() -> bool {
    std::env::var_os(CLEAR_VARIABLE).is_some_and(|value| !value.is_empty() && value != "0")
}

/// How to connect to the server, or the cell, that is called `whom`, from the directory `dir`.
///
/// # Errors
/// When the system has no TLS.
pub fn options(dir: &Path, whom: &str, clear: bool) -> Result<Options, Failure> {
    let trust = if clear { None } else { Some(first_use(dir, whom)) };
    with(trust)
}

/// How to connect to servers that `trust` tells from others; none: in clear text.
///
/// # Errors
/// When the system has no TLS.
pub fn with(trust: Option<Trust>) -> Result<Options, Failure> {
    let tls = trust.map(|trust| ClientTls::new(trust, None)).transpose();
    let tls = tls.doing(|| "preparing TLS".to_owned())?;
    Ok(fabric::Options { tls, ..fabric::Options::default() }.into())
}

/// How to connect to servers of the cell in `dir`. Who can read a server's own key there is a server himself, and may do everything: as with OpenAFS's
/// `-localauth`.
///
/// # Errors
/// When the system has no TLS.
pub fn as_server(dir: &Path, cell: &str, clear: bool) -> Result<Options, Failure> {
    match with_keys(&CellKeys::of(dir.join("keys"))) {
        Ok(options) if !clear => Ok(options),
        _ => options(dir, cell, clear),
    }
}

/// How a server with these keys connects to the others of its cell.
///
/// # Errors
/// Keys that are not there, or that who asks may not read.
pub fn with_keys(keys: &CellKeys) -> Result<Options, KeyError> {
    let tls = ClientTls::new(Trust::Authorities(keys.authorities()?), Some(keys.shown()?));
    let tls = tls.map_err(|error| KeyError { path: "TLS".to_owned(), why: error.to_string() })?;
    Ok(fabric::Options { tls: Some(tls), ..fabric::Options::default() }.into())
}

/// Who makes and believes tokens of the cell. The server that has the cell's database makes the first key that signs them; others have a copy.
///
/// # Errors
/// A key that cannot be made.
pub fn mint(cell: &CellDir) -> Result<Arc<Mint>, Failure> {
    let keys = TokenKeys::of(cell.dir());
    let what = || "preparing the keys that sign tokens".to_owned();
    if cell.config.database.is_none() && keys.numbers().doing(what)?.is_empty() {
        keys.make().doing(what)?;
    }
    Ok(Arc::new(Mint::new(&cell.config.name, Arc::new(keys))))
}

/// Who looks at Kerberos tickets for the cell; `None`: nobody.
///
/// # Errors
/// A keytab that cannot be used.
pub fn kerberos(cell: &CellDir) -> Result<Option<Arc<Service>>, Failure> {
    let Some(Kerberos { keytab, realm, create }) = &cell.config.kerberos else { return Ok(None) };
    let keytab = cell.dir().join(keytab);
    let realm = realm.clone().unwrap_or_else(|| cell.config.name.to_uppercase());
    let service = Service::new(&keytab, &realm, *create).map_err(|error| {
        Failure::new(format!("reading the keytab {}", keytab.display()), error)
            .mend("'klist -k FILE' shows what is in one; 'kadmin -q \"ktadd -k FILE rialto/CELL\"' writes it")
    })?;
    Ok(Some(Arc::new(service)))
}

/// The authority of the cell in `dir`, or the one that is known by this name, or else the first that is shown.
fn first_use(dir: &Path, whom: &str) -> Trust {
    let own = CellKeys::of(dir.join("keys")).fingerprint().ok();
    let known = KnownCells { file: dir.join("known_cells") };
    let whom = whom.to_owned();
    Trust::Asked(Arc::new(move |print| if own == Some(*print) { Ok(()) } else { known.judge(&whom, print) }))
}

/// A file of lines `NAME sha256:...`.
struct KnownCells {
    file: PathBuf,
}

impl KnownCells {
    fn judge(&self, whom: &str, shown: &Fingerprint) -> Result<(), String> {
        let file = self.file.display();
        let text = match std::fs::read_to_string(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{file}: {error}")),
        };
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let Some((_, known)) = lines.into_iter().find(|(name, _)| *name == whom) else {
            return self.remember(whom, shown);
        };
        if known.trim().parse() == Ok(*shown) {
            return Ok(());
        }
        Err(format!(
            "the authority of {whom} has the fingerprint {shown}, known is {known}. Somebody may be in between. If the cell was made anew, take its line out of {file}"
        ))
    }

    fn remember(&self, whom: &str, shown: &Fingerprint) -> Result<(), String> {
        let written = self.file.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&self.file)?;
            file.write_all(format!("{whom} {shown}\n").as_bytes())
        });
        written.map_err(|error| format!("{}: {error}", self.file.display()))?;
        eprintln!("rialto: {whom} is known from now on by its authority's fingerprint, {shown}");
        Ok(())
    }
}

/// What `cells.toml` says of a cell's authority: a file of certificates, or a fingerprint.
///
/// # Errors
/// For people.
pub fn stated(ca: Option<&Path>, fingerprint: Option<&str>) -> Result<Option<Trust>, String> {
    match (ca, fingerprint) {
        (Some(_), Some(_)) => Err("say either ca or fingerprint".to_owned()),
        (Some(ca), None) => {
            keys::authorities_in(ca).map(|all| Some(Trust::Authorities(all))).map_err(|error| error.to_string())
        }
        (None, Some(print)) => Ok(Some(Trust::Pinned(print.parse()?))),
        (None, None) => Ok(None),
    }
}

/// What the server of `cell` shows, and how it connects to the others. Nothing where it does not listen in the network.
///
/// # Errors
/// Keys that cannot be made or read.
pub fn secure_server(cell: &CellDir, config: &mut ServerConfig) -> Result<Option<Renewal>, Failure> {
    let elsewhere = cell.config.database.is_some();
    if cell.config.listen.is_none() && !elsewhere {
        return Ok(None);
    }
    let renewal = Renewal::new(cell);
    let (identity, authorities) = renewal.load().doing(|| "preparing this server's keys".to_owned())?;
    let what = || "preparing TLS".to_owned();
    let client = ClientTls::new(Trust::Authorities(authorities.clone()), Some(identity.clone())).doing(what)?;
    let tls = Arc::new(ServerTls::new(identity, &authorities).doing(what)?);
    config.tls = Some(Arc::clone(&tls));
    config.clear = cell.config.clear;
    config.options.connection.tls = Some(client);
    Ok(Some(renewal))
}

/// A server's certificate, over time.
pub struct Renewal {
    keys: CellKeys,
    given: Option<(PathBuf, PathBuf, PathBuf)>,
    makes_authority: Option<String>,
    names: Vec<String>,
}

type Loaded = (fabric::tls::Identity, Vec<fabric::tls::pki_types::CertificateDer<'static>>);

impl Renewal {
    fn new(cell: &CellDir) -> Renewal {
        let given = cell.config.certificate.as_ref().map(|given| {
            let file = |path: &Path| cell.dir().join(path);
            (file(&given.chain), file(&given.key), file(&given.authority))
        });
        let makes_authority = cell.config.database.is_none().then(|| cell.config.name.clone());
        Renewal { keys: cell.keys(), given, makes_authority, names: names(cell) }
    }

    fn load(&self) -> Result<Loaded, KeyError> {
        if let Some((chain, key, authority)) = &self.given {
            return Ok((keys::identity_in(chain, key)?, keys::authorities_in(authority)?));
        }
        let now = SystemTime::now();
        if let Some(cell) = &self.makes_authority {
            self.keys.make_authority(cell, now)?;
        }
        Ok((self.keys.identity(&self.names, now)?.0, self.keys.authorities()?))
    }

    /// Shows what is new from the next connection on.
    pub fn renew(&self, tls: &ServerTls) {
        let renewed = self
            .load()
            .map_err(|error| error.to_string())
            .and_then(|(identity, authorities)| tls.replace(identity, &authorities).map_err(|error| error.to_string()));
        if let Err(error) = renewed {
            tracing::error!(error, "this server's certificate cannot be renewed");
        }
    }
}

/// What clients may call this server.
fn names(cell: &CellDir) -> Vec<String> {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let ip = |ip: IpAddr| (!ip.is_unspecified()).then(|| ip.to_string());
    let addresses = cell.config.listen.iter().chain(&cell.config.addresses).filter_map(|address| ip(address.ip()));
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
    fn a_cell_is_remembered_and_another_fingerprint_is_refused_with_both() {
        let dir = tempfile::tempdir().unwrap();
        let known = KnownCells { file: dir.path().join("known_cells") };
        let (one, two) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        assert_eq!(known.judge("a.org", &one), Ok(()));
        assert_eq!(known.judge("a.org", &one), Ok(()));
        assert_eq!(known.judge("b.org", &two), Ok(()));
        let refused = known.judge("a.org", &two).unwrap_err();
        assert!(refused.contains(&one.to_string()) && refused.contains(&two.to_string()), "{refused}");
        assert!(refused.contains("known_cells"), "{refused}");
        assert_eq!(std::fs::read_to_string(&known.file).unwrap().lines().count(), 2);
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
