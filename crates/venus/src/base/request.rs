//! The caller of an operation, and its cancellation.

use std::time::Duration;

use client::Cancel;
use types::Caller;

/// The context of an operation.
#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    /// The caller whose rights count.
    pub caller: &'a Caller,
    /// Cancels the operation.
    pub cancel: Option<&'a Cancel>,
    /// Looks up the caller's supplementary groups, once, when the server answers that they may
    /// decide.
    pub groups: Option<&'a (dyn Fn() -> Box<[u32]> + Sync)>,
}

impl<'a> RequestContext<'a> {
    /// An operation of `caller` that cannot be cancelled.
    pub fn of(caller: &'a Caller) -> Self {
        RequestContext { caller, cancel: None, groups: None }
    }
}

/// A request that a background thread makes for a caller.
pub(crate) fn as_caller<'a>(caller: &'a Caller, cancel: Option<&'a Cancel>) -> RequestContext<'a> {
    RequestContext { caller, cancel, groups: None }
}

/// The longest single wait before all conditions are checked again; wake-ups end waits, this is for
/// cancellation.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);
