//! One server of AFS in a cell of Rialto (`docs/spec/mixed-cells.md`).
//!
//! Model: the cell's database is Rialto's, and the client above follows volumes by it. So each
//! volume is looked for at this server alone. The server tells whether it has a volume; the name,
//! the kind and the release of it are as the cell's database has them, since a server of AFS finds
//! no volume by name, tells strangers nothing of a private one, and counts no releases (VO-5).
//! Questions about users, groups and the caller, and logins, are the cell's: a server of AFS is
//! never shown what they carry (MX-4).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use client::{CallError, Cancel, Cell};
use types::{
    Answer, Call, Caller, Fault, Name, PtsCall, ServerInfo, SiteKind, VolumeGroup, VolumeId,
    VolumeKind, VolumeState, WhichVolume,
};

use crate::databases::{BACKUP, CellDatabases, EPOCH, Located, READ_ONLY, kind_of};

/// See the head of the file.
pub(crate) struct OwnServer {
    server: ServerInfo,
    cell: Weak<Cell>,
}

/// The IPv4 addresses of a server's record.
pub(crate) fn addresses(server: &ServerInfo) -> Vec<Ipv4Addr> {
    let v4 = |ip| if let IpAddr::V4(v4) = ip { Some(v4) } else { None };
    server.addresses.iter().filter_map(|address| v4(address.ip())).collect()
}

impl OwnServer {
    pub fn new(server: ServerInfo, cell: Weak<Cell>) -> OwnServer {
        OwnServer { server, cell }
    }

    fn cell(&self) -> Result<Arc<Cell>, CallError> {
        self.cell.upgrade().ok_or(CallError::Closed)
    }

    /// The volume of this kind in a group; `None`: there is none.
    fn located(&self, group: &VolumeGroup, kind: VolumeKind) -> Option<Located> {
        let (id, ending) = match kind {
            VolumeKind::ReadWrite => (group.read_write, &b""[..]),
            VolumeKind::ReadOnly => (group.read_only?, READ_ONLY),
            VolumeKind::Backup => (group.backup?, BACKUP),
            VolumeKind::Snapshot => return None,
        };
        let is_here =
            |site: &&types::Site| site.server == self.server.id && site.kind == SiteKind::ReadOnly;
        let epoch = match kind {
            VolumeKind::ReadOnly => group.sites.iter().find(is_here).map_or(0, |site| site.epoch),
            _ => EPOCH,
        };
        let name = Name::new(&[group.name.as_bytes(), ending].concat()).ok()?;
        let read_write = group.read_write;
        Some(Located { id, read_write, name, kind, epoch, sites: addresses(&self.server) })
    }
}

impl CellDatabases for OwnServer {
    fn find(&self, which: &WhichVolume) -> Result<Arc<Located>, CallError> {
        let kinds = [VolumeKind::ReadWrite, VolumeKind::ReadOnly, VolumeKind::Backup];
        let found = match which {
            WhichVolume::Id(id) => {
                let group = self.cell()?.group(which.clone(), None)?;
                let mut all = kinds.into_iter().filter_map(|kind| self.located(&group, kind));
                all.find(|one| one.id == *id)
            }
            WhichVolume::Name(name) => {
                let (base, kind) = kind_of(name.as_bytes());
                let base = Name::new(base).map_err(|_| Fault::NoVolume)?;
                self.located(&self.cell()?.group(WhichVolume::Name(base), None)?, kind)
            }
        };
        Ok(Arc::new(found.ok_or(Fault::NoVolume)?))
    }

    fn sites(&self, _: VolumeId) -> Result<Vec<Ipv4Addr>, CallError> {
        Ok(addresses(&self.server))
    }

    /// The client above asks the cell where it is.
    fn not_there(&self, _: VolumeId) -> Duration {
        Duration::ZERO
    }

    fn state(
        &self,
        ask: &dyn Fn() -> Result<VolumeState, CallError>,
    ) -> Result<VolumeState, CallError> {
        ask()
    }

    fn principals(
        &self,
        caller: &Caller,
        call: &PtsCall,
        cancel: Option<&Cancel>,
    ) -> Result<Answer, CallError> {
        let call = Call::Pts { on_behalf: None, call: Box::new(call.clone()) };
        self.cell()?.call_any(caller, &call, cancel)
    }

    fn about_caller(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Answer, CallError> {
        self.cell()?.call_any(caller, &call, cancel)
    }

    fn server(&self) -> Option<&ServerInfo> {
        Some(&self.server)
    }
}
