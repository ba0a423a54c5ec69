//! The FUSE file system around a [`Drive`]: a directory with one file, [`NAME`].

use std::io::IoSlice;
use std::sync::Arc;

use mount::abi::{self, opcode};
use mount::channel::Requester;
use mount::request::{KernelRequest, Operation};
use mount::{Handler, Urgency};
use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use crate::{Drive, SECTOR_BYTES};

/// The name of the file.
pub(crate) const NAME: &str = "disk";
const FILE_ID: u64 = abi::ROOT_ID + 1;
const FOREVER_SECS: u64 = u32::MAX as u64;
const PAGE_BYTES: u32 = 4096;

/// Answers the kernel's requests from a drive.
pub(crate) struct Served(pub(crate) Arc<Drive>);

impl Served {
    fn attr(&self, node: u64) -> abi::Attr {
        let is_root = node == abi::ROOT_ID;
        let size = if is_root { 0 } else { self.0.bytes() };
        abi::Attr {
            ino: node,
            size,
            blocks: size / SECTOR_BYTES as u64,
            mode: if is_root { 0o040_700 } else { 0o100_600 },
            nlink: if is_root { 2 } else { 1 },
            blksize: PAGE_BYTES,
            ..Default::default()
        }
    }

    fn run(&self, request: &KernelRequest<'_>) -> Result<Vec<u8>, Errno> {
        let node = request.header.nodeid;
        match request.operation {
            Operation::Lookup { name } if node == abi::ROOT_ID && name == NAME.as_bytes() => {
                Ok(bytes(&abi::EntryOut {
                    nodeid: FILE_ID,
                    entry_valid: FOREVER_SECS,
                    attr_valid: FOREVER_SECS,
                    attr: self.attr(FILE_ID),
                    ..Default::default()
                }))
            }
            Operation::Lookup { .. } => Err(Errno::NOENT),
            Operation::Getattr(_) => Ok(bytes(&abi::AttrOut {
                attr_valid: FOREVER_SECS,
                attr: self.attr(node),
                ..Default::default()
            })),
            // Direct I/O: the page cache must not stand between the loop driver and the drive.
            Operation::Open(_) => Ok(bytes(&abi::OpenOut {
                open_flags: abi::flag::FOPEN_DIRECT_IO,
                ..Default::default()
            })),
            Operation::Read(of) => {
                let end = self.0.bytes().min(of.offset.saturating_add(of.size.into()));
                self.0.read(of.offset, end.saturating_sub(of.offset) as usize)
            }
            Operation::Fsync(_) => self.0.flush().map(|()| Vec::new()),
            Operation::Statfs => Ok(bytes(&abi::StatfsOut {
                bsize: PAGE_BYTES,
                frsize: PAGE_BYTES,
                namelen: 255,
                ..Default::default()
            })),
            Operation::Release(_) | Operation::Flush(_) | Operation::Destroy => Ok(Vec::new()),
            _ => Err(Errno::NOSYS),
        }
    }

    fn write(
        &self,
        of: &abi::WriteIn,
        data: &[u8],
        unique: u64,
        requester: &dyn Requester,
    ) -> Result<(), Errno> {
        let out = bytes(&abi::WriteOut { size: of.size, padding: 0 });
        match self.0.write(of.offset, data) {
            Ok(number) => {
                // Before the answer is sent: the kernel may send a flush as soon as it has the
                // answer.
                self.0.answer(number);
                requester.reply(unique, Ok(&[IoSlice::new(&out)]))
            }
            Err(error) => requester.reply(unique, Err(error)),
        }
    }
}

fn bytes<T: IntoBytes + Immutable>(value: &T) -> Vec<u8> {
    value.as_bytes().to_vec()
}

impl Handler for Served {
    fn urgency(&self, request: &[u8]) -> Urgency {
        match KernelRequest::header(request).map(|header| header.opcode) {
            Ok(opcode::FORGET | opcode::BATCH_FORGET) => Urgency::Forgets,
            _ => Urgency::Normal,
        }
    }

    fn handle(&self, request: &mut Vec<u8>, requester: &dyn Requester) {
        let Ok(header) = KernelRequest::header(request) else { return };
        let unique = header.unique;
        // The kernel may have dropped the request; then the answer is lost, and nothing depends on
        // it.
        let _ = match KernelRequest::decode(request) {
            Err(_) => requester.reply(unique, Err(Errno::NOSYS)),
            Ok(request) => match &request.operation {
                Operation::Forget { .. }
                | Operation::BatchForget(_)
                | Operation::Interrupt { .. } => return,
                Operation::Write { of, data } => self.write(of, data, unique, requester),
                _ => match self.run(&request) {
                    Ok(out) => requester.reply(unique, Ok(&[IoSlice::new(&out)])),
                    Err(error) => requester.reply(unique, Err(error)),
                },
            },
        };
    }

    fn ended(&self) {}

    fn refuse(&self, request: &[u8], requester: &dyn Requester) {
        if let Ok(header) = KernelRequest::header(request) {
            let _ = requester.reply(header.unique, Err(Errno::NOLCK));
        }
    }
}
