//! Breaks that are under way, and the changes that wait for them.
//!
//! A break batch belongs to one session and is one message. A ticket belongs to one change and
//! counts the batches, of any age, that it waits for. A batch is over when it is acknowledged or
//! its session ends; a ticket is done when its last batch is over.

use std::collections::HashMap;

use smallvec::SmallVec;
use types::{BreakId, BreakItem, Time};

use crate::output::{BreakTicket, Output};

/// A batch that its session has not acknowledged.
#[derive(Debug)]
pub(super) struct PendingBreak {
    pub items: Vec<BreakItem>,
    pub sent_at: Time,
    pub tickets: SmallVec<[BreakTicket; 1]>,
}

/// Numbers of breaks and tickets, and what each ticket waits for.
#[derive(Debug, Default)]
pub(super) struct BreakTable {
    last_break: u64,
    last_ticket: u64,
    waiting: HashMap<BreakTicket, usize>,
}

impl BreakTable {
    pub fn next_break(&mut self) -> BreakId {
        self.last_break += 1;
        BreakId(self.last_break)
    }

    /// Opens a ticket that waits for `batches` batches.
    pub fn open(&mut self, batches: usize) -> BreakTicket {
        assert!(batches > 0, "CB-1: a ticket without batches would never be done");
        self.last_ticket += 1;
        let ticket = BreakTicket(self.last_ticket);
        self.waiting.insert(ticket, batches);
        ticket
    }

    /// A batch is over.
    pub fn finish(&mut self, tickets: &[BreakTicket], out: &mut Vec<Output>) {
        for ticket in tickets {
            let left = self.waiting.get_mut(ticket).expect("CB-1: a batch names only open tickets");
            *left -= 1;
            if *left == 0 {
                self.waiting.remove(ticket);
                out.push(Output::TicketDone(*ticket));
            }
        }
    }

    /// Changes that wait for acknowledgements.
    pub fn tickets(&self) -> usize {
        self.waiting.len()
    }
}
