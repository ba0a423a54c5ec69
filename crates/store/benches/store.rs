//! The costs of the store alone: `cargo bench -p store`, or with `--quick` as the tests run it.
//!
//! Rates of one thread on a fresh partition in the temporary directory (`TMPDIR`), without syncs
//! unless the line says so.

use std::hint::black_box;
use std::time::Instant;

use store::{NewRoot, OpenOptions, Partition, PartitionConfig, Update, Vnode, Volume, VolumeQuota};
use types::{Cookie, Fid, Kind, Name, ReplyAddress, SessionId, Timestamp, VnodeNo};

fn file_name(number: usize) -> Name {
    Name::new(format!("file-{number:07}.txt").as_bytes()).expect("a good name")
}

/// As `vice` does it: lookup, allocate, one batch with entry, vnode, directory, data and reply.
fn create(volume: &Volume, number: usize, data: &[u8]) -> Vnode {
    let name = file_name(number);
    assert!(volume.lookup(VnodeNo::ROOT, name.as_bytes()).expect("lookup").is_none());
    let mut dir = volume.vnode(VnodeNo::ROOT).expect("root").expect("root");
    let (no, unique) = volume.slots().and_then(|slots| slots.allocate(false)).expect("slot");
    let fid = Fid { volume: volume.id(), vnode: no, unique };
    let mut vnode = Vnode::new(fid, Kind::File, 0o644, 0, 0, VnodeNo::ROOT, Timestamp::default());
    let mut update = Update::new();
    volume.edit(&mut dir, &mut update).put_entry(&name, vnode.target()).expect("entry");
    update.create_vnode(&vnode);
    if !data.is_empty() {
        volume
            .body(&mut vnode, &mut update)
            .and_then(|mut body| body.write(0, data))
            .expect("write");
    }
    update.put_vnode(&vnode);
    update.put_vnode(&dir);
    update.reply(
        ReplyAddress { session: SessionId(1), slot: 0, request: number as u64 },
        vec![0; 200].into(),
    );
    volume.commit(update).expect("commit");
    vnode
}

fn write(volume: &Volume, vnode: &mut Vnode, offset: u64, data: &[u8]) {
    let mut update = Update::new();
    volume.body(vnode, &mut update).and_then(|mut body| body.write(offset, data)).expect("write");
    update.put_vnode(vnode);
    volume.commit(update).expect("commit");
}

/// The CPU time of this thread: other jobs of the machine do not count.
fn cpu_secs() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Runs `act` for each number and prints the rate.
fn rate(what: &str, count: usize, bytes: usize, mut act: impl FnMut(usize)) {
    let (start, cpu) = (Instant::now(), cpu_secs());
    (0..count).for_each(&mut act);
    let secs = start.elapsed().as_secs_f64();
    let each = secs * 1e6 / count as f64;
    let cpu = (cpu_secs() - cpu) * 1e6 / count as f64;
    let mib = (count * bytes) as f64 / secs / f64::from(1 << 20);
    println!(
        "{what:<28} {each:>9.1} us {cpu:>9.1} us of CPU {:>10.0} /s {mib:>9.0} MiB/s",
        count as f64 / secs
    );
}

fn main() {
    // `cargo test --benches` and CI pass neither `--bench` nor `--full`.
    let full = std::env::args().any(|arg| arg == "--bench")
        && !std::env::args().any(|arg| arg == "--quick");
    let scale = |count: usize| if full { count } else { (count / 100).max(4) };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = PartitionConfig { server: "bench".to_owned() };
    let partition = Partition::create(&dir.path().join("p"), &config, OpenOptions::default())
        .expect("partition");
    let root = NewRoot {
        mode: 0o755,
        uid: 0,
        gid: 0,
        now: Timestamp::default(),
        quota: VolumeQuota::default(),
    };
    let volume = partition
        .volumes()
        .create_volume(&Name::new(b"root").expect("a good name"), &root)
        .expect("volume");

    let files = scale(50_000);
    let mut made = Vec::with_capacity(files);
    rate("create, empty", files, 0, |number| made.push(create(&volume, number, &[])));
    rate("create with 4 KiB", files, 4096, |number| {
        create(&volume, files + number, &[7; 4096]);
    });
    rate("lookup", files, 0, |number| {
        black_box(
            volume
                .lookup(VnodeNo::ROOT, file_name(number * 7919 % files).as_bytes())
                .expect("lookup"),
        );
    });
    rate("lookup of an absent name", files, 0, |number| {
        black_box(
            volume
                .lookup(VnodeNo::ROOT, file_name(10_000_000 + number).as_bytes())
                .expect("lookup"),
        );
    });
    rate("vnode", files, 0, |number| {
        black_box(volume.vnode(made[number * 7919 % files].no()).expect("vnode"));
    });
    let mut listed = 0;
    rate("list a directory", 1, 0, |_| {
        let mut cookie = Cookie::START;
        loop {
            let (page, end) = volume.read_dir(VnodeNo::ROOT, cookie, 1000).expect("listing");
            listed += page.len();
            cookie = page.last().map_or(cookie, |entry| entry.cookie);
            if end {
                break;
            }
        }
    });
    println!("  ({listed} entries)");

    let mut large = create(&volume, 10_000_001, &[]);
    let mib = vec![0x5a; 1 << 20];
    let count = scale(1024);
    rate("write 1 MiB, sequential", count, 1 << 20, |number| {
        write(&volume, &mut large, (number as u64) << 20, &mib);
    });
    rate("read 1 MiB", count, 1 << 20, |number| {
        black_box(
            volume
                .reader_of(&large)
                .and_then(|reader| reader.read((number as u64) << 20, 1 << 20))
                .expect("read"),
        );
    });
    rate("read 4 KiB", scale(20_000), 4096, |number| {
        let offset = (number as u64 * 7919) % (large.status.size / 4096) * 4096;
        black_box(
            volume.reader_of(&large).and_then(|reader| reader.read(offset, 4096)).expect("read"),
        );
    });
    rate("overwrite 4 KiB, unstable", scale(20_000), 4096, |number| {
        let offset = (number as u64 * 7919) % (large.status.size / 4096) * 4096;
        write(&volume, &mut large, offset, &mib[..4096]);
    });
    let mut grown = create(&volume, 10_000_002, &[]);
    rate("append 4 KiB", scale(20_000), 4096, |number| {
        write(&volume, &mut grown, number as u64 * 4096, &mib[..4096]);
    });
    rate("large files of 64 KiB", scale(2000), 65536, |number| {
        create(&volume, 20_000_000 + number, &mib[..65536]);
    });
    partition.sync_all().expect("sync");
    rate("overwrite 4 KiB and commit", scale(400), 4096, |number| {
        write(&volume, &mut large, number as u64 * 4096, &mib[..4096]);
        volume.sync_body(&large).expect("sync");
        partition.sync().expect("sync");
    });
    rate("create and sync", scale(400), 0, |number| {
        create(&volume, 30_000_000 + number, &[]);
        partition.sync().expect("sync");
    });
    rate("remove", files, 0, |number| {
        let vnode = &made[number];
        let mut dir = volume.vnode(VnodeNo::ROOT).expect("root").expect("root");
        let mut update = Update::new();
        volume
            .edit(&mut dir, &mut update)
            .remove_entry(file_name(number).as_bytes())
            .expect("entry");
        volume.drop_vnode(vnode, &mut update).expect("drop");
        update.put_vnode(&dir);
        volume.commit(update).expect("commit");
    });
    drop(volume);
    drop(partition);
    rate("open", 1, 0, |_| {
        Partition::open(&dir.path().join("p"), OpenOptions::default()).expect("open");
    });
}
