//! Verifies the identity of the other end of a connection, and of the callers who come over it.
//!
//! A *trusted* connection may name its callers: the server's own Unix socket, used by the superuser
//! or the server's own user, a server of the cell, and a *trusted host*. Over the Unix socket for
//! users a caller is the user whom the kernel reports, whatever name it gives. A server of the cell
//! is the other end if it showed a certificate whose key the cell database lists, whatever
//! authority made it. A certificate of the cell's own authority for a server, whose key is not
//! listed, lets its holder enter that key in the database, and is worth nothing else
//! (`guard/servers.rs`). A trusted host is one whose address the configuration lists, and of which
//! only its superuser can have connected: from a reserved port, or with a host certificate. It
//! names its users, and its superuser only if the configuration allows that, and is never a server
//! or an administrator. Over any other connection a name is not accepted; a token is, with a proof
//! that was made for this connection. In clear text others may read along or answer, so tokens are
//! refused there.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use dafs::credentials::{Hash, TokenProof};
use fabric::tls::ClientCertificate as Certificate;
use guard::{AuditEvent, Binding, Network, Token, TokenError};
use login::TokenIssuer;
use types::{AuthLevel, Caller, Fault, Host, PrincipalId, RequestIdentity, Timestamp};
use vice::Vice;

use crate::audit::Audit;
use crate::loopback::wall;
use crate::security::{Certified, Security};
use crate::usage::Bounds;

/// The uid and gid of *nobody* for mode bits: as NFS has it.
const NOBODY_ID: u32 = 65534;

/// The settings of a server by which it verifies connections.
pub(crate) struct TrustSettings {
    /// Has the list of server keys.
    pub vice: Arc<Vice>,
    /// Verifies tokens; `None`: this server accepts none.
    pub mint: Option<Arc<TokenIssuer>>,
    /// Records refusals.
    pub audit: Option<Arc<Audit>>,
    /// Addresses of hosts that may be trusted.
    pub trusted: Vec<Network>,
    /// Their uid 0 is not squashed.
    pub trusted_root: bool,
    /// Of tests: see [`crate::ServerConfig::trust_this_machine`].
    pub owners: Vec<Network>,
    /// Limits the log lines.
    pub bounds: Arc<Bounds>,
}

impl fmt::Debug for TrustSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Porter").field("trusted", &self.trusted).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct ConnectionVerifier {
    trust: Arc<TrustSettings>,
    security: Security,
    /// As it was when the connection attached; it is closed when that changes.
    certified: Certified,
    host: Option<IpAddr>,
    port: Option<u16>,
    challenge: Hash,
}

/// Without root's groups, as NFS has it.
fn squashed(caller: Caller) -> Caller {
    let other = |gid: u32| if gid == 0 { NOBODY_ID } else { gid };
    let groups = caller.groups.map(|groups| groups.iter().copied().map(other).collect());
    Caller { gid: other(caller.gid), groups, ..caller }
}

impl TrustSettings {
    /// The worth of a connection's certificate now.
    pub fn certified(&self, security: Security) -> Certified {
        let Security::Tls { shown, .. } = security else { return Certified::No };
        match shown.key().filter(|key| self.vice.lists_server(key)) {
            Some(key) => Certified::Server(key),
            None => match shown {
                Certificate::Nothing | Certificate::Unknown(_) => Certified::No,
                Certificate::Host(_) => Certified::Host,
                Certificate::CellServer(key) => Certified::Enrolling(key),
            },
        }
    }

    /// Records a refusal before there is a session. Of one host and reason one line a minute is
    /// written, with the number of refusals.
    pub fn record_refusal(&self, request: &str, host: Option<IpAddr>, why: &str) {
        let Some(audit) = &self.audit else { return };
        let now = wall();
        audit.saw_host_refusal(AuditEvent {
            time: now.secs.saturating_mul(1000).saturating_add(i64::from(now.nanos / 1_000_000)),
            kind: "authentication".to_owned(),
            level: "nobody".to_owned(),
            host: host.map(|host| host.to_string()),
            request: request.to_owned(),
            result: why.to_owned(),
            ..AuditEvent::default()
        });
    }
}

impl ConnectionVerifier {
    pub fn new(
        trust: &Arc<TrustSettings>,
        security: Security,
        peer: Option<SocketAddr>,
    ) -> ConnectionVerifier {
        let (host, port) = (peer.map(|peer| peer.ip()), peer.map(|peer| peer.port()));
        let certified = trust.certified(security);
        ConnectionVerifier {
            trust: Arc::clone(trust),
            security,
            certified,
            host,
            port,
            challenge: rand::random(),
        }
    }

    /// The worth of the other end's certificate when the connection attached.
    pub fn certified(&self) -> Certified {
        self.certified
    }

    /// Does it accept callers' names without a token?
    pub fn is_open(&self) -> bool {
        self.believes().is_some()
    }

    /// The host of the other end, for the limits; `None` for the server's own user and for servers
    /// of the cell.
    pub fn bounded_host(&self) -> Option<Host> {
        match (self.security, self.certified) {
            (Security::Local, _) | (_, Certified::Server(_)) => None,
            (Security::User(_), _) => self.security.local_user(),
            (Security::Tls { .. } | Security::Clear, _) => self.host.map(Host::of),
        }
    }

    /// The level at which a name is accepted; `None`: it is not.
    fn believes(&self) -> Option<AuthLevel> {
        let is_of = |all: &[Network]| {
            self.host.is_some_and(|host| all.iter().any(|network| network.has(host)))
        };
        match (self.security, self.certified) {
            (Security::Local, _) => Some(AuthLevel::Named),
            (Security::User(_), _) => {
                self.security.is_of_known_user().then_some(AuthLevel::Attested)
            }
            (_, Certified::Server(_)) => Some(AuthLevel::Server),
            _ if is_of(&self.trust.owners) => Some(AuthLevel::Named),
            (_, Certified::Enrolling(_)) => None,
            _ => (is_of(&self.trust.trusted) && self.is_of_its_superuser())
                .then_some(AuthLevel::Host),
        }
    }

    /// Can no ordinary process of the other machine have made the connection?
    fn is_of_its_superuser(&self) -> bool {
        self.certified == Certified::Host
            || self.port.is_some_and(|port| port < fabric::RESERVED_PORTS_END)
    }

    fn nobody(&self) -> Caller {
        let level = if matches!(self.certified, Certified::Enrolling(_)) {
            AuthLevel::Enrolling
        } else {
            AuthLevel::Nobody
        };
        Caller {
            uid: NOBODY_ID,
            gid: NOBODY_ID,
            groups: Some(Box::default()),
            who: self.who(level),
        }
    }

    fn who(&self, level: AuthLevel) -> RequestIdentity {
        let server = match self.certified {
            Certified::Server(key) => Some(key),
            Certified::Enrolling(key) => Some(key).filter(|_| level == AuthLevel::Enrolling),
            Certified::No | Certified::Host => None,
        };
        debug_assert!(
            level != AuthLevel::Server || server.is_some(),
            "AC-10: a caller at the level of servers has a listed key"
        );
        RequestIdentity {
            level,
            host: self.host,
            overheard: self.is_clear(),
            server,
            ..RequestIdentity::NOBODY
        }
    }

    fn is_clear(&self) -> bool {
        matches!(self.security, Security::Clear)
    }

    fn binding(&self) -> Binding {
        let certificate = match &self.security {
            Security::Tls { server, .. } => Some(&server.0),
            Security::Local | Security::User(_) | Security::Clear => None,
        };
        guard::binding(certificate, &self.challenge)
    }

    fn take(&self, shown: &TokenProof, now: Timestamp) -> Result<Token, TokenError> {
        let mint = self.trust.mint.as_ref().ok_or(TokenError::UnknownKey)?;
        mint.take(&shown.token, &self.binding(), &shown.proof, now)
    }
}

impl dafs::credentials::CredentialVerifier for ConnectionVerifier {
    fn challenge(&self) -> Hash {
        self.challenge
    }

    fn named(&self, caller: Caller) -> Caller {
        match (self.believes(), self.security) {
            // The kernel reports the user of the other end; its groups are not read.
            (Some(AuthLevel::Attested), Security::User(peer)) => Caller {
                uid: peer.uid,
                gid: peer.gid,
                groups: Some(Box::default()),
                who: self.who(AuthLevel::Attested),
            },
            // A server acts on its own behalf as the superuser; for users it speaks like any
            // trusted host.
            (Some(AuthLevel::Server), _) if caller.uid != 0 => {
                Caller { who: self.who(AuthLevel::Named), ..caller }
            }
            (Some(AuthLevel::Host), _) if !self.trust.trusted_root => match caller.uid {
                0 => self.nobody(),
                _ => squashed(Caller { who: self.who(AuthLevel::Host), ..caller }),
            },
            (Some(level), _) => Caller { who: self.who(level), ..caller },
            (None, _) => self.nobody(),
        }
    }

    fn hands_out_bodies(&self) -> bool {
        !matches!(self.security, Security::User(_))
    }

    fn shown(&self, shown: &TokenProof) -> Result<Caller, Fault> {
        if self.security == Security::Clear && self.believes().is_none() {
            if let Some(before) =
                self.trust.bounds.may_log("token in clear text", self.bounded_host())
            {
                tracing::info!(host = ?self.host, before, "a token in clear text is refused");
            }
            self.trust.record_refusal("door.token", self.host, "token in clear text");
            return Err(Fault::TokenRefused);
        }
        let token = self.take(shown, wall()).map_err(|error| {
            if let Some(before) = self.trust.bounds.may_log("token", self.bounded_host()) {
                tracing::info!(host = ?self.host, %error, before, "a token is refused");
            }
            self.trust.record_refusal("door.token", self.host, &error.to_string());
            if error == TokenError::Expired { Fault::TokenExpired } else { Fault::TokenRefused }
        })?;
        let who = RequestIdentity {
            principal: token.principal,
            level: token.level,
            issued: token.issued,
            ends: Some(Timestamp::new(token.expires, 0)),
            token: token.number,
            key: token.key,
            overheard: self.is_clear(),
            host: self.host,
            server: None,
        };
        debug_assert!(who.principal != PrincipalId::NONE, "AC-3: a token is of a principal");
        // The service finds the ids in the posix model (`vice/cell/identities.rs`).
        Ok(Caller { uid: NOBODY_ID, gid: NOBODY_ID, groups: Some(Box::default()), who })
    }
}
