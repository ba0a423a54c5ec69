//! The volumes of one client share a thread for their chores, and none waits for another.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Kernel, Notified, RW, TestServer, Wire, me, name};
use parking_lot::{Condvar, Mutex};
use types::{Call, Fid, VolumeId};
use venus::{KernelPort, OpenHandle, Venus, VenusConfig, Volumes};

const PATIENCE: Duration = Duration::from_secs(20);

fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Fixture {
    _server: TestServer,
    wire: Arc<Wire>,
    volumes: Arc<Volumes>,
    all: Vec<(Fid, Arc<Venus>)>,
}

impl Fixture {
    fn new(count: usize, config: VenusConfig) -> Self {
        let names: Vec<String> = (0..count).map(|number| format!("user.{number}")).collect();
        let server = TestServer::with_volumes(&names);
        let wire = server.wire(1, false);
        let volumes = Volumes::of(Arc::clone(&wire) as _, config);
        let opened = names.iter().map(|one| {
            let volume = volumes.find(&me(), &name(one)).unwrap();
            (Fid::root(volume.id()), volumes.open(&volume).unwrap())
        });
        Fixture { all: opened.collect(), _server: server, wire, volumes }
    }

    /// Writes a new file in the volume, which stays open.
    fn write(&self, number: usize) -> (Fid, OpenHandle) {
        let (root, venus) = &self.all[number];
        let (entry, opened) = venus.create(&me(), *root, &name("f"), 0o644, false, RW).unwrap();
        venus.write(&me(), opened.handle, 0, Bytes::from_static(b"old"), false).unwrap();
        (entry.status.fid, opened.handle)
    }

    /// The volumes that sent a write.
    fn writers(&self) -> Arc<Mutex<BTreeSet<VolumeId>>> {
        let seen = Arc::<Mutex<BTreeSet<VolumeId>>>::default();
        let sees = Arc::clone(&seen);
        self.wire.set_before(move |call| {
            sees.lock().extend(written(call));
            None
        });
        seen
    }
}

fn written(call: &Call) -> Option<VolumeId> {
    if let Call::Write { fid, .. } = call { Some(fid.volume) } else { None }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.wire.clear();
        self.volumes.stop();
    }
}

/// The threads of this process whose names begin like this.
fn threads(prefix: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).map(|name| name.trim().to_owned()).collect()
}

/// One test, since the threads of others would be counted too.
#[test]
fn a_hundred_volumes_have_one_thread_and_do_not_wait() {
    let all = Fixture::new(100, VenusConfig::default());
    assert_eq!(threads("venus-"), ["venus-chores"]);
    let seen = all.writers();
    let handles: Vec<_> = (0..100).map(|number| all.write(number)).collect();
    wait_for("every volume's bytes are sent when they are old", || seen.lock().len() == 100);
    drop(handles);
    wait_for("idle workers end", || threads("venus-") == ["venus-chores"]);
    all.volumes.stop();
    wait_for("the last thread ends with the volumes", || threads("venus-").is_empty());
    drop(all);
    a_server_that_does_not_answer_one_volume_does_not_delay_others();
    cb4_a_kernel_that_does_not_answer_does_not_delay_other_leases();
}

fn a_server_that_does_not_answer_one_volume_does_not_delay_others() {
    for delegations in [false, true] {
        let all = Fixture::new(2, VenusConfig { delegations, ..VenusConfig::default() });
        let (gate, seen) = (Arc::new((Mutex::new(false), Condvar::new())), all.writers());
        let (waits, sees, stopped) = (Arc::clone(&gate), Arc::clone(&seen), all.all[0].0.volume);
        // More jobs than it has workers.
        let files: Vec<_> = (0..20)
            .map(|number| {
                let (root, venus) = &all.all[0];
                let new = name(&format!("f{number}"));
                let (_, opened) = venus.create(&me(), *root, &new, 0o644, false, RW).unwrap();
                opened.handle
            })
            .collect();
        all.wire.set_before(move |call| {
            let volume = match call {
                Call::Make { dir, .. } => Some(dir.volume),
                call => written(call),
            };
            if volume == Some(stopped) {
                let mut open = waits.0.lock();
                while !*open {
                    waits.1.wait(&mut open);
                }
            }
            sees.lock().extend(written(call));
            None
        });
        for handle in &files {
            let old = Bytes::from_static(b"old");
            all.all[0].1.write(&me(), *handle, 0, old, false).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1500));
        let began = Instant::now();
        all.write(1);
        wait_for("the other volume's bytes are sent", || {
            seen.lock().contains(&all.all[1].0.volume)
        });
        assert!(began.elapsed() < Duration::from_secs(5), "at their age");
        assert!(!seen.lock().contains(&stopped));
        *gate.0.lock() = true;
        gate.1.notify_all();
        wait_for("and then those of the first", || seen.lock().contains(&stopped));
    }
}

/// A kernel in which a read waits for the server, and the end of its cache for the read.
#[derive(Default)]
struct Stuck(Mutex<bool>, Condvar);

impl KernelPort for Stuck {
    fn inode_data(&self, _: Fid) {}
    fn directory(&self, _: Fid) {}
    fn all(&self) {
        let mut open = self.0.lock();
        while !*open {
            self.1.wait(&mut open);
        }
    }
}

fn cb4_a_kernel_that_does_not_answer_does_not_delay_other_leases() {
    let lease = Duration::from_secs(1);
    let all = Fixture::new(30, VenusConfig { lease, ..VenusConfig::default() });
    let (stuck, kernels): (_, Vec<Arc<Kernel>>) =
        (Arc::new(Stuck::default()), (0..30).map(|_| Arc::default()).collect());
    for (number, (_, venus)) in all.all.iter().enumerate() {
        if number % 2 == 0 {
            venus.set_invalidate(Arc::clone(&stuck) as _);
        } else {
            venus.set_invalidate(Arc::clone(&kernels[number]) as _);
        }
    }
    let began = Instant::now();
    all.wire.drops_renewals.store(true, Ordering::SeqCst);
    let is_told = |kernel: &Arc<Kernel>| kernel.0.lock().contains(&Notified::All);
    wait_for("every other kernel forgets", || kernels.iter().skip(1).step_by(2).all(is_told));
    assert!(began.elapsed() < lease * 3, "15 kernels that are stuck took {:?}", began.elapsed());
    *stuck.0.lock() = true;
    stuck.1.notify_all();
}
