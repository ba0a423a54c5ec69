//! Breaks on their way to one client: kept until acknowledged, sent again when the connection that
//! carried them is gone.

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

/// No room for one more.
#[derive(Debug)]
pub(super) struct Overrun;

impl Breaks {
    /// Keeps a break. The same one again (the lease repeats what is open when a client resumes) is
    /// kept once.
    pub fn add(&mut self, id: BreakId, items: Vec<BreakItem>) -> Result<(), Overrun> {
        let known = self.pending.contains_key(&id);
        if items.len() > BREAK_ITEMS_MAX || (self.pending.len() >= BREAKS_MAX && !known) {
            return Err(Overrun);
        }
        self.newest = self.newest.max(Some(id));
        self.pending.entry(id).or_insert(Pending { items, sent_on: None });
        Ok(())
    }

    /// Breaks that no living connection carries; from now on `channel` does.
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

    /// A connection is gone.
    pub fn on_lost(&mut self, channel: ChannelId) {
        for pending in self.pending.values_mut().filter(|pending| pending.sent_on == Some(channel))
        {
            pending.sent_on = None;
        }
    }

    /// The client acknowledges a break. False: it did so before, which happens when a break had to
    /// be sent twice.
    pub fn acknowledge(&mut self, id: BreakId) -> Result<bool, PeerError> {
        match self.pending.remove(&id) {
            Some(_) => Ok(true),
            None if Some(id) <= self.newest => Ok(false),
            None => Err(PeerError::Unasked),
        }
    }
}
