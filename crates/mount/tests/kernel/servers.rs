//! A tree of volumes on several servers: how they are found, and the effect of a server's death.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use types::{Call, Caller, SiteKind, VolumeCall, VolumeInfo};
use venus::RequestContext;

use crate::cell::eventually;
use crate::fleet::{Fleet, Traveller};

const FILES: usize = 40;
const BYTES: usize = 64 << 10;

fn fill(at: &Path, text: &str) {
    for number in 0..FILES {
        fs::write(at.join(format!("file-{number}")), content(number, text)).unwrap();
    }
}

fn content(number: usize, text: &str) -> Vec<u8> {
    format!("{text} {number} ").into_bytes().into_iter().cycle().take(BYTES).collect()
}

/// Bypasses the kernel's pages, so that the mount gets the read.
fn read(path: PathBuf) -> std::io::Result<Vec<u8>> {
    let file = File::options().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)?;
    let mut bytes = vec![0; BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// A volume with files, with its read-write site at server 1, and released at servers 1 and 2.
fn replicated(fleet: &mut Fleet) -> (VolumeInfo, VolumeInfo) {
    let volume = fleet.create(1, "data");
    let writer = fleet.mount(0, "data", &[]);
    fill(&writer.at(""), "first");
    writer.end();
    let released = fleet.release(1, &volume);
    fleet.copy(1, 2);
    let copy = fleet.site(2, SiteKind::ReadOnly, released.epoch);
    fleet.change("data", |group| group.sites.push(copy));
    (volume, released)
}

#[test]
fn mount_points_lead_to_volumes_on_other_servers() {
    let Some(fleet) = Fleet::start(3) else { return };
    fleet.create(0, "root");
    for (host, volume) in [(1, "one"), (2, "two")] {
        fleet.create(host, volume);
    }
    let client = fleet.mount(0, "root", &[]);
    for volume in ["one", "two"] {
        let flags = rustix::fs::XattrFlags::empty();
        let target = format!("#{volume}");
        rustix::fs::setxattr(
            client.at(""),
            format!("rialto.mount:{volume}"),
            target.as_bytes(),
            flags,
        )
        .unwrap();
        eventually("it is seen", || client.at(volume).exists());
        fs::write(client.at(volume).join("file"), volume).unwrap();
    }
    // Through another server, and with a file system for every volume.
    let other = fleet.mount(2, "root", &[]);
    for volume in ["one", "two"] {
        assert_eq!(fs::read_to_string(other.at(volume).join("file")).unwrap(), volume);
        let device = |at: &str| fs::metadata(other.at(at)).unwrap().dev();
        assert_eq!(device(volume) == device(""), crate::is_flat());
        fs::write(other.at(volume).join("file"), "changed").unwrap();
        assert_eq!(fs::read_to_string(client.at(volume).join("file")).unwrap(), "changed");
    }
    other.end();
    client.end();
}

#[test]
fn a_site_that_cannot_read_what_it_has_is_left_for_another() {
    let Some(mut fleet) = Fleet::start(3) else { return };
    let (_, released) = replicated(&mut fleet);
    let reader = fleet.mount(0, "data.readonly", &[1, 2]);
    assert_eq!(reader.server_of(&released), Some(fleet.hosts[1].id()));
    fleet.hosts[1].spoil_bodies();
    for number in 0..FILES {
        assert!(read(reader.at(&format!("file-{number}"))).unwrap() == content(number, "first"));
    }
    assert_eq!(reader.server_of(&released), Some(fleet.hosts[2].id()));
    // If no server can read it, the error is returned.
    fleet.hosts[2].spoil_bodies();
    reader
        .volumes
        .venus(released.id)
        .unwrap()
        .control()
        .refresh_volume(&RequestContext::of(&Caller::ROOT), released.id)
        .unwrap();
    let error = read(reader.at("file-0")).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::BADMSG));
    assert_eq!(fs::read_dir(reader.at("")).unwrap().count(), FILES, "and the rest goes on");
    reader.end();
}

#[test]
fn a_server_restarts_and_only_its_volumes_wait() {
    let Some(mut fleet) = Fleet::start(2) else { return };
    fleet.create(0, "root");
    fleet.create(1, "one");
    let client = fleet.mount(0, "root", &[]);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(client.at(""), "rialto.mount:one", b"#one", flags).unwrap();
    eventually("it is seen", || client.at("one").exists());
    let mut open = File::create(client.at("one/open")).unwrap();
    fs::write(client.at("one/before"), "before").unwrap();
    fleet.hosts[1].crash();
    fs::write(client.at("here"), "goes on").unwrap();
    assert_eq!(fs::read(client.at("here")).unwrap(), b"goes on");
    fleet.hosts[1].start();
    std::io::Write::write_all(&mut open, b"after").unwrap();
    open.sync_all().unwrap();
    assert_eq!(fs::read(client.at("one/open")).unwrap(), b"after");
    assert_eq!(fs::read(client.at("one/before")).unwrap(), b"before");
    drop(open);
    client.end();
}

#[test]
fn a_moved_volume_is_found_with_its_open_files() {
    let Some(mut fleet) = Fleet::start(3) else { return };
    let volume = fleet.create(1, "data");
    let client = fleet.mount(0, "data", &[]);
    fill(&client.at(""), "first");
    fs::create_dir(client.at("dir")).unwrap();
    let reading = File::open(client.at("file-1")).unwrap();
    let mut writing = File::options().append(true).open(client.at("file-2")).unwrap();
    std::io::Write::write_all(&mut writing, b"before").unwrap();
    rustix::fs::syncfs(&reading).unwrap();
    client.volumes.venus(volume.id).unwrap().hand_over().unwrap();
    fleet.carry_over(1, 2, &["data"]);
    assert_eq!(fs::read_dir(client.at("")).unwrap().count(), FILES + 1);
    fs::write(client.at("dir/new"), "new").unwrap();
    assert_eq!(client.server_of(&volume), Some(fleet.hosts[2].id()));
    let mut bytes = vec![0; BYTES];
    reading.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == content(1, "first"));
    std::io::Write::write_all(&mut writing, b"after").unwrap();
    writing.sync_all().unwrap();
    // Another client finds the same there, and both get breaks of each other's changes.
    let other = fleet.mount(2, "data", &[]);
    let grown = [&content(2, "first")[..], b"beforeafter"].concat();
    assert!(fs::read(other.at("file-2")).unwrap() == grown);
    assert_eq!(fs::read_to_string(other.at("dir/new")).unwrap(), "new");
    fs::write(other.at("dir/new"), "newer").unwrap();
    fs::remove_file(other.at("file-3")).unwrap();
    assert_eq!(fs::read_to_string(client.at("dir/new")).unwrap(), "newer");
    assert!(!client.at("file-3").exists());
    drop((reading, writing));
    other.end();
    client.end();
}

#[test]
fn a_copy_takes_over_under_a_mount() {
    let Some(mut fleet) = Fleet::start(3) else { return };
    let (volume, released) = replicated(&mut fleet);
    let ask = |fleet: &Fleet, call| fleet.hosts[2].ask(Call::Volume(call));
    // The copied partition has the read-write volume too.
    ask(&fleet, VolumeCall::Remove { id: volume.id }).unwrap();
    let client = fleet.mount(0, "data", &[]);
    for (name, bytes) in [("file-1", content(1, "lost")), ("new", b"lost".to_vec())] {
        fs::write(client.at(name), bytes).unwrap();
        File::open(client.at(name)).unwrap().sync_all().unwrap();
    }
    let open = File::options().read(true).write(true).open(client.at("file-2")).unwrap();
    flock(&open, FlockOperation::NonBlockingLockExclusive).unwrap();
    // The server has these bytes, and was not asked to make them stable.
    let unstable = File::options().write(true).open(client.at("file-3")).unwrap();
    unstable.write_all_at(&content(3, "sent again"), 0).unwrap();
    drop(unstable);
    let venus = client.volumes.venus(volume.id).unwrap();
    let root = RequestContext::of(&Caller::ROOT);
    venus.control().refresh_volume(&root, volume.id).unwrap();
    fleet.hosts[1].crash();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(client.at("file-1")).unwrap());
        let writer = scope.spawn(|| {
            let file = File::options().write(true).open(client.at("file-4")).unwrap();
            file.write_all_at(&content(4, "new"), 0).unwrap();
            file.sync_all().unwrap();
        });
        let (copy, above) = (released.id, released.epoch);
        eventually("what was removed is swept", || {
            ask(&fleet, VolumeCall::TakeOver { copy, name: volume.name.clone(), above }).is_ok()
        });
        let site = fleet.site(2, SiteKind::ReadWrite, 0);
        fleet.change("data", |group| {
            group.sites.retain(|site| site.kind == SiteKind::ReadOnly);
            group.sites.push(site);
        });
        assert!(!reader.is_finished() && !writer.is_finished(), "it does not serve yet");
        ask(&fleet, VolumeCall::Serve { id: volume.id }).unwrap();
        let got = reader.join().unwrap();
        assert!(got == content(1, "first"));
        writer.join().unwrap();
    });
    assert_eq!(client.server_of(&volume), Some(fleet.hosts[2].id()));
    // The lost server's last changes are lost; those that the client had not made stable are not.
    assert!(!client.at("new").exists());
    open.write_all_at(b"open", 0).unwrap();
    let _ = open.sync_all();
    open.sync_all().unwrap();
    File::open(client.at("file-3")).unwrap().sync_all().unwrap();
    let other = fleet.mount(2, "data", &[]);
    assert!(fs::read(other.at("file-3")).unwrap() == content(3, "sent again"));
    assert!(fs::read(other.at("file-4")).unwrap() == content(4, "new"));
    assert_eq!(fs::read(other.at("file-2")).unwrap()[..4], *b"open");
    let elsewhere = File::open(other.at("file-2")).unwrap();
    assert!(flock(&elsewhere, FlockOperation::NonBlockingLockExclusive).is_err(), "LK-1");
    fs::write(other.at("file-1"), "seen").unwrap();
    assert_eq!(fs::read_to_string(client.at("file-1")).unwrap(), "seen", "CB-1");
    drop((open, elsewhere));
    other.end();
    client.end();
}

#[test]
fn a_volume_that_is_nowhere_any_more_says_so() {
    let Some(fleet) = Fleet::start(2) else { return };
    let volume = fleet.create(1, "data");
    let client = fleet.mount(0, "data", &[]);
    fs::write(client.at("file"), "").unwrap();
    fleet.change("data", |group| group.sites.clear());
    fleet.hosts[1].ask(Call::Volume(VolumeCall::Remove { id: volume.id })).unwrap();
    let error = fs::write(client.at("new"), "").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NODEV.raw_os_error()), "{error}");
    let _ = client.mount.unmount();
}

/// Reads everything again and again until `stop`; returns the number of files read, the longest
/// pause, and the errors.
fn keep_reading(
    client: &Traveller,
    stop: &AtomicBool,
    count: &AtomicU64,
) -> (Duration, Vec<String>) {
    let (mut longest, mut errors) = (Duration::ZERO, Vec::new());
    while !stop.load(Ordering::Acquire) {
        for number in 0..FILES {
            let began = Instant::now();
            match read(client.at(&format!("file-{number}"))) {
                Ok(bytes) if bytes == content(number, "first") => {}
                Ok(_) => errors.push(format!("file-{number} is not what it was")),
                Err(error) => errors.push(format!("file-{number}: {error}")),
            }
            longest = longest.max(began.elapsed());
            count.fetch_add(1, Ordering::AcqRel);
        }
        errors.extend(fs::read_dir(client.at("")).err().map(|error| error.to_string()));
    }
    (longest, errors)
}

/// A site dies under a reader that reaches the cell through the server `home`.
fn dies_under_a_reader(home: usize, dies: usize, stays: usize) {
    let Some(mut fleet) = Fleet::start(3) else { return };
    let (_, released) = replicated(&mut fleet);
    let client = fleet.mount(home, "data.readonly", &[dies, stays]);
    let ids = fleet.hosts.iter().map(|host| host.id()).collect::<Vec<_>>();
    assert_eq!(client.server_of(&released), Some(ids[dies]));
    assert_eq!(
        fs::write(client.at("new"), "").unwrap_err().raw_os_error(),
        Some(Errno::ROFS.raw_os_error())
    );
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| keep_reading(&client, &stop, &count));
        let another = scope.spawn(|| keep_reading(&client, &stop, &count));
        let more = |than: u64| count.load(Ordering::Acquire) > than;
        eventually("the readers are at it", || more(3 * FILES as u64));
        fleet.hosts[dies].crash();
        eventually("the other one has it", || client.server_of(&released) == Some(ids[stays]));
        let then = count.load(Ordering::Acquire);
        eventually("the readers go on", || more(then + 3 * FILES as u64));
        stop.store(true, Ordering::Release);
        for thread in [reader, another] {
            let (longest, errors) = thread.join().unwrap();
            assert_eq!(errors, Vec::<String>::new());
            println!("the longest read took {longest:?}");
        }
    });
    fleet.hosts[dies].start();
    client.end();
}

#[test]
fn a_site_dies_under_a_reader_and_the_next_one_takes_over() {
    dies_under_a_reader(0, 2, 1);
}

#[test]
fn the_server_that_the_cell_was_reached_by_dies_under_a_reader() {
    dies_under_a_reader(2, 2, 1);
}

#[test]
fn a_site_that_lags_is_never_read() {
    let Some(mut fleet) = Fleet::start(3) else { return };
    let (volume, old) = replicated(&mut fleet);
    let client = fleet.mount(0, "data.readonly", &[1, 2]);
    assert_eq!(read(client.at("file-1")).unwrap(), content(1, "first"));
    let writer = fleet.mount(0, "data", &[]);
    fill(&writer.at(""), "second");
    writer.end();
    // Only the first site gets this release.
    let new = fleet.release(1, &volume);
    assert!(new.epoch > old.epoch && new.id == old.id);
    eventually("the release is seen", || {
        read(client.at("file-1")).unwrap() == content(1, "second")
    });
    fleet.hosts[1].crash();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(client.at("file-2")).unwrap());
        // Long enough to be directed to another site.
        std::thread::sleep(Duration::from_secs(3));
        assert!(!reader.is_finished(), "nobody else has what was seen");
        fleet.hosts[1].start();
        assert!(reader.join().unwrap() == content(2, "second"));
    });
    assert_eq!(client.server_of(&new), Some(fleet.hosts[1].id()));
    client.end();
}

#[test]
fn who_reads_at_a_site_that_missed_a_release_goes_elsewhere() {
    let Some(mut fleet) = Fleet::start(3) else { return };
    let (volume, released) = replicated(&mut fleet);
    let ids = fleet.hosts.iter().map(|host| host.id()).collect::<Vec<_>>();
    let client = fleet.mount(0, "data.readonly", &[2, 1]);
    client.volumes.cell().look_around();
    assert_eq!(read(client.at("file-1")).unwrap(), content(1, "first"));
    assert_eq!(client.server_of(&released), Some(ids[2]));
    let writer = fleet.mount(0, "data", &[]);
    fill(&writer.at(""), "second");
    writer.end();
    fleet.release(1, &volume);
    client.volumes.cell().look_around();
    eventually("the release is seen", || {
        read(client.at("file-1")).unwrap() == content(1, "second")
    });
    assert_eq!(client.server_of(&released), Some(ids[1]));
    client.end();
}

fn say(client: &Traveller, attribute: &str) -> serde_json::Value {
    let mut value = vec![0; 64 << 10];
    let length = rustix::fs::getxattr(client.at(""), attribute, &mut value).unwrap();
    value.truncate(length);
    if value.is_empty() { serde_json::Value::Null } else { serde_json::from_slice(&value).unwrap() }
}

#[test]
fn a_mount_reports_servers_and_sites_and_takes_ranks() {
    let Some(mut fleet) = Fleet::start(3) else { return };
    let (_, released) = replicated(&mut fleet);
    let ids = fleet.hosts.iter().map(|host| host.id().to_string()).collect::<Vec<_>>();
    let client = fleet.mount(0, "data.readonly", &[1, 2]);
    let sites = |client: &Traveller| {
        let about = say(client, "rialto.about");
        about["sites"]
            .as_array()
            .unwrap()
            .iter()
            .map(|site| site["server"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(sites(&client), [ids[1].clone(), ids[2].clone()]);
    let order = |attribute: &str| {
        let servers = say(&client, attribute);
        let servers = servers.as_array().unwrap().clone();
        servers
            .iter()
            .map(|known| (known["server"].as_str().unwrap().to_owned(), known["up"].as_bool()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        order("rialto.servers")[..2],
        [(ids[1].clone(), Some(true)), (ids[2].clone(), Some(true))]
    );
    say(&client, &format!("rialto.do:rank:{}:0", ids[2]));
    say(&client, &format!("rialto.do:rank:{}:9", ids[1]));
    assert_eq!(order("rialto.servers")[0].0, ids[2]);
    fleet.hosts[1].crash();
    let other = fleet.hosts[2].id();
    eventually("the other one has it", || {
        let _ = read(client.at("file-2"));
        client.server_of(&released) == Some(other)
    });
    let checked = order("rialto.servers:check");
    assert!(checked.contains(&(ids[1].clone(), Some(false))), "{checked:?}");
    assert_eq!(checked.iter().filter(|(_, up)| *up == Some(true)).count(), 2);
    assert_eq!(sites(&client)[0], ids[2]);
    fleet.hosts[1].start();
    client.end();
}

#[test]
fn locks_in_a_released_volume_are_this_machines_own() {
    let Some(mut fleet) = Fleet::start(3) else { return };
    let (_, released) = replicated(&mut fleet);
    let client = fleet.mount(0, "data.readonly", &[1, 2]);
    let open = || File::open(client.at("file-1")).unwrap();
    let (first, second) = (open(), open());
    use rustix::fs::{FlockOperation as How, flock};
    flock(&first, How::LockExclusive).unwrap();
    assert_eq!(flock(&second, How::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
    fleet.hosts[1].crash();
    let other = fleet.hosts[2].id();
    eventually("the other one has it", || {
        let _ = read(client.at("file-2"));
        client.server_of(&released) == Some(other)
    });
    assert_eq!(
        flock(&second, How::NonBlockingLockShared),
        Err(Errno::WOULDBLOCK),
        "it is held still"
    );
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| flock(&second, How::LockShared));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waiter.is_finished());
        flock(&first, How::NonBlockingLockShared).unwrap();
        waiter.join().unwrap().unwrap();
    });
    drop((first, second));
    flock(open(), How::NonBlockingLockExclusive).unwrap();
    fleet.hosts[1].start();
    client.end();
}

/// A server comes back at another port under a client that reaches the cell through `home`.
fn comes_back_elsewhere(home: usize) {
    let Some(mut fleet) = Fleet::start(2) else { return };
    fleet.create(1, "data");
    let client = fleet.mount(home, "data", &[]);
    fill(&client.at(""), "first");
    let reading = File::open(client.at("file-1")).unwrap();
    let mut writing = File::create(client.at("log")).unwrap();
    std::io::Write::write_all(&mut writing, b"before ").unwrap();
    rustix::fs::flock(&writing, rustix::fs::FlockOperation::LockExclusive).unwrap();
    fs::write(client.at("gone"), "still open").unwrap();
    let gone = File::open(client.at("gone")).unwrap();
    fs::remove_file(client.at("gone")).unwrap();
    let before = fleet.hosts[1].address();
    fleet.hosts[1].crash();
    let waiting = std::thread::scope(|scope| {
        // A write in progress while the server is away.
        let under_way = scope.spawn(|| {
            std::io::Write::write_all(&mut writing, b"meanwhile")?;
            writing.sync_all()
        });
        fleet.hosts[1].start_elsewhere();
        assert_ne!(fleet.hosts[1].address(), before);
        under_way.join().unwrap()
    });
    waiting.unwrap();
    assert_eq!(fs::read(client.at("log")).unwrap(), b"before meanwhile");
    let mut bytes = vec![0; BYTES];
    reading.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == content(1, "first"));
    let mut text = [0; 10];
    gone.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"still open");
    // Another client sees the lock, and the new bytes.
    let other = fleet.mount(0, "data", &[]);
    assert_eq!(fs::read(other.at("log")).unwrap(), b"before meanwhile");
    let theirs = File::open(other.at("log")).unwrap();
    let lock = |operation| rustix::fs::flock(&theirs, operation);
    let refused = lock(rustix::fs::FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(Errno::WOULDBLOCK), "the lock stayed");
    drop(writing);
    eventually("the lock ends", || {
        lock(rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    });
    fs::write(client.at("new"), "new").unwrap();
    assert_eq!(fs::read(other.at("new")).unwrap(), b"new");
    drop((reading, gone, theirs));
    other.end();
    client.end();
}

#[test]
fn a_server_comes_back_at_another_address() {
    comes_back_elsewhere(0);
}

#[test]
fn the_contact_server_comes_back_at_another_address() {
    comes_back_elsewhere(1);
}

#[test]
fn another_server_at_the_old_address_is_not_mistaken() {
    let Some(mut fleet) = Fleet::start(3) else { return };
    fleet.create(1, "one");
    let client = fleet.mount(1, "one", &[]);
    fs::write(client.at("file"), "before").unwrap();
    let mut open = File::create(client.at("open")).unwrap();
    let old = fleet.hosts[1].address();
    fleet.hosts[1].crash();
    fleet.hosts[2].crash();
    fleet.hosts[2].start_at(old);
    fleet.hosts[1].start_elsewhere();
    std::io::Write::write_all(&mut open, b"after").unwrap();
    open.sync_all().unwrap();
    assert_eq!(fs::read(client.at("open")).unwrap(), b"after");
    assert_eq!(fs::read(client.at("file")).unwrap(), b"before");
    drop(open);
    client.end();
}
