//! Reused memory for the largest payloads. An allocator returns a freed mebibyte to the kernel, and
//! the next one is zeroed page by page, with a fault each: more work than the copy itself.

use bytes::Bytes;
use std::sync::Mutex;

use crate::limits::PAYLOAD_BYTES_MAX;

/// Free buffers, each of [`PAYLOAD_BYTES_MAX`], not cleared.
const FREE_MAX: usize = 16;

static FREE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// An empty buffer with room for `length` bytes: exactly that much, unless it is larger than a
/// payload.
pub fn take(length: usize) -> Vec<u8> {
    let free = if length == PAYLOAD_BYTES_MAX { lock().pop() } else { None };
    let mut buffer = free.unwrap_or_else(|| Vec::with_capacity(length));
    buffer.clear();
    buffer
}

/// A buffer of `length` bytes with arbitrary content: the caller must write all of them. So large
/// ones need not be zeroed each time.
pub fn take_written(length: usize) -> Vec<u8> {
    let free = if length == PAYLOAD_BYTES_MAX { lock().pop() } else { None };
    let mut buffer = free.unwrap_or_default();
    buffer.reserve_exact(length.saturating_sub(buffer.len()));
    buffer.resize(length, 0);
    buffer
}

/// The buffer's bytes; its memory is reused when the last part of them is dropped.
pub fn freeze(buffer: Vec<u8>) -> Bytes {
    if buffer.capacity() == PAYLOAD_BYTES_MAX {
        Bytes::from_owner(Owner(buffer))
    } else {
        Bytes::from(buffer)
    }
}

/// A copy of `bytes`, in such memory.
pub fn copied(bytes: &[u8]) -> Bytes {
    let mut buffer = take(bytes.len());
    buffer.extend_from_slice(bytes);
    freeze(buffer)
}

struct Owner(Vec<u8>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        let mut free = lock();
        if free.len() < FREE_MAX {
            free.push(buffer);
        }
    }
}

fn lock() -> std::sync::MutexGuard<'static, Vec<Vec<u8>>> {
    // A list of empty buffers is valid at every moment.
    FREE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payloads_memory_comes_back_when_its_last_part_goes() {
        let mut buffer = take(PAYLOAD_BYTES_MAX);
        buffer.resize(PAYLOAD_BYTES_MAX, 7);
        let address = buffer.as_ptr();
        let whole = freeze(buffer);
        let part = whole.slice(5..9);
        drop(whole);
        assert_eq!(&part[..], [7; 4]);
        drop(part);
        let free: Vec<Vec<u8>> = (0..=FREE_MAX).map(|_| take(PAYLOAD_BYTES_MAX)).collect();
        assert!(free.iter().any(|buffer| buffer.as_ptr() == address && buffer.is_empty()));
        free.into_iter().for_each(|buffer| drop(freeze(buffer)));
        let written = take_written(PAYLOAD_BYTES_MAX);
        assert_eq!((written.len(), written.capacity()), (PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX));
        assert_eq!(take_written(10), [0; 10]);
    }

    #[test]
    fn other_sizes_are_exact_and_not_reused() {
        assert_eq!(take(1000).capacity(), 1000);
        assert_eq!(&freeze(vec![1, 2, 3])[..], [1, 2, 3]);
    }
}
