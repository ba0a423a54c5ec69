//! A copy of the database of another server, which holds its snapshot between the calls.

use std::sync::Arc;

use bytes::Bytes;
use types::{Answer, Call, Caller, CellCall, Fault, Revision};

use super::way::Way;
use super::{RemoteCellDb, Result};
use crate::CellError;
use crate::copy::{CellCopy, CopyCursor, CopyPart};

/// See the head of the file.
struct RemoteCopy {
    way: Arc<Way>,
    caller: Caller,
    copy: u64,
    at: Revision,
    /// The answer that began it, until it is asked for.
    first: Option<CopyPart>,
}

impl RemoteCellDb {
    pub(super) fn begin_copy(&self) -> Result<Box<dyn CellCopy>> {
        let (way, caller) = (Arc::clone(&self.way), self.caller.clone());
        let mut copy = RemoteCopy { way, caller, copy: 0, at: Revision::default(), first: None };
        let (number, at, part) = copy.ask(&CopyCursor::default())?;
        (copy.copy, copy.at, copy.first) = (number, at, Some(part));
        Ok(Box::new(copy))
    }
}

impl RemoteCopy {
    fn ask(&self, cursor: &CopyCursor) -> Result<(u64, Revision, CopyPart)> {
        let CopyCursor { after, skip } = cursor;
        let (after, skip) = (Bytes::copy_from_slice(after), *skip as u64);
        let call = Call::Cell(CellCall::Copy { copy: self.copy, after, skip });
        match self.way.call(&self.caller, call).map_err(CellError::Away)? {
            Answer::Records { copy, at, end, part } => {
                Ok((copy, at, CopyPart { bytes: part.reveal().to_vec(), end }))
            }
            _ => Err(CellError::Away(Fault::Invalid)),
        }
    }
}

impl CellCopy for RemoteCopy {
    fn at(&self) -> Revision {
        self.at
    }

    fn part(&mut self, cursor: &CopyCursor, max: usize) -> Result<CopyPart> {
        let part = match self.first.take().filter(|_| *cursor == CopyCursor::default()) {
            Some(first) => first,
            None => {
                let (copy, at, part) = self.ask(cursor)?;
                if (copy, at) != (self.copy, self.at) {
                    return Err(CellError::Damaged("a copy (of another revision)".to_owned()));
                }
                part
            }
        };
        let CopyPart { mut bytes, end } = part;
        // The server's parts are as large as an answer may be.
        let end = end && bytes.len() <= max;
        bytes.truncate(max);
        Ok(CopyPart { bytes, end })
    }
}
