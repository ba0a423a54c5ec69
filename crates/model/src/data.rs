//! A file's bytes.

use bytes::Bytes;
use types::{AllocateMode, Answer, BootVerifier, DataVersion, Fault, Fid, Kind, SeekWhat, limits};

use crate::ModelBody;
use crate::access::RequestedAccess;
use crate::tree::{Content, ModelContext, ModelNode, ModelTree};

impl ModelTree {
    pub(crate) fn read(
        &self,
        ask: ModelContext<'_>,
        fid: Fid,
        offset: u64,
        length: u32,
    ) -> Result<Answer, Fault> {
        let node = self.node(fid)?;
        let body = node.body()?;
        self.need(ask, fid, RequestedAccess::ReadData)?;
        let data = body.read(offset, u64::from(length).min(limits::PAYLOAD_BYTES_MAX as u64));
        let end = offset.saturating_add(data.len() as u64) >= body.size();
        Ok(Answer::Data { data: Bytes::from(data), end, status: node.status })
    }

    pub(crate) fn write(
        &mut self,
        ask: ModelContext<'_>,
        fid: Fid,
        offset: Option<u64>,
        data: &Bytes,
        kill: bool,
    ) -> Result<Answer, Fault> {
        let size = self.node(fid)?.body()?.size();
        self.need(ask, fid, RequestedAccess::WriteData)?;
        let node = self.node_mut(fid)?;
        let offset = offset.unwrap_or(size);
        if data.len() > limits::PAYLOAD_BYTES_MAX {
            return Err(Fault::Invalid);
        }
        check_end(offset, data.len() as u64)?;
        let previous_version = node.status.data_version;
        if !data.is_empty() {
            node.change_body(ask, kill, |body| body.write(offset, data));
        }
        Ok(written(node, data.len() as u32, offset, previous_version))
    }

    pub(crate) fn allocate(
        &mut self,
        ask: ModelContext<'_>,
        fid: Fid,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    ) -> Result<Answer, Fault> {
        self.node(fid)?.body()?;
        self.need(ask, fid, RequestedAccess::WriteData)?;
        let node = self.node_mut(fid)?;
        if length == 0 {
            return Err(Fault::Invalid);
        }
        let end = check_end(offset, length)?;
        let previous_version = node.status.data_version;
        node.change_body(ask, false, |body| match mode {
            AllocateMode::Extend => body.grow(end),
            AllocateMode::KeepSize => {}
            AllocateMode::PunchHole | AllocateMode::ZeroKeepSize => body.zero(offset, end),
            AllocateMode::ZeroExtend => {
                body.zero(offset, end);
                body.grow(end);
            }
        });
        Ok(written(node, 0, offset, previous_version))
    }

    /// Exact to the byte: zeros are a hole. The real service may report zeros as data.
    pub(crate) fn seek(
        &self,
        ask: ModelContext<'_>,
        fid: Fid,
        offset: u64,
        what: SeekWhat,
    ) -> Result<Answer, Fault> {
        let body = self.node(fid)?.body()?;
        self.need(ask, fid, RequestedAccess::ReadData)?;
        if offset >= body.size() {
            return Err(Fault::NothingThere);
        }
        match what {
            SeekWhat::Data => {
                body.next_nonzero(offset).map(Answer::Offset).ok_or(Fault::NothingThere)
            }
            SeekWhat::Hole => {
                let mut at = offset;
                while body.next_nonzero(at) == Some(at) {
                    at += 1;
                }
                Ok(Answer::Offset(at))
            }
        }
    }
}

/// The end of a range, if a file may be so long.
fn check_end(offset: u64, length: u64) -> Result<u64, Fault> {
    match offset.checked_add(length) {
        Some(end) if end <= limits::FILE_BYTES_MAX => Ok(end),
        _ => Err(Fault::TooBig),
    }
}

fn written(node: &ModelNode, count: u32, offset: u64, previous_version: DataVersion) -> Answer {
    let verifier = BootVerifier::default();
    Answer::Written { count, offset, status: node.status, previous_version, verifier }
}

impl ModelNode {
    fn body(&self) -> Result<&ModelBody, Fault> {
        match &self.content {
            Content::File(body) => Ok(body),
            Content::Directory(_) => Err(Fault::IsDirectory),
            Content::Target(_) | Content::Nothing => Err(Fault::Invalid),
        }
    }

    fn change_body(
        &mut self,
        ask: ModelContext<'_>,
        kill: bool,
        change: impl FnOnce(&mut ModelBody),
    ) {
        debug_assert_eq!(self.status.kind, Kind::File);
        if kill || !ask.caller.is_root() {
            self.kill_privileges(ask.caller);
        } else {
            self.drop_capabilities();
        }
        if let Content::File(body) = &mut self.content {
            change(body);
            self.status.size = body.size();
        }
        self.touch_data(ask.wall);
    }
}
