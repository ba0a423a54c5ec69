//! Access decisions: access lists, group membership, tokens, the table of calls. No I/O and no
//! clock (`docs/spec/access.md`).

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod acl;
mod audit;
mod authenticator;
mod cps;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod joining;
mod names;
mod principal_book;
mod pts;
mod rights;
mod rules;
mod servers;
mod table;
mod token;

pub use acl::{ACL_BYTES_MAX, Acl, AclEntry, AclError};
pub use audit::{
    AuditBody, AuditCheck, AuditEvent, AuditHead, AuditLine, NO_HASH, audit_check, audit_hash,
    audit_matches, audit_missing,
};
pub use authenticator::{Authenticator, TokenOrigin, TokenRequest, Tried, Vouched};
pub use cps::Cps;
pub use joining::{
    CERTIFIED_HOSTS_MAX, CertifiedServer, Certifier, JoinCode, JoinFacts, JoinRequest,
};
pub use names::{Network, check_group_name, check_user_name};
pub use principal_book::{
    Book, FIRST, GroupLink, Highest, MemBook, Write, is_system, subdomain, system_principals,
};
pub use pts::{Edit, PtsAsker, find, perform};
pub use rights::{Rights, RightsError};
pub use rules::{
    Fences, Rule, Rules, RulesEdit, Suspect, base_name, pattern_has, realm_has_name, realm_has_room,
};
pub use servers::{ServerKeys, may_enrol, server_may};
pub use table::{AdminScope, AdminStanding, Row, row};
pub use token::{
    Binding, PUBLIC_BYTES, Public, SIGNATURE_BYTES, SKEW_SECS, Signature, Signer, TOKEN_BYTES_MAX,
    Token, TokenError, binding, prove,
};
