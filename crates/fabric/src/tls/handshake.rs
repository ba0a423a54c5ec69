//! A handshake, without I/O: it takes records, returns bytes, and yields both directions' keys at
//! the end.
//!
//! Its caller passes one record at a time, so that the handshake never holds bytes that follow it.

use std::fmt;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use types::{KeyPrint, ServerRoles};

use super::config::Current;
use super::records::{Kernel, TrafficKeys};
use super::shown::roles_of;
use super::{ClientCertificate, ClientTls, Fingerprint, Opener, Sealer, ServerTls, TlsError};

/// Most bytes of incomplete handshake messages: chains of certificates are the longest.
const INCOMING_BYTES_MAX: usize = 64 << 10;

/// See the head of the file.
pub struct Handshake {
    side: Side,
    /// Received bytes that are not consumed: a message may span several records.
    incoming: Vec<u8>,
}

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection, Current),
}

/// The result of a handshake.
#[derive(Debug)]
pub struct Secured {
    /// For the sending direction.
    pub sealer: Sealer,
    /// For the receiving direction.
    pub opener: Opener,
    /// Of the server's own certificate, which both ends of this connection know.
    pub server: Fingerprint,
    /// The key of the server's certificate, on the client.
    pub server_key: Option<KeyPrint>,
    /// The roles that the server's certificate says, on the client.
    pub server_roles: ServerRoles,
    /// The certificate whose key the client proved to have; on the client
    /// [`ClientCertificate::Nothing`].
    pub shown: ClientCertificate,
}

enum Turn {
    Again,
    NeedsMore,
}

impl Handshake {
    /// A client's handshake with `host`.
    ///
    /// # Errors
    /// [`TlsError`]: `host` is not a name, or the configuration is unusable.
    pub fn client(tls: &ClientTls, host: &str) -> Result<Handshake, TlsError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| TlsError(format!("{host} is not a host's name")))?;
        let side = Side::Client(UnbufferedClientConnection::new(tls.config(), name)?);
        Ok(Handshake { side, incoming: Vec::new() })
    }

    /// A server's handshake.
    ///
    /// # Errors
    /// [`TlsError`]: the configuration is unusable.
    pub fn server(tls: &ServerTls) -> Result<Handshake, TlsError> {
        let current = tls.config();
        let side =
            Side::Server(UnbufferedServerConnection::new(Arc::clone(&current.config))?, current);
        Ok(Handshake { side, incoming: Vec::new() })
    }

    /// Takes one record (a client's first step: none) and appends the bytes to send. `true`: the
    /// handshake is done; call [`Handshake::finish`] after sending them.
    ///
    /// # Errors
    /// [`TlsError`]; the appended bytes report it to the peer.
    pub fn step(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<bool, TlsError> {
        if self.incoming.len() + record.len() > INCOMING_BYTES_MAX {
            return Err(TlsError("the handshake is too long".to_owned()));
        }
        self.incoming.extend_from_slice(record);
        loop {
            match self.turn(out) {
                Ok(Turn::Again) => {}
                Ok(Turn::NeedsMore) => break,
                Err(error) => {
                    // The first bytes after an error are the alert, and nothing else matters.
                    let _ = self.turn(out);
                    return Err(error.into());
                }
            }
        }
        Ok(match &self.side {
            Side::Client(connection) => !connection.is_handshaking(),
            Side::Server(connection, _) => !connection.is_handshaking(),
        })
    }

    fn turn(&mut self, out: &mut Vec<u8>) -> Result<Turn, rustls::Error> {
        let (used, turned) = match &mut self.side {
            Side::Client(connection) => {
                turn(connection.process_tls_records(&mut self.incoming), out)
            }
            Side::Server(connection, _) => {
                turn(connection.process_tls_records(&mut self.incoming), out)
            }
        };
        self.incoming.drain(..used);
        turned
    }

    /// The keys of both directions.
    ///
    /// # Errors
    /// [`TlsError`] if the handshake is not done.
    pub fn finish(self) -> Result<Secured, TlsError> {
        let leaf = |chain: Option<&[CertificateDer<'_>]>| {
            chain.and_then(|chain| chain.first()).map(|leaf| Fingerprint::of(leaf))
        };
        let key_of = |chain: Option<&[CertificateDer<'_>]>| {
            chain.and_then(|chain| chain.first()).and_then(|leaf| super::key_print(leaf))
        };
        let server_key = match &self.side {
            Side::Client(connection) => key_of(connection.peer_certificates()),
            Side::Server(..) => None,
        };
        let server_roles = match &self.side {
            Side::Client(connection) => {
                let chain = connection.peer_certificates();
                chain.and_then(|chain| chain.first()).map_or(ServerRoles::NONE, roles_of)
            }
            Side::Server(..) => ServerRoles::NONE,
        };
        let (server, shown, secrets, kernel, suite) = match self.side {
            Side::Client(connection) => {
                let server = leaf(connection.peer_certificates());
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                let suite = kernel.negotiated_cipher_suite();
                (server, ClientCertificate::Nothing, secrets, Kernel::Client(kernel), suite)
            }
            Side::Server(connection, current) => {
                let shown = current.verifier.classify(connection.peer_certificates());
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                let suite = kernel.negotiated_cipher_suite();
                (Some(current.leaf), shown, secrets, Kernel::Server(kernel), suite)
            }
        };
        let server =
            server.ok_or_else(|| TlsError("the server showed no certificate".to_owned()))?;
        let keys = Arc::new(TrafficKeys::new(kernel, suite)?);
        let sealer = Sealer::new(secrets.tx, Arc::clone(&keys))?;
        let opener = Opener::new(secrets.rx, keys)?;
        Ok(Secured { sealer, opener, server, server_key, server_roles, shown })
    }
}

fn turn<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    out: &mut Vec<u8>,
) -> (usize, Result<Turn, rustls::Error>) {
    let turned = status.state.and_then(|state| match state {
        ConnectionState::EncodeTlsData(mut data) => {
            let had = out.len();
            // An upper bound of any flight of this side, certificates included.
            out.resize(had + (64 << 10), 0);
            let count = data
                .encode(&mut out[had..])
                .map_err(|error| rustls::Error::General(error.to_string()));
            out.truncate(had + count.as_ref().copied().unwrap_or(0));
            count.map(|_| Turn::Again)
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(Turn::Again)
        }
        ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => Ok(Turn::NeedsMore),
        _ => Err(rustls::Error::General(
            "the peer sent data before the end of the handshake".to_owned(),
        )),
    });
    (status.discard, turned)
}

// Omits the keys.
impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handshake")
    }
}
