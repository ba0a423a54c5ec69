//! Queries of a running server, each over a session that leaves no state behind.

use std::sync::Arc;
use std::time::Duration;

use client::{CallError, ClientIdentity, ClientOptions, Endpoint, Remote, Session, SessionConfig};
use serde_json::Value;
use types::{Answer, Call, Caller, CellCall, Fault, Name, ServerInfo, VolumeStatus};

use crate::failure::{Doing, Failure};

/// How long a server may take to answer a query.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// A session with a server, for queries.
pub struct Asking {
    session: Arc<Session>,
    endpoint: Endpoint,
    caller: Caller,
}

/// The time limits of a session.
#[derive(Clone, Copy, Debug)]
pub struct AskLimits {
    /// For the connection and the start of the session.
    pub attach: Duration,
    /// For the answer to a query.
    pub answer: Duration,
}

impl Asking {
    /// Connects to the server at `endpoint`, on this machine.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the session.
    pub fn connect(endpoint: Endpoint) -> Result<Asking, Failure> {
        Self::reach(endpoint, ClientOptions::default())
    }

    /// Connects to the server at `endpoint`, with these options.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the session.
    pub fn reach(endpoint: Endpoint, options: ClientOptions) -> Result<Asking, Failure> {
        Self::within(endpoint, options, TIMEOUT)
    }

    /// Connects with these options and this limit for answers.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the session.
    pub fn within(
        endpoint: Endpoint,
        options: ClientOptions,
        patience: Duration,
    ) -> Result<Asking, Failure> {
        let limits = AskLimits { attach: TIMEOUT, answer: patience };
        let what = format!("asking the server at {endpoint}");
        Self::begin(endpoint, options, limits).map_err(|error| {
            Failure::new(what, error)
                .mend("check with 'rialto status' that it runs")
                .nothing_there()
        })
    }

    /// As [`Self::within`], with both limits.
    ///
    /// # Errors
    /// Those of the session, which the caller phrases for people.
    pub fn begin(
        endpoint: Endpoint,
        options: ClientOptions,
        limits: AskLimits,
    ) -> Result<Asking, CallError> {
        let config = SessionConfig {
            attach_within: Some(limits.attach),
            call_within: Some(limits.answer),
            options,
            display: format!("rialto, process {}", std::process::id()),
            ..SessionConfig::new(endpoint.clone(), ClientIdentity::fleeting())
        };
        let session = Arc::new(Session::connect(config)?);
        Ok(Asking { session, endpoint, caller: Caller::ROOT })
    }

    /// Sends queries under this caller instead of the superuser.
    #[must_use]
    pub fn asking_as(self, caller: Caller) -> Asking {
        Asking { caller, ..self }
    }

    /// Returns the server's report on itself.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub fn report(&self) -> Result<Value, Failure> {
        self.json(Call::ServerReport)
    }

    /// Starts to check every checksum, or returns how far the check is.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub fn scrub(&self, start: bool) -> Result<Value, Failure> {
        self.json(Call::Scrub { start })
    }

    /// Returns usage and quota of the volume named `volume`, if this server has it.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub fn volume(&self, volume: &Name) -> Result<Option<VolumeStatus>, Failure> {
        let root =
            match self.session.call(&self.caller, Call::Root { volume: volume.clone() }, None) {
                Err(CallError::Fault(Fault::NoVolume)) => return Ok(None),
                replied => replied.doing(|| self.what())?.answer,
            };
        let Answer::Status(root) = root else { return Err(self.odd()) };
        match self.asked(Call::VolumeStatus { fid: root.fid })? {
            Answer::Volume(status) => Ok(Some(status)),
            _ => Err(self.odd()),
        }
    }

    /// Returns the server's record of itself.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub fn me(&self) -> Result<ServerInfo, Failure> {
        match self.asked(Call::Cell(CellCall::Me))? {
            Answer::Servers(mut servers) if servers.len() == 1 => Ok(servers.swap_remove(0).record),
            _ => Err(self.odd()),
        }
    }

    /// Returns the servers of its cell.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub fn servers(&self) -> Result<Vec<ServerInfo>, Failure> {
        match self.asked(Call::Cell(CellCall::Servers))? {
            Answer::Servers(servers) => Ok(servers.into_iter().map(|seen| seen.record).collect()),
            _ => Err(self.odd()),
        }
    }

    fn json(&self, call: Call) -> Result<Value, Failure> {
        match self.asked(call)? {
            Answer::Report(text) => {
                serde_json::from_str(&text).doing(|| "reading the server's report".to_owned())
            }
            _ => Err(self.odd()),
        }
    }

    fn asked(&self, call: Call) -> Result<Answer, Failure> {
        self.call(call).doing(|| self.what())
    }

    /// Sends a call under the session's caller.
    ///
    /// # Errors
    /// The call's own, which the caller phrases for people.
    pub fn call(&self, call: Call) -> Result<Answer, CallError> {
        self.call_as(&self.caller, call)
    }

    /// Sends a call under the credential `caller`.
    ///
    /// # Errors
    /// The call's own, which the caller phrases for people.
    pub fn call_as(&self, caller: &Caller, call: Call) -> Result<Answer, CallError> {
        self.session.call(caller, call, None).map(|reply| reply.answer)
    }

    fn what(&self) -> String {
        format!("asking the server at {}", self.endpoint)
    }

    /// The failure of an answer that does not belong to its call.
    pub fn odd(&self) -> Failure {
        Failure::new(self.what(), "its answer does not belong to the call")
            .mend("check that it has the same version")
    }
}

/// An endpoint as people write it: `unix:PATH`, a path, `tcp:HOST:PORT` or just `HOST:PORT`.
///
/// # Errors
/// A message for the argument parser.
pub fn endpoint(text: &str) -> Result<Endpoint, String> {
    let parsed = text.parse().or_else(|_| format!("tcp:{text}").parse());
    parsed.map_err(|_: client::EndpointError| "write unix:PATH or HOST:PORT".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_people_write_them() {
        assert_eq!(endpoint("localhost:7620"), Ok(Endpoint::Tcp("localhost:7620".into())));
        assert_eq!(endpoint("tcp:[::1]:7620"), Ok(Endpoint::Tcp("[::1]:7620".into())));
        assert_eq!(endpoint("unix:/run/x"), Ok(Endpoint::Unix("/run/x".into())));
        assert_eq!(endpoint("/run/x"), Ok(Endpoint::Unix("/run/x".into())));
        assert!(endpoint("localhost").is_err() && endpoint("unix:").is_err());
    }
}
