//! Many volumes on one partition: `volumes DIR COUNT [FIRST]` creates them if DIR does not exist,
//! with numbers from FIRST on (1), and measures if it does. The first numbers come with a large
//! volume; `bench/volumes.sh` creates the partitions of a whole server with it.
//!
//! So the measuring process has no data in memory from the creation. It measures the limits of
//! `docs/measurements/volumes.md`: the start to the first answer, a listing of all, the
//! acknowledgement of a removal, a seal of a volume with many files; and memory.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use store::{
    NewClone, NewRoot, OpenOptions, Partition, PartitionConfig, Update, Vnode, Volume, VolumeQuota,
};
use types::{Kind, Name, Timestamp, VnodeNo, VolumeId, VolumeKind};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Threads that create volumes together and share the syncs of the log.
const MAKERS: usize = 48;
/// Files of the large volume.
const LARGE_FILES: u64 = 1_000_000;
/// One volume of so many has a file.
const FILLED_EVERY: u64 = 10;
const LARGE: &[u8] = b"large";
const LARGE_NUMBER: u64 = 1 << 40;
/// The volumes per listing call, as in a server.
const PAGE: usize = 1000;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: volumes DIR COUNT [FIRST]";
    let (Some(dir), Some(count)) = (args.next(), args.next()) else { return Err(usage.into()) };
    let (dir, count) = (Path::new(&dir), count.parse()?);
    let first = args.next().map_or(Ok(1), |first| first.parse())?;
    if dir.exists() { measure(dir, count) } else { make(dir, count, first) }
}

fn make(dir: &Path, count: u64, first_number: u64) -> Result<()> {
    let start = Instant::now();
    let partition = Partition::create(
        dir,
        &PartitionConfig { server: "volumes".into() },
        OpenOptions::default(),
    )?;
    let next = AtomicU64::new(first_number);
    std::thread::scope(|scope| {
        for _ in 0..MAKERS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= first_number + count {
                        break;
                    }
                    make_one(&partition, number).expect("a volume is made");
                }
            });
        }
    });
    println!("{count} volumes made in {:.1?}", start.elapsed());
    if first_number > 1 {
        return Ok(partition.flush()?);
    }
    let start = Instant::now();
    // Behind the numbers of other partitions of the server.
    let large = partition.volumes().create_numbered_volume(
        Some(VolumeId(LARGE_NUMBER)),
        &Name::new(LARGE)?,
        &root(),
    )?;
    for first in (0..LARGE_FILES).step_by(100) {
        let mut slots = Vec::new();
        for _ in first..LARGE_FILES.min(first + 100) {
            slots.push(large.slots()?.allocate_slot()?);
        }
        fill(&large, &slots)?;
    }
    println!("{LARGE_FILES} files made in {:.1?}", start.elapsed());
    Ok(partition.flush()?)
}

fn root() -> NewRoot {
    NewRoot {
        mode: 0o755,
        uid: 0,
        gid: 0,
        now: Timestamp::new(1_800_000_000, 0),
        quota: VolumeQuota::default(),
    }
}

fn make_one(partition: &Partition, number: u64) -> Result<()> {
    let name = Name::new(format!("user.{number}").as_bytes())?;
    let volume =
        partition.volumes().create_numbered_volume(Some(VolumeId(number)), &name, &root())?;
    if number.is_multiple_of(FILLED_EVERY) {
        fill(&volume, &[volume.slots()?.allocate_slot()?])?;
    }
    Ok(())
}

/// Creates small files in the root directory, in one update.
fn fill(volume: &Volume, slots: &[u64]) -> Result<()> {
    let mut update = Update::new();
    let mut dir = volume.vnode(VnodeNo::ROOT)?.ok_or("a volume has a root")?;
    for slot in slots {
        let fid = volume.fid_of_slot(*slot, false);
        let mut vnode = Vnode::new(fid, Kind::File, 0o644, 0, 0, VnodeNo::ROOT, root().now);
        update.create_vnode(&vnode);
        volume.body(&mut vnode, &mut update)?.write(0, b"a small file\n")?;
        volume
            .edit(&mut dir, &mut update)
            .put_entry(&Name::new(format!("f{slot}").as_bytes())?, vnode.target())?;
        update.put_vnode(&vnode);
    }
    update.put_vnode(&dir);
    Ok(volume.commit(update)?)
}

fn measure(dir: &Path, count: u64) -> Result<()> {
    let start = Instant::now();
    let partition = Partition::open(dir, OpenOptions::default())?;
    let opened = start.elapsed();
    let volume = partition.volumes().volume(VolumeId(count / 2))?.ok_or("the volume is there")?;
    volume.vnode(VnodeNo::ROOT)?.ok_or("its root too")?;
    println!("open {opened:.1?}, first answer after {:.1?}, memory {}", start.elapsed(), memory());

    let start = Instant::now();
    let (mut after, mut listed) = (VolumeId(0), 0);
    loop {
        let page = partition.volumes().list(after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.id;
        listed += page.len();
    }
    println!("{listed} volumes listed in {:.1?}, memory {}", start.elapsed(), memory());

    let step = (count / 101).max(1);
    let mut took = Vec::new();
    for number in (1..=count).step_by(usize::try_from(step)?).take(101) {
        // Earlier measurements removed some.
        if let Some(volume) = partition.volumes().volume(VolumeId(number))? {
            drop(volume);
            let start = Instant::now();
            partition.remove_volume(VolumeId(number))?;
            took.push(start.elapsed());
        }
    }
    report("removal", took);

    let large = partition.volumes().volume_named(LARGE)?.ok_or("the large volume is there")?;
    let mut took = Vec::new();
    let mut clones = Vec::new();
    for number in 0..21 {
        fill(&large, &[large.slots()?.allocate_slot()?])?;
        let name = Name::new(format!("large.{number}").as_bytes())?;
        let new = NewClone {
            id: None,
            name,
            kind: VolumeKind::Snapshot,
            now: root().now,
            replaces: None,
        };
        let start = Instant::now();
        clones.push(partition.volumes().clone_volume(large.id(), &new)?.id());
        took.push(start.elapsed());
    }
    report(&format!("seal of {} files", large.usage().files), took);
    let mut took = Vec::new();
    for clone in clones {
        let start = Instant::now();
        partition.remove_volume(clone)?;
        took.push(start.elapsed());
    }
    report("removal of such a clone", took);
    let start = Instant::now();
    let mut steps = 0;
    while partition.sweep(1000)? > 0 {
        steps += 1;
    }
    println!("all swept in {:.1?} ({steps} steps), memory {}", start.elapsed(), memory());
    Ok(partition.flush()?)
}

fn report(what: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    if let (Some(median), Some(worst)) = (took.get(took.len() / 2), took.last()) {
        println!("{what}: median {median:.2?}, worst {worst:.2?}, of {}", took.len());
    }
}

/// Resident memory of this process, and its maximum.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?").trim().to_owned()
    };
    format!("{} (most {})", line("VmRSS:"), line("VmHWM:"))
}
