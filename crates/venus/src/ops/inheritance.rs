//! A new process takes over what its predecessor left of a volume: open files, locks, and writes
//! that the server may not have. It happens before the kernel's first request.
//!
//! The session is the predecessor's, so the server has the locks, holds and loans already. Of the
//! unsent writes the server may have some, and another client may have written there since: then
//! ours comes later, as it may, since it was neither synced nor its file closed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use types::Fid;

use crate::core::Core;
use crate::data::{FileBytes, Open};

impl Core {
    /// See the head of the file.
    pub fn inherit(&self) {
        let Some(legacy) = self.legacy.clone() else { return };
        let mut files: BTreeMap<Fid, Arc<FileBytes>> = BTreeMap::new();
        let handles = legacy.handles();
        let opened = handles.len();
        for (handle, left) in handles {
            let file = {
                let mut tables = self.ground.names.lock();
                // The server may hold it for us, if it lost its last name meanwhile.
                tables.nodes.node(left.fid).held = true;
                tables.count_open(left.fid)
            };
            let file = match file {
                Ok(file) => file,
                Err(error) => {
                    tracing::error!(%error, fid = %left.fid, "an open file cannot be taken over");
                    legacy.remove_handle(handle);
                    continue;
                }
            };
            self.passthrough.inherit(&file, left.mode, left.backing);
            {
                let mut data = file.data.lock();
                data.opener = Some(left.caller.clone());
                if left.mode.write {
                    data.writer = Some(left.caller.clone());
                }
            }
            files.insert(left.fid, Arc::clone(&file));
            let open = Open {
                file,
                mode: left.mode,
                caller: left.caller,
                seen: AtomicU64::new(0),
                locked: AtomicU64::new(0),
                sequence: Mutex::default(),
                quiet: false,
                direct: left.direct,
                made: false,
                backing: left.backing,
            };
            self.handles.inherit(handle, open);
        }
        for fid in legacy.mapped() {
            self.ground.names.lock().nodes.node(fid).mapped = true;
        }
        for (fid, locks) in legacy.locks() {
            if let Some(file) = files.get(&fid) {
                self.locks.inherit(file, locks);
            }
        }
        let writes = legacy.writes();
        let unsent = writes.len();
        for (serial, left) in writes {
            let file = match files.get(&left.fid) {
                Some(file) => Ok(Arc::clone(file)),
                None => self.ground.names.lock().count_open(left.fid),
            };
            match file {
                Ok(file) => {
                    let write = (left.offset, left.bytes, left.kill);
                    self.writeback.inherit(&file, &left.caller, write);
                    if !files.contains_key(&left.fid) {
                        self.cache.count_release(&file);
                    }
                }
                Err(error) => {
                    tracing::error!(%error, fid = %left.fid, "a write cannot be taken over");
                }
            }
            legacy.forget_write(serial);
        }
        if opened + unsent > 0 {
            tracing::info!(opened, unsent, "took over open files and unsent writes");
        }
    }
}
