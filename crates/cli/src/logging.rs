//! Logs of daemons, on standard error: for a daemon that is its log file.

use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::DumpableBehavior;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Excludes this process's memory, keys among it, from core files and from other processes of its
/// user. `RIALTO_CORE=1` disables this for debugging.
pub fn protect_memory() {
    if std::env::var_os("RIALTO_CORE").is_some_and(|value| value == "1") {
        return;
    }
    if let Err(error) = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "keys in this process's memory may get into core files");
    }
}

/// Starts to log. `RIALTO_LOG` sets the filter: a level, or parts such as `vice=debug`; otherwise
/// from `info` on. Requests that the filter lets through (`docs/spec/signals.md`) are logged when
/// they end.
pub fn start() {
    let filter = EnvFilter::try_from_env("RIALTO_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // A line that cannot be written, on a full disk, is dropped. (An error report would go to
    // standard error, which is that same log, and a failing print would end the thread.)
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::CLOSE)
        .log_internal_errors(false);
    // Only a second start could fail, and then the first one logs.
    let _ = subscriber.with_ansi(std::io::stderr().is_terminal()).try_init();
}

/// Interval between checks of the log's size.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Where standard error is a file, bounds its size: older lines are moved to one older file beside
/// it.
pub(crate) fn bound(bytes_max: u64) -> io::Result<()> {
    let Some(path) = log_file() else { return Ok(()) };
    let watch = move || {
        loop {
            std::thread::sleep(POLL_INTERVAL);
            if let Err(error) = shorten(&path, bytes_max) {
                tracing::warn!(
                    %error,
                    log = %path.display(),
                    "the log cannot be shortened: it continues to grow"
                );
                return;
            }
        }
    };
    std::thread::Builder::new().name("log".to_owned()).spawn(watch).map(drop)
}

fn log_file() -> Option<PathBuf> {
    let path = fs::read_link("/proc/self/fd/2").ok()?;
    let file = File::from(io::stderr().as_fd().try_clone_to_owned().ok()?);
    (file.metadata().ok()?.is_file() && path.is_file()).then_some(path)
}

/// Copied and truncated: other writers, such as the daemon's children, continue at its beginning,
/// since all append.
fn shorten(path: &Path, bytes_max: u64) -> io::Result<()> {
    if fs::metadata(path)?.len() <= bytes_max {
        return Ok(());
    }
    let old = path.with_extension("old");
    let draft = path.with_extension("new");
    fs::copy(path, &draft)?;
    fs::rename(draft, old)?;
    File::options().write(true).open(path)?.set_len(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_long_log_goes_on_from_nothing_and_the_last_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.log");
        let mut log = File::options().create(true).append(true).open(&path).unwrap();
        for life in 0..3 {
            log.write_all(&[b'a' + life; 100]).unwrap();
            shorten(&path, 100).unwrap();
            assert_eq!(fs::read(&path).unwrap().len(), 100, "not yet");
            log.write_all(b"!").unwrap();
            shorten(&path, 100).unwrap();
            assert_eq!(fs::read(&path).unwrap().len(), 0);
            assert_eq!(fs::read(dir.path().join("server.old")).unwrap()[0], b'a' + life);
        }
        log.write_all(b"goes on").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"goes on");
    }
}
