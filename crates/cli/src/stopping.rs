//! Stop signals of daemons and foreground programs.

use std::io;
use std::sync::mpsc;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Sends one message for each SIGINT, SIGTERM or SIGHUP. The second one ends the process at once:
/// the first stop was too slow.
///
/// # Errors
/// If the handlers cannot be installed.
pub fn signals<T: Send + 'static>(
    message: impl Fn() -> T + Send + 'static,
    to: mpsc::Sender<T>,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let wait = move || {
        let mut asked = false;
        for signal in signals.forever() {
            if asked {
                tracing::error!(signal, "second stop signal: stopping at once");
                std::process::exit(1);
            }
            asked = true;
            tracing::info!(signal, "stop signal: stopping in order");
            let _ = to.send(message());
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).map(|_| ())
}
