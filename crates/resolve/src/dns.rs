//! Sends one question to name servers, within a given time. A cell is looked up a few times in a
//! day, so this has neither pools nor caches (`srv.rs` has one), and needs no threads.
//!
//! Each server is asked in turn, over UDP, for at most a second, round after round until the time
//! is over. Packets that do not answer this very question (number, name, type) are ignored; a
//! truncated answer is asked for again over TCP.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, Question, RCODE, TYPE};

/// The file in which this machine lists its name servers.
const OF_MACHINE: &str = "/etc/resolv.conf";
const PORT: u16 = 53;
/// How long one server may take before the next one is asked.
const TURN: Duration = Duration::from_secs(1);
/// Source: RFC 1035; without EDNS servers send no more over UDP.
const UDP_BYTES_MAX: usize = 4096;

/// Reason of a missing answer.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// The text cannot be a DNS name.
    #[error("this cannot be a DNS name")]
    BadName,
    /// No server answered in time; the last one's error, if it had one.
    #[error("no name server answers: {0}")]
    Silent(String),
    /// Name servers refused the question.
    #[error("the name server refuses ({0:?})")]
    Refused(RCODE),
}

/// Returns the name servers that `/etc/resolv.conf` lists now; otherwise one on the machine itself.
pub fn of_machine() -> Vec<SocketAddr> {
    let text = std::fs::read(Path::new(OF_MACHINE)).unwrap_or_default();
    // Lines that do not parse belong to other resolvers.
    let (config, _) = resolv_conf::Config::parse_with_errors(&text);
    let each = config.get_nameservers_or_local().into_iter();
    each.map(|server| SocketAddr::new(IpAddr::from(&server), PORT)).collect()
}

/// Returns the answer to one question in a form that [`Packet::parse`] takes; "no such name" is an
/// answer too.
///
/// # Errors
/// A [`DnsError`]: no usable name, no answer in time, or a refusal.
pub fn ask(
    servers: &[SocketAddr],
    name: &str,
    of: TYPE,
    until: Instant,
) -> Result<Vec<u8>, DnsError> {
    let question = Query::new(name, of)?;
    let mut why = "there is none".to_owned();
    let mut refused = None;
    for server in servers.iter().cycle() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || refused.is_some() && servers.len() == 1 {
            break;
        }
        match question.ask(*server, left.min(TURN)) {
            Ok(bytes) => match Packet::parse(&bytes).map(|packet| packet.rcode()) {
                Ok(RCODE::NoError | RCODE::NameError) => return Ok(bytes),
                Ok(code) if servers.last() == Some(server) => return Err(DnsError::Refused(code)),
                Ok(code) => refused = Some(code),
                Err(error) => why = error.to_string(),
            },
            Err(error) => {
                why = error.to_string();
                // A server that refuses at once must not make this loop busy.
                std::thread::sleep(Duration::from_millis(20).min(left));
            }
        }
    }
    Err(refused.map_or(DnsError::Silent(why), DnsError::Refused))
}

struct Query<'a> {
    id: u16,
    name: &'a str,
    of: TYPE,
    bytes: Vec<u8>,
}

impl<'a> Query<'a> {
    fn new(name: &'a str, of: TYPE) -> Result<Self, DnsError> {
        let id = rand::random();
        let mut packet = Packet::new_query(id);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let asked = Name::new(name).map_err(|_| DnsError::BadName)?;
        packet.questions.push(Question::new(asked, QTYPE::TYPE(of), CLASS::IN.into(), false));
        let bytes = packet.build_bytes_vec().map_err(|_| DnsError::BadName)?;
        Ok(Query { id, name, of, bytes })
    }

    fn ask(&self, server: SocketAddr, within: Duration) -> std::io::Result<Vec<u8>> {
        let end = Instant::now() + within;
        let any: IpAddr = if server.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(server)?;
        socket.send(&self.bytes)?;
        let mut bytes = vec![0; UDP_BYTES_MAX];
        loop {
            socket.set_read_timeout(Some(left(end)?))?;
            let length = socket.recv(&mut bytes)?;
            let Some(whole) = self.answered_by(&bytes[..length]) else { continue };
            if !whole {
                return self.ask_in_full(server, end);
            }
            bytes.truncate(length);
            return Ok(bytes);
        }
    }

    /// Asks over TCP, with the length before each message.
    fn ask_in_full(&self, server: SocketAddr, end: Instant) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&server, left(end)?)?;
        stream.set_write_timeout(Some(left(end)?))?;
        let length = u16::try_from(self.bytes.len()).map_err(std::io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes()[..], &self.bytes].concat())?;
        let mut length = [0; 2];
        read_all(&mut stream, &mut length, end)?;
        let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
        read_all(&mut stream, &mut bytes, end)?;
        match self.answered_by(&bytes) {
            Some(true) => Ok(bytes),
            _ => Err(std::io::Error::other("the answer belongs to another question")),
        }
    }

    /// Whether these bytes answer the question: `Some(true)` if whole, `Some(false)` if truncated.
    fn answered_by(&self, bytes: &[u8]) -> Option<bool> {
        let packet = Packet::parse(bytes).ok()?;
        let [asked] = &packet.questions[..] else { return None };
        let ours = packet.id() == self.id
            && packet.has_flags(PacketFlag::RESPONSE)
            && asked.qtype == QTYPE::TYPE(self.of)
            && asked.qname.to_string().eq_ignore_ascii_case(self.name);
        ours.then(|| !packet.has_flags(PacketFlag::TRUNCATION))
    }
}

fn left(end: Instant) -> std::io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(std::io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The same end applies to every piece.
fn read_all(stream: &mut TcpStream, mut into: &mut [u8], end: Instant) -> std::io::Result<()> {
    while !into.is_empty() {
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(into)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => into = &mut into[count..],
        }
    }
    Ok(())
}
