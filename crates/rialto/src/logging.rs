//! What daemons say of themselves, on standard error: for a daemon that is its log file.

use std::io::IsTerminal;

use rustix::process::DumpableBehavior;
use tracing_subscriber::EnvFilter;

/// Keeps what this process has in memory, keys among it, out of core files and from other processes of its user. `RIALTO_CORE=1` lets it be, for who looks for a fault.
pub fn keep_to_itself() {
    if std::env::var_os("RIALTO_CORE").is_some_and(|value| value == "1") {
        return;
    }
    if let Err(error) = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "what this process has in memory may get into core files");
    }
}

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
