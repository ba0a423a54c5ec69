//! Ctrl-C: a flag that long steps look at, so that whatever was made is taken away on the way out.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on SIGINT, SIGTERM and SIGHUP only raise the flag.
pub fn watch() -> io::Result<()> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    [SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .try_for_each(|signal| signal_hook::flag::register(signal, Arc::clone(flag)).map(drop))
}

/// # Errors
/// `Interrupted`, once somebody asked for the end. Not of the kind `Interrupted`, which readers
/// would try again.
pub fn check() -> io::Result<()> {
    match INTERRUPTED.get() {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(io::Error::other("interrupted")),
        _ => Ok(()),
    }
}
