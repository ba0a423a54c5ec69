//! The pending signals of a thread, for which the kernel cancels its request.
//!
//! An INTERRUPT reports some pending signal, not which one. Programs expect `EINTR` of locks that
//! they wait for, and of nothing else on a local file system: a timer or the end of a child must
//! not fail a `stat`. So other requests are cancelled only for signals that end the process; and,
//! after [`TIMEOUT`], for those that ask it to end (Ctrl-C), if it handles them itself. The kernel
//! reports only the first signal, so a thread whose request continues is checked again
//! ([`crate::interrupts`]).

use std::time::Duration;

/// How long a request continues after a signal that asks the process to end, if the process handles
/// it itself.
pub const TIMEOUT: Duration = Duration::from_secs(1);

/// The effect of a thread's signals on its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalEffect {
    /// It is about to die.
    Die,
    /// It was asked to end, and has a handler for that.
    End,
    /// At most a handler runs.
    GoOn,
}

const HUP: u32 = 1;
const INT: u32 = 2;
const QUIT: u32 = 3;
const KILL: u32 = 9;
const TERM: u32 = 15;
const CHLD: u32 = 17;
const CONT: u32 = 18;
const STOP: u32 = 19;
const TSTP: u32 = 20;
const TTIN: u32 = 21;
const TTOU: u32 = 22;
const URG: u32 = 23;
const WINCH: u32 = 28;

/// Signals that end no process by default.
const HARMLESS: u64 = set(&[CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH]);
/// Signals that ask a process to end.
const ASKING: u64 = set(&[HUP, INT, QUIT, TERM]);

const fn set(signals: &[u32]) -> u64 {
    let (mut all, mut at) = (0, 0);
    while at < signals.len() {
        all |= 1 << (signals[at] - 1);
        at += 1;
    }
    all
}

/// The effect of the pending signals of thread `tid`. A thread that is gone or hidden counts as
/// dying, since its state is unknown.
pub fn of_thread(tid: u32) -> SignalEffect {
    // 0: the kernel itself, or a process of another pid namespace.
    if tid == 0 {
        return SignalEffect::Die;
    }
    std::fs::read_to_string(format!("/proc/{tid}/status"))
        .map_or(SignalEffect::Die, |status| parse(&status))
}

fn parse(status: &str) -> SignalEffect {
    let signals = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or_default()
    };
    let waiting = signals("SigPnd:") | signals("ShdPnd:");
    if waiting & (1 << (KILL - 1)) != 0 {
        return SignalEffect::Die;
    }
    let delivered = waiting & !signals("SigBlk:") & !signals("SigIgn:");
    let caught = signals("SigCgt:");
    if delivered & !caught & !HARMLESS != 0 {
        SignalEffect::Die
    } else if delivered & caught & ASKING != 0 {
        SignalEffect::End
    } else {
        SignalEffect::GoOn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pending: u64, blocked: u64, ignored: u64, caught: u64) -> String {
        format!(
            "Name:\tx\nSigQ:\t1/95\nSigPnd:\t{pending:016x}\nShdPnd:\t{:016x}\n\
             SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n",
            0
        )
    }

    fn one(signal: u32) -> u64 {
        1 << (signal - 1)
    }

    #[test]
    fn only_signals_that_end_a_process_cancel_its_requests() {
        let alarm = 14;
        assert_eq!(parse(&status(one(KILL), 0, 0, 0)), SignalEffect::Die);
        assert_eq!(parse(&status(one(alarm), 0, 0, 0)), SignalEffect::Die, "its default is to end");
        assert_eq!(parse(&status(one(alarm), 0, 0, one(alarm))), SignalEffect::GoOn);
        assert_eq!(parse(&status(one(alarm), one(alarm), 0, 0)), SignalEffect::GoOn, "blocked");
        assert_eq!(parse(&status(one(alarm), 0, one(alarm), 0)), SignalEffect::GoOn, "ignored");
        assert_eq!(parse(&status(one(CHLD) | one(WINCH), 0, 0, 0)), SignalEffect::GoOn);
        assert_eq!(parse(&status(one(INT), 0, 0, one(INT))), SignalEffect::End);
        assert_eq!(parse(&status(one(INT) | one(alarm), 0, 0, one(INT))), SignalEffect::Die);
        assert_eq!(parse(&status(0, 0, 0, 0)), SignalEffect::GoOn);
    }

    #[test]
    fn shared_signals_count_and_a_gone_thread_is_dying() {
        assert_eq!(parse("SigPnd:\t0\nShdPnd:\t4000\n"), SignalEffect::Die, "terminated");
        assert_eq!(parse("SigPnd:\t0\nShdPnd:\t4000\nSigCgt:\t4000\n"), SignalEffect::End);
        assert_eq!(of_thread(0), SignalEffect::Die);
        assert_eq!(of_thread(u32::MAX), SignalEffect::Die);
        assert_eq!(of_thread(std::process::id()), SignalEffect::GoOn);
    }
}
