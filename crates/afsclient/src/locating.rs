//! Where the cell's volumes are, and which servers answer.
//!
//! Model: the place of a volume is asked of the location database once, and again when a server
//! says that it does not have the volume. A call goes to the sites in order: of a volume that can
//! be written there is one; of a replica the first site whose server answered last time is asked
//! first, and one that is silent or does not serve is passed over. A server that was silent is not
//! asked again for a while if another one has the volume.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afs3::locations::site_flag;
use afscell::{AfsCell, AfsCellError, AfsSite, AfsVolume};
use client::{CallError, Cancel};
use parking_lot::Mutex;
use types::{Fault, Name, VolumeId, VolumeKind};

use crate::faults::{Meaning, meaning};
use crate::servers::Trouble;

/// Endings of the names of replicas and backups. Source: AFS.
const READ_ONLY: &[u8] = b".readonly";
const BACKUP: &[u8] = b".backup";
/// Most volumes whose place is remembered; beyond it all are forgotten.
const KNOWN_MAX: usize = 10_000;
/// How long a server that was silent is passed over.
const PASSED_OVER: Duration = Duration::from_secs(30);
/// How long a busy volume, or one on its way, is waited for, and the pause between two attempts.
/// Source: OpenAFS's clients ask a busy volume again each 15 s, a hundred times; a mount's
/// applications wait for it.
const BUSY_PATIENCE: Duration = Duration::from_secs(60);
const MOVED_PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(500);
/// How often a sleeping call looks whether it was cancelled.
const POLL: Duration = Duration::from_millis(50);

/// One volume and its sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    pub id: VolumeId,
    /// The volume that can be written of its group.
    pub read_write: VolumeId,
    /// With the ending of its kind.
    pub name: Name,
    pub kind: VolumeKind,
    /// The addresses of the servers that have it.
    sites: Vec<Vec<Ipv4Addr>>,
}

/// See the head of the file.
pub(crate) struct Locations {
    cell: AfsCell,
    known: Mutex<HashMap<VolumeId, Arc<Located>>>,
    silent: Mutex<HashMap<Ipv4Addr, Instant>>,
    /// When servers answered last.
    answered: Mutex<HashMap<Ipv4Addr, Instant>>,
}

/// The name of the group and the kind that a volume's name means.
fn kind_of(name: &[u8]) -> (&[u8], VolumeKind) {
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
        sites: sites.map(|site| site.addresses.clone()).collect(),
    })
}

fn unreachable(error: &AfsCellError) -> CallError {
    tracing::warn!(%error, "the location database of a cell of AFS cannot be asked");
    CallError::TimedOut
}

impl Locations {
    pub fn new(cell: AfsCell) -> Locations {
        let (known, silent, answered) = Default::default();
        Locations { cell, known, silent, answered }
    }

    /// The volume of this name, as the database has it now.
    ///
    /// # Errors
    /// `NoVolume`; `TimedOut`: no database answers.
    pub fn find(&self, name: &Name) -> Result<Arc<Located>, CallError> {
        let (base, kind) = kind_of(name.as_bytes());
        let entry = self.cell.volume(base).map_err(|error| unreachable(&error))?;
        let found = entry.as_ref().and_then(|entry| located(entry, kind));
        self.learned(found)
    }

    /// The volume of this number, as it is known.
    ///
    /// # Errors
    /// As [`Locations::find`].
    pub fn volume(&self, id: VolumeId) -> Result<Arc<Located>, CallError> {
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

    /// The cell's database servers.
    pub fn databases(&self) -> &AfsCell {
        &self.cell
    }

    /// A server was silent, or answered.
    pub fn heard(&self, server: Ipv4Addr, answered: bool) {
        if answered {
            self.silent.lock().remove(&server);
            self.answered.lock().insert(server, Instant::now());
        } else {
            self.silent.lock().insert(server, Instant::now());
        }
    }

    /// Whether the server answered within this time.
    pub fn has_answered(&self, server: Ipv4Addr, within: Duration) -> bool {
        self.answered.lock().get(&server).is_some_and(|at| at.elapsed() < within)
    }

    fn is_silent(&self, server: Ipv4Addr) -> bool {
        self.silent.lock().get(&server).is_some_and(|since| since.elapsed() < PASSED_OVER)
    }

    /// The addresses to ask for a volume, in order: those of silent servers last.
    fn order(&self, volume: &Located) -> Vec<Ipv4Addr> {
        let mut all: Vec<Ipv4Addr> = volume.sites.iter().flatten().copied().collect();
        all.sort_by_key(|server| self.is_silent(*server));
        all
    }

    /// Makes a call where the volume is. `call` is made again after a refusal that asks for it.
    /// `is_question`: it may be made again although a server may have done it before. `moved` is
    /// told that the volume left a server.
    ///
    /// # Errors
    /// The service's refusal, or why there is no answer.
    pub fn call<R>(
        &self,
        volume: VolumeId,
        is_question: bool,
        cancel: Option<&Cancel>,
        moved: impl Fn(),
        mut call: impl FnMut(Ipv4Addr) -> Result<R, Trouble>,
    ) -> Result<R, CallError> {
        let began = Instant::now();
        loop {
            let located = self.volume(volume)?;
            let mut next = Next::Elsewhere;
            for server in self.order(&located) {
                if cancel.is_some_and(Cancel::is_cancelled) {
                    return Err(CallError::Cancelled);
                }
                let result = call(server);
                // The call ended for that, and not by the server.
                if is_question && result.is_err() && cancel.is_some_and(Cancel::is_cancelled) {
                    return Err(CallError::Cancelled);
                }
                self.heard(server, !matches!(result, Err(Trouble::Silent)));
                let trouble = match result {
                    Ok(result) => return Ok(result),
                    Err(trouble) => trouble,
                };
                next = match trouble {
                    Trouble::Cancelled => return Err(CallError::Cancelled),
                    Trouble::NoToken => return Err(Fault::TokenExpired.into()),
                    Trouble::Odd => return Err(CallError::Unreadable),
                    Trouble::Silent if !is_question => return Err(CallError::TimedOut),
                    Trouble::Silent => next.or(Next::Never(CallError::TimedOut)),
                    Trouble::Code(code) => match meaning(code) {
                        Meaning::Refused(fault) => return Err(fault.into()),
                        Meaning::Elsewhere => next,
                        Meaning::Later => Next::Later,
                        Meaning::NotServed => next.or(Next::Never(Fault::Offline.into())),
                    },
                };
            }
            let patience = match next {
                Next::Never(error) => return Err(error),
                Next::Later => BUSY_PATIENCE,
                Next::Elsewhere => {
                    self.known.lock().remove(&volume);
                    moved();
                    MOVED_PATIENCE
                }
            };
            if began.elapsed() >= patience {
                let fault = if matches!(next, Next::Later) { Fault::Busy } else { Fault::NoVolume };
                return Err(fault.into());
            }
            // A volume that moved is elsewhere at once.
            let is_first = began.elapsed() < PAUSE && matches!(next, Next::Elsewhere);
            sleep(if is_first { POLL } else { PAUSE }, cancel)?;
        }
    }
}

/// The reason why no site answered a call.
enum Next {
    /// None of the servers has the volume.
    Elsewhere,
    /// A server asks for patience.
    Later,
    /// None will.
    Never(CallError),
}

impl Next {
    /// A server that asks for patience will serve, whatever others do.
    fn or(self, other: Next) -> Next {
        if matches!(self, Next::Later) { self } else { other }
    }
}

fn sleep(pause: Duration, cancel: Option<&Cancel>) -> Result<(), CallError> {
    let until = Instant::now() + pause;
    while Instant::now() < until {
        if cancel.is_some_and(Cancel::is_cancelled) {
            return Err(CallError::Cancelled);
        }
        std::thread::sleep(POLL.min(pause));
    }
    Ok(())
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
        located.sites.iter().flatten().map(|address| address.octets()[3]).collect()
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
