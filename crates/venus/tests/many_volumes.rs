//! The volumes of one client share a thread for their chores, and none waits for another.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::volumes::{ManyVolumes, wait_for, written};
use common::{Kernel, Notified, RW, me, name};
use parking_lot::{Condvar, Mutex};
use types::{Call, Fid};
use venus::{KernelPort, VenusConfig};

#[test]
fn a_volume_whose_server_is_stopped_delays_no_other() {
    for delegations in [false, true] {
        let all = ManyVolumes::new(2, VenusConfig { delegations, ..VenusConfig::default() });
        let (gate, seen) = (Arc::new((Mutex::new(false), Condvar::new())), all.writers());
        let (waits, sees, stopped) = (Arc::clone(&gate), Arc::clone(&seen), all.all[0].0.volume);
        // More jobs than it has workers.
        let files: Vec<_> = (0..20)
            .map(|number| {
                let (root, venus) = &all.all[0];
                let new = name(&format!("f{number}"));
                let (_, opened) = venus.create(&me(), *root, &new, 0o644, false, RW).unwrap();
                opened.handle
            })
            .collect();
        all.wire.set_before(move |call| {
            let volume = match call {
                Call::Make { dir, .. } => Some(dir.volume),
                call => written(call),
            };
            if volume == Some(stopped) {
                let mut open = waits.0.lock();
                while !*open {
                    waits.1.wait(&mut open);
                }
            }
            sees.lock().extend(written(call));
            None
        });
        for handle in &files {
            let old = Bytes::from_static(b"old");
            all.all[0].1.write(&me(), *handle, 0, old, false).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1500));
        let began = Instant::now();
        all.write(1);
        wait_for("the other volume's bytes are sent", || {
            seen.lock().contains(&all.all[1].0.volume)
        });
        assert!(began.elapsed() < Duration::from_secs(5), "at their age");
        assert!(!seen.lock().contains(&stopped));
        *gate.0.lock() = true;
        gate.1.notify_all();
        wait_for("and then those of the first", || seen.lock().contains(&stopped));
    }
}

/// A kernel in which a read waits for the server, and the end of its cache for the read.
#[derive(Default)]
struct Stuck(Mutex<bool>, Condvar);

impl KernelPort for Stuck {
    fn inode_data(&self, _: Fid) {}
    fn directory(&self, _: Fid) {}
    fn all(&self) {
        let mut open = self.0.lock();
        while !*open {
            self.1.wait(&mut open);
        }
    }
}

#[test]
fn cb4_a_stuck_kernel_delays_no_other_lease() {
    let lease = Duration::from_secs(1);
    let all = ManyVolumes::new(30, VenusConfig { lease, ..VenusConfig::default() });
    let (stuck, kernels): (_, Vec<Arc<Kernel>>) =
        (Arc::new(Stuck::default()), (0..30).map(|_| Arc::default()).collect());
    for (number, (_, venus)) in all.all.iter().enumerate() {
        if number % 2 == 0 {
            venus.set_invalidate(Arc::clone(&stuck) as _);
        } else {
            venus.set_invalidate(Arc::clone(&kernels[number]) as _);
        }
    }
    let began = Instant::now();
    all.wire.drops_renewals.store(true, Ordering::SeqCst);
    let is_told = |kernel: &Arc<Kernel>| kernel.0.lock().contains(&Notified::All);
    wait_for("every other kernel forgets", || kernels.iter().skip(1).step_by(2).all(is_told));
    assert!(began.elapsed() < lease * 3, "15 kernels that are stuck took {:?}", began.elapsed());
    *stuck.0.lock() = true;
    stuck.1.notify_all();
}
