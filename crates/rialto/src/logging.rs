//! What daemons say of themselves, on standard error: for a daemon that is its log file.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts to log. `RIALTO_LOG` says what: a level, or parts such as `vice=debug`; otherwise from `info` on.
pub fn start() {
    let filter = EnvFilter::try_from_env("RIALTO_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // A log that cannot be written, on a full disk, is not written. (Telling so goes to standard error as well, which is that log, and
    // a line that cannot be printed there would be the thread's end.)
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    // Only a second start could fail, and then the first one logs.
    let _ = subscriber.with_ansi(std::io::stderr().is_terminal()).try_init();
}
