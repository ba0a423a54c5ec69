//! Slows hosts that send wrong requests to join. A secret cannot be guessed; this bounds the work,
//! and the lines of the log, that attempts cost.
//!
//! A host has some attempts free. After that each wrong one doubles the wait before the next, from
//! a second to five minutes. A right one changes nothing for its host. Addresses of IPv6 count by
//! their first 64 bits, since one host has all of these.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;
use types::{Fault, Time};

/// Wrong attempts before the next one waits: as many as a person mistypes.
const FREE: u32 = 5;
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Hosts that are counted by themselves; all others share one count.
const HOSTS_MAX: usize = 1024;

/// The wrong attempts of a host.
#[derive(Clone, Copy, Debug, Default)]
struct Wrong {
    count: u32,
    /// When the last one was.
    last: Time,
}

impl Wrong {
    /// How long the next attempt waits after the last one.
    fn pause(self) -> Duration {
        let doublings = self.count.saturating_sub(FREE);
        match doublings {
            0 => Duration::ZERO,
            doublings => Duration::from_secs(1 << (doublings - 1).min(9)).min(WAIT_MAX),
        }
    }

    fn is_forgotten(self, now: Time) -> bool {
        now.since(self.last) > 2 * WAIT_MAX
    }
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct JoinAttempts(Mutex<HashMap<Option<IpAddr>, Wrong>>);

fn counted(host: Option<IpAddr>) -> Option<IpAddr> {
    host.map(|host| match host.to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        ip => ip,
    })
}

impl JoinAttempts {
    /// # Errors
    /// `Busy`: the host must wait.
    pub fn need_no_wait(&self, host: Option<IpAddr>, now: Time) -> Result<(), Fault> {
        let hosts = self.0.lock();
        let host = counted(host);
        let wrong = hosts.get(&host).or_else(|| hosts.get(&SHARED).filter(|_| is_full(&hosts)));
        match wrong {
            Some(wrong) if now.since(wrong.last) < wrong.pause() => Err(Fault::Busy),
            _ => Ok(()),
        }
    }

    /// Notes a wrong attempt. Returns whether it is the one after which the host waits.
    pub fn was_wrong(&self, host: Option<IpAddr>, now: Time) -> bool {
        let mut hosts = self.0.lock();
        if is_full(&hosts) {
            hosts.retain(|_, wrong| !wrong.is_forgotten(now));
        }
        let host = counted(host);
        let host = if is_full(&hosts) && !hosts.contains_key(&host) { SHARED } else { host };
        let wrong = hosts.entry(host).or_default();
        if wrong.is_forgotten(now) {
            *wrong = Wrong::default();
        }
        *wrong = Wrong { count: wrong.count.saturating_add(1), last: now };
        wrong.count == FREE + 1
    }
}

/// Counts for all hosts for which there is no room. No host has this address.
const SHARED: Option<IpAddr> = Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED));

fn is_full(hosts: &HashMap<Option<IpAddr>, Wrong>) -> bool {
    hosts.len() >= HOSTS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::from_start(Duration::from_secs(secs))
    }

    #[test]
    fn sj2_each_wrong_request_makes_its_host_wait_longer() {
        let attempts = JoinAttempts::default();
        let host = |last: u16| Some(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, last)));
        let (mut now, mut tried) = (1000, 0);
        // A day of attempts, as fast as the server takes them.
        for _ in 0..86_400 {
            if attempts.need_no_wait(host(tried as u16), at(now)).is_ok() {
                attempts.was_wrong(host(tried as u16), at(now));
                tried += 1;
            }
            now += 1;
        }
        assert!((290..320).contains(&tried), "{tried}");
        assert_eq!(attempts.need_no_wait(Some([192, 0, 2, 1].into()), at(now)), Ok(()), "another");
    }

    #[test]
    fn sj2_many_hosts_take_bounded_memory_and_wait_together() {
        let attempts = JoinAttempts::default();
        let host = |number: u32| Some(IpAddr::from((number + 0x0a00_0000).to_be_bytes()));
        for number in 0..100_000 {
            attempts.was_wrong(host(number), at(1000));
        }
        assert!(attempts.0.lock().len() <= HOSTS_MAX + 1);
        assert_eq!(attempts.need_no_wait(host(200_000), at(1000)), Err(Fault::Busy));
        assert_eq!(attempts.need_no_wait(host(200_000), at(3000)), Ok(()));
    }
}
