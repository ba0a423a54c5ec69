//! A server's connection before it belongs to a session: hello, then one attach or bind. Stores at
//! most one hello.
//!
//! ```text
//! Hello --64 bytes, agreed--> First --attach or bind--> Over
//!   |                           |
//!   +--- other bytes, nothing in common, or too late: readable refusal, then close
//! ```
//! The greeting refuses foreign bytes at the first one that differs, not after 64 of them.

use bytes::Bytes;
use types::{ServerId, Time};

use crate::hello::MAGIC;
use crate::limits::GREETING_TIME;
use crate::message::{Attach, Bind, Message};
use crate::{Features, Frame, FrameKind, Hello, HelloAnswer, HelloRefusal, PeerError, Terms};

/// An event of a connection.
#[derive(Debug)]
pub enum GreetingInput<'a> {
    /// Bytes arrived: at most [`Greeting::bytes_wanted`] of them.
    Bytes(&'a [u8]),
    /// A frame arrived (after [`GreetingOutput::Agreed`]).
    Arrived(Frame),
    /// The time of a [`GreetingOutput::WakeAt`] came.
    Tick,
}

/// An order to the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum GreetingOutput {
    /// Send these bytes, which are no frame.
    Send(Bytes),
    /// The hello is over: frames follow.
    Agreed(Terms),
    /// The connection asks to be the operations connection of a session: find or make the session,
    /// then give it [`crate::ServerInput::Attached`]. The greeting is over.
    Attach(Attach),
    /// The connection asks to be the back connection of a session: give that session
    /// [`crate::ServerInput::Bind`]. The greeting is over.
    Bind(Bind),
    /// Give the machine a tick at this time.
    WakeAt(Time),
}

#[derive(Debug)]
enum State {
    Hello { bytes: [u8; Hello::BYTES], have: usize },
    First(Terms),
    Over,
}

/// See the head of the file. When `step` fails, send the outputs so far, then close.
#[derive(Debug)]
pub struct Greeting {
    offered: Terms,
    until: Time,
    refuse: Option<HelloRefusal>,
    /// The server that this process is.
    me: Option<ServerId>,
    state: State,
}

impl Greeting {
    /// A connection that arrived at `now`. `offered` is the most that the server grants.
    pub fn new(now: Time, offered: Terms, out: &mut Vec<GreetingOutput>) -> Greeting {
        let until = now + GREETING_TIME;
        out.push(GreetingOutput::WakeAt(until));
        Greeting {
            offered,
            until,
            refuse: None,
            me: None,
            state: State::Hello { bytes: [0; Hello::BYTES], have: 0 },
        }
    }

    /// The terms that a server offers by default over a connection with these features.
    pub fn offer(features: Features) -> Terms {
        Terms::full(features)
    }

    /// Refuses every hello with this reason: for a server that is full.
    pub fn refuse(&mut self, why: HelloRefusal) {
        self.refuse = Some(why);
    }

    /// Refuses clients that ask for another server than `me`.
    pub fn answers_for(&mut self, me: ServerId) {
        self.me = Some(me);
    }

    /// Number of missing bytes of the hello; 0: the hello is over, read frames.
    pub fn bytes_wanted(&self) -> usize {
        match self.state {
            State::Hello { have, .. } => Hello::BYTES - have,
            State::First(_) | State::Over => 0,
        }
    }

    /// Takes one event.
    ///
    /// # Errors
    /// [`PeerError`]: send the outputs so far, then close the connection.
    pub fn step(
        &mut self,
        now: Time,
        input: GreetingInput<'_>,
        out: &mut Vec<GreetingOutput>,
    ) -> Result<(), PeerError> {
        match input {
            GreetingInput::Bytes(bytes) => self.on_bytes(bytes, out),
            GreetingInput::Arrived(frame) => self.on_frame(&frame, out),
            GreetingInput::Tick => self.on_tick(now, out),
        }
    }

    fn on_bytes(&mut self, arrived: &[u8], out: &mut Vec<GreetingOutput>) -> Result<(), PeerError> {
        let State::Hello { bytes, have } = &mut self.state else {
            return Err(PeerError::NoHello("bytes outside a frame"));
        };
        let Some(room) = bytes.get_mut(*have..*have + arrived.len()) else {
            return Err(PeerError::NoHello("more than a hello"));
        };
        room.copy_from_slice(arrived);
        *have += arrived.len();
        let text = (*have).min(MAGIC.len());
        if bytes[..text] != MAGIC[..text] {
            return self.send_refusal(HelloRefusal::NotOurs, out);
        }
        if *have < Hello::BYTES {
            return Ok(());
        }
        let agreed = Hello::parse(bytes).and_then(|hello| match self.refuse {
            Some(why) => Err(why),
            None if hello.server.is_some_and(|meant| self.me.is_some_and(|me| me != meant)) => {
                Err(HelloRefusal::Another)
            }
            None => hello.agree(&self.offered),
        });
        match agreed {
            Ok(terms) => {
                self.state = State::First(terms);
                out.push(GreetingOutput::Send(Bytes::copy_from_slice(
                    &HelloAnswer::Welcome(terms).to_bytes(),
                )));
                out.push(GreetingOutput::Agreed(terms));
                Ok(())
            }
            Err(refusal) => self.send_refusal(refusal, out),
        }
    }

    fn send_refusal(
        &mut self,
        refusal: HelloRefusal,
        out: &mut Vec<GreetingOutput>,
    ) -> Result<(), PeerError> {
        self.state = State::Over;
        out.push(GreetingOutput::Send(Bytes::copy_from_slice(
            &HelloAnswer::Refused(refusal).to_bytes(),
        )));
        Err(PeerError::Turned(refusal))
    }

    fn on_frame(&mut self, frame: &Frame, out: &mut Vec<GreetingOutput>) -> Result<(), PeerError> {
        let State::First(terms) = self.state else {
            return Err(PeerError::Unexpected(frame.header.kind));
        };
        self.state = State::Over;
        frame.verify(&terms)?;
        if !matches!(frame.header.kind, FrameKind::Attach | FrameKind::Bind) {
            return Err(PeerError::Unexpected(frame.header.kind));
        }
        match Message::of_frame(frame)? {
            Some(Message::Attach(attach)) => out.push(GreetingOutput::Attach(attach)),
            Some(Message::Bind(bind)) => out.push(GreetingOutput::Bind(bind)),
            _ => return Err(PeerError::Unexpected(frame.header.kind)),
        }
        Ok(())
    }

    fn on_tick(&mut self, now: Time, out: &mut Vec<GreetingOutput>) -> Result<(), PeerError> {
        match self.state {
            State::Over => Ok(()),
            State::Hello { .. } | State::First(_) if now < self.until => {
                out.push(GreetingOutput::WakeAt(self.until));
                Ok(())
            }
            State::Hello { .. } => self.send_refusal(HelloRefusal::Silent, out),
            State::First(_) => {
                self.state = State::Over;
                Err(PeerError::Turned(HelloRefusal::Silent))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use types::{ClientId, SessionId};

    use super::*;

    fn greeting() -> (Greeting, Vec<GreetingOutput>) {
        let mut out = Vec::new();
        let greeting = Greeting::new(Time::ZERO, Greeting::offer(Features::CHECKSUMS), &mut out);
        out.clear();
        (greeting, out)
    }

    fn refusal(out: &[GreetingOutput]) -> Option<HelloRefusal> {
        let [GreetingOutput::Send(bytes)] = out else { return None };
        let bytes = bytes[..].try_into().ok()?;
        match HelloAnswer::parse(bytes, &Hello::full(Features::NONE)).ok()? {
            HelloAnswer::Refused(refusal) => Some(refusal),
            HelloAnswer::Welcome(_) => None,
        }
    }

    #[test]
    fn a_hello_may_come_byte_by_byte_and_an_attach_ends_greeting() {
        let (mut greeting, mut out) = greeting();
        let hello = Hello::full(Features::CHECKSUMS);
        for byte in hello.to_bytes() {
            assert!(greeting.bytes_wanted() > 0);
            greeting.step(Time::ZERO, GreetingInput::Bytes(&[byte]), &mut out).unwrap();
        }
        assert_eq!(greeting.bytes_wanted(), 0);
        let terms = Terms::full(Features::CHECKSUMS);
        assert!(matches!(
        &out[..],
        [GreetingOutput::Send(_), GreetingOutput::Agreed(agreed)] if *agreed == terms
        ));
        out.clear();
        let attach = Attach {
            client: ClientId(5),
            incarnation: 1,
            resume: None,
            display: "host".into(),
            pid: 1,
        };
        let frame =
            Message::Attach(attach.clone()).to_frame(SessionId(0)).unwrap().sealed(terms.features);
        greeting.step(Time::ZERO, GreetingInput::Arrived(frame.clone()), &mut out).unwrap();
        assert_eq!(out, [GreetingOutput::Attach(attach)]);
        let again = greeting.step(Time::ZERO, GreetingInput::Arrived(frame), &mut out);
        assert_eq!(again, Err(PeerError::Unexpected(FrameKind::Attach)));
    }

    #[test]
    fn foreign_bytes_are_refused_at_the_first_that_differs() {
        for foreign in [&b"G"[..], b"GET / HTTP/1.1\r\n\r\n", b"RIALTO-DAFS\n", &[0], &[0xff; 64]] {
            let (mut greeting, mut out) = greeting();
            let result = greeting.step(Time::ZERO, GreetingInput::Bytes(foreign), &mut out);
            assert_eq!(result, Err(PeerError::Turned(HelloRefusal::NotOurs)));
            assert_eq!(refusal(&out), Some(HelloRefusal::NotOurs));
        }
    }

    #[test]
    fn silence_is_refused_when_its_time_is_over() {
        let (mut greeting, mut out) = greeting();
        let late = Time::ZERO + GREETING_TIME;
        greeting.step(late - Duration::from_nanos(1), GreetingInput::Tick, &mut out).unwrap();
        assert_eq!(out, [GreetingOutput::WakeAt(late)]);
        out.clear();
        let result = greeting.step(late, GreetingInput::Tick, &mut out);
        assert_eq!(result, Err(PeerError::Turned(HelloRefusal::Silent)));
        assert_eq!(refusal(&out), Some(HelloRefusal::Silent));
    }

    #[test]
    fn a_full_server_refuses_with_the_reason() {
        let (mut greeting, mut out) = greeting();
        greeting.refuse(HelloRefusal::Crowded);
        let hello = Hello::full(Features::NONE).to_bytes();
        assert!(greeting.step(Time::ZERO, GreetingInput::Bytes(&hello), &mut out).is_err());
        assert_eq!(refusal(&out), Some(HelloRefusal::Crowded));
    }

    #[test]
    fn a_hello_for_another_server_is_refused() {
        let ask = |server: Option<u128>| {
            let (mut greeting, mut out) = greeting();
            greeting.answers_for(ServerId(7));
            let hello = Hello { server: server.map(ServerId), ..Hello::full(Features::NONE) };
            let taken =
                greeting.step(Time::ZERO, GreetingInput::Bytes(&hello.to_bytes()), &mut out);
            (taken.is_ok(), refusal(&out))
        };
        assert_eq!(ask(None), (true, None));
        assert_eq!(ask(Some(7)), (true, None));
        assert_eq!(ask(Some(8)), (false, Some(HelloRefusal::Another)));
    }

    #[test]
    fn more_bytes_than_a_hello_are_refused_without_being_stored() {
        let (mut greeting, mut out) = greeting();
        let result = greeting.step(Time::ZERO, GreetingInput::Bytes(&[b'R'; 65]), &mut out);
        assert!(matches!(result, Err(PeerError::NoHello(_))));
    }

    #[test]
    fn only_attach_and_bind_begin_a_session() {
        for message in [Message::Detach, Message::Renew(1), Message::Probe(1), Message::Bound] {
            let (mut greeting, mut out) = greeting();
            let hello = Hello::full(Features::NONE).to_bytes();
            greeting.step(Time::ZERO, GreetingInput::Bytes(&hello), &mut out).unwrap();
            let frame = message.to_frame(SessionId(1)).unwrap();
            let result = greeting.step(Time::ZERO, GreetingInput::Arrived(frame), &mut out);
            assert_eq!(result, Err(PeerError::Unexpected(message.kind())));
        }
    }
}
