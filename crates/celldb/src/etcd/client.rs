//! A client of etcd's JSON gateway: HTTP/1.1 over TCP or TLS, a call at a time on a connection.
//!
//! Each member answers each call, so a call goes to the member that answered last, and to the next
//! one where that one refuses the connection, is silent, or says that it has no leader. All calls
//! may be made twice: the caller sees to that.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use types::Fault;

use super::EtcdConfig;
use crate::CellError;

/// How long a call may take with all members that it is tried at, and how long each of them. A
/// change waits for the disks of more than half of them.
const CHANGE: Patience =
    Patience { all: Duration::from_secs(5), each: Duration::from_millis(2000) };
/// For reads: a user waits for each.
const READ: Patience = Patience { all: Duration::from_secs(3), each: Duration::from_millis(1400) };
/// Between two rounds through all members.
const ROUND_PAUSE: Duration = Duration::from_millis(100);
/// How long a member may take to accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_millis(700);
/// Open connections to a member that wait for the next call.
const IDLE_MAX: usize = 4;
/// Bytes of an answer, and of its head.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
const HEAD_BYTES_MAX: u64 = 64 << 10;

/// Codes of gRPC.
pub(super) const OUT_OF_RANGE: i64 = 11;
pub(super) const TOO_LARGE: i64 = 8;
const INVALID_ARGUMENT: i64 = 3;
/// Reasons of a call that is longer than etcd takes.
const TOO_LONG: [&str; 3] = ["too large", "too many operations", "larger than max"];
const UNAVAILABLE: i64 = 14;
const DEADLINE: i64 = 4;
const UNAUTHENTICATED: i64 = 16;

/// The limits of time of a call.
#[derive(Clone, Copy)]
struct Patience {
    all: Duration,
    each: Duration,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EtcdError {
    /// No member answered, or none has a leader. Whether the call was executed is unknown.
    Away(String),
    /// The view of the call is lost: etcd has compacted its history.
    Lost,
    /// etcd refused it.
    Refused { code: i64, message: String },
}

impl From<EtcdError> for CellError {
    fn from(error: EtcdError) -> CellError {
        match error {
            EtcdError::Away(why) => CellError::NoQuorum(why),
            EtcdError::Lost => CellError::Away(Fault::Busy),
            EtcdError::Refused { message, .. }
                if TOO_LONG.iter().any(|why| message.contains(why)) =>
            {
                CellError::Misuse(format!("the change is larger than etcd takes ({message})"))
            }
            EtcdError::Refused { message, .. } => CellError::Medium(format!("etcd: {message}")),
        }
    }
}

type Result<T> = std::result::Result<T, EtcdError>;

/// See the head of the file.
pub(super) struct EtcdClient {
    members: Vec<Member>,
    /// The member that answered last.
    best: AtomicUsize,
    tls: Option<Arc<ClientConfig>>,
    /// Name and password.
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
}

struct Member {
    /// `HOST:PORT`.
    address: String,
    idle: Mutex<Vec<Line>>,
}

/// A connection.
type Line = BufReader<Stream>;

enum Stream {
    Clear(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Clear(socket) => socket,
            Stream::Tls(tls) => &tls.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Clear(socket) => socket.read(to),
            Stream::Tls(tls) => tls.read(to),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Clear(socket) => socket.write(bytes),
            Stream::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Clear(socket) => socket.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}

/// Status and body.
type Answer = (u16, Vec<u8>);

impl EtcdClient {
    /// # Errors
    /// `Misuse` if the configuration cannot be used, for example a file of it.
    pub fn new(config: &EtcdConfig) -> std::result::Result<EtcdClient, CellError> {
        config.check().map_err(CellError::Misuse)?;
        let members = config
            .endpoints
            .iter()
            .map(|address| Member { address: address.clone(), idle: Mutex::default() });
        let user = match (&config.user, &config.password_file) {
            (Some(user), Some(file)) => {
                let password =
                    std::fs::read_to_string(file).map_err(|error| unusable(file, error))?;
                Some((user.clone(), password.trim_end_matches(['\n', '\r']).to_owned()))
            }
            _ => None,
        };
        let tls = config.ca.as_ref().map(|_| tls_config(config)).transpose()?;
        let (best, token) = (AtomicUsize::new(0), Mutex::default());
        Ok(EtcdClient { members: members.collect(), best, tls, user, token })
    }

    /// Calls, with the limit of time of all calls.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn call(&self, path: &str, body: &Value) -> Result<Value> {
        let patience = if path == "/v3/kv/range" { READ } else { CHANGE };
        let limits = (Instant::now() + patience.all, patience.each);
        match self.call_once(path, body, limits) {
            Err(EtcdError::Refused { code, message })
                if self.user.is_some() && lacks_token(code, &message) =>
            {
                // The token is too old, or there is none yet.
                let token = self.log_in(limits)?;
                *self.token.lock() = Some(token);
                self.call_once(path, body, limits)
            }
            other => other,
        }
    }

    /// Asks each member about itself; its answer or why it gives none.
    pub fn each_member(&self) -> Vec<(String, std::result::Result<Value, String>)> {
        let asked = self.members.iter().map(|member| {
            let answer = self.ask(member, "/v3/maintenance/status", "{}", READ.each);
            let answer = answer.map_err(|error| error.to_string()).and_then(|(status, body)| {
                read(status, &body).map_err(|error| match error {
                    EtcdError::Away(why) | EtcdError::Refused { message: why, .. } => why,
                    EtcdError::Lost => String::new(),
                })
            });
            (member.address.clone(), answer)
        });
        asked.collect()
    }

    /// Opens a stream of answers, and gives each to `take` until it returns false or the stream
    /// ends. A member that sends nothing for `silence` ends it too.
    ///
    /// # Errors
    /// The connection's; the member's status.
    pub fn stream(
        &self,
        path: &str,
        body: &Value,
        silence: Duration,
        take: &mut dyn FnMut() -> bool,
    ) -> io::Result<()> {
        let best = self.best.load(Ordering::Relaxed) % self.members.len();
        let member = self.members.get(best).ok_or_else(|| io::Error::other("no endpoint"))?;
        let mut line = self.connect(member)?;
        self.send(&mut line, &member.address, path, &body.to_string())?;
        line.get_ref().socket().set_read_timeout(Some(silence))?;
        let (status, _) = read_head(&mut line)?;
        if status != 200 {
            return Err(io::Error::other(format!("etcd answers with status {status}")));
        }
        let mut some = [0; 4096];
        while line.read(&mut some)? > 0 {
            if !take() {
                break;
            }
        }
        Ok(())
    }

    fn log_in(&self, limits: (Instant, Duration)) -> Result<String> {
        let Some((name, password)) = &self.user else {
            return Err(EtcdError::Away("no user".to_owned()));
        };
        let body = json!({"name": name, "password": password});
        let answer = self.call_once("/v3/auth/authenticate", &body, limits)?;
        Ok(answer["token"].as_str().unwrap_or_default().to_owned())
    }

    fn call_once(
        &self,
        path: &str,
        body: &Value,
        (until, each): (Instant, Duration),
    ) -> Result<Value> {
        let body = body.to_string();
        let first = self.best.load(Ordering::Relaxed);
        let (mut why, mut turn) = (String::new(), 0);
        // A member that answers may soon know a new leader.
        let mut is_answered = false;
        loop {
            let at = (first + turn) % self.members.len();
            let left = until.saturating_duration_since(Instant::now());
            let Some(member) = self.members.get(at).filter(|_| !left.is_zero()) else {
                return Err(EtcdError::Away(why));
            };
            let answer = self.ask(member, path, &body, left.min(each));
            is_answered |= answer.is_ok();
            let answer = answer.map_err(|error| EtcdError::Away(error.to_string()));
            match answer.and_then(|(status, body)| read(status, &body)) {
                Err(EtcdError::Away(reason)) => why = format!("{}: {reason}", member.address),
                other => {
                    self.best.store(at, Ordering::Relaxed);
                    return other;
                }
            }
            turn += 1;
            if turn % self.members.len() == 0 {
                // Without any answer a second look is enough.
                if !is_answered && turn > self.members.len() {
                    return Err(EtcdError::Away(why));
                }
                std::thread::sleep(ROUND_PAUSE.min(left));
            }
        }
    }

    fn ask(&self, member: &Member, path: &str, body: &str, within: Duration) -> io::Result<Answer> {
        let until = Instant::now() + within;
        // The member may have closed a connection that was idle.
        let idle = member.idle.lock().pop();
        if let Some(line) = idle
            && let Ok(answer) = self.exchange(member, line, path, body, until)
        {
            return Ok(answer);
        }
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.exchange(member, self.connect(member)?, path, body, until)
    }

    fn exchange(
        &self,
        member: &Member,
        mut line: Line,
        path: &str,
        body: &str,
        until: Instant,
    ) -> io::Result<Answer> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        line.get_ref().socket().set_read_timeout(Some(left))?;
        line.get_ref().socket().set_write_timeout(Some(left))?;
        self.send(&mut line, &member.address, path, body)?;
        let (status, length) = read_head(&mut line)?;
        let body = match length {
            Length::Bytes(bytes) => take_exactly(&mut line, bytes)?,
            Length::Chunks => read_chunks(&mut line)?,
        };
        let mut idle = member.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(line);
        }
        Ok((status, body))
    }

    fn send(&self, line: &mut Line, host: &str, path: &str, body: &str) -> io::Result<()> {
        let token = self.token.lock().clone();
        let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{token}\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        line.get_mut().write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
        line.get_mut().flush()
    }

    fn connect(&self, member: &Member) -> io::Result<Line> {
        let mut last = io::Error::other("the name has no address");
        for address in member.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
                Ok(socket) => return self.wrap(socket, &member.address).map(BufReader::new),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn wrap(&self, socket: TcpStream, address: &str) -> io::Result<Stream> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(CHANGE.each))?;
        socket.set_write_timeout(Some(CHANGE.each))?;
        let Some(tls) = &self.tls else { return Ok(Stream::Clear(socket)) };
        let host = host_of(address).trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::clone(tls), name).map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(session, socket))))
    }
}

/// The host of `HOST:PORT`.
pub(super) fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

fn unusable(file: &Path, error: impl std::fmt::Display) -> CellError {
    CellError::Misuse(format!("{}: {error}", file.display()))
}

fn tls_config(config: &EtcdConfig) -> std::result::Result<Arc<ClientConfig>, CellError> {
    let certificates = |file: &Path| {
        let all = CertificateDer::pem_file_iter(file).map_err(|error| unusable(file, error))?;
        all.collect::<std::result::Result<Vec<_>, _>>().map_err(|error| unusable(file, error))
    };
    let mut roots = RootCertStore::empty();
    if let Some(file) = &config.ca {
        for one in certificates(file)? {
            roots.add(one).map_err(|error| unusable(file, error))?;
        }
        if roots.is_empty() {
            return Err(unusable(file, "no certificate is in it"));
        }
    }
    let tls = |error: rustls::Error| CellError::Misuse(format!("TLS to etcd: {error}"));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls)?
        .with_root_certificates(roots);
    let made = match (&config.cert, &config.key) {
        (Some(chain), Some(key)) => {
            let private =
                PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, error))?;
            builder.with_client_auth_cert(certificates(chain)?, private).map_err(tls)?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(made))
}

fn lacks_token(code: i64, message: &str) -> bool {
    let known = ["user name is empty", "revision of auth store is old"];
    code == UNAUTHENTICATED
        || code == INVALID_ARGUMENT && known.iter().any(|known| message.contains(known))
}

/// The answer in a body, or the error.
fn read(status: u16, body: &[u8]) -> Result<Value> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|_| EtcdError::Away(format!("no answer of etcd (status {status})")))?;
    if status == 200 {
        return Ok(value);
    }
    let message = value["error"].as_str().unwrap_or("unknown").to_owned();
    match value["code"].as_i64().unwrap_or_default() {
        UNAVAILABLE | DEADLINE => Err(EtcdError::Away(message)),
        code => Err(EtcdError::Refused { code, message }),
    }
}

enum Length {
    Bytes(u64),
    Chunks,
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.take(HEAD_BYTES_MAX).read_line(&mut line)?;
    if !line.ends_with('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// Status, and the length of the body.
fn read_head(from: &mut impl BufRead) -> io::Result<(u16, Length)> {
    let status = read_line(from)?;
    let status = status.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.ok_or_else(|| invalid("no answer of HTTP"))?;
    let mut length = Length::Bytes(0);
    for _ in 0..100 {
        let line = read_line(from)?;
        let Some((name, value)) = line.split_once(':') else {
            return if line.is_empty() { Ok((status, length)) } else { Err(invalid("its head")) };
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = Length::Bytes(value.trim().parse().map_err(|_| invalid("its length"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            length = Length::Chunks;
        }
    }
    Err(invalid("its head is too long"))
}

fn take_exactly(from: &mut impl BufRead, bytes: u64) -> io::Result<Vec<u8>> {
    if bytes > ANSWER_BYTES_MAX {
        return Err(invalid("it is too long"));
    }
    let mut body = Vec::new();
    from.take(bytes).read_to_end(&mut body)?;
    if body.len() as u64 == bytes { Ok(body) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn read_chunks(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(from)?;
        let size = line.split(';').next().unwrap_or_default();
        let size = u64::from_str_radix(size.trim(), 16).map_err(|_| invalid("a chunk"))?;
        if size == 0 {
            // More lines of the head may follow the body, to the empty line.
            while !read_line(from)?.is_empty() {}
            return Ok(body);
        }
        if body.len() as u64 + size > ANSWER_BYTES_MAX {
            return Err(invalid("it is too long"));
        }
        body.extend(take_exactly(from, size)?);
        read_line(from)?;
    }
}

/// Reads an answer as a call does.
///
/// # Errors
/// It is not whole, or no answer of HTTP.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn whole(bytes: &[u8]) -> io::Result<Answer> {
    let mut from = bytes;
    let (status, length) = read_head(&mut from)?;
    let body = match length {
        Length::Bytes(bytes) => take_exactly(&mut from, bytes)?,
        Length::Chunks => read_chunks(&mut from)?,
    };
    let _ = read(status, &body);
    Ok((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_http_are_read_whole_or_not_at_all() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX: y\r\n\r\nabcd";
        let chunks = b"HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3;x\r\ncde\
            \r\n0\r\nTrailer: z\r\n\r\n";
        assert_eq!(whole(plain).unwrap(), (200, b"abcd".to_vec()));
        assert_eq!(whole(chunks).unwrap(), (400, b"abcde".to_vec()));
        for whole_answer in [&plain[..], &chunks[..]] {
            for at in 0..whole_answer.len() {
                assert!(whole(&whole_answer[..at]).is_err(), "{at}");
            }
        }
        let long = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n";
        assert!(whole(long).is_err());
    }
}
