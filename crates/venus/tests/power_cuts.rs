//! A server whose machine loses its power, again and again, under an application that records its
//! actions: everything that a sync made stable is found after the next loss, whatever was lost
//! before (DU-1, DU-4, DU-5).
#![allow(missing_docs, clippy::unwrap_used)]

mod common;
mod server_on_drive;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use client::{ClientIdentity, Endpoint, Remote, Session, SessionConfig};
use common::{Far, Over, RW, me, name};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use server::{Server, ServerConfig};
use store::{MemMachine, NewRoot, OpenOptions, Partition, Volume, VolumeQuota};
use tempfile::TempDir;
use types::{
    Answer, Call, Caller, Cookie, CreateHow, Fid, Name, NewKind, RenameMode, StatusChange,
    Timestamp,
};
use venus::{Error, LookupReply, OpenHandle, Venus, VenusConfig};
use vice::Partitions;

/// The machine of a server.
trait Host: Send {
    /// Ends the server and starts another one. `loses`: with a loss of power; otherwise only the
    /// process dies.
    fn restart(&mut self, loses: bool);
    /// Reads the volume in the state after a loss of power now.
    fn look(&mut self, fid: Fid, seed: u64, look: &mut dyn FnMut(&Volume));
}

/// A machine in memory, with the server in this process.
struct Machine {
    memory: MemMachine,
    config: ServerConfig,
    server: Option<Server>,
    losses: u64,
}

impl Machine {
    fn new(dir: &Path) -> (Machine, Fid) {
        let memory = MemMachine::new();
        let partition = Partition::open_memory(&memory, OpenOptions::default()).unwrap();
        let root = NewRoot {
            mode: 0o755,
            uid: 0,
            gid: 0,
            now: Timestamp::new(1, 0),
            quota: VolumeQuota::default(),
        };
        let volume = partition.volumes().create_volume(&name("root"), &root).unwrap().id();
        partition.sync().unwrap();
        drop(partition);
        let mut config = ServerConfig::new(dir);
        config.unix_socket = Some(dir.join("socket"));
        let mut machine = Machine { memory, config, server: None, losses: 0 };
        machine.start();
        (machine, Fid::root(volume))
    }

    fn start(&mut self) {
        let partition = Partition::open_memory(&self.memory, OpenOptions::default()).unwrap();
        let open = |_: &ServerConfig| Ok(Partitions::new(vec![("vicepa".into(), partition)]));
        self.server = Some(Server::start_with(&self.config, open).unwrap());
    }
}

impl Host for Machine {
    fn restart(&mut self, loses: bool) {
        drop(self.server.take());
        if loses {
            self.losses += 1;
            self.memory = self.memory.power_loss(self.losses);
        }
        self.start();
    }

    fn look(&mut self, fid: Fid, seed: u64, look: &mut dyn FnMut(&Volume)) {
        let partition =
            Partition::open_memory(&self.memory.power_loss(seed), OpenOptions::default()).unwrap();
        look(&partition.volumes().volume(fid.volume).unwrap().unwrap());
    }
}

/// A machine that loses other writes for another seed.
fn place(seed: u64) -> (TempDir, Machine, Fid) {
    let dir = tempfile::tempdir().unwrap();
    let (mut machine, root) = Machine::new(dir.path());
    machine.losses = seed * 100;
    (dir, machine, root)
}

fn connect(dir: &Path) -> Session {
    Session::connect(SessionConfig::new(
        Endpoint::Unix(dir.join("socket")),
        ClientIdentity::fleeting(),
    ))
    .unwrap()
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    mode: u16,
    bytes: Vec<u8>,
}

/// The application's record of its directory.
#[derive(Default)]
struct Belief {
    names: BTreeMap<Name, Fid>,
    files: BTreeMap<Fid, Content>,
}

struct Application<'a> {
    venus: &'a Venus,
    machine: &'a Mutex<dyn Host>,
    dir: Fid,
    random: SmallRng,
    belief: Belief,
    /// The one file that is open.
    open: Option<(Fid, OpenHandle)>,
    /// Syncs that succeeded, and syncs that reported a loss.
    stable: u32,
    reported: u32,
    /// The application's actions, for the analysis of a failure.
    trace: Vec<String>,
}

const NAMES: u32 = 4;
const FILE: usize = 40_000;
/// Losses of the short form over a drive.
const DRIVEN_CUTS: u64 = 10;

impl Application<'_> {
    fn any_name(&mut self) -> Name {
        name(&format!("n{}", self.random.random_range(0..NAMES)))
    }

    fn any_file(&mut self) -> Option<(Name, Fid)> {
        let at = self.random.random_range(0..self.belief.names.len().max(1));
        self.belief.names.iter().nth(at).map(|(name, fid)| (name.clone(), *fid))
    }

    /// Reads the state, after an operation contradicted the record.
    fn look(&mut self) -> Result<(), Error> {
        self.belief = Belief::default();
        for number in 0..NAMES {
            let name = name(&format!("n{number}"));
            let LookupReply::Entry(entry) = self.venus.lookup(&me(), self.dir, &name)? else {
                continue;
            };
            let fid = entry.status.fid;
            let handle = self.venus.open(&me(), fid, common::RO)?.handle;
            let bytes =
                self.venus.read(&me(), handle, 0, 2 * FILE as u32).map(|bytes| bytes.to_vec());
            self.venus.release(&me(), handle, None)?;
            let mode = self.venus.getattr(&me(), fid)?.status.mode & 0o777;
            self.belief.files.insert(fid, Content { mode, bytes: bytes? });
            self.belief.names.insert(name, fid);
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        let Some((_, handle)) = self.open.take() else { return Ok(()) };
        let flushed = self.venus.flush(&me(), handle, None);
        let released = self.venus.release(&me(), handle, None);
        flushed.and(released)
    }

    fn opened(&mut self) -> Result<Option<(Fid, OpenHandle)>, Error> {
        if self.open.is_none() || self.random.random_bool(0.3) {
            self.close()?;
            let Some((_, fid)) = self.any_file() else { return Ok(None) };
            self.open = Some((fid, self.venus.open(&me(), fid, RW)?.handle));
        }
        Ok(self.open)
    }

    fn step(&mut self) -> Result<(), Error> {
        match self.random.random_range(0..20) {
            0..4 => {
                let name = self.any_name();
                let mode = if self.random.random_bool(0.5) { 0o644 } else { 0o600 };
                let made = self.venus.changes().make(&me(), self.dir, &name, NewKind::File, mode);
                if made != Err(types::Fault::Exists.into()) {
                    let fid = made?.status.fid;
                    self.belief.names.insert(name, fid);
                    self.belief.files.insert(fid, Content { mode, bytes: Vec::new() });
                }
            }
            4..6 => {
                let Some((name, fid)) = self.any_file() else { return Ok(()) };
                self.venus.changes().unlink(&me(), self.dir, &name)?;
                self.belief.names.remove(&name);
                self.belief.files.remove(&fid);
            }
            6..8 => {
                let (Some((from, fid)), to) = (self.any_file(), self.any_name()) else {
                    return Ok(());
                };
                self.venus.changes().rename(
                    &me(),
                    (self.dir, &from),
                    (self.dir, &to),
                    RenameMode::Replace,
                )?;
                if from != to {
                    self.belief.names.remove(&from);
                    let replaced = self.belief.names.insert(to, fid);
                    replaced.map(|replaced| self.belief.files.remove(&replaced));
                }
            }
            8 => {
                let Some((_, fid)) = self.any_file() else { return Ok(()) };
                let mode = self.random.random_range(0..0o1000);
                self.venus.setattr(
                    &me(),
                    fid,
                    StatusChange { mode: Some(mode), ..StatusChange::default() },
                )?;
                self.belief.files.entry(fid).and_modify(|file| file.mode = mode);
            }
            9 => {
                let Some((_, fid)) = self.any_file() else { return Ok(()) };
                let size = self.random.random_range(0..FILE);
                let change = StatusChange { size: Some(size as u64), ..StatusChange::default() };
                self.trace.push(format!("cut {fid} {size}"));
                self.venus.setattr(&me(), fid, change)?;
                self.belief.files.entry(fid).and_modify(|file| file.bytes.resize(size, 0));
            }
            10..12 => {
                let Some((fid, handle)) = self.opened()? else { return Ok(()) };
                self.trace.push(format!("read {fid}"));
                let read = self.venus.read(&me(), handle, 0, 2 * FILE as u32)?;
                if self.belief.files.get(&fid).is_some_and(|file| file.bytes != read) {
                    // A change other than bytes was lost: lost bytes are sent again.
                    assert!(
                        self.venus.fsync(&me(), handle).is_err(),
                        "{fid}: the loss was not reported"
                    );
                    return Err(Error::Lost);
                }
            }
            12..16 => {
                let Some((fid, handle)) = self.opened()? else { return Ok(()) };
                let (at, length) =
                    (self.random.random_range(0..FILE / 2), self.random.random_range(1..FILE / 2));
                let data = Bytes::from(vec![self.random.random::<u8>(); length]);
                self.trace.push(format!("write {fid} {at}+{length} {}", data[0]));
                self.venus.write(&me(), handle, at as u64, data.clone(), false)?;
                if let Some(file) = self.belief.files.get_mut(&fid) {
                    file.bytes.resize(file.bytes.len().max(at + length), 0);
                    file.bytes[at..at + length].copy_from_slice(&data);
                }
            }
            16..18 => {
                let Some((fid, handle)) = self.opened()? else { return Ok(()) };
                self.trace.push(format!("fsync {fid}"));
                self.venus.fsync(&me(), handle)?;
                self.compare(&[fid], false);
            }
            18 => {
                self.venus.dirs().fsyncdir(&me(), self.dir)?;
                self.compare(&[], true);
            }
            _ => {
                self.trace.push("syncfs".to_owned());
                self.venus.syncfs(&me(), self.dir)?;
                let files: Vec<Fid> = self.belief.names.values().copied().collect();
                self.compare(&files, true);
            }
        }
        Ok(())
    }

    /// Compares these files, and the names if asked for, with the record after a sync.
    fn compare(&mut self, files: &[Fid], names: bool) {
        let seed = self.random.random();
        let machine = self.machine;
        machine.lock().look(self.dir, seed, &mut |volume| self.compare_with(volume, files, names));
        self.stable += 1;
    }

    fn compare_with(&self, volume: &Volume, files: &[Fid], names: bool) {
        for fid in files.iter().filter(|fid| self.belief.files.contains_key(fid)) {
            let vnode = volume.vnode(fid.vnode).unwrap().expect("it is stable");
            let bytes = volume.reader_of(&vnode).unwrap().read(0, 2 * FILE).unwrap().to_vec();
            let found = Content { mode: vnode.status.mode & 0o777, bytes };
            let wanted = &self.belief.files[fid];
            let short = |content: &Content| {
                (
                    content.mode,
                    content.bytes.len(),
                    content
                        .bytes
                        .chunk_by(|a, b| a == b)
                        .map(|run| (run[0], run.len()))
                        .collect::<Vec<_>>(),
                )
            };
            let trace = || self.trace[self.trace.len().saturating_sub(60)..].join("\n");
            assert!(
                found == *wanted,
                "{}\n{fid}: {:?} is stable, {:?} is believed",
                trace(),
                short(&found),
                short(wanted)
            );
        }
        if names {
            let (entries, _) = volume.read_dir(self.dir.vnode, Cookie::START, 100).unwrap();
            let found: BTreeSet<&Name> = entries.iter().map(|entry| &entry.name).collect();
            let wanted: BTreeSet<&Name> = self.belief.names.keys().collect();
            assert_eq!(found, wanted);
        }
    }

    fn run(&mut self, seed: u64, steps: usize, restarts: bool) {
        for step in 0..steps {
            if restarts && self.random.random_bool(0.05) {
                let loses = self.random.random_bool(0.7);
                self.trace.push(format!("restart, loses {loses}"));
                self.machine.lock().restart(loses);
            }
            let before = format!("seed {seed}, step {step}");
            if let Err(error) = self.step() {
                self.trace.push(format!("{before}: {error:?}"));
                self.reported += u32::from(error == Error::Lost);
                let mut tries = 0;
                while let Err(error) = self.close().and(self.look()) {
                    tries += 1;
                    assert!(tries < 100, "{before}: {error}");
                }
            }
        }
    }
}

fn history(seed: u64, delegations: bool, beside: bool) -> (u32, u32) {
    let dir = tempfile::tempdir().unwrap();
    let (machine, root) = Machine::new(dir.path());
    let kind = Kind { delegations, beside, steps: 300 };
    live(&Mutex::new(machine), root, dir.path(), seed, kind)
}

/// Behaviour of an application.
#[derive(Clone, Copy)]
struct Kind {
    delegations: bool,
    /// The server restarts at any time, not only between two steps of the application.
    beside: bool,
    steps: usize,
}

/// Runs an application beside a server with a socket in `at`: returns how many syncs succeeded, and
/// how many reported a loss.
fn live(machine: &Mutex<dyn Host>, root: Fid, at: &Path, seed: u64, kind: Kind) -> (u32, u32) {
    let Kind { delegations, beside, steps } = kind;
    let session = connect(at);
    let cache = tempfile::tempdir().unwrap();
    // Some clients have a disk cache.
    let cache_dir = (seed % 2 == 1).then(|| cache.path().to_owned());
    let dirty_age = Duration::from_millis(5);
    let config = VenusConfig { delegations, dirty_age, cache_dir, ..VenusConfig::default() };
    let venus = Venus::new(Arc::new(Far(session)), config).unwrap();
    let dir = venus
        .changes()
        .make(&me(), root, &name("top"), NewKind::Directory, 0o755)
        .unwrap()
        .status
        .fid;
    venus.dirs().fsyncdir(&me(), root).unwrap();
    let over = AtomicBool::new(false);
    let mut application = Application {
        venus: &venus,
        machine,
        dir,
        random: SmallRng::seed_from_u64(seed),
        belief: Belief::default(),
        open: None,
        stable: 0,
        reported: 0,
        trace: Vec::new(),
    };
    std::thread::scope(|scope| {
        if beside {
            scope.spawn(|| {
                let mut random = SmallRng::seed_from_u64(seed ^ 1);
                while !over.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(random.random_range(1..40)));
                    machine.lock().restart(random.random_bool(0.7));
                }
            });
        }
        let _over = Over(&over);
        application.run(seed, steps, !beside);
    });
    let syncs = (application.stable, application.reported);
    // Losses that no operation has reported yet are reported now.
    let _ = application.close();
    let _ = venus.shutdown();
    syncs
}

#[test]
fn du1_synced_changes_survive_the_next_loss() {
    for delegations in [false, true] {
        let syncs: Vec<(u32, u32)> = (0..6).map(|seed| history(seed, delegations, false)).collect();
        assert!(
            syncs.iter().any(|syncs| syncs.0 > 0) && syncs.iter().any(|syncs| syncs.1 > 0),
            "{syncs:?}"
        );
    }
}

#[test]
fn du1_synced_changes_survive_a_loss_at_any_time() {
    for delegations in [false, true] {
        let syncs: Vec<(u32, u32)> =
            (10..13).map(|seed| history(seed, delegations, true)).collect();
        assert!(syncs.iter().any(|syncs| syncs.0 > 0), "{syncs:?}");
    }
}

#[test]
fn server_process() {
    server_on_drive::serve();
}

/// The same over RocksDB and ext4, with the server in a process of its own: all that a flush of its
/// drive did not cover may be lost.
#[test]
fn du4_syncs_hold_when_a_server_on_ext4_loses_power() {
    powercut::isolated(|| {
        // One run takes as long as ten in memory.
        let cuts = std::env::var("POWER_CUTS").ok().and_then(|cuts| cuts.parse::<u64>().ok());
        let cuts = cuts.map_or(DRIVEN_CUTS, |cuts| cuts / 10);
        let (mut losses, mut seed, mut syncs) = (0, 0, (0, 0));
        while losses < cuts {
            let dir = tempfile::tempdir().unwrap();
            let (driven, root) = server_on_drive::Driven::new(dir.path(), seed);
            let driven = Mutex::new(driven);
            let kind = Kind { delegations: seed % 2 == 1, beside: false, steps: 100 };
            let (stable, reported) = live(&driven, root, dir.path(), seed, kind);
            losses += driven.lock().losses;
            syncs = (syncs.0 + stable, syncs.1 + reported);
            seed += 1;
        }
        println!(
            "{seed} histories, {losses} losses, {syncs:?}: syncs that succeeded, or reported a \
             loss"
        );
        assert!(syncs.0 > 0, "nothing was called stable");
    });
}

/// After a loss a version number may mean another content of the file: here in the disk cache of a
/// client other than the writer, which is lost too. (A short file, whose bytes lie in its record:
/// others get another number.)
#[test]
fn cb8_a_lost_version_is_not_taken_for_its_successor() {
    let mut found = 0;
    for seed in 0..20 {
        let (dir, mut machine, root) = place(seed);
        let config =
            VenusConfig { cache_dir: Some(dir.path().join("cache")), ..VenusConfig::default() };
        let venus = Venus::new(Arc::new(Far(connect(dir.path()))), config).unwrap();
        let writer = connect(dir.path());
        let call =
            |session: &Session, call| session.call(&Caller::ROOT, call, None).unwrap().answer;
        let make = Call::Make {
            dir: root,
            name: name("file"),
            kind: NewKind::File,
            mode: 0o644,
            how: CreateHow::Guarded,
        };
        let Answer::Made { status, .. } = call(&writer, make) else { panic!("not made") };
        let fid = status.fid;
        let write = |byte, stable| {
            let data = Bytes::from(vec![byte; 10_000]);
            Call::Write { fid, offset: Some(0), data, stable, kill_privileges: false }
        };
        call(&writer, write(b'0', true));
        let lost = match call(&writer, write(b'1', false)) {
            Answer::Written { status, .. } => status.data_version,
            other => panic!("{other:?}"),
        };
        let read = || {
            let handle = venus.open(&me(), fid, common::RO).unwrap().handle;
            let bytes = venus.read(&me(), handle, 0, 10_000).unwrap();
            venus.release(&me(), handle, None).unwrap();
            bytes
        };
        assert!(read().iter().all(|byte| *byte == b'1'));
        machine.restart(true);
        let Answer::Written { status, .. } = call(&writer, write(b'2', false)) else {
            panic!("not written")
        };
        found += u32::from(status.data_version == lost);
        assert!(read().iter().all(|byte| *byte == b'2'), "seed {seed}");
    }
    assert!(found > 0, "no loss took a version back");
}

/// A change that was lost in half, its status and not the bytes: a client's cached bytes of the
/// earlier version differ from the server's.
#[test]
fn what_was_lost_in_half_is_read_anew() {
    let mut torn = 0;
    for seed in 0..20 {
        let (dir, mut machine, root) = place(seed);
        // Some clients have the bytes on their disk, some in memory.
        let cache_dir = (seed % 2 == 1).then(|| dir.path().join("cache"));
        let delegations = seed % 4 > 1;
        let config = VenusConfig { cache_dir, delegations, ..VenusConfig::default() };
        let venus = Venus::new(Arc::new(Far(connect(dir.path()))), config).unwrap();
        let fid = venus
            .changes()
            .make(&me(), root, &name("file"), NewKind::File, 0o644)
            .unwrap()
            .status
            .fid;
        let handle = venus.open(&me(), fid, RW).unwrap().handle;
        venus.write(&me(), handle, 0, Bytes::from(vec![b'1'; 100_000]), false).unwrap();
        venus.fsync(&me(), handle).unwrap();
        let read = || venus.read(&me(), handle, 0, 200_000).unwrap();
        assert!(read().len() == 100_000);
        let writer = connect(dir.path());
        let call = |call| writer.call(&Caller::ROOT, call, None).unwrap().answer;
        let size = StatusChange { size: Some(50_000), ..StatusChange::default() };
        let data = Bytes::from(vec![b'2'; 10_000]);
        call(Call::Write {
            fid,
            offset: Some(20_000),
            data,
            stable: false,
            kill_privileges: false,
        });
        call(Call::SetStatus { fid, change: size });
        machine.restart(true);
        let Answer::Data { data, .. } = call(Call::Read { fid, offset: 0, length: 200_000 }) else {
            panic!("no data")
        };
        torn += u32::from(data.len() == 100_000 && data.iter().any(|byte| *byte != b'1'));
        assert!(read() == data, "seed {seed}");
        venus.release(&me(), handle, None).unwrap();
    }
    assert!(torn > 0, "nothing was lost in half");
}
