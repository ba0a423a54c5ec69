//! A keeper that starts no daemons holds the descriptors of each place for the next daemon there.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use keep::{HeldPlaces, Keeper, Key};

const COUNT: Key = Key { kind: 1, major: 0, minor: 0 };

struct Running {
    socket: PathBuf,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(name: &str) -> Running {
        let socket = std::env::temp_dir().join(format!("keep-{name}-{}", std::process::id()));
        let mut places = HeldPlaces::listen(&socket).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || places.serve(&[stopped.as_fd()]).unwrap());
        Running { socket, stop, thread: Some(thread) }
    }

    fn daemon(&self, place: &str) -> std::io::Result<Arc<Keeper>> {
        Keeper::at(&self.socket, Path::new(place))
    }

    /// The next daemon of a place whose daemon has just ended.
    fn next(&self, place: &str) -> Arc<Keeper> {
        let began = Instant::now();
        loop {
            match self.daemon(place) {
                Ok(keeper) => return keeper,
                Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse),
            }
            assert!(began.elapsed() < Duration::from_secs(10), "the place is not free");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.write_all(b"x").unwrap();
        self.thread.take().unwrap().join().unwrap();
        assert!(!self.socket.exists());
    }
}

fn file(text: &str) -> File {
    let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(memory);
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn text(keeper: &Keeper) -> String {
    let mut file = File::from(keeper.inherited("file").unwrap());
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn each_place_has_a_legacy_of_its_own() {
    let running = Running::start("legacy");
    for place in ["/one", "/two"] {
        let keeper = running.daemon(place).unwrap();
        assert!(!keeper.is_successor());
        keeper.hold("file", file(place).as_fd()).unwrap();
        keeper.records().put(COUNT, &[place.as_bytes()]).unwrap();
        keeper.serves();
    }
    for place in ["/two", "/one"] {
        let keeper = running.next(place);
        assert!(keeper.is_successor());
        assert_eq!(text(&keeper), place);
        assert_eq!(keeper.records().get(COUNT).unwrap(), place.as_bytes());
    }
    assert_eq!(text(&running.next("/one")), "/one", "it is held on");
}

#[test]
fn a_place_has_one_daemon_at_a_time() {
    let running = Running::start("one");
    let first = running.daemon("/one").unwrap();
    assert_eq!(running.daemon("/one").unwrap_err().kind(), ErrorKind::AddrInUse);
    running.daemon("/two").unwrap();
    assert_eq!(HeldPlaces::listen(&running.socket).unwrap_err().kind(), ErrorKind::AddrInUse);
    first.serves();
    drop(first);
    assert!(running.next("/one").is_successor());
}

#[test]
fn a_place_has_one_daemon_under_all_its_names() {
    let running = Running::start("names");
    let first = running.daemon("/one/two").unwrap();
    for name in ["/one/two/", "//one//two", "/one/./two/."] {
        assert_eq!(running.daemon(name).unwrap_err().kind(), ErrorKind::AddrInUse, "{name}");
    }
    for name in ["one", "/one/../one/two", "/", "/one\n/two"] {
        assert_eq!(running.daemon(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
    }
    first.hold("file", file("text").as_fd()).unwrap();
    first.serves();
    drop(first);
    assert_eq!(text(&running.next("/one/two/")), "text");
}

#[test]
fn of_many_at_once_one_has_the_place() {
    let running = Running::start("many");
    for round in 0..20 {
        let place = format!("/place-{round}");
        let all: Vec<_> = std::thread::scope(|scope| {
            let one = || running.daemon(&place);
            let threads: Vec<_> = (0..6).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (have, refused): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
        assert_eq!(have.len(), 1, "{refused:?}");
        let kinds = refused.into_iter().map(|error| error.unwrap_err().kind());
        assert!(kinds.into_iter().all(|kind| kind == ErrorKind::AddrInUse));
    }
}

#[test]
fn records_of_another_version_are_refused_and_held() {
    let running = Running::start("version");
    let keeper = running.daemon("/one").unwrap();
    keeper.records().put(COUNT, &[b"records"]).unwrap();
    let records = File::from(keeper.records().file().try_clone().unwrap());
    keeper.hold("file", file("text").as_fd()).unwrap();
    keeper.serves();
    drop(keeper);
    let mut version = [0; 8];
    records.read_exact_at(&mut version, 0).unwrap();
    records.write_all_at(b"rlt-kp99", 0).unwrap();
    for _ in 0..3 {
        let error = loop {
            match running.daemon("/one") {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                other => break other.unwrap_err(),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("another version"), "{error}");
    }
    records.write_all_at(&version, 0).unwrap();
    let keeper = running.next("/one");
    assert_eq!(keeper.records().get(COUNT).unwrap(), b"records");
    assert_eq!(text(&keeper), "text");
}

#[test]
fn what_no_successor_needs_is_let_go() {
    let running = Running::start("gone");
    let never_served = running.daemon("/one").unwrap();
    never_served.hold("file", file("x").as_fd()).unwrap();
    drop(never_served);
    let stopping = running.next("/one");
    assert!(!stopping.is_successor());
    stopping.serves();
    stopping.ends();
    drop(stopping);
    assert!(!running.next("/one").is_successor());
}

#[test]
fn the_place_of_a_mount_that_ended_is_free() {
    let running = Running::start("ended");
    let keeper = running.daemon("/one").unwrap();
    // As /dev/fuse once its mount has ended: with an error for whoever polls it.
    let (ended, other) = std::io::pipe().unwrap();
    drop(ended);
    keeper.hold("fuse-0", other.as_fd()).unwrap();
    keeper.serves();
    drop(keeper);
    let began = Instant::now();
    while running.next("/one").is_successor() {
        assert!(began.elapsed() < Duration::from_secs(10), "it is held on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_socket_that_a_killed_keeper_left_is_taken_over() {
    let socket = std::env::temp_dir().join(format!("keep-left-{}", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    drop(listener);
    assert_eq!(
        Keeper::at(&socket, Path::new("/one")).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    let places = HeldPlaces::listen(&socket).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&socket.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    drop(places);
    assert!(!socket.exists());
}
