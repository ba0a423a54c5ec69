//! The one place that decides whether a caller may make a call at all (AC-4): before anything of
//! the call is read, each time that it is executed.

use std::collections::HashMap;
use std::sync::Arc;

use guard::{AdminScope, AdminStanding, Row, base_name, realm_has_name, realm_has_room, row};
use parking_lot::Mutex;
use types::{AuthLevel, Call, Caller, Fault, Name, Realm, SessionId, Timestamp, VolumeId};

use crate::cell::{CellLink, Identities, Rules};
use crate::sessions::Coherence;
use crate::volumes::Volumes;

/// See the head of the file.
pub(crate) struct Gate {
    rules: Arc<Rules>,
    identities: Arc<Identities>,
    cell: Arc<CellLink>,
    volumes: Arc<Volumes>,
    coherence: Arc<Coherence>,
    /// Realms of the callers that requested pulls and are no administrators of the cell, by the
    /// number of the tree.
    pull_realms: Mutex<HashMap<VolumeId, Vec<Realm>>>,
}

impl Gate {
    pub fn new(
        rules: Arc<Rules>,
        identities: Arc<Identities>,
        cell: Arc<CellLink>,
        volumes: Arc<Volumes>,
        coherence: Arc<Coherence>,
    ) -> Gate {
        Gate { rules, identities, cell, volumes, coherence, pull_realms: Mutex::default() }
    }

    /// Checks that the caller's credential has not ended, that its server key is still listed, that
    /// no fence refuses it, and that the call table allows it this call.
    ///
    /// # Errors
    /// `TokenExpired`; `Fenced`; `NotPermitted`; `CellAway`.
    pub fn need_row(
        &self,
        wall: Timestamp,
        caller: &Caller,
        session: SessionId,
        call: &Call,
    ) -> Result<(), Fault> {
        if caller.who.ends.is_some_and(|ends| ends <= wall) {
            return Err(Fault::TokenExpired);
        }
        self.rules.need_listed(caller)?;
        self.rules.need_role(caller, call)?;
        let client = || self.coherence.leases().sessions().owner(session).map(|(client, _)| client);
        self.rules.need_unfenced(wall, caller, client)?;
        let row = row(call);
        if row.is_open() || self.stands_for(caller, &row)? {
            Ok(())
        } else {
            Err(Fault::NotPermitted)
        }
    }

    fn stands_for(&self, caller: &Caller, row: &Row) -> Result<bool, Fault> {
        let nothing = |_: Option<&AdminScope>| false;
        let mut standing = AdminStanding {
            proved: caller.who.level.is_proved(),
            server: caller.is_superuser() || caller.who.level == AuthLevel::Server,
            enrolling: caller.who.level == AuthLevel::Enrolling,
            administrator: false,
            covers: &nothing,
        };
        // No look-up of principals where the level alone decides.
        if row.allows(&standing) {
            return Ok(true);
        }
        // An address alone makes no caller an administrator of a part of the cell.
        if *row == Row::Server
            || caller.who.level == AuthLevel::Host
                && matches!(row, Row::Administrator | Row::Enrolment | Row::Delegated(_))
        {
            return Ok(false);
        }
        let cps = self.identities.cps(caller)?;
        standing.administrator = cps.is_administrator();
        if row.allows(&standing) || !matches!(row, Row::Delegated(_)) {
            return Ok(row.allows(&standing));
        }
        let realms = self.rules.realms(&cps);
        let covers = |place: Option<&AdminScope>| self.covers(&realms, place);
        Ok(row.allows(&AdminStanding { covers: &covers, ..standing }))
    }

    /// Notes the caller of a pull for this tree: for a caller that is no administrator, the check
    /// waits until the other server has sent the volume's name.
    ///
    /// # Errors
    /// `CellAway`, `Medium`.
    pub fn note_pull(&self, caller: &Caller, tree: VolumeId) -> Result<(), Fault> {
        let superuser = caller.is_superuser() || caller.who.level == AuthLevel::Server;
        let cps = (!superuser).then(|| self.identities.cps(caller)).transpose()?;
        let mut pull_realms = self.pull_realms.lock();
        match cps.filter(|cps| !cps.is_administrator()) {
            Some(cps) => drop(pull_realms.insert(tree, self.rules.realms(&cps))),
            None => drop(pull_realms.remove(&tree)),
        }
        Ok(())
    }

    /// Whether the caller of the pull may fetch a volume with this name.
    pub fn may_pull(&self, tree: VolumeId, name: &Name) -> bool {
        let pull_realms = self.pull_realms.lock();
        pull_realms
            .get(&tree)
            .is_none_or(|realms| realms.iter().any(|realm| realm_has_name(realm, &text(name))))
    }

    /// Whether the realms contain a place; not if that cannot be looked up.
    fn covers(&self, realms: &[Realm], place: Option<&AdminScope>) -> bool {
        let me = self.cell.me().id;
        let has_name = |name: &str| realms.iter().any(|realm| realm_has_name(realm, name));
        let has_room = |partition: Option<&str>| {
            realms.iter().any(|realm| realm_has_room(realm, me, partition))
        };
        match place {
            None => !realms.is_empty(),
            Some(AdminScope::Server) => has_room(None),
            Some(AdminScope::Partition(None)) => has_room(None),
            Some(AdminScope::Partition(Some(no))) => {
                has_room(self.volumes.partitions().name_of(*no))
            }
            Some(AdminScope::Volume(id)) => {
                let Ok(volume) = self.volumes.any_volume(*id) else { return false };
                has_name(&text(&volume.store.name()))
                    || has_room(self.volumes.partitions().name_of(volume.no))
            }
            Some(AdminScope::Named(name)) => {
                has_name(&text(name)) || self.has_group(realms, Group::Named(name)) == Some(true)
            }
            // For a group that does not exist yet the name decides.
            Some(AdminScope::Group(number)) => {
                self.has_group(realms, Group::Number(*number)).unwrap_or(!realms.is_empty())
            }
        }
    }

    /// Whether the realms contain a group, by its name or all its sites; `None`: there is none.
    fn has_group(&self, realms: &[Realm], which: Group<'_>) -> Option<bool> {
        let db = self.cell.available()?;
        let found = match which {
            Group::Named(name) => match Name::new(base_name(&text(name)).as_bytes()) {
                Ok(base) => db.group_named(&base),
                Err(_) => return Some(false),
            },
            Group::Number(number) => db.group_of(number),
        };
        let Ok(found) = found else { return Some(false) };
        let group = found?.record;
        let has_site = |site: &types::Site| {
            realms.iter().any(|realm| realm_has_room(realm, site.server, Some(&site.partition)))
        };
        let by_name = realms.iter().any(|realm| realm_has_name(realm, &text(&group.name)));
        Some(by_name || !group.sites.is_empty() && group.sites.iter().all(has_site))
    }
}

#[derive(Clone, Copy)]
enum Group<'a> {
    Named(&'a Name),
    Number(VolumeId),
}

fn text(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}
