//! Which threads may wait for which: a break does not wait for threads that wait for the session,
//! and a read not for a write.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Client, RW, TestServer, me};
use parking_lot::{Condvar, Mutex};
use types::{Call, Fid};
use venus::{KernelPort, OpenHandle, VenusConfig};

/// Blocks calls until it is opened.
#[derive(Default)]
struct Barrier {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Barrier {
    fn pass(&self) {
        let mut open = self.open.lock();
        while !*open {
            assert!(
                !self.opened.wait_for(&mut open, Duration::from_secs(10)).timed_out(),
                "held up for ever"
            );
        }
    }

    fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }
}

fn hold_writes(client: &Client) -> Arc<Barrier> {
    let barrier = Arc::new(Barrier::default());
    let held = barrier.clone();
    client.wire.set_before(move |call| {
        if matches!(call, Call::Write { .. }) {
            held.pass();
        }
        None
    });
    barrier
}

#[test]
fn bytes_on_their_way_to_the_server_are_read_here() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    let (_, handle) = client.create("f");
    client.write(handle, 0, &[1; 1 << 20]);
    client.venus.flush(&me(), handle, None).unwrap();
    let barrier = hold_writes(&client);
    client.write(handle, 0, &[2; 1 << 20]);
    while client.wire.count("Write") < 2 {
        std::thread::yield_now();
    }
    client.write(handle, 10, &[3; 10]);
    let read = client.read(handle, 5, 20);
    assert_eq!(read, [[2; 5].as_slice(), &[3; 10], &[2; 5]].concat());
    assert_eq!(client.read(handle, (1 << 20) - 2, 10).len(), 2);
    barrier.open();
    client.close(handle);
    assert_eq!(client.content("f").slice(5..25), read);
}

/// A kernel that writes a mapped page back before it drops it, and waits for that.
struct Mapped {
    client: Arc<Client>,
    handle: OpenHandle,
    notified: AtomicBool,
}

impl KernelPort for Mapped {
    fn inode_data(&self, _: Fid) {
        let (client, handle) = (self.client.clone(), self.handle);
        let page = std::thread::spawn(move || {
            client
                .venus
                .write(&me(), handle, 100 << 20, Bytes::from_static(b"mapped page"), false)
                .unwrap();
        });
        page.join().unwrap();
        self.notified.store(true, Ordering::SeqCst);
    }
    fn directory(&self, _: Fid) {}
    fn all(&self) {}
}

/// Returns when the thread has slept for a while.
fn wait_until_asleep(thread: rustix::thread::Pid) {
    let stat = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let mut looks = 0;
    while looks < 20 {
        std::thread::sleep(Duration::from_millis(2));
        let sleeps = std::fs::read_to_string(&stat).unwrap().contains(") S ");
        looks = if sleeps { looks + 1 } else { 0 };
    }
}

#[test]
fn pages_that_come_back_during_a_break_do_not_wait_for_room() {
    let server = TestServer::in_memory();
    let config = VenusConfig { file_dirty_bytes_max: 1 << 20, ..VenusConfig::default() };
    let (a, b) = (Arc::new(server.client_with(1, true, config)), server.client(2));
    let (_, handle) = a.create("f");
    a.venus.getattr(&me(), a.find("f").unwrap().status.fid).unwrap();
    let kernel = Arc::new(Mapped { client: a.clone(), handle, notified: AtomicBool::new(false) });
    a.venus.set_invalidate(kernel.clone());
    let other = b.open("f", RW);
    let barrier = hold_writes(&a);
    // The file's limit of dirty bytes is used up, and these bytes cannot be sent.
    a.write(handle, 0, &[1; 1 << 20]);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        // A writer that waits for room in the middle of it: its pages are locked in the kernel.
        let (begins, writer) = std::sync::mpsc::channel();
        let writing = a.clone();
        scope.spawn(move || {
            begins.send(rustix::thread::gettid()).unwrap();
            writing.write(handle, 1 << 20, &[1; 1 << 20]);
        });
        wait_until_asleep(writer.recv().unwrap());
        b.write(other, 0, b"theirs");
        b.venus.flush(&me(), other, None).unwrap();
    });
    assert!(kernel.notified.load(Ordering::SeqCst));
    assert!(begun.elapsed() < Duration::from_secs(5), "no thread waited for a lease to end");
    barrier.open();
    a.close(handle);
    assert_eq!(&b.content("f")[100 << 20..], b"mapped page");
}

/// A kernel that never finishes.
struct Stuck;

impl KernelPort for Stuck {
    fn inode_data(&self, _: Fid) {}
    fn directory(&self, _: Fid) {}
    fn all(&self) {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

#[test]
fn a_kernel_that_waits_for_us_does_not_keep_us_from_claiming() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    client.venus.set_invalidate(Arc::new(Stuck));
    let begun = Instant::now();
    client.wire.events.lock().clone().unwrap().on_server_restarted(&*client.wire);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn cb4_the_lease_ends_in_time_while_a_commit_waits() {
    let server = TestServer::in_memory();
    let config = VenusConfig {
        lease: Duration::from_millis(1500),
        uncommitted_bytes_max: 1,
        ..VenusConfig::default()
    };
    let client = server.client_with(1, false, config);
    let barrier = Arc::new(Barrier::default());
    let held = barrier.clone();
    client.wire.set_before(move |call| {
        if matches!(call, Call::CommitVolume { .. }) {
            held.pass();
        }
        None
    });
    let (_, handle) = client.create("f");
    client.write(handle, 0, b"unstable");
    client.venus.flush(&me(), handle, None).unwrap();
    client.wire.drops_renewals.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    while !client.kernel.0.lock().contains(&common::Notified::All) {
        assert!(begun.elapsed() < Duration::from_secs(5), "the kernel was not notified");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.wire.count("CommitVolume"), 1, "and the commit still waits");
    barrier.open();
}
