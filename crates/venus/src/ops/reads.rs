//! Access times: which reads are recorded, and sending them (`names/noted_reads.rs` has the model).

use std::borrow::Cow;

use client::CallError;
use types::posix::{self, READ};
use types::{Call, Caller, Fault, Fid};

use super::VolumeControl;
use crate::base::RequestContext;
use crate::core::Core;
use crate::names::SendReads;

/// Calls of one chain.
const CHAIN: usize = 64;

impl VolumeControl {
    /// A program has read the file, listed the directory or read the link. `always`: also if the
    /// last recorded read is recent (`strictatime`). Returns whether the status shows a new access
    /// time now. Makes no call.
    pub fn note_read(&self, request: &RequestContext<'_>, fid: Fid, always: bool) -> bool {
        let ground = &self.ground;
        let Some(status) = ground.names.due_read(fid, always) else { return false };
        // The server may want to know the groups later, when the process is gone.
        let lacks_groups =
            request.caller.groups.is_none() && posix::may(request.caller, &status, READ).is_err();
        let caller = match request.groups.filter(|_| lacks_groups) {
            Some(groups) => Cow::Owned(Caller { groups: Some(groups()), ..request.caller.clone() }),
            None => Cow::Borrowed(request.caller),
        };
        let Some(send) = ground.names.note_read(fid, &caller) else { return false };
        ground.chores.send_reads(send == SendReads::Now);
        true
    }
}

impl Core {
    /// Sends the noted reads. They only matter to people, so a refused one is dropped.
    pub fn send_reads(&self) {
        // The server has to know the files.
        if self.ground.names.lock().reads.is_empty() || self.flusher.flush_all(None).is_err() {
            return;
        }
        let all = self.ground.names.lock().reads.calls();
        for (caller, mut calls) in all {
            while !calls.is_empty() {
                let chain: Vec<Call> = calls.iter().take(CHAIN).cloned().collect();
                let replies = self.ground.server.remote().chain(&caller, chain);
                let aborted = |reply: &Result<_, CallError>| {
                    matches!(reply, Err(CallError::Fault(Fault::ChainAborted)))
                };
                let count = replies.iter().take_while(|reply| !aborted(reply)).count().max(1);
                let mut tables = self.ground.names.lock();
                calls.drain(..count).for_each(|call| tables.reads.sent(&call));
            }
        }
    }
}
