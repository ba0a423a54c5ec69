//! Calls to the server: each after the changes that were answered here about its files, each answer
//! checked for another server instance, each change noted until it is stable.

use std::sync::Arc;

use client::Reply;
use types::{Answer, Call, Fault, Fid, Status};

use super::{Flusher, Journal, MetadataSubject, Unstable};
use crate::base::{Attributes, Error, RequestContext};
use crate::names::is_made_up;
use crate::session::Ground;

/// Calls to the server, in the order that the journal requires.
pub(crate) struct Calls {
    ground: Ground,
    unstable: Arc<Unstable>,
    journal: Arc<Journal>,
    flusher: Arc<Flusher>,
}

impl Calls {
    pub fn new(
        ground: &Ground,
        unstable: &Arc<Unstable>,
        journal: &Arc<Journal>,
        flusher: &Arc<Flusher>,
    ) -> Self {
        Calls {
            ground: ground.clone(),
            unstable: Arc::clone(unstable),
            journal: Arc::clone(journal),
            flusher: Arc::clone(flusher),
        }
    }

    /// Calls the server, after the changes that were answered here about the same files have been
    /// sent. Looks up the caller's groups and calls again if the server answers that they decide.
    ///
    /// # Errors
    /// The service's refusal, or why no answer came.
    pub fn call(&self, request: &RequestContext<'_>, call: Call) -> Result<Answer, Error> {
        self.call_with_body(request, call).map(|reply| reply.answer)
    }

    /// As `call`; returns the body's descriptor too.
    ///
    /// # Errors
    /// As `call`.
    pub fn call_with_body(
        &self,
        request: &RequestContext<'_>,
        mut call: Call,
    ) -> Result<Reply, Error> {
        if call.changes() && call.fids_mut().into_iter().any(|fid| is_made_up(*fid)) {
            return Err(Fault::ReadOnly.into());
        }
        self.send_related(request, &mut call)?;
        let (place, subject) = (self.ground.server.place(), MetadataSubject::of(&call));
        let reply = self.ground.server.ask(request, call)?;
        self.unstable.check_instance(place, &reply);
        if let Some(subject) = subject {
            self.unstable.note(place, &reply, subject);
        }
        Ok(reply)
    }

    /// Sends the changes that were answered here about the files of `call`; before a change of
    /// names or status it sends all changes, so that no later change outlives an earlier one.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only.
    pub fn send_related(&self, request: &RequestContext<'_>, call: &mut Call) -> Result<(), Error> {
        let until = {
            let tables = self.ground.names.lock();
            let landed = self.journal.landed();
            let pending = |fid: Fid| tables.nodes.whole(&fid).map_or(0, |node| node.pending);
            let data =
                matches!(call, Call::Write { .. } | Call::Allocate { .. } | Call::AdoptBody { .. });
            match tables.concerned(call) {
                _ if call.changes() && !data => Some(self.journal.last()),
                (fids, true) => {
                    fids.into_iter().map(pending).filter(|number| *number > landed).max()
                }
                (_, false) => Some(self.journal.last()),
            }
        };
        until.map_or(Ok(()), |until| self.flusher.flush_until(until, request.cancel))
    }

    /// A call that answers with a status, which is entered; the server's view of the file.
    ///
    /// # Errors
    /// The service's refusal; [`Error::Protocol`] if the answer is no status.
    pub fn fetch_status(&self, request: &RequestContext<'_>, call: Call) -> Result<Status, Error> {
        let snapshot = self.ground.names.begin();
        match self.call(request, call)? {
            Answer::Status(status) => {
                self.ground.names.lock().put(snapshot, status);
                Ok(status)
            }
            _ => Err(Error::Protocol),
        }
    }

    /// A call that answers with a status.
    ///
    /// # Errors
    /// The service's refusal; [`Error::Protocol`] if the answer is no status.
    pub fn status_by(
        &self,
        request: &RequestContext<'_>,
        mut call: Call,
    ) -> Result<Attributes, Error> {
        let _away = call.changes().then(|| self.ground.names.away(&mut call));
        let snapshot = self.ground.names.begin();
        let Answer::Status(status) = self.call(request, call)? else { return Err(Error::Protocol) };
        let mut tables = self.ground.names.lock();
        let (status, cacheable) = tables.put(snapshot, status);
        Ok(Attributes { status, cacheable, stamp: self.ground.names.stamp() })
    }

    /// Commits a file, or its `whole` volume, which makes the server's changes of the volume's
    /// names stable too.
    ///
    /// # Errors
    /// The service's refusal, or why no answer came.
    pub fn call_commit(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        whole: bool,
    ) -> Result<Answer, Error> {
        let call = if whole { Call::CommitVolume { fid } } else { Call::Commit { fid } };
        let point = self.unstable.point();
        let reply = self.call_with_body(request, call)?;
        self.unstable.committed(fid, whole, point, &reply);
        Ok(reply.answer)
    }
}
