//! The current protection set of a caller.
//!
//! The database gives a principal's groups ([`crate::subdomain`]), with the one of all users who
//! proved their identity, which differs for the users of each realm. The level of the proof decides
//! here which of them count.

use std::sync::Arc;

use types::{AuthLevel, PrincipalId};

/// A *current protection set*: a principal, and every group that it is in, directly or through
/// groups. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cps {
    /// Sorted, each once.
    numbers: Arc<[PrincipalId]>,
}

impl Cps {
    /// Builds the set from the groups that the database gives, in any order. The group of all
    /// callers is added; groups that the authentication level does not carry are removed.
    pub fn new(
        principal: PrincipalId,
        level: AuthLevel,
        groups: impl IntoIterator<Item = PrincipalId>,
    ) -> Self {
        let mut numbers: Vec<_> =
            groups.into_iter().chain([principal, PrincipalId::ANYBODY]).collect();
        if !level.is_proved() {
            numbers.retain(|number| *number != PrincipalId::PROVED);
        }
        // A trusted host may name any user, so it cannot make one an administrator.
        if level == AuthLevel::Host {
            numbers.retain(|number| *number != PrincipalId::ADMINISTRATORS);
        }
        numbers.sort_unstable();
        numbers.dedup();
        Cps { numbers: numbers.into() }
    }

    /// The set of an anonymous caller.
    pub fn nobody() -> Self {
        Cps::new(PrincipalId::ANONYMOUS, AuthLevel::Nobody, [])
    }

    /// Whether the set includes a number.
    pub fn has(&self, number: PrincipalId) -> bool {
        self.numbers.binary_search(&number).is_ok()
    }

    /// Whether the set includes administrators.
    pub fn is_administrator(&self) -> bool {
        self.has(PrincipalId::ADMINISTRATORS)
    }

    /// All of them, sorted.
    pub fn numbers(&self) -> &[PrincipalId] {
        &self.numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anonymous_caller_is_only_in_anyuser() {
        let anonymous = Cps::nobody();
        assert!(anonymous.has(PrincipalId::ANYBODY) && anonymous.has(PrincipalId::ANONYMOUS));
        assert!(!anonymous.has(PrincipalId::PROVED) && !anonymous.is_administrator());
        assert!(
            !Cps::new(PrincipalId(7), AuthLevel::Nobody, [PrincipalId::PROVED])
                .has(PrincipalId::PROVED)
        );
        let groups = [PrincipalId(-300), PrincipalId(-204), PrincipalId(-300), PrincipalId::PROVED];
        let joe = Cps::new(PrincipalId(7), AuthLevel::Password, groups);
        assert!(joe.has(PrincipalId::PROVED) && joe.is_administrator());
        assert_eq!(joe.numbers().len(), 5);
        let named_by_a_host = Cps::new(PrincipalId(7), AuthLevel::Host, groups);
        assert!(named_by_a_host.has(PrincipalId::PROVED) && named_by_a_host.has(PrincipalId(-300)));
        assert!(!named_by_a_host.is_administrator());
    }
}
