//! How many calls of each kind there were.

use std::sync::atomic::{AtomicU64, Ordering};

use types::Call;

macro_rules! call_names {
    ($($variant:ident => $name:literal),* $(,)?) => {
        const NAMES: &[&str] = &[$($name),*];

        fn name(call: &Call) -> &'static str {
            match call {
                $(Call::$variant { .. } => $name,)*
            }
        }
    };
}

call_names! {
    Root => "root",
    Lookup => "lookup",
    ReadDir => "read_dir",
    Make => "make",
    MakeUnnamed => "make_unnamed",
    Link => "link",
    Remove => "remove",
    Rename => "rename",
    ReadLink => "read_link",
    GetStatus => "get_status",
    SetStatus => "set_status",
    XattrGet => "xattr_get",
    XattrSet => "xattr_set",
    XattrList => "xattr_list",
    XattrRemove => "xattr_remove",
    VolumeStatus => "volume_status",
    SetQuota => "set_quota",
    GetAcl => "get_acl",
    SetAcl => "set_acl",
    Rights => "rights",
    Read => "read",
    ReadPacked => "read_packed",
    Write => "write",
    Allocate => "allocate",
    Seek => "seek",
    Commit => "commit",
    CommitVolume => "commit_volume",
    OpenBody => "open_body",
    ReadSums => "read_sums",
    LendBody => "lend_body",
    SettleBody => "settle_body",
    LendBlank => "lend_blank",
    AdoptBody => "adopt_body",
    Lock => "lock",
    Unlock => "unlock",
    TestLock => "test_lock",
    Hold => "hold",
    Unhold => "unhold",
    ReclaimDone => "reclaim_done",
    ServerReport => "server_report",
    Scrub => "scrub",
    Delegate => "delegate",
    Delegated => "delegated",
    Return => "return",
    Volume => "volume",
    Cell => "cell",
    Pts => "pts",
    Auth => "auth",
    Guard => "guard",
}

/// Calls begun, by kind; repetitions count too.
pub(crate) struct CallCounters(Box<[AtomicU64]>);

impl Default for CallCounters {
    fn default() -> Self {
        CallCounters(NAMES.iter().map(|_| AtomicU64::new(0)).collect())
    }
}

impl CallCounters {
    pub fn count(&self, call: &Call) {
        let wanted = name(call);
        if let Some(at) = NAMES.iter().position(|name| std::ptr::eq(*name, wanted) || *name == wanted) {
            self.0[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Kinds that were called, and how often.
    pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        NAMES.iter().copied().zip(counts).filter(|(_, count)| *count > 0).collect()
    }
}
