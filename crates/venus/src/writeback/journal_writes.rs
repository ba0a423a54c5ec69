//! Sealing: written bytes of a covered file become entries of the journal, and the file's status is
//! exact from then on.
//!
//! It happens when the file is closed or synced, when its status is asked for or changed, or when
//! the bytes are old enough: where bytes are sent otherwise. The sender threads write a file with
//! many bytes as it streams: the journal's bytes wait in memory.

use std::sync::Arc;

use types::{Answer, Call, Caller};

use crate::core::Core;
use crate::data::file_data::FileBytes;
use crate::names::delegations::wall;

/// Most bytes of one sealing.
const SEALED_BYTES_MAX: usize = 1 << 20;

impl Core {
    /// Seals all dirty bytes. False: no delegation covers the file, or its bytes are to be sent
    /// otherwise; some may be sealed.
    pub fn seal(&self, file: &Arc<FileBytes>) -> bool {
        if !self.config.delegations || !self.tables.lock().covers(file.fid) {
            return false;
        }
        self.wait_for_journal();
        let mut data = file.data.lock();
        if file.has_blank() {
            return self.seal_blank(file, &mut data);
        }
        if !data.flying.is_empty() || data.workers > 0 || data.dirty.bytes() > SEALED_BYTES_MAX {
            return false;
        }
        let caller = data.writer.clone().unwrap_or(Caller::ROOT);
        let mut tables = self.tables.lock();
        while let Some(chunk) = data.dirty.take(&[], false) {
            let call = Call::Write {
                fid: file.fid,
                offset: Some(chunk.offset),
                data: chunk.data.clone(),
                stable: false,
                kill_privileges: data.kill,
            };
            let at = wall();
            let Some(local) = tables.answer_here(&self.local_caller(&caller), &call, at) else {
                data.dirty.fill(&chunk);
                break;
            };
            data.kill = false;
            let sealed = (Arc::clone(file), chunk.clone());
            let (number, answer) =
                self.record(&mut tables, &caller, &call, at, local, Some(sealed));
            data.sealed.push((number, chunk));
            if let Answer::Written { status, .. } = answer {
                tables.node(file.fid).status = Some(status);
            }
        }
        drop(tables);
        file.account(&mut data, &self.unsent);
        data.dirty.is_empty()
    }
}
