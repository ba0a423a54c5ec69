//! The one steady clock of a process. Lease times, breaks and calls are all told on it, by clients
//! as well as by servers.
//!
//! It is `CLOCK_BOOTTIME`: it goes on while the machine is suspended, where `Instant` stands still.
//! A laptop that slept for an hour must not trust its cache for the rest of a lease that the server
//! gave up long ago. Times of this clock are never compared with an `Instant`. How long a thread
//! waits is a difference of two times of this clock; since the kernel does not count a suspension
//! as waiting, whatever must be looked at when the machine wakes up asks [`when_it_jumps`].

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use types::Time;

static START: OnceLock<Duration> = OnceLock::new();
static LISTENERS: Mutex<Vec<ClockListener>> = Mutex::new(Vec::new());
static WATCH: OnceLock<()> = OnceLock::new();

/// Hears that the clock jumped; `false`: it does not want to hear it any more.
pub type ClockListener = Box<dyn Fn() -> bool + Send>;

fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let (secs, nanos) =
        (u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0));
    Duration::new(secs, nanos) + jumped()
}

/// Steady time since this process first asked, with the time that the machine slept.
pub fn now() -> Time {
    let start = *START.get_or_init(boot_time);
    Time::from_start(boot_time().saturating_sub(start))
}

/// Calls `listener` each time that the machine wakes up from a suspension (and when the wall clock
/// is set, which the kernel does not tell apart).
pub fn when_it_jumps(listener: ClockListener) {
    LISTENERS.lock().push(listener);
    WATCH.get_or_init(|| {
        let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::CLOEXEC);
        let watching = timer.map_err(std::io::Error::from).and_then(|timer| {
            std::thread::Builder::new()
                .name("clock-jumps".into())
                .spawn(move || watch(&timer))
                .map(drop)
        });
        if let Err(error) = watching {
            tracing::error!(%error, "nothing tells when this machine wakes up: a kernel may \
                answer from its cache for some seconds then");
        }
    });
}

/// A timer of the wall clock that never comes, but is cancelled whenever that clock is set, which
/// the kernel does when it wakes up. So an awake machine spends nothing on it.
fn watch(timer: &OwnedFd) {
    let never = Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: i64::from(i32::MAX) * 64, tv_nsec: 0 },
    };
    loop {
        // It says ECANCELED too if the clock was set since the last time.
        match timerfd_settime(
            timer,
            TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET,
            &never,
        ) {
            Ok(_) | Err(rustix::io::Errno::CANCELED) => {}
            Err(error) => {
                tracing::error!(%error, "nothing tells any more when this machine wakes up");
                return;
            }
        }
        let mut expirations = [0; 8];
        let woke = rustix::io::read(timer, &mut expirations).map_err(std::io::Error::from);
        match woke {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => tell(),
        }
    }
}

fn tell() {
    // A listener may come to listen itself, so none is called under the lock.
    let mut listeners = std::mem::take(&mut *LISTENERS.lock());
    listeners.retain(|listener| listener());
    LISTENERS.lock().append(&mut listeners);
}

#[cfg(not(feature = "jump"))]
const fn jumped() -> Duration {
    Duration::ZERO
}

#[cfg(feature = "jump")]
static JUMPED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

#[cfg(feature = "jump")]
fn jumped() -> Duration {
    Duration::from_nanos(JUMPED.load(std::sync::atomic::Ordering::Acquire))
}

/// For tests: the machine slept for so long.
#[cfg(feature = "jump")]
pub fn jump(by: Duration) {
    let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
    JUMPED.fetch_add(nanos, std::sync::atomic::Ordering::AcqRel);
    tell();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn never_runs_backwards() {
        let first = super::now();
        assert!(super::now() >= first);
    }

    #[test]
    fn it_is_the_clock_that_goes_on_during_suspension() {
        let start = super::now();
        let before = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let went = super::now().since(start);
        let of_boot = Duration::new(before.tv_sec as u64, before.tv_nsec as u32);
        let distance = super::boot_time().saturating_sub(super::jumped()).saturating_sub(of_boot);
        assert!(
            distance < Duration::from_secs(60) && went < Duration::from_secs(60),
            "{distance:?} {went:?}"
        );
    }
}
