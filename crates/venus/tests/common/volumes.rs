//! Many volumes of one client.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use types::{Call, Fid, Name, VolumeId};
use venus::{OpenHandle, Venus, VenusConfig, Volumes};

use super::{RW, TestServer, Wire, me, name};

const PATIENCE: Duration = Duration::from_secs(20);

pub fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub struct ManyVolumes {
    _server: TestServer,
    pub wire: Arc<Wire>,
    pub volumes: Arc<Volumes>,
    /// The roots of the volumes, and their cache managers.
    pub all: Vec<(Fid, Arc<Venus>)>,
    names: Vec<Name>,
    /// The roots and names of those that were closed.
    pub closed: Vec<(Fid, Name)>,
}

impl ManyVolumes {
    pub fn new(count: usize, config: VenusConfig) -> Self {
        let names: Vec<String> = (0..count).map(|number| format!("user.{number}")).collect();
        let server = TestServer::with_volumes(&names);
        let wire = server.wire(1, false);
        let volumes = Volumes::of(Arc::clone(&wire) as _, config);
        let opened = names.iter().map(|one| {
            let volume = volumes.find(&me(), &name(one)).unwrap();
            (Fid::root(volume.id()), volumes.open(&volume).unwrap())
        });
        let all = opened.collect();
        let names = names.iter().map(|one| name(one)).collect();
        ManyVolumes { all, names, closed: Vec::new(), _server: server, wire, volumes }
    }

    /// Closes all of them.
    pub fn close_all(&mut self) {
        for ((root, venus), name) in self.all.drain(..).zip(self.names.drain(..)) {
            self.volumes.close(root.volume);
            drop(venus);
            self.closed.push((root, name));
        }
        let all: Vec<VolumeId> = self.closed.iter().map(|(root, _)| root.volume).collect();
        self.wait_until_closed(&all);
    }

    /// Waits until these have no cache manager.
    pub fn wait_until_closed(&self, volumes: &[VolumeId]) {
        wait_for("closed volumes end", || {
            volumes.iter().all(|volume| self.volumes.venus(*volume).is_none())
        });
    }

    /// Writes a new file in the volume, which stays open.
    pub fn write(&self, number: usize) -> (Fid, OpenHandle) {
        let (root, venus) = &self.all[number];
        let (entry, opened) = venus.create(&me(), *root, &name("f"), 0o644, false, RW).unwrap();
        venus.write(&me(), opened.handle, 0, Bytes::from_static(b"old"), false).unwrap();
        (entry.status.fid, opened.handle)
    }

    /// The volumes that sent a write.
    pub fn writers(&self) -> Arc<Mutex<BTreeSet<VolumeId>>> {
        let seen = Arc::<Mutex<BTreeSet<VolumeId>>>::default();
        let sees = Arc::clone(&seen);
        self.wire.set_before(move |call| {
            sees.lock().extend(written(call));
            None
        });
        seen
    }
}

pub fn written(call: &Call) -> Option<VolumeId> {
    if let Call::Write { fid, .. } = call { Some(fid.volume) } else { None }
}

impl Drop for ManyVolumes {
    fn drop(&mut self) {
        self.wire.clear();
        self.volumes.stop();
    }
}
