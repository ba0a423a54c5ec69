//! Which of Rialto's calls becomes which of AFS's. `docs/spec/abroad-afs.md` has the table.

use client::CallError;
use types::{Answer, Call, CellCall, Fault, VolumeCall};

use crate::changes::NameCalls;
use crate::context::{AfsCall, Answered};
use crate::data::VERIFIER;
use crate::lists::ListCalls;
use crate::lock_table::OwnLock;
use crate::locks::LockCalls;

impl AfsCall<'_> {
    /// The answer to a call, with what it claims.
    ///
    /// # Errors
    /// The service's refusal, or why there is no answer.
    pub(crate) fn perform(&self, call: Call) -> Result<Answered, CallError> {
        let (names, lists, locks) = (NameCalls(self), ListCalls(self), LockCalls(self));
        match call {
            Call::Root { volume } => self.root(&volume),
            Call::Lookup { dir, name } => self.lookup(dir, &name),
            Call::ReadDir { dir, cookie, bytes_max, plus } => {
                self.read_dir(dir, cookie, bytes_max, plus)
            }
            Call::GetStatus { fid } => self.get_status(fid),
            Call::ReadLink { fid } => self.read_link(fid),
            Call::Rights { fid } => self.rights(fid),
            Call::VolumeStatus { fid } => self.volume_status(fid),
            Call::Read { fid, offset, length } | Call::ReadPacked { fid, offset, length } => {
                self.read(fid, offset, length)
            }
            Call::Seek { fid, offset, what } => self.seek(fid, offset, what),
            Call::Make { dir, name, kind, mode, how } => names.make(dir, &name, &kind, mode, how),
            Call::Link { fid, dir, name } => names.link(fid, dir, &name),
            Call::Remove { dir, name, what, hold } => names.remove(dir, &name, what, hold),
            Call::Rename { from_dir, from, to_dir, to, mode, hold } => {
                names.rename((from_dir, &from), (to_dir, &to), mode, hold)
            }
            Call::SetStatus { fid, change } => self.set_status(fid, &change),
            Call::Write { fid, offset, data, stable: _, kill_privileges: _ } => {
                self.write(fid, offset, &data)
            }
            Call::Commit { .. } | Call::CommitVolume { .. } => {
                Ok(Answered::plain(Answer::Committed { verifier: VERIFIER }))
            }
            Call::GetAcl { fid } => lists.get_acl(fid),
            Call::SetAcl { fid, list, instead_of } => lists.set_acl(fid, list.as_ref(), instead_of),
            Call::Pts { call, .. } => lists.principals(&call),
            Call::Lock { fid, owner, pid, family, range, mode, wait, reclaim: _ } => {
                locks.lock(fid, OwnLock { owner, pid, family, range, mode }, wait)
            }
            Call::Unlock { fid, owner, family, range } => locks.unlock(fid, owner, family, range),
            Call::TestLock { fid, owner, family, range, mode } => {
                locks.test_lock(fid, OwnLock { owner, pid: 0, family, range, mode })
            }
            Call::Unhold { fids } => {
                names.unhold(&fids);
                Ok(Answered::plain(Answer::Done))
            }
            // A removal hides what is open. Reads are not recorded, and nothing is reclaimed.
            Call::Hold { .. } | Call::ReclaimDone | Call::Return { .. } | Call::NoteRead { .. } => {
                Ok(Answered::plain(Answer::Done))
            }
            Call::Volume(VolumeCall::Examine { volume }) => self.examine(&volume),
            Call::Auth { .. } | Call::ServerReport => {
                let databases = self.cell.locations.databases();
                Ok(Answered::plain(databases.about_caller(self.caller, call, self.cancel)?))
            }
            Call::Cell(CellCall::Me) => self.own_record(),
            // AFS has no attributes.
            Call::XattrGet { .. } | Call::XattrRemove { .. } => Err(Fault::NoXattr.into()),
            Call::XattrList { .. } => Ok(Answered::plain(Answer::XattrNames(Vec::new()))),
            Call::Delegate { .. } | Call::Delegated { .. } => Err(Fault::NotDelegated.into()),
            // AFS reserves no room, makes no holes, and knows neither opens nor persistent locks.
            Call::Allocate { .. }
            | Call::Open { .. }
            | Call::Close { .. }
            | Call::Downgrade { .. }
            | Call::PersistLock { .. }
            | Call::FinishLock { .. }
            | Call::MakeUnnamed { .. }
            | Call::ByVnode { .. }
            | Call::XattrSet { .. }
            | Call::SetQuota { .. }
            | Call::OpenBody { .. }
            | Call::LendBody { .. }
            | Call::SettleBody { .. }
            | Call::LendBlank { .. }
            | Call::AdoptBody { .. }
            | Call::ReadSums { .. }
            | Call::Volume(_)
            | Call::Cell(_)
            | Call::Guard { .. }
            | Call::Scrub { .. } => Err(Fault::Unsupported.into()),
        }
    }
}
