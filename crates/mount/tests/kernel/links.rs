//! Listing many symbolic links, as `ls -lF` does: each is read, and its target examined.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{CallError, Cancel, Events, Remote, Reply};
use types::{Call, Caller};

use crate::cell::Cell;

const LINKS: usize = 3000;

/// A session whose calls are counted.
struct Counting {
    session: Arc<dyn Remote>,
    calls: AtomicU64,
}

impl Remote for Counting {
    fn call(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.session.call(caller, call, cancel)
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        self.calls.fetch_add(calls.len() as u64, Ordering::SeqCst);
        self.session.chain(caller, calls)
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        self.session.set_events(events);
    }

    fn passes_descriptors(&self) -> bool {
        self.session.passes_descriptors()
    }
}

/// `ls -lF` of `dir`, by a client with an empty cache; returns its output, and the calls to the
/// server.
fn list(cell: &Cell, dir: &str) -> (String, u64) {
    let counting = Arc::new(Counting { session: cell.session(), calls: AtomicU64::new(0) });
    let client = cell.mount_through(Arc::clone(&counting) as _);
    let before = counting.calls.load(Ordering::SeqCst);
    let output = Command::new("ls").arg("-lF").arg(client.at(dir)).output().unwrap();
    let calls = counting.calls.load(Ordering::SeqCst) - before;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), calls)
}

#[test]
fn no_link_of_a_listing_is_asked_for_by_itself() {
    let Some(cell) = Cell::start() else { return };
    {
        let client = cell.mount();
        fs::create_dir(client.at("links")).unwrap();
        fs::create_dir(client.at("links/target")).unwrap();
        for at in 0..LINKS {
            std::os::unix::fs::symlink("target", client.at(&format!("links/link-{at:05}")))
                .unwrap();
        }
        let long = "x/../".repeat(200);
        std::os::unix::fs::symlink(&long, client.at("links/long")).unwrap();
    }
    let (shown, calls) = list(&cell, "links");
    assert_eq!(
        shown.lines().filter(|line| line.ends_with(" -> target/")).count(),
        LINKS,
        "{}",
        &shown[..1000]
    );
    assert!(calls <= 30, "{calls} calls");
}

#[test]
fn links_to_as_many_files_take_no_call_for_each() {
    let Some(cell) = Cell::start() else { return };
    {
        let client = cell.mount();
        fs::create_dir(client.at("links")).unwrap();
        fs::create_dir(client.at("files")).unwrap();
        for at in 0..LINKS {
            fs::write(client.at(&format!("files/file-{at:05}")), "").unwrap();
            let to = format!("../files/file-{at:05}");
            std::os::unix::fs::symlink(to, client.at(&format!("links/link-{at:05}"))).unwrap();
        }
    }
    let (shown, calls) = list(&cell, "links");
    for at in [0, 1, LINKS - 1] {
        assert!(
            shown.contains(&format!(" link-{at:05} -> ../files/file-{at:05}\n")),
            "{}",
            &shown[..1000]
        );
    }
    assert!(calls <= 100, "{calls} calls");
}
