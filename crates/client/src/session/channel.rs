//! One connection of a session, after its hello.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dafs::{
    ChannelId, ConnectionRole, Features, Frame, FrameHeader, Hello, HelloAnswer, HelloRefusal,
    Terms,
};
use fabric::tls::TlsError;
use fabric::{Connection, Endpoint, Extent, Filled, FrameLimits, Inbox, OutFrame, Outbox, WaitFor};
use parking_lot::Mutex;
use types::limits::{MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX, SLOTS_MAX};
use types::{KeyPrint, ServerId, ServerRoles};

use super::channel_lane::{self, ChannelLane, Way, WithDescriptor};
use crate::SessionConfig;

/// How long the server may take to answer a hello.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// How long the leader waits in one receive before it checks whether its call was cancelled: a
/// server that hangs keeps its connection open, so nothing else would wake the leader.
const WAIT_MAX: Duration = Duration::from_millis(250);

/// A connection with its two halves. Many threads send; the thread that holds the inbox receives.
#[derive(Debug)]
pub(crate) struct FrameChannel {
    pub id: ChannelId,
    pub role: ConnectionRole,
    pub connection: Connection,
    /// Fingerprint of the server's certificate.
    pub certificate: Option<[u8; 32]>,
    /// The key of that certificate.
    pub server_key: Option<KeyPrint>,
    /// The roles that the server has by that certificate. One without is on this machine, or in a
    /// cell that trusts its network.
    pub server_roles: ServerRoles,
    outbox: Mutex<Outbox>,
    pub inbox: Mutex<Inbox>,
    /// Of an operations connection whose server takes one.
    pub lane: Option<ChannelLane>,
    received: AtomicU64,
}

/// Why connecting failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Refused(HelloRefusal),
    #[error("no Rialto server listens there: {0}")]
    NotOurs(dafs::WireError),
}

impl ConnectError {
    /// Is a retry useless?
    pub fn is_final(&self) -> bool {
        match self {
            ConnectError::Refused(
                HelloRefusal::Crowded
                | HelloRefusal::Silent
                | HelloRefusal::Another
                | HelloRefusal::NotOurs,
            ) => false,
            ConnectError::Io(_) | ConnectError::NotOurs(_) => false,
            ConnectError::Refused(_) => true,
        }
    }

    /// Is it another server, or do the two sides not trust each other? A retry here does not help,
    /// but the session goes on, for its server may be found at another address.
    pub fn is_another(&self) -> bool {
        match self {
            ConnectError::Io(error) => error.get_ref().is_some_and(|inner| inner.is::<TlsError>()),
            ConnectError::Refused(refusal) => {
                matches!(refusal, HelloRefusal::Another | HelloRefusal::NotOurs)
            }
            ConnectError::NotOurs(_) => true,
        }
    }
}

impl FrameChannel {
    /// Connects and sends the hello.
    ///
    /// # Errors
    /// The connection fails, or what answers is no Rialto server or another one ([`ConnectError`]).
    pub fn connect(
        id: ChannelId,
        role: ConnectionRole,
        config: &SessionConfig,
        (place, server): (&Endpoint, Option<ServerId>),
    ) -> Result<(FrameChannel, Terms), ConnectError> {
        let connection = Connection::connect(place, &config.options.connection)?;
        connection.bound_waits(WAIT_MAX)?;
        let until = Some(Instant::now() + HELLO_WITHIN);
        let (mut inbox, mut outbox) = boxes(place);
        let secured = connection.secure(place, &config.options.connection, until)?;
        let hello = Hello { server, ..hello(config, secured.is_some()) };
        let certificate = secured.as_ref().map(|secured| secured.server.0);
        let server_key = secured.as_ref().and_then(|secured| secured.server_key);
        let server_roles =
            secured.as_ref().map_or(ServerRoles::ALL, |secured| secured.server_roles);
        if let Some(secured) = secured {
            inbox.secure(secured.opener);
            outbox.secure(secured.sealer);
        }
        outbox.push(OutFrame::raw(Bytes::copy_from_slice(&hello.to_bytes())));
        send_all(&connection, &mut outbox, until)?;
        let answer = receive_answer(&connection, &mut inbox, until)?;
        let terms = match HelloAnswer::parse(&answer, &hello).map_err(ConnectError::NotOurs)? {
            HelloAnswer::Welcome(terms) => terms,
            HelloAnswer::Refused(refusal) => return Err(ConnectError::Refused(refusal)),
        };
        let (inbox, outbox) = (Mutex::new(inbox), Mutex::new(outbox));
        let has_lane = role == ConnectionRole::Operations && terms.features.has(Features::LANES);
        Ok((
            FrameChannel {
                id,
                role,
                connection,
                certificate,
                server_key,
                server_roles,
                outbox,
                inbox,
                lane: has_lane.then(ChannelLane::new),
                received: AtomicU64::new(0),
            },
            terms,
        ))
    }

    /// How many frames have come in.
    pub fn frames_received(&self) -> u64 {
        self.received.load(Ordering::SeqCst)
    }

    /// Counts one more received frame.
    pub fn count_received(&self) {
        self.received.fetch_add(1, Ordering::SeqCst);
    }

    /// Queues a frame; [`FrameChannel::flush`] sends it.
    pub fn push(&self, frame: Frame) {
        let session = frame.header.session;
        let frame = match &self.lane {
            Some(lane) => match lane.push(frame) {
                Way::Lane { rings: false } => return,
                Way::Lane { rings: true } => channel_lane::bell(session),
                Way::Socket(frame) => frame,
            },
            None => frame,
        };
        self.push_with((frame, None));
    }

    /// Queues a frame for the socket, with its descriptor.
    pub fn push_with(&self, (frame, descriptor): WithDescriptor) {
        let Frame { header, message, payload } = frame;
        self.outbox.lock().push(OutFrame::new(header.to_bytes(), message, payload, descriptor));
    }

    /// Sends what the socket accepts. `false`: bytes remain, because the server reads no more for
    /// now. A broken connection is shut down, so that its reader notices; it then discards
    /// everything.
    pub fn flush(&self) -> bool {
        let mut outbox = self.outbox.lock();
        match outbox.flush(&self.connection) {
            Ok(all) => all,
            Err(error) => {
                tracing::debug!(%error, channel = self.id.0, "sending failed");
                outbox.clear();
                self.connection.shut_down();
                true
            }
        }
    }

    /// Do queued bytes wait for the server to read them?
    pub fn is_blocked(&self) -> bool {
        !self.outbox.lock().is_empty()
    }

    /// Waits at most this long until the socket accepts more, and sends.
    pub fn push_on(&self, moment: Duration) -> bool {
        // If the poll fails, sending fails too and reports it.
        let _ = self.connection.wait(WaitFor::Send, Some(Instant::now() + moment));
        self.flush()
    }
}

fn boxes(endpoint: &Endpoint) -> (Inbox, Outbox) {
    let limits = FrameLimits { message: MESSAGE_BYTES_MAX, payload: PAYLOAD_BYTES_MAX };
    (Inbox::new(measure, limits, matches!(endpoint, Endpoint::Unix(_))), Outbox::new())
}

fn send_all(
    connection: &Connection,
    outbox: &mut Outbox,
    until: Option<Instant>,
) -> io::Result<()> {
    while !outbox.flush(connection)? {
        if !connection.wait(WaitFor::Send, until)?.send {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

fn receive_answer(
    connection: &Connection,
    inbox: &mut Inbox,
    until: Option<Instant>,
) -> io::Result<[u8; HelloAnswer::BYTES]> {
    let mut answer = [0; HelloAnswer::BYTES];
    let mut have = 0;
    while have < answer.len() {
        let came = inbox.take_raw(answer.len() - have).map_err(io::Error::other)?;
        answer[have..have + came.len()].copy_from_slice(came);
        have += came.len();
        if !came.is_empty() {
            continue;
        }
        if !connection.wait(WaitFor::Receive, until)?.receive {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if inbox.fill(connection, false)? == Filled::End {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(answer)
}

/// A received frame in the protocol's form.
pub(crate) fn to_frame(frame: fabric::ReceivedFrame<'_>) -> Result<Frame, dafs::WireError> {
    let header = FrameHeader::parse(frame.header)?;
    Ok(Frame { header, message: Bytes::copy_from_slice(frame.message), payload: frame.payload })
}

fn measure(header: &[u8; FrameHeader::BYTES]) -> Result<Extent, &'static str> {
    match FrameHeader::parse(header) {
        Ok(header) => Ok(Extent {
            message: header.message_bytes as usize,
            payload: header.payload_bytes as usize,
        }),
        Err(error) => {
            tracing::warn!(%error, "malformed header from the server");
            Err("the server's header is malformed")
        }
    }
}

/// TLS has better checksums than this protocol; clear-text TCP always uses the protocol's.
fn hello(config: &SessionConfig, secured: bool) -> Hello {
    let packed = Features::PACKED.with(Features::PACKED_READS);
    let always = Features::DELEGATIONS.with(Features::SHORT_SLOTS);
    let mut features = always.with(Features::READ_TIMES).with(packed);
    let local = matches!(config.endpoint, Endpoint::Unix(_));
    if local {
        features = features.with(Features::DESCRIPTORS);
    }
    if config.options.direct && local && !config.checksums {
        features = features.with(Features::DIRECT).with(Features::LANES);
    }
    if config.options.keep.is_some() {
        features = features.with(Features::SUCCESSORS);
    }
    if !secured && (config.checksums || !local) {
        features = features.with(Features::CHECKSUMS).with(Features::PAYLOAD_CHECKSUMS);
    }
    let payload_bytes_max = u32::try_from(PAYLOAD_BYTES_MAX).expect("the limit is a mebibyte");
    Hello {
        version_min: 1,
        version_max: 1,
        features,
        slots: SLOTS_MAX,
        payload_bytes_max,
        server: None,
    }
}
