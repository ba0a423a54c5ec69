//! The cell's rules, with the servers' keys, when it is not in this server: all of them in
//! memory, fetched whenever one changed, and in a file, so that a server that starts while it
//! cannot reach the database refuses the callers that it refused before (`docs/spec/access.md`,
//! *Fences*).
//!
//! The file: its format, the revision, fences, mandates and servers' keys in records as in answers,
//! each with its length in front, and a checksum. It is replaced as a whole, and written before
//! rules are in force.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dafs::codec::{decode_answer_record, encode_answer_record};
use guard::{Rules, ServerKeys};
use parking_lot::RwLock;
use serde_json::json;
use types::{Answer, Changed, KeyPrint, Revised, Revision, ServerId, ServerInfo, ServerRoles};

/// The first bytes of the file.
const MAGIC: &[u8] = b"rialto rules 1\n";
/// Rules in one record of it.
const IN_RECORD: usize = 100;

/// See the head of the file. Revision 0: they were never fetched.
#[derive(Default)]
pub(crate) struct FetchedRules {
    rules: RwLock<Arc<Revised<Rules>>>,
    at: AtomicU64,
    /// By this process: the rules are not only those of the file.
    fetched: AtomicBool,
    file: Option<PathBuf>,
}

impl FetchedRules {
    pub fn at(&self) -> Revision {
        Revision(self.at.load(Ordering::Acquire))
    }

    pub fn rules(&self) -> Arc<Revised<Rules>> {
        Arc::clone(&self.rules.read())
    }

    /// May these changes concern rules? `None`: unknown changes.
    pub fn is_touched_by(&self, changes: Option<&[(Revision, Changed)]>) -> bool {
        let is_rule = |changed: &Changed| matches!(changed, Changed::Rules | Changed::Server(_));
        let of_rules =
            |all: &[(Revision, Changed)]| all.iter().any(|(_, changed)| is_rule(changed));
        !self.fetched.load(Ordering::Acquire) || changes.is_none_or(of_rules)
    }

    /// Stores the rules in this file from now on, and begins with those in it.
    pub fn keep_in(&mut self, file: PathBuf) {
        match fs::read(&file) {
            Ok(bytes) => match decode(&bytes) {
                Some((rules, revision)) => self.set(rules, revision),
                None => {
                    tracing::error!(file = %file.display(), "the stored rules are \
                        damaged, and not used");
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::error!(%error, file = %file.display(), "the stored rules cannot \
                    be read");
            }
        }
        self.file = Some(file);
    }

    /// Takes fetched rules: into the file before they are in force.
    pub fn renew(&self, rules: Rules, revision: Revision) {
        if let Some(file) = &self.file
            && let Err(error) = keep(file, &encode(&rules, revision))
        {
            tracing::error!(%error, file = %file.display(), "the cell's rules cannot be stored for \
                a start without the database");
        }
        self.set(rules, revision);
        self.fetched.store(true, Ordering::Release);
    }

    fn set(&self, record: Rules, revision: Revision) {
        // A database without any change is at revision 0, but the rules were fetched.
        let revision = revision.max(Revision(1));
        *self.rules.write() = Arc::new(Revised { record, revision });
        self.at.store(revision.0, Ordering::Release);
    }
}

fn encode(rules: &Rules, revision: Revision) -> Vec<u8> {
    let fences = rules
        .fences
        .chunks(IN_RECORD)
        .map(|part| Answer::Fences { fences: part.to_vec(), end: true });
    let mandates = rules
        .mandates
        .chunks(IN_RECORD)
        .map(|part| Answer::Mandates { mandates: part.to_vec(), end: true });
    let servers =
        rules.servers.iter().map(|(key, server)| Answer::Servers(vec![key_record(key, server)]));
    let limits: Vec<_> = rules.servers.limits().collect();
    let roles = (!limits.is_empty()).then(|| Answer::Report(roles_text(&limits)));
    let mut bytes = [MAGIC, &revision.0.to_le_bytes()].concat();
    for answer in fences.chain(mandates).chain(servers).chain(roles) {
        let record = encode_answer_record(&answer);
        bytes.extend((record.len() as u32).to_le_bytes());
        bytes.extend(record);
    }
    let sum = crc32c::crc32c(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// Roles of servers as text: a JSON array of objects with `id` and `roles`.
pub fn roles_text(limits: &[(ServerId, ServerRoles)]) -> String {
    let all: Vec<_> = limits
        .iter()
        .map(|(id, roles)| json!({ "id": id.to_string(), "roles": roles.to_string() }))
        .collect();
    serde_json::Value::from(all).to_string()
}

/// From such a text. A role that this program does not know counts for nothing.
pub(crate) fn roles_of(text: &str) -> Option<Vec<(ServerId, ServerRoles)>> {
    let all: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
    let one = |one: &serde_json::Value| {
        let known = one["roles"].as_str()?.split(',').filter_map(|role| role.parse().ok());
        Some((one["id"].as_str()?.parse().ok()?, known.fold(ServerRoles::NONE, ServerRoles::with)))
    };
    all.iter().map(one).collect()
}

/// A key, as the record of a server that has nothing else.
fn key_record(key: KeyPrint, id: ServerId) -> Revised<ServerInfo> {
    let record = ServerInfo { id, name: String::new(), addresses: Vec::new(), keys: vec![key] };
    Revised { record, revision: Revision(0) }
}

fn decode(bytes: &[u8]) -> Option<(Rules, Revision)> {
    let (bytes, sum) = bytes.split_last_chunk::<4>()?;
    if crc32c::crc32c(bytes) != u32::from_le_bytes(*sum) {
        return None;
    }
    let (revision, mut rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    let (mut rules, mut servers, mut roles) = (Rules::default(), Vec::new(), Vec::new());
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let (record, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        match decode_answer_record(record).ok()? {
            Answer::Fences { fences, .. } => rules.fences.extend(fences),
            Answer::Mandates { mandates, .. } => rules.mandates.extend(mandates),
            Answer::Report(text) => roles = roles_of(&text)?,
            Answer::Servers(some) => servers.extend(some.into_iter().map(|seen| seen.record)),
            _ => return None,
        }
        rest = behind;
    }
    rules.servers = ServerKeys::of(&servers).limited(roles);
    rest.is_empty().then_some((rules, Revision(u64::from_le_bytes(*revision))))
}

fn keep(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(file).is_ok_and(|kept| kept == bytes) {
        return Ok(());
    }
    let draft = file.with_extension("new");
    let mut to = File::create(&draft)?;
    to.write_all(bytes)?;
    to.sync_all()?;
    fs::rename(&draft, file)?;
    file.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use types::{Fence, Mandate, PrincipalId, Realm, Whom};

    use super::*;

    fn rules(count: u64) -> Rules {
        let fence = |number| Fence {
            number,
            whom: Whom::User(PrincipalId(7)),
            since: 1,
            until: 0,
            why: "because".to_owned(),
            by: PrincipalId(2),
        };
        let realm = || Realm::Volumes("home.*".to_owned());
        let mandate = |number| Mandate {
            number,
            principal: PrincipalId(7),
            realm: realm(),
            by: PrincipalId(2),
        };
        let servers: Vec<_> = (1..=count)
            .map(|n| key_record(KeyPrint([n as u8; 32]), ServerId(n.into())).record)
            .collect();
        Rules {
            fences: (1..=count).map(fence).collect(),
            mandates: (1..=count).map(mandate).collect(),
            servers: ServerKeys::of(&servers).limited([(ServerId(1), ServerRoles::FILE)]),
        }
    }

    #[test]
    fn rules_in_the_file_are_used_again_unless_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rules");
        let mut first = FetchedRules::default();
        first.keep_in(file.clone());
        assert_eq!(first.at(), Revision(0));
        first.renew(rules(250), Revision(9));
        let mut next = FetchedRules::default();
        next.keep_in(file.clone());
        assert_eq!((next.at(), next.rules().record.fences.len()), (Revision(9), 250));
        assert_eq!(next.rules().record.mandates, rules(250).mandates);
        assert_eq!(next.rules().record.servers, rules(250).servers);
        assert!(next.is_touched_by(Some(&[])), "they are fetched again all the same");
        next.renew(rules(1), Revision(10));
        assert!(!next.is_touched_by(Some(&[])));
        let bytes = fs::read(&file).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(decode(&damaged).is_none() && decode(&bytes[..at]).is_none(), "{at}");
        }
    }
}
