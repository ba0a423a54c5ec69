//! Files, and operations on them.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use rialto_client::{Buffer, DirectFile, Group, MakeFile, NotBegun};

use crate::completions::{BufferObject, GroupObject};
use crate::connection::{ConnectionObject, group_of};
use crate::error::{ARGUMENT, Failure, answer, status};
use crate::handle::{Handle, Handled, Table};
use crate::pointers::{In, Out, length, text};
use crate::records::{StatusRecord, mode_bits};
use crate::staging::Staging;

/// `RIALTO_CREATE`, `RIALTO_EXCLUSIVE`, `RIALTO_TRUNCATE` of the header.
pub(crate) const CREATE: u32 = 1;
pub(crate) const EXCLUSIVE: u32 = 2;
pub(crate) const TRUNCATE: u32 = 4;

/// An open file.
pub struct FileObject {
    pub(crate) file: DirectFile,
    /// The connection's.
    group: Arc<GroupObject>,
    staging: Arc<Staging>,
}

impl Handled for FileObject {
    const NAME: &'static str = "file";

    fn table() -> &'static Table<Self> {
        static TABLE: Table<FileObject> = Table::new();
        &TABLE
    }
}

/// Opens a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_open(
    connection: Handle<ConnectionObject>,
    path: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut Handle<FileObject>,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises a text that stays until the function returns, and room for a
        // handle.
        let (path, mut file) = unsafe { (text(path, "path")?, Out::new(file, 1, "file")?) };
        let connection = connection.get()?;
        let (cell, mode) = (&connection.cell, mode_bits(mode)?);
        let opened = match making(flags, mode)? {
            MakeFile::Never => DirectFile::open(cell, path)?,
            MakeFile::IfMissing(mode) => DirectFile::create(cell, path, mode)?,
            MakeFile::Always(mode) => DirectFile::create_new(cell, path, mode)?,
        };
        file.put(0, FileObject::make(&connection, opened, flags)?);
        Ok(())
    })
}

/// Is a file made, as the flags of an open say?
pub(crate) fn making(flags: u32, mode: u16) -> Result<MakeFile, Failure> {
    match flags & !TRUNCATE {
        0 => Ok(MakeFile::Never),
        CREATE => Ok(MakeFile::IfMissing(mode)),
        flags if flags == CREATE | EXCLUSIVE => Ok(MakeFile::Always(mode)),
        _ => Err(ARGUMENT.because(format!("flags of {flags:#x}"))),
    }
}

impl FileObject {
    /// A handle of a file that was opened with these flags.
    pub(crate) fn make(
        connection: &ConnectionObject,
        file: DirectFile,
        flags: u32,
    ) -> Result<Handle<FileObject>, Failure> {
        if flags & TRUNCATE != 0 {
            file.set_size(0)?;
        }
        let (group, staging) = (Arc::clone(&connection.group), Arc::clone(&connection.staging));
        Ok(Handle::make(Arc::new(FileObject { file, group, staging })))
    }
}

/// Closes a file.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_close(file: Handle<FileObject>) -> c_int {
    status(|| {
        let object = file.get()?;
        file.close(|_| Ok(()))?;
        Ok(object.file.clone().close()?)
    })
}

/// The status of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_fstat(
    file: Handle<FileObject>,
    record: *mut StatusRecord,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises room for a status.
        let mut record = unsafe { Out::new(record, 1, "status")? };
        record.put(0, StatusRecord::of(&file.get()?.file.status()?));
        Ok(())
    })
}

/// Cuts a file, or makes it longer.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_truncate(file: Handle<FileObject>, size: u64) -> c_int {
    status(|| Ok(file.get()?.file.set_size(size)?))
}

/// Makes what was written stable.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_commit(file: Handle<FileObject>) -> c_int {
    status(|| Ok(file.get()?.file.commit()?))
}

/// Begins an operation of this file.
fn begin(
    (file, group): (Handle<FileObject>, Handle<GroupObject>),
    part: (Handle<BufferObject>, usize),
    (tag, offset): (u64, u64),
    operation: impl FnOnce(&DirectFile, &Group, Buffer, u64) -> Result<(), NotBegun>,
) -> c_int {
    status(|| {
        let object = file.get()?;
        let group = group_of(group, || Ok(Arc::clone(&object.group)))?;
        group.begin(part, (tag, offset), |group, buffer, key| {
            operation(&object.file, group, buffer, key)
        })
    })
}

/// Begins a read.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_async_read(
    file: Handle<FileObject>,
    group: Handle<GroupObject>,
    buffer: Handle<BufferObject>,
    bytes: usize,
    offset: u64,
    tag: u64,
) -> c_int {
    begin((file, group), (buffer, bytes), (tag, offset), |file, group, buffer, key| {
        file.read(group, buffer, offset, key)
    })
}

/// Begins a write.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_async_write(
    file: Handle<FileObject>,
    group: Handle<GroupObject>,
    buffer: Handle<BufferObject>,
    bytes: usize,
    offset: u64,
    tag: u64,
) -> c_int {
    begin((file, group), (buffer, bytes), (tag, offset), |file, group, buffer, key| {
        file.write(group, buffer, offset, key)
    })
}

/// Begins a write at the end.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_async_append(
    file: Handle<FileObject>,
    group: Handle<GroupObject>,
    buffer: Handle<BufferObject>,
    bytes: usize,
    tag: u64,
) -> c_int {
    begin((file, group), (buffer, bytes), (tag, 0), |file, group, buffer, key| {
        file.append(group, buffer, key)
    })
}

/// Reads into any memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_read(
    file: Handle<FileObject>,
    data: *mut c_void,
    bytes: usize,
    offset: u64,
) -> i64 {
    answer(|| {
        // SAFETY: the caller promises room for so many bytes, which no other thread uses until the
        // function returns.
        let mut to = unsafe { Out::new(data.cast(), length(bytes)?, "data")? };
        let object = file.get()?;
        Ok(object.staging.read(&object.file, &mut to, offset)? as i64)
    })
}

/// Writes any memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_write(
    file: Handle<FileObject>,
    data: *const c_void,
    bytes: usize,
    offset: u64,
) -> i64 {
    answer(|| {
        // SAFETY: the caller promises so many bytes, which stay as they are until the function
        // returns.
        let from = unsafe { In::new(data.cast(), length(bytes)?)? };
        let object = file.get()?;
        Ok(object.staging.write(&object.file, &from, offset)? as i64)
    })
}

/// Writes any memory at the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_append(
    file: Handle<FileObject>,
    data: *const c_void,
    bytes: usize,
    offset: *mut u64,
) -> i64 {
    answer(|| {
        // SAFETY: the caller promises so many bytes, which stay as they are until the function
        // returns, and NULL or room for a number.
        let (from, place) = unsafe {
            let room = usize::from(!offset.is_null());
            (In::new(data.cast(), length(bytes)?)?, Out::new(offset, room, "offset")?)
        };
        let (object, mut place) = (file.get()?, place);
        let first = object.staging.append(&object.file, &from)?;
        if let (Some(first), 1) = (first, place.room()) {
            place.put(0, first);
        }
        Ok(from.len() as i64)
    })
}
