//! Messages of the server: broken promises, lost leases, restarts. First the client's cache is
//! changed, then the kernel's, then the message is acknowledged: on return, or when the bodies that
//! the kernel has are up to date (`cache_body.rs`).
//!
//! The handlers run on a thread of the session and wait for nothing that waits for the session:
//! other threads hold the locks used here only for moments. A writer that waits in venus holds
//! pages locked in the kernel, so writers of a broken file stop waiting before the kernel is
//! notified (`breaks`).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use client::{BreakAck, Events, Remote};
use types::{BreakItem, BreakReason, Call, Caller, Fid, Time};

use crate::base::error::Error;
use crate::core::Core;
use crate::data::file_data::FileBytes;
use crate::names::node_tables::Tables;
use crate::ops::entry_invalidation::SparedEntries;

/// How long the end of all promises waits for the kernel.
const KERNEL_WAIT_MAX: Duration = Duration::from_millis(500);

/// Whether the break ends the cached rights in the volume.
fn is_rights(item: &BreakItem) -> bool {
    item.fid == Fid::rights(item.fid.volume)
}

/// Receives messages for a [`Core`] without owning it.
pub(crate) struct EventListener(pub Weak<Core>);

impl Events for EventListener {
    fn on_break(&self, items: &[BreakItem], ack: BreakAck) {
        match self.0.upgrade() {
            Some(core) => core.on_break(items, ack),
            None => ack.acknowledge(),
        }
    }

    fn on_renewed(&self, sent_at: Time) {
        if let Some(core) = self.0.upgrade() {
            let until = {
                let mut tables = core.tables.lock();
                tables.holder.on_renewed(sent_at);
                core.note_trust(&tables);
                tables.holder.trusted_until()
            };
            let mut chores = core.chores.lock();
            let first = chores.lease.is_none();
            chores.lease = Some(until);
            if first {
                core.poke.notify_one();
            }
        }
    }

    fn on_lease_lost(&self) {
        if let Some(core) = self.0.upgrade() {
            core.on_lease_lost();
        }
    }

    fn on_server_restarted(&self, reclaim: &dyn Remote) {
        if let Some(core) = self.0.upgrade() {
            if let Some(now) = reclaim.boot_verifier() {
                core.learn(None, now);
            }
            core.void(|tables| tables.holder.on_server_restarted());
            core.claim(reclaim);
        }
    }

    fn on_moved(&self, reclaim: &dyn Remote) {
        if let Some(core) = self.0.upgrade() {
            core.on_moved(reclaim);
        }
    }
}

impl Core {
    fn on_break(self: &Arc<Self>, items: &[BreakItem], mut ack: BreakAck) {
        // A recall ends no promise.
        let (recalls, items): (Vec<BreakItem>, Vec<BreakItem>) =
            items.iter().cloned().partition(|item| item.reason == BreakReason::Recall);
        let recalls: Vec<Fid> = recalls.into_iter().map(|item| item.fid).collect();
        self.recalled(&recalls);
        if items.is_empty() {
            return ack.acknowledge();
        }
        let items = &items[..];
        let kernel = self.invalidator();
        let spared: Vec<SparedEntries> =
            items.iter().filter_map(|item| SparedEntries::of(&*kernel, item)).collect();
        {
            let mut tables = self.tables.lock();
            ack.hold(tables.on_break(items));
            *self.gate.write() += 1;
        }
        let files: Vec<Arc<FileBytes>> =
            items.iter().filter_map(|item| self.file_of(item.fid)).collect();
        files.iter().for_each(|file| self.let_writers_go(file));
        if items.iter().any(is_rights) {
            kernel.rights();
        }
        for item in items.iter().filter(|item| !is_rights(item)) {
            if spared.iter().any(|spared| spared.dir == item.fid) {
                continue;
            } else if item.fid.vnode.is_directory() {
                kernel.directory(item.fid);
            } else {
                // For any reason of the break: the server will not report the next change of the
                // data.
                kernel.inode_data(item.fid);
            }
        }
        files.iter().for_each(|file| file.data.lock().breaking -= 1);
        let passed: Vec<_> = files.iter().filter_map(|file| Some((file, file.pinned()?))).collect();
        let mut acks = ack.split(1 + usize::from(!spared.is_empty()) + passed.len()).into_iter();
        if !spared.is_empty() {
            let (core, ack) = (Arc::clone(self), acks.next());
            self.followers.run_or_end(move |runs| {
                if runs {
                    spared.iter().for_each(|spared| core.spare(spared));
                }
                ack.into_iter().for_each(BreakAck::acknowledge);
            });
        }
        // Bodies that the kernel has open are brought up to date before the last part is
        // acknowledged.
        for ((file, pinned), ack) in passed.iter().zip(acks.by_ref()) {
            self.follow(file, pinned, Some(ack));
        }
        acks.for_each(BreakAck::acknowledge);
    }

    fn let_writers_go(self: &Arc<Self>, file: &Arc<FileBytes>) {
        let mut data = file.data.lock();
        data.breaks += 1;
        data.breaking += 1;
        data.urgent = data.clock;
        file.moved.notify_all();
        let dirty = !data.dirty.is_empty();
        drop(data);
        self.unsent.wake_waiters();
        if dirty {
            self.send_soon(file);
        }
    }

    /// Promises are void: the client and the kernel forget everything.
    pub fn void(&self, mark: impl FnOnce(&mut Tables)) {
        self.void_here(mark);
        self.invalidate_all();
    }

    /// Called after each change of how long the server is trusted.
    pub fn note_trust(&self, tables: &Tables) {
        let until = tables.holder.trusted_until().since_start().as_nanos();
        self.trusted_until.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Release);
    }

    fn void_here(&self, mark: impl FnOnce(&mut Tables)) {
        let ended = {
            let mut tables = self.tables.lock();
            mark(&mut tables);
            self.note_trust(&tables);
            tables.void();
            self.life.fetch_add(1, Ordering::AcqRel);
            *self.gate.write() += 1;
            tables.end_delegations()
        };
        self.give_back_soon(ended);
        self.siblings.clear();
        for file in self.files() {
            let mut data = file.data.lock();
            data.breaks += 1;
            data.reads.body = None;
            data.reads.known.reset(0);
            // Data versions seen before are void: a server that lost changes may use them again.
            let freed = data.reads.meet(u64::MAX);
            data.reads.version = 0;
            self.drop_ahead(freed);
            file.moved.notify_all();
            drop(data);
            if let (Some(core), Some(pinned)) =
                (self.this.get().and_then(Weak::upgrade), file.pinned())
            {
                pinned.doubt();
                core.follow(&file, &pinned, None);
            }
        }
    }

    /// Has the kernel forget everything. That can wait for a read that waits for the server, and
    /// the server may be waiting for this thread (to claim its locks after the restart): so this
    /// waits for the kernel only for a while.
    fn invalidate_all(&self) {
        let kernel = self.invalidator();
        let (done, wait) = std::sync::mpsc::channel();
        let notifying = std::thread::Builder::new().name("venus-void".into()).spawn(move || {
            kernel.all();
            // The receiver is gone if the kernel took too long.
            let _ = done.send(());
        });
        match notifying {
            Ok(_) => {
                if wait.recv_timeout(KERNEL_WAIT_MAX).is_err() {
                    tracing::warn!(
                        "a read delays the end of the kernel's cache; the rest is dropped after it"
                    );
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot start a thread to invalidate the kernel's cache");
            }
        }
    }

    fn on_lease_lost(&self) {
        tracing::warn!("lease lost; cache, locks and unsent delegated changes are dropped");
        self.lose_journal(Vec::new(), &Error::Lost);
        self.forget_blanks();
        self.void(|tables| tables.holder.on_lease_lost());
        for file in self.files() {
            let mut data = file.data.lock();
            if !data.locks.is_empty() && !self.own_locks {
                tracing::warn!(fid = %file.fid, "lease lost; locks of the file are lost");
                data.locks.clear();
                data.locks_lost += 1;
            }
        }
        let held = self.held();
        let mut chores = self.chores.lock();
        chores.hold.extend(held);
        chores.commit = true;
        self.poke.notify_one();
    }

    /// All open files; from now on they are held, because a server without a promise for them does
    /// not know that they are open.
    fn held(&self) -> Vec<Fid> {
        let mut tables = self.tables.lock();
        let open = tables.nodes.each_whole().filter(|(_, node)| node.opens > 0);
        open.map(|(fid, node)| {
            node.held = true;
            *fid
        })
        .collect()
    }

    /// The volume moved to another server. The old server has ended all its promises, so the kernel
    /// has nothing that must be invalidated at once.
    fn on_moved(&self, reclaim: &dyn Remote) {
        self.forget_blanks();
        // Everything that the old server had is stable at the new one, where other clients may have
        // written since.
        self.files().iter().for_each(|file| self.forget_unstable(file));
        self.unstable_metadata.moved();
        self.instance.moved();
        self.void_here(|tables| tables.holder.on_lease_lost());
        let kernel = self.invalidator();
        self.fillers.run(move || kernel.all());
        self.claim(reclaim);
    }

    /// Claims the locks and holds of this client from a server that does not know them.
    fn claim(&self, reclaim: &dyn Remote) {
        // Before the server forgets the delegations: delegated changes do not wait for the end of
        // the reclaim.
        let _ = self.flush_all(None);
        if !self.own_locks {
            self.files().iter().for_each(|file| self.reclaim_locks(file, reclaim));
        }
        if let Err(error) = self.report_held(reclaim, &self.held()) {
            tracing::warn!(%error, "cannot reclaim holds of open files; removed ones may be lost");
        }
        self.borrow_again(reclaim);
        self.chores.lock().commit = true;
        self.poke.notify_one();
    }

    fn reclaim_locks(&self, file: &FileBytes, reclaim: &dyn Remote) {
        let locks = file.data.lock().locks.clone();
        for lock in locks {
            let call = Call::Lock {
                fid: file.fid,
                owner: lock.owner,
                pid: lock.pid,
                family: lock.family,
                range: lock.range,
                mode: lock.mode,
                wait: false,
                reclaim: true,
            };
            let caller = self.open_of(lock.handle).map_or(Caller::ROOT, |open| open.caller.clone());
            if let Err(error) = reclaim.call(&caller, call, None) {
                tracing::warn!(
                    fid = %file.fid, %error,
                    "cannot reclaim a lock after a server restart; locks of the file are lost"
                );
                let mut data = file.data.lock();
                data.locks.clear();
                data.locks_lost += 1;
                return;
            }
        }
    }
}
