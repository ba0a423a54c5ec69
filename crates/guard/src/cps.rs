//! Everything that somebody is.
//!
//! The database says what a principal is in ([`crate::subdomain`]): its groups, and the one of
//! everybody who has shown a proof, which is another one for the users of each realm. The level of
//! the proof decides here what of that counts.

use std::sync::Arc;

use types::{AuthLevel, PrincipalId};

/// A *current protection subdomain*: a principal, and every group that it is in, directly or
/// through groups. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cps {
    /// Sorted, each once.
    numbers: Arc<[PrincipalId]>,
}

impl Cps {
    /// Of a principal with all that the database says that it is in, in any order. The group of
    /// everybody is added; what the level of the proof does not carry is taken out.
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
        // A believed host may name whom it likes, so what it says makes no administrator.
        if level == AuthLevel::Host {
            numbers.retain(|number| *number != PrincipalId::ADMINISTRATORS);
        }
        numbers.sort_unstable();
        numbers.dedup();
        Cps { numbers: numbers.into() }
    }

    /// Of who did not show who he is.
    pub fn nobody() -> Self {
        Cps::new(PrincipalId::ANONYMOUS, AuthLevel::Nobody, [])
    }

    /// Whether a number is among them.
    pub fn has(&self, number: PrincipalId) -> bool {
        self.numbers.binary_search(&number).is_ok()
    }

    /// Whether administrators are among them.
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
    fn who_proved_nothing_is_anybody_and_nothing_else() {
        let nobody = Cps::nobody();
        assert!(nobody.has(PrincipalId::ANYBODY) && nobody.has(PrincipalId::ANONYMOUS));
        assert!(!nobody.has(PrincipalId::PROVED) && !nobody.is_administrator());
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
