//! The configuration of a cell's server, which is `cell.toml`: its form, and what it may not be.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use guard::Network;
use serde::{Deserialize, Serialize};
use types::AFS_FILE_PORT;

/// Bytes of a cell's name: the limit of a DNS domain.
const CELL_NAME_BYTES_MAX: usize = 253;

/// The content of `cell.toml`. A field that is `None` is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellConfig {
    /// The cell's name, which clients compare.
    pub name: String,
    /// Where the server listens for TCP. `None`: it does not.
    pub listen: Option<SocketAddr>,
    /// The only partition, relative to the cell's directory or absolute.
    pub partition: Option<PathBuf>,
    /// Instead of `partition`: several. The first has the sessions and the root of the tree, so it
    /// stays the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<PathBuf>,
    /// The Unix socket, relative or absolute as well.
    pub socket: PathBuf,
    /// The Unix socket for users of this machine, relative or absolute as well, or `none` [default:
    /// `/run/rialto/CELL.sock` of root's server, otherwise `users/server.sock`].
    #[serde(rename = "users-socket")]
    pub users_socket: Option<PathBuf>,
    /// The server's name in its cell; `None`: the machine's name.
    pub server: Option<String>,
    /// Addresses at which others reach this server; empty: where it listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<SocketAddr>,
    /// The server that has the cell database, as `HOST:PORT`; `None`: this one has it.
    pub database: Option<String>,
    /// How many seconds cached identities of users are valid while the database does not answer;
    /// after that users are refused [default: 600].
    pub cell_away_max: Option<u32>,
    /// Whether the server compresses snapshots and copies on its partitions, where the file system
    /// below does not.
    pub compress: Option<Compress>,
    /// Whether bodies of new volumes are encrypted on the disk, with keys of `keys/at-rest`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypt: bool,
    /// Whether the server accepts clear text from clients that request it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clear: bool,
    /// Trusted hosts, as networks (`10.1.0.0/16`): a connection from there is trusted from a
    /// reserved port (below 1024), or with a host certificate. Users of other hosts log in.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "networks")]
    pub trusted: Vec<Network>,
    /// Whether root of a trusted host is root of the cell's files; otherwise it is *nobody*.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted_root: bool,
    /// Used instead of a certificate by the cell's own authority.
    pub certificate: Option<CertificateFiles>,
    /// Logins with Kerberos tickets; `None`: not accepted.
    pub kerberos: Option<Kerberos>,
    /// Where AFS's own clients are served; `None`: nowhere.
    pub afs: Option<AfsClients>,
    /// Where copies of the audit log are sent.
    pub audit: Option<AuditCopies>,
    /// The source of keys of encrypted volumes, instead of `keys/at-rest`.
    #[serde(rename = "at-rest")]
    pub at_rest: Option<KeyServer>,
    /// The members of etcd, where etcd has the cell database; `None`: a server has it.
    pub etcd: Option<celldb::EtcdConfig>,
    /// Partitions whose disks are not well.
    pub health: Option<HealthRules>,
    /// Limits of each session, each host and the whole server, where they differ from the defaults.
    pub limits: Option<server::ServerLimits>,
}

/// Forwarding of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditCopies {
    /// `/dev/log`, or another datagram socket of this machine, or `udp:HOST:PORT`.
    pub forward: server::ForwardTo,
}

/// Partitions whose disks are not well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealthRules {
    /// Whether the server moves the volumes of such partitions away by itself.
    #[serde(default)]
    pub evacuate: Evacuates,
}

/// Which partitions a server evacuates by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evacuates {
    /// None.
    #[default]
    Never,
    /// Those whose disks report errors.
    Failing,
    /// Those whose disks report errors, or flush slowly.
    Slow,
}

/// A key server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyServer {
    /// Run with `newest` or the number of a key as argument; prints `NUMBER HEX`: the key's number
    /// and 64 hexadecimal digits.
    pub command: Vec<String>,
}

/// The cell's service in a Kerberos realm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kerberos {
    /// The keys of `rialto/CELL` (or `afs/CELL`), as `kadmin ktadd` writes them. Relative to the
    /// cell's directory, or absolute.
    pub keytab: PathBuf,
    /// The realm whose users are the cell's, by the same name; others are `user@realm` [default:
    /// the cell's name in capitals].
    pub realm: Option<String>,
    /// Whether a user without a principal is created at the first login.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub create: bool,
}

/// The ports for AFS's own clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AfsClients {
    /// The address, on which UDP ports 7000, 7002, 7003, 7005 and 7007 are opened.
    pub listen: Ipv4Addr,
    /// The keys of `afs/CELL`: a keytab, or OpenAFS's `KeyFileExt` or `KeyFile`. Relative to the
    /// cell's directory, or absolute. `None`: all of its clients are anonymous.
    pub keys: Option<PathBuf>,
    /// The realm whose users are the cell's, by the same name; others are `user@realm` [default:
    /// the cell's name in capitals].
    pub realm: Option<String>,
    /// The database servers of a cell of this name that has OpenAFS's databases: this server enters
    /// itself there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub databases: Vec<Ipv4Addr>,
}

/// A given certificate. Paths are relative to the cell's directory, or absolute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateFiles {
    /// The certificate followed by those of its authorities, in PEM.
    pub chain: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// The authority that signed it. Another certificate of this authority is a host certificate,
    /// and makes no server.
    pub authority: PathBuf,
}

/// Compression of snapshots and copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compress {
    /// Not at all.
    None,
    /// Zstandard.
    Zstd,
}

/// Limit of `cell_away_max`: a revocation that does not reach a server must take effect within this
/// time.
const CELL_AWAY_SECS_MAX: u32 = 86_400;

/// (De)serializes networks as text.
mod networks {
    use guard::Network;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// # Errors
    /// The serializer's error.
    pub fn serialize<S: Serializer>(networks: &[Network], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(networks.iter().map(ToString::to_string))
    }

    /// # Errors
    /// Text that is no network.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Network>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts
            .iter()
            .map(|text| text.parse().map_err(|_| D::Error::custom(format!("{text} is no network"))))
            .collect()
    }
}

impl CellConfig {
    /// Parses `cell.toml`; an error is a message for people.
    pub(crate) fn parse(text: &str) -> Result<CellConfig, String> {
        let config: CellConfig =
            toml::from_str(text).map_err(|error| error.to_string().trim().replace('\n', " "))?;
        check_name(&config.name)?;
        if config.listen.iter().chain(&config.addresses).any(|at| at.port() == AFS_FILE_PORT) {
            return Err(format!(
                "port {AFS_FILE_PORT} is that of AFS's file servers: listen on another one"
            ));
        }
        check_partitions(&config)?;
        config.database.as_deref().map_or(Ok(()), check_database)?;
        config.etcd.as_ref().map_or(Ok(()), celldb::EtcdConfig::check)?;
        if config.database.is_some() && config.etcd.is_some() {
            return Err("database names the server that has the cell's database, and [etcd] says \
                        that etcd has it: remove one of them"
                .to_owned());
        }
        if config.cell_away_max.is_some_and(|secs| !(1..=CELL_AWAY_SECS_MAX).contains(&secs)) {
            return Err(format!(
                "cell_away_max is in seconds, from 1 to {CELL_AWAY_SECS_MAX} (a day)"
            ));
        }
        if config.at_rest.as_ref().is_some_and(|server| server.command.is_empty()) {
            return Err("[at-rest]: command is empty".to_owned());
        }
        config.limits.map_or(Ok(()), |limits| limits.check())?;
        Ok(config)
    }

    /// Is the cell's database in the directory of this server?
    pub fn has_database(&self) -> bool {
        self.database.is_none() && self.etcd.is_none()
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.partition.iter().chain(&self.partitions)
    }

    /// Returns the text for `cell.toml`.
    pub(crate) fn text(&self) -> String {
        toml::to_string(self).expect("strings, paths and an address are valid TOML")
    }
}

/// Checks the cell's name, which must have the form of a DNS domain: tables and logs show it, and
/// paths contain it.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if (1..=CELL_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(letters) {
        return Ok(());
    }
    Err(format!(
        "{name:?} cannot name a cell: a name has 1 to {CELL_NAME_BYTES_MAX} letters, digits, \
            dots, hyphens and underscores"
    ))
}

fn check_database(text: &str) -> Result<(), String> {
    crate::ask::endpoint(text).map(drop).map_err(|why| format!("database = {text:?}: {why}"))
}

fn check_partitions(config: &CellConfig) -> Result<(), String> {
    if config.partition.is_some() != config.partitions.is_empty() {
        return Err("give either partition = \"DIR\" or partitions = [\"DIR\", ...]".to_owned());
    }
    let paths: Vec<_> = config.paths().collect();
    match paths.iter().enumerate().find(|(at, path)| paths[..*at].contains(path)) {
        Some((_, path)) => Err(format!("the partition {} is named twice", path.display())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m13_where_copies_of_the_audit_log_go_is_checked() {
        let parse = |audit: &str| {
            CellConfig::parse(&format!("name = \"x\"\nsocket = \"s\"\npartition = \"p\"\n{audit}"))
        };
        for good in ["/dev/log", "udp:logs.example.org:514"] {
            let config = parse(&format!("[audit]\nforward = \"{good}\"\n")).unwrap();
            assert_eq!(
                config.audit.as_ref().map(|audit| audit.forward.to_string()).as_deref(),
                Some(good)
            );
            assert_eq!(
                CellConfig::parse(&config.text()),
                Ok(config),
                "written again it is the same"
            );
        }
        for bad in
            ["forward = \"dev/log\"", "forward = \"udp:host\"", "forwards = \"/dev/log\"", ""]
        {
            assert!(parse(&format!("[audit]\n{bad}\n")).is_err(), "{bad}");
        }
        assert_eq!(parse("").unwrap().audit, None);
    }

    #[test]
    fn etcd_or_a_server_has_the_database() {
        let parse = |more: &str| {
            CellConfig::parse(&format!("name = \"x\"\nsocket = \"s\"\npartition = \"p\"\n{more}"))
        };
        let etcd = "[etcd]\nendpoints = [\"127.0.0.1:2379\"]\n";
        assert!(parse("").is_ok_and(|config| config.has_database()));
        let there = parse("database = \"192.0.2.1:7620\"\n");
        assert!(there.is_ok_and(|config| !config.has_database()));
        let in_etcd = parse(etcd).unwrap();
        assert!(!in_etcd.has_database());
        assert_eq!(CellConfig::parse(&in_etcd.text()), Ok(in_etcd));
        for (bad, why) in [
            (format!("database = \"192.0.2.1:7620\"\n{etcd}"), "remove one of them"),
            ("[etcd]\nendpoints = [\"192.0.2.1:2379\"]\n".to_owned(), "without TLS"),
            ("[etcd]\nendpoints = []\n".to_owned(), "lists its members"),
            (format!("{etcd}member = 1\n"), "member"),
        ] {
            let refused = parse(&bad).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_server_evacuates_only_where_its_configuration_says_so() {
        let parse = |more: &str| {
            let text = format!("name = \"x\"\nsocket = \"s\"\npartition = \"p\"\n{more}");
            CellConfig::parse(&text).map(|config| config.health.unwrap_or_default().evacuate)
        };
        assert_eq!(parse(""), Ok(Evacuates::Never));
        assert_eq!(parse("[health]\nevacuate = \"failing\"\n"), Ok(Evacuates::Failing));
        assert_eq!(parse("[health]\nevacuate = \"slow\"\n"), Ok(Evacuates::Slow));
        assert!(parse("[health]\nevacuate = true\n").is_err());
    }
}
