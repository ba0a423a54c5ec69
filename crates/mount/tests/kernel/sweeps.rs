//! Volumes that are not in use leave, while other threads walk through their mount points.

use std::fs;
use std::time::Duration;

use crate::cell::{Cell, eventually};

const VOLUMES: usize = 8;
/// As long as a sweep spares a volume that a walk went through.
const SPARED: Duration = Duration::from_secs(2);
const ROUNDS: u32 = 4;

#[test]
fn a_sweep_loses_no_volume_that_a_walk_attaches_meanwhile() {
    let Some(cell) = Cell::start() else { return };
    for number in 0..VOLUMES {
        cell.add_volume(&format!("v{number}"));
        cell.point("root", &format!("v{number}"), &format!("#v{number}"));
    }
    // A sweep follows the other.
    let client = cell.mount_idle(Duration::from_millis(1));
    let at = |number: usize| client.at(&format!("v{number}/file"));
    for number in 0..VOLUMES {
        fs::write(at(number), number.to_string()).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    for number in 0..VOLUMES {
                        // Whether the volume is there, leaves, or is gone: no walk fails.
                        let found = fs::metadata(at(number));
                        assert!(found.is_ok(), "thread {thread}, round {round}: {found:?}");
                    }
                    // The next round comes about when the volumes leave.
                    let late = Duration::from_millis(u64::from((thread * 7 + round * 5) % 20));
                    std::thread::sleep(SPARED + late - Duration::from_millis(10));
                }
            });
        }
    });
    // One that is upon a mount point which does not know of it stays for ever.
    let place = client.at("v");
    eventually("all are unmounted", || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        !table.contains(place.to_str().unwrap())
    });
    for number in 0..VOLUMES {
        assert_eq!(fs::read_to_string(at(number)).unwrap(), number.to_string());
    }
}
