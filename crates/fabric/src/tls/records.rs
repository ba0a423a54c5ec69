//! Records: sealed before they are sent, and opened when they are received.
//!
//! ```text
//! record = type u8 (23) | 03 03 | length u16, big-endian | sealed: content, type u8, padding, tag
//! ```
//! A message within a direction renews its key (`KeyUpdate`): the sender seals it with the old key
//! and continues with the new one, and the receiver does the same after opening it. Either side may
//! ask the other to do so too; this one never asks, but does it when asked.
//!
//! Source: RFC 8446, 4.6.3 and 5.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::ClientConnectionData;
use rustls::crypto::cipher::{
    InboundOpaqueMessage, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundPlainMessage,
};
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{
    ConnectionTrafficSecrets, ContentType, ProtocolVersion, SupportedCipherSuite, Tls13CipherSuite,
};

use super::TlsError;

/// Bytes before the sealed part.
pub(crate) const HEAD_BYTES: usize = 5;
/// Most content bytes of one record.
pub(crate) const CONTENT_BYTES_MAX: usize = 16 << 10;
/// Most bytes of a whole record.
pub(crate) const RECORD_BYTES_MAX: usize = HEAD_BYTES + CONTENT_BYTES_MAX + 256;
/// Records under one key: half of the safe number for AES-GCM (2^24), some 128 GiB.
const KEY_RECORDS_MAX: u64 = 1 << 23;
/// `KeyUpdate`, three bytes of length, and a byte that asks the peer to do the same.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];
/// The alert that ends the stream.
const CLOSE_NOTIFY: u8 = 0;

/// Derives the next keys, of both directions.
pub(super) enum Kernel {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

pub(super) struct TrafficKeys {
    kernel: Mutex<Kernel>,
    suite: &'static Tls13CipherSuite,
    /// The peer asked this side to renew its sending key.
    renewal_requested: AtomicBool,
}

/// One direction's key and the number of its next record.
pub(super) type TrafficSecret = (u64, ConnectionTrafficSecrets);

impl TrafficKeys {
    pub(super) fn new(
        kernel: Kernel,
        suite: SupportedCipherSuite,
    ) -> Result<TrafficKeys, TlsError> {
        let suite = suite.tls13().ok_or_else(|| {
            TlsError("the handshake agreed on a version before TLS 1.3".to_owned())
        })?;
        Ok(TrafficKeys {
            kernel: Mutex::new(kernel),
            suite,
            renewal_requested: AtomicBool::new(false),
        })
    }

    fn next_sending(&self) -> Result<TrafficSecret, TlsError> {
        let mut kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match &mut *kernel {
            Kernel::Client(kernel) => kernel.update_tx_secret(),
            Kernel::Server(kernel) => kernel.update_tx_secret(),
        }?)
    }

    fn next_receiving(&self) -> Result<TrafficSecret, TlsError> {
        let mut kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match &mut *kernel {
            Kernel::Client(kernel) => kernel.update_rx_secret(),
            Kernel::Server(kernel) => kernel.update_rx_secret(),
        }?)
    }
}

/// The sending direction.
pub struct Sealer {
    cipher: Box<dyn MessageEncrypter>,
    next: u64,
    records_max: u64,
    keys: Arc<TrafficKeys>,
}

impl Sealer {
    pub(super) fn new(secret: TrafficSecret, keys: Arc<TrafficKeys>) -> Result<Sealer, TlsError> {
        let (key, iv) = key_of(secret.1)?;
        Ok(Sealer {
            cipher: keys.suite.aead_alg.encrypter(key, iv),
            next: secret.0,
            records_max: KEY_RECORDS_MAX,
            keys,
        })
    }

    /// Seals up to [`CONTENT_BYTES_MAX`] bytes, given in parts, as one record. A change of keys
    /// precedes it, as a record of its own.
    pub(crate) fn seal(
        &mut self,
        parts: &[&[u8]],
        out: &mut impl Extend<Vec<u8>>,
    ) -> Result<(), TlsError> {
        if self.next >= self.records_max || self.keys.renewal_requested.load(Ordering::Relaxed) {
            self.keys.renewal_requested.store(false, Ordering::Relaxed);
            let update = [KEY_UPDATE[0], KEY_UPDATE[1], KEY_UPDATE[2], KEY_UPDATE[3], 0];
            out.extend([self.record(ContentType::Handshake, &[&update])?]);
            let (next, secret) = self.keys.next_sending()?;
            let (key, iv) = key_of(secret)?;
            self.cipher = self.keys.suite.aead_alg.encrypter(key, iv);
            self.next = next;
        }
        out.extend([self.record(ContentType::ApplicationData, parts)?]);
        Ok(())
    }

    fn record(&mut self, typ: ContentType, parts: &[&[u8]]) -> Result<Vec<u8>, TlsError> {
        let message = OutboundPlainMessage {
            typ,
            version: ProtocolVersion::TLSv1_3,
            payload: OutboundChunks::new(parts),
        };
        let sealed = self.cipher.encrypt(message, self.next)?;
        self.next += 1;
        Ok(sealed.encode())
    }

    #[cfg(test)]
    pub(crate) fn renew_after(&mut self, records: u64) {
        self.records_max = records;
    }
}

/// The content of a record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TlsRecord<'a> {
    /// Bytes of the stream.
    Content(&'a [u8]),
    /// A message of TLS, which is handled.
    Nothing,
    /// The stream ends.
    End,
}

/// The receiving direction.
pub struct Opener {
    cipher: Box<dyn MessageDecrypter>,
    next: u64,
    keys: Arc<TrafficKeys>,
}

impl Opener {
    pub(super) fn new(secret: TrafficSecret, keys: Arc<TrafficKeys>) -> Result<Opener, TlsError> {
        let (key, iv) = key_of(secret.1)?;
        Ok(Opener { cipher: keys.suite.aead_alg.decrypter(key, iv), next: secret.0, keys })
    }

    /// Opens a whole record in place.
    pub(crate) fn open<'a>(&mut self, record: &'a mut [u8]) -> Result<TlsRecord<'a>, TlsError> {
        let (head, body) = record.split_at_mut(HEAD_BYTES);
        if head[0] != u8::from(ContentType::ApplicationData) {
            return Err(TlsError("the peer sent a record that is not sealed".to_owned()));
        }
        let message =
            InboundOpaqueMessage::new(ContentType::ApplicationData, ProtocolVersion::TLSv1_2, body);
        let opened = self.cipher.decrypt(message, self.next)?;
        self.next += 1;
        match (opened.typ, opened.payload) {
            (ContentType::ApplicationData, content) => Ok(TlsRecord::Content(content)),
            (ContentType::Handshake, [a, b, c, d, asks @ (0 | 1)])
                if [*a, *b, *c, *d] == KEY_UPDATE =>
            {
                let (next, secret) = self.keys.next_receiving()?;
                let (key, iv) = key_of(secret)?;
                self.cipher = self.keys.suite.aead_alg.decrypter(key, iv);
                self.next = next;
                if *asks == 1 {
                    self.keys.renewal_requested.store(true, Ordering::Relaxed);
                }
                Ok(TlsRecord::Nothing)
            }
            (ContentType::Alert, [_, CLOSE_NOTIFY]) => Ok(TlsRecord::End),
            (ContentType::Alert, _) => {
                Err(TlsError("the peer ended the connection with an alert".to_owned()))
            }
            _ => Err(TlsError("the peer sent an unexpected message".to_owned())),
        }
    }
}

/// Length of the record at the start of `bytes`, once its head has arrived.
pub(crate) fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, TlsError> {
    let Some([_, major, _, high, low]) = bytes.first_chunk() else { return Ok(None) };
    let whole = HEAD_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
    if *major != 3 || whole > RECORD_BYTES_MAX {
        return Err(TlsError("the received bytes are not a TLS record".to_owned()));
    }
    Ok(Some(whole))
}

fn key_of(
    secret: ConnectionTrafficSecrets,
) -> Result<(rustls::crypto::cipher::AeadKey, rustls::crypto::cipher::Iv), TlsError> {
    match secret {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Ok((key, iv)),
        _ => Err(TlsError("the handshake agreed on an unsupported cipher".to_owned())),
    }
}

// Never shows the keys.
impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("next", &self.next).finish_non_exhaustive()
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("next", &self.next).finish_non_exhaustive()
    }
}
