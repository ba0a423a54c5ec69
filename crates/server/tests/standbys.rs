//! A standby over real sockets: three servers, of which one has the cell's database and another
//! one dies.

use std::path::Path;
use std::time::Duration;

use crate::common::*;
use celldb::{CellDb, RemoteCellDb};
use client::{ClientOptions, Endpoint, Session};
use server::{CellPlace, Server, ServerConfig, StartError};
use types::{
    Answer, Call, Fid, PartitionNo, Revision, ServerId, Site, SiteKind, StandbyInfo, VolumeCall,
    VolumeGroup, VolumeId,
};

const LEASE: Duration = Duration::from_secs(2);

/// A server of the cell, which can die.
struct Place {
    config: ServerConfig,
    server: Option<Server>,
    _dir: tempfile::TempDir,
}

impl Place {
    fn new(db: Endpoint) -> Place {
        let dir = tempfile::tempdir().unwrap();
        make_partition(&dir.path().join("vicepa"));
        let mut config = ServerConfig::new(dir.path().join("vicepa"));
        config.unix_socket = Some(dir.path().join("socket"));
        config.tcp_listen = Some("127.0.0.1:0".into());
        config.cell = Some(CellPlace::At(db));
        config.lease = LEASE;
        config.lease_grace = Duration::from_millis(500);
        config.trust_this_machine();
        let mut place = Place { config, server: None, _dir: dir };
        place.start();
        place
    }

    fn start(&mut self) {
        // After a crash a thread of the earlier server instance may still have the partition, since
        // the process goes on.
        wait_for("the partition of an earlier server instance", || {
            match Server::start(&self.config) {
                Err(StartError::Partition { .. }) => false,
                started => {
                    self.server = Some(started.unwrap());
                    true
                }
            }
        });
    }

    fn id(&self) -> ServerId {
        self.server.as_ref().unwrap().vice().me().id
    }

    fn session(&self) -> Session {
        connect(Endpoint::Unix(self.config.unix_socket.clone().unwrap()))
    }

    fn partition(&self) -> String {
        self.config.partitions[0].0.clone()
    }

    fn site(&self, kind: SiteKind) -> Site {
        Site { server: self.id(), partition: self.partition(), kind, epoch: 0 }
    }
}

fn group(db: &dyn CellDb, id: VolumeId) -> VolumeGroup {
    db.group_of(id).unwrap().unwrap().record
}

fn is_in_step(db: &dyn CellDb, id: VolumeId, server: ServerId) -> bool {
    group(db, id).sites.iter().any(|site| site.server == server && site.is_in_step())
}

fn standbys(session: &Session, id: VolumeId) -> Vec<StandbyInfo> {
    match ask(session, Call::Volume(VolumeCall::Standbys { id })) {
        Answer::Standbys(infos) => infos,
        other => panic!("{other:?}"),
    }
}

fn read_all(session: &Session, fids: &[Fid]) -> Vec<Vec<u8>> {
    fids.iter().map(|fid| read(session, *fid, 0, 1 << 20).to_vec()).collect()
}

#[test]
fn sb1_a_volume_goes_on_where_its_standby_is() {
    let cell = Cell::with(|config| {
        let beside: &Path = config.unix_socket.as_ref().unwrap();
        config.cell = Some(CellPlace::Here(beside.with_file_name("celldb")));
    });
    let db = RemoteCellDb::at(cell.tcp(), ClientOptions::default());
    let (mut first, second) = (Place::new(cell.tcp()), Place::new(cell.tcp()));
    let is_entered = |id| db.servers().unwrap().iter().any(|seen| seen.record.id == id);
    wait_for("both servers in the database", || is_entered(first.id()) && is_entered(second.id()));
    let session = first.session();
    let create = VolumeCall::Create {
        id: None,
        partition: None,
        name: name("data"),
        quota_bytes: 0,
        quota_files: 0,
        owner: (0, 0),
        encrypt: None,
    };
    let id = match ask(&session, Call::Volume(create)) {
        Answer::Volumes { volumes, .. } => volumes[0].id,
        other => panic!("{other:?}"),
    };
    let root = status(&ask(&session, Call::Root { volume: name("data") })).fid;
    let mut files = vec![make(&session, root, "before")];
    write(&session, files[0], 0, "before");
    let mut record = VolumeGroup::new(name("data"), id, first.site(SiteKind::ReadWrite));
    record.sites.push(second.site(SiteKind::Standby));
    db.put_group(&record, Revision(0)).unwrap();
    let stand_by = VolumeCall::StandBy { partition: PartitionNo(0), tree: id };
    ask(&second.session(), Call::Volume(stand_by));
    wait_for("the standby in step", || is_in_step(&db, id, second.id()));
    for number in 0..40 {
        let fid = make(&session, root, &format!("file-{number}"));
        write(&session, fid, 0, format!("{number:05}").repeat(number * 200));
        files.push(fid);
    }
    ask(&session, Call::CommitVolume { fid: root });
    wait_for(
        "the server to know that",
        || matches!(standbys(&session, id)[..], [one] if one.is_sync && one.in_step),
    );
    let written = read_all(&session, &files);

    drop(first.server.take());
    let former = record.sites[0].server;
    wait_for("the takeover", || {
        group(&db, id).read_write_site().is_some_and(|site| site.server == second.id())
    });
    let session = second.session();
    wait_for("service at the standby", || {
        try_ask(&session, Call::Root { volume: name("data") }).is_ok()
    });
    assert_eq!(read_all(&session, &files), written);
    write(&session, files[1], 0, "at the second server");

    // The former server is the standby of the new one from now on.
    first.start();
    // The server knows it a moment after the record says so.
    wait_for(
        "the former server in step",
        || matches!(standbys(&session, id)[..], [one] if one.server == former && one.in_step),
    );
    assert!(is_in_step(&db, id, former));
    let fid = make(&session, root, "after");
    write(&session, fid, 0, "after");
}
