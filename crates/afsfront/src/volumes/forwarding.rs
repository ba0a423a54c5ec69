//! Dumps that go to another volume server, as `vos move`, `copy` and `release` ask for them.
//!
//! Model: the other server has a transaction, in which it restores what this one sends. `vos move`
//! sends a clone first, and then what changed since in the volume itself, which it removes. Between
//! the last dump and the removal no change may be made: changes wait (`TransactionHold`), as long
//! as the transaction says so again and again. If it was silent for too long they are made, and the
//! volume is not removed.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use afs3::RpcMessage as _;
use afs3::errors::VOLSERVOLBUSY;
use afs3::volumes::{Destination, RestoreCookie, SERVICE, VolumesCall, transaction_flag};
use bytes::Bytes;
use types::{VolumeCall, VolumeId, VolumeKind, VolumeState};

use super::dumping::{DumpScope, DumpTarget, VolumeDump};
use super::transactions::{EnteredTransaction, TransactionHold};
use super::{VolserCall, refusal_of};
use crate::{CallStream, PeerCall, Refusal, Services, StreamBroken};

/// Changes wait for so long after they were told to; the services permit no more than 10 s.
const HOLD_MILLIS: u32 = 10_000;
/// After so many seconds they are told again.
const HOLD_AGAIN: i64 = 3;
/// The restored volume is a whole one: the flag that stock servers send.
const WHOLE: i32 = 1;

/// Tells the changes of a volume to wait, again and again while bytes are sent.
struct HeldStream<'a, 'b> {
    call: &'b mut dyn PeerCall,
    services: &'a dyn Services,
    entered: &'b EnteredTransaction<'a>,
}

impl CallStream for HeldStream<'_, '_> {
    fn take(&mut self, max: usize) -> Result<Bytes, StreamBroken> {
        self.call.take(max)
    }

    fn give(&mut self, bytes: Bytes) -> Result<(), StreamBroken> {
        keep_hold(self.services, self.entered);
        self.call.give(bytes)
    }
}

fn hold(services: &dyn Services, id: VolumeId, millis: u32) -> Result<(), Refusal> {
    let call = types::Call::Volume(VolumeCall::Hold { id, millis });
    services.ask(call).map(drop).map_err(refusal_of)
}

/// Whether changes of a volume wait, or it is out of service and has none. The services say so,
/// whatever a wall clock does that is set.
fn is_held(services: &dyn Services, id: VolumeId) -> bool {
    let state = services.volume(id).map(|info| info.state);
    matches!(state, Ok(VolumeState::Held | VolumeState::Offline))
}

/// Changes go on waiting, if they have waited until now.
pub(super) fn keep_hold(services: &dyn Services, entered: &EnteredTransaction<'_>) {
    let TransactionHold::Said(said) = entered.hold() else { return };
    let (id, now) = (entered.seen.volume, services.now().secs);
    if (0..HOLD_AGAIN).contains(&(now - said)) {
        return;
    }
    let goes_on = is_held(services, id) && hold(services, id, HOLD_MILLIS).is_ok();
    entered.set_hold(if goes_on { TransactionHold::Said(now) } else { TransactionHold::Lapsed });
}

/// Changes wait no more for a transaction.
pub(super) fn end_hold(services: &dyn Services, id: VolumeId, held: TransactionHold) {
    if held != TransactionHold::None {
        // The volume may be gone.
        let _ = services.ask_as_server(types::Call::Volume(VolumeCall::Hold { id, millis: 0 }));
    }
}

impl VolserCall<'_> {
    /// Before a volume is removed, or taken out of service to be removed, of which the last state
    /// was sent elsewhere.
    ///
    /// # Errors
    /// `VOLSERVOLBUSY`: it may have changed since.
    pub(super) fn need_last_state(&self, entered: &EnteredTransaction<'_>) -> Result<(), Refusal> {
        match entered.hold() {
            TransactionHold::None => Ok(()),
            TransactionHold::Said(_) if is_held(self.services, entered.seen.volume) => Ok(()),
            TransactionHold::Said(_) | TransactionHold::Lapsed => Err(Refusal(VOLSERVOLBUSY)),
        }
    }

    /// Sends a dump to a transaction of another volume server.
    ///
    /// # Errors
    /// That server's; those of a dump.
    pub(super) fn forward(
        &self,
        entered: &EnteredTransaction<'_>,
        from_date: i32,
        (destination, transaction): (Destination, i32),
        cookie: RestoreCookie,
    ) -> Result<(), Refusal> {
        let info = self.services.volume(entered.seen.volume)?;
        let excludes = transaction_flag::BUSY | transaction_flag::OFFLINE;
        let is_last =
            info.kind == VolumeKind::ReadWrite && entered.seen.attach_flags & excludes != 0;
        if is_last && entered.hold() == TransactionHold::None {
            hold(self.services, info.id, HOLD_MILLIS)?;
            entered.set_hold(TransactionHold::Said(self.now()));
        }
        let port = u16::try_from(destination.port).map_err(|_| Refusal::INVALID)?;
        let to = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::from(destination.host), port));
        let restore = VolumesCall::Restore { transaction, flags: WHOLE, cookie };
        let mut call = self.services.call_server(to, SERVICE, &restore.to_request())?;
        let scope = DumpScope { from: from_date as u32, omits_directories: false };
        let (services, call_to) = (self.services, &mut *call);
        let mut stream = HeldStream { call: call_to, services, entered };
        VolumeDump::write(services, &info, scope, DumpTarget::Stream(&mut stream))?;
        call.finish().map(drop)
    }
}
