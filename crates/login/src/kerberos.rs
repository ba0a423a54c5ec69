//! Kerberos 5, through GSS-API (MIT's library): a ticket for the cell in place of a password.
//!
//! One message goes each way. The user's program makes a *request* (an AP-REQ) with a ticket of its
//! credential cache, for the key of the client that has the user's tokens: the key is in the
//! channel binding, so no other client gets a token for that request, and a listener cannot use it.
//! The server verifies it with the keys of its keytab and proves that in its *reply* (an AP-REP),
//! so that the user's program knows that the reply is the cell's.
//!
//! The service is called `rialto/CELL`, or `afs/CELL` where that exists already. A principal of the
//! cell's realm is the user of the same name (`joe`, `joe/admin`), one of another realm is
//! `joe@realm`, the realm in small letters as in AFS.

use std::ffi::CString;
use std::fmt;
use std::path::{Path, PathBuf};

use guard::{Public, Vouched};
use libgssapi::context::{ClientCtx, CtxFlags, SecurityContext, ServerCtx};
use libgssapi::credential::{Cred, CredUsage};
use libgssapi::name::Name;
use libgssapi::oid::{GSS_MECH_KRB5, GSS_NT_KRB5_PRINCIPAL, OidSet};

/// The first bytes of Rialto's channel bindings.
const BOUND: &[u8] = b"rialto kerberos 1";
/// `GSS_C_CHANNEL_BOUND_FLAG` (RFC 5554 as MIT has it since 1.19): both sides gave the same
/// binding.
const CHANNEL_BOUND: u32 = 2048;

/// Why a ticket is not made or not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KerberosError {
    /// The library's error.
    #[error("{0}")]
    Library(String),
    /// It was made for another client's key, or for none.
    #[error("the ticket was not made for this client")]
    Unbound,
    /// It takes more than one message each way.
    #[error("the request or reply is incomplete")]
    Incomplete,
    /// The name that it shows cannot be a user's.
    #[error("'{0}' is no name of a user")]
    Name(String),
    /// The path of the service's keys cannot be one.
    #[error("{} cannot be a keytab", .0.display())]
    Keytab(PathBuf),
}

impl From<libgssapi::error::Error> for KerberosError {
    fn from(error: libgssapi::error::Error) -> KerberosError {
        // The library's text has a line for each of its layers.
        let text = error.to_string();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        KerberosError::Library(lines.collect::<Vec<_>>().join("; "))
    }
}

fn binding(client: &Public) -> Vec<u8> {
    [BOUND, client].concat()
}

fn krb5() -> Result<OidSet, KerberosError> {
    let mut mechanisms = OidSet::new();
    mechanisms.add(GSS_MECH_KRB5)?;
    Ok(mechanisms)
}

/// The cell as a service. One in a process: the library has one keytab.
pub struct Service {
    realm: String,
    keys: Cred,
    /// Unknown users are created at their first login.
    pub creates: bool,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service({})", self.realm)
    }
}

impl Service {
    /// With the keys in this file. Users of `realm` are the cell's own. `creates` as in the field.
    ///
    /// # Errors
    /// The file is no keytab, or has no keys, or cannot be read.
    pub fn new(keytab: &Path, realm: &str, creates: bool) -> Result<Service, KerberosError> {
        let bad = || KerberosError::Keytab(keytab.to_owned());
        let place = CString::new(format!("FILE:{}", keytab.to_str().ok_or_else(bad)?))
            .map_err(|_| bad())?;
        if !mem::kerberos::accept_with(&place) {
            return Err(bad());
        }
        let keys = Cred::acquire(None, None, CredUsage::Accept, Some(&krb5()?))?;
        Ok(Service { realm: realm.to_owned(), keys, creates })
    }

    /// The user who made the request, for the client with this key. Takes some hundred
    /// microseconds; the library stores the requests that it has seen in a file.
    ///
    /// # Errors
    /// [`KerberosError`]: no user is proved.
    pub fn accept(&self, request: &[u8], client: &Public) -> Result<Vouched, KerberosError> {
        let mut context = ServerCtx::new(Some(self.keys.clone()));
        let reply = context.step(request, Some(&binding(client)))?;
        if !context.is_complete() {
            return Err(KerberosError::Incomplete);
        }
        if context.flags()?.bits() & CHANNEL_BOUND == 0 {
            return Err(KerberosError::Unbound);
        }
        let who = context.source_name()?.display_name()?;
        let name = user(&String::from_utf8_lossy(&who), &self.realm)?;
        let reply = reply.ok_or(KerberosError::Incomplete)?.to_vec();
        Ok(Vouched { name, left: context.lifetime()?, reply })
    }
}

/// The user's name in a cell of `realm`; a user of another realm gets the suffix `@` and that
/// realm.
fn user(principal: &str, realm: &str) -> Result<String, KerberosError> {
    let bad = || KerberosError::Name(principal.to_owned());
    let (who, of) = principal.rsplit_once('@').ok_or_else(bad)?;
    let is_foreign = of != realm;
    // Two realms that differ only in case would become one.
    if is_foreign && of.contains(char::is_lowercase) {
        return Err(bad());
    }
    let name = if is_foreign { format!("{who}@{}", of.to_lowercase()) } else { who.to_owned() };
    // The library escapes characters that would become a part of the name with a backslash, and an
    // '@' in it would make it the name of another user.
    if who.contains(['\\', '@']) || guard::check_user_name(&name).is_err() {
        return Err(bad());
    }
    Ok(name)
}

/// A user's request, and the state to check the reply.
pub struct PendingTicket {
    context: ClientCtx,
    binding: Vec<u8>,
    /// For the server.
    pub request: Vec<u8>,
}

impl fmt::Debug for PendingTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket")
    }
}

impl PendingTicket {
    /// With the credential cache of this process's environment, for `service` (`rialto/CELL`, with
    /// or without `@REALM`) and the client with this key. May ask the realm's servers.
    ///
    /// # Errors
    /// The library's: no tickets, ended ones, an unknown service, no server of the realm.
    pub fn new(service: &str, client: &Public) -> Result<PendingTicket, KerberosError> {
        let target = Name::new(service.as_bytes(), Some(GSS_NT_KRB5_PRINCIPAL))?;
        let mine = Cred::acquire(None, None, CredUsage::Initiate, Some(&krb5()?))?;
        let flags = CtxFlags::GSS_C_MUTUAL_FLAG | CtxFlags::GSS_C_INTEG_FLAG;
        let mut context = ClientCtx::new(Some(mine), target, flags, Some(GSS_MECH_KRB5));
        let binding = binding(client);
        let request =
            context.step(None, Some(&binding))?.ok_or(KerberosError::Incomplete)?.to_vec();
        Ok(PendingTicket { context, binding, request })
    }

    /// Checks that the cell has made this reply: only the cell can.
    ///
    /// # Errors
    /// Another service made it, or it is no reply.
    pub fn check(mut self, reply: &[u8]) -> Result<(), KerberosError> {
        self.context.step(Some(reply), Some(&self.binding))?;
        if self.context.is_complete() { Ok(()) } else { Err(KerberosError::Incomplete) }
    }
}

pub use mem::kerberos::ServiceTicket;

/// A ticket for a service with its session key, of the credential cache of this process's
/// environment, for services that are not asked through GSS-API. May ask the realm's servers.
///
/// # Errors
/// The library's: no tickets, ended ones, an unknown service, no server of the realm.
pub fn service_ticket(service: &str) -> Result<ServiceTicket, KerberosError> {
    let name = CString::new(service).map_err(|_| KerberosError::Name(service.to_owned()))?;
    mem::kerberos::service_ticket(&name).map_err(KerberosError::Library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_is_exactly_one_user() {
        let of = |principal: &str| user(principal, "EXAMPLE.ORG").ok();
        let own = |name: &str| Some(name.to_owned());
        assert_eq!(of("joe@EXAMPLE.ORG"), own("joe"));
        assert_eq!(of("joe/admin@EXAMPLE.ORG"), own("joe/admin"));
        assert_eq!(of("Joe@EXAMPLE.ORG"), own("Joe"));
        assert_eq!(of("joe@OTHER.ORG"), own("joe@other.org"));
        assert_eq!(of("Joe@OTHER.ORG"), own("Joe@other.org"));
        for none in [
            "joe",
            "joe@example.org",
            "@EXAMPLE.ORG",
            "joe\\@x@EXAMPLE.ORG",
            "a:b@EXAMPLE.ORG",
            "a@b@EXAMPLE.ORG",
            "17@EXAMPLE.ORG",
            "",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
