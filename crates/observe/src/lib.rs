//! Signals of a running process about its requests: spans, and histograms of waits.
//!
//! Model. A **span** covers one request in one layer: the mount, the client, the server, the store.
//! Spans of layers that run in one thread are nested. They are at level DEBUG of the target
//! [`TARGET`]: without a subscriber for it a span costs one load of an atomic. A **wait** is a
//! duration that a request spends in a place worth knowing, such as a disk sync. Each process has
//! one histogram for each [`Wait`], from its start on; recording costs two atomic additions.
//!
//! All names are in [`names`]; `docs/spec/signals.md` lists them, and a test compares the two.
//!
//! Layers, from top to bottom:
//!
//! - `histogram`: counts durations
//! - `names`: the spans, their fields, and the waits

mod histogram;
pub mod names;

pub use histogram::{Histogram, WaitFigures};
pub use names::{TARGET, Wait};
#[doc(hidden)]
pub use tracing;
pub use tracing::span::EnteredSpan;

use std::time::Duration;

/// Counts a wait of this process.
pub fn record(wait: Wait, took: Duration) {
    histogram::of(wait).record(took);
}

/// Figures of every wait that occurred in this process, in the order of [`Wait::ALL`].
pub fn waits() -> Vec<WaitFigures> {
    let figures = Wait::ALL.iter().map(|wait| histogram::of(*wait).figures(wait.name()));
    figures.filter(|figures| figures.count > 0).collect()
}

/// A span for one request: its name, operation, file, session and number.
///
/// ```
/// use observe::{names, request_span};
/// let fid = types::Fid { volume: types::VolumeId(7), ..types::Fid::default() };
/// let span = request_span!(names::SERVER_CALL, "Read", Some(fid), 12, 3);
/// let _in = span.enter();
/// ```
#[macro_export]
macro_rules! request_span {
    ($name:expr, $op:expr, $fid:expr, $session:expr, $id:expr) => {{
        // The arguments are evaluated only if there is a listener.
        if $crate::tracing::enabled!(target: $crate::names::TARGET, $crate::tracing::Level::DEBUG) {
            let fid: Option<::types::Fid> = $fid;
            $crate::tracing::span!(
                target: $crate::names::TARGET,
                $crate::tracing::Level::DEBUG,
                $name,
                op = %$op,
                fid = fid.map($crate::tracing::field::display),
                volume = fid.map(|fid| fid.volume.0),
                session = $session,
                id = %$id,
            )
        } else {
            $crate::tracing::Span::none()
        }
    }};
}

/// A span for a part of a request, without fields: it is in the span of the request.
#[macro_export]
macro_rules! part_span {
    ($name:expr) => {
        $crate::tracing::span!(
            target: $crate::names::TARGET,
            $crate::tracing::Level::DEBUG,
            $name
        )
    };
}
