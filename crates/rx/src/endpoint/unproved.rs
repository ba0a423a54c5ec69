//! Connections that are not proved, oldest first.
//!
//! Each is put at the end once. It is not taken out when it is proved or ends: that is seen when
//! its turn comes. So all steps cost the same however many there are.

use std::collections::VecDeque;

use crate::RxConnectionId;

#[derive(Debug, Default)]
pub(crate) struct UnprovedQueue {
    order: VecDeque<RxConnectionId>,
    count: usize,
}

impl UnprovedQueue {
    /// Connections that are not proved.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// A connection begins; `is_unproved` tells which of the older ones still count.
    pub(crate) fn push(
        &mut self,
        id: RxConnectionId,
        is_unproved: impl Fn(RxConnectionId) -> bool,
    ) {
        // Clears away the others when they are the larger part.
        if self.order.len() > 2 * self.count + 64 {
            self.order.retain(|id| is_unproved(*id));
        }
        self.order.push_back(id);
        self.count += 1;
    }

    /// A connection is proved, or ended without that.
    pub(crate) fn on_gone(&mut self) {
        self.count -= 1;
    }

    /// The oldest one, which the caller removes.
    pub(crate) fn pop_oldest(
        &mut self,
        is_unproved: impl Fn(RxConnectionId) -> bool,
    ) -> Option<RxConnectionId> {
        while let Some(id) = self.order.pop_front() {
            if is_unproved(id) {
                return Some(id);
            }
        }
        None
    }
}
