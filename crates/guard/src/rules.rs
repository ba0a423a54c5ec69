//! The cell's rules, fences and mandates: the lists themselves, their form on a server, and how
//! they are changed; no I/O, no clock.
//!
//! A volume is administered under its base name: `home.*` includes `home.joe.readonly`,
//! `home.joe.backup`, its snapshots, and the temporary volumes of a release.

use std::collections::HashMap;
use std::net::IpAddr;

use types::limits::{NAME_BYTES_MAX, PARTITION_NAME_BYTES_MAX, RULES_MAX, WHY_BYTES_MAX};
use types::{ClientId, Fault, Fence, GuardCall, Mandate, PrincipalId, Realm, ServerId, Whom};

use crate::names::Network;
use crate::servers::ServerKeys;

/// Suffixes of the volumes of one base name.
const ENDINGS: [&str; 5] = [".readonly", ".backup", ".releasing", ".moving", ".moving2"];
/// Separates a base name from the label of a snapshot.
const SNAPSHOT: &str = ".snapshot.";

/// All rules of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// In the order of their numbers.
    pub fences: Vec<Fence>,
    /// Likewise.
    pub mandates: Vec<Mandate>,
    /// The keys of the cell's servers, as their records list them.
    pub servers: ServerKeys,
}

/// A rule to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Refuses calls.
    Fence(Fence),
    /// Gives administration.
    Mandate(Mandate),
}

/// A change of the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesEdit {
    /// Added, or replaces the one with its number.
    pub put: Option<Rule>,
    /// The numbers of fences to remove.
    pub fences_gone: Vec<u64>,
    /// The numbers of mandates to remove.
    pub mandates_gone: Vec<u64>,
    /// The number of the rule that the change is about.
    pub number: u64,
}

impl Rules {
    /// The change that a call makes at a moment (seconds since 1970); a new rule gets the number
    /// `next`. Any change also removes fences that have ended. `by`: the caller.
    ///
    /// # Errors
    /// `Invalid` for what no rule can express; `NoSpace`: there are [`RULES_MAX`]; `NotFound`: no
    /// rule has that number; `Unsupported`: a question, or a change of servers' keys.
    pub fn edit(
        &self,
        next: u64,
        now: i64,
        by: PrincipalId,
        call: &GuardCall,
    ) -> Result<RulesEdit, Fault> {
        debug_assert!(
            self.fences.iter().all(|fence| fence.number < next)
                && self.mandates.iter().all(|mandate| mandate.number < next),
            "AC-2: a number of a rule is not given again"
        );
        let is_over = |fence: &&Fence| fence.until != 0 && fence.until <= now;
        let mut edit = RulesEdit { number: next, ..RulesEdit::default() };
        edit.fences_gone = self.fences.iter().filter(is_over).map(|fence| fence.number).collect();
        match call {
            GuardCall::AddFence { whom, seconds, why } => {
                let whom = checked(*whom)?;
                if why.len() > WHY_BYTES_MAX {
                    return Err(Fault::NameTooLong);
                }
                // A repeated call, after a lost answer or to extend it, concerns the same fence.
                let known = self.fences.iter().find(|fence| fence.whom == whom);
                if known.is_none() && self.fences.len() - edit.fences_gone.len() >= RULES_MAX {
                    return Err(Fault::NoSpace);
                }
                let number = known.map_or(next, |fence| fence.number);
                let until = if *seconds == 0 { 0 } else { now.saturating_add_unsigned(*seconds) };
                edit.fences_gone.retain(|gone| *gone != number);
                edit.number = number;
                edit.put = Some(Rule::Fence(Fence {
                    number,
                    whom,
                    since: now,
                    until,
                    by,
                    why: why.clone(),
                }));
            }
            GuardCall::RemoveFence { number } => {
                let known = self.fences.iter().any(|fence| fence.number == *number);
                known.then_some(()).ok_or(Fault::NotFound)?;
                edit.number = *number;
                edit.fences_gone.push(*number);
            }
            GuardCall::AddMandate { principal, realm } => {
                check_realm(realm)?;
                if *principal == PrincipalId::NONE {
                    return Err(Fault::Invalid);
                }
                let same =
                    |mandate: &&Mandate| mandate.principal == *principal && mandate.realm == *realm;
                let known = self.mandates.iter().find(same);
                if known.is_none() && self.mandates.len() >= RULES_MAX {
                    return Err(Fault::NoSpace);
                }
                let number = known.map_or(next, |mandate| mandate.number);
                edit.number = number;
                let (principal, realm) = (*principal, realm.clone());
                edit.put = Some(Rule::Mandate(Mandate { number, principal, realm, by }));
            }
            GuardCall::RemoveMandate { number } => {
                let known = self.mandates.iter().any(|mandate| mandate.number == *number);
                known.then_some(()).ok_or(Fault::NotFound)?;
                edit.number = *number;
                edit.mandates_gone.push(*number);
            }
            // The records of servers have the keys, and each server has its audit log.
            GuardCall::Fences { .. }
            | GuardCall::Mandates { .. }
            | GuardCall::AuditLines { .. }
            | GuardCall::WithdrawKeys { .. } => {
                return Err(Fault::Unsupported);
            }
        }
        Ok(edit)
    }

    /// The rules after a change.
    pub fn after(&self, edit: &RulesEdit) -> Rules {
        let mut rules = self.clone();
        rules.fences.retain(|fence| !edit.fences_gone.contains(&fence.number));
        rules.mandates.retain(|mandate| !edit.mandates_gone.contains(&mandate.number));
        match &edit.put {
            Some(Rule::Fence(fence)) => {
                rules.fences.retain(|known| known.number != fence.number);
                rules.fences.push(fence.clone());
                rules.fences.sort_by_key(|fence| fence.number);
            }
            Some(Rule::Mandate(mandate)) => {
                rules.mandates.retain(|known| known.number != mandate.number);
                rules.mandates.push(mandate.clone());
                rules.mandates.sort_by_key(|mandate| mandate.number);
            }
            None => {}
        }
        debug_assert!(
            rules.fences.is_sorted_by(|one, next| one.number < next.number)
                && rules.mandates.is_sorted_by(|one, next| one.number < next.number),
            "AC-2: a rule has one number, and one record"
        );
        rules
    }
}

/// The form to store. Only its server can resolve a session.
fn checked(whom: Whom) -> Result<Whom, Fault> {
    match whom {
        Whom::User(id) if id == PrincipalId::NONE || id.is_group() => Err(Fault::Invalid),
        Whom::Session(_) | Whom::Token(0) => Err(Fault::Invalid),
        Whom::Hosts { address, prefix } => {
            let network = Network::of(address, prefix);
            Ok(Whom::Hosts { address: network.address(), prefix: network.bits() })
        }
        Whom::User(_) | Whom::Token(_) | Whom::Client(_) => Ok(whom),
    }
}

fn check_realm(realm: &Realm) -> Result<(), Fault> {
    let good = match realm {
        Realm::Volumes(pattern) => {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            let letters =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
            (1..=NAME_BYTES_MAX).contains(&pattern.len()) && name.bytes().all(letters)
        }
        Realm::Server(_) => true,
        Realm::Partition(_, name) => (1..=PARTITION_NAME_BYTES_MAX).contains(&name.len()),
    };
    if good { Ok(()) } else { Err(Fault::Invalid) }
}

/// The attributes of a caller that fences compare.
#[derive(Clone, Copy, Debug)]
pub struct Suspect {
    /// The caller's principal; looked up only if [`Fences::ask_for_users`] says so.
    pub principal: Option<PrincipalId>,
    /// The caller's host; `None`: this machine.
    pub host: Option<IpAddr>,
    /// The token's number; 0: none.
    pub token: u128,
    /// The caller's client; looked up only if [`Fences::ask_for_clients`] says so.
    pub client: Option<ClientId>,
}

/// Fences indexed for lookup. The value is when each ends, in seconds since 1970.
#[derive(Clone, Debug, Default)]
pub struct Fences {
    users: HashMap<PrincipalId, i64>,
    hosts: HashMap<Network, i64>,
    tokens: HashMap<u128, i64>,
    clients: HashMap<ClientId, i64>,
}

impl Fences {
    /// Builds the index.
    pub fn new(list: &[Fence]) -> Fences {
        let mut fences = Fences::default();
        for fence in list {
            let until = if fence.until == 0 { i64::MAX } else { fence.until };
            match fence.whom {
                Whom::User(id) => drop(fences.users.insert(id, until)),
                Whom::Hosts { address, prefix } => {
                    fences.hosts.insert(Network::of(address, prefix), until);
                }
                Whom::Token(number) => drop(fences.tokens.insert(number, until)),
                Whom::Client(client) => drop(fences.clients.insert(client, until)),
                Whom::Session(_) => {}
            }
        }
        fences
    }

    /// Whether there are no fences.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
            && self.hosts.is_empty()
            && self.tokens.is_empty()
            && self.clients.is_empty()
    }

    /// Whether the caller's principal matters.
    pub fn ask_for_users(&self) -> bool {
        !self.users.is_empty()
    }

    /// Whether the caller's client matters.
    pub fn ask_for_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Whether a fence refuses this caller at `now` (seconds since 1970).
    pub fn stop(&self, now: i64, suspect: &Suspect) -> bool {
        let holds = |until: Option<&i64>| until.is_some_and(|until| now < *until);
        let from = |host| Network::around(host).any(|network| holds(self.hosts.get(&network)));
        suspect.principal.is_some_and(|id| holds(self.users.get(&id)))
            || suspect.token != 0 && holds(self.tokens.get(&suspect.token))
            || suspect.client.is_some_and(|client| holds(self.clients.get(&client)))
            || !self.hosts.is_empty() && suspect.host.is_some_and(from)
    }
}

/// The name under which a volume is administered.
pub fn base_name(name: &str) -> &str {
    let name = ENDINGS.into_iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    name.find(SNAPSHOT)
        .and_then(|at| name.get(..at))
        .filter(|base| !base.is_empty())
        .unwrap_or(name)
}

/// Whether a pattern of [`Realm::Volumes`] matches the name of a volume or of the one that it is a
/// copy of.
pub fn pattern_has(pattern: &str, name: &str) -> bool {
    let base = base_name(name);
    match pattern.strip_suffix('*') {
        Some(beginning) => base.starts_with(beginning),
        None => base == pattern || name == pattern,
    }
}

/// Whether a realm includes a volume of this name.
pub fn realm_has_name(realm: &Realm, name: &str) -> bool {
    matches!(realm, Realm::Volumes(pattern) if pattern_has(pattern, name))
}

/// Whether a realm includes a partition, or (`None`) a whole server.
pub fn realm_has_room(realm: &Realm, server: ServerId, partition: Option<&str>) -> bool {
    match realm {
        Realm::Volumes(_) => false,
        Realm::Server(of) => *of == server,
        Realm::Partition(of, name) => *of == server && partition == Some(name),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn add(whom: Whom, seconds: u64) -> GuardCall {
        GuardCall::AddFence { whom, seconds, why: String::new() }
    }

    #[test]
    fn patterns_mean_names_and_their_copies() {
        for (pattern, name, has) in [
            ("home.*", "home.joe", true),
            ("home.*", "home.joe.readonly", true),
            ("home.*", "home", false),
            ("home.*", "homes.joe", false),
            ("home.joe", "home.joe", true),
            ("home.joe", "home.joe.backup", true),
            ("home.joe", "home.joe.releasing", true),
            ("home.joe", "home.joe.snapshot.20261122T100000Z", true),
            ("home.joe", "home.joey", false),
            ("home.joe", "home.jo", false),
            ("home.joe.readonly", "home.joe", false),
            ("*", "root.cell", true),
        ] {
            assert_eq!(pattern_has(pattern, name), has, "{pattern} {name}");
        }
    }

    proptest! {
        /// Against the specification: a pattern matches a name if the name, or it without a copy's
        /// suffix, equals the pattern, or begins with the part before the star.
        #[test]
        fn a_pattern_matches_as_specified(
            pattern in "[ab.]{1,4}\\*?",
            name in "[ab.]{1,5}(\\.readonly|\\.backup|\\.releasing|)",
        ) {
            let mut base = name.clone();
            for ending in [".readonly", ".backup", ".releasing"] {
                if name.ends_with(ending) {
                    base = name[..name.len() - ending.len()].to_owned();
                }
            }
            let wanted = if pattern.ends_with('*') {
                let begin = pattern.trim_end_matches('*').as_bytes();
                base.as_bytes().iter().zip(begin).all(|(a, b)| a == b)
                    && base.len() >= pattern.len() - 1
            } else {
                base == pattern || name == pattern
            };
            prop_assert_eq!(pattern_has(&pattern, &name), wanted, "{} {}", pattern, name);
        }

        /// Fences against a walk over the list, through random additions, removals and the passing
        /// of time.
        #[test]
        fn fences_stop_whom_the_list_names(
            steps in proptest::collection::vec((0_u8..5, 1_u8..4, 0_u64..30, 0_i64..20), 1..40),
        ) {
            let (mut rules, mut now) = (Rules::default(), 1000);
            for (next, (what, who, seconds, pause)) in (1_u64..).zip(steps) {
                now += pause;
                let whoms = |who: u8| [
                    Whom::User(PrincipalId(who.into())),
                    Whom::Hosts { address: [10, who, 0, 0].into(), prefix: 16 },
                    Whom::Token(who.into()),
                    Whom::Client(ClientId(who.into())),
                ];
                let call = match whoms(who).get(usize::from(what)) {
                    Some(whom) => add(*whom, seconds),
                    None => match rules.fences.first() {
                        Some(fence) => GuardCall::RemoveFence { number: fence.number },
                        None => continue,
                    },
                };
                let edit = rules.edit(next, now, PrincipalId::NONE, &call).unwrap();
                rules = rules.after(&edit);
                let fences = Fences::new(&rules.fences);
                for who in 1_u8..4 {
                    for at in [now, now + 10, now + 29] {
                        let there = |whom: Whom| rules.fences.iter().any(|fence| {
                            fence.whom == whom && (fence.until == 0 || at < fence.until)
                        });
                        let none =
                            Suspect { principal: None, host: None, token: 0, client: None };
                        let suspects = [
                            Suspect { principal: Some(PrincipalId(who.into())), ..none },
                            Suspect { host: Some([10, who, 3, 4].into()), ..none },
                            Suspect { token: who.into(), ..none },
                            Suspect { client: Some(ClientId(who.into())), ..none },
                        ];
                        prop_assert!(!fences.stop(at, &none));
                        for (suspect, whom) in suspects.iter().zip(whoms(who)) {
                            prop_assert_eq!(fences.stop(at, suspect), there(whom));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn inexpressible_rules_are_refused() {
        let rules = Rules::default();
        let edit = |call: &GuardCall| rules.edit(1, 5, PrincipalId::NONE, call);
        for whom in [
            Whom::User(PrincipalId(-5)),
            Whom::User(PrincipalId::NONE),
            Whom::Session(types::SessionId(1)),
            Whom::Token(0),
        ] {
            assert_eq!(edit(&add(whom, 0)), Err(Fault::Invalid), "{whom}");
        }
        for pattern in ["", "a*b", "a b", "**"] {
            let realm = Realm::Volumes(pattern.to_owned());
            assert_eq!(
                edit(&GuardCall::AddMandate { principal: PrincipalId(1), realm }),
                Err(Fault::Invalid),
                "{pattern}"
            );
        }
        assert_eq!(edit(&GuardCall::RemoveFence { number: 1 }), Err(Fault::NotFound));
        assert_eq!(edit(&GuardCall::RemoveMandate { number: 1 }), Err(Fault::NotFound));
    }

    #[test]
    fn there_are_only_so_many() {
        let fence = |number| Fence {
            number,
            whom: Whom::Token(number.into()),
            since: 0,
            until: i64::from(number == 1) * 10,
            by: PrincipalId::NONE,
            why: String::new(),
        };
        let rules = Rules {
            fences: (1..=RULES_MAX as u64).map(fence).collect(),
            mandates: Vec::new(),
            ..Rules::default()
        };
        let next = RULES_MAX as u64 + 1;
        let edit = |now| rules.edit(next, now, PrincipalId::NONE, &add(Whom::Token(u128::MAX), 0));
        assert_eq!(edit(5), Err(Fault::NoSpace));
        // One has ended.
        assert_eq!(rules.after(&edit(10).unwrap()).fences.len(), RULES_MAX);
        // The same fence again, for another time, keeps its number.
        let again = rules.edit(next, 5, PrincipalId::NONE, &add(Whom::Token(1), 100)).unwrap();
        assert_eq!((again.number, rules.after(&again).fences.len()), (1, RULES_MAX));
    }
}
