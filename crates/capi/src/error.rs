//! Numbers and texts of errors, and the frame of each function.
//!
//! Model: the number of a refusal by a server is the negative of the fault's number on the wire,
//! which is for ever. The library's own errors are below -1000. Functions return numbers; the text
//! of the latest failure stays with the thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rialto_client::DirectError;
use types::Fault;

/// An error that no server sent: its number, its name in the header, its errno and its text.
pub(crate) struct OwnError {
    pub number: c_int,
    pub name: &'static str,
    pub errno: c_int,
    pub text: &'static str,
}

macro_rules! own_errors {
    ($($constant:ident = $number:literal, $name:literal, $errno:ident, $text:literal;)*) => {
        $(pub(crate) const $constant: OwnError = OwnError {
            number: $number, name: $name, errno: libc::$errno, text: $text,
        };)*
        /// All of them.
        pub(crate) const OWN: &[OwnError] = &[$($constant),*];
    };
}

own_errors! {
    NULL = -1001, "RIALTO_ENULL", EFAULT, "a pointer is NULL that must not be";
    HANDLE = -1002, "RIALTO_EHANDLE", EBADF, "no such handle: it was closed, or never made";
    IN_USE = -1003, "RIALTO_EINUSE", EBUSY, "an operation or another thread uses it now";
    ARGUMENT = -1004, "RIALTO_EARGUMENT", EINVAL, "an argument is outside of its range";
    LENGTH = -1005, "RIALTO_ELENGTH", EINVAL, "an operation moves 1 to 1,048,576 bytes";
    PATH = -1006, "RIALTO_EPATH", EINVAL, "no file can have this path";
    LOOP = -1007, "RIALTO_ELOOP", ELOOP, "too many symbolic links";
    ELSEWHERE = -1008, "RIALTO_EELSEWHERE", EXDEV, "the path leads out of the cell";
    UNREACHABLE = -1009, "RIALTO_EUNREACHABLE", EHOSTUNREACH, "no server, or it takes no client";
    LOST = -1010, "RIALTO_ELOST", EIO,
        "the session ended before the answer; whether a change was applied is unknown";
    PROTOCOL = -1011, "RIALTO_EPROTOCOL", EPROTO, "the server answered something else";
    MEMORY = -1012, "RIALTO_EMEMORY", ENOMEM, "no memory or descriptors are left";
    TIMED_OUT = -1013, "RIALTO_ETIMEDOUT", ETIMEDOUT, "too few operations ended in time";
    FORKED = -1014, "RIALTO_EFORKED", ECHILD,
        "this process forked after it had connected, and the library is not in the child";
    INTERNAL = -1015, "RIALTO_EINTERNAL", EIO, "a fault of the library; please report it";
    LOST_OPEN = -1016, "RIALTO_ELOSTOPEN", EIO,
        "the open of the file was lost, and others may have used it since; close it";
    LOST_LOCK = -1017, "RIALTO_ELOSTLOCK", EIO,
        "a lock of the file was lost, and others may have had it since; close the file";
}

/// Why a function fails.
#[derive(Debug)]
pub(crate) struct Failure {
    pub number: c_int,
    pub text: String,
}

impl From<&OwnError> for Failure {
    fn from(own: &OwnError) -> Failure {
        Failure { number: own.number, text: own.text.to_owned() }
    }
}

impl OwnError {
    /// The failure with a text that says more.
    pub fn because(&self, text: impl Into<String>) -> Failure {
        Failure { number: self.number, text: text.into() }
    }
}

impl From<DirectError> for Failure {
    fn from(error: DirectError) -> Failure {
        let number = match &error {
            DirectError::Refused(fault) => of_fault(*fault),
            DirectError::Lost => LOST.number,
            DirectError::LostOpen => LOST_OPEN.number,
            DirectError::LostLock => LOST_LOCK.number,
            DirectError::Closed => HANDLE.number,
            DirectError::Unreachable(_) => UNREACHABLE.number,
            DirectError::BadPath => PATH.number,
            DirectError::TooManyLinks => LOOP.number,
            DirectError::AbsoluteLink | DirectError::OtherCell => ELSEWHERE.number,
            DirectError::Odd => PROTOCOL.number,
            DirectError::Length(_) => LENGTH.number,
            DirectError::Memory(_) => MEMORY.number,
        };
        Failure { number, text: error.to_string() }
    }
}

/// The number of a server's refusal.
pub(crate) fn of_fault(fault: Fault) -> c_int {
    -c_int::from(fault as u16)
}

/// The errno of a server's refusal, the same as in a mount.
pub(crate) fn errno_of_fault(fault: Fault) -> c_int {
    // No `_` arm: a new fault must choose its errno here.
    match fault {
        Fault::NotFound => libc::ENOENT,
        Fault::Exists => libc::EEXIST,
        Fault::NotDirectory => libc::ENOTDIR,
        Fault::IsDirectory => libc::EISDIR,
        Fault::NotEmpty => libc::ENOTEMPTY,
        Fault::AccessDenied
        | Fault::TokenExpired
        | Fault::TokenRefused
        | Fault::Fenced
        | Fault::ShareConflict
        | Fault::KeyConflict => libc::EACCES,
        Fault::LockBroken => libc::EOWNERDEAD,
        Fault::NotPermitted => libc::EPERM,
        Fault::NoSpace => libc::ENOSPC,
        Fault::QuotaExceeded => libc::EDQUOT,
        Fault::TooBig => libc::EFBIG,
        Fault::TooManyLinks => libc::EMLINK,
        Fault::Invalid | Fault::NoPrincipal => libc::EINVAL,
        Fault::Stale => libc::ESTALE,
        Fault::ReadOnly => libc::EROFS,
        Fault::CrossVolume => libc::EXDEV,
        Fault::NoXattr => libc::ENODATA,
        Fault::XattrTooBig => libc::E2BIG,
        Fault::Locked | Fault::Conflict => libc::EAGAIN,
        Fault::Deadlock => libc::EDEADLK,
        Fault::Cancelled => libc::EINTR,
        Fault::Damaged => libc::EBADMSG,
        Fault::Medium
        | Fault::ChainAborted
        | Fault::GroupsNeeded
        | Fault::NoCredential
        | Fault::NotDelegated
        | Fault::Expired => libc::EIO,
        Fault::Unsupported => libc::EOPNOTSUPP,
        Fault::Busy => libc::EBUSY,
        Fault::NoVolume => libc::ENODEV,
        Fault::Offline => libc::ENOMEDIUM,
        Fault::CellAway => libc::EHOSTUNREACH,
        Fault::NothingThere => libc::ENXIO,
        Fault::NameTooLong => libc::ENAMETOOLONG,
    }
}

thread_local! {
    static LATEST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// This process is the child of one that had connected.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// From now on a child of this process finds that it is one.
pub(crate) fn watch_forks() {
    extern "C" fn note() {
        IS_CHILD.store(true, Ordering::Relaxed);
    }
    static WATCH: LazyLock<()> = LazyLock::new(|| {
        // SAFETY: the handler takes no argument, calls nothing, and is there as long as the process
        // has this library: glibc forgets the handlers of one that is unloaded.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(note)) };
        assert_eq!(refused, 0, "the system keeps a handler");
    });
    LazyLock::force(&WATCH);
}

fn note(failure: &Failure) {
    let text: Vec<u8> = failure.text.bytes().filter(|byte| *byte != 0).collect();
    let text = CString::new(text).expect("without zeros");
    // The thread may be ending.
    let _ = LATEST.try_with(|latest| latest.replace(Some(text)));
}

/// Runs a function of the interface. The answer is what it returns, or the number of its failure;
/// a panic is one.
pub(crate) fn answer(work: impl FnOnce() -> Result<i64, Failure>) -> i64 {
    let work = || {
        if IS_CHILD.load(Ordering::Relaxed) { Err((&FORKED).into()) } else { work() }
    };
    // An object that a panic leaves in disorder is one of the library's, whose locks are free then.
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("");
            INTERNAL.because(format!("{}: {said}", INTERNAL.text))
        }
    };
    note(&failure);
    i64::from(failure.number)
}

/// As [`answer`], of a function that returns 0.
pub(crate) fn status(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    answer(|| work().map(|()| 0)) as c_int
}

/// Name in the header and text of each number.
static TEXTS: LazyLock<BTreeMap<c_int, (CString, CString)>> = LazyLock::new(|| {
    let text = |text: &str| CString::new(text).expect("no text has a zero");
    let faults = Fault::ALL.iter().map(|fault| {
        let name = format!("RIALTO_E{fault:?}").to_uppercase();
        (of_fault(*fault), (text(&name), text(&fault.to_string())))
    });
    let own = OWN.iter().map(|own| (own.number, (text(own.name), text(own.text))));
    faults.chain(own).chain([(0, (text("RIALTO_OK"), text("no error")))]).collect()
});

/// Both texts of a number.
fn texts(error: c_int) -> (*const c_char, *const c_char) {
    let find = || {
        let found = TEXTS.get(&error).map(|(name, text)| (name.as_ptr(), text.as_ptr()));
        found.unwrap_or((c"".as_ptr(), c"an unknown number".as_ptr()))
    };
    catch_unwind(find).unwrap_or((c"".as_ptr(), c"".as_ptr()))
}

/// The version of the interface: that of the header.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_abi() -> c_int {
    1
}

/// The text of the latest failure in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_error_text() -> *const c_char {
    let text = |latest: &RefCell<Option<CString>>| {
        latest.borrow().as_ref().map_or(c"".as_ptr(), |text| text.as_ptr())
    };
    LATEST.try_with(text).unwrap_or(c"".as_ptr())
}

/// The text of an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_error_string(error: c_int) -> *const c_char {
    texts(error).1
}

/// The name of an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_error_name(error: c_int) -> *const c_char {
    texts(error).0
}

/// The errno of an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_errno(error: c_int) -> c_int {
    let own = OWN.iter().find(|own| own.number == error).map(|own| own.errno);
    let fault = || Fault::ALL.iter().find(|fault| of_fault(**fault) == error);
    own.or_else(|| fault().map(|fault| errno_of_fault(*fault))).unwrap_or(match error {
        0 => 0,
        _ => libc::EIO,
    })
}
