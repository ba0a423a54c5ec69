//! A volume as the service uses it: its store, its access model, and the locks that span vnodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::{Mutex, MutexGuard};
use store::{Partition, StoreError, Update, Vnode};
use types::{Fault, Fid, Kind, Name, PartitionNo, SHORT_SLOT, Status, Time};

use super::{VolumeAcls, VolumeOptions};

/// Whether a volume's calls are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Service {
    Online,
    /// An administrator took it offline, as its header says.
    Offline,
    /// Another server may have it, or it has not arrived (VO-6), whatever its header says.
    Away,
    /// It took over from a lost server that clients may still trust: claims alone are executed
    /// (SB-6).
    TakingOver,
    /// A copy of it elsewhere may have taken over while this server was away: the cell's database
    /// was not asked yet.
    Unconfirmed,
    /// A copy of it elsewhere has taken over: its last changes are here alone.
    Superseded,
}

/// A volume in use.
pub(crate) struct ViceVolume {
    pub store: Arc<store::Volume>,
    /// The partition that it is on.
    pub partition: Partition,
    /// That partition's number.
    pub no: PartitionNo,
    /// Its access lists, if they decide.
    pub lists: VolumeAcls,
    /// See [`VolumeOptions`].
    options: AtomicU8,
    /// Held by moves of directories between directories: no other call moves the ancestors during
    /// the search for a loop.
    pub moves: Mutex<()>,
    /// Held from the check of the usage to the commit, by every call that grows a volume with a
    /// quota. Makes the quota exact.
    pub growth: Mutex<()>,
    /// See [`Service`].
    service: AtomicU8,
    /// Held while that changes.
    changing: Mutex<()>,
    /// Its calls wait, since a standby may take over (SB-3).
    fenced: AtomicBool,
    /// Until then it gives no delegation: it is to be sealed, taken offline or removed, and all
    /// delegations must come back.
    delegations_barred_until: Mutex<Time>,
    /// See [`Self::answers_reads`].
    reads_end_at: Mutex<Time>,
}

/// Room under the quota, until it is dropped after the commit.
pub(crate) type QuotaReservation<'a> = Option<MutexGuard<'a, ()>>;

/// The state of a volume that is not away.
fn by_header(store: &store::Volume) -> Service {
    if store.is_offline() { Service::Offline } else { Service::Online }
}

impl ViceVolume {
    /// # Errors
    /// Errors of the store.
    pub fn new(
        store: Arc<store::Volume>,
        no: PartitionNo,
        partition: Partition,
    ) -> Result<Self, StoreError> {
        let service = AtomicU8::new(by_header(&store) as u8);
        let lists = VolumeAcls::of(&store)?;
        let options = VolumeOptions::of(&store)?;
        Ok(ViceVolume {
            store,
            partition,
            no,
            lists,
            options: AtomicU8::new(options.bits()),
            moves: Mutex::default(),
            growth: Mutex::default(),
            service,
            changing: Mutex::default(),
            fenced: AtomicBool::new(false),
            delegations_barred_until: Mutex::default(),
            reads_end_at: Mutex::default(),
        })
    }

    /// The first check of a change. (A volume that is removed meanwhile refuses the commit.)
    ///
    /// # Errors
    /// `ReadOnly`; also while parts of it arrive.
    pub fn need_writable(&self) -> Result<(), Fault> {
        if self.store.is_writable() && !self.store.is_being_restored() {
            Ok(())
        } else {
            Err(Fault::ReadOnly)
        }
    }

    /// The slot of a new file: marked as short where lists decide (AF-1), so that the file keeps
    /// its fid when the volume goes to a server of AFS.
    pub fn slot_as_lists_say(&self, slot: u64) -> u64 {
        if self.lists.decide() { slot | SHORT_SLOT } else { slot }
    }

    /// Whether reads of its files are recorded. Those of a sealed state never are.
    pub fn records_reads(&self) -> bool {
        self.options().has(VolumeOptions::READ_TIMES) && self.store.is_writable()
    }

    pub fn options(&self) -> VolumeOptions {
        VolumeOptions::from_bits(self.options.load(Ordering::Relaxed))
    }

    /// Called when the attributes of the root were written.
    pub fn set_options(&self, options: VolumeOptions) {
        self.options.store(options.bits(), Ordering::Relaxed);
    }

    /// All its contents are others: reads what is remembered of them again.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn contents_replaced(&self) -> Result<(), StoreError> {
        self.set_options(VolumeOptions::of(&self.store)?);
        self.lists.contents_replaced()
    }

    /// Whether its bodies may be loaned to kernels on this machine.
    pub fn hands_out_bodies(&self) -> bool {
        self.partition.has_descriptors() && !self.store.is_encrypted()
    }

    /// Whether it serves no client because another server may have it.
    pub fn is_away(&self) -> bool {
        self.service() == Service::Away
    }

    /// Whether it executes claims alone (SB-6).
    pub fn is_taking_over(&self) -> bool {
        self.service() == Service::TakingOver
    }

    /// Whether the database must be asked before the first call of a client.
    pub fn is_unconfirmed(&self) -> bool {
        self.service() == Service::Unconfirmed
    }

    /// Whether a doubt about it is not that of a move.
    pub fn may_be_superseded(&self) -> bool {
        !self.store.is_arriving() && !self.store.is_held()
    }

    /// Whether a copy of it elsewhere has taken over.
    pub fn is_superseded(&self) -> bool {
        self.service() == Service::Superseded
    }

    /// Whether its calls are executed.
    pub fn serves(&self) -> bool {
        self.service() == Service::Online && !self.is_fenced()
    }

    /// Whether its calls wait, since a standby may take over (SB-3).
    pub fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::SeqCst)
    }

    /// See [`super::Moves::fence`].
    pub(super) fn set_fenced(&self, fenced: bool) {
        self.fenced.store(fenced, Ordering::SeqCst);
    }

    /// Checks that its calls are executed.
    ///
    /// # Errors
    /// `NoVolume` if it is away or another server's, `Offline`; `Busy` if it is fenced, which only
    /// means that the call waits.
    pub fn need_service(&self) -> Result<(), Fault> {
        match self.service() {
            Service::Online if self.is_fenced() => Err(Fault::Busy),
            Service::Online => Ok(()),
            Service::Offline => Err(Fault::Offline),
            Service::Away | Service::TakingOver | Service::Unconfirmed | Service::Superseded => {
                Err(Fault::NoVolume)
            }
        }
    }

    /// Checks that what clients claim from its former server is executed.
    ///
    /// # Errors
    /// As [`ViceVolume::need_service`].
    pub fn need_claims(&self) -> Result<(), Fault> {
        if self.is_taking_over() { Ok(()) } else { self.need_service() }
    }

    fn service(&self) -> Service {
        let states = [
            Service::Online,
            Service::Offline,
            Service::Away,
            Service::TakingOver,
            Service::Unconfirmed,
            Service::Superseded,
        ];
        let found = self.service.load(Ordering::Relaxed);
        states.into_iter().find(|state| *state as u8 == found).unwrap_or(Service::Away)
    }

    /// Another server may have it from now on.
    pub fn go_away(&self) {
        self.change_service(Service::Away);
    }

    /// It executes claims alone from now on (SB-6).
    pub fn take_over(&self) {
        self.change_service(Service::TakingOver);
    }

    /// The database must be asked before the first call of a client.
    pub fn be_unconfirmed(&self) {
        self.change_service(Service::Unconfirmed);
    }

    /// A copy of it elsewhere has taken over.
    pub fn be_superseded(&self) {
        self.change_service(Service::Superseded);
    }

    fn change_service(&self, to: Service) {
        let _one_at_a_time = self.changing.lock();
        self.service.store(to as u8, Ordering::Relaxed);
    }

    /// It is here: it serves again, unless an administrator took it offline.
    pub fn come_back(&self) {
        let _one_at_a_time = self.changing.lock();
        assert!(!self.store.is_arriving(), "VO-6: an arriving volume serves");
        self.service.store(by_header(&self.store) as u8, Ordering::Relaxed);
    }

    /// An administrator took it offline, or online again, in its header.
    pub fn follow_header(&self) {
        let _one_at_a_time = self.changing.lock();
        if matches!(self.service(), Service::Online | Service::Offline) {
            self.service.store(by_header(&self.store) as u8, Ordering::Relaxed);
        }
    }

    /// It goes offline now.
    pub fn answer_reads_until(&self, end: Time) {
        *self.reads_end_at.lock() = end;
    }

    /// Whether it still answers reads of files of which a session may have data, though it is
    /// offline. A client acknowledges the break of such a file when its kernel has dropped the
    /// pages, and that waits for reads which are under way.
    pub fn answers_reads(&self, now: Time) -> bool {
        self.service() == Service::Offline
            && !self.store.is_being_restored()
            && now < *self.reads_end_at.lock()
    }

    /// Bars delegations until then.
    pub fn block_delegations(&self, until: Time) {
        *self.delegations_barred_until.lock() = until;
    }

    /// Delegations are given again.
    pub fn allow_delegations(&self) {
        *self.delegations_barred_until.lock() = Time::ZERO;
    }

    /// Checks that delegations are not barred.
    ///
    /// # Errors
    /// `Busy`.
    pub fn need_delegations_allowed(&self, now: Time) -> Result<(), Fault> {
        if now < *self.delegations_barred_until.lock()
            || self.store.is_held()
            || self.store.is_being_restored()
        {
            Err(Fault::Busy)
        } else {
            Ok(())
        }
    }

    /// The vnode of `fid`.
    ///
    /// # Errors
    /// `Stale` if there is no such file (any more).
    pub fn vnode(&self, fid: Fid) -> Result<Vnode, Fault> {
        match self.store.vnode(fid.vnode)? {
            Some(vnode) if vnode.status.fid == fid => Ok(self.marked(vnode)),
            _ => Err(Fault::Stale),
        }
    }

    /// The vnode, with the list that decides in its status.
    pub fn marked(&self, mut vnode: Vnode) -> Vnode {
        vnode.status = self.status_of(&vnode);
        vnode
    }

    /// The status for a reader.
    pub fn status_of(&self, vnode: &Vnode) -> Status {
        Status {
            by_list: self.lists.decide(),
            own_list: self.lists.has_own_list(vnode),
            read_times: self.records_reads(),
            ..vnode.status
        }
    }

    /// The vnode of `fid`, which must be a directory.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory`.
    pub fn directory(&self, fid: Fid) -> Result<Vnode, Fault> {
        let vnode = self.vnode(fid)?;
        if vnode.status.kind == Kind::Directory { Ok(vnode) } else { Err(Fault::NotDirectory) }
    }

    /// The fid in an entry of a directory.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn entry(&self, dir: Fid, name: &Name) -> Result<Option<Fid>, Fault> {
        let entry = self.store.lookup(dir.vnode, name.as_bytes())?;
        Ok(entry.map(|entry| Fid {
            volume: dir.volume,
            vnode: entry.target.vnode,
            unique: entry.target.unique,
        }))
    }

    /// As `entry`, for a change of it: the caller has the directory's stripe, or reads the entry
    /// again with the stripe.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn entry_to_change(
        &self,
        dir: Fid,
        name: &Name,
        update: &mut Update<'_>,
    ) -> Result<Option<Fid>, Fault> {
        let entry = self.store.look(dir.vnode, name.as_bytes(), update)?;
        Ok(entry.map(|entry| Fid {
            volume: dir.volume,
            vnode: entry.target.vnode,
            unique: entry.target.unique,
        }))
    }
}
