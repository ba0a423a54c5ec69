//! The application's side: connections and calls.

use std::net::SocketAddr;

use types::Time;

use super::RxEndpoint;
use crate::config::CallLimits;
use crate::connection::{ConnectionKey, ConnectionStart, RxConnection};
use crate::event::RxRead;
use crate::security::{ClientSecurity, ConnectionSecurity};
use crate::{RxCallId, RxConnectionId, RxError, ServiceId};

impl RxEndpoint {
    /// Makes a connection to a peer. Nothing is sent before a call.
    ///
    /// # Errors
    /// [`RxError::Full`] if there are [`crate::EndpointConfig::connections_max`] connections, all
    /// of them proved.
    pub fn connect(
        &mut self,
        now: Time,
        peer: SocketAddr,
        service: ServiceId,
        security: ClientSecurity,
        limits: CallLimits,
    ) -> Result<RxConnectionId, RxError> {
        let is_full = self.connections.len() >= self.common.config.connections_max;
        if is_full && !self.make_room() {
            return Err(RxError::Full);
        }
        let key = loop {
            let key = ConnectionKey {
                epoch: self.epoch,
                cid: self.next_cid,
                is_served: false,
                address: None,
            };
            self.next_cid = self.next_cid.wrapping_add(4);
            if self.connections.find(&key).is_none() {
                break key;
            }
        };
        let security = ConnectionSecurity::for_client(security, key.epoch, key.cid);
        let packet_send = self.common.config.packet_send;
        let id = self.connections.insert(key, |id| {
            let start = ConnectionStart {
                id,
                key,
                peer,
                service,
                security,
                limits,
                serial: 1,
                is_proved: true,
                address_is_open: true,
            };
            RxConnection::new(now, start, packet_send)
        });
        self.count_connections();
        Ok(id)
    }

    /// Ends a connection and its calls.
    pub fn close(&mut self, now: Time, id: RxConnectionId) {
        let last = self.visit(id, |connection, common| connection.close(now, common));
        for packet in last.unwrap_or_default() {
            self.strays.push(packet);
        }
        self.remove(id);
    }

    /// Starts a call.
    ///
    /// # Errors
    /// [`RxError::Busy`] if the four channels of the connection are in use, the connection's own
    /// error if it has one.
    pub fn begin(&mut self, now: Time, id: RxConnectionId) -> Result<RxCallId, RxError> {
        self.begin_with_status(now, id, 0)
    }

    /// Starts a call whose first packet has this byte of the application.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn begin_with_status(
        &mut self,
        now: Time,
        id: RxConnectionId,
        user_status: u8,
    ) -> Result<RxCallId, RxError> {
        self.visit(id, |connection, common| connection.begin(now, user_status, common))
            .unwrap_or(Err(RxError::NoConnection))
    }

    /// Takes bytes to send, as many as there is room for; [`crate::RxEvent::Writable`] follows if
    /// that is not all. A part of a packet is sent with [`Self::flush`] or [`Self::end`].
    ///
    /// # Errors
    /// [`RxError::NoCall`] if the call is over, [`RxError::Ended`] after [`Self::end`].
    pub fn write(&mut self, now: Time, id: RxCallId, bytes: &[u8]) -> Result<usize, RxError> {
        let packets_max = self.common.packets_max();
        let taken = self
            .visit(id.connection, |connection, _| {
                connection
                    .with_framing(id, packets_max, |call, framing| call.write(now, bytes, framing))
            })
            .unwrap_or(Err(RxError::NoCall))??;
        if taken < bytes.len() && self.common.is_tight() {
            self.common.starve(id);
        }
        Ok(taken)
    }

    /// Sends what was written, though it does not fill a packet.
    ///
    /// # Errors
    /// [`RxError::NoCall`] if the call is over.
    pub fn flush(&mut self, now: Time, id: RxCallId) -> Result<(), RxError> {
        let packets_max = self.common.packets_max();
        self.visit(id.connection, |connection, _| {
            connection.with_framing(id, packets_max, |call, framing| call.flush(now, framing))
        })
        .unwrap_or(Err(RxError::NoCall))
    }

    /// The last byte of this direction was written.
    ///
    /// # Errors
    /// [`RxError::NoCall`] if the call is over, [`RxError::Ended`] the second time.
    pub fn end(&mut self, now: Time, id: RxCallId) -> Result<(), RxError> {
        let packets_max = self.common.packets_max();
        self.visit(id.connection, |connection, _| {
            connection.with_framing(id, packets_max, |call, framing| call.end(now, framing))
        })
        .unwrap_or(Err(RxError::NoCall))?
    }

    /// The next bytes from the peer, at most `max`.
    ///
    /// # Errors
    /// [`RxError::NoCall`] if the call is over.
    pub fn read(&mut self, now: Time, id: RxCallId, max: usize) -> Result<RxRead, RxError> {
        self.visit(id.connection, |connection, common| connection.read(now, id, max, common))
            .unwrap_or(Err(RxError::NoCall))
    }

    /// Bytes of a call that were not read yet; `None` if there will be no more of them.
    pub fn unread(&self, id: RxCallId) -> Option<usize> {
        self.connections.get(id.connection)?.unread(id)
    }

    /// Ends a call with a code, which the peer is told.
    pub fn abort(&mut self, now: Time, id: RxCallId, code: i32) {
        self.visit(id.connection, |connection, common| {
            connection.abort_call(now, id, code, common);
        });
    }
}
