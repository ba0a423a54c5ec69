//! A handshake, without I/O: records in, bytes out, and in the end both directions' keys.
//!
//! It is fed one record at a time, so that nothing of what follows the handshake is in it when it
//! ends.

use std::sync::Arc;
use std::time::Instant;
use std::{fmt, io};

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};

use super::config::Current;
use super::records::{HEAD_BYTES, Kernel, TrafficKeys, record_bytes};
use super::{ClientCertificate, ClientTls, Fingerprint, Opener, Sealer, ServerTls, TlsError};
use crate::Connection;

/// Of what our protocol says first in clear text.
const CLEAR_FIRST_BYTE: u8 = b'R';
/// Messages of a handshake that are not whole: chains of certificates are the longest.
const INCOMING_BYTES_MAX: usize = 64 << 10;

/// See the head of the file.
pub struct Handshake {
    side: Side,
    /// What has come and is not used up: a message may lie in several records.
    incoming: Vec<u8>,
}

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection, Current),
}

/// A connection whose handshake is done.
#[derive(Debug)]
pub struct Secured {
    /// For what leaves.
    pub sealer: Sealer,
    /// For what comes.
    pub opener: Opener,
    /// Of the server's own certificate, as both ends of this connection know it.
    pub server: Fingerprint,
    /// The certificate whose key the client proved to have; at the client
    /// [`ClientCertificate::Nothing`].
    pub shown: ClientCertificate,
}

enum Turn {
    Again,
    NeedsMore,
}

impl Handshake {
    /// Of a client that reaches for `host`.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn client(tls: &ClientTls, host: &str) -> Result<Handshake, TlsError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| TlsError(format!("{host} is no host's name")))?;
        let side = Side::Client(UnbufferedClientConnection::new(tls.config(), name)?);
        Ok(Handshake { side, incoming: Vec::new() })
    }

    /// Of a server.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn server(tls: &ServerTls) -> Result<Handshake, TlsError> {
        let current = tls.config();
        let side =
            Side::Server(UnbufferedServerConnection::new(Arc::clone(&current.config))?, current);
        Ok(Handshake { side, incoming: Vec::new() })
    }

    /// Takes in one record (of a client at first: none) and puts out what is to be sent. `true`: it
    /// is done, [`Handshake::finish`] it when that is on its way.
    ///
    /// # Errors
    /// [`TlsError`]; what was put out tells the other side.
    pub fn step(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<bool, TlsError> {
        if self.incoming.len() + record.len() > INCOMING_BYTES_MAX {
            return Err(TlsError("a handshake that is too long".to_owned()));
        }
        self.incoming.extend_from_slice(record);
        loop {
            match self.turn(out) {
                Ok(Turn::Again) => {}
                Ok(Turn::NeedsMore) => break,
                Err(error) => {
                    // The first that comes out behind an error is the alert, and nothing else
                    // matters.
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

    /// Both directions.
    ///
    /// # Errors
    /// [`TlsError`] if the handshake is not done.
    pub fn finish(self) -> Result<Secured, TlsError> {
        let leaf = |chain: Option<&[CertificateDer<'_>]>| {
            chain.and_then(|chain| chain.first()).map(|leaf| Fingerprint::of(leaf))
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
        Ok(Secured { sealer, opener: Opener::new(secrets.rx, keys)?, server, shown })
    }
}

/// A client's handshake over a fresh connection, waiting until `until` at most.
///
/// # Errors
/// The connection's; [`io::ErrorKind::InvalidData`] with the reason if the two sides do not agree,
/// or do not trust each other.
pub fn secure(
    connection: &Connection,
    tls: &ClientTls,
    host: &str,
    until: Option<Instant>,
) -> io::Result<Secured> {
    let mut handshake = Handshake::client(tls, host)?;
    let mut out = Vec::new();
    let mut record = Vec::new();
    loop {
        let stepped = handshake.step(&record, &mut out);
        let sent = connection.send_raw(&out, until);
        out.clear();
        if stepped? {
            sent?;
            return Ok(handshake.finish()?);
        }
        sent?;
        record.resize(HEAD_BYTES, 0);
        connection.receive_raw(&mut record, until)?;
        if record[0] == CLEAR_FIRST_BYTE {
            return Err(TlsError("what listens there speaks in clear text only".to_owned()).into());
        }
        let whole = record_bytes(&record)?.expect("its head is here");
        record.resize(whole, 0);
        connection.receive_raw(&mut record[HEAD_BYTES..], until)?;
    }
}

fn turn<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    out: &mut Vec<u8>,
) -> (usize, Result<Turn, rustls::Error>) {
    let turned = status.state.and_then(|state| match state {
        ConnectionState::EncodeTlsData(mut data) => {
            let had = out.len();
            // An upper bound of any flight of ours, certificates included.
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
        _ => Err(rustls::Error::General("data before the handshake was over".to_owned())),
    });
    (status.discard, turned)
}

// It has keys.
impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handshake")
    }
}
