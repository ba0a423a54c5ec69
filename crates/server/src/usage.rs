//! The use of the server's resources, by host ([`crate::ServerLimits`]).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::{ClientId, Host, SessionId};

use crate::ServerLimits;

/// Of lines of one kind about one host, one is logged in this time.
const QUIET: Duration = Duration::from_secs(60);
/// The most pairs of kind and host that are counted apart.
const QUIET_MAX: usize = 4096;
/// Connections of a local user beyond its limit that get an answer.
const CROWDED_MAX: usize = 64;
/// New sessions of a local user that wait to be recorded: they are recorded one after the other,
/// each with a sync, and others wait behind them.
const ATTACHES_MAX: usize = 16;
/// Of the descriptors for connections a local user may take this part.
const LOCAL_USERS_PART: u64 = 8;

/// How often each limit was met since the start.
#[derive(Default)]
pub(crate) struct Met {
    pub connections_host: AtomicU64,
    pub connections_all: AtomicU64,
    pub regions: AtomicU64,
    pub sessions_host: AtomicU64,
    pub sessions_all: AtomicU64,
    pub nobody_sessions_host: AtomicU64,
    pub nobody_sessions_all: AtomicU64,
    pub nobody_memory: AtomicU64,
    pub nobody_calls: AtomicU64,
    pub passwords: AtomicU64,
    pub log_lines: AtomicU64,
}

/// A connection came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    Fits,
    /// Its host has too many: its hello is refused, unless it is a server's.
    Crowded,
    /// It is not even answered.
    Over,
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
    attaches: usize,
    mapped: Mapped,
}

/// Memory of clients that is mapped.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Mapped {
    regions: usize,
    bytes: usize,
}

impl Mapped {
    fn fits(self, bytes: usize, regions_max: usize, mib_max: usize) -> bool {
        let bytes_max = mib_max.saturating_mul(1 << 20);
        self.regions < regions_max && self.bytes.saturating_add(bytes) <= bytes_max
    }

    fn add(&mut self, bytes: usize) {
        *self = Mapped { regions: self.regions + 1, bytes: self.bytes + bytes };
    }

    fn remove(&mut self, bytes: usize) {
        *self = Mapped { regions: self.regions - 1, bytes: self.bytes - bytes };
    }
}

impl OfHost {
    fn is_empty(&self) -> bool {
        self.connections == 0
            && self.users == 0
            && self.of_nobody_count.is_empty()
            && self.passwords == 0
            && self.attaches == 0
            && self.mapped == Mapped::default()
    }
}

/// A session that counts.
struct Counted {
    client: ClientId,
    host: Option<Host>,
    /// No user has used it.
    of_nobody: bool,
}

#[derive(Default)]
struct State {
    hosts: HashMap<Host, OfHost>,
    sessions: HashMap<SessionId, Counted>,
    /// The sessions of each client.
    clients: HashMap<ClientId, BTreeSet<SessionId>>,
    of_nobody_count: usize,
    /// Of all hosts.
    mapped: Mapped,
}

impl State {
    /// See [`Bounds::is_anothers`].
    fn is_anothers(&self, session: SessionId, host: Option<Host>) -> bool {
        let user = |host: Option<Host>| host.and_then(Host::local_user);
        self.sessions.get(&session).is_some_and(|counted| user(counted.host) != user(host))
    }

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
    /// Of all hosts.
    pub regions: usize,
    pub region_bytes: usize,
}

/// Memory of a client that the server has mapped: it counts until this is dropped.
pub(crate) struct MappedShare {
    bounds: Arc<Bounds>,
    /// `None`: it counts nowhere.
    host: Option<Host>,
    bytes: usize,
}

impl Drop for MappedShare {
    fn drop(&mut self) {
        let Some(host) = self.host else { return };
        let mut state = self.bounds.state.lock();
        state.mapped.remove(self.bytes);
        state.change(host, |of| of.mapped.remove(self.bytes));
    }
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
    pub fn connect(&self, host: Option<Host>) -> Arrived {
        let Some(host) = host else { return Arrived::Fits };
        let most = self.connections_of(host);
        let mut state = self.state.lock();
        let there = state.hosts.get(&host).map_or(0, |of| of.connections);
        let arrived = match there {
            _ if there < most => Arrived::Fits,
            _ if host.local_user().is_some() && there >= most + CROWDED_MAX => Arrived::Over,
            _ => Arrived::Crowded,
        };
        if arrived != Arrived::Over {
            state.change(host, |of| of.connections += 1);
        }
        drop(state);
        if arrived != Arrived::Fits {
            count(&self.met.connections_host);
        }
        arrived
    }

    /// The connections that a host may have: a local user a part of the descriptors, since they
    /// cost it nothing.
    fn connections_of(&self, host: Host) -> usize {
        let most = self.limits.connections_per_host;
        match host {
            Host::Network(_) => most,
            Host::LocalUser(_) => {
                let part = self.connections_max / LOCAL_USERS_PART;
                most.min(usize::try_from(part).unwrap_or(usize::MAX)).max(1)
            }
        }
    }

    /// Memory of a client of this host is to be mapped. `None`: its host, or all, have as much as
    /// they may.
    pub fn map(self: &Arc<Self>, host: Option<Host>, bytes: usize) -> Option<MappedShare> {
        if let Some(host) = host {
            let limits = &self.limits;
            let mut state = self.state.lock();
            let of = state.hosts.get(&host).map_or_else(Mapped::default, |of| of.mapped);
            if !of.fits(bytes, limits.regions_per_host, limits.region_mib_per_host)
                || !state.mapped.fits(bytes, limits.regions, limits.region_mib)
            {
                count(&self.met.regions);
                return None;
            }
            state.mapped.add(bytes);
            state.change(host, |of| of.mapped.add(bytes));
        }
        Some(MappedShare { bounds: Arc::clone(self), host, bytes })
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
    pub fn began(
        &self,
        (client, session): (ClientId, SessionId),
        host: Option<Host>,
        of_nobody: bool,
    ) {
        let mut state = self.state.lock();
        if state.sessions.contains_key(&session) {
            return;
        }
        state.sessions.insert(session, Counted { client, host, of_nobody });
        state.clients.entry(client).or_default().insert(session);
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
        let Some(counted) = state.sessions.get_mut(&session) else { return };
        if !std::mem::take(&mut counted.of_nobody) {
            return;
        }
        let host = counted.host;
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
        self.state.lock().sessions.get(&session).and_then(|counted| counted.host)
    }

    /// Is the session one of another local user than that at `host`, or of one where there is none?
    /// Unknown sessions are those of before a restart.
    pub fn is_anothers(&self, session: SessionId, host: Option<Host>) -> bool {
        self.state.lock().is_anothers(session, host)
    }

    /// Has the client such a session?
    pub fn has_anothers(&self, client: ClientId, host: Option<Host>) -> bool {
        let state = self.state.lock();
        let mut sessions = state.clients.get(&client).into_iter().flatten();
        sessions.any(|session| state.is_anothers(*session, host))
    }

    /// A session has ended.
    pub fn ended(&self, session: SessionId) {
        let mut state = self.state.lock();
        let Some(counted) = state.sessions.remove(&session) else { return };
        let Counted { client, host, of_nobody } = counted;
        if let Some(sessions) = state.clients.get_mut(&client) {
            sessions.remove(&session);
            if sessions.is_empty() {
                state.clients.remove(&client);
            }
        }
        state.of_nobody_count -= usize::from(of_nobody);
        if let Some(host) = host {
            state.change(host, |of| match of_nobody {
                true => drop(of.of_nobody_count.remove(&session)),
                false => of.users -= 1,
            });
        }
    }

    /// A session at this host is about to begin. `false`: too many of a local user are.
    pub fn begin_attach(&self, host: Option<Host>) -> bool {
        let Some(host) = host.filter(|host| host.local_user().is_some()) else { return true };
        let fits = self.state.lock().change(host, |of| {
            let fits = of.attaches < ATTACHES_MAX;
            of.attaches += usize::from(fits);
            fits
        });
        if !fits {
            count(&self.met.sessions_host);
        }
        fits
    }

    /// It has begun, or was refused.
    pub fn end_attach(&self, host: Option<Host>) {
        if let Some(host) = host.filter(|host| host.local_user().is_some()) {
            self.state.lock().change(host, |of| of.attaches -= 1);
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
    pub fn may_log(&self, kind: &'static str, host: Option<Host>) -> Option<u64> {
        let now = Instant::now();
        let mut quiet = self.quiet.lock();
        if quiet.len() >= QUIET_MAX {
            quiet.retain(|_, (since, unsaid)| now.duration_since(*since) < QUIET || *unsaid > 0);
        }
        // Too many hosts count as one.
        let host =
            host.filter(|host| quiet.len() < QUIET_MAX || quiet.contains_key(&(kind, Some(*host))));
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
            regions: state.mapped.regions,
            region_bytes: state.mapped.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> Option<Host> {
        Some(Host::of([10, 0, 0, last].into()))
    }

    fn began(bounds: &Bounds, number: u64, host: Option<Host>, of_nobody: bool) {
        bounds.began((ClientId(number.into()), SessionId(number)), host, of_nobody);
    }

    fn bounds() -> Bounds {
        let limits = ServerLimits {
            sessions: 6,
            sessions_per_host: 3,
            nobody_sessions: 5,
            nobody_sessions_per_host: 3,
            connections_per_host: 2,
            passwords_per_host: 1,
            regions: 3,
            region_mib: 100,
            regions_per_host: 2,
            region_mib_per_host: 60,
            ..ServerLimits::default()
        };
        Bounds::new(limits, Some(1000))
    }

    #[test]
    fn one_host_has_so_much_and_leaves_the_rest_to_others() {
        let bounds = bounds();
        for number in 0..3 {
            assert_eq!(bounds.admit_nobody(host(1)), Ok(None));
            began(&bounds, number, host(1), true);
        }
        assert_eq!(bounds.admit_nobody(host(1)), Err(()));
        for number in 3..5 {
            assert_eq!(bounds.admit_nobody(host(2)), Ok(None));
            began(&bounds, number, host(2), true);
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
            began(&bounds, number.into(), from, false);
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
        let connect = |host| bounds.connect(host);
        let arrived = [connect(host(1)), connect(host(1)), connect(host(1))];
        assert_eq!(arrived, [Arrived::Fits, Arrived::Fits, Arrived::Crowded]);
        assert_eq!([connect(host(2)), connect(None)], [Arrived::Fits; 2]);
        bounds.part(host(1));
        bounds.part(host(1));
        assert_eq!(connect(host(1)), Arrived::Fits);
        assert!(
            bounds.begin_password(host(1))
                && !bounds.begin_password(host(1))
                && bounds.begin_password(host(2))
        );
        bounds.end_password(host(1));
        assert!(bounds.begin_password(host(1)));
    }

    #[test]
    fn of_a_local_users_connections_few_are_refused_by_name() {
        let bounds = bounds();
        let mut arrived = (0..1000).map(|_| bounds.connect(Some(Host::LocalUser(1))));
        assert!(arrived.by_ref().take(2).all(|arrived| arrived == Arrived::Fits));
        assert!(arrived.by_ref().take(CROWDED_MAX).all(|arrived| arrived == Arrived::Crowded));
        assert!(arrived.all(|arrived| arrived == Arrived::Over));
        assert_eq!(bounds.used().connections_of_one, 2 + CROWDED_MAX);
        assert_eq!(bounds.connect(Some(Host::LocalUser(2))), Arrived::Fits);
        let few = Bounds::new(ServerLimits::default(), Some(1024));
        assert_eq!(few.connections_of(Host::LocalUser(1)), 768 / 8, "a part of the descriptors");
    }

    #[test]
    fn a_local_user_begins_few_sessions_at_a_time() {
        let (bounds, joe) = (bounds(), Some(Host::LocalUser(1)));
        assert!((0..ATTACHES_MAX).all(|_| bounds.begin_attach(joe)));
        assert!(!bounds.begin_attach(joe) && bounds.begin_attach(Some(Host::LocalUser(2))));
        assert!(bounds.begin_attach(host(1)) && bounds.begin_attach(None));
        bounds.end_attach(joe);
        assert!(bounds.begin_attach(joe) && !bounds.begin_attach(joe));
        (0..ATTACHES_MAX).for_each(|_| bounds.end_attach(joe));
        bounds.end_attach(Some(Host::LocalUser(2)));
        bounds.end_attach(host(1));
        assert_eq!(bounds.used().hosts, 0);
    }

    #[test]
    fn mapped_memory_counts_at_its_host_until_it_is_given_up() {
        let bounds = Arc::new(bounds());
        let user = |uid| Some(Host::LocalUser(uid));
        let map = |host, mib: usize| bounds.map(host, mib << 20);
        let first = map(user(1), 40).unwrap();
        assert!(map(user(1), 21).is_none(), "bytes of one");
        let second = map(user(1), 1).unwrap();
        assert!(map(user(1), 1).is_none(), "regions of one");
        assert!(map(user(2), 60).is_none(), "bytes of all");
        let third = map(user(2), 58).unwrap();
        assert!(map(user(3), 0).is_none(), "regions of all");
        assert!(map(None, 1 << 20).is_some(), "the server's own user");
        drop((first, second));
        assert!(map(user(1), 1).is_some());
        drop(third);
        let used = bounds.used();
        assert_eq!((used.regions, used.region_bytes, used.hosts), (0, 0, 0));
    }

    #[test]
    fn a_session_is_its_local_users_alone() {
        let bounds = bounds();
        let user = |uid| Some(Host::LocalUser(uid));
        began(&bounds, 1, user(1), false);
        began(&bounds, 2, None, false);
        began(&bounds, 3, host(1), false);
        for (session, client, anothers) in [
            (1, user(1), false),
            (1, user(2), true),
            (1, None, true),
            (1, host(1), true),
            (2, user(1), true),
            (2, None, false),
            (3, user(1), true),
            (3, host(2), false),
            (4, user(1), false),
        ] {
            assert_eq!(bounds.is_anothers(SessionId(session), client), anothers, "{session}");
            assert_eq!(bounds.has_anothers(ClientId(session.into()), client), anothers);
        }
        bounds.ended(SessionId(1));
        assert!(
            !bounds.has_anothers(ClientId(1), user(2)) && bounds.state.lock().clients.len() == 2
        );
    }

    #[test]
    fn lines_of_one_kind_and_host_are_logged_once_in_a_while() {
        let bounds = bounds();
        let from = host;
        assert_eq!(bounds.may_log("token", from(1)), Some(0));
        assert_eq!(bounds.may_log("token", from(1)), None);
        assert_eq!(
            (bounds.may_log("token", from(2)), bounds.may_log("attach", from(1))),
            (Some(0), Some(0))
        );
        for number in 0..10_000_u32 {
            bounds.may_log("token", Some(Host::of(number.to_be_bytes().into())));
        }
        assert!(bounds.quiet.lock().len() <= QUIET_MAX + 1);
        assert_eq!(bounds.may_log("token", from(200)), None, "too many hosts are one");
    }
}
