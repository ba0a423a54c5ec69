//! The use of the server's resources, by host ([`crate::ServerLimits`]).

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::SessionId;

use crate::ServerLimits;

/// Of lines of one kind about one host, one is logged in this time.
const QUIET: Duration = Duration::from_secs(60);
/// The most pairs of kind and host that are counted apart.
const QUIET_MAX: usize = 4096;

/// A host for the limits: of IPv6 a /64, since one machine can use any number of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Host(IpAddr);

impl Host {
    pub fn of(address: IpAddr) -> Host {
        Host(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            v4 => v4,
        })
    }

    pub fn address(self) -> IpAddr {
        self.0
    }
}

/// How often each limit was met since the start.
#[derive(Default)]
pub(crate) struct Met {
    pub connections_host: AtomicU64,
    pub connections_all: AtomicU64,
    pub sessions_host: AtomicU64,
    pub sessions_all: AtomicU64,
    pub nobody_sessions_host: AtomicU64,
    pub nobody_sessions_all: AtomicU64,
    pub nobody_memory: AtomicU64,
    pub nobody_calls: AtomicU64,
    pub passwords: AtomicU64,
    pub log_lines: AtomicU64,
}

/// Counts one more refusal.
pub(crate) fn count(met: &AtomicU64) {
    met.fetch_add(1, Ordering::Relaxed);
}

#[derive(Default)]
struct OfHost {
    connections: usize,
    users: usize,
    of_nobody_count: BTreeSet<SessionId>,
    passwords: usize,
}

impl OfHost {
    fn is_empty(&self) -> bool {
        self.connections == 0
            && self.users == 0
            && self.of_nobody_count.is_empty()
            && self.passwords == 0
    }
}

#[derive(Default)]
struct State {
    hosts: HashMap<Host, OfHost>,
    /// The host of each session, and whether no user has used it.
    sessions: HashMap<SessionId, (Option<Host>, bool)>,
    of_nobody_count: usize,
}

impl State {
    fn change<R>(&mut self, host: Host, change: impl FnOnce(&mut OfHost) -> R) -> R {
        let of = self.hosts.entry(host).or_default();
        let result = change(of);
        if of.is_empty() {
            self.hosts.remove(&host);
        }
        result
    }
}

/// For each kind of line and host: when it was logged last, and how many were suppressed since.
type Quiet = HashMap<(&'static str, Option<Host>), (Instant, u64)>;

pub(crate) struct Bounds {
    pub limits: ServerLimits,
    pub met: Met,
    /// Connections in all; limited by the descriptors.
    pub connections_max: u64,
    state: Mutex<State>,
    quiet: Mutex<Quiet>,
}

/// The present use.
pub(crate) struct Used {
    pub hosts: usize,
    pub users: usize,
    pub of_nobody_count: usize,
    /// Of the host that has most.
    pub nobody_of_one: usize,
    pub connections_of_one: usize,
}

impl Bounds {
    pub fn new(limits: ServerLimits, descriptors: Option<u64>) -> Bounds {
        let all = descriptors.unwrap_or(u64::MAX);
        let connections_max = all - limits.descriptors_kept.min(all / 4);
        Bounds {
            limits,
            met: Met::default(),
            connections_max,
            state: Mutex::default(),
            quiet: Mutex::default(),
        }
    }

    /// A connection came in. Returns whether its host may have it.
    pub fn connect(&self, host: Option<Host>) -> bool {
        let Some(host) = host else { return true };
        let most = self.limits.connections_per_host;
        let fits = self.state.lock().change(host, |of| {
            of.connections += 1;
            of.connections <= most
        });
        if !fits {
            count(&self.met.connections_host);
        }
        fits
    }

    /// The connection is gone.
    pub fn part(&self, host: Option<Host>) {
        if let Some(host) = host {
            self.state.lock().change(host, |of| of.connections -= 1);
        }
    }

    /// May one more session of *nobody* come from this host? `Some`: after this one has ended,
    /// which is the oldest of the host that has most.
    ///
    /// # Errors
    /// The host has as many as it may.
    pub fn admit_nobody(&self, host: Option<Host>) -> Result<Option<SessionId>, ()> {
        let state = self.state.lock();
        let of = host.and_then(|host| state.hosts.get(&host));
        if of.is_some_and(|of| of.of_nobody_count.len() >= self.limits.nobody_sessions_per_host) {
            count(&self.met.nobody_sessions_host);
            return Err(());
        }
        if state.of_nobody_count < self.limits.nobody_sessions {
            return Ok(None);
        }
        count(&self.met.nobody_sessions_all);
        let richest = state.hosts.values().max_by_key(|of| of.of_nobody_count.len());
        Ok(richest.and_then(|of| of.of_nobody_count.first()).copied())
    }

    /// May one more session of a user come from this host?
    pub fn admit_user(&self, host: Option<Host>) -> bool {
        let state = self.state.lock();
        let of = host.and_then(|host| state.hosts.get(&host)).map_or(0, |of| of.users);
        let (host_full, full) = (
            of >= self.limits.sessions_per_host,
            host.is_some() && state.sessions.len() - state.of_nobody_count >= self.limits.sessions,
        );
        if host_full {
            count(&self.met.sessions_host);
        } else if full {
            count(&self.met.sessions_all);
        }
        !host_full && !full
    }

    /// A session began on this host, or was found again after a restart.
    pub fn began(&self, session: SessionId, host: Option<Host>, of_nobody: bool) {
        let mut state = self.state.lock();
        if state.sessions.contains_key(&session) {
            return;
        }
        state.sessions.insert(session, (host, of_nobody));
        state.of_nobody_count += usize::from(of_nobody);
        if let Some(host) = host {
            state.change(host, |of| match of_nobody {
                true => drop(of.of_nobody_count.insert(session)),
                false => of.users += 1,
            });
        }
    }

    /// A session of *nobody* is a user's now.
    pub fn proved(&self, session: SessionId) {
        let mut state = self.state.lock();
        let Some((host, of_nobody)) = state.sessions.get_mut(&session) else { return };
        if !std::mem::take(of_nobody) {
            return;
        }
        let host = *host;
        state.of_nobody_count -= 1;
        if let Some(host) = host {
            state.change(host, |of| {
                of.of_nobody_count.remove(&session);
                of.users += 1;
            });
        }
    }

    /// The host where a session began.
    pub fn host_of(&self, session: SessionId) -> Option<Host> {
        self.state.lock().sessions.get(&session).and_then(|(host, _)| *host)
    }

    /// A session has ended.
    pub fn ended(&self, session: SessionId) {
        let mut state = self.state.lock();
        let Some((host, of_nobody)) = state.sessions.remove(&session) else { return };
        state.of_nobody_count -= usize::from(of_nobody);
        if let Some(host) = host {
            state.change(host, |of| match of_nobody {
                true => drop(of.of_nobody_count.remove(&session)),
                false => of.users -= 1,
            });
        }
    }

    /// A password from this host is about to be verified. `false`: too many of its are under way.
    pub fn begin_password(&self, host: Option<Host>) -> bool {
        let most = self.limits.passwords_per_host;
        host.is_none_or(|host| {
            self.state.lock().change(host, |of| {
                let fits = of.passwords < most;
                of.passwords += usize::from(fits);
                fits
            })
        })
    }

    /// Its verification has ended.
    pub fn end_password(&self, host: Option<Host>) {
        if let Some(host) = host {
            self.state.lock().change(host, |of| of.passwords -= 1);
        }
    }

    /// May a line of this kind about this host be logged? `Some`: with the number of lines
    /// suppressed since the last.
    pub fn may_log(&self, kind: &'static str, host: Option<IpAddr>) -> Option<u64> {
        let now = Instant::now();
        let mut quiet = self.quiet.lock();
        if quiet.len() >= QUIET_MAX {
            quiet.retain(|_, (since, unsaid)| now.duration_since(*since) < QUIET || *unsaid > 0);
        }
        // Too many hosts count as one.
        let host = host
            .map(Host::of)
            .filter(|host| quiet.len() < QUIET_MAX || quiet.contains_key(&(kind, Some(*host))));
        match quiet.get_mut(&(kind, host)) {
            Some((since, unsaid)) if now.duration_since(*since) < QUIET => {
                *unsaid += 1;
                count(&self.met.log_lines);
                None
            }
            Some(entry) => Some(std::mem::replace(entry, (now, 0)).1),
            None => {
                quiet.insert((kind, host), (now, 0));
                Some(0)
            }
        }
    }

    pub fn used(&self) -> Used {
        let state = self.state.lock();
        let most = |of: fn(&OfHost) -> usize| state.hosts.values().map(of).max().unwrap_or(0);
        Used {
            hosts: state.hosts.len(),
            users: state.sessions.len() - state.of_nobody_count,
            of_nobody_count: state.of_nobody_count,
            nobody_of_one: most(|of| of.of_nobody_count.len()),
            connections_of_one: most(|of| of.connections),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> Option<Host> {
        Some(Host::of([10, 0, 0, last].into()))
    }

    fn bounds() -> Bounds {
        let limits = ServerLimits {
            sessions: 6,
            sessions_per_host: 3,
            nobody_sessions: 5,
            nobody_sessions_per_host: 3,
            connections_per_host: 2,
            passwords_per_host: 1,
            ..ServerLimits::default()
        };
        Bounds::new(limits, Some(1000))
    }

    #[test]
    fn an_ipv6_host_is_its_network() {
        let of = |text: &str| Host::of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::5"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::5"), of("2001:db8:1:3::5"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }

    #[test]
    fn one_host_has_so_much_and_leaves_the_rest_to_others() {
        let bounds = bounds();
        for number in 0..3 {
            assert_eq!(bounds.admit_nobody(host(1)), Ok(None));
            bounds.began(SessionId(number), host(1), true);
        }
        assert_eq!(bounds.admit_nobody(host(1)), Err(()));
        for number in 3..5 {
            assert_eq!(bounds.admit_nobody(host(2)), Ok(None));
            bounds.began(SessionId(number), host(2), true);
        }
        assert_eq!(
            bounds.admit_nobody(host(3)),
            Ok(Some(SessionId(0))),
            "the oldest of the host that has most ends"
        );
        assert!(bounds.admit_user(host(1)), "users have a share of their own");
        bounds.proved(SessionId(1));
        bounds.proved(SessionId(1));
        assert_eq!(bounds.admit_nobody(host(1)), Ok(None));
        let used = bounds.used();
        assert_eq!((used.users, used.of_nobody_count, used.nobody_of_one), (1, 4, 2));
        (0..5).for_each(|number| bounds.ended(SessionId(number)));
        assert_eq!(
            (bounds.used().hosts, bounds.used().users, bounds.used().of_nobody_count),
            (0, 0, 0)
        );
    }

    #[test]
    fn users_are_bounded_too_and_the_servers_own_socket_is_not() {
        let bounds = bounds();
        for number in 0..6 {
            let from = host(1 + number / 3);
            assert!(bounds.admit_user(from));
            bounds.began(SessionId(number.into()), from, false);
        }
        assert!(
            !bounds.admit_user(host(1)) && !bounds.admit_user(host(9)) && bounds.admit_user(None)
        );
        let met = |met: &AtomicU64| met.load(Ordering::Relaxed);
        assert_eq!((met(&bounds.met.sessions_host), met(&bounds.met.sessions_all)), (1, 1));
    }

    #[test]
    fn connections_and_passwords_of_a_host_are_counted() {
        let bounds = bounds();
        assert_eq!(bounds.connections_max, 750);
        assert!(bounds.connect(host(1)) && bounds.connect(host(1)) && !bounds.connect(host(1)));
        assert!(bounds.connect(host(2)) && bounds.connect(None));
        bounds.part(host(1));
        bounds.part(host(1));
        assert!(bounds.connect(host(1)));
        assert!(
            bounds.begin_password(host(1))
                && !bounds.begin_password(host(1))
                && bounds.begin_password(host(2))
        );
        bounds.end_password(host(1));
        assert!(bounds.begin_password(host(1)));
    }

    #[test]
    fn lines_of_one_kind_and_host_are_logged_once_in_a_while() {
        let bounds = bounds();
        let from = |last: u8| Some([10, 0, 0, last].into());
        assert_eq!(bounds.may_log("token", from(1)), Some(0));
        assert_eq!(bounds.may_log("token", from(1)), None);
        assert_eq!(
            (bounds.may_log("token", from(2)), bounds.may_log("attach", from(1))),
            (Some(0), Some(0))
        );
        for number in 0..10_000_u32 {
            bounds.may_log("token", Some(number.to_be_bytes().into()));
        }
        assert!(bounds.quiet.lock().len() <= QUIET_MAX + 1);
        assert_eq!(bounds.may_log("token", from(200)), None, "too many hosts are one");
    }
}
