//! A cell of a few servers, and a leader of operations that can be stopped at any step.
#![allow(dead_code, clippy::unwrap_used)]

pub mod afs;

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

use afs3::volumes::{Destination, VolumesAnswer, VolumesCall};
use celldb::{Access, CellCopy, CellDb, CellError, RemoteCellDb};
use client::{ClientIdentity, ClientOptions, Endpoint, Remote, Session, SessionConfig};
use server::{CellPlace, Server, ServerConfig};
use store::{OpenOptions, Partition, PartitionConfig};
use tempfile::TempDir;
use types::{
    Answer, Busy, Call, Caller, Changed, Cookie, CreateHow, Name, NewKind, Revised, Revision,
    ServerId, ServerInfo, Status, Timestamp, VolumeCall, VolumeChange, VolumeGroup, VolumeId,
    VolumeInfo, WhichVolume,
};
use vos::{
    AfsVolumeServers, Job, JobEvent, JobLeader, NewVolume, NextPiece, ServerConnections, Servers,
    TakePiece, VosError,
};

pub const PARTITION: &str = "/vicepa";

/// Servers of one cell; the first has the database.
pub struct Cell {
    pub servers: Vec<(TempDir, ServerConfig, Option<Server>)>,
    pub ids: Vec<ServerId>,
    pub reach: ServerConnections,
}

impl Cell {
    pub fn new(count: usize) -> Cell {
        Cell::with_partitions(count, 1)
    }

    /// A cell whose servers have `partitions` partitions each.
    pub fn with_partitions(count: usize, partitions: usize) -> Cell {
        let mut servers: Vec<(TempDir, ServerConfig, Option<Server>)> = Vec::new();
        let mut database = None;
        for number in 0..count {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("vicepa");
            make_partition(&path);
            let mut config = ServerConfig::new(&path);
            for other in ["vicepb", "vicepc"].iter().take(partitions - 1) {
                let path = dir.path().join(other);
                make_partition(&path);
                config.partitions.push((format!("/{other}"), path));
            }
            config.unix_socket = Some(dir.path().join("socket"));
            config.tcp_listen = Some("127.0.0.1:0".into());
            config.trust_this_machine();
            config.name = Some(format!("server{number}"));
            config.cell = Some(match &database {
                None => CellPlace::Here(dir.path().join("celldb")),
                Some(endpoint) => CellPlace::At(Clone::clone(endpoint)),
            });
            let server = Server::start(&config).unwrap();
            for endpoint in server.endpoints() {
                if let Endpoint::Tcp(address) = endpoint {
                    config.tcp_listen = Some(address.clone());
                    database.get_or_insert_with(|| endpoint.clone());
                }
            }
            servers.push((dir, config, Some(server)));
        }
        let ids = servers
            .iter()
            .map(|(_, _, server)| server.as_ref().unwrap().vice().me().id)
            .collect::<Vec<_>>();
        let db = RemoteCellDb::at(database.unwrap(), ClientOptions::default());
        while db.servers().unwrap().len() < count {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Cell {
            servers,
            ids,
            reach: ServerConnections::new(std::sync::Arc::new(db), [], ClientOptions::default()),
        }
    }

    /// Ends a server as a crash does.
    pub fn crash(&mut self, number: usize) {
        self.servers[number].2 = None;
    }

    pub fn start(&mut self, number: usize) {
        let (_, config, server) = &mut self.servers[number];
        *server = Some(Server::start(config).unwrap());
    }

    pub fn group(&self, called: &str) -> Option<Revised<VolumeGroup>> {
        self.reach.db().group_named(&name(called)).unwrap()
    }

    /// All volumes of a server.
    pub fn volumes(&self, number: usize) -> Vec<VolumeInfo> {
        let count = self.servers[number].1.partitions.len() as u32;
        (0..count).flat_map(|no| self.volumes_on(number, no)).collect()
    }

    /// Those of one partition.
    pub fn volumes_on(&self, number: usize, partition: u32) -> Vec<VolumeInfo> {
        vos::list(&self.reach, self.ids[number], types::PartitionNo(partition)).unwrap()
    }

    /// Names of the volumes of one partition.
    pub fn names_on(&self, number: usize, partition: u32) -> Vec<String> {
        self.volumes_on(number, partition).iter().map(|volume| text(&volume.name)).collect()
    }

    pub fn names(&self, number: usize) -> Vec<String> {
        self.volumes(number).iter().map(|volume| text(&volume.name)).collect()
    }

    /// The tasks of a server.
    pub fn tasks(&self, number: usize) -> Vec<types::TaskInfo> {
        match self.reach.call(self.ids[number], VolumeCall::Tasks) {
            Ok(Answer::Tasks(tasks)) => tasks,
            other => panic!("{other:?}"),
        }
    }

    pub fn new_volume(&self, called: &str, number: usize) -> NewVolume {
        NewVolume {
            name: name(called),
            id: None,
            server: self.ids[number],
            partition: PARTITION.into(),
            quota_bytes: 0,
            owner: (0, 0),
            encrypt: None,
        }
    }

    pub fn make(&self, called: &str, number: usize) -> VolumeInfo {
        lead(&self.reach, |job| vos::create(job, &self.new_volume(called, number)))
            .unwrap()
            .unwrap()
    }
}

fn make_partition(path: &Path) {
    Partition::create(path, &PartitionConfig { server: "test".into() }, OpenOptions::default())
        .unwrap()
        .sync()
        .unwrap();
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn text(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

pub fn by_name(text: &str) -> WhichVolume {
    WhichVolume::Name(name(text))
}

/// Leads an operation; the leader of an earlier attempt counts as ended.
pub fn lead<T>(
    servers: &dyn Servers,
    act: impl FnOnce(&Job<'_>) -> Result<T, VosError>,
) -> Result<T, VosError> {
    lead_as(servers, true, false, &|_| {}, act)
}

pub fn lead_as<T>(
    servers: &dyn Servers,
    others_are_gone: bool,
    dry_run: bool,
    tell: &(dyn Fn(JobEvent<'_>) + Sync),
    act: impl FnOnce(&Job<'_>) -> Result<T, VosError>,
) -> Result<T, VosError> {
    let is_over = |_: &Busy| others_are_gone;
    let who = JobLeader { by: "somebody".into(), now_secs: &|| 7, is_over: &is_over };
    act(&Job { servers, who, dry_run, tell })
}

/// Servers whose leader is stopped at the `after`th change: before it was done, or after it with
/// the answer lost.
pub struct Stopped<'c> {
    inner: &'c dyn Servers,
    left: AtomicI64,
    answer_lost: bool,
}

impl<'c> Stopped<'c> {
    pub fn new(inner: &'c dyn Servers, after: i64, answer_lost: bool) -> Self {
        Stopped { inner, left: AtomicI64::new(after), answer_lost }
    }

    /// Whether it was stopped.
    pub fn was_stopped(&self) -> bool {
        self.left.load(Ordering::Relaxed) < 0
    }

    fn change<T, E>(
        &self,
        act: impl FnOnce() -> Result<T, E>,
        stop: impl Fn() -> E,
    ) -> Result<T, E> {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            left if left > 0 => act(),
            0 if self.answer_lost => act().and_then(|_| Err(stop())),
            _ => Err(stop()),
        }
    }

    fn change_db<T>(
        &self,
        act: impl FnOnce(&dyn CellDb) -> Result<T, CellError>,
    ) -> Result<T, CellError> {
        self.change(|| act(self.inner.db()), || CellError::Away(types::Fault::CellAway))
    }
}

impl Servers for Stopped<'_> {
    fn db(&self) -> &dyn CellDb {
        self
    }

    fn call(&self, server: ServerId, call: VolumeCall) -> Result<Answer, VosError> {
        if !call.changes() {
            return self.inner.call(server, call);
        }
        let stop = || VosError::Away { server: "it".into(), why: "stopped".into() };
        self.change(|| self.inner.call(server, call), stop)
    }

    fn afs(&self) -> Result<&dyn AfsVolumeServers, VosError> {
        Ok(self)
    }

    fn name(&self, server: ServerId) -> String {
        self.inner.name(server)
    }

    fn pause(&self, pause: std::time::Duration) {
        self.inner.pause(pause);
    }
}

impl AfsVolumeServers for Stopped<'_> {
    fn ask(&self, server: ServerId, call: &VolumesCall) -> Result<VolumesAnswer, VosError> {
        let stop = || VosError::Away { server: "it".into(), why: "stopped".into() };
        let asks = matches!(
            call,
            VolumesCall::XListPartitions {}
                | VolumesCall::PartitionInfo64 { .. }
                | VolumesCall::ListVolumes { .. }
                | VolumesCall::ListOneVolume { .. }
                | VolumesCall::Monitor {}
        );
        let act = || self.inner.afs()?.ask(server, call);
        if asks { act() } else { self.change(act, stop) }
    }

    fn dump(
        &self,
        server: ServerId,
        call: &VolumesCall,
        take: &mut TakePiece<'_>,
    ) -> Result<(), VosError> {
        self.inner.afs()?.dump(server, call, take)
    }

    fn restore(
        &self,
        server: ServerId,
        call: &VolumesCall,
        next: &mut NextPiece<'_>,
    ) -> Result<(), VosError> {
        self.inner.afs()?.restore(server, call, next)
    }

    fn destination(&self, server: ServerId) -> Result<Destination, VosError> {
        self.inner.afs()?.destination(server)
    }
}

impl CellDb for Stopped<'_> {
    fn group_named(&self, name: &Name) -> Result<Option<Revised<VolumeGroup>>, CellError> {
        self.inner.db().group_named(name)
    }
    fn group_of(&self, number: VolumeId) -> Result<Option<Revised<VolumeGroup>>, CellError> {
        self.inner.db().group_of(number)
    }
    fn groups(&self, after: VolumeId, max: usize) -> Result<Vec<Revised<VolumeGroup>>, CellError> {
        self.inner.db().groups(after, max)
    }
    fn put_group(&self, group: &VolumeGroup, expected: Revision) -> Result<Revision, CellError> {
        self.change_db(|db| db.put_group(group, expected))
    }
    fn remove_group(
        &self,
        read_write: VolumeId,
        expected: Revision,
    ) -> Result<Revision, CellError> {
        self.change_db(|db| db.remove_group(read_write, expected))
    }
    fn take_numbers(&self, above: VolumeId, count: u32) -> Result<VolumeId, CellError> {
        self.change_db(|db| db.take_numbers(above, count))
    }
    fn servers(&self) -> Result<Vec<Revised<ServerInfo>>, CellError> {
        self.inner.db().servers()
    }
    fn put_server(&self, server: &ServerInfo, expected: Revision) -> Result<Revision, CellError> {
        self.change_db(|db| db.put_server(server, expected))
    }
    fn remove_server(&self, id: ServerId, expected: Revision) -> Result<Revision, CellError> {
        self.change_db(|db| db.remove_server(id, expected))
    }
    fn revision(&self) -> Result<Revision, CellError> {
        self.inner.db().revision()
    }
    fn changes(&self, since: Revision, max: usize) -> Result<Vec<(Revision, Changed)>, CellError> {
        self.inner.db().changes(since, max)
    }
    fn copy(&self) -> Result<Box<dyn CellCopy>, CellError> {
        self.inner.db().copy()
    }
    fn access(&self) -> &dyn Access {
        self.inner.db().access()
    }
}

/// Runs on a new cell for every step at which the operation can be stopped, both ways: `prepare`,
/// `act` until it is stopped, then `then`.
pub fn stop_everywhere(
    count: usize,
    prepare: impl Fn(&mut Cell),
    act: impl Fn(&Cell, &dyn Servers) -> Result<(), VosError>,
    then: impl Fn(&mut Cell, &str),
) {
    stop_everywhere_in(&|| Cell::new(count), prepare, act, then);
}

/// Does this in cells that `make` makes.
pub fn stop_everywhere_in(
    make: &dyn Fn() -> Cell,
    prepare: impl Fn(&mut Cell),
    act: impl Fn(&Cell, &dyn Servers) -> Result<(), VosError>,
    then: impl Fn(&mut Cell, &str),
) {
    for answer_lost in [false, true] {
        for after in 0.. {
            let mut cell = make();
            prepare(&mut cell);
            let stopped = Stopped::new(&cell.reach, after, answer_lost);
            let result = act(&cell, &stopped);
            let was_stopped = stopped.was_stopped();
            assert_eq!(result.is_err(), was_stopped, "{result:?} at step {after}");
            then(&mut cell, &format!("stopped at {after}, answer lost: {answer_lost}"));
            if !was_stopped {
                assert!(after > 0, "it has no steps");
                break;
            }
        }
    }
}

/// Files by name.
pub type Files = std::collections::BTreeMap<String, Vec<u8>>;

impl Cell {
    fn session(&self, number: usize) -> Session {
        let socket = self.servers[number].1.unix_socket.clone().unwrap();
        Session::connect(SessionConfig::new(Endpoint::Unix(socket), ClientIdentity::fleeting()))
            .unwrap()
    }

    /// Writes a file into the root of a volume, from its beginning.
    pub fn write(&self, number: usize, volume: &str, file: &str, bytes: &[u8]) {
        let session = self.session(number);
        let ask = |call: Call| session.call(&Caller::ROOT, call, None).unwrap().answer;
        let Answer::Status(root) = ask(Call::Root { volume: name(volume) }) else { panic!() };
        let how = CreateHow::Unchecked;
        let make =
            Call::Make { dir: root.fid, name: name(file), kind: NewKind::File, mode: 0o644, how };
        let Answer::Made { status, .. } = ask(make) else { panic!() };
        let data = bytes.to_vec().into();
        ask(Call::Write {
            fid: status.fid,
            offset: Some(0),
            data,
            stable: true,
            kill_privileges: false,
        });
    }

    /// The files that a volume shows at a server; `None` if it shows nothing, even if it stops
    /// between two calls.
    pub fn files(&self, number: usize, volume: &str) -> Option<Files> {
        let session = self.session(number);
        let ask = |call: Call| session.call(&Caller::ROOT, call, None).map(|reply| reply.answer);
        let Ok(Answer::Status(root)) = ask(Call::Root { volume: name(volume) }) else {
            return None;
        };
        let list =
            Call::ReadDir { dir: root.fid, cookie: Cookie::START, bytes_max: 100_000, plus: false };
        let Ok(Answer::Entries { entries, .. }) = ask(list) else { return None };
        let read = |entry: types::DirEntry| match ask(Call::Read {
            fid: entry.fid,
            offset: 0,
            length: 1 << 20,
        }) {
            Ok(Answer::Data { data, .. }) => Some((text(&entry.name), data.to_vec())),
            _ => None,
        };
        entries.into_iter().filter(|entry| entry.kind == types::Kind::File).map(read).collect()
    }

    /// The status of a file in the root of a volume, as a new session is told.
    pub fn status(&self, number: usize, volume: &str, file: &str) -> Status {
        let session = self.session(number);
        let ask = |call: Call| session.call(&Caller::ROOT, call, None).unwrap().answer;
        let Answer::Status(root) = ask(Call::Root { volume: name(volume) }) else { panic!() };
        match ask(Call::Lookup { dir: root.fid, name: name(file) }) {
            Answer::Entry { status, .. } => status,
            other => panic!("{other:?}"),
        }
    }

    /// Has the reads of a volume recorded, or not.
    pub fn record_reads(&self, number: usize, volume: &str, on: bool) {
        let id = self.volumes(number).into_iter().find(|one| one.name == name(volume)).unwrap().id;
        let change = VolumeChange { read_times: Some(on), ..VolumeChange::default() };
        self.reach.call(self.ids[number], VolumeCall::SetFields { id, change }).unwrap();
    }

    /// Has access lists decide in a volume, with an empty one, or mode bits.
    pub fn decide_by_lists(&self, number: usize, volume: &str, lists: bool) {
        let session = self.session(number);
        let ask = |call: Call| session.call(&Caller::ROOT, call, None).unwrap().answer;
        let Answer::Status(root) = ask(Call::Root { volume: name(volume) }) else { panic!() };
        let empty = [1_u32, 0, 0].map(u32::to_le_bytes).concat();
        let list = lists.then(|| empty.into());
        if root.by_list != lists {
            ask(Call::SetAcl { fid: root.fid, list, instead_of: None });
        }
    }

    /// Reads a file in the root of a volume at this time.
    pub fn note_read(&self, number: usize, volume: &str, file: &str, at: Timestamp) {
        let Status { fid, accessed: was, .. } = self.status(number, volume, file);
        let call = Call::NoteRead { fid, was, at };
        self.session(number).call(&Caller::ROOT, call, None).unwrap();
    }

    /// A volume at the first server with read-only sites at all others.
    pub fn make_released(&self, called: &str) {
        self.make(called, 0);
        for number in 1..self.ids.len() {
            let group = self.group(called).unwrap();
            lead(&self.reach, |job| vos::add_site(job, group, self.ids[number], PARTITION))
                .unwrap();
        }
    }
}
