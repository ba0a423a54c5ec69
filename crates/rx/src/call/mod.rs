//! One call: its two halves, its timers, and what it owes to its peer and to its application.
//!
//! A call *waits* while its caller is not proved: its packets are kept as they came. It is *active*
//! until both sides have everything, or until it fails. Then it is *over*: its application is told
//! and may use it no more, but its record stays for the peer, which may send something again. The
//! next call on the channel takes the record's place.
//!
//! A server's call is over when the client has the whole answer; what the client holds without
//! having read it stays in the queue until its hard acknowledgement (RX-3). A client's call is over
//! when the application has read the answer's end; the last acknowledgement then waits a little,
//! because the next call says the same.

mod acks;
mod congestion;
mod poll;
mod receive;
mod round_trip;
mod send;
mod timers;

use bytes::Bytes;
use types::Time;

use crate::common::BufferRoom;
use crate::config::CallLimits;
use crate::event::RxRead;
use crate::limits::{ABORT_INTERVAL, STREAM_MIN};
use crate::rxkad::BadSeal;
use crate::security::ConnectionSecurity;
use crate::statistics::RxStatistics;
use crate::wire::{AckPacket, AckReason, PacketHeader, flags};
use crate::{RxCallId, RxError};
use acks::AckDebt;
use receive::{Arrival, ReceiveHalf};
use send::{SealedPacket, SendHalf};

pub(crate) use poll::{AckTerms, CallPacket, Polled};
pub(crate) use round_trip::RoundTrip;

/// How data is made into packets.
pub(crate) struct Framing<'a> {
    pub(crate) security: &'a ConnectionSecurity,
    /// Bytes of a body, with what the security class adds.
    pub(crate) body_max: usize,
    /// Packets that the queue may have.
    pub(crate) packets_max: usize,
}

/// Changes of a call that its application must know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallNews {
    /// Its first packet is here.
    pub(crate) begins: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) over: Option<Result<(), RxError>>,
    /// The peer receives at its address: it knew a number that only our packet had.
    pub(crate) is_echo: bool,
    /// A packet's seal was wrong.
    pub(crate) bad_seal: bool,
    /// Others follow the packet, and the peer awaits no answer to it.
    pub(crate) is_stream: bool,
}

#[derive(Debug)]
enum CallStage {
    Waiting(Vec<(PacketHeader, Bytes)>),
    /// The application knows the call, or will when its first packet is here.
    Active {
        announced: bool,
    },
    Over,
}

#[derive(Debug)]
pub(crate) struct RxCall {
    pub(crate) id: RxCallId,
    is_client: bool,
    stage: CallStage,
    receive: ReceiveHalf,
    send: SendHalf,
    acks: AckDebt,
    /// The packet that is being written, with room for the head of the security class.
    filling: Vec<u8>,
    /// The peer wants no more of ours: what is written is dropped.
    peer_is_done: bool,
    limits: CallLimits,
    began_at: Time,
    heard_at: Time,
    sent_at: Time,
    /// When the peer, or our application, last did what the other waits for.
    progress_at: Time,
    ping_wanted: bool,
    ping: Option<(u32, Time)>,
    /// A read returned nothing, or a write took less than it was given.
    read_waits: bool,
    write_waits: bool,
    has_failed: bool,
    /// The code that the peer is told, and when it may be told again.
    abort: Option<i32>,
    abort_owed: bool,
    abort_at: Time,
    /// The first packet of a client's call carries this byte.
    pub(crate) user_status: u8,
}

impl RxCall {
    pub(crate) fn new(
        now: Time,
        id: RxCallId,
        is_client: bool,
        limits: CallLimits,
        window: u16,
        round_trip: RoundTrip,
    ) -> Self {
        RxCall {
            id,
            is_client,
            stage: CallStage::Active { announced: is_client },
            receive: ReceiveHalf::new(window),
            send: SendHalf::new(window, round_trip),
            acks: AckDebt::new(),
            filling: Vec::new(),
            peer_is_done: false,
            limits,
            began_at: now,
            heard_at: now,
            sent_at: now,
            progress_at: now,
            ping_wanted: false,
            ping: None,
            read_waits: is_client,
            write_waits: false,
            has_failed: false,
            abort: None,
            abort_owed: false,
            abort_at: Time::ZERO,
            user_status: 0,
        }
    }

    /// A call whose caller is not proved yet.
    pub(crate) fn into_waiting(mut self) -> Self {
        self.stage = CallStage::Waiting(Vec::new());
        self
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, CallStage::Over)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.stage, CallStage::Waiting(_))
    }

    /// Whether the application knows the call.
    pub(crate) fn is_announced(&self) -> bool {
        matches!(self.stage, CallStage::Active { announced: true })
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether this side's turn is to send: a server that has the request, a client before it has
    /// sent its own.
    pub(crate) fn is_sending(&self) -> bool {
        if self.is_client { !self.send.is_all_sent() } else { self.receive.is_complete() }
    }

    /// Whether the whole answer was sent at least once.
    pub(crate) fn is_answered(&self) -> bool {
        self.send.is_all_sent()
    }

    /// Bytes that were not read yet; `None` if there will be no more of them.
    pub(crate) fn unread(&self, id: RxCallId) -> Option<usize> {
        let goes_on = self.id == id && !self.has_failed && !self.receive.is_complete();
        goes_on.then(|| self.receive.bytes())
    }

    pub(crate) fn bytes(&self) -> usize {
        let waiting = match &self.stage {
            CallStage::Waiting(packets) => packets.iter().map(|(_, body)| body.len()).sum(),
            CallStage::Active { .. } | CallStage::Over => 0,
        };
        waiting + self.receive.bytes() + self.send.bytes() + self.filling.len()
    }

    pub(crate) fn round_trip(&self) -> RoundTrip {
        self.send.round_trip()
    }

    /// Keeps a packet until its caller is proved. Whether there was room.
    pub(crate) fn keep(&mut self, header: PacketHeader, body: &[u8], packets_max: usize) -> bool {
        let CallStage::Waiting(packets) = &mut self.stage else { return false };
        let is_here = packets.iter().any(|(kept, _)| kept.seq == header.seq);
        if is_here || packets.len() >= packets_max {
            return is_here;
        }
        packets.push((header, Bytes::copy_from_slice(body)));
        true
    }

    /// The caller is proved: returns the packets that were kept.
    pub(crate) fn activate(&mut self, now: Time) -> Vec<(PacketHeader, Bytes)> {
        self.heard_at = now;
        self.progress_at = now;
        let active = CallStage::Active { announced: false };
        match std::mem::replace(&mut self.stage, active) {
            CallStage::Waiting(packets) => packets,
            other => {
                self.stage = other;
                Vec::new()
            }
        }
    }

    /// A data packet of this call arrived, whose checksum is right. It is opened only if it is new.
    pub(crate) fn on_data(
        &mut self,
        now: Time,
        header: &PacketHeader,
        open: impl FnOnce() -> Result<Bytes, BadSeal>,
        room: BufferRoom,
        statistics: &mut RxStatistics,
    ) -> CallNews {
        if self.has_failed {
            self.tell_again(now);
            return CallNews::default();
        }
        let is_last = header.has(flags::LAST_PACKET);
        let asks = header.has(flags::REQUEST_ACK);
        let owe = |reason| if asks { AckReason::Requested } else { reason };
        match self.receive.look(header.seq, is_last) {
            Arrival::New => {}
            Arrival::Duplicate => {
                statistics.duplicates += 1;
                self.heard_at = now;
                self.acks.owe(owe(AckReason::Duplicate), header.serial);
                return CallNews::default();
            }
            Arrival::Beyond => {
                statistics.dropped_full += 1;
                self.acks.owe(owe(AckReason::ExceedsWindow), header.serial);
                return CallNews::default();
            }
            Arrival::Senseless => {
                statistics.dropped_malformed += 1;
                return CallNews::default();
            }
        }
        let has_room = if self.receive.is_next(header.seq) { room.next } else { room.later };
        if !has_room {
            statistics.dropped_full += 1;
            return CallNews::default();
        }
        let Ok(data) = open() else {
            return CallNews { bad_seal: true, ..CallNews::default() };
        };
        self.receive.accept(header.seq, is_last, data);
        (self.heard_at, self.progress_at) = (now, now);
        if asks {
            self.acks.owe(AckReason::Requested, header.serial);
        } else if self.receive.has_hole() {
            self.acks.owe(AckReason::OutOfSequence, header.serial);
        } else {
            self.acks.on_packet(now, header.serial);
        }
        if self.is_client {
            self.finish_sending();
        }
        CallNews { is_stream: !is_last && !asks, ..self.news_of_data() }
    }

    /// The news for the application after a packet arrived.
    fn news_of_data(&mut self) -> CallNews {
        let is_readable = self.receive.is_readable();
        let mut news = CallNews::default();
        if let CallStage::Active { announced } = &mut self.stage {
            if !*announced && is_readable {
                *announced = true;
                news.begins = true;
            } else if self.read_waits && is_readable {
                self.read_waits = false;
                news.readable = true;
            }
        }
        if self.is_client && self.write_waits {
            self.write_waits = false;
            news.writable = true;
        }
        news
    }

    /// The peer has everything that we sent, or wants no more.
    fn finish_sending(&mut self) {
        if !self.peer_is_done {
            self.peer_is_done = true;
            self.filling = Vec::new();
            self.send.finish();
        }
    }

    /// An acknowledgement of this call arrived.
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        header: &PacketHeader,
        ack: &AckPacket<'_>,
        packets_max: usize,
        statistics: &mut RxStatistics,
    ) -> CallNews {
        if self.has_failed {
            self.tell_again(now);
            return CallNews::default();
        }
        if let Some(window) = ack.trailers.window {
            self.send.set_peer_window(window);
        }
        let Some(progress) = self.send.on_ack(now, ack) else {
            statistics.dropped_acks += 1;
            return CallNews::default();
        };
        statistics.acks_received += 1;
        statistics.recoveries += u64::from(progress.is_loss);
        statistics.round_trips += u64::from(progress.round_trip.is_some());
        self.heard_at = now;
        if progress.newly > 0 || progress.freed > 0 {
            self.progress_at = now;
        }
        if header.has(flags::REQUEST_ACK) {
            self.acks.on_ping(header.serial);
        }
        let is_stream = progress.newly > 0 && self.send.in_flight() >= STREAM_MIN;
        let mut news = CallNews { is_echo: progress.is_echo, is_stream, ..CallNews::default() };
        if let Some((serial, at)) = self.ping
            && ack.is(AckReason::PingResponse)
            && ack.serial == serial
        {
            self.ping = None;
            news.is_echo = true;
            self.send.on_ping_answer(now, now.since(at));
        }
        self.news_of_room(packets_max, &mut news);
        news
    }

    /// The peer has all packets.
    pub(crate) fn on_ack_all(&mut self, now: Time, packets_max: usize) -> CallNews {
        let mut news = CallNews::default();
        if self.send.is_ended() {
            self.send.finish();
            self.heard_at = now;
            self.news_of_room(packets_max, &mut news);
        }
        news
    }

    fn news_of_room(&mut self, packets_max: usize, news: &mut CallNews) {
        if self.write_waits && self.send.has_room(packets_max) {
            self.write_waits = false;
            news.writable = self.is_announced();
        }
        if !self.is_client && self.is_announced() && self.send.is_all_arrived() {
            self.stage = CallStage::Over;
            self.acks.settle();
            news.over = Some(Ok(()));
        }
    }

    /// Takes bytes to send, as many as there is room for.
    ///
    /// # Errors
    /// [`RxError::Ended`] after the end of this direction.
    pub(crate) fn write(
        &mut self,
        now: Time,
        bytes: &[u8],
        framing: &Framing<'_>,
    ) -> Result<usize, RxError> {
        self.progress_at = now;
        if self.peer_is_done {
            return Ok(bytes.len());
        }
        if self.send.is_ended() {
            return Err(RxError::Ended);
        }
        let mut taken = 0;
        let full = framing.security.filled_max(framing.body_max);
        while taken < bytes.len() {
            if self.filling.len() >= full {
                self.seal(false, framing);
            }
            if self.filling.is_empty() {
                if self.send.len() >= self.send.queue_max(framing.packets_max) {
                    self.write_waits = true;
                    break;
                }
                let left = bytes.len() - taken + framing.security.tail_bytes_max();
                let head = framing.security.head_bytes();
                self.filling = Vec::with_capacity((head + left).min(framing.body_max));
                self.filling.resize(head, 0);
            }
            let part = (full - self.filling.len()).min(bytes.len() - taken);
            self.filling.extend_from_slice(&bytes[taken..taken + part]);
            taken += part;
        }
        Ok(taken)
    }

    /// Makes a packet of what was written, so that it is sent though it is not full.
    pub(crate) fn flush(&mut self, now: Time, framing: &Framing<'_>) {
        self.progress_at = now;
        if !self.filling.is_empty() && !self.peer_is_done {
            self.seal(false, framing);
        }
    }

    /// The last byte was written.
    ///
    /// # Errors
    /// [`RxError::Ended`] the second time.
    pub(crate) fn end(&mut self, now: Time, framing: &Framing<'_>) -> Result<(), RxError> {
        self.progress_at = now;
        if self.peer_is_done {
            return Ok(());
        }
        if self.send.is_ended() {
            return Err(RxError::Ended);
        }
        if self.filling.is_empty() {
            self.filling = vec![0; framing.security.head_bytes()];
        }
        self.seal(true, framing);
        if !self.is_client {
            self.receive.discard();
        }
        Ok(())
    }

    fn seal(&mut self, is_last: bool, framing: &Framing<'_>) {
        let mut body = std::mem::take(&mut self.filling);
        let place = (self.id.number, self.id.channel, self.send.next_seq());
        let checksum = framing.security.seal(place, &mut body);
        self.send.push(SealedPacket { body: Bytes::from(body), checksum, is_last });
    }

    /// The next bytes from the peer, and whether the call is over with that.
    pub(crate) fn read(&mut self, now: Time, max: usize) -> (RxRead, bool) {
        let read = self.receive.read(max);
        if read != RxRead::Nothing {
            self.progress_at = now;
        }
        self.acks.on_taken(now, self.receive.taken());
        self.read_waits = read == RxRead::Nothing;
        let is_over = self.is_client && read == RxRead::End;
        if is_over {
            self.stage = CallStage::Over;
            self.finish_sending();
        }
        (read, is_over)
    }

    /// The call fails. The peer is told the code, if there is one, now or when it sends something
    /// more. Whether the application must be told.
    pub(crate) fn fail(&mut self, code: Option<i32>, tells_now: bool) -> bool {
        if self.is_over() {
            return false;
        }
        let was_announced = self.is_announced();
        self.stage = CallStage::Over;
        self.send.finish();
        self.receive.discard();
        self.filling = Vec::new();
        self.peer_is_done = true;
        self.acks.settle();
        self.has_failed = true;
        self.abort = code;
        self.abort_owed = code.is_some() && tells_now;
        was_announced
    }

    /// The peer sends on though it was told that the call is over.
    fn tell_again(&mut self, now: Time) {
        if self.abort.is_some() && now >= self.abort_at {
            self.abort_owed = true;
        }
    }

    fn on_abort_sent(&mut self, now: Time) {
        self.abort_owed = false;
        self.abort_at = now + ABORT_INTERVAL;
    }
}
