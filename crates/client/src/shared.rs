//! What the threads of a session share, and how an input to the machine is followed up.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use dafs::{ChannelId, ClientInput, ConnectionRole, Features};
use fabric::Filled;
use parking_lot::{Condvar, Mutex, MutexGuard};
use types::{BreakId, Fid, Time};

use crate::channel::{FrameChannel, to_frame};
use crate::core::{After, ClientCore, Notice, ReclaimGate, SessionPhase};
use crate::pending::PendingCall;
use crate::reply_reader::Lead;
use crate::server_addresses::ServerAddresses;
use crate::{BreakAck, Events, SessionConfig, clock, reclaim};

/// How long a thread that must get a small frame out waits at a time for a server that takes
/// nothing.
const PUSH_MOMENT: Duration = Duration::from_millis(5);

pub(crate) struct Shared {
    pub config: SessionConfig,
    pub core: Mutex<ClientCore>,
    /// Phase, gate or channels changed.
    pub changed: Condvar,
    pub lead: Mutex<Lead>,
    pub events: Mutex<EventSinks>,
    /// Held while notices are told, so that they are told in order.
    telling: Mutex<()>,
    pub keeper: Mutex<KeeperState>,
    pub keeper_woken: Condvar,
    pub connector: Mutex<VecDeque<(ConnectionRole, Time)>>,
    pub connector_woken: Condvar,
    /// What both sides of the newest connection can do.
    pub features: Mutex<Features>,
    /// Where the server is.
    pub places: Mutex<ServerAddresses>,
}

/// Who is told, and what one who comes later must still hear.
#[derive(Default)]
pub(crate) struct EventSinks {
    pub events: Option<Arc<dyn Events>>,
    pub renewed: Option<Time>,
}

pub(crate) struct KeeperState {
    /// The keeper sleeps until then; while it is awake, for ever.
    pub asleep_until: Time,
    /// An earlier time came up: it looks again before it sleeps.
    pub woken: bool,
    pub notices: bool,
    pub closing: bool,
}

/// Whether a break is acknowledged.
enum Said {
    /// It is being told.
    Telling,
    /// While it was told.
    Now(Vec<Fid>),
    /// Not while it was told: whoever does it sends it.
    Later,
}

/// Which thread follows up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// A thread of the session, which may call [`Events`].
    Own,
    /// The thread that receives over the back channel. It may too; while it sends, nobody receives
    /// there.
    Back,
    /// An application's thread, which may not.
    Caller,
    /// The thread that receives over the operations channel. It may not either; while it sends,
    /// nobody receives there.
    Leader,
}

impl Shared {
    /// One input to the machine, and all that it leads to.
    pub fn step(self: &Arc<Self>, input: ClientInput, on: On) {
        let after = self.core.lock().step(clock::now(), input, None, None);
        self.follow_up(after, on);
    }

    /// Everything behind a step. Must be called without the lock.
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
            // With the lock, so that nobody falls asleep between looking and waiting.
            drop(self.core.lock());
            self.changed.notify_all();
            self.nudge_sleepers();
        }
        if after.reclaim {
            reclaim::begin(self);
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

    /// Sends what is queued. If the server takes nothing, pushes on as long as somebody else
    /// receives: two sides that only send would wait for each other for ever. With nobody
    /// receiving, our caller is about to, and sends on as it does.
    fn flush(&self, channel: &FrameChannel, on: On) {
        let others_receive = || match channel.role {
            ConnectionRole::Back => on != On::Back,
            ConnectionRole::Operations => on != On::Leader && self.lead.lock().taken,
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
            let input = ClientInput::Arrived { channel: channel.id, frame };
            let mut core = self.core.lock();
            let after = core.step(clock::now(), input, Some(channel.id), descriptor);
            let goes_on = core.knows(channel.id);
            drop(core);
            self.follow_up(after, on);
            if !goes_on {
                return false;
            }
        }
    }

    fn lose(self: &Arc<Self>, channel: &FrameChannel, why: &str, on: On) {
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

    /// Tells all queued notices, in order.
    pub fn tell(self: &Arc<Self>, on: On) {
        let _telling = self.telling.lock();
        loop {
            let Some(notice) = self.core.lock().notices.pop_front() else { return };
            let events = {
                let mut told = self.events.lock();
                if let Notice::Renewed(sent_at) = notice {
                    told.renewed = Some(sent_at);
                }
                told.events.clone()
            };
            match notice {
                Notice::Break(association, id, items) => {
                    let said = Arc::new(Mutex::new(Said::Telling));
                    let heard = self.heard(association, id, &said);
                    match events {
                        Some(events) => events.on_break(&items, heard),
                        None => drop(heard),
                    }
                    let now = std::mem::replace(&mut *said.lock(), Said::Later);
                    if let Said::Now(held) = now {
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

    /// What the hearer of a break is given. Acknowledged before the telling ends, it is for the
    /// teller to send.
    fn heard(self: &Arc<Self>, association: u64, id: BreakId, said: &Arc<Mutex<Said>>) -> BreakAck {
        let (shared, said) = (Arc::clone(self), Arc::clone(said));
        BreakAck::new(move |held| {
            let mut said = said.lock();
            if matches!(*said, Said::Telling) {
                *said = Said::Now(held);
                return;
            }
            drop(said);
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
            // Notices that this leads to are told by the loop that we are in.
            On::Own | On::Back => self.follow_up(After { notices: false, ..after }, on),
            On::Caller | On::Leader => self.follow_up(after, on),
        }
    }

    /// Who hears of notices from now on. The lease that runs already is told at once.
    pub fn set_events(&self, events: &Arc<dyn Events>) {
        let _telling = self.telling.lock();
        let mut told = self.events.lock();
        told.events = Some(Arc::clone(events));
        let renewed = told.renewed;
        drop(told);
        if let Some(sent_at) = renewed {
            events.on_renewed(sent_at);
        }
    }

    fn nudge_sleepers(&self) {
        let sleepers: Vec<Arc<PendingCall>> = self.lead.lock().sleepers.iter().cloned().collect();
        for sleeper in sleepers {
            sleeper.nudge();
        }
    }

    /// Everybody is to end: the machine is closed.
    pub fn close_all(&self, why: &crate::CallError) {
        let mut core = self.core.lock();
        core.phase = SessionPhase::Closed;
        core.gate = ReclaimGate::Open;
        core.finish_all(why);
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
        self.nudge_sleepers();
    }

    /// Whether the session's threads are to end.
    pub fn is_closing(&self) -> bool {
        self.keeper.lock().closing
    }

    pub fn new(config: SessionConfig, core: ClientCore) -> Self {
        Shared {
            places: Mutex::new(ServerAddresses::new(&config)),
            config,
            core: Mutex::new(core),
            changed: Condvar::new(),
            lead: Mutex::default(),
            events: Mutex::default(),
            telling: Mutex::new(()),
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
        }
    }
}
