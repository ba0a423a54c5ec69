//! A slot: its last request, and that request's progress.
//!
//! `last` is unknown only in a session that existed before a restart of the server, until the slot
//! is used: then any number above the slot's durable reply record is new, and that record's own
//! number is a repeat.

use types::{Fault, Fid};

use crate::{ChannelId, PeerError, Region};

/// A chain of a session, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChainNo(pub u64);

/// The class of a received request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The next one of its slot.
    New,
    /// The last one again, answered before.
    Repeat,
    /// The last one again over a newer connection, not answered yet.
    InProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotProgress {
    /// No request needs an answer.
    Idle,
    /// Waits in a chain.
    Held,
    /// The service is executing it.
    Running,
}

/// The result of a slot's last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotReply {
    /// Not known: the request came to an earlier server instance, or there was none.
    Unknown,
    /// The service executed it; `resolved` is the meaning of [`Fid::CURRENT`].
    Executed { resolved: Option<Fid> },
    /// The session refused it without execution.
    Refused(Fault),
}

#[derive(Debug)]
pub(super) struct Slot {
    pub last: Option<u64>,
    /// The number of the slot's durable reply record; 0: none.
    pub recorded: u64,
    pub progress: SlotProgress,
    pub done: SlotReply,
    /// The connection that the last request came over.
    pub came_on: ChannelId,
    /// Destination of the answer's payload.
    pub region: Option<Region>,
    /// The chain that it is a member of.
    pub chain: Option<ChainNo>,
}

impl Slot {
    pub fn new(last: Option<u64>, recorded: u64) -> Slot {
        Slot {
            last,
            recorded,
            progress: SlotProgress::Idle,
            done: SlotReply::Unknown,
            came_on: ChannelId(u64::MAX),
            region: None,
            chain: None,
        }
    }

    /// Classifies request `number` over `channel` for slot `index`.
    ///
    /// # Errors
    /// [`PeerError::WrongNumber`] or [`PeerError::SlotBusy`]: the request breaks the order of the
    /// slot.
    pub fn arrival(
        &self,
        index: u32,
        number: u64,
        channel: ChannelId,
    ) -> Result<Arrival, PeerError> {
        let last = self.last.unwrap_or(self.recorded);
        let wrong = PeerError::WrongNumber { slot: index, got: number, last };
        let next = number.checked_sub(1) == Some(last) || (self.last.is_none() && number > last);
        match self.progress {
            _ if number == 0 => Err(wrong),
            SlotProgress::Idle if next => Ok(Arrival::New),
            SlotProgress::Idle if number == last => Ok(Arrival::Repeat),
            SlotProgress::Running if number == last && self.came_on != channel => {
                Ok(Arrival::InProgress)
            }
            SlotProgress::Held | SlotProgress::Running if next || number == last => {
                Err(PeerError::SlotBusy(index))
            }
            _ => Err(wrong),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: ChannelId = ChannelId(1);
    const NEW: ChannelId = ChannelId(2);

    fn slot(last: Option<u64>, recorded: u64, progress: SlotProgress) -> Slot {
        Slot { progress, came_on: OLD, ..Slot::new(last, recorded) }
    }

    #[test]
    fn the_next_number_is_new_the_last_a_repeat_others_are_wrong() {
        let slot = slot(Some(7), 0, SlotProgress::Idle);
        assert_eq!(slot.arrival(0, 8, OLD), Ok(Arrival::New));
        assert_eq!(slot.arrival(0, 7, OLD), Ok(Arrival::Repeat));
        for number in [0, 1, 6, 9, u64::MAX] {
            assert!(
                matches!(slot.arrival(0, number, OLD), Err(PeerError::WrongNumber { .. })),
                "{number}"
            );
        }
    }

    #[test]
    fn nothing_is_a_repeat_in_a_slot_that_was_never_used() {
        let slot = slot(Some(0), 0, SlotProgress::Idle);
        assert!(matches!(slot.arrival(0, 0, OLD), Err(PeerError::WrongNumber { .. })));
        assert_eq!(slot.arrival(0, 1, OLD), Ok(Arrival::New));
    }

    #[test]
    fn a_request_in_progress_may_repeat_over_a_newer_connection() {
        let slot = slot(Some(7), 0, SlotProgress::Running);
        assert_eq!(slot.arrival(3, 7, NEW), Ok(Arrival::InProgress));
        assert_eq!(slot.arrival(3, 7, OLD), Err(PeerError::SlotBusy(3)));
        assert_eq!(slot.arrival(3, 8, NEW), Err(PeerError::SlotBusy(3)));
    }

    #[test]
    fn after_a_restart_the_durable_record_bounds_what_may_come() {
        let slot = slot(None, 7, SlotProgress::Idle);
        assert_eq!(slot.arrival(0, 7, NEW), Ok(Arrival::Repeat));
        assert_eq!(slot.arrival(0, 8, NEW), Ok(Arrival::New));
        assert_eq!(slot.arrival(0, 900, NEW), Ok(Arrival::New));
        assert!(slot.arrival(0, 6, NEW).is_err());
    }

    #[test]
    fn the_largest_number_does_not_wrap() {
        let slot = slot(Some(u64::MAX), 0, SlotProgress::Idle);
        assert!(slot.arrival(0, 0, OLD).is_err());
        assert_eq!(slot.arrival(0, u64::MAX, OLD), Ok(Arrival::Repeat));
    }
}
