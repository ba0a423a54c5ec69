//! Invalidation of the kernel's caches, as venus orders it.
//!
//! Model. The kernel's caches end in three ways.
//! - *Attributes and pages* of an inode, and a directory's listing: `INVAL_INODE`. The kernel may
//!   not know the inode *yet*: a lookup's reply is on its way through the requester. So "no such
//!   inode" counts only once our own count of its references is 0 too; until then the notification
//!   is repeated. Where a server gives a number to another file (AFS's do, at once), the count may
//!   be the earlier file's: so the kernel is asked to forget that one ([`Notifier::end_former`]),
//!   and the notification is repeated only while a reply may be on its way. A reply that was sent
//!   before the notification and arrives after it is refused by the kernel itself (it compares
//!   attribute versions).
//! - *Names* of a directory: never by name, because that takes the directory's lock, which a
//!   request that waits for us may hold (two clients could block each other through it). Instead
//!   the mount's epoch advances: every cached name of the mount is looked up again at its next use.
//!   A kernel without epochs may not cache names in the first place. An epoch detaches mounts below
//!   (`submounts.rs`), so in a mount with such one name is invalidated where that is enough. That
//!   does take the directory's lock, so a separate thread does it, and this waits for it no longer
//!   than [`PATIENCE`]; then the epoch advances after all. In such a mount listings bring no names.
//! - *Pages with unwritten changes* of a mapping are written back first: that comes as `WRITE`,
//!   through another worker.
//! - *Pages of a write in progress* may be locked by that write until it is replied, if the program
//!   turned `O_DIRECT` on meanwhile. A separate thread ends those too, with the same patience.
//!
//! An append bypasses the kernel's pages, so the page with the former end of the file must end
//! before the kernel learns the new size: what lies behind the former end in that page is zeros.
//! The kernel learns a size from every reply with attributes, and after such a reply it clears
//! the page behind that size, though later bytes may be there by then. So, while a file
//! [`grows`](Notifier::grows), it does not take sizes from attributes (their version is outdated
//! by a notification), and then it is told the size by `STORE`, which clears nothing. A reader that
//! took the page before it ended, and did not run until the size was told, still sees zeros once.

use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use types::{Cookie, Fid, Name};
use venus::{Backing, KernelPort};
use zerocopy::IntoBytes;

use crate::abi::{self, notify};
use crate::channel::Channel;
use crate::init::Agreement;
use crate::listings::OFFSET_OF_FIRST;
use crate::nodes::{self, KernelNodes};
use crate::readdir_helper::{ListOrder, ReaddirHelper, Root};

/// How long an inode may stay unknown to the kernel after our reply. A requester takes microseconds
/// to accept a reply, unless the machine is so loaded that it does not run; and it cannot use what
/// it did not accept.
const TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 1_000 } else { 5_000 });
/// How long a break waits for the readdir helper to accept a page: a millisecond on an idle
/// machine.
const ACCEPT_PATIENCE: Duration = Duration::from_millis(200);
/// Nodes in one request to the kernel to forget them.
const PRUNED_MAX: usize = 512;
/// How long a request waits for the end of a name or a page that may be locked.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long the thread that ends names or pages stays without one.
const ENDER_IDLE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 10_000 });
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// Notifies one mount's kernel.
pub struct Notifier {
    channel: Arc<dyn Channel>,
    nodes: Arc<KernelNodes>,
    agreement: Agreement,
    /// The kernel refused a backing file.
    refused: AtomicBool,
    /// Counts breaks of directories.
    breaks: AtomicU64,
    forerunner: Mutex<Option<(Arc<ReaddirHelper>, Root)>>,
    /// Something is, or was, mounted below.
    below: AtomicBool,
    /// The mount has ended, and the kernel's caches with it.
    over: AtomicBool,
    /// To the threads that end what may be locked.
    names_ender: Arc<Ender>,
    pages_ender: Arc<Ender>,
    /// The files that an append is making longer, and the sizes that the kernel knows.
    growing: Mutex<HashMap<Fid, u64>>,
}

/// A file that an append is making longer. The kernel runs one at a time for each file.
pub struct Growth<'n> {
    notifier: &'n Notifier,
    fid: Fid,
    known_size: u64,
}

impl Growth<'_> {
    /// The append is done, and not replied yet: the file ends at `end`, with `last`.
    pub fn reached(self, end: u64, last: u8) {
        let (Some(off), Ok(from)) = (end.checked_sub(1), i64::try_from(self.known_size)) else {
            return;
        };
        self.notifier.inode_from(self.fid, from, Instant::now());
        // Without a byte it would not tell the size.
        let ino = self.notifier.nodes.number(self.fid);
        let out = abi::NotifyStore { ino, off, size: 1, padding: 0 };
        let parts = [IoSlice::new(out.as_bytes()), IoSlice::new(std::slice::from_ref(&last))];
        // It may lack memory, or have forgotten the file: then it has no pages either.
        let _ = self.notifier.channel.notify(notify::STORE, &parts);
    }
}

impl Drop for Growth<'_> {
    fn drop(&mut self) {
        self.notifier.growing.lock().remove(&self.fid);
    }
}

/// A thread that ends what a request may have locked, while it runs.
type Ender = Mutex<Option<mpsc::Sender<Ending>>>;

/// A notification that may wait for a lock, and the waiting thread's channel.
struct Ending {
    code: i32,
    message: Vec<u8>,
    done: mpsc::Sender<()>,
}

impl Ending {
    fn of_name(parent: u64, name: &Name, done: mpsc::Sender<()>) -> Self {
        let name = name.as_bytes();
        let out = abi::NotifyInvalEntry { parent, namelen: name.len() as u32, flags: 0 };
        let message = [out.as_bytes(), name, &[0]].concat();
        Ending { code: notify::INVAL_ENTRY, message, done }
    }

    fn of_pages(ino: u64, (off, len): (i64, i64), done: mpsc::Sender<()>) -> Self {
        let message = abi::NotifyInvalInode { ino, off, len }.as_bytes().to_vec();
        Ending { code: notify::INVAL_INODE, message, done }
    }

    fn of_nodes(numbers: &[u64], done: mpsc::Sender<()>) -> Self {
        let out = abi::NotifyPrune { count: numbers.len() as u32, ..Default::default() };
        let message = [out.as_bytes(), numbers.as_bytes()].concat();
        Ending { code: notify::PRUNE, message, done }
    }

    fn send(&self, channel: &dyn Channel) {
        match channel.notify(self.code, &[IoSlice::new(&self.message)]) {
            // It has no such name or inode.
            Err(Errno::NOENT) => {}
            result => log(result, "name, pages or nodes"),
        }
        // The receiver is gone if this took too long.
        let _ = self.done.send(());
    }
}

impl Notifier {
    /// For the mount behind `channel`.
    pub fn new(channel: Arc<dyn Channel>, nodes: Arc<KernelNodes>, agreement: Agreement) -> Self {
        Notifier {
            channel,
            nodes,
            agreement,
            refused: AtomicBool::default(),
            breaks: AtomicU64::default(),
            forerunner: Mutex::default(),
            below: AtomicBool::default(),
            over: AtomicBool::default(),
            names_ender: Arc::default(),
            pages_ender: Arc::default(),
            growing: Mutex::default(),
        }
    }

    /// Lets the readdir helper list directories before their names are looked up, if the kernel may
    /// cache names. The mount is `root`.
    pub fn list_ahead(&self, forerunner: &Arc<ReaddirHelper>, root: Root) {
        if self.agreement.has_epochs() {
            *self.forerunner.lock() = Some((Arc::clone(forerunner), root));
        }
    }

    /// Something is mounted below from now on: names end one by one, and listings bring none.
    pub fn has_below(&self) {
        self.below.store(true, Ordering::Release);
        self.stop_listing_ahead();
    }

    /// Whether listings may bring names that the kernel caches.
    pub fn lists_names(&self) -> bool {
        self.agreement.has_epochs() && !self.below.load(Ordering::Acquire)
    }

    /// Ends a name that was changed here without the kernel: at once if that takes no lock,
    /// otherwise when the changing request unlocks the directory.
    pub fn name_changed(&self, dir: Fid, name: &Name) {
        if !self.below.load(Ordering::Acquire) {
            return self.names();
        }
        let (done, _) = mpsc::channel();
        let ending = Ending::of_name(self.nodes.number(dir), name, done);
        if self.end(&self.names_ender, ending).is_err() {
            self.names();
        }
    }

    fn end(&self, ender: &Arc<Ender>, ending: Ending) -> Result<(), Errno> {
        let mut thread = ender.lock();
        let sender = match &*thread {
            Some(sender) => sender,
            None => {
                let (sender, endings) = mpsc::channel::<Ending>();
                let (channel, own) = (Arc::clone(&self.channel), Arc::downgrade(ender));
                let work = move || {
                    while let Some(ending) = next_ending(&endings, &own) {
                        ending.send(&*channel);
                    }
                };
                std::thread::Builder::new()
                    .name("mount-ender".into())
                    .spawn(work)
                    .map_err(|_| Errno::AGAIN)?;
                thread.insert(sender)
            }
        };
        sender.send(ending).map_err(|_| Errno::AGAIN)
    }

    /// Records that a page of `dir` with names is about to be sent.
    pub fn sends_page(&self, dir: Fid) {
        if let Some((forerunner, root)) = self.forerunner() {
            forerunner.sends_page(root, self.nodes.number(dir));
        }
    }

    fn forerunner(&self) -> Option<(Arc<ReaddirHelper>, Root)> {
        self.forerunner.lock().clone()
    }

    /// Ends the names of `dir` that the helper got before the break. This does not wait for a
    /// helper that is slow to accept them (other requests look the same names up, and wait for the
    /// server), since the server may be waiting for us.
    fn end_sent(&self, dir: Fid) {
        let Some((forerunner, root)) = self.forerunner() else { return };
        let node = self.nodes.number(dir);
        match forerunner.is_accepted(root, node, ACCEPT_PATIENCE) {
            None => {}
            Some(true) => self.names(),
            Some(false) => {
                let (channel, agreement) = (Arc::clone(&self.channel), self.agreement);
                let later = move || {
                    while forerunner.is_accepted(root, node, TIMEOUT) == Some(false) {}
                    end_names(&*channel, agreement);
                };
                if let Err(error) =
                    std::thread::Builder::new().name("mount-names".into()).spawn(later)
                {
                    tracing::error!(%error, "cannot end names of a listing: they may be stale");
                }
            }
        }
    }

    /// Ends the listing of directories before look-ups in this mount.
    pub fn stop_listing_ahead(&self) {
        let forerunner = self.forerunner.lock().take();
        drop(forerunner);
    }

    /// Has the kernel send again each request that a predecessor received and did not answer.
    pub fn resend(&self) {
        log(self.channel.notify(notify::RESEND, &[]), "requests of a predecessor");
    }

    /// Ends the attributes of every node that a predecessor recorded, and forgets those that the
    /// kernel does not know: their look-up was not answered. To be called before any request is.
    pub fn drop_unknown(&self) {
        for fid in self.nodes.all() {
            let number = self.nodes.number(fid);
            let out = abi::NotifyInvalInode { ino: number, off: NO_PAGE, len: 0 };
            match self.channel.notify(notify::INVAL_INODE, &[IoSlice::new(out.as_bytes())]) {
                Err(Errno::NOENT) => drop(self.nodes.forget(number, u64::MAX)),
                result => log(result, "inode"),
            }
        }
    }

    /// Checks whether the kernel accepts backing files.
    pub fn try_passthrough(&self) {
        if self.agreement.has_passthrough()
            && let Ok(file) = rustix::fs::memfd_create("rialto", MemfdFlags::CLOEXEC)
            && let Some(backing) = self.pass(file.as_fd())
        {
            self.unpass(backing);
        }
    }

    /// Asks the kernel to forget unused nodes. An older one forgets them when it needs memory.
    pub fn prune(&self) {
        if !self.agreement.has_prune() {
            return;
        }
        let mut numbers: Vec<u64> =
            self.nodes.all().into_iter().map(|fid| self.nodes.number(fid)).collect();
        // Deeper nodes mostly have higher numbers; a directory can go only after its entries.
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        for some in numbers.chunks(PRUNED_MAX) {
            let (done, _) = mpsc::channel();
            Ending::of_nodes(some, done).send(&*self.channel);
        }
    }

    /// The kernel forgets earlier files of these numbers, as far as no program has them open. To be
    /// called before the reply with the newer ones.
    pub fn end_former(&self, numbers: &[u64]) {
        if !self.agreement.has_prune() {
            return;
        }
        for some in numbers.chunks(PRUNED_MAX) {
            let (done, through) = mpsc::channel();
            // It may wait for pages that are being read.
            if self.end(&self.pages_ender, Ending::of_nodes(some, done)).is_ok() {
                let _ = through.recv_timeout(PATIENCE);
            }
        }
    }

    /// The number of directory breaks. One that is counted may still be on its way into the kernel.
    pub fn breaks(&self) -> u64 {
        self.breaks.load(Ordering::Acquire)
    }

    /// The mount has ended: an inode that the kernel does not know now will not become known.
    pub fn ended(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Invalidates its attributes and pages.
    fn inode(&self, fid: Fid) {
        self.inode_from(fid, FIRST_PAGE, Instant::now());
    }

    /// Invalidates its attributes, and the pages with these bytes, which a request is writing.
    /// Waits for reads of them in flight, but not for long: the request may have them locked.
    pub fn written_pages(&self, fid: Fid, offset: u64, bytes: u32) {
        let Ok(off) = i64::try_from(offset) else { return };
        let (done, through) = mpsc::channel();
        let range = (off, i64::from(bytes));
        let ending = Ending::of_pages(self.nodes.number(fid), range, done);
        match self.end(&self.pages_ender, ending) {
            Ok(()) => drop(through.recv_timeout(PATIENCE)),
            Err(error) => {
                tracing::error!(%error, %fid, "cannot end pages of a file: they may be stale");
            }
        }
    }

    /// An append begins, of which the kernel expects that it makes this size longer.
    pub fn grows(&self, fid: Fid, known_size: u64) -> Growth<'_> {
        self.growing.lock().insert(fid, known_size);
        Growth { notifier: self, fid, known_size }
    }

    /// A reply with these attributes follows: of a file that grows, the kernel must not take
    /// another size than it knows.
    pub fn tells_size(&self, fid: Fid, size: u64) {
        let known_size = self.growing.lock().get(&fid).copied();
        if known_size.is_some_and(|known| known != size) {
            self.status(fid);
        }
    }

    /// Invalidates its attributes.
    pub fn status(&self, fid: Fid) {
        self.inode_from(fid, NO_PAGE, Instant::now());
    }

    /// Invalidates its attributes, and its pages from this offset on; no pages if below 0. `began`:
    /// after our last reply about it.
    fn inode_from(&self, fid: Fid, off: i64, began: Instant) {
        let out = abi::NotifyInvalInode { ino: self.nodes.number(fid), off, len: 0 };
        let mut pause = FIRST_PAUSE;
        while self.nodes.may_come(fid, TIMEOUT) && !self.over.load(Ordering::Acquire) {
            match self.channel.notify(notify::INVAL_INODE, &[IoSlice::new(out.as_bytes())]) {
                Err(Errno::NOENT) if began.elapsed() < TIMEOUT => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(Errno::NOENT) => {
                    return tracing::warn!(%fid, "the kernel does not know a replied inode");
                }
                result => return log(result, "inode"),
            }
        }
    }

    fn names(&self) {
        self.breaks.fetch_add(1, Ordering::AcqRel);
        self.end_names();
    }

    /// Ends every name that the kernel has cached so far, without a break.
    pub fn end_names(&self) {
        end_names(&*self.channel, self.agreement);
    }
}

fn end_names(channel: &dyn Channel, agreement: Agreement) {
    if agreement.has_epochs() {
        log(channel.notify(notify::INC_EPOCH, &[]), "names");
    }
}

/// `None`: none came for a while, or the mount has ended.
fn next_ending(endings: &mpsc::Receiver<Ending>, own: &Weak<Ender>) -> Option<Ending> {
    match endings.recv_timeout(ENDER_IDLE) {
        Ok(ending) => Some(ending),
        Err(mpsc::RecvTimeoutError::Disconnected) => None,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            let own = own.upgrade()?;
            let mut sender = own.lock();
            // Under the lock: what comes from now on starts another thread.
            let last = endings.try_recv().ok();
            if last.is_none() {
                *sender = None;
            }
            last
        }
    }
}

fn log(result: Result<(), Errno>, what: &str) {
    match result {
        // An unmounted file system caches nothing.
        Ok(()) | Err(Errno::NODEV | Errno::NOTCONN | Errno::CONNABORTED | Errno::PERM) => {}
        Err(error) => tracing::error!(%error, what, "the kernel refuses a notification"),
    }
}

/// From the first page on; with length 0: to the last.
const FIRST_PAGE: i64 = 0;
/// None of them: attributes and access lists only.
const NO_PAGE: i64 = -1;

impl KernelPort for Notifier {
    fn inode_data(&self, fid: Fid) {
        self.inode(fid);
    }

    fn directory(&self, fid: Fid) {
        if self.nodes.knows(fid) {
            self.names();
            self.inode(fid);
            self.end_sent(fid);
        }
    }

    fn by_name(&self, dir: Fid) -> bool {
        self.below.load(Ordering::Acquire) && self.nodes.knows(dir)
    }

    fn name(&self, dir: Fid, name: &Name) -> bool {
        if !self.nodes.knows(dir) {
            return true;
        }
        self.breaks.fetch_add(1, Ordering::AcqRel);
        let (done, through) = mpsc::channel();
        let ending = Ending::of_name(self.nodes.number(dir), name, done);
        self.end(&self.names_ender, ending).is_ok() && through.recv_timeout(PATIENCE).is_ok()
    }

    fn passes(&self) -> Result<(), &'static str> {
        if !self.agreement.has_passthrough() {
            return Err("the kernel does not offer it: Linux 6.14 or newer is needed");
        }
        if self.refused.load(Ordering::Relaxed) {
            return Err(
                "the kernel takes no backing file: it needs root, and a partition that is on no \
                    overlay",
            );
        }
        Ok(())
    }

    fn pass(&self, body: BorrowedFd<'_>) -> Option<Backing> {
        match self.channel.open_backing(body) {
            Ok(number) => Some(Backing(number)),
            Err(error) => {
                // The next body would fail too.
                if !self.refused.swap(true, Ordering::Relaxed) {
                    tracing::info!(%error, "no passthrough: the kernel refuses a backing file");
                }
                None
            }
        }
    }

    fn unpass(&self, backing: Backing) {
        log(self.channel.close_backing(backing.0), "backing file");
    }

    fn list(&self, dir: Fid, cookie: Cookie) -> bool {
        let Some((forerunner, root)) = self.forerunner().filter(|_| self.nodes.knows(dir)) else {
            return false;
        };
        let node = self.nodes.number(dir);
        let generation = nodes::generation(node, dir);
        let offset =
            if cookie == Cookie::START { 0 } else { cookie.0.saturating_add(OFFSET_OF_FIRST) };
        forerunner.order(&ListOrder { root, node, generation, offset })
    }

    fn fill(&self, fid: Fid, data: &[u8]) -> bool {
        let Ok(size) = u32::try_from(data.len()) else { return false };
        let out = abi::NotifyStore { ino: self.nodes.number(fid), off: 0, size, padding: 0 };
        // It may lack memory, or have forgotten the file: then it requests the data later.
        self.channel
            .notify(notify::STORE, &[IoSlice::new(out.as_bytes()), IoSlice::new(data)])
            .is_ok()
    }

    fn rights(&self) {
        let began = Instant::now();
        for fid in self.nodes.all() {
            self.inode_from(fid, NO_PAGE, began);
        }
    }

    fn all(&self) {
        self.names();
        let began = Instant::now();
        for fid in self.nodes.all() {
            self.inode_from(fid, FIRST_PAGE, began);
            if fid.vnode.is_directory() {
                self.end_sent(fid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{Received, Requester};

    /// A kernel that learns a node only after a few notifications, and records them.
    struct Kernel {
        unknown_for: Mutex<u32>,
        received: Mutex<Vec<(i32, Vec<u8>)>>,
    }

    impl Requester for Kernel {
        fn reply(&self, _: u64, _: Result<&[IoSlice<'_>], Errno>) -> Result<(), Errno> {
            Ok(())
        }
    }

    impl Channel for Kernel {
        fn receive(&self, _: &mut Vec<u8>) -> Result<Received, Errno> {
            Ok(Received::End)
        }

        fn notify(&self, code: i32, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
            let mut unknown_for = self.unknown_for.lock();
            if code == notify::INVAL_INODE && *unknown_for > 0 {
                *unknown_for -= 1;
                return Err(Errno::NOENT);
            }
            self.received
                .lock()
                .push((code, parts.iter().flat_map(|part| part.to_vec()).collect()));
            Ok(())
        }

        fn another(&self) -> Result<Arc<dyn Channel>, Errno> {
            Err(Errno::NOSYS)
        }
    }

    const FILE: Fid = Fid::new(1, 4, 2);
    const DIR: Fid = Fid::new(1, 5, 2);

    fn notifier(unknown_for: u32, minor: u32) -> (Arc<Kernel>, Arc<KernelNodes>, Notifier) {
        let kernel =
            Arc::new(Kernel { unknown_for: Mutex::new(unknown_for), received: Mutex::default() });
        let nodes = Arc::new(KernelNodes::new(Fid::new(1, 1, 1)));
        nodes.remember(FILE, 1);
        nodes.remember(DIR, 1);
        let notifier = Notifier::new(
            Arc::clone(&kernel) as _,
            Arc::clone(&nodes),
            Agreement { minor, flags: 0 },
        );
        (kernel, nodes, notifier)
    }

    fn inode(ino: u64) -> (i32, Vec<u8>) {
        (notify::INVAL_INODE, abi::NotifyInvalInode { ino, off: 0, len: 0 }.as_bytes().to_vec())
    }

    #[test]
    fn an_inode_on_its_way_into_the_kernel_is_invalidated_later() {
        let (kernel, _, notifier) = notifier(5, 45);
        notifier.inode_data(FILE);
        assert_eq!(*kernel.received.lock(), [inode(4)]);
    }

    #[test]
    fn inodes_unknown_to_the_kernel_are_not_waited_for() {
        let (kernel, nodes, notifier) = notifier(u32::MAX, 45);
        notifier.inode_data(Fid::new(1, 400, 2));
        notifier.inode_data(Fid { unique: types::Uniquifier(3), ..FILE });
        let forgetting = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            nodes.forget(4, 1)
        });
        let began = Instant::now();
        notifier.inode_data(FILE);
        assert!(began.elapsed() < TIMEOUT / 2);
        assert_eq!(forgetting.join().unwrap(), Some(FILE));
        assert_eq!(*kernel.received.lock(), []);
    }

    #[test]
    fn a_count_that_is_an_earlier_files_is_not_waited_for() {
        let (kernel, nodes, notifier) = notifier(u32::MAX, 45);
        let newer = Fid { unique: types::Uniquifier(3), ..FILE };
        assert!(nodes.remember(newer, 1));
        notifier.end_former(&[4]);
        let pruned = abi::NotifyPrune { count: 1, ..Default::default() };
        assert_eq!(
            *kernel.received.lock(),
            [(notify::PRUNE, [pruned.as_bytes(), 4_u64.as_bytes()].concat())]
        );
        std::thread::sleep(TIMEOUT);
        let began = Instant::now();
        notifier.inode_data(newer);
        assert!(began.elapsed() < TIMEOUT / 2, "any reply with it has arrived");
        assert!(nodes.knows(newer));
    }

    #[test]
    fn nothing_is_waited_for_when_the_mount_is_gone() {
        let (_, nodes, notifier) = notifier(u32::MAX, 45);
        (6..1000).for_each(|vnode| _ = nodes.remember(Fid::new(1, vnode, 1), 1));
        let notifier = Arc::new(notifier);
        let (began, telling) = (Instant::now(), Arc::clone(&notifier));
        let all = std::thread::spawn(move || telling.all());
        std::thread::sleep(Duration::from_millis(50));
        notifier.ended();
        all.join().unwrap();
        assert!(began.elapsed() < TIMEOUT / 2);
    }

    #[test]
    fn the_kernel_learns_the_size_of_a_growing_file_last() {
        let (kernel, nodes, notifier) = notifier(0, 45);
        let status = || {
            let of = abi::NotifyInvalInode { ino: nodes.number(FILE), off: NO_PAGE, len: 0 };
            (notify::INVAL_INODE, of.as_bytes().to_vec())
        };
        let growth = notifier.grows(FILE, 100);
        notifier.tells_size(FILE, 100);
        notifier.tells_size(DIR, 200);
        assert_eq!(*kernel.received.lock(), []);
        notifier.tells_size(FILE, 150);
        assert_eq!(kernel.received.lock().drain(..).collect::<Vec<_>>(), [status()]);
        growth.reached(150, b'x');
        let pages = abi::NotifyInvalInode { ino: nodes.number(FILE), off: 100, len: 0 };
        let size = abi::NotifyStore { ino: nodes.number(FILE), off: 149, size: 1, padding: 0 };
        let received: Vec<_> = kernel.received.lock().drain(..).collect();
        assert_eq!(
            received,
            [
                (notify::INVAL_INODE, pages.as_bytes().to_vec()),
                (notify::STORE, [size.as_bytes(), b"x"].concat()),
            ]
        );
        notifier.tells_size(FILE, 150);
        assert_eq!(*kernel.received.lock(), []);
    }

    #[test]
    fn names_end_by_the_epoch_where_there_is_one() {
        let (kernel, _, new) = notifier(0, 45);
        new.directory(DIR);
        new.directory(Fid::new(1, 77, 1));
        assert_eq!(*kernel.received.lock(), [(notify::INC_EPOCH, vec![]), inode(5)]);
        let (kernel, _, old) = notifier(0, 43);
        old.directory(DIR);
        assert_eq!(*kernel.received.lock(), [inode(5)]);
    }

    #[test]
    fn everything_is_names_and_all_inodes() {
        let (kernel, _, notifier) = notifier(0, 45);
        notifier.all();
        let mut received = kernel.received.lock().clone();
        assert_eq!(received.remove(0), (notify::INC_EPOCH, vec![]));
        received.sort();
        assert_eq!(received, [inode(1), inode(4), inode(5)]);
    }

    #[test]
    fn the_thread_that_ends_names_is_there_while_they_end() {
        let (kernel, _, notifier) = notifier(0, 45);
        notifier.has_below();
        let name = Name::new(b"x").unwrap();
        for count in 1..=2 {
            assert!(notifier.name(DIR, &name));
            assert_eq!(kernel.received.lock().len(), count);
            let began = Instant::now();
            while notifier.names_ender.lock().is_some() {
                assert!(began.elapsed() < Duration::from_secs(10), "it stays");
                std::thread::sleep(ENDER_IDLE / 5);
            }
        }
    }
}
