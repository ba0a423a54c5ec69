//! The principal of a caller in the cell, with all groups: looked up at each check, so that a
//! change is in force with the next request (AC-2).

use guard::Cps;
use types::{Caller, Fault};

/// Source of the cell's principals: the cell's database, or a test without one.
pub trait Principals: Send + Sync {
    /// The caller's current protection subdomain.
    ///
    /// # Errors
    /// `CellAway`, `Medium`.
    fn cps(&self, caller: &Caller) -> Result<Cps, Fault>;
}
