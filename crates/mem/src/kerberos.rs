//! MIT Kerberos beneath GSS-API: the keytab of this process as a service, whose only other setting
//! is an environment variable; and a service's ticket with its session key, which GSS-API does not
//! show.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

#[link(name = "gssapi_krb5")]
unsafe extern "C" {
    fn krb5_gss_register_acceptor_identity(keytab: *const c_char) -> c_uint;
}

/// The library's state of this process, a credential cache, and a principal: pointers that only
/// the library looks behind.
type Context = *mut c_void;
type Cache = *mut c_void;
type Principal = *mut c_void;

/// Source: `krb5.h`, whose structures are the library's public interface.
#[repr(C)]
struct KeyBlock {
    magic: c_int,
    kind: c_int,
    length: c_uint,
    contents: *mut u8,
}

#[repr(C)]
struct Data {
    magic: c_int,
    length: c_uint,
    data: *mut c_char,
}

#[repr(C)]
struct Credentials {
    magic: c_int,
    client: Principal,
    server: Principal,
    key: KeyBlock,
    /// Of the authentication, of begin and end, and until when it can be renewed.
    times: [c_int; 4],
    is_second_key: c_uint,
    flags: c_int,
    addresses: *mut c_void,
    ticket: Data,
    second_ticket: Data,
    authorizations: *mut c_void,
}

#[link(name = "krb5")]
unsafe extern "C" {
    fn krb5_init_context(context: *mut Context) -> c_int;
    fn krb5_free_context(context: Context);
    fn krb5_cc_default(context: Context, cache: *mut Cache) -> c_int;
    fn krb5_cc_close(context: Context, cache: Cache) -> c_int;
    fn krb5_cc_get_principal(context: Context, cache: Cache, owner: *mut Principal) -> c_int;
    fn krb5_parse_name(context: Context, name: *const c_char, made: *mut Principal) -> c_int;
    fn krb5_unparse_name(context: Context, of: Principal, name: *mut *mut c_char) -> c_int;
    fn krb5_free_unparsed_name(context: Context, name: *mut c_char);
    fn krb5_free_principal(context: Context, principal: Principal);
    fn krb5_get_credentials(
        context: Context,
        options: c_int,
        cache: Cache,
        wanted: *mut Credentials,
        found: *mut *mut Credentials,
    ) -> c_int;
    fn krb5_free_creds(context: Context, credentials: *mut Credentials);
    fn krb5_get_error_message(context: Context, code: c_int) -> *const c_char;
    fn krb5_free_error_message(context: Context, message: *const c_char);
}

/// Sets the keytab for accepting contexts, such as `FILE:/etc/krb5.keytab`, for the whole process
/// from now on. False: there is no memory for the name.
#[must_use]
pub fn accept_with(keytab: &CStr) -> bool {
    // SAFETY: the library copies the string, which ends with a zero and outlives the call; its own
    // lock guards the copy.
    unsafe { krb5_gss_register_acceptor_identity(keytab.as_ptr()) == 0 }
}

/// A ticket for a service.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceTicket {
    /// The user's principal, as `joe@EXAMPLE.ORG`.
    pub client: Vec<u8>,
    /// The encryption type of the session key.
    pub key_type: i32,
    /// The session key.
    pub key: Vec<u8>,
    /// The ticket as the realm made it.
    pub ticket: Vec<u8>,
    /// Begin and end, in seconds since 1970.
    pub valid: (u32, u32),
}

/// Things of the library, which are given back in the opposite order.
struct Library {
    context: Context,
    cache: Cache,
    client: Principal,
    server: Principal,
    found: *mut Credentials,
}

/// A ticket for `service` (`NAME/HOST@REALM`, or without the realm in the default one), of the
/// credential cache of this process's environment. May ask the realm's servers.
///
/// # Errors
/// The library's text.
pub fn service_ticket(service: &CStr) -> Result<ServiceTicket, String> {
    let (mut context, none) = (null_mut(), null_mut());
    // SAFETY: the library writes a pointer into the place that it is given, or fails.
    if unsafe { krb5_init_context(&raw mut context) } != 0 {
        return Err("the Kerberos library cannot be used".to_owned());
    }
    let mut it = Library { context, cache: none, client: none, server: none, found: null_mut() };
    // SAFETY: the context is valid until `it` is dropped; the library writes into the places.
    check(context, unsafe { krb5_cc_default(it.context, &raw mut it.cache) })?;
    // SAFETY: likewise, and the cache is open.
    check(context, unsafe { krb5_cc_get_principal(it.context, it.cache, &raw mut it.client) })?;
    // SAFETY: likewise; the name ends with a zero.
    check(context, unsafe { krb5_parse_name(it.context, service.as_ptr(), &raw mut it.server) })?;
    let nothing = || Data { magic: 0, length: 0, data: null_mut() };
    let mut wanted = Credentials {
        magic: 0,
        client: it.client,
        server: it.server,
        key: KeyBlock { magic: 0, kind: 0, length: 0, contents: null_mut() },
        times: [0; 4],
        is_second_key: 0,
        flags: 0,
        addresses: null_mut(),
        ticket: nothing(),
        second_ticket: nothing(),
        authorizations: null_mut(),
    };
    // SAFETY: all pointers are valid; the library reads `wanted` and writes into `found`.
    check(context, unsafe {
        krb5_get_credentials(it.context, 0, it.cache, &raw mut wanted, &raw mut it.found)
    })?;
    let mut name = null_mut();
    // SAFETY: the principal is valid, and the library writes a pointer into `name`.
    check(context, unsafe { krb5_unparse_name(it.context, it.client, &raw mut name) })?;
    // SAFETY: the library made the text, which ends with a zero and is not given back yet.
    let client = unsafe { CStr::from_ptr(name) }.to_bytes().to_vec();
    // SAFETY: it is given back once.
    unsafe { krb5_free_unparsed_name(it.context, name) };
    // SAFETY: the library filled `found` in, and it is given back when `it` is dropped.
    let found = unsafe { &*it.found };
    let bytes = |at: *const u8, length: c_uint| {
        if at.is_null() {
            return Vec::new();
        }
        // SAFETY: the library says that so many bytes are there.
        unsafe { std::slice::from_raw_parts(at, length as usize) }.to_vec()
    };
    let [_, start, end, _] = found.times.map(c_int::cast_unsigned);
    Ok(ServiceTicket {
        client,
        key_type: found.key.kind,
        key: bytes(found.key.contents, found.key.length),
        ticket: bytes(found.ticket.data.cast(), found.ticket.length),
        valid: (start, end),
    })
}

fn check(context: Context, code: c_int) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the context is valid; the library returns a text for each code.
    let message = unsafe { krb5_get_error_message(context, code) };
    if message.is_null() {
        return Err(format!("Kerberos error {code}"));
    }
    // SAFETY: the text ends with a zero, and is not given back yet.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    // SAFETY: it is given back once.
    unsafe { krb5_free_error_message(context, message) };
    Err(text)
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the library made each of these that is not null, for this context, and each is
        // given back once.
        unsafe {
            if !self.found.is_null() {
                krb5_free_creds(self.context, self.found);
            }
            for principal in [self.server, self.client] {
                if !principal.is_null() {
                    krb5_free_principal(self.context, principal);
                }
            }
            if !self.cache.is_null() {
                krb5_cc_close(self.context, self.cache);
            }
            krb5_free_context(self.context);
        }
    }
}
