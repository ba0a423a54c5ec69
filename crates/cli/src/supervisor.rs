//! Messages to a supervisor that asks for them by `$NOTIFY_SOCKET`, as systemd does for units of
//! `Type=notify`. Without one nothing is sent.

use sd_notify::NotifyState;

/// Everything is served from now on.
pub(crate) fn tell_ready() {
    tell(NotifyState::Ready);
}

/// The end has begun, and may take a while.
pub(crate) fn tell_stopping() {
    tell(NotifyState::Stopping);
}

/// Whether there is one. It is asked before anything is told.
pub(crate) fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some_and(|socket| !socket.is_empty())
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the supervisor cannot be told about the service");
    }
}
