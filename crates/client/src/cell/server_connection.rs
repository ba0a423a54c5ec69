//! One session, and all the volumes whose cache managers get its events.
//!
//! A server that is unreachable for [`TIMEOUT`] counts as *gone*: calls that another server can
//! answer then go there. The session itself goes on trying, and volumes without another site wait
//! for it.
//!
//! A break goes to the volumes that it names, each with its own part, and is acknowledged when all
//! of them have acknowledged theirs. Renewals, losses and restarts go to all. After a restart the
//! volumes reclaim one after the other, and the session sends one end of the reclaim.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::{
    Answer, BreakItem, Call, Caller, CellCall, Fault, ServerId, Time, VolumeCall, VolumeId,
    VolumeInfo, WhichVolume,
};

use crate::{BreakAck, CallError, Cancel, Events, Remote, Reply};

/// How long a server may be unreachable before the client asks others: a server that is killed and
/// starts again is back by then.
const TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The interval between two questions for the address of a server that is gone.
const LOOK_FOR: Duration = Duration::from_secs(1);

/// Knows where other servers are.
pub(crate) trait AddressBook: Send + Sync {
    /// The addresses of a server that does not answer, as another server reports them; empty if
    /// none can be asked. `None`: there are no other servers.
    fn addresses_of(&self, server: ServerId) -> Option<Vec<SocketAddr>>;
}

/// A session with a server.
pub(crate) struct ServerConnection {
    /// The server's id; unset if the server does not report it.
    pub server: OnceLock<ServerId>,
    pub remote: Arc<dyn Remote>,
    pub sinks: Arc<EventFanout>,
    /// Fires when the server is gone.
    gone: Mutex<Cancel>,
    /// The shortest time that was measured when the session began.
    round_trip: OnceLock<Duration>,
    book: Weak<dyn AddressBook>,
}

impl ServerConnection {
    /// Registers as the sink of the session's events.
    pub fn new(remote: Arc<dyn Remote>, book: Weak<dyn AddressBook>) -> Arc<ServerConnection> {
        let (server, sinks, gone, round_trip) = Default::default();
        let connection = ServerConnection { server, remote, sinks, gone, round_trip, book };
        let connection = Arc::new(connection);
        let _ = connection.sinks.connection.set(Arc::downgrade(&connection));
        connection.remote.set_events(Arc::clone(&connection.sinks) as _);
        connection
    }

    /// Fires when the server is gone; has fired if it is.
    pub fn gone(&self) -> Cancel {
        let mut gone = self.gone.lock();
        if gone.is_cancelled() && self.remote.stands() {
            *gone = Cancel::new();
        }
        gone.clone()
    }

    /// A question that ends with [`CallError::Cancelled`] when the server is gone, and when
    /// `cancel` fires.
    ///
    /// # Errors
    /// As [`Remote::call`].
    pub fn ask(&self, call: Call, cancel: Option<&Cancel>) -> Result<Answer, CallError> {
        self.ask_reply(call, cancel).map(|reply| reply.answer)
    }

    /// As [`ServerConnection::ask`], with the server's boot verifier.
    ///
    /// # Errors
    /// As [`Remote::call`].
    pub fn ask_reply(&self, call: Call, cancel: Option<&Cancel>) -> Result<Reply, CallError> {
        self.ask_as(&Caller::ROOT, call, cancel)
    }

    /// As [`ServerConnection::ask_reply`], as this caller.
    ///
    /// # Errors
    /// As [`Remote::call`].
    pub fn ask_as(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        let either = Cancel::new();
        let _listening = [Some(&self.gone()), cancel].map(|one| {
            let either = either.clone();
            one.map(|one| one.on_cancel(move || either.cancel()))
        });
        self.remote.call(caller, call, Some(&either))
    }

    /// The server's record of a volume.
    ///
    /// # Errors
    /// `NoVolume` if the server does not have it; otherwise as [`Remote::call`].
    pub fn examine(
        &self,
        volume: WhichVolume,
        cancel: Option<&Cancel>,
    ) -> Result<VolumeInfo, CallError> {
        match self.ask(Call::Volume(VolumeCall::Examine { volume }), cancel)? {
            // The other volumes of its group follow.
            Answer::Volumes { volumes, .. } => {
                volumes.into_iter().next().ok_or(CallError::Fault(Fault::NoVolume))
            }
            _ => Err(CallError::Fault(Fault::Invalid)),
        }
    }

    /// The round-trip time to the server; measured once.
    pub fn round_trip(&self) -> Duration {
        const TRIES: u32 = 3;
        let try_once = |_| {
            let asked = Instant::now();
            // Any answer will do.
            let _ = self.ask(Call::Cell(CellCall::Me), None);
            asked.elapsed()
        };
        *self.round_trip.get_or_init(|| (0..TRIES).map(try_once).min().unwrap_or_default())
    }

    /// Runs in its own thread when the session has lost its connection.
    fn wait_for_server(&self) {
        let end = Instant::now() + TIMEOUT;
        while !self.remote.stands() {
            if Instant::now() >= end {
                tracing::warn!("a server is unreachable; calls that others can answer go there");
                self.gone.lock().clone().cancel();
                return self.find_server();
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The server may have restarted at another address, or copies of its volumes may have taken
    /// over elsewhere, which the cell database then says.
    fn find_server(&self) {
        let Some(server) = self.server.get() else { return };
        while !self.remote.stands() {
            let asked = self.book.upgrade().and_then(|book| book.addresses_of(*server));
            let Some(addresses) = asked else { return };
            self.remote.found_at(*server, &addresses);
            self.sinks.all().iter().for_each(|sink| sink.on_away());
            std::thread::sleep(LOOK_FOR);
        }
    }
}

/// Passes the events of a session to its volumes.
#[derive(Default)]
pub(crate) struct EventFanout {
    state: Mutex<State>,
    connection: OnceLock<Weak<ServerConnection>>,
}

#[derive(Default)]
struct State {
    volumes: Vec<(VolumeId, Weak<dyn Events>)>,
    /// When the renewal was sent from which the lease runs.
    renewed: Option<Time>,
}

impl EventFanout {
    /// Adds a volume. It gets breaks from now on.
    pub fn join(&self, volume: VolumeId, events: &Arc<dyn Events>) {
        let mut state = self.state.lock();
        state.volumes.retain(|(_, sink)| sink.strong_count() > 0);
        state.volumes.push((volume, Arc::downgrade(events)));
    }

    /// Reports the running lease to a volume that joined.
    pub fn report_lease(&self, events: &dyn Events) {
        // Under the lock, so that no later renewal is reported before this one.
        let state = self.state.lock();
        if let Some(sent_at) = state.renewed {
            events.on_renewed(sent_at);
        }
    }

    /// Removes a volume's sink.
    pub fn leave(&self, events: &Arc<dyn Events>) {
        self.state
            .lock()
            .volumes
            .retain(|(_, sink)| !std::ptr::addr_eq(sink.as_ptr(), Arc::as_ptr(events)));
    }

    /// No lock is held while the sinks run: that may take time.
    fn all(&self) -> Vec<Arc<dyn Events>> {
        self.state.lock().volumes.iter().filter_map(|(_, sink)| sink.upgrade()).collect()
    }

    fn of(&self, volume: VolumeId) -> Vec<Arc<dyn Events>> {
        let state = self.state.lock();
        state
            .volumes
            .iter()
            .filter(|(its, _)| *its == volume)
            .filter_map(|(_, sink)| sink.upgrade())
            .collect()
    }

    fn break_volume(&self, volume: VolumeId, items: &[BreakItem], ack: BreakAck) {
        let sinks = self.of(volume);
        match &sinks[..] {
            // No volume caches any of it.
            [] => ack.acknowledge(),
            [only] => only.on_break(items, ack),
            several => {
                let parts = several.iter().zip(ack.split(several.len()));
                parts.for_each(|(sink, part)| sink.on_break(items, part));
            }
        }
    }
}

impl Events for EventFanout {
    fn on_break(&self, items: &[BreakItem], ack: BreakAck) {
        let Some(first) = items.first().map(|item| item.fid.volume) else {
            return ack.acknowledge();
        };
        if items.iter().all(|item| item.fid.volume == first) {
            return self.break_volume(first, items, ack);
        }
        let mut volumes: BTreeMap<VolumeId, Vec<BreakItem>> = BTreeMap::new();
        items
            .iter()
            .for_each(|item| volumes.entry(item.fid.volume).or_default().push(item.clone()));
        let parts = volumes.iter().zip(ack.split(volumes.len()));
        parts.for_each(|((volume, items), part)| self.break_volume(*volume, items, part));
    }

    fn on_renewed(&self, sent_at: Time) {
        let sinks = {
            let mut state = self.state.lock();
            state.renewed = Some(sent_at);
            state.volumes.iter().filter_map(|(_, sink)| sink.upgrade()).collect::<Vec<_>>()
        };
        sinks.iter().for_each(|sink| sink.on_renewed(sent_at));
    }

    fn on_parted(&self) {
        let Some(connection) = self.connection.get().and_then(Weak::upgrade) else { return };
        let waiting = std::thread::Builder::new()
            .name("cell-parted".into())
            .spawn(move || connection.wait_for_server());
        if let Err(error) = waiting {
            tracing::error!(%error, "no thread to find out whether a server is gone");
        }
    }

    fn on_lease_lost(&self) {
        self.state.lock().renewed = None;
        self.all().iter().for_each(|sink| sink.on_lease_lost());
    }

    fn on_server_restarted(&self, reclaim: &dyn Remote) {
        self.all().iter().for_each(|sink| sink.on_server_restarted(reclaim));
    }
}

#[cfg(test)]
mod tests {
    use types::{BreakReason, Fid};

    use super::*;

    /// Records the events, and retains the acknowledgements.
    #[derive(Default)]
    struct RecordingSink {
        items: Mutex<Vec<BreakItem>>,
        ack: Mutex<Vec<BreakAck>>,
        log: Mutex<Vec<String>>,
    }

    impl Events for RecordingSink {
        fn on_break(&self, items: &[BreakItem], mut ack: BreakAck) {
            self.items.lock().extend_from_slice(items);
            ack.hold(items.iter().map(|item| item.fid));
            self.ack.lock().push(ack);
        }

        fn on_renewed(&self, sent_at: Time) {
            self.log.lock().push(format!("{sent_at:?}"));
        }

        fn on_lease_lost(&self) {
            self.log.lock().push("lost".to_owned());
        }

        fn on_server_restarted(&self, _: &dyn Remote) {}
    }

    fn item(volume: u64, vnode: u64) -> BreakItem {
        BreakItem { fid: Fid::new(volume, vnode, 1), reason: BreakReason::Data, name: None }
    }

    /// A sink for each of these volumes, and the acknowledged files.
    fn sinks(volumes: &[u64]) -> (EventFanout, Vec<Arc<RecordingSink>>) {
        let sinks = EventFanout::default();
        let all: Vec<Arc<RecordingSink>> = volumes.iter().map(|_| Arc::default()).collect();
        for (volume, sink) in volumes.iter().zip(&all) {
            sinks.join(VolumeId(*volume), &(Arc::clone(sink) as Arc<dyn Events>));
        }
        (sinks, all)
    }

    fn acknowledged() -> (Arc<Mutex<Vec<Fid>>>, BreakAck) {
        let log = Arc::new(Mutex::new(Vec::new()));
        let (there, count) = (Arc::clone(&log), Arc::new(Mutex::new(0)));
        let ack = BreakAck::new(move |held| {
            *count.lock() += 1;
            assert_eq!(*count.lock(), 1, "acknowledged once");
            *there.lock() = held;
            there.lock().push(Fid::CURRENT);
        });
        (log, ack)
    }

    #[test]
    fn a_break_is_acknowledged_when_all_its_volumes_are_through() {
        let (sinks, all) = sinks(&[7, 8, 9]);
        let (log, ack) = acknowledged();
        sinks.on_break(&[item(7, 2), item(8, 2), item(7, 4), item(99, 2)], ack);
        assert_eq!(*all[0].items.lock(), [item(7, 2), item(7, 4)]);
        assert_eq!(*all[1].items.lock(), [item(8, 2)]);
        assert!(all[2].items.lock().is_empty());
        all[0].ack.lock().drain(..).for_each(BreakAck::acknowledge);
        assert!(log.lock().is_empty(), "the other volume is not through yet");
        all[1].ack.lock().drain(..).for_each(BreakAck::acknowledge);
        let mut held = log.lock().clone();
        assert_eq!(held.pop(), Some(Fid::CURRENT));
        held.sort_unstable();
        assert_eq!(held, [Fid::new(7, 2, 1), Fid::new(7, 4, 1), Fid::new(8, 2, 1)]);
    }

    #[test]
    fn what_nobody_caches_is_acknowledged_at_once() {
        let (sinks, mut all) = sinks(&[7]);
        for items in [&[item(8, 2)][..], &[item(8, 2), item(9, 2)], &[]] {
            let (log, ack) = acknowledged();
            sinks.on_break(items, ack);
            assert_eq!(*log.lock(), [Fid::CURRENT]);
        }
        all.clear();
        let (log, ack) = acknowledged();
        sinks.on_break(&[item(7, 2)], ack);
        assert_eq!(*log.lock(), [Fid::CURRENT], "its cache is gone");
    }

    #[test]
    fn a_late_volume_learns_of_a_running_lease_and_of_no_lost_one() {
        let (sinks, all) = sinks(&[7]);
        sinks.on_renewed(Time::ZERO);
        let late = Arc::new(RecordingSink::default());
        sinks.join(VolumeId(8), &(Arc::clone(&late) as Arc<dyn Events>));
        sinks.report_lease(&*late);
        assert_eq!(*late.log.lock(), *all[0].log.lock());
        sinks.on_lease_lost();
        let later = Arc::new(RecordingSink::default());
        sinks.join(VolumeId(9), &(Arc::clone(&later) as Arc<dyn Events>));
        sinks.report_lease(&*later);
        assert!(later.log.lock().is_empty());
        assert_eq!(late.log.lock().last().unwrap(), "lost");
    }
}
