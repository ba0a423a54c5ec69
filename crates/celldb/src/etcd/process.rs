//! An etcd for tests: one member, on the loopback, in a directory of its own.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use types::ServerId;

use super::store::EtcdStore;
use super::{Etcd, EtcdClient, EtcdConfig};
use crate::format::State;
use crate::{Access, CellDb};

/// It ends when it is dropped.
pub(crate) struct EtcdProcess {
    child: Child,
    pub config: EtcdConfig,
    _dir: tempfile::TempDir,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl EtcdProcess {
    pub fn start() -> EtcdProcess {
        // Another test may have taken a port.
        (0..5).find_map(|_| Self::try_start()).expect("etcd starts")
    }

    fn try_start() -> Option<EtcdProcess> {
        // Its log is synced at each change, which takes long on a disk.
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            tempfile::tempdir_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        let [client, peer] = [free_port(), free_port()];
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let child = Command::new("etcd")
            .args(["--name", "one", "--data-dir"])
            .arg(dir.path().join("data"))
            .args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)])
            .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
            .args(["--initial-cluster", &format!("one={}", url(peer)), "--logger", "zap"])
            .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd is there: 'scripts/setup.sh test' installs it");
        let endpoints = vec![format!("127.0.0.1:{client}")];
        let mut process = EtcdProcess {
            child,
            config: EtcdConfig { endpoints, ..Default::default() },
            _dir: dir,
        };
        let began = Instant::now();
        while process.store("none").state().is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "etcd does not start");
            if process.child.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(process)
    }

    pub fn store(&self, cell: &str) -> EtcdStore {
        EtcdStore::new(EtcdClient::new(&self.config).unwrap(), cell)
    }

    /// Makes an empty database.
    pub fn make(&self, cell: &str) {
        self.make_at(cell, crate::CELL_LEVEL_KNOWN);
    }

    /// Makes an empty database at this level.
    pub fn make_at(&self, cell: &str, level: u32) {
        assert!(self.store(cell).set_state(None, Some(&State::InUse)).unwrap());
        let db = Etcd::new(&self.config, cell, Arc::default()).unwrap();
        db.operations.begin(&db.operations.hold(), level).unwrap();
    }

    /// Opens it for a server that listens to changes.
    pub fn open(&self, cell: &str, kept: u64) -> EtcdDb {
        let db = Arc::new(Etcd::keeping(&self.config, cell, Arc::default(), kept).unwrap());
        let stops = Arc::new(AtomicBool::new(false));
        let (follower, stop) = (Arc::clone(&db), Arc::clone(&stops));
        db.listen(EtcdDb::ME);
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Acquire) {
                follower.listen(EtcdDb::ME);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        EtcdDb { db, stops, thread: Some(thread) }
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A database with the thread that a server has for it.
pub(crate) struct EtcdDb {
    pub db: Arc<Etcd>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EtcdDb {
    /// The server.
    pub const ME: ServerId = ServerId(99);

    pub fn database(&self) -> &dyn CellDb {
        &*self.db
    }
}

impl Drop for EtcdDb {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
