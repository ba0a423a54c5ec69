//! The keytab of this process as a service, for MIT Kerberos. The only other way to set it is an
//! environment variable.

use std::ffi::{CStr, c_char, c_uint};

#[link(name = "gssapi_krb5")]
unsafe extern "C" {
    fn krb5_gss_register_acceptor_identity(keytab: *const c_char) -> c_uint;
}

/// Sets the keytab for accepting contexts, such as `FILE:/etc/krb5.keytab`, for the whole process
/// from now on. False: there is no memory for the name.
#[must_use]
pub fn accept_with(keytab: &CStr) -> bool {
    // SAFETY: the library copies the string, which ends with a zero and outlives the call; its own
    // lock guards the copy.
    unsafe { krb5_gss_register_acceptor_identity(keytab.as_ptr()) == 0 }
}
