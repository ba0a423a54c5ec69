//! The cell's users and groups, and the calls about them (`docs/spec/access.md`, *Principals*).

use std::fmt;
use std::str::FromStr;

use crate::PrincipalId;

/// The kind of a principal. Wire values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PrincipalKind {
    /// A person or a program. Numbers above 0.
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

/// The privacy flags: which principals, beside the owner and administrators, may see and change a
/// principal. They are the five letters of `pts setfields -access`. Source: OpenAFS `ptserver.h`
/// (the bits), `pts_setfields(1)` (the letters).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Privacy(pub u8);

impl Privacy {
    /// `r`: members may remove members.
    pub const REMOVE_BY_MEMBERS: Privacy = Privacy(0x01);
    /// `a`: members may add members.
    pub const ADD_BY_MEMBERS: Privacy = Privacy(0x02);
    /// `A`: any user may add members.
    pub const ADD_BY_ANYBODY: Privacy = Privacy(0x04);
    /// `m`: members may list the members.
    pub const MEMBERS_TO_MEMBERS: Privacy = Privacy(0x08);
    /// `M`: any caller may list the members.
    pub const MEMBERS_TO_ANYBODY: Privacy = Privacy(0x10);
    /// `O`: any caller may list what the principal owns.
    pub const OWNED_TO_ANYBODY: Privacy = Privacy(0x20);
    /// `s`: members may read the record.
    pub const STATUS_TO_MEMBERS: Privacy = Privacy(0x40);
    /// `S`: any caller may read the record.
    pub const STATUS_TO_ANYBODY: Privacy = Privacy(0x80);
    /// Of a new user: `S----`.
    pub const USER: Privacy = Privacy::STATUS_TO_ANYBODY;
    /// Of a new group: `S-M--`.
    pub const GROUP: Privacy = Privacy(0x90);

    /// Whether the flags include `flag`.
    pub const fn has(self, flag: Privacy) -> bool {
        self.0 & flag.0 == flag.0
    }
}

/// For each place of the text: the letter and bit for any caller, then the letter and bit for
/// members.
const PLACES: [(char, u8, char, u8); 5] = [
    ('S', 0x80, 's', 0x40),
    ('O', 0x20, ' ', 0),
    ('M', 0x10, 'm', 0x08),
    ('A', 0x04, 'a', 0x02),
    (' ', 0, 'r', 0x01),
];

impl fmt::Display for Privacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (any_letter, any_bit, member_letter, member_bit) in PLACES {
            let letter = match self.0 {
                bits if bits & any_bit != 0 => any_letter,
                bits if bits & member_bit != 0 => member_letter,
                _ => '-',
            };
            write!(f, "{letter}")?;
        }
        Ok(())
    }
}

/// The reason why a text is no [`Privacy`].
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
    /// Its number.
    pub id: PrincipalId,
    /// Its kind.
    pub kind: PrincipalKind,
    /// At most [`crate::limits::PRINCIPAL_NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// The principal that may change it; [`PrincipalId::NONE`]: only administrators. A group may
    /// own itself: then its members own it.
    pub owner: PrincipalId,
    /// The principal that made it.
    pub creator: PrincipalId,
    /// The rights of callers other than its owner.
    pub privacy: Privacy,
    /// How many groups it may still create; `u32::MAX`: any number.
    pub group_quota: u32,
    /// The Unix uid of a user, for the `posix` model and for trusted connections, which send
    /// numbers.
    pub uid: Option<u32>,
    /// The Unix gid of a user or group, as `uid`.
    pub gid: Option<u32>,
    /// Tokens issued before this time are void: seconds since 1970.
    pub tokens_after: i64,
    /// The cell refuses every login as this user.
    pub locked: bool,
}

/// How a caller names a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichPrincipal {
    /// By number.
    Id(PrincipalId),
    /// By name, exactly as written.
    Name(String),
    /// The user with this uid.
    Uid(u32),
}

/// The fields that `SetFields` changes; `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrincipalChange {
    /// New privacy flags.
    pub privacy: Option<Privacy>,
    /// How many groups it may still create; `u32::MAX`: any number.
    pub group_quota: Option<u32>,
    /// `u32::MAX`: removes it.
    pub uid: Option<u32>,
    /// `u32::MAX`: removes it.
    pub gid: Option<u32>,
    /// Tokens issued before are void: seconds since 1970.
    pub tokens_after: Option<i64>,
    /// Whether the cell refuses its logins.
    pub locked: Option<bool>,
}

/// A principal to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPrincipal {
    /// Its kind.
    pub kind: PrincipalKind,
    /// Its name; `Exists` if another principal has it.
    pub name: String,
    /// `None`: the next free number.
    pub id: Option<PrincipalId>,
    /// `None`: the caller; for a group, the group itself by the name that it gets.
    pub owner: Option<WhichPrincipal>,
    /// `None`: the principal's number, if no other principal has that uid.
    pub uid: Option<u32>,
    /// The Unix gid; `None`: none.
    pub gid: Option<u32>,
}

/// The calls about principals. Any server of the cell answers. `guard` decides which caller may
/// make which call (the call table, owners and privacy flags).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PtsCall {
    /// The names of numbers; empty for numbers without a principal. At most
    /// [`crate::limits::PRINCIPALS_MAX`]. Answer: `Names`.
    Names {
        /// The numbers.
        ids: Vec<PrincipalId>,
    },
    /// The numbers of names; [`PrincipalId::NONE`] for names without a principal. The same limit.
    /// Answer: `Names`.
    Numbers {
        /// The names.
        names: Vec<String>,
    },
    /// Answer: `Principals`, with one.
    Examine {
        /// The principal; `NoPrincipal` if there is none.
        id: PrincipalId,
    },
    /// Answer: `Principals`, with the new one.
    Create {
        /// The principal.
        new: Box<NewPrincipal>,
    },
    /// Removes it from all groups; what it owns has no owner afterwards. Answer: `Done`.
    Delete {
        /// The principal; `NoPrincipal` if there is none.
        id: PrincipalId,
    },
    /// Groups that it owns get its new name before the colon. Answer: `Done`.
    Rename {
        /// The principal; `NoPrincipal` if there is none.
        id: PrincipalId,
        /// The new name; `Exists` if another principal has it.
        name: String,
    },
    /// Answer: `Done`.
    ChangeOwner {
        /// The principal; `NoPrincipal` if there is none.
        id: PrincipalId,
        /// The new owner.
        owner: PrincipalId,
    },
    /// Answer: `Done`.
    SetFields {
        /// The principal; `NoPrincipal` if there is none.
        id: PrincipalId,
        /// The new values.
        change: PrincipalChange,
    },
    /// `Exists`: it is a member already. Answer: `Done`.
    Join {
        /// The group, or the host set.
        group: PrincipalId,
        /// The member.
        member: PrincipalId,
    },
    /// Answer: `Done`.
    Leave {
        /// The group, or the host set.
        group: PrincipalId,
        /// The member.
        member: PrincipalId,
    },
    /// The members of a group, or with `groups` (and of users) the groups that it is in, in the
    /// order of numbers, after `after`. Answer: `Names`.
    Membership {
        /// The principal; `NoPrincipal` if there is none.
        id: PrincipalId,
        /// The groups that it is in, not its members.
        groups: bool,
        /// Only those with greater numbers.
        after: PrincipalId,
        /// Limit of the answer.
        max: u32,
    },
    /// The principals that it owns; [`PrincipalId::NONE`]: those without owner. Answer: `Names`.
    Owned {
        /// The owner.
        owner: PrincipalId,
        /// Only those with greater numbers.
        after: PrincipalId,
        /// Limit of the answer.
        max: u32,
    },
    /// All, in the order of numbers. Answer: `Principals`.
    Entries {
        /// Only those with greater numbers.
        after: PrincipalId,
        /// Limit of the answer.
        max: u32,
    },
    /// The highest user number and the lowest group number that the cell has assigned. Answer:
    /// `Names`, with two.
    Max,
    /// [`PrincipalId::NONE`] stays. Answer: `Done`.
    SetMax {
        /// The highest number of a user.
        user: PrincipalId,
        /// The lowest number of a group.
        group: PrincipalId,
    },
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
