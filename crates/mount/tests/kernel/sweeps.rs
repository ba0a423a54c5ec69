//! Volumes that are not in use leave, while other threads walk through their mount points.

use std::fs;
use std::time::{Duration, Instant};

use crate::cell::{Cell, eventually};

const VOLUMES: usize = 8;
const LONG: Duration = Duration::from_secs(4);

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
    let began = Instant::now();
    std::thread::scope(|scope| {
        for first in 0..3 {
            scope.spawn(move || {
                let mut number = first;
                while began.elapsed() < LONG {
                    // A walk may meet its end twice, and fail.
                    let _ = fs::metadata(at(number % VOLUMES));
                    number += 1;
                    std::thread::sleep(Duration::from_millis(number as u64 % 4));
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
