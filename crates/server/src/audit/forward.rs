//! Copies of the audit log's lines go to a log that the server's owner cannot rewrite: messages as
//! in RFC 5424, to a socket of this machine (`/dev/log`) or over UDP (RFC 5426).
//!
//! The thread that writes the audit log puts lines into a bounded queue and goes on. A thread of
//! this module sends them, and retains a line until the socket has accepted it. Lines that find no
//! room are counted: the status shows the count, and the receiver gets it as soon as it accepts
//! messages again. A line is as long as its event; one that exceeds a datagram is counted too.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use guard::AuditBody;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// Lines that wait to be sent: as many as may wait to be written.
const QUEUE_MAX: usize = super::QUEUE_MAX;
/// The longest time for sending a message before the attempt counts as failed.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// Facility and severities of RFC 5424: private messages of authorisation; warnings and notices.
const AUTHPRIV: u8 = 10;
const WARNING: u8 = 4;
const NOTICE: u8 = 5;

/// Where copies of the audit log go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ForwardTo {
    /// A datagram socket of this machine, such as `/dev/log`.
    Unix(PathBuf),
    /// `HOST:PORT`, over UDP. Datagrams that the network loses are not noticed.
    Udp(String),
}

impl FromStr for ForwardTo {
    type Err = String;

    /// An absolute path, or `udp:HOST:PORT`.
    fn from_str(text: &str) -> Result<ForwardTo, String> {
        if text.starts_with('/') {
            return Ok(ForwardTo::Unix(text.into()));
        }
        let address = text
            .strip_prefix("udp:")
            .and_then(|address| Some((address, address.rsplit_once(':')?)));
        match address {
            Some((address, (host, port)))
                if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) =>
            {
                Ok(ForwardTo::Udp(address.to_owned()))
            }
            _ => Err(format!(
                "'{text}' is neither the path of a socket, such as /dev/log, nor udp:HOST:PORT"
            )),
        }
    }
}

impl TryFrom<String> for ForwardTo {
    type Error = String;

    fn try_from(text: String) -> Result<ForwardTo, String> {
        text.parse()
    }
}

impl From<ForwardTo> for String {
    fn from(to: ForwardTo) -> String {
        to.to_string()
    }
}

impl fmt::Display for ForwardTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForwardTo::Unix(path) => write!(f, "{}", path.display()),
            ForwardTo::Udp(address) => write!(f, "udp:{address}"),
        }
    }
}

/// State of the copies, for the status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ForwardState {
    /// The receiver.
    pub to: String,
    /// Lines that the socket accepted since the start.
    pub sent: u64,
    /// Lines that wait.
    pub waiting: u64,
    /// Lines that were dropped since the start.
    pub dropped: u64,
    /// Why the receiver accepts none now; absent: it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
}

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<Vec<u8>>,
    sent: u64,
    dropped: u64,
    /// Dropped lines that the receiver has not been informed of.
    unreported: u64,
    failing: Option<String>,
    stopping: bool,
}

#[derive(Debug)]
pub(crate) struct Forward {
    to: ForwardTo,
    /// Host, program and process, as each message names them.
    origin: String,
    cell: String,
    waiting: Mutex<Waiting>,
    /// There is a line to send.
    more: Condvar,
    /// The server stops. New lines do not end the pause after a failure.
    stop: Condvar,
}

impl Forward {
    /// Also starts the thread that sends. The receiver need not exist yet.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(to: ForwardTo, cell: &str) -> io::Result<(Arc<Forward>, JoinHandle<()>)> {
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .replace(|at: char| !at.is_ascii_graphic(), "-");
        let origin =
            format!("{} rialto {}", if host.is_empty() { "-" } else { &host }, std::process::id());
        let (waiting, more, stop) = (Mutex::default(), Condvar::new(), Condvar::new());
        let forward = Arc::new(Forward { to, origin, cell: cell.to_owned(), waiting, more, stop });
        let sending = Arc::clone(&forward);
        let send = move || {
            while catch_unwind(AssertUnwindSafe(|| sending.send_all())).is_err() {
                tracing::error!(
                    cause = "a broken assertion, which the previous line names",
                    consequence =
                        "a line of the audit log may reach its receiver twice, or not at all",
                    remedy = "it goes on; report the lines before this one",
                    "the thread that forwards the audit log panicked"
                );
                std::thread::sleep(PAUSE);
            }
        };
        let thread = std::thread::Builder::new().name("audit-forward".to_owned()).spawn(send)?;
        Ok((forward, thread))
    }

    /// Queues line `number` of file `file`, without its newline. Does not wait.
    pub fn push(&self, file: u64, number: u64, body: &AuditBody, line: &str) {
        let (severity, millis) = match body {
            AuditBody::Event(event) if matches!(&*event.kind, "denied" | "alarm") => {
                (WARNING, event.time)
            }
            AuditBody::Event(event) => (NOTICE, event.time),
            AuditBody::Lost(_) => (WARNING, super::now_millis()),
            AuditBody::File { .. } | AuditBody::Removed { .. } | AuditBody::End => {
                (NOTICE, super::now_millis())
            }
        };
        let text = format!("{} {}:{number} {line}", self.cell, super::file_name(file));
        let message = self.message(severity, millis, "audit", &text);
        let mut waiting = self.waiting.lock();
        if waiting.messages.len() < QUEUE_MAX {
            waiting.messages.push_back(message);
        } else {
            waiting.dropped += 1;
            waiting.unreported += 1;
        }
        drop(waiting);
        self.more.notify_one();
    }

    /// Sends the waiting lines as long as the receiver accepts them; then the thread ends.
    pub fn stop(&self) {
        self.waiting.lock().stopping = true;
        self.more.notify_all();
        self.stop.notify_all();
    }

    /// The state for the status.
    pub fn state(&self) -> ForwardState {
        let waiting = self.waiting.lock();
        ForwardState {
            to: self.to.to_string(),
            sent: waiting.sent,
            waiting: waiting.messages.len() as u64,
            dropped: waiting.dropped,
            failing: waiting.failing.clone(),
        }
    }

    fn message(&self, severity: u8, millis: i64, kind: &str, text: &str) -> Vec<u8> {
        format!(
            "<{}>1 {} {} {kind} - {text}",
            AUTHPRIV * 8 + severity,
            rfc3339(millis),
            self.origin
        )
        .into_bytes()
    }

    /// The next message; `None`: the server stops, and none is left.
    fn next(&self) -> Option<Vec<u8>> {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.unreported > 0 && waiting.messages.len() < QUEUE_MAX {
                let text = format!(
                    "{} {} lines of the audit log were not sent here",
                    self.cell, waiting.unreported
                );
                waiting.unreported = 0;
                let report = self.message(WARNING, super::now_millis(), "lost", &text);
                waiting.messages.push_back(report);
            }
            match waiting.messages.front() {
                Some(message) => return Some(message.clone()),
                None if waiting.stopping => return None,
                None => self.more.wait(&mut waiting),
            }
        }
    }

    fn send_all(&self) {
        let mut socket = None;
        while let Some(message) = self.next() {
            let sent = match socket.take().map_or_else(|| Socket::open(&self.to), Ok) {
                Ok(open) => open.send(&message).map(|()| socket = Some(open)),
                Err(error) => Err(error),
            };
            let mut waiting = self.waiting.lock();
            match sent {
                Ok(()) => {
                    waiting.messages.pop_front();
                    waiting.sent += 1;
                    if waiting.failing.take().is_some() {
                        tracing::info!(to = %self.to, "the audit log is forwarded again");
                    }
                }
                Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => {
                    waiting.messages.pop_front();
                    waiting.dropped += 1;
                    waiting.unreported += 1;
                }
                Err(error) => {
                    if waiting.failing.replace(error.to_string()).is_none() {
                        tracing::warn!(
                            to = %self.to, %error,
                            consequence = "lines of the audit log wait here, and are dropped when \
                                too many do",
                            remedy = "start the log's server there, or change 'forward' of \
                                [audit] in cell.toml",
                            "the audit log is not forwarded"
                        );
                    }
                    if waiting.stopping {
                        waiting.dropped += waiting.messages.len() as u64;
                        let lines = waiting.messages.len();
                        let to = &self.to;
                        tracing::warn!(%to, lines, "lines of the audit log were not forwarded");
                        return;
                    }
                    self.stop.wait_for(&mut waiting, PAUSE);
                }
            }
        }
    }
}

enum Socket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

impl Socket {
    fn open(to: &ForwardTo) -> io::Result<Socket> {
        match to {
            ForwardTo::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.set_write_timeout(Some(TIMEOUT))?;
                socket.connect(path)?;
                Ok(Socket::Unix(socket))
            }
            ForwardTo::Udp(address) => {
                let socket = UdpSocket::bind("[::]:0").or_else(|_| UdpSocket::bind("0.0.0.0:0"))?;
                socket.set_write_timeout(Some(TIMEOUT))?;
                socket.connect(address)?;
                Ok(Socket::Udp(socket))
            }
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        match self {
            Socket::Unix(socket) => socket.send(message).map(drop),
            Socket::Udp(socket) => socket.send(message).map(drop),
        }
    }
}

/// Milliseconds since 1970 in the form of RFC 5424; `-` for a year that has no such form.
fn rfc3339(millis: i64) -> String {
    let Ok(at) = OffsetDateTime::from_unix_timestamp(millis.div_euclid(1000)) else {
        return "-".to_owned();
    };
    if !(0..=9999).contains(&at.year()) {
        return "-".to_owned();
    }
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        millis.rem_euclid(1000)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use guard::{AuditEvent, AuditLine, NO_HASH, audit_hash};

    use super::super::{Audit, KEPT_IN_TESTS, files};
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = vec![0; 65_536];
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    fn listener(path: &std::path::Path) -> UnixDatagram {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    }

    fn event(kind: &str, about: &str) -> AuditEvent {
        let (kind, about) = (kind.to_owned(), about.to_owned());
        AuditEvent { time: 1_700_000_000_007, kind, about, ..AuditEvent::default() }
    }

    #[test]
    fn m13_targets_are_a_path_or_an_address() {
        for good in ["/dev/log", "udp:10.0.0.9:514", "udp:[::1]:514", "udp:logs.example.org:1514"] {
            assert_eq!(good.parse::<ForwardTo>().map(|to| to.to_string()), Ok(good.to_owned()));
        }
        for bad in [
            "",
            "dev/log",
            "udp:",
            "udp::514",
            "udp:host",
            "udp:host:0",
            "udp:host:99999",
            "tcp:host:514",
        ] {
            assert!(bad.parse::<ForwardTo>().is_err(), "{bad}");
        }
    }

    /// The other log gets each line of the file in a message as in RFC 5424, and these are one
    /// chain.
    #[test]
    fn m13_each_line_reaches_the_other_log() {
        let dir = tempfile::tempdir().unwrap();
        let there = listener(&dir.path().join("log"));
        let forward = Forward::start(ForwardTo::Unix(dir.path().join("log")), "a.cell").unwrap();
        let (audit, thread) =
            Audit::start(&dir.path().join("audit"), KEPT_IN_TESTS, Some(forward)).unwrap();
        vice::AuditLog::saw(&*audit, event("administration", "a volume"));
        vice::AuditLog::saw(&*audit, event("denied", "a file"));
        audit.stop();
        thread.join().unwrap();
        let state = audit.forwarded().unwrap();
        assert_eq!((state.sent, state.waiting, state.dropped, state.failing), (4, 0, 0, None));
        let (_, path) = files(&dir.path().join("audit")).unwrap().pop().unwrap();
        let mut before = NO_HASH.to_owned();
        for (number, line) in (1..).zip(std::fs::read_to_string(path).unwrap().lines()) {
            let message = received(&there);
            let (head, text) = message.split_once(" - ").unwrap();
            assert_eq!(text, format!("a.cell audit-00000001.jsonl:{number} {line}"));
            let words: Vec<&str> = head.split(' ').collect();
            let priority = if line.contains("denied") { "<84>1" } else { "<85>1" };
            let pid = std::process::id().to_string();
            assert_eq!(
                (words[0], words[3], words[4], words[5], words.len()),
                (priority, "rialto", &*pid, "audit", 6)
            );
            if line.contains("a volume") {
                assert_eq!(words[1], "2023-11-14T22:13:20.007Z");
            }
            let parsed: AuditLine = serde_json::from_str(line).unwrap();
            assert_eq!(parsed.before, before);
            before = audit_hash(line.as_bytes());
        }
    }

    /// A receiver that does not exist, or reads nothing, blocks no thread; later it learns how many
    /// lines were lost.
    #[test]
    fn m13_a_silent_receiver_blocks_no_thread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (forward, thread) = Forward::start(ForwardTo::Unix(path.clone()), "a.cell").unwrap();
        let push = |count: usize| {
            for number in 0..count {
                forward.push(1, number as u64, &AuditBody::Event(event("denied", "x")), "{}");
            }
        };
        push(QUEUE_MAX + 7);
        let state = forward.state();
        assert_eq!((state.sent, state.waiting, state.dropped), (0, QUEUE_MAX as u64, 7));
        let until = Instant::now() + Duration::from_secs(20);
        while forward.state().failing.is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(forward.state().failing.is_some(), "the status says that no receiver is there");
        // Now there is one.
        let there = listener(&path);
        let mut got: Vec<String> = (0..QUEUE_MAX).map(|_| received(&there)).collect();
        push(1);
        got.extend((0..2).map(|_| received(&there)));
        let lost: Vec<&String> = got.iter().filter(|text| text.contains(" lost - ")).collect();
        assert!(matches!(&lost[..], [report] if report.contains("a.cell 7 lines")), "{lost:?}");
        assert_eq!(
            (forward.state().dropped, forward.state().waiting, forward.state().failing),
            (7, 0, None)
        );
        // A receiver that stops reading does not keep the server from stopping.
        push(3000);
        forward.stop();
        drop(there);
        thread.join().unwrap();
        let state = forward.state();
        assert_eq!(
            state.sent + state.dropped + state.waiting,
            QUEUE_MAX as u64 + 7 + 1 + 1 + 3000 + state.waiting
        );
    }

    #[test]
    fn m13_a_line_that_no_datagram_carries_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let there = listener(&dir.path().join("log"));
        let (forward, thread) =
            Forward::start(ForwardTo::Unix(dir.path().join("log")), "a.cell").unwrap();
        forward.push(1, 1, &AuditBody::End, &"x".repeat(8 << 20));
        forward.push(1, 2, &AuditBody::End, "short");
        let got = [received(&there), received(&there)];
        assert!(got.iter().any(|text| text.ends_with(":2 short")), "{got:?}");
        assert!(got.iter().any(|text| text.contains("a.cell 1 lines")), "{got:?}");
        forward.stop();
        thread.join().unwrap();
        assert_eq!(forward.state().dropped, 1);
    }

    #[test]
    fn m13_lines_go_over_udp_too() {
        let there = UdpSocket::bind("127.0.0.1:0").unwrap();
        there.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let to = format!("udp:{}", there.local_addr().unwrap()).parse().unwrap();
        let (forward, thread) = Forward::start(to, "a.cell").unwrap();
        forward.push(3, 9, &AuditBody::End, "a line");
        let mut bytes = [0; 2000];
        let count = there.recv(&mut bytes).unwrap();
        assert!(bytes[..count].ends_with(b"- a.cell audit-00000003.jsonl:9 a line"));
        forward.stop();
        thread.join().unwrap();
    }
}
