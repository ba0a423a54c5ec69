//! Cells in DNS: `_rialto._tcp.CELL` has an SRV record for each server that a client may contact
//! first.
//!
//! Servers are ordered as RFC 2782 requires: by priority, and among equals at random, those with
//! more weight sooner. Records are valid for their own lifetime (between [`KNOWN_MIN`] and
//! [`KNOWN_MAX`]), their absence for that of the zone, and a failure for [`FAILED`]. A lookup takes
//! [`TIMEOUT`] at most.
//!
//! Cells of AFS have records of their own ([`CellsOfDns::of_afs`]): `_afs3-vlserver._udp.CELL`, or
//! else AFSDB records of the cell, whose hosts have no order (RFC 5864).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use client::Endpoint;
use rand::Rng;
use simple_dns::rdata::RData;
use simple_dns::{Packet, ResourceRecord, TYPE};

use crate::dns::{self, DnsError};

const TIMEOUT: Duration = Duration::from_secs(5);
const KNOWN_MIN: Duration = Duration::from_secs(5);
const KNOWN_MAX: Duration = Duration::from_secs(24 * 3600);
/// For zones that do not state how long an absence is valid.
const ABSENT: Duration = Duration::from_secs(60);
const FAILED: Duration = Duration::from_secs(10);
/// Limits of the records read per cell, and of the cells cached.
const SERVERS_MAX: usize = 16;
const CELLS_MAX: usize = 1024;

/// Lookups of cells in DNS, with a cache of their results.
pub struct CellsOfDns {
    service: CellService,
    /// `None`: the name servers of this machine.
    servers: Option<Vec<SocketAddr>>,
    patience: Duration,
    known: parking_lot::Mutex<HashMap<String, Known>>,
}

/// The servers that are looked up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CellService {
    Rialto,
    /// Database servers of AFS.
    Afs,
}

impl CellService {
    const fn label(self) -> &'static str {
        match self {
            CellService::Rialto => "_rialto._tcp",
            CellService::Afs => "_afs3-vlserver._udp",
        }
    }
}

/// The port of AFS's location database, which AFSDB records do not name.
const AFS_PORT: u16 = 7003;
/// The kind of AFSDB record that names a database server. Source: RFC 1183.
const AFSDB_DATABASE: u16 = 1;

struct Known {
    until: Instant,
    /// `None`: there are no servers, or the lookup failed.
    targets: Option<Vec<Target>>,
}

/// A server of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    priority: u16,
    weight: u16,
    addresses: Vec<SocketAddr>,
}

impl CellsOfDns {
    /// Uses these name servers, or those of this machine.
    pub fn new(servers: Option<Vec<SocketAddr>>) -> Self {
        let (service, known) = (CellService::Rialto, parking_lot::Mutex::default());
        CellsOfDns { service, servers, patience: TIMEOUT, known }
    }

    /// Likewise, for the database servers of cells of AFS.
    pub fn of_afs(servers: Option<Vec<SocketAddr>>) -> Self {
        CellsOfDns { service: CellService::Afs, ..CellsOfDns::new(servers) }
    }

    /// Returns the servers of a cell, the first to try at the beginning; `None` if there is no such
    /// cell, or the lookup failed.
    pub fn servers_of(&self, cell: &str) -> Option<Vec<Endpoint>> {
        let addresses = self.addresses_of(cell)?.into_iter();
        Some(addresses.map(|address| Endpoint::Tcp(address.to_string())).collect())
    }

    /// As [`CellsOfDns::servers_of`], the addresses.
    pub fn addresses_of(&self, cell: &str) -> Option<Vec<SocketAddr>> {
        let targets = self.targets_of(cell, Instant::now())?;
        let targets = in_order(targets, &mut rand::rng()).into_iter();
        Some(targets.flat_map(|target| target.addresses).collect())
    }

    fn targets_of(&self, cell: &str, now: Instant) -> Option<Vec<Target>> {
        // A name without dots is local to this machine.
        if !cell.contains('.') || cell.split('.').any(str::is_empty) {
            return None;
        }
        if let Some(known) = self.known.lock().get(cell).filter(|known| known.until > now) {
            return known.targets.clone();
        }
        // Not under the lock: another cell's name servers may be quicker.
        let found = self.ask(cell);
        let (targets, good_for) = found.unwrap_or_else(|error| {
            tracing::warn!(cell, %error, "the lookup of a cell in DNS failed");
            (None, FAILED)
        });
        let mut known = self.known.lock();
        if known.len() >= CELLS_MAX {
            known.clear();
        }
        known.insert(cell.to_owned(), Known { until: now + good_for, targets: targets.clone() });
        targets
    }

    fn ask(&self, cell: &str) -> Result<(Option<Vec<Target>>, Duration), DnsError> {
        let servers = self.servers.clone().unwrap_or_else(dns::of_machine);
        let until = Instant::now() + self.patience;
        let name = format!("{}.{cell}", self.service.label());
        let bytes = dns::ask(&servers, &name, TYPE::SRV, until)?;
        let Ok(answer) = Packet::parse(&bytes) else { return Ok((None, FAILED)) };
        let mut targets = Vec::new();
        let mut good_for = KNOWN_MAX;
        for record in &answer.answers {
            let RData::SRV(srv) = &record.rdata else { continue };
            let host = srv.target.to_string();
            // The root as target: the cell states that it has no such service.
            if host.is_empty() || targets.len() == SERVERS_MAX {
                continue;
            }
            good_for = good_for.min(Duration::from_secs(record.ttl.into()));
            let mut hosts = addresses_in(&answer.additional_records, &host);
            if hosts.is_empty() {
                hosts = look_up(&servers, &host, until);
            }
            let addresses = hosts.into_iter().map(|host| SocketAddr::new(host, srv.port)).collect();
            targets.push(Target { priority: srv.priority, weight: srv.weight, addresses });
        }
        if targets.is_empty() && self.service == CellService::Afs {
            return of_afsdb(&servers, cell, until);
        }
        if targets.is_empty() {
            return Ok((None, absent_for(&answer)));
        }
        if targets.iter().all(|target| target.addresses.is_empty()) {
            return Ok((None, FAILED));
        }
        Ok((Some(targets), good_for.max(KNOWN_MIN)))
    }
}

/// The database servers that AFSDB records of a cell name.
fn of_afsdb(
    servers: &[SocketAddr],
    cell: &str,
    until: Instant,
) -> Result<(Option<Vec<Target>>, Duration), DnsError> {
    let bytes = dns::ask(servers, cell, TYPE::AFSDB, until)?;
    let Ok(answer) = Packet::parse(&bytes) else { return Ok((None, FAILED)) };
    let mut targets = Vec::new();
    let mut good_for = KNOWN_MAX;
    for record in answer.answers.iter().take(SERVERS_MAX) {
        let RData::AFSDB(database) = &record.rdata else { continue };
        if database.subtype != AFSDB_DATABASE {
            continue;
        }
        good_for = good_for.min(Duration::from_secs(record.ttl.into()));
        let host = database.hostname.to_string();
        let mut hosts = addresses_in(&answer.additional_records, &host);
        if hosts.is_empty() {
            hosts = look_up(servers, &host, until);
        }
        let addresses = hosts.into_iter().map(|host| SocketAddr::new(host, AFS_PORT)).collect();
        targets.push(Target { priority: 0, weight: 0, addresses });
    }
    if targets.is_empty() {
        return Ok((None, absent_for(&answer)));
    }
    Ok((Some(targets), good_for.max(KNOWN_MIN)))
}

fn look_up(servers: &[SocketAddr], host: &str, until: Instant) -> Vec<IpAddr> {
    let each =
        [TYPE::A, TYPE::AAAA].into_iter().filter_map(|of| dns::ask(servers, host, of, until).ok());
    let found = each.flat_map(|bytes| {
        Packet::parse(&bytes).map(|answer| all_addresses(&answer.answers)).unwrap_or_default()
    });
    found.collect()
}

fn all_addresses(records: &[ResourceRecord<'_>]) -> Vec<IpAddr> {
    records.iter().filter_map(address).collect()
}

fn addresses_in(records: &[ResourceRecord<'_>], host: &str) -> Vec<IpAddr> {
    let of_host =
        records.iter().filter(|record| record.name.to_string().eq_ignore_ascii_case(host));
    of_host.filter_map(address).collect()
}

fn address(record: &ResourceRecord<'_>) -> Option<IpAddr> {
    match &record.rdata {
        RData::A(v4) => Some(Ipv4Addr::from_bits(v4.address).into()),
        RData::AAAA(v6) => Some(Ipv6Addr::from_bits(v6.address).into()),
        _ => None,
    }
}

/// How long an absence is valid. Source: RFC 2308.
fn absent_for(answer: &Packet<'_>) -> Duration {
    let zone = answer.name_servers.iter().find_map(|record| match &record.rdata {
        RData::SOA(soa) => Some(Duration::from_secs(record.ttl.min(soa.minimum).into())),
        _ => None,
    });
    zone.unwrap_or(ABSENT).clamp(KNOWN_MIN, KNOWN_MAX)
}

/// Source: RFC 2782.
fn in_order(mut targets: Vec<Target>, random: &mut impl Rng) -> Vec<Target> {
    let mut ordered = Vec::with_capacity(targets.len());
    while let Some(best) = targets.iter().map(|target| target.priority).min() {
        let weight =
            |target: &Target| if target.priority == best { u32::from(target.weight) } else { 0 };
        let mut at = random.random_range(0..=targets.iter().map(weight).sum::<u32>());
        let chosen = targets.iter().position(|target| {
            let here = target.priority == best && at <= weight(target);
            at = at.saturating_sub(weight(target));
            here
        });
        let first = || targets.iter().position(|target| target.priority == best);
        ordered.extend(chosen.or_else(first).map(|chosen| targets.remove(chosen)));
    }
    ordered
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, UdpSocket};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use rand::SeedableRng;
    use rand::rngs::SmallRng;
    use simple_dns::rdata::{A, AFSDB, SOA, SRV};
    use simple_dns::{CLASS, Name, PacketFlag, RCODE};

    use super::*;

    /// A name server that knows the cells `a.test` and, over TCP alone, `long.test`.
    struct Stub {
        address: SocketAddr,
        asked: Arc<AtomicU32>,
        silent: Arc<AtomicBool>,
    }

    fn srv(
        cell: &str,
        (priority, weight, port): (u16, u16, u16),
        host: &str,
    ) -> ResourceRecord<'static> {
        let target = Name::new_unchecked(Box::leak(host.to_owned().into_boxed_str()));
        let rdata = RData::SRV(SRV { priority, weight, port, target });
        let name = Name::new_unchecked(Box::leak(format!("_rialto._tcp.{cell}").into_boxed_str()));
        ResourceRecord::new(name, CLASS::IN, 600, rdata)
    }

    fn a(host: &'static str, address: [u8; 4]) -> ResourceRecord<'static> {
        let rdata = RData::A(A { address: u32::from_be_bytes(address) });
        ResourceRecord::new(Name::new_unchecked(host), CLASS::IN, 600, rdata)
    }

    fn answer(question: &[u8], tcp: bool) -> Vec<u8> {
        let question = Packet::parse(question).unwrap();
        let mut packet = Packet::new_reply(question.id());
        packet.questions.clone_from(&question.questions);
        let name = question.questions[0].qname.to_string();
        match (name.as_str(), question.questions[0].qtype) {
            ("_rialto._tcp.a.test", _) => {
                packet.answers.push(srv("a.test", (20, 1, 7620), "last.a.test"));
                packet.answers.push(srv("a.test", (10, 1, 7621), "first.a.test"));
                packet.additional_records.push(a("first.a.test", [192, 0, 2, 1]));
            }
            ("last.a.test", simple_dns::QTYPE::TYPE(TYPE::A)) => {
                packet.answers.push(a("last.a.test", [192, 0, 2, 2]));
            }
            ("_rialto._tcp.long.test", _) if !tcp => packet.set_flags(PacketFlag::TRUNCATION),
            ("_rialto._tcp.long.test", _) => {
                packet.answers.extend(
                    (0..40).map(|port| srv("long.test", (1, 1, 100 + port), "h.long.test")),
                );
                packet.additional_records.push(a("h.long.test", [192, 0, 2, 3]));
            }
            ("_afs3-vlserver._udp.a.test", _) => {
                let mut record = srv("a.test", (1, 1, 7003), "db.a.test");
                record.name = Name::new_unchecked("_afs3-vlserver._udp.a.test");
                packet.answers.push(record);
                packet.additional_records.push(a("db.a.test", [192, 0, 2, 4]));
            }
            ("old.test", simple_dns::QTYPE::TYPE(TYPE::AFSDB)) => {
                for (subtype, hostname) in [(1, "db.old.test"), (2, "dce.old.test")] {
                    let hostname = Name::new_unchecked(hostname);
                    let rdata = RData::AFSDB(AFSDB { subtype, hostname });
                    let name = Name::new_unchecked("old.test");
                    packet.answers.push(ResourceRecord::new(name, CLASS::IN, 600, rdata));
                }
            }
            ("db.old.test", simple_dns::QTYPE::TYPE(TYPE::A)) => {
                packet.answers.push(a("db.old.test", [192, 0, 2, 5]));
            }
            ("_rialto._tcp.none.test", _) => packet.answers.push(srv("none.test", (1, 1, 1), ".")),
            ("_rialto._tcp.broken.test", _) => *packet.rcode_mut() = RCODE::ServerFailure,
            _ => {
                *packet.rcode_mut() = RCODE::NameError;
                let name = || Name::new_unchecked("test");
                let (serial, refresh, retry, expire, minimum) = (1, 1, 1, 1, 30);
                let soa =
                    SOA { mname: name(), rname: name(), serial, refresh, retry, expire, minimum };
                packet.name_servers.push(ResourceRecord::new(
                    name(),
                    CLASS::IN,
                    600,
                    RData::SOA(soa),
                ));
            }
        }
        packet.build_bytes_vec().unwrap()
    }

    #[test]
    fn cells_of_afs_have_records_of_two_kinds() {
        let stub = Stub::start();
        let cells = CellsOfDns { service: CellService::Afs, ..stub.cells() };
        let at = |last| vec![SocketAddr::from(([192, 0, 2, last], 7003))];
        assert_eq!(cells.addresses_of("a.test"), Some(at(4)));
        assert_eq!(cells.addresses_of("old.test"), Some(at(5)));
        assert_eq!(cells.addresses_of("long.test"), None, "one of Rialto");
        assert_eq!(stub.cells().addresses_of("old.test"), None, "one of AFS");
    }

    impl Stub {
        fn start() -> Stub {
            let (asked, silent) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
            let (socket, listener) = (0..20)
                .find_map(|_| {
                    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                    let listener = TcpListener::bind(socket.local_addr().unwrap()).ok()?;
                    Some((socket, listener))
                })
                .unwrap();
            let address = socket.local_addr().unwrap();
            let (counted, quiet) = (Arc::clone(&asked), Arc::clone(&silent));
            std::thread::spawn(move || {
                let mut bytes = [0; 512];
                while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                    counted.fetch_add(1, Ordering::SeqCst);
                    if quiet.load(Ordering::SeqCst) {
                        continue;
                    }
                    let right = answer(&bytes[..length], false);
                    // An attacker that guesses answers first.
                    let mut wrong = right.clone();
                    wrong[0] ^= 1;
                    socket.send_to(&wrong, from).unwrap();
                    socket.send_to(b"nonsense", from).unwrap();
                    socket.send_to(&right, from).unwrap();
                }
            });
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let (mut stream, mut length) = (stream.unwrap(), [0; 2]);
                    stream.read_exact(&mut length).unwrap();
                    let mut bytes = vec![0; u16::from_be_bytes(length).into()];
                    stream.read_exact(&mut bytes).unwrap();
                    let answer = answer(&bytes, true);
                    stream.write_all(&(answer.len() as u16).to_be_bytes()).unwrap();
                    stream.write_all(&answer).unwrap();
                }
            });
            Stub { address, asked, silent }
        }

        fn cells(&self) -> CellsOfDns {
            CellsOfDns {
                patience: Duration::from_millis(300),
                ..CellsOfDns::new(Some(vec![self.address]))
            }
        }

        fn asked(&self) -> u32 {
            self.asked.swap(0, Ordering::SeqCst)
        }
    }

    fn tcp(addresses: &[&str]) -> Option<Vec<Endpoint>> {
        Some(addresses.iter().map(|address| Endpoint::Tcp((*address).into())).collect())
    }

    #[test]
    fn servers_come_in_order_and_are_cached_for_their_lifetime() {
        let stub = Stub::start();
        let cells = stub.cells();
        assert_eq!(cells.servers_of("a.test"), tcp(&["192.0.2.1:7621", "192.0.2.2:7620"]));
        assert_eq!(
            stub.asked(),
            3,
            "the records, and both kinds of address of the host that came without"
        );
        let now = Instant::now();
        let after = |secs| {
            cells.targets_of("a.test", now + Duration::from_secs(secs)).map(|targets| targets.len())
        };
        assert_eq!((after(0), after(590), stub.asked()), (Some(2), Some(2), 0));
        assert_eq!((after(601), stub.asked()), (Some(2), 3));
    }

    #[test]
    fn what_is_not_there_is_known_as_long_as_the_zone_says() {
        let stub = Stub::start();
        let cells = stub.cells();
        let now = Instant::now();
        let after = |secs| cells.targets_of("b.test", now + Duration::from_secs(secs));
        assert_eq!((after(0), after(29), stub.asked()), (None, None, 1));
        assert_eq!((after(31), stub.asked()), (None, 1));
        assert_eq!((cells.servers_of("none.test"), stub.asked()), (None, 1));
        assert_eq!(
            (cells.servers_of("plain"), cells.servers_of("a..test"), stub.asked()),
            (None, None, 0)
        );
    }

    #[test]
    fn an_answer_that_was_cut_off_is_asked_for_in_full() {
        let stub = Stub::start();
        assert_eq!(stub.cells().servers_of("long.test").unwrap().len(), SERVERS_MAX);
    }

    #[test]
    fn a_server_that_is_silent_or_broken_is_given_up_for_a_while() {
        let stub = Stub::start();
        let cells = stub.cells();
        let now = Instant::now();
        let after = |cell, secs| {
            cells.targets_of(cell, now + Duration::from_secs(secs)).map(|targets| targets.len())
        };
        assert_eq!((after("broken.test", 0), stub.asked()), (None, 1));
        stub.silent.store(true, Ordering::SeqCst);
        assert_eq!(after("a.test", 0), None);
        assert!(stub.asked() >= 1);
        stub.silent.store(false, Ordering::SeqCst);
        assert_eq!((after("a.test", 9), stub.asked()), (None, 0));
        assert_eq!(after("a.test", 11), Some(2));
        // The next server answers.
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let two = vec![silent.local_addr().unwrap(), stub.address];
        assert_eq!(
            CellsOfDns::new(Some(two)).servers_of("a.test").map(|found| found.len()),
            Some(2)
        );
    }

    #[test]
    fn more_weight_comes_sooner_and_a_lower_priority_first() {
        let target = |priority, weight| Target { priority, weight, addresses: Vec::new() };
        let all = vec![target(2, 9), target(1, 0), target(1, 1), target(1, 9)];
        let mut random = SmallRng::seed_from_u64(7);
        let mut first = HashMap::<u16, u32>::new();
        for _ in 0..1000 {
            let ordered = in_order(all.clone(), &mut random);
            assert_eq!((ordered.len(), ordered[3].priority), (4, 2));
            *first.entry(ordered[0].weight).or_default() += 1;
        }
        let share = |weight| first.get(&weight).copied().unwrap_or_default();
        assert!(share(9) > 700 && (20..300).contains(&share(1)) && share(0) > 0, "{first:?}");
    }
}
