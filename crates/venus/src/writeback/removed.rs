//! Removed files: written bytes that no application can read any more.
//!
//! Model. A file is *over* at this client when its last name is gone, no application here has it
//! open, and the server holds it for none of them: nothing opens it again. A commit of its unstable
//! bytes would make nothing stable, so they are dropped, and no sync and no unmount waits for them.
//! Unsent bytes are dropped while a delegation covers the file. Otherwise another client may have
//! it open, and reads them: they are sent as others are. Entries of the journal stay: the removal
//! is one of them, and an unsent change of the directory.

use types::Fid;

use super::Writeback;

impl Writeback {
    /// The file may be over: lost its last name, its last handle, or its hold. If it is, drops its
    /// written bytes.
    pub fn drop_removed(&self, fid: Fid) {
        let Some(file) = self.ground.names.file_of(fid) else { return };
        let mut data = file.data.lock();
        let Some(is_covered) = self.ground.names.over(fid) else { return };
        if is_covered {
            data.drop_unsent();
            file.scratch(|scratch| scratch.drop_unsealed());
            self.unstable.account(&file, &mut data);
        }
        drop(data);
        self.unstable.forget_removed(&file);
        self.cache.drop_if_unused(&file);
    }
}
