//! Error numbers of Linux as codes of the table UAE, which are the same everywhere.
//!
//! Model: the table lists error numbers in Linux's order from EPERM, number 1, on. Linux has no
//! number 58, and the table no place for it. Number 41 is unused too, but the table has a place
//! there: EWOULDBLOCK, which on Linux is EAGAIN.
//!
//! Source: OpenAFS `src/afs/unified_afs.et`, `src/util/errmap_nt.c`, `src/comerr`,
//! `sys_error_to_et` in `src/viced/viced.c` and its like.

/// The first code: UAEPERM.
pub const UAE_BASE: i32 = 49_733_376;
/// The last place: UAEMEDIUMTYPE.
const UAE_LAST: i32 = 122;
/// The number that Linux does not use and the table leaves out.
const HOLE: i32 = 58;
/// The place of UAEWOULDBLOCK.
const WOULD_BLOCK: i32 = 40;
const EAGAIN: i32 = 11;

/// The UAE code of an error number of Linux, if it has one.
pub fn uae_from_errno(errno: i32) -> Option<i32> {
    let place = match errno {
        ..=0 | HOLE => return None,
        // The place of a number that is not used.
        errno if errno == WOULD_BLOCK + 1 => return None,
        ..HOLE => errno - 1,
        _ => errno - 2,
    };
    (place <= UAE_LAST).then(|| UAE_BASE + place)
}

/// The error number of Linux that a UAE code stands for; none: it is no UAE code.
pub fn errno_from_uae(code: i32) -> Option<i32> {
    let place = code.checked_sub(UAE_BASE)?;
    match place {
        WOULD_BLOCK => Some(EAGAIN),
        0..WOULD_BLOCK => Some(place + 1),
        _ if place <= UAE_LAST && place > WOULD_BLOCK => {
            Some(if place + 1 < HOLE { place + 1 } else { place + 2 })
        }
        _ => None,
    }
}

/// The code that a server sends for one of its own, if the client understands UAE codes. Codes of
/// the file service (101 to 112, and 120) are no error numbers, although they look like ones, and
/// stay as they are.
pub fn on_wire(code: i32) -> i32 {
    match code {
        101..=112 | 120 => code,
        code => uae_from_errno(code).unwrap_or(code),
    }
}
