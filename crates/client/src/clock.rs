//! The one steady clock of a process. Clients and servers measure lease times, breaks and calls by
//! it.
//!
//! It is `CLOCK_BOOTTIME`: it goes on while the machine is suspended, where `Instant` stands still.
//! A laptop that slept for an hour must not trust its cache for the rest of a lease that the server
//! gave up long ago. Times of this clock are never compared with an `Instant`. How long a thread
//! waits is a difference of two times of this clock; since the kernel does not count a suspension
//! as waiting, code that must run when the machine wakes up registers with [`when_it_jumps`].

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

/// Called when the clock jumped; `false` unregisters it.
pub type ClockListener = Box<dyn Fn() -> bool + Send>;

fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let (secs, nanos) =
        (u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0));
    Duration::new(secs, nanos) + jumped()
}

/// Time since this process first called it, including the time that the machine slept.
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
            tracing::error!(
                %error,
                "this process cannot learn when the machine wakes up: a kernel may answer from its \
                 cache for some seconds then"
            );
        }
    });
}

/// Waits on a wall-clock timer that never fires. The kernel cancels it when the wall clock is set,
/// which it also does on wake-up. So an awake machine spends nothing on it.
fn watch(timer: &OwnedFd) {
    let never = Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: i64::from(i32::MAX) * 64, tv_nsec: 0 },
    };
    loop {
        // The call also fails with ECANCELED if the clock was set since the last time.
        match timerfd_settime(
            timer,
            TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET,
            &never,
        ) {
            Ok(_) | Err(rustix::io::Errno::CANCELED) => {}
            Err(error) => {
                tracing::error!(%error, "this process no longer learns when the machine wakes up");
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
    // A listener may register another listener, so none is called under the lock.
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

/// For tests: moves the clock forward, as a suspension does.
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
