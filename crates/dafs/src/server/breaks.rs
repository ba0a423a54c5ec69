//! Breaks on their way to one client: stored until acknowledged, sent again when their connection
//! ends.

use std::collections::BTreeMap;

use types::{BreakId, BreakItem};

use crate::limits::{BREAK_ITEMS_MAX, BREAKS_MAX};
use crate::{ChannelId, PeerError};

#[derive(Debug)]
struct Pending {
    items: Vec<BreakItem>,
    sent_on: Option<ChannelId>,
}

/// The breaks that a client has yet to acknowledge.
#[derive(Debug, Default)]
pub(super) struct Breaks {
    pending: BTreeMap<BreakId, Pending>,
    newest: Option<BreakId>,
}

/// The client has too many unacknowledged breaks.
#[derive(Debug)]
pub(super) struct Overrun;

impl Breaks {
    /// Stores a break. A repeated break (the service repeats open ones when a client resumes) is
    /// stored once.
    ///
    /// # Errors
    /// [`Overrun`]: the break has too many items, or [`BREAKS_MAX`] breaks are unacknowledged.
    pub fn add(&mut self, id: BreakId, items: Vec<BreakItem>) -> Result<(), Overrun> {
        let known = self.pending.contains_key(&id);
        if items.len() > BREAK_ITEMS_MAX || (self.pending.len() >= BREAKS_MAX && !known) {
            return Err(Overrun);
        }
        self.newest = self.newest.max(Some(id));
        self.pending.entry(id).or_insert(Pending { items, sent_on: None });
        Ok(())
    }

    /// Returns the breaks that no live connection carries; from now on `channel` carries them.
    pub fn send_over(
        &mut self,
        channel: ChannelId,
    ) -> impl Iterator<Item = (BreakId, Vec<BreakItem>)> {
        self.pending.iter_mut().filter(|(_, pending)| pending.sent_on.is_none()).map(
            move |(id, pending)| {
                pending.sent_on = Some(channel);
                (*id, pending.items.clone())
            },
        )
    }

    /// A connection ended: its breaks must be sent again.
    pub fn on_lost(&mut self, channel: ChannelId) {
        for pending in self.pending.values_mut().filter(|pending| pending.sent_on == Some(channel))
        {
            pending.sent_on = None;
        }
    }

    /// Removes an acknowledged break. False: the client acknowledged it before, which happens when
    /// a break was sent twice.
    ///
    /// # Errors
    /// [`PeerError::Unasked`]: no such break was sent.
    pub fn acknowledge(&mut self, id: BreakId) -> Result<bool, PeerError> {
        match self.pending.remove(&id) {
            Some(_) => Ok(true),
            None if Some(id) <= self.newest => Ok(false),
            None => Err(PeerError::Unasked),
        }
    }
}
