//! One connection of a session, after its hello.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dafs::{ChannelId, Features, Frame, Header, Hello, HelloAnswer, Refusal, Role, Terms};
use fabric::{Connection, Endpoint, Extent, Inbox, Limits, OutFrame, Outbox, Want};
use parking_lot::Mutex;
use types::limits::{MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX, SLOTS_MAX};

use crate::SessionConfig;

/// How long the server may take to answer a hello.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// How long the leader waits in one receive before it looks whether anybody took his question back: a server that hangs
/// keeps its connection, so nothing else would wake it.
const WAIT_MAX: Duration = Duration::from_millis(250);

/// A connection with its two halves. Many threads send; whoever holds the inbox receives.
#[derive(Debug)]
pub(crate) struct Channel {
    pub id: ChannelId,
    pub role: Role,
    pub connection: Connection,
    outbox: Mutex<Outbox>,
    pub inbox: Mutex<Inbox>,
    received: AtomicU64,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Refused(Refusal),
    #[error("what listens there is no Rialto server: {0}")]
    NotOurs(dafs::WireError),
}

impl ConnectError {
    /// Whether trying again can be of no use.
    pub fn is_final(&self) -> bool {
        match self {
            ConnectError::Refused(Refusal::Crowded | Refusal::Silent) | ConnectError::Io(_) => false,
            ConnectError::Refused(_) | ConnectError::NotOurs(_) => true,
        }
    }
}

impl Channel {
    /// Connects and says hello.
    pub fn connect(id: ChannelId, role: Role, config: &SessionConfig) -> Result<(Channel, Terms), ConnectError> {
        let connection = Connection::connect(&config.endpoint, &config.options)?;
        connection.bound_waits(WAIT_MAX)?;
        let hello = hello(config);
        let until = Some(Instant::now() + HELLO_WITHIN);
        connection.send_raw(&hello.to_bytes(), until)?;
        let mut answer = [0; HelloAnswer::BYTES];
        connection.receive_raw(&mut answer, until)?;
        let terms = match HelloAnswer::parse(&answer, &hello).map_err(ConnectError::NotOurs)? {
            HelloAnswer::Welcome(terms) => terms,
            HelloAnswer::Refused(refusal) => return Err(ConnectError::Refused(refusal)),
        };
        let limits = Limits { message: MESSAGE_BYTES_MAX, payload: PAYLOAD_BYTES_MAX };
        let inbox = Mutex::new(Inbox::new(measure, limits, terms.features.has(Features::DESCRIPTORS)));
        Ok((Channel { id, role, connection, outbox: Mutex::default(), inbox, received: AtomicU64::new(0) }, terms))
    }

    /// Frames that have come in.
    pub fn frames_received(&self) -> u64 {
        self.received.load(Ordering::SeqCst)
    }

    /// One more has.
    pub fn count_received(&self) {
        self.received.fetch_add(1, Ordering::SeqCst);
    }

    /// Queues a frame; [`Channel::flush`] sends it.
    pub fn push(&self, frame: Frame) {
        let Frame { header, message, payload } = frame;
        self.outbox.lock().push(OutFrame::new(header.to_bytes(), message, payload, None));
    }

    /// Sends what can be sent. `false`: the server does not take more at the moment. A broken connection is shut down, so
    /// that its reader learns of it, and takes everything.
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

    /// Whether queued bytes wait for the server to take them.
    pub fn is_blocked(&self) -> bool {
        !self.outbox.lock().is_empty()
    }

    /// Waits a moment for the server to take more, and sends it.
    pub fn push_on(&self, moment: Duration) -> bool {
        // A failure to poll shows again when sending.
        let _ = self.connection.wait(Want::Send, Some(Instant::now() + moment));
        self.flush()
    }
}

/// A received frame in the protocol's form.
pub(crate) fn to_frame(frame: fabric::Frame<'_>) -> Result<Frame, dafs::WireError> {
    let header = Header::parse(frame.header)?;
    Ok(Frame { header, message: Bytes::copy_from_slice(frame.message), payload: frame.payload })
}

fn measure(header: &[u8; Header::BYTES]) -> Result<Extent, &'static str> {
    match Header::parse(header) {
        Ok(header) => Ok(Extent { message: header.message_bytes as usize, payload: header.payload_bytes as usize }),
        Err(error) => {
            tracing::warn!(%error, "malformed header from the server");
            Err("the server's header is malformed")
        }
    }
}

fn hello(config: &SessionConfig) -> Hello {
    let mut features = Features::DELEGATIONS;
    if matches!(config.endpoint, Endpoint::Unix(_)) {
        features = features.with(Features::DESCRIPTORS);
    }
    if config.checksums {
        features = features.with(Features::CHECKSUMS).with(Features::PAYLOAD_CHECKSUMS);
    }
    let payload_bytes_max = u32::try_from(PAYLOAD_BYTES_MAX).expect("the limit is a mebibyte");
    Hello { version_min: 1, version_max: 1, features, slots: SLOTS_MAX, payload_bytes_max }
}
