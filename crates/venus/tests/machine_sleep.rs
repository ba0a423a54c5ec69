//! A machine that slept: state that the server dropped meanwhile is not trusted for a moment
//! longer. A test program of its own, since the clock belongs to the process.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use client::clock;
use common::{Notified, TestServer, me};

#[test]
fn cb4_nothing_is_answered_from_memory_after_a_suspension() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    let (fid, handle) = client.create("f");
    client.close(handle);
    client.venus.getattr(&me(), fid).unwrap();
    client.wire.take();
    client.venus.getattr(&me(), fid).unwrap();
    assert!(client.wire.take().is_empty(), "it is known");
    assert!(client.kernel.0.lock().iter().all(|told| *told != Notified::All));

    // A renewal that reaches the server before it ended the session restores everything, and the
    // kernel then needs no notification.
    client.wire.session.fall_silent();
    clock::jump(Duration::from_secs(3600));
    // Right away, whether any thread of the client has noticed or not.
    let _ = client.venus.getattr(&me(), fid);
    assert!(
        !client.wire.take().is_empty(),
        "CB-4: answered from a cache that the server gave up an hour ago"
    );
    // The kernel is notified without another request, and long before a quarter of a lease is over.
    let since = Instant::now();
    while !client.kernel.0.lock().contains(&Notified::All) {
        assert!(since.elapsed() < Duration::from_secs(10), "the kernel was not notified");
        std::thread::sleep(Duration::from_millis(5));
    }
}
