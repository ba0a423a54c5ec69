//! The threads of many volumes. A test program of its own, since the threads of other tests would
//! be counted too.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::volumes::{ManyVolumes, wait_for};
use venus::VenusConfig;

/// The threads of this process whose names begin like this.
fn threads(prefix: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).map(|name| name.trim().to_owned()).collect()
}

#[test]
fn a_volume_has_no_thread_of_its_own() {
    let all = ManyVolumes::new(100, VenusConfig::default());
    // A thread takes its name itself.
    wait_for("all volumes share one thread", || threads("venus-") == ["venus-chores"]);
    let seen = all.writers();
    let handles: Vec<_> = (0..100).map(|number| all.write(number)).collect();
    wait_for("every volume's bytes are sent when they are old", || seen.lock().len() == 100);
    drop(handles);
    wait_for("idle workers end", || threads("venus-") == ["venus-chores"]);
    all.volumes.stop();
    wait_for("the last thread ends with the volumes", || threads("venus-").is_empty());
}
