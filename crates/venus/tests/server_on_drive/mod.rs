//! A server in a process of its own, on RocksDB and ext4 above a drive that can lose its power.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use powercut::{DriveImage, DrivenMachine, Flushes};
use server::{Server, ServerConfig};
use store::{NewRoot, OpenOptions, Partition, PartitionConfig, Volume, VolumeQuota};
use types::{Fid, Timestamp};

use crate::Host;
use crate::common::name;

/// The directory of the process that serves.
const SERVER: &str = "RIALTO_VENUS_POWER_SERVER";
const DRIVE_BYTES: u64 = 512 << 20;
const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// In the process that is killed: serves for ever, if it was started for that.
pub fn serve() {
    let Ok(at) = std::env::var(SERVER) else { return };
    let at = Path::new(&at);
    let mut config = ServerConfig::new(partition_of(&at.join("machine/fs")));
    config.unix_socket = Some(at.join("socket"));
    let _server = Server::start(&config).unwrap();
    loop {
        std::thread::sleep(STARTS_WITHIN);
    }
}

fn partition_of(root: &Path) -> PathBuf {
    root.join("vicepa")
}

/// The machine and the server on it.
pub struct Driven {
    at: PathBuf,
    machine: Option<DrivenMachine>,
    server: Option<Child>,
    seed: u64,
    /// Number of power losses.
    pub losses: u64,
}

impl Driven {
    /// A new cell below `at`; its root.
    pub fn new(at: &Path, seed: u64) -> (Driven, Fid) {
        let image = DriveImage::ext4(DRIVE_BYTES, at).unwrap();
        let machine = DrivenMachine::boot(&at.join("machine"), image, Flushes::Obeyed).unwrap();
        let config = PartitionConfig { server: "test".into() };
        let path = partition_of(machine.root());
        let partition = Partition::create(&path, &config, OpenOptions::default()).unwrap();
        let (now, quota) = (Timestamp::new(1, 0), VolumeQuota::default());
        let root = NewRoot { mode: 0o755, uid: 0, gid: 0, now, quota };
        let volume = partition.volumes().create_volume(&name("root"), &root).unwrap().id();
        partition.sync_all().unwrap();
        drop(partition);
        let mut driven =
            Driven { at: at.to_owned(), machine: Some(machine), server: None, seed, losses: 0 };
        driven.start();
        (driven, Fid::root(volume))
    }

    fn start(&mut self) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["server_process", "--exact", "--nocapture"]).env(SERVER, &self.at);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.server = Some(command.spawn().unwrap());
        let began = Instant::now();
        while std::os::unix::net::UnixStream::connect(self.at.join("socket")).is_err() {
            assert!(began.elapsed() < STARTS_WITHIN, "the server does not start");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    fn machine(&self) -> &DrivenMachine {
        self.machine.as_ref().expect("it runs")
    }
}

impl Host for Driven {
    fn restart(&mut self, loses: bool) {
        if loses {
            self.machine().drive().cut();
        }
        self.kill();
        if loses {
            self.losses += 1;
            let machine = self.machine.take().expect("it runs");
            let image = machine.lose_power(self.seed * 1000 + self.losses).unwrap();
            let again =
                DrivenMachine::boot(&self.at.join("machine"), image, Flushes::Obeyed).unwrap();
            self.machine = Some(again);
        }
        self.start();
    }

    fn look(&mut self, fid: Fid, seed: u64, look: &mut dyn FnMut(&Volume)) {
        let image = self.machine().drive().after_loss(seed);
        let other = DrivenMachine::boot(&self.at.join("other"), image, Flushes::Obeyed).unwrap();
        let partition =
            Partition::open(&partition_of(other.root()), OpenOptions::default()).unwrap();
        let volume = partition.volumes().volume(fid.volume).unwrap().unwrap();
        look(&volume);
        drop((volume, partition));
        other.stop().unwrap();
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.kill();
    }
}
