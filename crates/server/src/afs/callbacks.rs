//! Calls to foreign clients.

use std::net::SocketAddr;
use std::time::Duration;

use afs3::RpcMessage;
use afs3::callbacks::{self, CallbacksAnswer, CallbacksCall};
use afs3::structs::{AfsFid, AfsFids, AfsUuid, CallBacks};
use afs3::xdr::XdrReader;
use rx::{CallLimits, ClientSecurity, RxError, ServiceId};
use rxport::RxPort;
use types::BreakItem;

use super::hosts::ForeignHost;

/// Fids of one callback.
const FIDS_MAX: usize = 50;
/// A client that is silent for the first time, or has not answered after the second, has missed
/// the call. Both are less than a lease, for which a change waits for a client at most.
const LIMITS: CallLimits = CallLimits {
    dead: Duration::from_secs(5),
    idle: Duration::from_secs(8),
    hard: Duration::from_secs(10),
};
/// The pause while all channels of the connection are in use.
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// The answer of a client to a procedure that it does not have.
const UNKNOWN: RxError = RxError::PeerAborted(afs3::errors::RXGEN_OPCODE);

/// The client of a host, on the port of the file service.
pub(super) struct ForeignClient<'a> {
    pub port: &'a RxPort,
    pub host: &'a ForeignHost,
    pub address: SocketAddr,
}

impl ForeignClient<'_> {
    /// Tells the client to trust nothing that a server with this UUID promised. Returns whether it
    /// takes error numbers as codes of UAE.
    ///
    /// # Errors
    /// It did not answer, or refused.
    pub fn initialize(&self, server: AfsUuid) -> Result<bool, RxError> {
        let takes_uae = match self.ask(&CallbacksCall::TellMeAboutYourself {}) {
            Ok(CallbacksAnswer::TellMeAboutYourself { capabilities, .. }) => {
                let word = capabilities.as_slice().first().copied().unwrap_or_default();
                word & callbacks::CAPABILITY_ERROR_TRANSLATION != 0
            }
            Ok(_) | Err(RxError::PeerAborted(_)) => false,
            Err(error) => return Err(error),
        };
        match self.ask(&CallbacksCall::InitCallBackState3 { server }) {
            Err(UNKNOWN) => self.ask(&CallbacksCall::InitCallBackState {}).map(drop),
            answer => answer.map(drop),
        }?;
        Ok(takes_uae)
    }

    /// Tells the client that promises have ended.
    ///
    /// # Errors
    /// As [`ForeignClient::initialize`].
    pub fn end_promises(&self, items: &[BreakItem]) -> Result<(), RxError> {
        let mut fids: Vec<AfsFid> =
            items.iter().filter_map(|item| afsfront::foreign_fid(item.fid).ok()).collect();
        fids.sort_unstable();
        fids.dedup();
        for some in fids.chunks(FIDS_MAX) {
            let fids = AfsFids::new(some.to_vec()).expect("a chunk has no more");
            // Empty, as OpenAFS's servers send it: all of these have ended. Linux's kafs refuses
            // the call with RXGEN_SS_UNMARSHAL if the list is as long as that of the fids.
            let callbacks = CallBacks::default();
            self.ask(&CallbacksCall::CallBack { fids, callbacks })?;
        }
        Ok(())
    }

    /// Asks whether the client is there.
    ///
    /// # Errors
    /// As [`ForeignClient::initialize`].
    pub fn probe(&self) -> Result<(), RxError> {
        self.ask(&CallbacksCall::Probe {}).map(drop)
    }

    fn ask(&self, call: &CallbacksCall) -> Result<CallbacksAnswer, RxError> {
        let request = call.to_request();
        let answer = loop {
            let asked = self.connection().and_then(|id| self.port.ask(id, &request));
            match asked {
                Err(RxError::Busy) => std::thread::sleep(BUSY_PAUSE),
                // The connection had an error before, or was idle for too long.
                Err(RxError::NoConnection) if self.disconnect() => {}
                asked => break asked,
            }
        };
        if matches!(answer, Err(RxError::Dead | RxError::TimedOut)) {
            self.disconnect();
        }
        let answer = answer?;
        CallbacksAnswer::decode(call.procedure(), &mut XdrReader::new(&answer))
            .map_err(|error| RxError::PeerAborted(error.code()))
    }

    fn connection(&self) -> Result<rx::RxConnectionId, RxError> {
        if let Some(known) = self.host.connection() {
            return Ok(known);
        }
        let (service, security) = (ServiceId(callbacks::SERVICE), ClientSecurity::Null);
        let made = self.port.connect(self.address, service, security, LIMITS)?;
        let (connection, superfluous) = self.host.keep_connection(made);
        if let Some(superfluous) = superfluous {
            self.port.disconnect(superfluous);
        }
        Ok(connection)
    }

    /// Returns whether there was a connection.
    fn disconnect(&self) -> bool {
        let known = self.host.take_connection();
        if let Some(known) = known {
            self.port.disconnect(known);
        }
        known.is_some()
    }
}
