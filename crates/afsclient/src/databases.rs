//! The databases of the cell: where its volumes are, its users and groups, and logins.
//!
//! Model: a session is of one of two sorts, and [`CellDatabases`] is what differs between them.
//!
//! - A *foreign cell* has databases of AFS ([`ForeignDatabases`]). The place of a volume is asked
//!   of the location database once, and again when a server says that it does not have it.
//! - *One server* of a cell of Rialto (`own_server.rs`): all volumes are looked for there alone,
//!   and one that is not there is the business of the client above, which asks the cell.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use afs3::locations::site_flag;
use afs3::protection::{PrIds, PrNames, ProtectionAnswer, ProtectionCall};
use afs3::xdr::Chars;
use afscell::{AfsCell, AfsCellError, AfsSite, AfsVolume};
use client::{CallError, Cancel};
use parking_lot::Mutex;
use serde_json::json;
use types::{
    Answer, Call, Caller, Fault, Name, PrincipalId, PtsCall, ServerInfo, VolumeId, VolumeKind,
    VolumeState, WhichVolume,
};

use crate::users::AfsUsers;

/// Endings of the names of replicas and backups. Source: AFS.
pub(crate) const READ_ONLY: &[u8] = b".readonly";
pub(crate) const BACKUP: &[u8] = b".backup";
/// Most volumes whose place is remembered; beyond it all are forgotten.
const KNOWN_MAX: usize = 10_000;
/// Names of one question: a list has 20.
const NAMES_MAX: usize = 100;
/// How long a volume on its way is looked for.
const MOVED_PATIENCE: Duration = Duration::from_secs(5);
/// The number of a volume's state, where AFS does not count them.
pub(crate) const EPOCH: u64 = 1;

/// One volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    pub id: VolumeId,
    /// The volume that can be written of its group.
    pub read_write: VolumeId,
    /// With the ending of its kind.
    pub name: Name,
    pub kind: VolumeKind,
    /// The number of its state.
    pub epoch: u64,
    /// The addresses of the servers that have it.
    pub sites: Vec<Ipv4Addr>,
}

/// See the head of the file.
pub(crate) trait CellDatabases: Send + Sync {
    /// The volume of this name, as the database has it now, or of this number, as it is known.
    ///
    /// # Errors
    /// `NoVolume`; why no database answers.
    fn find(&self, which: &WhichVolume) -> Result<Arc<Located>, CallError>;

    /// The addresses to ask for a volume.
    ///
    /// # Errors
    /// As [`CellDatabases::find`].
    fn sites(&self, volume: VolumeId) -> Result<Vec<Ipv4Addr>, CallError>;

    /// None of the sites has the volume. Returns how long it is looked for again.
    fn not_there(&self, volume: VolumeId) -> Duration;

    /// The state of a volume that was found; `ask` asks the server that has it.
    ///
    /// # Errors
    /// Those of `ask`.
    fn state(
        &self,
        ask: &dyn Fn() -> Result<VolumeState, CallError>,
    ) -> Result<VolumeState, CallError>;

    /// A question about users and groups.
    ///
    /// # Errors
    /// `Unsupported`; the database's refusal, or why it does not answer.
    fn principals(
        &self,
        caller: &Caller,
        call: &PtsCall,
        cancel: Option<&Cancel>,
    ) -> Result<Answer, CallError>;

    /// A login, or a question for the caller's identity.
    ///
    /// # Errors
    /// The refusal, or why there is no answer.
    fn about_caller(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Answer, CallError>;

    /// The server of a session with one.
    fn server(&self) -> Option<&ServerInfo>;
}

/// The name of the group and the kind that a volume's name means.
pub(crate) fn kind_of(name: &[u8]) -> (&[u8], VolumeKind) {
    if let Some(base) = name.strip_suffix(READ_ONLY) {
        (base, VolumeKind::ReadOnly)
    } else if let Some(base) = name.strip_suffix(BACKUP) {
        (base, VolumeKind::Backup)
    } else {
        (name, VolumeKind::ReadWrite)
    }
}

/// The volume of this kind in an entry; `None`: there is none, or its name is none.
fn located(entry: &AfsVolume, kind: VolumeKind) -> Option<Located> {
    let has = |flag: i32| move |site: &&AfsSite| site.is(flag);
    let (id, ending, flag) = match kind {
        VolumeKind::ReadWrite => (entry.read_write?, &b""[..], site_flag::RW),
        VolumeKind::ReadOnly => (entry.read_only?, READ_ONLY, site_flag::RO),
        VolumeKind::Backup => (entry.backup?, BACKUP, site_flag::RW),
        VolumeKind::Snapshot => return None,
    };
    let all: Vec<&AfsSite> =
        entry.sites.iter().filter(has(flag)).filter(|site| !site.is(site_flag::DONT_USE)).collect();
    // While a release is under way the sites that have the new state are flagged.
    let is_partial =
        kind == VolumeKind::ReadOnly && all.iter().any(|site| site.is(site_flag::NEW_REPLICA));
    let sites = all.iter().filter(|site| !is_partial || site.is(site_flag::NEW_REPLICA));
    Some(Located {
        id: VolumeId(id.into()),
        read_write: VolumeId(entry.read_write.unwrap_or(id).into()),
        name: Name::new(&[&entry.name[..], ending].concat()).ok()?,
        kind,
        epoch: EPOCH,
        sites: sites.flat_map(|site| &site.addresses).copied().collect(),
    })
}

fn unreachable(error: &AfsCellError) -> CallError {
    tracing::warn!(%error, "the location database of a cell of AFS cannot be asked");
    CallError::TimedOut
}

/// The fault for a question to the protection database.
fn fault(error: &AfsCellError) -> CallError {
    match error {
        AfsCellError::Refused { .. } => Fault::AccessDenied.into(),
        AfsCellError::Silent { .. }
        | AfsCellError::Odd { .. }
        | AfsCellError::NoServer
        | AfsCellError::NoKey => Fault::CellAway.into(),
    }
}

/// The databases of a cell of AFS.
pub(crate) struct ForeignDatabases {
    name: String,
    cell: AfsCell,
    users: Arc<AfsUsers>,
    known: Mutex<HashMap<VolumeId, Arc<Located>>>,
}

impl ForeignDatabases {
    pub fn new(name: &str, cell: AfsCell, users: Arc<AfsUsers>) -> ForeignDatabases {
        ForeignDatabases { name: name.to_owned(), cell, users, known: Mutex::default() }
    }

    fn named(&self, name: &Name) -> Result<Arc<Located>, CallError> {
        let (base, kind) = kind_of(name.as_bytes());
        let entry = self.cell.volume(base).map_err(|error| unreachable(&error))?;
        let found = entry.as_ref().and_then(|entry| located(entry, kind));
        self.learned(found)
    }

    fn numbered(&self, id: VolumeId) -> Result<Arc<Located>, CallError> {
        if let Some(known) = self.known.lock().get(&id) {
            return Ok(Arc::clone(known));
        }
        let entry =
            self.cell.volume(id.0.to_string().as_bytes()).map_err(|error| unreachable(&error))?;
        let kinds = [VolumeKind::ReadWrite, VolumeKind::ReadOnly, VolumeKind::Backup];
        let found = entry.and_then(|entry| {
            kinds.into_iter().filter_map(|kind| located(&entry, kind)).find(|one| one.id == id)
        });
        self.learned(found)
    }

    fn learned(&self, found: Option<Located>) -> Result<Arc<Located>, CallError> {
        let found = Arc::new(found.ok_or(Fault::NoVolume)?);
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(found.id, Arc::clone(&found));
        Ok(found)
    }

    /// The names of these numbers; empty of those without.
    fn names(&self, ids: &[PrincipalId]) -> Result<Vec<String>, CallError> {
        if ids.len() > NAMES_MAX {
            return Err(Fault::Invalid.into());
        }
        let asked = PrIds::new(ids.iter().map(|id| id.0).collect()).map_err(|_| Fault::Invalid)?;
        let answer = self.cell.protection(&ProtectionCall::IDToName { ids: asked });
        let ProtectionAnswer::IDToName { names } = answer.map_err(|error| fault(&error))? else {
            return Err(CallError::Unreadable);
        };
        if names.as_slice().len() != ids.len() {
            return Err(CallError::Unreadable);
        }
        // Servers answer with the number itself if there is no name.
        let each = names.as_slice().iter().zip(ids).map(|(name, id)| {
            let name = String::from_utf8_lossy(name.text()).into_owned();
            if name == id.0.to_string() { String::new() } else { name }
        });
        Ok(each.collect())
    }

    /// The numbers of these names; [`PrincipalId::NONE`] of those without.
    fn numbers(&self, names: &[String]) -> Result<Vec<PrincipalId>, CallError> {
        if names.len() > NAMES_MAX {
            return Err(Fault::Invalid.into());
        }
        let chars = names.iter().map(|name| Chars::new(name.to_lowercase().as_bytes()));
        let Ok(chars) = chars.collect::<Result<Vec<_>, _>>() else {
            return Err(Fault::NoPrincipal.into());
        };
        let asked = PrNames::new(chars).map_err(|_| Fault::Invalid)?;
        let answer = self.cell.protection(&ProtectionCall::NameToID { names: asked });
        let ProtectionAnswer::NameToID { ids } = answer.map_err(|error| fault(&error))? else {
            return Err(CallError::Unreadable);
        };
        if ids.as_slice().len() != names.len() {
            return Err(CallError::Unreadable);
        }
        // Servers answer with the number of the anonymous user if there is no such name.
        let each = ids.as_slice().iter().zip(names).map(|(id, name)| {
            let id = PrincipalId(*id);
            let is_none = id == PrincipalId::ANONYMOUS && name != "anonymous";
            if is_none { PrincipalId::NONE } else { id }
        });
        Ok(each.collect())
    }

    /// The name of the cell, and the caller: where access lists decide its numbers mean nothing, so
    /// they are its own.
    fn report(&self, caller: &Caller) -> Answer {
        let report = json!({
            "server": { "cell": self.name },
            "you": { "uid": caller.uid, "gid": caller.gid, "groups": [], "level": "named" },
        });
        Answer::Report(report.to_string())
    }
}

impl CellDatabases for ForeignDatabases {
    fn find(&self, which: &WhichVolume) -> Result<Arc<Located>, CallError> {
        match which {
            WhichVolume::Id(id) => self.numbered(*id),
            WhichVolume::Name(name) => self.named(name),
        }
    }

    fn sites(&self, volume: VolumeId) -> Result<Vec<Ipv4Addr>, CallError> {
        Ok(self.numbered(volume)?.sites.clone())
    }

    fn not_there(&self, volume: VolumeId) -> Duration {
        self.known.lock().remove(&volume);
        MOVED_PATIENCE
    }

    /// The database vouches for it.
    fn state(
        &self,
        _: &dyn Fn() -> Result<VolumeState, CallError>,
    ) -> Result<VolumeState, CallError> {
        Ok(VolumeState::Online)
    }

    fn principals(
        &self,
        _: &Caller,
        call: &PtsCall,
        _: Option<&Cancel>,
    ) -> Result<Answer, CallError> {
        let names = match call {
            PtsCall::Names { ids } => {
                let names = self.names(ids)?;
                ids.iter().copied().zip(names).collect()
            }
            PtsCall::Numbers { names } => {
                let ids = self.numbers(names)?;
                ids.into_iter().zip(names.iter().cloned()).collect()
            }
            _ => return Err(Fault::Unsupported.into()),
        };
        Ok(Answer::Names { names, end: true })
    }

    fn about_caller(
        &self,
        caller: &Caller,
        call: Call,
        _: Option<&Cancel>,
    ) -> Result<Answer, CallError> {
        match call {
            Call::Auth { call, .. } => Ok(self.users.log_in(&self.name, &call)?),
            _ => Ok(self.report(caller)),
        }
    }

    fn server(&self) -> Option<&ServerInfo> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(last: u8, flags: i32) -> AfsSite {
        AfsSite { addresses: vec![Ipv4Addr::new(192, 0, 2, last)], flags }
    }

    fn entry(sites: Vec<AfsSite>) -> AfsVolume {
        AfsVolume {
            name: b"home".to_vec(),
            read_write: Some(7),
            read_only: Some(8),
            backup: None,
            sites,
        }
    }

    fn last_of(located: &Located) -> Vec<u8> {
        located.sites.iter().map(|address| address.octets()[3]).collect()
    }

    #[test]
    fn a_name_means_a_volume_of_its_kind() {
        let both =
            entry(vec![site(1, site_flag::RW), site(2, site_flag::RO), site(3, site_flag::RO)]);
        let rw = located(&both, VolumeKind::ReadWrite).unwrap();
        assert_eq!((rw.id, rw.name.as_bytes(), last_of(&rw)), (VolumeId(7), &b"home"[..], vec![1]));
        let ro = located(&both, VolumeKind::ReadOnly).unwrap();
        assert_eq!((ro.id, ro.read_write), (VolumeId(8), VolumeId(7)));
        assert_eq!((ro.name.as_bytes(), last_of(&ro)), (&b"home.readonly"[..], vec![2, 3]));
        assert_eq!(located(&both, VolumeKind::Backup), None);
        assert_eq!(kind_of(b"a.readonly"), (&b"a"[..], VolumeKind::ReadOnly));
        assert_eq!(kind_of(b"a.backup"), (&b"a"[..], VolumeKind::Backup));
    }

    #[test]
    fn replicas_that_are_not_to_be_used_are_none() {
        let (ro, new) = (site_flag::RO, site_flag::RO | site_flag::NEW_REPLICA);
        let unused = entry(vec![site(1, ro | site_flag::DONT_USE), site(2, ro)]);
        assert_eq!(last_of(&located(&unused, VolumeKind::ReadOnly).unwrap()), [2]);
        let released = entry(vec![site(1, ro), site(2, new)]);
        assert_eq!(last_of(&located(&released, VolumeKind::ReadOnly).unwrap()), [2]);
    }
}
