//! Servers of one cell in this process, on addresses of their own, and mounts that reach all of
//! them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{ClientIdentity, Endpoint, Remote, Session, SessionConfig, dial_addresses};
use mount::{Mount, MountConfig};
use server::{CellPlace, Server, ServerConfig};
use store::{OpenOptions, Partition, PartitionConfig};
use tempfile::TempDir;
use types::{
    Answer, Call, Caller, CellCall, Fault, Name, PartitionNo, Revised, Revision, ServerId, Site,
    SiteKind, VolumeCall, VolumeGroup, VolumeInfo, VolumeKind, WhichVolume,
};
use venus::{VenusConfig, Volumes};

use crate::cell::Cell;
use crate::{is_flat, transport};

static MOUNTS: AtomicU64 = AtomicU64::new(0);

/// One server. The tests' volumes are on its second partition, which may be a copy of another
/// server's.
pub struct Host {
    config: ServerConfig,
    server: Option<Server>,
}

impl Host {
    fn new(dir: &Path, cell: CellPlace) -> Host {
        fs::create_dir(dir).unwrap();
        let partitions = ["vicepa", "vicepb"].map(|name| (format!("/{name}"), dir.join(name)));
        for (_, path) in &partitions {
            drop(
                Partition::create(path, &PartitionConfig::default(), OpenOptions::default())
                    .unwrap(),
            );
        }
        let mut config = ServerConfig::new(&partitions[0].1);
        config.partitions = partitions.to_vec();
        config.tcp_listen = Some("127.0.0.1:0".into());
        config.trust_this_machine();
        config.cell = Some(cell);
        let mut host = Host { config, server: None };
        host.start();
        host
    }

    /// Starts it, at its previous address.
    pub fn start(&mut self) {
        let server = Server::start(&self.config).unwrap();
        let Some(Endpoint::Tcp(address)) = server.endpoints().first() else {
            panic!("it listens nowhere")
        };
        self.config.tcp_listen = Some(address.clone());
        self.server = Some(server);
    }

    /// Starts it at another address.
    pub fn start_elsewhere(&mut self) {
        let taken = std::net::TcpListener::bind(self.address());
        self.config.tcp_listen = Some("127.0.0.1:0".into());
        self.start();
        drop(taken);
    }

    /// Starts it at another server's address.
    pub fn start_at(&mut self, address: SocketAddr) {
        self.config.tcp_listen = Some(address.to_string());
        self.start();
    }

    /// Drops it, which looks like a crash to other processes.
    pub fn crash(&mut self) {
        drop(self.server.take());
    }

    fn partition(&self) -> PathBuf {
        self.config.partitions[1].1.clone()
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::Tcp(self.config.tcp_listen.clone().unwrap())
    }

    /// Damages every body of its second partition.
    pub fn spoil_bodies(&self) {
        let mut dirs = vec![self.partition().join("bodies")];
        let mut spoilt = 0;
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path());
                    continue;
                }
                let mut bytes = fs::read(entry.path()).unwrap();
                let Some(byte) = bytes.first_mut() else { continue };
                *byte ^= 1;
                fs::write(entry.path(), bytes).unwrap();
                spoilt += 1;
            }
        }
        assert!(spoilt > 0, "there are none");
    }

    pub fn address(&self) -> SocketAddr {
        self.config.tcp_listen.as_ref().unwrap().parse().unwrap()
    }

    pub fn ask(&self, call: Call) -> Result<Answer, Fault> {
        let session =
            Session::connect(SessionConfig::new(self.endpoint(), ClientIdentity::fleeting()))
                .unwrap();
        session
            .call(&Caller::ROOT, call, None)
            .map(|reply| reply.answer)
            .map_err(|error| error.fault().unwrap())
    }

    pub fn volume(&self, call: VolumeCall) -> VolumeInfo {
        match self.ask(Call::Volume(call)).unwrap() {
            Answer::Volumes { volumes, .. } => volumes.into_iter().next().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    pub fn id(&self) -> ServerId {
        match self.ask(Call::Cell(CellCall::Me)).unwrap() {
            Answer::Servers(found) => found[0].record.id,
            other => panic!("{other:?}"),
        }
    }
}

/// The servers; the first has the database.
pub struct Fleet {
    pub hosts: Vec<Host>,
    dir: TempDir,
}

/// A mount that reaches the cell through one of them.
pub struct Traveller {
    pub mount: Mount,
    pub volumes: Arc<Volumes>,
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

impl Fleet {
    /// Starts `count` servers; `None` if nothing can be mounted.
    pub fn start(count: usize) -> Option<Fleet> {
        Cell::start()?;
        let dir = tempfile::tempdir().unwrap();
        let mut hosts: Vec<Host> = Vec::new();
        for number in 0..count {
            let place = match hosts.first() {
                None => CellPlace::Here(dir.path().join("celldb")),
                Some(first) => CellPlace::At(first.endpoint()),
            };
            hosts.push(Host::new(&dir.path().join(format!("server-{number}")), place));
        }
        Some(Fleet { hosts, dir })
    }

    /// Creates a volume on a server's second partition, and enters it in the database.
    pub fn create(&self, on: usize, volume: &str) -> VolumeInfo {
        let create = VolumeCall::Create {
            id: None,
            partition: Some(PartitionNo(1)),
            name: name(volume),
            quota_bytes: 0,
            quota_files: 0,
            owner: (0, 0),
            encrypt: None,
        };
        let info = self.hosts[on].volume(create);
        let site = self.site(on, SiteKind::ReadWrite, 0);
        self.put(&VolumeGroup::new(name(volume), info.id, site), Revision(0));
        info
    }

    pub fn site(&self, on: usize, kind: SiteKind, epoch: u64) -> Site {
        Site { server: self.hosts[on].id(), partition: "/vicepb".into(), kind, epoch }
    }

    pub fn put(&self, group: &VolumeGroup, expected: Revision) {
        let put = CellCall::PutGroup { group: Box::new(group.clone()), expected };
        self.hosts[0].ask(Call::Cell(put)).unwrap();
    }

    pub fn group(&self, volume: &str) -> Revised<VolumeGroup> {
        let call = CellCall::Group { volume: WhichVolume::Name(name(volume)) };
        match self.hosts[0].ask(Call::Cell(call)).unwrap() {
            Answer::Groups { groups, .. } => groups.into_iter().next().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Changes a group's record in the database.
    pub fn change(&self, volume: &str, change: impl FnOnce(&mut VolumeGroup)) {
        let mut seen = self.group(volume);
        change(&mut seen.record);
        self.put(&seen.record, seen.revision);
    }

    /// Releases a volume at its own server only.
    pub fn release(&self, on: usize, volume: &VolumeInfo) -> VolumeInfo {
        let released = String::from_utf8_lossy(volume.name.as_bytes()).into_owned() + ".readonly";
        let clone = |replace| VolumeCall::Clone {
            id: None,
            of: volume.id,
            name: name(&released),
            kind: VolumeKind::ReadOnly,
            replace,
        };
        let info = self.hosts[on].volume(clone(self.has(on, &released)));
        let site = self.site(on, SiteKind::ReadOnly, info.epoch);
        self.change(&String::from_utf8_lossy(volume.name.as_bytes()), |group| {
            (group.read_only, group.released_epoch) = (Some(info.id), info.epoch);
            group.sites.retain(|old| old.kind == SiteKind::ReadWrite || old.server != site.server);
            group.sites.push(site);
        });
        info
    }

    fn has(&self, on: usize, volume: &str) -> bool {
        let examine = VolumeCall::Examine { volume: WhichVolume::Name(name(volume)) };
        self.hosts[on].ask(Call::Volume(examine)).is_ok()
    }

    /// Copies a server's second partition to another server; both stop for it.
    pub fn copy(&mut self, from: usize, to: usize) {
        [from, to].iter().for_each(|host| self.hosts[*host].crash());
        let (from_dir, to_dir) = (self.hosts[from].partition(), self.hosts[to].partition());
        fs::remove_dir_all(&to_dir).unwrap();
        let copied =
            std::process::Command::new("cp").arg("-a").args([&from_dir, &to_dir]).status().unwrap();
        assert!(copied.success());
        self.hosts[to].start();
        self.hosts[from].start();
    }

    /// Records that all volumes of a server's second partition are now on that of another one.
    pub fn carry_over(&mut self, from: usize, to: usize, volumes: &[&str]) {
        self.copy(from, to);
        self.hosts[from].crash();
        let old = self.hosts[from].partition();
        fs::remove_dir_all(&old).unwrap();
        drop(Partition::create(&old, &PartitionConfig::default(), OpenOptions::default()).unwrap());
        self.hosts[from].start();
        let site = self.site(to, SiteKind::ReadWrite, 0);
        volumes
            .iter()
            .for_each(|volume| self.change(volume, |group| group.sites = vec![site.clone()]));
    }

    /// Mounts a volume through this server, with `preferred` servers in this order.
    pub fn mount(&self, through: usize, volume: &str, preferred: &[usize]) -> Traveller {
        self.mount_idle(through, volume, preferred, None)
    }

    /// The same, with the time after which unused volumes leave.
    pub fn mount_idle(
        &self,
        through: usize,
        volume: &str,
        preferred: &[usize],
        idle: Option<Duration>,
    ) -> Traveller {
        let number = MOUNTS.fetch_add(1, Ordering::Relaxed);
        let at = self.dir.path().join(format!("mount-{number}"));
        fs::create_dir(&at).unwrap();
        let identity = ClientIdentity::fleeting();
        let again = identity.again();
        let config = SessionConfig::new(self.hosts[through].endpoint(), identity);
        let home = Arc::new(Session::connect(config).unwrap());
        let dial = dial_addresses(move |endpoint| SessionConfig::new(endpoint, again.again()));
        let cell = client::Cell::of_servers(home, dial);
        for (rank, host) in preferred.iter().enumerate() {
            cell.set_rank(self.hosts[*host].id(), rank as u16);
        }
        let volumes = Volumes::new(cell, VenusConfig::default());
        let mut config = MountConfig {
            transport: transport(),
            flat: is_flat(),
            ..MountConfig::new(&at, name(volume), "rialto:test")
        };
        config.idle = idle.unwrap_or(config.idle);
        Traveller { mount: Mount::start(config, &volumes).unwrap(), volumes }
    }
}

impl Traveller {
    pub fn at(&self, name: &str) -> PathBuf {
        self.mount.mountpoint().join(name)
    }

    /// The server from which the mount reads the volume now.
    pub fn server_of(&self, volume: &VolumeInfo) -> Option<ServerId> {
        self.volumes.volume(volume.id)?.server()
    }

    /// Unmounts, and sends all changes to the server.
    pub fn end(self) {
        self.mount.unmount().unwrap();
        self.mount.wait();
        self.volumes.shutdown().unwrap();
    }
}
