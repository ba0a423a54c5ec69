//! A server of its own that a test can end and start again, and mounts that reach it through its
//! socket.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{ClientIdentity, Endpoint, Session, SessionConfig};
use mount::{Mount, MountConfig};
use server::{Server, ServerConfig};
use store::{NewRoot, OpenOptions, Partition, PartitionConfig, VolumeQuota};
use tempfile::TempDir;
use types::Timestamp;
use venus::{VenusConfig, Volumes};

use crate::cell::{Cell, volume};
use crate::{is_flat, transport};

/// The server and its partition.
pub struct Standing {
    server: Option<Server>,
    config: ServerConfig,
    dir: TempDir,
}

impl Standing {
    /// Starts a fresh one; `None` if nothing can be mounted.
    pub fn start() -> Option<Standing> {
        Cell::start()?;
        let dir = tempfile::tempdir().unwrap();
        let partition = dir.path().join("vicepa");
        let made =
            Partition::create(&partition, &PartitionConfig::default(), OpenOptions::default())
                .unwrap();
        let root = NewRoot {
            mode: 0o755,
            uid: 0,
            gid: 0,
            now: Timestamp::new(1, 0),
            quota: VolumeQuota::default(),
        };
        made.volumes().create_volume(&volume(), &root).unwrap();
        drop(made);
        let mut config = ServerConfig::new(&partition);
        config.unix_socket = Some(dir.path().join("socket"));
        let server = Some(Server::start(&config).unwrap());
        Some(Standing { server, config, dir })
    }

    /// Ends it.
    pub fn end(&mut self) {
        drop(self.server.take());
    }

    /// Starts it after an end.
    pub fn start_again(&mut self) {
        self.server = Some(Server::start(&self.config).unwrap());
    }

    /// The path of its partition.
    pub fn partition(&self) -> PathBuf {
        self.dir.path().join("vicepa")
    }

    /// Mounts once more.
    pub fn mount(&self, name: &str) -> Away {
        let at = self.dir.path().join(name);
        fs::create_dir(&at).unwrap();
        let socket = self.config.unix_socket.clone().unwrap();
        let session = Session::connect(SessionConfig::new(
            Endpoint::Unix(socket),
            ClientIdentity::fleeting(),
        ))
        .unwrap();
        let volumes = Volumes::of(Arc::new(session), VenusConfig::default());
        let config = MountConfig {
            transport: transport(),
            flat: is_flat(),
            ..MountConfig::new(&at, volume(), "rialto:test")
        };
        Away { mount: Mount::start(config, &volumes).unwrap(), volumes }
    }
}

/// A mount whose server is restarted under it.
pub struct Away {
    mount: Mount,
    volumes: Arc<Volumes>,
}

impl Away {
    /// A path in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn path(&self) -> &Path {
        self.mount.mountpoint()
    }

    /// Files that are open in passthrough.
    pub fn passed(&self) -> usize {
        self.mount.venus().passthrough().open
    }

    /// Unmounts, and sends all changes to the server.
    pub fn end(self) {
        self.mount.unmount().unwrap();
        self.mount.wait();
        self.volumes.shutdown().unwrap();
    }
}
