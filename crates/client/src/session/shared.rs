//! State that the threads of a session share, and the actions after an input to the machine.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use dafs::message::Message;
use dafs::{ChannelId, ClientInput, ConnectionRole, Features, Frame, FrameHeader, FrameKind};
use fabric::Filled;
use parking_lot::{Condvar, Mutex, MutexGuard};
use types::{BreakId, Fid, Time};

use super::channel::{FrameChannel, to_frame};
use super::core::{After, ClientCore, Notice, ReclaimGate, SessionPhase};
use super::reader_role::ReaderRole;
use super::regions::ClientRegions;
use super::server_addresses::ServerAddresses;
use crate::{BreakAck, Events, SessionConfig, clock};

/// How long a thread that must send a small frame waits at a time for a server that reads nothing.
const PUSH_MOMENT: Duration = Duration::from_millis(5);

pub(crate) struct Shared {
    pub config: SessionConfig,
    pub core: Mutex<ClientCore>,
    /// Phase, gate or channels changed.
    pub changed: Condvar,
    pub reader: ReaderRole,
    pub events: Mutex<EventSinks>,
    /// Held while notices are delivered, so that they stay in order.
    delivering: Mutex<()>,
    pub keeper: Mutex<KeeperState>,
    pub keeper_woken: Condvar,
    pub connector: Mutex<VecDeque<(ConnectionRole, Time)>>,
    pub connector_woken: Condvar,
    /// The features that both sides of the newest connection support.
    pub features: Mutex<Features>,
    /// Starts a reclaim after a restart of the server. It calls through the session, so it is of
    /// a layer above this one.
    begin_reclaim: fn(&Arc<Shared>),
    /// Where the server is.
    pub places: Mutex<ServerAddresses>,
    /// Memory that requests may name.
    pub regions: ClientRegions,
}

/// The sink of events, and the state that a sink needs that is set later.
#[derive(Default)]
pub(crate) struct EventSinks {
    pub events: Option<Arc<dyn Events>>,
    pub renewed: Option<Time>,
}

pub(crate) struct KeeperState {
    /// The keeper sleeps until then; `NEVER` while it is awake.
    pub asleep_until: Time,
    /// An earlier time was set: the keeper checks again before it sleeps.
    pub woken: bool,
    pub notices: bool,
    pub closing: bool,
}

/// The state of a break's acknowledgement.
enum AckState {
    /// The sink runs; nothing is acknowledged yet.
    Delivering,
    /// Acknowledged while the sink ran, with these held files.
    Now(Vec<Fid>),
    /// Not acknowledged while the sink ran: the thread that does it sends it.
    Later,
}

/// The thread that does the actions after a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// A thread of the session, which may call [`Events`].
    Own,
    /// The thread that receives over the back channel. It may call [`Events`] too; while it sends,
    /// no thread receives there.
    Back,
    /// An application's thread, which may not.
    Caller,
    /// The thread that receives over the operations channel. It may not either; while it sends, no
    /// thread receives there.
    Leader,
}

impl Shared {
    /// Gives the machine one input and does all actions that follow.
    pub fn step(self: &Arc<Self>, input: ClientInput, on: On) {
        let after = self.core.lock().step(clock::now(), input, None, None);
        self.follow_up(after, on);
    }

    /// Does the actions that a step left. Must be called without the lock.
    pub fn follow_up(self: &Arc<Self>, after: After, on: On) {
        for channel in &after.flush {
            self.flush(channel, on);
        }
        for channel in &after.close {
            channel.flush();
            channel.connection.shut_down();
        }
        if !after.connect.is_empty() {
            self.connector.lock().extend(after.connect);
            self.connector_woken.notify_all();
        }
        if let Some(time) = after.wake_at {
            self.wake_keeper_at(time);
        }
        if after.changed {
            // With the lock, so that no thread falls asleep between checking and waiting.
            drop(self.core.lock());
            self.changed.notify_all();
            self.reader.nudge_sleepers();
        }
        if after.reclaim {
            (self.begin_reclaim)(self);
        }
        if after.notices {
            match on {
                On::Own | On::Back => self.tell(on),
                On::Caller | On::Leader => {
                    self.keeper.lock().notices = true;
                    self.keeper_woken.notify_all();
                }
            }
        }
    }

    fn wake_keeper_at(&self, time: Time) {
        let mut keeper = self.keeper.lock();
        if time < keeper.asleep_until {
            keeper.woken = true;
            self.keeper_woken.notify_all();
        }
    }

    /// Sends what is queued. If the server reads nothing, goes on sending as long as another thread
    /// receives: two sides that only send would wait for each other for ever. If no thread
    /// receives, the caller is about to, and sends the rest as it does.
    fn flush(&self, channel: &FrameChannel, on: On) {
        let others_receive = || match channel.role {
            ConnectionRole::Back => on != On::Back,
            ConnectionRole::Operations => on != On::Leader && self.reader.is_taken(),
        };
        let mut out = channel.flush();
        while !out && others_receive() {
            out = channel.push_on(PUSH_MOMENT);
        }
    }

    /// Receives once over a channel and feeds all whole frames to the machine. `false`: the channel
    /// is over.
    pub fn receive(
        self: &Arc<Self>,
        channel: &FrameChannel,
        inbox: &mut MutexGuard<'_, fabric::Inbox>,
        wait: bool,
        on: On,
    ) -> bool {
        match inbox.fill(&channel.connection, wait) {
            Ok(Filled::Some) => self.take_in(channel, inbox, on),
            Ok(Filled::Nothing) => true,
            Ok(Filled::End) => {
                self.lose(channel, "the server ended the connection", on);
                false
            }
            Err(error) => {
                self.lose(channel, &error.to_string(), on);
                false
            }
        }
    }

    /// Feeds whole frames to the machine. `false`: the channel is over.
    fn take_in(
        self: &Arc<Self>,
        channel: &FrameChannel,
        inbox: &mut MutexGuard<'_, fabric::Inbox>,
        on: On,
    ) -> bool {
        loop {
            let frame = match inbox.next_frame() {
                Ok(None) => return true,
                Ok(Some(frame)) => to_frame(frame).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => {
                    self.lose(channel, &error, on);
                    return false;
                }
            };
            channel.count_received();
            let descriptor: Option<OwnedFd> = if frame.header.flags.has(dafs::Flags::DESCRIPTOR) {
                inbox.take_descriptor()
            } else {
                None
            };
            let goes_on = if frame.header.kind.is_of_connection() {
                let was_asked = answer_about_lane(channel, &frame);
                if !was_asked {
                    self.lose(channel, "a frame of a lane that was not opened", on);
                }
                was_asked
            } else {
                offer_lane(&self.regions, channel, &frame.header);
                self.take_frame(channel, frame, descriptor, on)
            };
            if !goes_on {
                return false;
            }
        }
    }

    /// Gives a frame to the machine. `false`: the channel is over.
    pub fn take_frame(
        self: &Arc<Self>,
        channel: &FrameChannel,
        frame: Frame,
        descriptor: Option<OwnedFd>,
        on: On,
    ) -> bool {
        let input = ClientInput::Arrived { channel: channel.id, frame };
        let mut core = self.core.lock();
        let after = core.step(clock::now(), input, Some(channel.id), descriptor);
        let goes_on = core.knows(channel.id);
        drop(core);
        self.follow_up(after, on);
        goes_on
    }

    pub fn lose(self: &Arc<Self>, channel: &FrameChannel, why: &str, on: On) {
        tracing::debug!(channel = channel.id.0, role = ?channel.role, why, "connection lost");
        channel.connection.shut_down();
        self.lose_channel(channel.id, on);
    }

    fn lose_channel(self: &Arc<Self>, id: ChannelId, on: On) {
        let mut core = self.core.lock();
        if core.forget_channel(id).is_none() {
            return;
        }
        let after = core.step(clock::now(), ClientInput::Lost { channel: id }, None, None);
        drop(core);
        self.follow_up(after, on);
    }

    /// Delivers all queued notices, in order.
    pub fn tell(self: &Arc<Self>, on: On) {
        let _delivering = self.delivering.lock();
        loop {
            let notice = {
                let mut core = self.core.lock();
                if core.is_restoring { None } else { core.notices.pop_front() }
            };
            let Some(notice) = notice else { return };
            let events = {
                let mut sinks = self.events.lock();
                if let Notice::Renewed(sent_at) = notice {
                    sinks.renewed = Some(sent_at);
                }
                sinks.events.clone()
            };
            match notice {
                Notice::Break(association, id, items) => {
                    let ack_state = Arc::new(Mutex::new(AckState::Delivering));
                    let break_ack = self.break_ack(association, id, &ack_state);
                    match events {
                        Some(events) => events.on_break(&items, break_ack),
                        None => break_ack.acknowledge(),
                    }
                    let now = std::mem::replace(&mut *ack_state.lock(), AckState::Later);
                    if let AckState::Now(held) = now {
                        self.acknowledge(association, id, held, on);
                    }
                }
                Notice::Renewed(sent_at) => {
                    if let Some(events) = events {
                        events.on_renewed(sent_at);
                    }
                }
                Notice::Parted => {
                    if let Some(events) = events {
                        events.on_parted();
                    }
                }
                Notice::LeaseLost => {
                    if let Some(events) = events {
                        events.on_lease_lost();
                    }
                }
            }
        }
    }

    /// The acknowledgement that the sink of a break gets. If it is given before the sink returns,
    /// the delivering thread sends it.
    fn break_ack(
        self: &Arc<Self>,
        association: u64,
        id: BreakId,
        ack_state: &Arc<Mutex<AckState>>,
    ) -> BreakAck {
        let (shared, ack_state) = (Arc::clone(self), Arc::clone(ack_state));
        BreakAck::new(move |held| {
            let mut ack_state = ack_state.lock();
            if matches!(*ack_state, AckState::Delivering) {
                *ack_state = AckState::Now(held);
                return;
            }
            drop(ack_state);
            shared.acknowledge(association, id, held, On::Caller);
        })
    }

    fn acknowledge(self: &Arc<Self>, association: u64, id: BreakId, held: Vec<Fid>, on: On) {
        let mut core = self.core.lock();
        if core.association != association {
            return;
        }
        let after = core.step(clock::now(), ClientInput::BreakHandled { id, held }, None, None);
        drop(core);
        match on {
            // The loop that runs here delivers the notices that this causes.
            On::Own | On::Back => self.follow_up(After { notices: false, ..after }, on),
            On::Caller | On::Leader => self.follow_up(after, on),
        }
    }

    /// Sets the sink of notices. It learns of the running lease at once.
    pub fn set_events(&self, events: &Arc<dyn Events>) {
        let _delivering = self.delivering.lock();
        let mut sinks = self.events.lock();
        sinks.events = Some(Arc::clone(events));
        let renewed = sinks.renewed;
        drop(sinks);
        if let Some(sent_at) = renewed {
            events.on_renewed(sent_at);
        }
    }

    /// Ends all threads: the machine is closed.
    pub fn close_all(&self, why: &crate::CallError) {
        let mut core = self.core.lock();
        core.phase = SessionPhase::Closed;
        core.gate = ReclaimGate::Open;
        core.finish_all(why);
        // Another session may have the place from now on.
        core.place = None;
        let channels = std::mem::take(&mut core.channels);
        drop(core);
        self.keeper.lock().closing = true;
        for channel in channels {
            channel.connection.shut_down();
        }
        self.changed.notify_all();
        self.keeper_woken.notify_all();
        drop(self.connector.lock());
        self.connector_woken.notify_all();
        self.reader.nudge_sleepers();
    }

    /// Why there is no connection.
    pub fn why_apart(&self) -> String {
        self.core.lock().last_error.clone().unwrap_or_else(|| "no answer".to_owned())
    }

    /// Must the session's threads end?
    pub fn is_closing(&self) -> bool {
        self.keeper.lock().closing
    }

    pub fn new(config: SessionConfig, core: ClientCore, begin_reclaim: fn(&Arc<Shared>)) -> Self {
        Shared {
            places: Mutex::new(ServerAddresses::new(&config)),
            config,
            core: Mutex::new(core),
            begin_reclaim,
            changed: Condvar::new(),
            reader: ReaderRole::default(),
            events: Mutex::default(),
            delivering: Mutex::new(()),
            keeper: Mutex::new(KeeperState {
                asleep_until: Time::NEVER,
                woken: false,
                notices: false,
                closing: false,
            }),
            keeper_woken: Condvar::new(),
            connector: Mutex::default(),
            connector_woken: Condvar::new(),
            features: Mutex::new(Features::NONE),
            regions: ClientRegions::default(),
        }
    }
}

/// A frame about lanes and regions. `false`: it is none that may come.
fn answer_about_lane(channel: &FrameChannel, frame: &Frame) -> bool {
    let (Some(lane), Ok(Some(message))) = (&channel.lane, Message::of_frame(frame)) else {
        return false;
    };
    lane.on_answer(&message);
    true
}

/// Offers the server a lane after a direct reply over the socket: it knows a caller of direct
/// requests now.
fn offer_lane(regions: &ClientRegions, channel: &FrameChannel, header: &FrameHeader) {
    if header.kind != FrameKind::Reply {
        return;
    }
    if let Some(lane) = &channel.lane
        && lane.on_reply(header)
    {
        match regions.files().and_then(|files| lane.offer(header.session, &files)) {
            Ok(frames) => frames.into_iter().for_each(|frame| channel.push_with(frame)),
            Err(error) => tracing::warn!(%error, "no lane; direct requests use the socket"),
        }
        channel.flush();
    }
}
