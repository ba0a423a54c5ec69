//! The effect of signals on processes that wait for the mount.

use rustix::process::{Pid, Signal, kill_process};

use crate::cell::Cell;
use crate::helper::Helper;

#[test]
fn a_handler_that_has_to_run_fails_no_call() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = (cell.mount(), cell.mount());
    std::fs::create_dir(there.at("dir")).unwrap();
    (0..2000)
        .for_each(|i| drop(std::fs::File::create(there.at("dir").join(i.to_string())).unwrap()));
    let mut helper = Helper::start("work through signals", &here.at("dir"));
    assert_eq!(helper.says(), "works");
    let process = Pid::from_child(&helper.child);
    while helper.child.try_wait().unwrap().is_none() {
        kill_process(process, Signal::USR1).unwrap();
    }
    let signals: usize = helper.says().parse().unwrap();
    assert!(signals > 100, "{signals} signals came");
    helper.end();
}
