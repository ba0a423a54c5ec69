//! The changes that this server has received of a database that is elsewhere: the rules, the
//! principals that changed, and how long ago all of them were known.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use client::clock;

mod rules;
mod told;

use rules::FetchedRules;
pub(crate) use rules::roles_of;
pub use rules::roles_text;
use told::ReceivedChanges;

/// Cached records of principals are valid for this time without an answer, unless `cell.toml` has
/// another time.
pub const AWAY_MAX: Duration = Duration::from_secs(600);
/// No answer has come yet.
const NEVER: i64 = i64::MIN;

/// See the head of the file.
pub struct Following {
    /// When the last answer about changes was requested, in nanoseconds of this server's clock;
    /// negative: before this server instance.
    confirmed_at: AtomicI64,
    away_max: Duration,
    pub(crate) received: ReceivedChanges,
    pub(crate) ruled: FetchedRules,
}

impl Default for Following {
    fn default() -> Following {
        Following {
            confirmed_at: AtomicI64::new(NEVER),
            away_max: AWAY_MAX,
            received: ReceivedChanges::default(),
            ruled: FetchedRules::default(),
        }
    }
}

impl Following {
    /// Stores the cell's rules in this file, and begins with those in it.
    pub fn keep_rules_in(&mut self, file: PathBuf) {
        self.ruled.keep_in(file);
    }

    /// Sets how long cached records of principals are valid without an answer.
    pub fn away_at_most(&mut self, max: Duration) {
        self.away_max = max;
    }

    /// Sets the time of the last answer, which an earlier server instance got.
    pub fn heard_before(&self, ago: Duration) {
        let now = clock::now().since_start();
        let at = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX)
            - i128::try_from(ago.as_nanos()).unwrap_or(0);
        self.confirmed_at.store(i64::try_from(at).unwrap_or(NEVER), Ordering::Release);
    }

    /// How long ago this server had all changes; `None`: never.
    pub fn heard_ago(&self) -> Option<Duration> {
        let confirmed_at = self.confirmed_at.load(Ordering::Acquire);
        (confirmed_at != NEVER).then(|| {
            Duration::from_nanos(u64::try_from(now().saturating_sub(confirmed_at)).unwrap_or(0))
        })
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.heard_ago().is_none_or(|ago| ago > self.away_max)
    }

    /// This server has all changes that were there at `asked`, when the question was sent.
    pub(crate) fn confirm(&self, asked: i64) {
        self.confirmed_at.store(asked, Ordering::Release);
    }
}

/// This server's clock, in nanoseconds.
pub(crate) fn now() -> i64 {
    i64::try_from(clock::now().since_start().as_nanos()).unwrap_or(i64::MAX)
}
