//! The content of an opened ticket, whichever kind it is, and whether it holds now.

use zeroize::Zeroizing;

use super::code;

/// Clocks may be apart by this.
const SKEW_SECS: i64 = 15 * 60;
/// The longest that a ticket holds.
const LIFE_SECS_MAX: i64 = 30 * 24 * 3600;
/// The end of a ticket that has none.
pub(super) const NEVER: u32 = u32::MAX;

/// The content of an opened ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenTicket {
    pub(super) name: String,
    pub(super) instance: String,
    pub(super) cell: String,
    pub(super) session_key: Zeroizing<[u8; 8]>,
    pub(super) start: u32,
    pub(super) end: u32,
}

impl OpenTicket {
    /// Checks the times; an error is the code for the peer.
    pub(super) fn check_times(&self, now: i64) -> Result<(), i32> {
        let (start, end) = (i64::from(self.start), i64::from(self.end));
        let is_long = end - start > LIFE_SECS_MAX && self.start != 0 && !self.is_endless();
        if start >= end || start > now + SKEW_SECS + LIFE_SECS_MAX || is_long {
            return Err(code::BAD_TICKET);
        }
        if end + SKEW_SECS < now && !self.is_endless() {
            return Err(code::EXPIRED);
        }
        if start - SKEW_SECS > now {
            return Err(code::NO_AUTH);
        }
        Ok(())
    }

    /// Whether it has no end.
    pub(super) fn is_endless(&self) -> bool {
        self.end == NEVER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(start: u32, end: u32) -> OpenTicket {
        let session_key = Zeroizing::new([0; 8]);
        let (name, instance, cell) = (String::new(), String::new(), String::new());
        OpenTicket { name, instance, cell, session_key, start, end }
    }

    #[test]
    fn times_are_checked_with_some_skew() {
        let now = 1_000_000_000;
        let at = |secs: i64| u32::try_from(now + secs).unwrap();
        assert_eq!(ticket(at(-10), at(10)).check_times(now), Ok(()));
        assert_eq!(ticket(at(800), at(900)).check_times(now), Ok(()));
        assert_eq!(ticket(at(1000), at(1100)).check_times(now), Err(code::NO_AUTH));
        assert_eq!(ticket(at(-2000), at(-800)).check_times(now), Ok(()));
        assert_eq!(ticket(at(-2000), at(-1000)).check_times(now), Err(code::EXPIRED));
        assert_eq!(ticket(at(10), at(10)).check_times(now), Err(code::BAD_TICKET));
        assert_eq!(ticket(at(0), at(2_592_001)).check_times(now), Err(code::BAD_TICKET));
        assert_eq!(ticket(0, 0x7fff_ffff).check_times(now), Ok(()));
        assert_eq!(ticket(at(0), NEVER).check_times(now), Ok(()));
        assert_eq!(ticket(at(2_600_000), at(2_600_001)).check_times(now), Err(code::BAD_TICKET));
    }
}
