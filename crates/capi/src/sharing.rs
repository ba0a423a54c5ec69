//! Opens at the server, keys, and locks.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use rialto_client::{ByteRange, DataUse, DirectFile, LockMode, LockOwner, OpenHow, ShareKey};

use crate::connection::ConnectionObject;
use crate::error::{ARGUMENT, Failure, answer, status};
use crate::handle::Handle;
use crate::operations::{FileObject, making};
use crate::pointers::{In, Out, text};
use crate::records::mode_bits;

/// How a file is opened, as C has it: `rialto_how_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HowRecord {
    pub access: u32,
    pub deny: u32,
    pub flags: u32,
    pub mode: u32,
    pub key: *const u8,
    pub reserved: [u64; 4],
}

/// Uses of data, as C has them.
fn data_use(value: u32) -> Result<DataUse, Failure> {
    let known = u8::try_from(value).ok().and_then(DataUse::from_wire);
    known.ok_or_else(|| ARGUMENT.because(format!("{value} is none of enum rialto_use")))
}

/// `length` bytes from `start` on; 0: all.
fn bytes(start: u64, length: u64) -> Result<ByteRange, Failure> {
    let end = match length {
        0 => Some(u64::MAX),
        length => start.checked_add(length - 1),
    };
    let range = end.map(|end| ByteRange { start, end });
    range.ok_or_else(|| ARGUMENT.because(format!("{length} bytes from {start} on")))
}

fn lock_mode(exclusive: c_int) -> LockMode {
    if exclusive == 0 { LockMode::Shared } else { LockMode::Exclusive }
}

/// Opens a file at its server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_open_how(
    connection: Handle<ConnectionObject>,
    path: *const c_char,
    how: *const HowRecord,
    file: *mut Handle<FileObject>,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises a text, a record and the 16 bytes of its key, if it has one,
        // which stay until the function returns, and room for a handle.
        let (path, how, key, mut file) = unsafe {
            let how = In::one(how, "how")?;
            let key = if how.key.is_null() { None } else { Some(In::new(how.key, 16)?) };
            (text(path, "path")?, how, key, Out::new(file, 1, "file")?)
        };
        if how.reserved != [0; 4] {
            return Err(ARGUMENT.because("the reserved numbers are not 0"));
        }
        let key = key.map(|key| {
            let mut bytes = [0; 16];
            key.copy(0, &mut bytes);
            ShareKey(bytes)
        });
        let (access, deny) = (data_use(how.access)?, data_use(how.deny)?);
        let make = making(how.flags, mode_bits(how.mode)?)?;
        let connection = connection.get()?;
        let how_to = OpenHow { access, deny, key, make };
        let opened = DirectFile::open_with(&connection.cell, path, &how_to)?;
        file.put(0, FileObject::make(&connection, opened, how.flags)?);
        Ok(())
    })
}

/// Gives up uses and denials of an open.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_downgrade(file: Handle<FileObject>, access: u32, deny: u32) -> c_int {
    status(|| Ok(file.get()?.file.downgrade(data_use(access)?, data_use(deny)?)?))
}

/// Locks bytes.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_lock(
    file: Handle<FileObject>,
    owner: u64,
    start: u64,
    length: u64,
    exclusive: c_int,
    timeout_ms: i64,
) -> c_int {
    status(|| {
        let within = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let (range, mode) = (bytes(start, length)?, lock_mode(exclusive));
        Ok(file.get()?.file.lock_as(LockOwner(owner), range, mode, within)?)
    })
}

/// Unlocks bytes.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_unlock(
    file: Handle<FileObject>,
    owner: u64,
    start: u64,
    length: u64,
) -> c_int {
    status(|| Ok(file.get()?.file.unlock_as(LockOwner(owner), bytes(start, length)?)?))
}

/// Is a lock of another owner in the way?
#[unsafe(no_mangle)]
pub extern "C" fn rialto_test_lock(
    file: Handle<FileObject>,
    owner: u64,
    start: u64,
    length: u64,
    exclusive: c_int,
) -> c_int {
    answer(|| {
        let (range, mode) = (bytes(start, length)?, lock_mode(exclusive));
        let found = file.get()?.file.test_lock(LockOwner(owner), range, mode)?;
        Ok(i64::from(found.is_some()))
    }) as c_int
}
