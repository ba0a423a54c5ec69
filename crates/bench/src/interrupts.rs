//! Ctrl-C: a flag that long steps check, so that everything made is removed before the end.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Makes SIGINT, SIGTERM and SIGHUP only set the flag.
///
/// # Errors
/// If a handler cannot be installed.
pub fn watch() -> io::Result<()> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    [SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .try_for_each(|signal| signal_hook::flag::register(signal, Arc::clone(flag)).map(drop))
}

/// # Errors
/// `Interrupted`, once a signal came. Not of the kind `Interrupted`, which readers would retry.
pub fn check() -> io::Result<()> {
    match INTERRUPTED.get() {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(io::Error::other("interrupted")),
        _ => Ok(()),
    }
}
