//! A connection as its worker has it: what its bytes are until its session is known, and then its
//! requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use client::clock;
use dafs::message::Message;
use dafs::{
    ChannelId, Features, Flags, Frame, FrameHeader, Greeting, GreetingInput, GreetingOutput,
    HelloRefusal, Terms,
};
use fabric::lane::LANE_BYTES;
use fabric::tls::{self, Handshake};
use fabric::{Extent, FrameLimits, Inbox};
use parking_lot::Mutex;
use types::Host;
use types::limits::{MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};

use crate::attach::{self, AttachRequest};
use crate::connection_lane::ConnectionLane;
use crate::context::{Agenda, ServerContext};
use crate::link::Link;
use crate::poll::Poll;
use crate::process::PeerLifetime;
use crate::security::{Certified, Security};
use crate::session_handle::SessionHandle;
use crate::usage::MappedShare;

/// The limits before a connection belongs to a session: an attach is small.
pub(crate) const UNJOINED_LIMITS: FrameLimits = FrameLimits { message: 4096, payload: 0 };
pub(crate) const LIMITS: FrameLimits =
    FrameLimits { message: MESSAGE_BYTES_MAX, payload: PAYLOAD_BYTES_MAX };

/// A connection as its worker has it.
pub(crate) struct WorkerConnection {
    pub link: Arc<Link>,
    pub host: Option<Host>,
    /// Its host has too many, so it is refused unless it is a server's.
    pub crowded: bool,
    /// Memory that counts for its partially received request.
    pub half_received: usize,
    pub inbox: Inbox,
    /// The faster way beside it.
    pub lane: LaneState,
    /// The client says that there is something in the lane.
    pub is_rung: bool,
    pub process: Option<PeerLifetime>,
    /// Those of its hello, once it has a session.
    pub terms: Option<Terms>,
    pub stage: Stage,
}

/// The faster way beside a connection.
pub(crate) enum LaneState {
    /// The client offered none.
    None,
    Open(Box<ConnectionLane<MappedShare>>),
    /// The client's host has as much memory mapped as it may: all goes over the socket.
    Refused,
}

impl LaneState {
    /// The lane, if it is open.
    pub fn open(&self) -> Option<&ConnectionLane<MappedShare>> {
        match self {
            LaneState::Open(lane) => Some(lane),
            LaneState::None | LaneState::Refused => None,
        }
    }
}

/// Requests that one lane may have handled before others have their turn, and before their replies
/// are seen by the client, which has nothing to do until then.
const LANE_REQUESTS: usize = 16;
/// The same in bytes that are copied for them.
const LANE_BYTES_TURN: usize = 32 << 10;
/// A client sleeps while so much is copied for it. Then it is woken less often.
const LARGE_READ: usize = 128 << 10;
const LARGE_BYTES_TURN: usize = 4 << 20;

/// The result of a look into a lane.
#[derive(PartialEq, Eq)]
pub(crate) enum LaneTurn {
    Some,
    Nothing,
    /// Its client must take answers first: the link says when.
    Paused,
    /// It must not be looked at again.
    Over,
}

pub(crate) enum Stage {
    Greeting(Box<Arrival>),
    Joining,
    InSession(Arc<SessionHandle>),
}

/// A connection before its session is known.
pub(crate) struct Arrival {
    pub greeting: Greeting,
    pub terms: Option<Terms>,
    pub entry: Entry,
}

pub(crate) enum Entry {
    /// No byte has come.
    Knocking,
    /// A handshake is under way.
    Securing(Box<Handshake>),
    /// The next bytes are the greeting.
    In,
}

/// Does a connection go on?
#[derive(PartialEq, Eq)]
pub(crate) enum Goes {
    On,
    /// To be removed; queued bytes may still leave.
    Ends,
}

/// Connections of a worker with the sessions that they joined, in other threads; `None`: refused.
pub(crate) struct JoinedQueue {
    poll: Arc<Poll>,
    joined: Mutex<Vec<(ChannelId, Option<Arc<SessionHandle>>)>>,
}

impl JoinedQueue {
    /// Of the worker of this poll.
    pub fn new(poll: Arc<Poll>) -> Arc<Self> {
        Arc::new(JoinedQueue { poll, joined: Mutex::default() })
    }

    fn push(&self, id: ChannelId, handle: Option<Arc<SessionHandle>>) {
        self.joined.lock().push((id, handle));
        self.poll.order(|_| ());
    }

    pub fn take(&self) -> Vec<(ChannelId, Option<Arc<SessionHandle>>)> {
        std::mem::take(&mut *self.joined.lock())
    }
}

impl WorkerConnection {
    /// May a connection without a session still stay? One with a session always may.
    pub fn is_in_time(&mut self) -> bool {
        let Stage::Greeting(arrival) = &mut self.stage else {
            return matches!(self.stage, Stage::Joining);
        };
        let mut out = Vec::new();
        let result = arrival.greeting.step(clock::now(), GreetingInput::Tick, &mut out);
        if matches!(arrival.entry, Entry::Securing(_)) {
            // The other end could not decode the greeting's reply.
            out.clear();
        }
        for output in out {
            if let GreetingOutput::Send(bytes) = output {
                self.link.push_raw(bytes);
            }
        }
        result.is_ok()
    }

    /// Processes the bytes in the inbox.
    pub fn take_in(
        &mut self,
        context: &Arc<ServerContext>,
        joined: &Arc<JoinedQueue>,
        agenda: &mut Agenda,
    ) -> Goes {
        loop {
            let goes_on = match &mut self.stage {
                Stage::Greeting(_) => self.greet(context, joined),
                Stage::Joining => return Goes::On,
                Stage::InSession(handle) => {
                    let handle = Arc::clone(handle);
                    self.request(context, &handle, agenda)
                }
            };
            match goes_on {
                Ok(true) => {}
                Ok(false) => return Goes::On,
                Err(why) => {
                    context.tally.malformed.fetch_add(1, Ordering::Relaxed);
                    let host = self.host;
                    if let Some(before) = context.bounds.may_log("connection", host) {
                        tracing::info!(
                            link = self.link.id.0,
                            ?host,
                            why,
                            before,
                            "connection refused"
                        );
                    }
                    return Goes::Ends;
                }
            }
        }
    }

    /// One piece of a greeting. `false`: more must come first.
    fn greet(
        &mut self,
        context: &Arc<ServerContext>,
        joined: &Arc<JoinedQueue>,
    ) -> Result<bool, String> {
        if !self.enter(context)? {
            return Ok(false);
        }
        let Stage::Greeting(arrival) = &mut self.stage else { return Ok(true) };
        let Arrival { greeting, terms, .. } = &mut **arrival;
        let mut out = Vec::new();
        let wanted = greeting.bytes_wanted();
        let result = if wanted > 0 {
            let bytes = self.inbox.take_raw(wanted).map_err(|error| error.to_string())?;
            if bytes.is_empty() {
                return Ok(false);
            }
            greeting.step(clock::now(), GreetingInput::Bytes(bytes), &mut out)
        } else {
            match self.inbox.next_frame().map_err(|error| error.to_string())? {
                None => return Ok(false),
                Some(frame) => {
                    let frame = to_frame(frame).map_err(|error| error.to_string())?;
                    greeting.step(clock::now(), GreetingInput::Arrived(frame), &mut out)
                }
            }
        };
        let mut wish = None;
        for output in out {
            match output {
                GreetingOutput::Send(bytes) => self.link.push_raw(bytes),
                GreetingOutput::Agreed(agreed) => *terms = Some(agreed),
                GreetingOutput::Attach(attach) => wish = Some(AttachRequest::Attach(attach)),
                GreetingOutput::Bind(bind) => wish = Some(AttachRequest::Bind(bind)),
                GreetingOutput::WakeAt(_) => {}
            }
        }
        self.link.flush();
        result.map_err(|error| error.to_string())?;
        let (Some(wish), Some(terms)) = (wish, *terms) else { return Ok(true) };
        self.stage = Stage::Joining;
        self.terms = Some(terms);
        // Nothing is read until the session is found; attaching waits for the disk.
        self.link.set_paused(true);
        self.link.refresh_interest();
        let (context, joined, link) =
            (Arc::clone(context), Arc::clone(joined), Arc::clone(&self.link));
        let (process, host) = (self.process.clone(), self.host);
        let is_new = matches!(&wish, AttachRequest::Attach(attach) if attach.resume.is_none());
        if is_new && !context.bounds.begin_attach(host) {
            attach::refuse_as_busy(&link, &terms);
            joined.push(link.id, None);
            return Ok(true);
        }
        context.clone().attaching.run(move || {
            let id = link.id;
            let mut agenda = Agenda::default();
            let handle = attach::join(&context, &link, process, terms, wish, &mut agenda);
            if is_new {
                context.bounds.end_attach(host);
            }
            context.deliver_all(&mut agenda, None);
            joined.push(id, handle);
            agenda.flush();
        });
        Ok(true)
    }

    /// Processes the bytes before the greeting. `false`: more must come first.
    fn enter(&mut self, context: &ServerContext) -> Result<bool, String> {
        let Stage::Greeting(arrival) = &mut self.stage else { return Ok(true) };
        if let Entry::Knocking = arrival.entry {
            arrival.entry = match (self.inbox.peek(), &context.tls) {
                (None, _) => return Ok(false),
                (Some(tls::FIRST_BYTE), Some(tls)) => Entry::Securing(Box::new(
                    Handshake::server(tls).map_err(|error| error.to_string())?,
                )),
                (Some(_), tls) => {
                    if tls.is_some() && !context.clear {
                        context.tally.clear_refused.fetch_add(1, Ordering::Relaxed);
                        let host = self.host.and_then(Host::address);
                        context.trust.record_refusal(
                            "door.clear",
                            host,
                            "clear text is not accepted",
                        );
                        arrival.greeting.refuse(HelloRefusal::NeedsTls);
                    }
                    Entry::In
                }
            };
        }
        if self.crowded
            && matches!(arrival.entry, Entry::In)
            && !matches!(self.link.security(), Security::Tls { .. })
        {
            arrival.greeting.refuse(HelloRefusal::Crowded);
        }
        while let Entry::Securing(handshake) = &mut arrival.entry {
            let Some(record) = self.inbox.take_record().map_err(|error| error.to_string())? else {
                return Ok(false);
            };
            let mut out = Vec::new();
            let stepped = handshake.step(&record, &mut out);
            if !out.is_empty() {
                self.link.push_raw(Bytes::from(out));
                self.link.flush();
            }
            if stepped.map_err(|error| error.to_string())?
                && let Entry::Securing(handshake) = std::mem::replace(&mut arrival.entry, Entry::In)
            {
                let secured = handshake.finish().map_err(|error| error.to_string())?;
                context.tally.secured.fetch_add(1, Ordering::Relaxed);
                self.inbox.secure(secured.opener);
                let security = Security::Tls { server: secured.server, shown: secured.shown };
                self.link.secure(secured.sealer, security);
                if self.crowded
                    && !matches!(context.trust.certified(security), Certified::Server(_))
                {
                    arrival.greeting.refuse(HelloRefusal::Crowded);
                }
            }
        }
        Ok(true)
    }

    /// One frame of a session. `false`: more must come first, or be sent first.
    fn request(
        &mut self,
        context: &Arc<ServerContext>,
        handle: &Arc<SessionHandle>,
        agenda: &mut Agenda,
    ) -> Result<bool, String> {
        if self.link.is_full() {
            self.link.refresh_interest();
            return Ok(false);
        }
        let frame = match self.inbox.next_frame().map_err(|error| error.to_string())? {
            None => return Ok(false),
            Some(frame) => to_frame(frame).map_err(|error| error.to_string())?,
        };
        context.tally.frames.fetch_add(1, Ordering::Relaxed);
        if frame.header.kind.is_of_connection() {
            return self.on_connection_frame(context, handle, &frame).map(|()| true);
        }
        let mut outcome = handle.arrived(clock::now(), &self.link, frame);
        let error = outcome.error.take();
        agenda.take(handle, outcome);
        context.deliver_all(agenda, Some(&self.link));
        match error {
            None => Ok(true),
            Some(error) => Err(error.to_string()),
        }
    }
}

impl WorkerConnection {
    /// A frame about lanes and regions.
    fn on_connection_frame(
        &mut self,
        context: &ServerContext,
        handle: &SessionHandle,
        frame: &Frame,
    ) -> Result<(), String> {
        let Some(terms) = self.terms.filter(|terms| terms.features.has(Features::LANES)) else {
            return Err("lanes were not agreed on".to_owned());
        };
        frame.verify(&terms).map_err(|error| error.to_string())?;
        if frame.header.session != handle.id || handle.is_of_nobody() {
            return Err("a lane for another session, or one of nobody".to_owned());
        }
        let message = Message::of_frame(frame).map_err(|error| error.to_string())?;
        let has_descriptor = frame.header.flags.has(Flags::DESCRIPTOR);
        let descriptor = has_descriptor.then(|| self.inbox.take_descriptor()).flatten();
        let share = |bytes| context.bounds.map(self.host, bytes);
        let answer = match (message, descriptor, &mut self.lane) {
            (Some(Message::Lane), Some(memory), LaneState::None)
                if terms.features.has(Features::READ_TIMES) =>
            {
                match share(LANE_BYTES) {
                    None => {
                        self.lane = LaneState::Refused;
                        None
                    }
                    Some(share) => {
                        let (lane, sender) = ConnectionLane::open(memory, share)?;
                        self.lane = LaneState::Open(Box::new(lane));
                        self.is_rung = true;
                        self.link.open_lane(sender);
                        Some(Message::LaneOpen)
                    }
                }
            }
            (
                Some(Message::Region { handle, begins: true }),
                Some(memory),
                LaneState::Open(lane),
            ) => {
                let added = lane.regions.add(handle, memory, share);
                Some(Message::RegionOpen { handle, is_open: added.is_ok() })
            }
            (Some(Message::Region { handle, begins: true }), Some(_), LaneState::Refused) => {
                Some(Message::RegionOpen { handle, is_open: false })
            }
            (Some(Message::Region { handle, begins: false }), None, LaneState::Open(lane)) => {
                lane.regions.remove(handle).map_err(|error| error.to_string())?;
                Some(Message::RegionOpen { handle, is_open: false })
            }
            (Some(Message::Bell), None, LaneState::Open(_)) => {
                self.is_rung = true;
                None
            }
            _ => return Err(format!("{:?} out of place", frame.header.kind)),
        };
        if let Some(answer) = answer {
            let frame = answer.to_frame(handle.id).expect("such messages are short");
            self.link.push(frame.sealed(terms.features), None);
            self.link.flush();
        }
        Ok(())
    }

    /// Takes some requests out of the lane. `None`: the client broke the protocol.
    pub fn take_from_lane(
        &mut self,
        context: &Arc<ServerContext>,
        agenda: &mut Agenda,
    ) -> Option<LaneTurn> {
        let (LaneState::Open(lane), Stage::InSession(handle)) = (&mut self.lane, &self.stage)
        else {
            return Some(LaneTurn::Over);
        };
        let (mut turn, mut copied) = (LaneTurn::Nothing, 0);
        for _ in 0..LANE_REQUESTS {
            if self.link.is_full() {
                return Some(LaneTurn::Paused);
            }
            let step = lane.take().and_then(|request| {
                request
                    .map(|it| context.take_lane_request(handle, &self.link, &it, agenda))
                    .transpose()
            });
            match step {
                Ok(None) => break,
                Ok(Some(bytes)) => {
                    (turn, copied) = (LaneTurn::Some, copied + bytes);
                    let is_large = bytes >= LARGE_READ;
                    if copied >= if is_large { LARGE_BYTES_TURN } else { LANE_BYTES_TURN } {
                        break;
                    }
                }
                Err(why) => {
                    context.tally.malformed.fetch_add(1, Ordering::Relaxed);
                    tracing::info!(link = self.link.id.0, why, "lane refused");
                    return None;
                }
            }
        }
        Some(turn)
    }
}

fn to_frame(frame: fabric::ReceivedFrame<'_>) -> Result<Frame, dafs::WireError> {
    let header = FrameHeader::parse(frame.header)?;
    Ok(Frame { header, message: Bytes::copy_from_slice(frame.message), payload: frame.payload })
}

pub(crate) fn measure(header: &[u8; FrameHeader::BYTES]) -> Result<Extent, &'static str> {
    match FrameHeader::parse(header) {
        Ok(header) => Ok(Extent {
            message: header.message_bytes as usize,
            payload: header.payload_bytes as usize,
        }),
        Err(error) => {
            tracing::debug!(%error, "malformed header");
            Err("not a header of this protocol")
        }
    }
}
