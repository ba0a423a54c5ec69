//! Completion groups.

use std::ffi::c_int;
use std::sync::Arc;

use crate::completions::{CompletionRecord, GroupObject, Patience};
use crate::connection::{ConnectionObject, group_of};
use crate::error::{Failure, TIMED_OUT, answer, status};
use crate::handle::Handle;
use crate::pointers::Out;

/// Makes a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_cg_create(group: *mut Handle<GroupObject>) -> c_int {
    status(|| {
        // SAFETY: the caller promises room for a handle.
        let mut group = unsafe { Out::new(group, 1, "group")? };
        group.put(0, Handle::make(Arc::default()));
        Ok(())
    })
}

/// Ends a group.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_cg_destroy(group: Handle<GroupObject>) -> c_int {
    status(|| group.close(GroupObject::close))
}

fn find(
    connection: Handle<ConnectionObject>,
    group: Handle<GroupObject>,
) -> Result<Arc<GroupObject>, Failure> {
    group_of(group, || Ok(Arc::clone(&connection.get()?.group)))
}

/// Waits for completions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_cg_wait(
    connection: Handle<ConnectionObject>,
    group: Handle<GroupObject>,
    least: usize,
    timeout_ms: i64,
    completions: *mut CompletionRecord,
    most: usize,
    count: *mut usize,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises room for `most` completions and for a number.
        let (mut completions, mut count) = unsafe {
            let completions = Out::new(completions, most, "completions")?;
            (completions, Out::new(count, 1, "count")?)
        };
        count.put(0, 0);
        let (group, patience) = (find(connection, group)?, Patience::of(timeout_ms));
        let (taken, enough) =
            group.wait(least, most, &patience, |at, done| completions.put(at, done))?;
        count.put(0, taken);
        if enough { Ok(()) } else { Err((&TIMED_OUT).into()) }
    })
}

/// Takes the completions that are there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_cg_poll(
    connection: Handle<ConnectionObject>,
    group: Handle<GroupObject>,
    completions: *mut CompletionRecord,
    most: usize,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller promises what `rialto_cg_wait` asks for.
    unsafe { rialto_cg_wait(connection, group, 0, 0, completions, most, count) }
}

/// How many operations a group has.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_cg_count(
    connection: Handle<ConnectionObject>,
    group: Handle<GroupObject>,
) -> i64 {
    answer(|| Ok(find(connection, group)?.len() as i64))
}
