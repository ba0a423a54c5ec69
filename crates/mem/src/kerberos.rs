//! Where MIT Kerberos finds the keys of this process as a service. Its only other way is a variable
//! of the environment.

use std::ffi::{CStr, c_char, c_uint};

#[link(name = "gssapi_krb5")]
unsafe extern "C" {
    fn krb5_gss_register_acceptor_identity(keytab: *const c_char) -> c_uint;
}

/// From now on contexts are accepted with the keys of this keytab, such as `FILE:/etc/krb5.keytab`.
/// For the whole process. False: there is no memory for the name.
#[must_use]
pub fn accept_with(keytab: &CStr) -> bool {
    // SAFETY: the library copies the string, which ends with a zero and lives for the length of the
    // call; it guards its copy with a lock of its own.
    unsafe { krb5_gss_register_acceptor_identity(keytab.as_ptr()) == 0 }
}
