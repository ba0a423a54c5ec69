//! The calls of the file service, one function for each.

mod acl;
mod admin;
pub(crate) mod auth;
mod body_loan;
mod counters;
mod data;
mod delegate;
mod entries;
mod lock;
mod make;
mod preallocated;
mod remove;
mod rename;
mod status;
mod xattr;

use std::os::fd::OwnedFd;

use types::{Answer, Call, Fault};

pub(crate) use body_loan::Loans;
pub(crate) use counters::CallCounters;
pub(crate) use preallocated::Blanks;

use crate::Vice;
use crate::service::CallContext;

/// Result of a call that was not refused.
pub(crate) enum CallOutcome {
    /// The call is done.
    Answer(Answer),
    /// The call is done, and a descriptor goes with the answer.
    Body(Answer, OwnedFd),
    /// The answer comes later: when a ticket is done or a lock is granted.
    Waits,
}

impl Vice {
    pub(crate) fn execute(
        &self,
        ask: &mut CallContext<'_>,
        call: &Call,
    ) -> Result<CallOutcome, Fault> {
        match call {
            Call::Root { volume } => self.root(ask, volume),
            Call::Lookup { dir, name } => self.lookup(ask, *dir, name),
            Call::ReadDir { dir, cookie, bytes_max, plus } => {
                self.read_dir(ask, *dir, *cookie, *bytes_max, *plus)
            }
            Call::ReadLink { fid } => self.read_link(ask, *fid),
            Call::Make { dir, name, kind, mode, how } => {
                self.make(ask, *dir, name, kind, *mode, *how)
            }
            Call::MakeUnnamed { dir, mode } => self.make_unnamed(ask, *dir, *mode),
            Call::Link { fid, dir, name } => self.link(ask, *fid, *dir, name),
            Call::Remove { dir, name, what, hold } => self.remove(ask, *dir, name, *what, *hold),
            Call::Rename { from_dir, from, to_dir, to, mode, hold } => {
                self.rename(ask, (*from_dir, from), (*to_dir, to), *mode, *hold)
            }

            Call::GetStatus { fid } => self.get_status(ask, *fid),
            Call::SetStatus { fid, change } => self.set_status(ask, *fid, change),
            Call::XattrGet { fid, name } => self.xattr_get(ask, *fid, name),
            Call::XattrSet { fid, name, value, mode } => {
                self.xattr_set(ask, *fid, name, value, *mode)
            }
            Call::XattrList { fid } => self.xattr_list(ask, *fid),
            Call::XattrRemove { fid, name } => self.xattr_remove(ask, *fid, name),

            Call::Read { fid, offset, length } => self.read(ask, *fid, *offset, *length),
            Call::ReadPacked { fid, offset, length } => {
                self.read_packed(ask, *fid, *offset, *length)
            }
            Call::Write { fid, offset, data, stable, kill_privileges } => {
                self.write(ask, *fid, *offset, data, *stable, *kill_privileges)
            }
            Call::Allocate { fid, offset, length, mode } => {
                self.allocate(ask, *fid, *offset, *length, *mode)
            }
            Call::Seek { fid, offset, what } => self.seek(ask, *fid, *offset, *what),
            Call::Commit { fid } => self.commit_file(*fid),
            Call::CommitVolume { fid } => self.commit_volume(*fid),
            Call::OpenBody { fid } => self.open_body(ask, *fid),
            Call::ReadSums { fid, first, count } => self.read_sums(ask, *fid, *first, *count),
            Call::LendBody { fid, how } => self.lend_body(ask, *fid, *how),
            Call::SettleBody { fid, back } => self.settle_body(ask, *fid, *back),
            Call::LendBlank { fid } => self.lend_blank(ask, *fid),
            Call::AdoptBody { fid, blank } => self.adopt_body(ask, *fid, *blank),

            Call::Lock { .. } => self.lock(ask, call),
            Call::Unlock { fid, owner, family, range } => {
                self.unlock(ask, *fid, *owner, *family, *range)
            }
            Call::TestLock { .. } => self.test_lock(ask, call),
            Call::Hold { fids } => self.hold(ask, fids),
            Call::Unhold { fids } => self.unhold(ask, fids),
            Call::ReclaimDone => self.reclaim_done(ask),

            Call::Delegate { fid } => self.delegate(ask, *fid),
            Call::Delegated { at, slot, call } => self.delegated(ask, *at, *slot, call),
            Call::Return { fids } => self.give_back(ask, fids),

            Call::VolumeStatus { fid } => self.volume_status(*fid),
            Call::GetAcl { fid } => self.get_acl(ask, *fid),
            Call::SetAcl { fid, list, instead_of } => {
                self.set_acl(ask, *fid, list.as_deref(), instead_of.as_ref())
            }
            Call::Rights { fid } => self.tell_rights(ask, *fid),
            Call::SetQuota { fid, bytes, files } => self.set_quota(ask, *fid, *bytes, *files),
            Call::Volume(call) => self.administer(ask, call),
            Call::Cell(call) => self.ask_cell(ask, call),
            Call::Pts { on_behalf, call } => self.ask_pts(ask, *on_behalf, call),
            Call::Guard { behalf, call } => self.ask_guard(ask, *behalf, call),
            Call::Auth { behalf, call } => self.ask_auth(ask, *behalf, call),
            Call::ServerReport => Ok(CallOutcome::Answer(Answer::Report(self.report(ask)?))),
            Call::Scrub { start } => self.scrub_report(*start),
        }
    }
}
