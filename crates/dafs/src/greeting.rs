//! A server's connection before it belongs to a session: hello, then one attach or bind. Holds at most one hello.

use bytes::Bytes;
use types::Time;

use crate::message::{Attach, Bind};
use crate::{Features, Frame, PeerError, Refusal, Terms};

/// What happens to a connection.
#[derive(Debug)]
pub enum GreetingInput<'a> {
    /// Bytes came: at most [`Greeting::bytes_wanted`] of them.
    Bytes(&'a [u8]),
    /// A frame came (after [`GreetingOutput::Agreed`]).
    Arrived(Frame),
    /// A promised time came.
    Tick,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum GreetingOutput {
    /// Send these bytes, which are no frame.
    Send(Bytes),
    /// Hello is over: frames follow.
    Agreed(Terms),
    /// The connection wants to be the operations connection of a session: find or make it, then give it
    /// [`crate::ServerInput::Attached`]. The greeting is over.
    Attach(Attach),
    /// The connection wants to be the back connection of a session: give that one [`crate::ServerInput::Bind`].
    /// The greeting is over.
    Bind(Bind),
    /// Give the machine a tick then.
    WakeAt(Time),
}

/// See the head of the file. When `step` fails, send what was put out, then close.
#[derive(Debug)]
pub struct Greeting {
    offered: Terms,
    refuse: Option<Refusal>,
}

impl Greeting {
    /// A connection that came at `now`. `offered` is the most that the server grants (the version is ours anyway).
    pub fn new(now: Time, offered: Terms, out: &mut Vec<GreetingOutput>) -> Greeting {
        out.push(GreetingOutput::WakeAt(now));
        Greeting { offered, refuse: None }
    }

    /// What a server offers by default over a connection with these features.
    pub fn offer(features: Features) -> Terms {
        Terms { version: 1, features, slots: 128, payload_bytes_max: 1 << 20 }
    }

    /// Refuse whatever comes, readably: for a server that is full.
    pub fn refuse(&mut self, why: Refusal) {
        self.refuse = Some(why);
    }

    /// How many bytes of the hello are missing; 0: it is over, read frames.
    pub fn bytes_wanted(&self) -> usize {
        0
    }

    /// Takes in one event.
    ///
    /// # Errors
    /// [`PeerError`]: the connection is to be closed after what was put out is sent.
    pub fn step(
        &mut self,
        _now: Time,
        _input: GreetingInput<'_>,
        _out: &mut Vec<GreetingOutput>,
    ) -> Result<(), PeerError> {
        let _ = self.offered;
        Err(PeerError::Silent)
    }
}
