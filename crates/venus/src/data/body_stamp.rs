//! The state of a body file, by which its changes are noticed.

use std::os::fd::AsFd;

use rustix::fs::Stat;

/// State of a body. Each change of the body changes it (the kernel makes times as fine as
/// necessary).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyStamp {
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl BodyStamp {
    pub fn of(body: impl AsFd) -> Option<BodyStamp> {
        rustix::fs::fstat(body).ok().map(|stat| BodyStamp::of_stat(&stat))
    }

    pub fn of_stat(stat: &Stat) -> BodyStamp {
        let modified = (stat.st_mtime, stat.st_mtime_nsec);
        BodyStamp { size: stat.st_size, modified, changed: (stat.st_ctime, stat.st_ctime_nsec) }
    }
}
