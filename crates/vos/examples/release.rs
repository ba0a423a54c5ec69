//! Cost of a release of ten changed files: `cargo run --release -p vos --example release -- DIR
//! COUNT SITES`.
//!
//! Makes COUNT files in a volume of one server and SITES further servers below DIR (which is made,
//! and is large), all in this process over loopback TCP, releases it once, and then twenty times
//! after ten files were written; prints the time, and the bytes that each site fetched per byte
//! written.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use celldb::RemoteCellDb;
use client::{ClientIdentity, ClientOptions, Endpoint, Remote, Session, SessionConfig};
use server::{CellPlace, Server, ServerConfig};
use store::{NewRoot, OpenOptions, Partition, PartitionConfig, Update, Vnode, Volume, VolumeQuota};
use types::{
    Answer, Busy, Call, Caller, Fid, Kind, Name, Revision, ServerId, Site, SiteKind, Timestamp,
    VnodeNo, VolumeGroup,
};
use vos::{Job, JobEvent, JobLeader, ServerConnections, Servers, VosError};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PARTITION: &str = "/vicepa";
/// Files of one directory.
const FAN: u64 = 1000;
const CHANGED: u64 = 10;
const CHANGE_BYTES: usize = 10_000;
const ROUNDS: usize = 20;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "DIR COUNT SITES";
    let dir = arguments.next().ok_or(usage)?;
    let count: u64 = arguments.next().ok_or(usage)?.parse()?;
    let sites: usize = arguments.next().ok_or(usage)?.parse()?;
    let dir = Path::new(&dir);
    let partition = make_partition(&dir.join("0"))?;
    let files = fill(&partition, count)?;
    drop(partition);
    let mut servers = Vec::new();
    for number in 0..=sites {
        if number > 0 {
            drop(make_partition(&dir.join(number.to_string()))?);
        }
        let database =
            servers.first().and_then(|server: &Server| server.endpoints().first().cloned());
        servers.push(start(dir, number, database)?);
    }
    let ids: Vec<ServerId> = servers.iter().map(|server| server.vice().me().id).collect();
    let first = servers
        .first()
        .and_then(|server| server.endpoints().first().cloned())
        .ok_or("it listens")?;
    let db = Arc::new(RemoteCellDb::at(first.clone(), ClientOptions::default()));
    let reach = ServerConnections::new(db, [], ClientOptions::default());
    while reach.db().servers()?.len() <= sites {
        std::thread::sleep(Duration::from_millis(10));
    }
    enter(&reach, &ids)?;
    let begun = Instant::now();
    let bytes = release(&reach)?;
    println!("{count} files to {sites} sites: {:.1?}, {bytes} bytes", begun.elapsed());
    let session = Session::connect(SessionConfig::new(first, ClientIdentity::fleeting()))?;
    measure(&reach, &session, &files, sites)
}

fn measure(
    reach: &ServerConnections,
    session: &Session,
    files: &[Fid],
    sites: usize,
) -> Result<()> {
    let (mut took, count) = (Vec::new(), files.len() as u64);
    let mut sent = 0;
    for round in 0..ROUNDS {
        for at in 0..CHANGED {
            let number = (at * count / CHANGED + round as u64) % count;
            let fid = files[number as usize];
            let data = vec![round as u8; CHANGE_BYTES].into();
            let write =
                Call::Write { fid, offset: Some(0), data, stable: true, kill_privileges: false };
            match session.call(&Caller::ROOT, write, None)?.answer {
                Answer::Written { .. } => {}
                other => return Err(format!("{other:?}").into()),
            }
        }
        let begun = Instant::now();
        sent += release(reach)?;
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    let written = ROUNDS * CHANGED as usize * CHANGE_BYTES * sites;
    println!(
        "{CHANGED} changed files: median {:.1?}, worst {:.1?}; {:.3} bytes sent for each changed \
            and site",
        took[ROUNDS / 2],
        took[ROUNDS - 1],
        sent as f64 / written as f64
    );
    Ok(())
}

fn make_partition(path: &Path) -> Result<Partition> {
    std::fs::create_dir_all(path.parent().unwrap_or(path))?;
    Ok(Partition::create(
        path,
        &PartitionConfig { server: "example".into() },
        OpenOptions::default(),
    )?)
}

fn start(dir: &Path, number: usize, database: Option<Endpoint>) -> Result<Server> {
    let mut config = ServerConfig::new(dir.join(number.to_string()));
    config.tcp_listen = Some("127.0.0.1:0".into());
    config.trust_this_machine();
    config.name = Some(format!("server{number}"));
    config.cell = Some(database.map_or_else(|| CellPlace::Here(dir.join("celldb")), CellPlace::At));
    Ok(Server::start(&config)?)
}

/// The files that were made.
fn fill(partition: &Partition, count: u64) -> Result<Vec<Fid>> {
    let root = NewRoot {
        mode: 0o755,
        uid: 0,
        gid: 0,
        now: Timestamp::new(1, 0),
        quota: VolumeQuota::default(),
    };
    let volume = partition.volumes().create_volume(&Name::new(b"home")?, &root)?;
    let mut files = Vec::new();
    for first in (0..count).step_by(FAN as usize) {
        fill_directory(&volume, first, count.min(first + FAN), root.now, &mut files)?;
    }
    partition.sync_all()?;
    Ok(files)
}

fn fill_directory(
    volume: &Volume,
    first: u64,
    end: u64,
    now: Timestamp,
    files: &mut Vec<Fid>,
) -> Result<()> {
    let mut update = Update::new();
    let mut root = volume.vnode(VnodeNo::ROOT)?.ok_or("a volume has a root")?;
    let fid = volume.fid_of_slot(volume.slots()?.allocate_slot()?, true);
    let mut dir = Vnode::new(fid, Kind::Directory, 0o755, 0, 0, VnodeNo::ROOT, now);
    update.create_vnode(&dir);
    volume
        .edit(&mut root, &mut update)
        .put_entry(&Name::new(format!("d{first}").as_bytes())?, dir.target())?;
    for number in first..end {
        let fid = volume.fid_of_slot(volume.slots()?.allocate_slot()?, false);
        files.push(fid);
        let mut vnode = Vnode::new(fid, Kind::File, 0o644, 0, 0, dir.target().vnode, now);
        update.create_vnode(&vnode);
        volume.body(&mut vnode, &mut update)?.write(0, b"a small file\n")?;
        volume
            .edit(&mut dir, &mut update)
            .put_entry(&Name::new(format!("f{number}").as_bytes())?, vnode.target())?;
        update.put_vnode(&vnode);
    }
    update.put_vnode(&dir);
    update.put_vnode(&root);
    Ok(volume.commit(update)?)
}

/// The group, with all other servers as sites.
fn enter(reach: &ServerConnections, ids: &[ServerId]) -> Result<()> {
    let site = |(at, id): (usize, &ServerId)| Site {
        server: *id,
        partition: PARTITION.to_owned(),
        kind: if at == 0 { SiteKind::ReadWrite } else { SiteKind::ReadOnly },
        epoch: 0,
    };
    let db = reach.db();
    let mut sites: Vec<Site> = ids.iter().enumerate().map(site).collect();
    let first = db.take_numbers(types::VolumeId(1), 1)?;
    let source = sites.remove(0);
    let mut group = VolumeGroup::new(Name::new(b"home")?, types::VolumeId(1), source);
    group.read_only = Some(first);
    group.sites.extend(sites);
    db.put_group(&group, Revision(0))?;
    Ok(())
}

/// Bytes that all sites fetched.
fn release(reach: &ServerConnections) -> Result<u64> {
    let seen = reach.db().group_named(&Name::new(b"home")?)?.ok_or("it was entered")?;
    let is_over = |_: &Busy| false;
    let who = JobLeader { by: "example".into(), now_secs: &|| 0, is_over: &is_over };
    let tell = |_: JobEvent<'_>| {};
    let released = vos::release(&Job { servers: reach, who, dry_run: false, tell: &tell }, seen)?;
    let lagging: Option<&VosError> = released.lagging.first().map(|(_, error)| error);
    lagging.map_or(Ok(()), |error| Err(error.clone()))?;
    Ok(released.sites.iter().map(|(_, bytes)| bytes).sum())
}
