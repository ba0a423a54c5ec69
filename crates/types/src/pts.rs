//! The cell's users and groups, and what can be asked about them (`docs/spec/access.md`,
//! *Principals*).
// The variants are documented as a whole; a field is named for what it is.
#![allow(missing_docs)]

use std::fmt;
use std::str::FromStr;

use crate::PrincipalId;

/// What a principal is. Wire values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PrincipalKind {
    /// Somebody, or a program. Numbers above 0.
    User = 1,
    /// Any number of principals. Numbers below 0.
    Group = 2,
    /// The machines of a network; the name is its address and prefix length, as `10.1.0.0/16`.
    /// Numbers below 0.
    Hosts = 3,
}

impl PrincipalKind {
    /// The kind with the given wire value.
    pub fn from_wire(value: u8) -> Option<Self> {
        [PrincipalKind::User, PrincipalKind::Group, PrincipalKind::Hosts]
            .into_iter()
            .find(|kind| *kind as u8 == value)
    }
}

/// Who beside the owner and administrators may see and change a principal: the five letters of
/// `pts setfields -access`. Source: OpenAFS `ptserver.h` (the bits), `pts_setfields(1)` (the
/// letters).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Privacy(pub u8);

impl Privacy {
    pub const REMOVE_BY_MEMBERS: Privacy = Privacy(0x01);
    pub const ADD_BY_MEMBERS: Privacy = Privacy(0x02);
    pub const ADD_BY_ANYBODY: Privacy = Privacy(0x04);
    pub const MEMBERS_TO_MEMBERS: Privacy = Privacy(0x08);
    pub const MEMBERS_TO_ANYBODY: Privacy = Privacy(0x10);
    pub const OWNED_TO_ANYBODY: Privacy = Privacy(0x20);
    pub const STATUS_TO_MEMBERS: Privacy = Privacy(0x40);
    pub const STATUS_TO_ANYBODY: Privacy = Privacy(0x80);
    /// Of a new user: `S----`.
    pub const USER: Privacy = Privacy::STATUS_TO_ANYBODY;
    /// Of a new group: `S-M--`.
    pub const GROUP: Privacy = Privacy(0x90);

    /// Whether what `flag` allows is allowed.
    pub const fn has(self, flag: Privacy) -> bool {
        self.0 & flag.0 == flag.0
    }
}

/// For each place of the text: its letter for anybody, its letter for members, and what they mean.
const PLACES: [(char, u8, char, u8); 5] = [
    ('S', 0x80, 's', 0x40),
    ('O', 0x20, ' ', 0),
    ('M', 0x10, 'm', 0x08),
    ('A', 0x04, 'a', 0x02),
    (' ', 0, 'r', 0x01),
];

impl fmt::Display for Privacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (anybody, to_anybody, members, to_members) in PLACES {
            let letter = match self.0 {
                bits if bits & to_anybody != 0 => anybody,
                bits if bits & to_members != 0 => members,
                _ => '-',
            };
            write!(f, "{letter}")?;
        }
        Ok(())
    }
}

/// Why some text is no [`Privacy`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} are no privacy flags: five letters, each its own or '-': S or s, O, M or m, A or a, r"
)]
pub struct PrivacyError(String);

impl FromStr for Privacy {
    type Err = PrivacyError;
    fn from_str(text: &str) -> Result<Self, PrivacyError> {
        let letters: Vec<char> = text.chars().collect();
        let bit = |(letter, place): (&char, (char, u8, char, u8))| match *letter {
            '-' => Some(0),
            ' ' => None,
            letter if letter == place.0 => Some(place.1),
            letter if letter == place.2 => Some(place.3),
            _ => None,
        };
        let bits: Option<Vec<u8>> = letters.iter().zip(PLACES).map(bit).collect();
        let whole = bits.filter(|_| letters.len() == PLACES.len());
        whole
            .map(|bits| Privacy(bits.into_iter().fold(0, |all, bit| all | bit)))
            .ok_or_else(|| PrivacyError(text.to_owned()))
    }
}

/// A user, a group, or a set of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub id: PrincipalId,
    pub kind: PrincipalKind,
    /// At most [`crate::limits::PRINCIPAL_NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// Who may change it; [`PrincipalId::NONE`]: only administrators. A group may own itself: its
    /// members then.
    pub owner: PrincipalId,
    /// Who made it.
    pub creator: PrincipalId,
    pub privacy: Privacy,
    /// How many groups it may still make; `u32::MAX`: any number.
    pub group_quota: u32,
    /// Of a user in the `posix` model, and of whom trusted connections speak by number.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Tokens issued before are void: seconds since 1970.
    pub tokens_after: i64,
    /// Nobody gets in as this one.
    pub locked: bool,
}

/// How somebody is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichPrincipal {
    Id(PrincipalId),
    Name(String),
    /// The user with this uid.
    Uid(u32),
}

/// What `SetFields` changes; `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrincipalChange {
    pub privacy: Option<Privacy>,
    pub group_quota: Option<u32>,
    /// `u32::MAX`: none.
    pub uid: Option<u32>,
    /// `u32::MAX`: none.
    pub gid: Option<u32>,
    pub tokens_after: Option<i64>,
    pub locked: Option<bool>,
}

/// A principal to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPrincipal {
    pub kind: PrincipalKind,
    pub name: String,
    /// `None`: the next one.
    pub id: Option<PrincipalId>,
    /// `None`: who asks; for a group, the group itself by the name it gets.
    pub owner: Option<WhichPrincipal>,
    /// `None`: the number, if nobody has it.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// What is asked about principals. Any server of the cell answers. Who may ask what, says `guard`
/// (the table, and owners and privacy flags).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PtsCall {
    /// The names of numbers; empty for those that nobody has. At most
    /// [`crate::limits::PRINCIPALS_MAX`]. Answer: `Names`.
    Names { ids: Vec<PrincipalId> },
    /// The numbers of names; [`PrincipalId::NONE`] for those that nobody has. As many. Answer:
    /// `Names`.
    Numbers { names: Vec<String> },
    /// Answer: `Principals`, with one.
    Examine { id: PrincipalId },
    /// Answer: `Principals`, with the new one.
    Create { new: Box<NewPrincipal> },
    /// Out of all groups; what it owns belongs to nobody. Answer: `Done`.
    Delete { id: PrincipalId },
    /// What it owns gets its name before the colon. Answer: `Done`.
    Rename { id: PrincipalId, name: String },
    /// Answer: `Done`.
    ChangeOwner { id: PrincipalId, owner: PrincipalId },
    /// Answer: `Done`.
    SetFields { id: PrincipalId, change: PrincipalChange },
    /// `Exists`: it is in there. Answer: `Done`.
    Join { group: PrincipalId, member: PrincipalId },
    /// Answer: `Done`.
    Leave { group: PrincipalId, member: PrincipalId },
    /// Of a group: its members. Of others, or `groups`: the groups it is in. In the order of
    /// numbers, after `after`. Answer: `Names`.
    Membership { id: PrincipalId, groups: bool, after: PrincipalId, max: u32 },
    /// What it owns; [`PrincipalId::NONE`]: groups that nobody owns. Answer: `Names`.
    Owned { owner: PrincipalId, after: PrincipalId, max: u32 },
    /// All, in the order of numbers. Answer: `Principals`.
    Entries { after: PrincipalId, max: u32 },
    /// The highest number of a user, and the lowest of a group, that were given. Answer: `Names`,
    /// with two.
    Max,
    /// [`PrincipalId::NONE`] stays. Answer: `Done`.
    SetMax { user: PrincipalId, group: PrincipalId },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privacy_flags_are_five_letters() {
        for (text, bits) in
            [("S----", 0x80), ("S-M--", 0x90), ("SOMAr", 0xb5), ("s-mar", 0x4b), ("-----", 0)]
        {
            assert_eq!(text.parse(), Ok(Privacy(bits)), "{text}");
            assert_eq!(Privacy(bits).to_string(), text);
        }
        for bad in ["", "S---", "S-----", "-S---", "SoM--", "S   R", "SOMAR"] {
            assert!(bad.parse::<Privacy>().is_err(), "{bad}");
        }
    }
}
