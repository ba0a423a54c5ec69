//! The server's own part of the answer to `ServerReport`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use fabric::tls::Fingerprint;
use guard::Certifier;
use serde::Serialize;
use types::Answer;
use vice::Effect;

use crate::audit::Audit;
use crate::security::Security;
use crate::usage::Bounds;

/// Counts since the start.
pub(crate) struct ServerCounts {
    pub started: Instant,
    pub connections: AtomicU64,
    pub accepted: AtomicU64,
    pub malformed: AtomicU64,
    pub turned_away: AtomicU64,
    pub slow_readers: AtomicU64,
    pub secured: AtomicU64,
    pub clear_refused: AtomicU64,
    pub frames: AtomicU64,
    pub replies: AtomicU64,
    /// Requests that came through lanes, and reads among them that memory answered.
    pub lane_requests: AtomicU64,
    pub lane_hits: AtomicU64,
    pub breaks: AtomicU64,
    /// Of threads, requests and sessions; the sessions' handles count theirs.
    pub panics: Arc<AtomicU64>,
}

impl Default for ServerCounts {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        ServerCounts {
            started: Instant::now(),
            connections: zero(),
            accepted: zero(),
            malformed: zero(),
            turned_away: zero(),
            slow_readers: zero(),
            secured: zero(),
            clear_refused: zero(),
            frames: zero(),
            replies: zero(),
            lane_requests: zero(),
            lane_hits: zero(),
            breaks: zero(),
            panics: Arc::default(),
        }
    }
}

/// The state of the server that its report shows.
pub(crate) struct ReportSources<'a> {
    pub cell_name: Option<&'a str>,
    /// See [`crate::CellPlace::engine`].
    pub database: Option<&'static str>,
    /// The socket for users of this machine, if it listens there.
    pub users_socket: Option<&'a Path>,
    /// Lets other servers into the cell; `None`: this one does not.
    pub certifier: Option<&'a dyn Certifier>,
    pub counts: &'a ServerCounts,
    pub bounds: &'a Bounds,
    pub audit: Option<&'a Audit>,
    pub nobody_unread_bytes: usize,
    /// For each session its connection; `None`: no client is connected.
    pub sessions: Vec<Option<Security>>,
}

#[derive(Serialize)]
struct Report {
    /// The cell's name, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    cell: Option<String>,
    version: &'static str,
    /// Where the cell's database is: `embedded` (here), `another server`, or `etcd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<&'static str>,
    /// The socket for users of this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    users_socket: Option<PathBuf>,
    /// The fingerprint of the cell's authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    authority: Option<String>,
    /// Whether this server has the key of the authority, and signs certificates.
    signs: bool,
    pid: u32,
    up_secs: u64,
    /// Open now.
    connections: u64,
    sessions: u64,
    /// Of these, by the kind of connection.
    sessions_local: u64,
    sessions_tls: u64,
    sessions_clear: u64,
    /// Since the start.
    connections_accepted: u64,
    connections_malformed: u64,
    connections_turned_away: u64,
    connections_too_slow: u64,
    connections_secured: u64,
    connections_clear_refused: u64,
    frames: u64,
    replies: u64,
    lane_requests: u64,
    lane_hits: u64,
    breaks: u64,
    panics: u64,
    /// Times of this process's calls ([`observe::Wait`]).
    waits: Vec<observe::WaitFigures>,
    /// Copies of the audit log; absent: there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_forward: Option<crate::audit::ForwardState>,
    /// The limits ([`crate::ServerLimits`]).
    limits: crate::ServerLimits,
    used: Used,
    /// How often each limit was met.
    met: Met,
}

/// The present use of limited resources.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Used {
    connections: u64,
    connections_possible: u64,
    connections_of_one_host: usize,
    sessions: usize,
    nobody_sessions: usize,
    nobody_sessions_of_one_host: usize,
    hosts: usize,
    nobody_unread_bytes: usize,
    regions: usize,
    region_bytes: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Met {
    connections_per_host: u64,
    connections: u64,
    sessions: u64,
    sessions_per_host: u64,
    nobody_sessions: u64,
    nobody_sessions_per_host: u64,
    regions: u64,
    nobody_memory: u64,
    nobody_calls: u64,
    passwords: u64,
    log_lines: u64,
}

/// Puts the server's counts beside the service's in its report. An anonymous caller gets only the
/// cell's name.
pub(crate) fn add_to(from: &ReportSources<'_>, proved: bool, effects: &mut [Effect]) {
    for effect in effects {
        if let Effect::Reply { result: Ok(Answer::Report(text)), .. } = effect {
            if !proved {
                let version = env!("CARGO_PKG_VERSION");
                let known = serde_json::json!({ "cell": from.cell_name, "version": version });
                let you = serde_json::from_str::<serde_json::Value>(text)
                    .map_or_else(|_| ().into(), |mut all| all["you"].take());
                *text = serde_json::json!({ "server": known, "you": you }).to_string();
                continue;
            }
            let mut whole = serde_json::from_str(text)
                .unwrap_or_else(|_| serde_json::json!({ "service": &*text }));
            if let (Some(map), Ok(server)) =
                (whole.as_object_mut(), serde_json::to_value(from.counts()))
            {
                map.insert("server".to_owned(), server);
                *text = whole.to_string();
            }
        }
    }
}

impl ReportSources<'_> {
    fn counts(&self) -> Report {
        let tally = self.counts;
        let count = |kind: fn(&Security) -> bool| {
            self.sessions.iter().flatten().filter(|security| kind(security)).count() as u64
        };
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Report {
            cell: self.cell_name.map(str::to_owned),
            version: env!("CARGO_PKG_VERSION"),
            database: self.database,
            users_socket: self.users_socket.map(Path::to_owned),
            authority: self
                .certifier
                .and_then(Certifier::authority)
                .map(|print| Fingerprint(print).to_string()),
            signs: self.certifier.is_some_and(Certifier::signs),
            pid: std::process::id(),
            up_secs: tally.started.elapsed().as_secs(),
            connections: read(&tally.connections),
            sessions: self.sessions.len() as u64,
            sessions_local: count(|security| {
                matches!(security, Security::Local | Security::User(_))
            }),
            sessions_tls: count(|security| matches!(security, Security::Tls { .. })),
            sessions_clear: count(|security| matches!(security, Security::Clear)),
            connections_accepted: read(&tally.accepted),
            connections_malformed: read(&tally.malformed),
            connections_turned_away: read(&tally.turned_away),
            connections_too_slow: read(&tally.slow_readers),
            connections_secured: read(&tally.secured),
            connections_clear_refused: read(&tally.clear_refused),
            frames: read(&tally.frames),
            replies: read(&tally.replies),
            lane_requests: read(&tally.lane_requests),
            lane_hits: read(&tally.lane_hits),
            breaks: read(&tally.breaks),
            panics: read(&tally.panics),
            waits: observe::waits(),
            audit_forward: self.audit.and_then(Audit::forwarded),
            limits: self.bounds.limits,
            used: self.used(),
            met: met(self.bounds),
        }
    }

    fn used(&self) -> Used {
        let used = self.bounds.used();
        Used {
            connections: self.counts.connections.load(Ordering::Relaxed),
            connections_possible: self.bounds.connections_max,
            connections_of_one_host: used.connections_of_one,
            sessions: used.users,
            nobody_sessions: used.of_nobody_count,
            nobody_sessions_of_one_host: used.nobody_of_one,
            hosts: used.hosts,
            nobody_unread_bytes: self.nobody_unread_bytes,
            regions: used.regions,
            region_bytes: used.region_bytes,
        }
    }
}

fn met(bounds: &Bounds) -> Met {
    let met = &bounds.met;
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Met {
        connections_per_host: read(&met.connections_host),
        connections: read(&met.connections_all),
        sessions: read(&met.sessions_all),
        sessions_per_host: read(&met.sessions_host),
        nobody_sessions: read(&met.nobody_sessions_all),
        nobody_sessions_per_host: read(&met.nobody_sessions_host),
        regions: read(&met.regions),
        nobody_memory: read(&met.nobody_memory),
        nobody_calls: read(&met.nobody_calls),
        passwords: read(&met.passwords),
        log_lines: read(&met.log_lines),
    }
}
