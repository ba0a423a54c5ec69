//! A daemon that is killed has a successor, which gets its descriptors and records.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::Mutex;

use keep::{Event, Held, Keeper, Key};

/// Set in the daemon.
const DAEMON: &str = "RIALTO_KEEP_TEST_DAEMON";
/// A process that starts daemons has one thread: otherwise another child could inherit the end of
/// a connection.
static STARTING: Mutex<()> = Mutex::new(());
const COUNT: Key = Key { kind: 1, major: 0, minor: 0 };

/// Each daemon adds a line to the file that the first one opened, and says how many there were.
fn daemon(path: &str) -> ! {
    let keeper = Keeper::of_this_process().unwrap().unwrap();
    let mut file = match keeper.inherited("file") {
        Some(file) => File::from(file),
        None => {
            let file = File::options().append(true).create_new(true).open(path).unwrap();
            keeper.hold("file", file.as_fd()).unwrap();
            keeper.hold("other", file.as_fd()).unwrap();
            file
        }
    };
    let count = keeper.records().get(COUNT).map_or(0, |bytes| bytes[0]);
    assert_eq!(keeper.is_successor(), count > 0);
    assert_eq!(keeper.inherited("other").is_some(), count == 1);
    if count == 1 {
        keeper.release("other");
    }
    writeln!(file, "daemon {count}").unwrap();
    keeper.records().put(COUNT, &[&[count + 1]]).unwrap();
    if count == 2 {
        keeper.ends();
        std::process::exit(0);
    }
    keeper.serves();
    loop {
        std::thread::park();
    }
}

/// Waits until the daemon says this.
fn wait_for(held: &mut Held, wanted: Event) {
    loop {
        match held.take_event() {
            event if event == wanted => return,
            event => assert_ne!(event, Event::Gone, "it ended too early"),
        }
    }
}

fn start(held: &mut Held, path: &std::path::Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "a_successor_has_what_its_predecessor_left";
    command.args(["--nocapture", "--exact", test]).env(DAEMON, path);
    held.start(&mut command).unwrap()
}

#[test]
fn a_successor_has_what_its_predecessor_left() {
    if let Ok(path) = std::env::var(DAEMON) {
        daemon(&path);
    }
    let _starting = STARTING.lock().unwrap();
    let path = std::env::temp_dir().join(format!("rialto-successor-{}", std::process::id()));
    let mut held = Held::default();
    for _ in 0..2 {
        let mut child = start(&mut held, &path);
        wait_for(&mut held, Event::Ready);
        child.kill().unwrap();
        child.wait().unwrap();
        wait_for(&mut held, Event::Gone);
        assert!(held.socket().is_none());
    }
    let mut child = start(&mut held, &path);
    wait_for(&mut held, Event::Stopping);
    assert!(child.wait().unwrap().success());
    let mut text = String::new();
    File::open(&path).unwrap().read_to_string(&mut text).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(text, "daemon 0\ndaemon 1\ndaemon 2\n");
}

#[test]
fn a_daemon_that_does_not_take_its_end_is_no_harm() {
    let _starting = STARTING.lock().unwrap();
    let (mut end, other) = UnixStream::pair().unwrap();
    let mut held = Held::default();
    let mut command = Command::new("true");
    let mut child = held.start(command.stdin(std::os::fd::OwnedFd::from(other))).unwrap();
    drop(command);
    assert!(child.wait().unwrap().success());
    assert_eq!(held.take_event(), Event::Gone);
    assert_eq!(held.take_event(), Event::Gone);
    // The end of a pipe that the daemon had is closed: it left nothing open here.
    assert_eq!(end.read(&mut [0]).unwrap(), 0);
}
