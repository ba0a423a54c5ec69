//! Names: status, listings, new directories, removal, renaming.

use std::ffi::{CString, c_char, c_int, c_void};

use rialto_client::{list, make_directory, remove, rename, status as status_of};
use types::RemoveWhat;

use crate::connection::ConnectionObject;
use crate::error::{NULL, answer, status};
use crate::handle::Handle;
use crate::pointers::{Out, text};
use crate::records::{StatusRecord, mode_bits};

/// A name in a directory as C has it: `rialto_entry_t`.
#[repr(C)]
pub struct EntryRecord {
    pub name: *const c_char,
    pub name_bytes: usize,
    pub kind: u32,
    pub has_status: u32,
    pub status: StatusRecord,
}

/// The function that `rialto_list` calls for each entry; a number other than 0 ends the listing.
pub type EntryCallback = Option<unsafe extern "C" fn(*mut c_void, *const EntryRecord) -> c_int>;

/// The status of a path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_stat(
    connection: Handle<ConnectionObject>,
    path: *const c_char,
    follow: c_int,
    record: *mut StatusRecord,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises a text that stays until the function returns, and room for a
        // status.
        let (path, mut record) = unsafe { (text(path, "path")?, Out::new(record, 1, "status")?) };
        let found = status_of(&connection.get()?.cell, path, follow != 0)?;
        record.put(0, StatusRecord::of(&found));
        Ok(())
    })
}

/// Calls `callback` for each entry of a directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_list(
    connection: Handle<ConnectionObject>,
    path: *const c_char,
    callback: EntryCallback,
    context: *mut c_void,
) -> c_int {
    answer(|| {
        // SAFETY: the caller promises a text that stays until the function returns, and a function
        // that takes an entry, does not keep it, and comes back in the ordinary way.
        let (path, call) = unsafe {
            let callback = callback.ok_or_else(|| NULL.because("the callback is NULL"))?;
            (text(path, "path")?, move |entry: &EntryRecord| callback(context, entry))
        };
        for entry in list(&connection.get()?.cell, path)? {
            let name = entry.name.as_bytes();
            let text = CString::new(name).expect("no name has a zero");
            let record = EntryRecord {
                name: text.as_ptr(),
                name_bytes: name.len(),
                kind: entry.kind as u32,
                has_status: u32::from(entry.status.is_some()),
                status: entry.status.as_ref().map(StatusRecord::of).unwrap_or_default(),
            };
            let stop = call(&record);
            if stop != 0 {
                return Ok(i64::from(stop));
            }
        }
        Ok(0)
    }) as c_int
}

/// Makes a directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_mkdir(
    connection: Handle<ConnectionObject>,
    path: *const c_char,
    mode: u32,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises a text that stays until the function returns.
        let path = unsafe { text(path, "path")? };
        Ok(make_directory(&connection.get()?.cell, path, mode_bits(mode)?)?)
    })
}

/// Removes a name of a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_unlink(
    connection: Handle<ConnectionObject>,
    path: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises a text that stays until the function returns.
        let path = unsafe { text(path, "path")? };
        Ok(remove(&connection.get()?.cell, path, RemoveWhat::File)?)
    })
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_rmdir(
    connection: Handle<ConnectionObject>,
    path: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises a text that stays until the function returns.
        let path = unsafe { text(path, "path")? };
        Ok(remove(&connection.get()?.cell, path, RemoveWhat::Directory)?)
    })
}

/// Gives a file another name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_rename(
    connection: Handle<ConnectionObject>,
    from: *const c_char,
    to: *const c_char,
    replace: c_int,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises texts that stay until the function returns.
        let (from, to) = unsafe { (text(from, "old path")?, text(to, "new path")?) };
        Ok(rename(&connection.get()?.cell, from, to, replace != 0)?)
    })
}
