//! From a call to the function that executes it, with the components that this function uses.

use std::sync::Arc;

use ::guard::Authenticator;
use types::{Answer, Call, Fault, GuardCall, SessionId, VolumeCall};

use crate::ScrubHook;
use crate::admin::VolumeAdmin;
use crate::audit::Audit;
use crate::base::CallCounters;
use crate::call::{CallContext, CallOutcome};
use crate::calls::cell::CellParts;
use crate::calls::joining::Admission;
use crate::calls::persistent_lock;
use crate::calls::{
    acl, auth, body_loan, cell, data, delegate, entries, guard, lock, make, opens, preallocated,
    remove, rename, status, volume, xattr,
};
use crate::cell::{CellCopies, CellLink, Identities};
use crate::enforcement::Enforcement;
use crate::files::Files;
use crate::report::{self, Reported};
use crate::sessions::{Blanks, GivenSlots, Loans, Registry};
use crate::standby::Feeds;

/// See the head of the file.
pub(crate) struct Dispatch {
    pub files: Arc<Files>,
    pub loans: Arc<Loans>,
    pub blanks: Blanks,
    pub given: GivenSlots,
    pub registry: Arc<Registry>,
    pub cell: Arc<CellLink>,
    pub copies: CellCopies,
    pub identities: Arc<Identities>,
    pub enforcement: Arc<Enforcement>,
    pub audit: Arc<Audit>,
    pub authenticator: Option<Arc<dyn Authenticator>>,
    pub admission: Admission,
    pub admin: VolumeAdmin,
    pub feeds: Arc<Feeds>,
    pub scrub: Option<ScrubHook>,
    pub counters: CallCounters,
}

impl Dispatch {
    fn cell_parts(&self) -> CellParts<'_> {
        CellParts {
            cell: &self.cell,
            copies: &self.copies,
            identities: &self.identities,
            admission: &self.admission,
            audit: &self.audit,
        }
    }

    /// Executes a call that the caller may make.
    ///
    /// # Errors
    /// The refusal.
    pub fn execute(&self, ask: &mut CallContext<'_>, call: &Call) -> Result<CallOutcome, Fault> {
        let Dispatch { files, loans, blanks, given, .. } = self;
        match call {
            Call::Root { volume } => entries::root(files, ask, volume),
            Call::Lookup { dir, name } => entries::lookup(files, ask, *dir, name),
            Call::ReadDir { dir, cookie, bytes_max, plus } => {
                entries::read_dir(files, ask, *dir, *cookie, *bytes_max, *plus)
            }
            Call::ReadLink { fid } => entries::read_link(files, ask, *fid),
            Call::Make { dir, name, kind, mode, how } => {
                make::make(files, given, ask, (*dir, name), kind, *mode, *how)
            }
            Call::MakeUnnamed { dir, mode } => make::make_unnamed(files, given, ask, *dir, *mode),
            Call::Link { fid, dir, name } => make::link(files, ask, *fid, *dir, name),
            Call::Remove { dir, name, what, hold } => {
                remove::remove(files, ask, *dir, name, *what, *hold)
            }
            Call::Rename { from_dir, from, to_dir, to, mode, hold } => {
                rename::rename(files, given, ask, (*from_dir, from), (*to_dir, to), *mode, *hold)
            }

            Call::GetStatus { fid } => entries::get_status(files, ask, *fid),
            Call::ByVnode { fid, parent } => entries::by_vnode(files, given, ask, *fid, *parent),
            Call::SetStatus { fid, change } => status::set_status(files, ask, *fid, change),
            Call::NoteRead { fid, was, at } => status::note_read(files, ask, *fid, *was, *at),
            Call::XattrGet { fid, name } => xattr::xattr_get(files, ask, *fid, name),
            Call::XattrSet { fid, name, value, mode } => {
                xattr::xattr_set(files, ask, *fid, name, value, *mode)
            }
            Call::XattrList { fid } => xattr::xattr_list(files, ask, *fid),
            Call::XattrRemove { fid, name } => xattr::xattr_remove(files, ask, *fid, name),

            Call::Read { fid, offset, length } => data::read(files, ask, *fid, *offset, *length),
            Call::ReadPacked { fid, offset, length } => {
                data::read_packed(files, ask, *fid, *offset, *length)
            }
            Call::Write { fid, offset, data, stable, kill_privileges } => {
                data::write(files, ask, *fid, *offset, data, *stable, *kill_privileges)
            }
            Call::Allocate { fid, offset, length, mode } => {
                data::allocate(files, ask, *fid, *offset, *length, *mode)
            }
            Call::Seek { fid, offset, what } => data::seek(files, ask, *fid, *offset, *what),
            Call::Commit { fid } => data::commit_file(files, ask, *fid),
            Call::CommitVolume { fid } => data::commit_volume(files, ask, *fid),
            Call::OpenBody { fid } => data::open_body(files, ask, *fid),
            Call::ReadSums { fid, first, count } => {
                data::read_sums(files, ask, *fid, *first, *count)
            }
            Call::LendBody { fid, how } => body_loan::lend_body(files, loans, ask, *fid, *how),
            Call::SettleBody { fid, back } => {
                body_loan::settle_body(files, loans, ask, *fid, *back)
            }
            Call::LendBlank { fid } => preallocated::lend_blank(files, blanks, ask, *fid),
            Call::AdoptBody { fid, blank } => {
                preallocated::adopt_body(files, loans, blanks, ask, *fid, *blank)
            }

            Call::Lock { .. } => lock::lock(files, ask, call),
            Call::Unlock { fid, owner, family, range } => {
                lock::unlock(files, ask, *fid, *owner, *family, *range)
            }
            Call::TestLock { .. } => lock::test_lock(files, ask, call),
            Call::PersistLock { .. } => persistent_lock::persist_lock(files, ask, call),
            Call::FinishLock { fid, owner, range } => {
                persistent_lock::finish_lock(files, ask, *fid, *owner, *range)
            }
            Call::Open { .. } => opens::open(files, loans, &self.registry, ask, call),
            Call::Close { fid, open } => opens::close(files, ask, *fid, *open),
            Call::Downgrade { fid, open, access, deny } => {
                opens::downgrade(files, ask, (*fid, *open), *access, *deny)
            }
            Call::Hold { fids } => lock::hold(files, ask, fids),
            Call::Unhold { fids } => lock::unhold(files, ask, fids),
            Call::ReclaimDone => lock::reclaim_done(files, ask),

            Call::Delegate { fid } => delegate::delegate(files, &self.registry, given, ask, *fid),
            Call::Delegated { at, slot, call } => {
                delegate::begin_delegated(files, ask, *at, *slot, call)?;
                let outcome = self.execute(ask, call)?;
                // A refused change is no progress: with such changes a session could delay a
                // recall for ever.
                files.coherence().leases().delegations_mut().progress(ask.now, ask.origin.session);
                Ok(outcome)
            }
            Call::Return { fids } => delegate::give_back(files, ask, fids),

            Call::VolumeStatus { fid } => volume::volume_status(files, *fid),
            Call::GetAcl { fid } => acl::get_acl(files, ask, *fid),
            Call::SetAcl { fid, list, instead_of } => {
                acl::set_acl(files, ask, *fid, list.as_deref(), instead_of.as_ref())
            }
            Call::Rights { fid } => acl::tell_rights(files, ask, *fid),
            Call::SetQuota { fid, bytes, files: max_files } => {
                volume::set_quota(files, ask, *fid, (*bytes, *max_files))
            }
            Call::Volume(
                call @ (VolumeCall::StandBy { .. }
                | VolumeCall::Feed { .. }
                | VolumeCall::Follow(_)
                | VolumeCall::Standbys { .. }
                | VolumeCall::FailOver { .. }
                | VolumeCall::Inherit { .. }),
            ) => self.feeds.execute(ask, call),
            Call::Volume(VolumeCall::Remove { id }) if self.feeds.holds(*id) => Err(Fault::Busy),
            Call::Volume(call) => self.admin.administer(ask, call),
            Call::Cell(call) => cell::ask_cell(&self.cell_parts(), ask, call),
            Call::Pts { on_behalf, call } => cell::ask_pts(
                &self.cell,
                &self.identities,
                files.coherence(),
                ask,
                *on_behalf,
                call,
            ),
            Call::Guard { behalf, call } => match **call {
                GuardCall::AuditLines { file, offset } => {
                    guard::audit_lines(&self.audit, *behalf, (file, offset))
                }
                ref call => guard::ask_guard(
                    &self.cell,
                    &self.identities,
                    &self.enforcement,
                    files.coherence(),
                    ask,
                    *behalf,
                    call,
                ),
            },
            Call::Auth { behalf, call } => auth::ask_auth(
                &self.cell,
                &self.identities,
                self.authenticator.as_deref(),
                &self.audit,
                ask,
                *behalf,
                call,
            ),
            Call::ServerReport => Ok(CallOutcome::Answer(Answer::Report(self.report(ask)?))),
            Call::Scrub { start } => {
                let scrub = self.scrub.as_ref().ok_or(Fault::Unsupported)?;
                Ok(CallOutcome::Answer(Answer::Report(scrub(*start))))
            }
        }
    }

    fn report(&self, ask: &CallContext<'_>) -> Result<String, Fault> {
        let of = Reported {
            partitions: self.files.volumes().partitions(),
            coherence: self.files.coherence(),
            requests: self.registry.requests(),
            counters: &self.counters,
            audit: &self.audit,
            identities: &self.identities,
        };
        report::report(&of, ask)
    }

    /// Removes what an ended session had.
    pub fn remove_session(&self, session: SessionId) {
        self.registry.remove_session(session);
        self.given.remove_session(session);
        self.loans.remove_session(session);
        self.files.remove_session(session);
        self.blanks.remove_session(session);
        self.copies.remove_session(session);
    }
}
