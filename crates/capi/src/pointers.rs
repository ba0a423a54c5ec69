//! The caller's memory: texts, results, bytes. All of the crate's accesses to it are here.
//!
//! Model: a pointer is checked for NULL, and believed otherwise. No reference to the caller's bytes
//! is made, since C does not say that they are initialised, or that no other thread has them.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;

use crate::error::{Failure, LENGTH, NULL, PATH};

/// The text behind a pointer.
///
/// # Errors
/// `NULL`; `PATH`: it is no UTF-8, and no path of the library has other bytes.
///
/// # Safety
/// The pointer is NULL, or leads to a text that ends with a zero and stays as it is for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(NULL.because(format!("the {what} is NULL")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| PATH.because(format!("the {what} is not UTF-8")))
}

/// A place for results behind a pointer of the caller.
pub(crate) struct Out<'a, T> {
    place: *mut T,
    room: usize,
    call: PhantomData<&'a mut T>,
}

impl<'a, T> Out<'a, T> {
    /// Room for so many.
    ///
    /// # Errors
    /// `NULL`.
    ///
    /// # Safety
    /// The pointer is NULL, or leads to aligned room for `room` values, which only this has for
    /// `'a`.
    pub unsafe fn new(place: *mut T, room: usize, what: &str) -> Result<Out<'a, T>, Failure> {
        if place.is_null() && room > 0 {
            return Err(NULL.because(format!("the place for the {what} is NULL")));
        }
        Ok(Out { place, room, call: PhantomData })
    }

    /// How many there is room for.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Writes the value at this place; `at` is below `room`.
    pub fn put(&mut self, at: usize, value: T) {
        assert!(at < self.room, "there is room for {} results", self.room);
        // SAFETY: `new` was promised the room.
        unsafe { self.place.add(at).write(value) };
    }
}

impl Out<'_, u8> {
    /// Writes bytes from this place on.
    pub fn copy(&mut self, at: usize, bytes: &[u8]) {
        let fits = at.checked_add(bytes.len()).is_some_and(|end| end <= self.room);
        assert!(fits, "there is room for {} bytes", self.room);
        // SAFETY: `new` was promised the room, which is no memory of the library's.
        unsafe { self.place.add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

/// Bytes behind a pointer of the caller.
pub(crate) struct In<'a> {
    bytes: *const u8,
    length: usize,
    call: PhantomData<&'a [u8]>,
}

impl<'a> In<'a> {
    /// A copy of a record.
    ///
    /// # Errors
    /// `NULL`.
    ///
    /// # Safety
    /// The pointer is NULL, or leads to a record with a value, which no thread changes now.
    pub unsafe fn one<T: Copy>(record: *const T, what: &str) -> Result<T, Failure> {
        if record.is_null() {
            return Err(NULL.because(format!("the {what} is NULL")));
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { record.read() })
    }

    /// # Errors
    /// `NULL`.
    ///
    /// # Safety
    /// The pointer is NULL, or leads to that many bytes, which stay there for `'a`.
    pub unsafe fn new(bytes: *const u8, length: usize) -> Result<In<'a>, Failure> {
        if bytes.is_null() && length > 0 {
            return Err(NULL.because("the data is NULL"));
        }
        Ok(In { bytes, length, call: PhantomData })
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Copies the bytes from this place on; as many as `to` has.
    pub fn copy(&self, at: usize, to: &mut [u8]) {
        let fits = at.checked_add(to.len()).is_some_and(|end| end <= self.length);
        assert!(fits, "there are {} bytes", self.length);
        // SAFETY: `new` was promised the bytes, which are no memory of the library's.
        unsafe { self.bytes.add(at).copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
    }
}

/// A length that a result can tell, and memory can have.
///
/// # Errors
/// `LENGTH`.
pub(crate) fn length(bytes: usize) -> Result<usize, Failure> {
    if isize::try_from(bytes).is_err() {
        return Err(LENGTH.because(format!("no memory has {bytes} bytes")));
    }
    Ok(bytes)
}
