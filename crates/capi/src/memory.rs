//! Memory that servers can access, and buffers cut from it.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use rialto_client::Memory;

use crate::completions::BufferObject;
use crate::connection::ConnectionObject;
use crate::error::{MEMORY, answer, status};
use crate::handle::{Handle, Handled, Table};
use crate::pointers::{Out, length};

/// Memory of a program.
pub struct MemoryObject(Memory);

impl Handled for MemoryObject {
    const NAME: &'static str = "memory";

    fn table() -> &'static Table<Self> {
        static TABLE: Table<MemoryObject> = Table::new();
        &TABLE
    }
}

/// Makes memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_memory_alloc(
    connection: Handle<ConnectionObject>,
    bytes: usize,
    memory: *mut Handle<MemoryObject>,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises room for a handle.
        let mut memory = unsafe { Out::new(memory, 1, "memory")? };
        let made = connection.get()?.cell.memory(length(bytes)?)?;
        memory.put(0, Handle::make(Arc::new(MemoryObject(made))));
        Ok(())
    })
}

/// Ends a memory's handle.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_memory_free(memory: Handle<MemoryObject>) -> c_int {
    status(|| memory.close(|_| Ok(())))
}

/// Cuts a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_buffer(
    memory: Handle<MemoryObject>,
    bytes: usize,
    buffer: *mut Handle<BufferObject>,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises room for a handle.
        let mut buffer = unsafe { Out::new(buffer, 1, "buffer")? };
        let memory = memory.get()?;
        let cut = memory.0.buffer(length(bytes)?);
        let text = || MEMORY.because(format!("no free part of the memory has {bytes} bytes"));
        let object = BufferObject::new(cut.ok_or_else(text)?);
        buffer.put(0, Handle::make(Arc::new(object)));
        Ok(())
    })
}

/// The address of a buffer's bytes.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_buffer_data(buffer: Handle<BufferObject>) -> *mut c_void {
    let address = answer(|| Ok(buffer.get()?.address as i64));
    // A number below 0 is an error's; programs have no memory there.
    usize::try_from(address).map_or(std::ptr::null_mut(), std::ptr::with_exposed_provenance_mut)
}

/// How long a buffer is.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_buffer_bytes(buffer: Handle<BufferObject>) -> i64 {
    answer(|| Ok(buffer.get()?.bytes as i64))
}

/// Gives a buffer's bytes back to its memory.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_buffer_release(buffer: Handle<BufferObject>) -> c_int {
    status(|| buffer.close(BufferObject::release))
}
