//! Tools without knowledge of the service: stripes of locks, a mutex that a panic breaks, counters.
//! Imports nothing of this crate.

mod call_counters;
mod lock_stripes;
mod unpoisoned;

pub(crate) use call_counters::CallCounters;
pub(crate) use lock_stripes::{StripeGuards, Stripes};
pub(crate) use unpoisoned::{Guarded, Locked};
