//! The reply to one request of the kernel.

use std::io::IoSlice;

use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use crate::abi;
use crate::channel::Requester;
use crate::errno::RequestRefusal;

/// Replies to one request, once.
#[derive(Clone, Copy)]
pub(crate) struct Replier<'a> {
    unique: u64,
    opcode: u32,
    requester: &'a dyn Requester,
}

impl<'a> Replier<'a> {
    /// To the request with this header.
    pub fn new(header: &abi::InHeader, requester: &'a dyn Requester) -> Self {
        Replier { unique: header.unique, opcode: header.opcode, requester }
    }
}

impl Replier<'_> {
    /// Replies. A request may be cancelled by now, so a failed reply is no error of ours.
    pub(crate) fn parts(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        self.log(self.requester.reply(self.unique, Ok(parts)))
    }

    pub(crate) fn value<T: IntoBytes + Immutable>(&self, value: &T) -> Result<(), Errno> {
        self.parts(&[IoSlice::new(value.as_bytes())])
    }

    pub fn done(&self) {
        let _ = self.parts(&[]);
    }

    pub fn refuse(&self, errno: Errno) {
        let _ = self.log(self.requester.reply(self.unique, Err(errno)));
    }

    fn log(&self, sent: Result<(), Errno>) -> Result<(), Errno> {
        match sent {
            Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(error) => {
                tracing::error!(%error, opcode = self.opcode, "the kernel refuses a reply: \
                    the request fails with EIO");
                // Without a reply an application would wait for ever.
                if error != Errno::IO {
                    let _ = self.requester.reply(self.unique, Err(Errno::IO));
                }
            }
        }
        sent
    }

    /// With `size` 0 only the length is requested.
    pub(crate) fn sized(&self, size: u32, value: &[u8]) -> Result<(), RequestRefusal> {
        if size == 0 {
            let _ = self.value(&abi::GetxattrOut { size: value.len() as u32, padding: 0 });
        } else if value.len() > size as usize {
            return Err(RequestRefusal(Errno::RANGE));
        } else {
            let _ = self.parts(&[IoSlice::new(value)]);
        }
        Ok(())
    }
}
