//! Access lists: the rights of principals on a directory, or on a single file.
//!
//! Positive entries give, negative ones deny, whatever their order: a caller has the union of what
//! its numbers are given less the union of what any of them is denied. As stored: a version, the
//! two counts, then number and rights of each entry, all little-endian, each part sorted by number,
//! no number twice, no entry without rights. So one list has one form.

use std::fmt;

use types::PrincipalId;

use crate::token::sha256;
use crate::{Cps, Rights};

pub use types::limits::ACL_BYTES_MAX;
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 12;
const ENTRY_BYTES: usize = 8;

/// The rights of one principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// A principal.
    pub who: PrincipalId,
    /// Never none.
    pub rights: Rights,
}

/// An access list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    positive: Vec<AclEntry>,
    negative: Vec<AclEntry>,
}

/// The reason why bytes are no access list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an access list: {0}")]
pub struct AclError(&'static str);

impl Acl {
    /// A list that gives no rights.
    pub const fn new() -> Self {
        Acl { positive: Vec::new(), negative: Vec::new() }
    }

    /// The entries that give, sorted by number.
    pub fn positive(&self) -> &[AclEntry] {
        &self.positive
    }

    /// The entries that deny, likewise.
    pub fn negative(&self) -> &[AclEntry] {
        &self.negative
    }

    /// Gives (or `negative`: denies) `who` exactly these rights; none removes the entry. `false`:
    /// there is no room for one more.
    #[must_use]
    pub fn set(&mut self, who: PrincipalId, rights: Rights, negative: bool) -> bool {
        let full = self.encoded_bytes() + ENTRY_BYTES > ACL_BYTES_MAX;
        let entries = if negative { &mut self.negative } else { &mut self.positive };
        match entries.binary_search_by_key(&who, |entry| entry.who) {
            Ok(at) if rights == Rights::NONE => drop(entries.remove(at)),
            Ok(at) => entries[at].rights = rights,
            Err(_) if rights == Rights::NONE => {}
            Err(_) if full => return false,
            Err(at) => entries.insert(at, AclEntry { who, rights }),
        }
        true
    }

    /// Removes every entry that `keep` rejects.
    pub fn retain(&mut self, keep: impl Fn(PrincipalId) -> bool) {
        self.positive.retain(|entry| keep(entry.who));
        self.negative.retain(|entry| keep(entry.who));
    }

    /// The rights that this list gives. Those of owners and administrators are not included.
    pub fn rights(&self, cps: &Cps) -> Rights {
        let union = |entries: &[AclEntry]| {
            let his = entries.iter().filter(|entry| cps.has(entry.who));
            his.fold(Rights::NONE, |rights, entry| rights.with(entry.rights))
        };
        union(&self.positive).without(union(&self.negative))
    }

    /// Parses the text form of an [`Acl`]: a line for each entry, in any order, `give NUMBER
    /// RIGHTS` or `deny NUMBER RIGHTS`.
    ///
    /// # Errors
    /// [`AclError`].
    pub fn parse(text: &str) -> Result<Self, AclError> {
        let mut acl = Acl::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let [what, who, rights] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                return Err(AclError("a line that is not three words"));
            };
            let negative = match what {
                "give" => false,
                "deny" => true,
                _ => return Err(AclError("a line that neither gives nor denies")),
            };
            let who =
                PrincipalId(who.parse().map_err(|_| AclError("a principal that is no number"))?);
            let rights: Rights =
                rights.parse().map_err(|_| AclError("letters that are no rights"))?;
            let list = if negative { &acl.negative } else { &acl.positive };
            if list.iter().any(|entry| entry.who == who) || rights == Rights::NONE {
                return Err(AclError("a principal twice, or without a right"));
            }
            if !acl.set(who, rights, negative) {
                return Err(AclError("too long"));
            }
        }
        Ok(acl)
    }

    fn encoded_bytes(&self) -> usize {
        HEAD_BYTES + (self.positive.len() + self.negative.len()) * ENTRY_BYTES
    }

    /// SHA-256 of it as stored: a caller that changes a list sends the sum of the one it read.
    pub fn sum(&self) -> [u8; 32] {
        sha256(&self.encode())
    }

    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_bytes());
        let counts = [&self.positive, &self.negative]
            .map(|list| u32::try_from(list.len()).expect("64 KiB of entries"));
        for word in [VERSION, counts[0], counts[1]] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for entry in self.positive.iter().chain(&self.negative) {
            bytes.extend_from_slice(&entry.who.0.to_le_bytes());
            bytes.extend_from_slice(&entry.rights.0.to_le_bytes());
        }
        bytes
    }

    /// Parses exactly the output of [`Acl::encode`].
    ///
    /// # Errors
    /// [`AclError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, AclError> {
        if bytes.len() > ACL_BYTES_MAX {
            return Err(AclError("too long"));
        }
        let (head, entries) = bytes.split_at_checked(HEAD_BYTES).ok_or(AclError("too short"))?;
        let word = |bytes: &[u8], at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if word(head, 0) != VERSION {
            return Err(AclError("another version"));
        }
        let (positive, negative) = (word(head, 4) as usize, word(head, 8) as usize);
        if positive.checked_add(negative).and_then(|count| count.checked_mul(ENTRY_BYTES))
            != Some(entries.len())
        {
            return Err(AclError("counts that do not fit"));
        }
        let list = |bytes: &[u8]| {
            let entry = |bytes: &[u8]| {
                let who = PrincipalId(word(bytes, 0).cast_signed());
                AclEntry { who, rights: Rights(word(bytes, 4)) }
            };
            let list: Vec<_> = bytes.chunks_exact(ENTRY_BYTES).map(entry).collect();
            let sorted = list.windows(2).all(|pair| pair[0].who < pair[1].who);
            let sound =
                list.iter().all(|entry| entry.rights != Rights::NONE && entry.rights.is_known());
            if sorted && sound {
                Ok(list)
            } else {
                Err(AclError("entries out of order, or without a right"))
            }
        };
        let (first, second) = entries.split_at(positive * ENTRY_BYTES);
        Ok(Acl { positive: list(first)?, negative: list(second)? })
    }
}

impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.positive
            .iter()
            .try_for_each(|entry| writeln!(f, "give {} {}", entry.who, entry.rights))?;
        self.negative
            .iter()
            .try_for_each(|entry| writeln!(f, "deny {} {}", entry.who, entry.rights))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::AuthLevel;

    use super::*;

    const JOE: PrincipalId = PrincipalId(7);
    const STAFF: PrincipalId = PrincipalId(-300);

    #[test]
    fn what_is_denied_is_taken_from_all_that_is_given() {
        let mut acl = Acl::new();
        assert!(acl.set(STAFF, "rlidwk".parse().unwrap(), false));
        assert!(acl.set(JOE, "a".parse().unwrap(), false));
        assert!(acl.set(PrincipalId::PROVED, "dw".parse().unwrap(), true));
        let joe = Cps::new(JOE, AuthLevel::Password, [STAFF, PrincipalId::PROVED]);
        assert_eq!(acl.rights(&joe).to_string(), "rlika");
        assert_eq!(acl.rights(&Cps::nobody()), Rights::NONE);
        assert!(acl.set(PrincipalId::PROVED, Rights::NONE, true));
        assert_eq!(acl.rights(&joe).to_string(), "rlidwka");
        acl.retain(|who| who != STAFF);
        assert_eq!(acl.rights(&joe).to_string(), "a");
    }

    #[test]
    fn a_full_list_takes_no_more_and_stays() {
        let mut acl = Acl::new();
        let mut count = 0;
        while acl.set(PrincipalId(count + 1), Rights::READ, count % 2 == 0) {
            count += 1;
        }
        let bytes = acl.encode();
        assert!(bytes.len() <= ACL_BYTES_MAX && count > 8000, "{count}");
        assert_eq!(Acl::decode(&bytes), Ok(acl));
    }

    proptest! {
        #[test]
        fn a_list_has_one_form(
            sets in prop::collection::vec((-5..5i32, 0..128u32, any::<bool>()), 0..40),
        ) {
            let mut acl = Acl::new();
            for (who, rights, negative) in sets {
                prop_assert!(acl.set(PrincipalId(who), Rights(rights), negative));
            }
            prop_assert_eq!(Acl::decode(&acl.encode()), Ok(acl));
        }

        #[test]
        fn a_list_reads_as_it_is_shown(
            sets in prop::collection::vec((-5..5i32, 0..128u32, any::<bool>()), 0..40),
        ) {
            let mut acl = Acl::new();
            for (who, rights, negative) in sets {
                prop_assert!(acl.set(PrincipalId(who), Rights(rights), negative));
            }
            prop_assert_eq!(Acl::parse(&acl.to_string()), Ok(acl));
        }

        #[test]
        fn any_bytes_are_refused_or_are_the_form(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            crate::fuzzing::acl(&bytes);
        }

        #[test]
        fn any_text_is_refused_or_means_one_list(text in "((give|deny) -?[0-9]{1,3} \
            [rlidwkaAB]{0,3}\n){0,4}") {
            crate::fuzzing::acl(text.as_bytes());
        }
    }
}
