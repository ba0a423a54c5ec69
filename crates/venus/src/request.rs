//! Who asks for an operation, and how to take it back.

use client::Cancel;
use types::Caller;

/// What comes with every operation.
#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    /// Whose rights count.
    pub caller: &'a Caller,
    /// Takes the operation back.
    pub cancel: Option<&'a Cancel>,
    /// Looks up the caller's supplementary groups, once, when the server says that they may decide.
    pub groups: Option<&'a (dyn Fn() -> Box<[u32]> + Sync)>,
}

impl<'a> RequestContext<'a> {
    /// An operation of `caller` that is never taken back.
    pub fn of(caller: &'a Caller) -> Self {
        RequestContext { caller, cancel: None, groups: None }
    }
}
