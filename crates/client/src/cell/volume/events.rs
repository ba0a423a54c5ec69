//! The events of the session at a volume's place.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use types::{BreakItem, BreakReason, Time};

use super::RemoteVolume;
use crate::{BreakAck, Events, Remote};

/// Receives the events of one place. All but breaks count as long as the volume is there: a renewal
/// of a session that was left does not extend the next one's lease.
pub(super) struct VolumeEvents {
    volume: Weak<RemoteVolume>,
    pub(super) inner: Arc<dyn Events>,
    here: RwLock<bool>,
}

impl VolumeEvents {
    pub(super) fn new(
        volume: &Weak<RemoteVolume>,
        inner: &Arc<dyn Events>,
        here: bool,
    ) -> VolumeEvents {
        VolumeEvents {
            volume: Weak::clone(volume),
            inner: Arc::clone(inner),
            here: RwLock::new(here),
        }
    }

    pub(super) fn begin(&self) {
        *self.here.write() = true;
    }

    pub(super) fn end(&self) {
        *self.here.write() = false;
    }
}

impl Events for VolumeEvents {
    fn on_break(&self, items: &[BreakItem], ack: BreakAck) {
        let volume = self.volume.upgrade();
        if let Some(volume) = volume.as_ref().filter(|volume| volume.has_copies()) {
            volume.epoch_old.store(true, Ordering::Release);
        }
        self.inner.on_break(items, ack);
        let unnamed = |item: &BreakItem| {
            item.fid.vnode.is_directory() && item.reason == BreakReason::Data && item.name.is_none()
        };
        if let Some(volume) =
            volume.filter(|volume| !volume.has_copies() && volume.cell.has_others())
            && items.iter().any(unnamed)
        {
            volume.check_whether_it_left();
        }
    }

    fn on_renewed(&self, sent_at: Time) {
        let here = self.here.read();
        if *here {
            self.inner.on_renewed(sent_at);
        }
    }

    fn on_lease_lost(&self) {
        let here = self.here.read();
        if *here {
            self.inner.on_lease_lost();
        }
    }

    fn on_away(&self) {
        if let Some(volume) = self.volume.upgrade() {
            volume.look_for_successor();
        }
    }

    fn on_server_restarted(&self, reclaim: &dyn Remote) {
        let here = *self.here.read();
        if here {
            self.inner.on_server_restarted(reclaim);
        }
    }
}
