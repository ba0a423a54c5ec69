//! One volume, wherever it is: what its cache manager calls.

use std::sync::Arc;

use parking_lot::Mutex;
use types::{Call, Caller, Name, VolumeId, VolumeKind};

use crate::line::Line;
use crate::{CallError, Cancel, Events, Remote, Reply};

/// A volume that was found, with the session of its server. Any number of them share a session.
pub struct Volume {
    id: VolumeId,
    name: Name,
    kind: VolumeKind,
    line: Arc<Line>,
    /// Who hears; the session refers to it weakly.
    events: Mutex<Option<Arc<dyn Events>>>,
}

impl Volume {
    pub(crate) fn new(id: VolumeId, name: Name, kind: VolumeKind, line: Arc<Line>) -> Volume {
        Volume { id, name, kind, line, events: Mutex::default() }
    }

    /// Its number.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// Its name when it was found.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Whether nobody can change it.
    pub fn is_read_only(&self) -> bool {
        self.kind != VolumeKind::ReadWrite
    }
}

impl Remote for Volume {
    fn call(&self, caller: &Caller, call: Call, cancel: Option<&Cancel>) -> Result<Reply, CallError> {
        self.line.remote.call(caller, call, cancel)
    }

    fn call_urgently(&self, caller: &Caller, call: Call, cancel: Option<&Cancel>) -> Result<Reply, CallError> {
        self.line.remote.call_urgently(caller, call, cancel)
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        self.line.remote.chain(caller, calls)
    }

    fn chain_each(&self, caller: &Caller, calls: Vec<Call>, take: &mut dyn FnMut(usize, Result<Reply, CallError>)) {
        self.line.remote.chain_each(caller, calls, take);
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        *self.events.lock() = Some(Arc::clone(&events));
        self.line.ears.join(self.id, &events);
    }

    fn passes_descriptors(&self) -> bool {
        self.line.remote.passes_descriptors()
    }
}
