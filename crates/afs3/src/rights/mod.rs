//! Rights, and access lists as text and as they are stored.
//!
//! Model: an access list has entries that grant and entries that deny: a principal and rights.
//! Calls carry it as text with names ([`AclText`]), volume dumps as a structure with numbers
//! ([`StoredAcl`]). Neither form knows the other's principals.
//!
//! Source: OpenAFS `src/libacl/acl.h`, `src/libacl/aclprocs.c`, `src/libacl/prs_fs.h`.

use std::fmt;

mod stored;

pub use stored::{STORED_ACL_BYTES, StoredAcl};

/// Most entries of an access list.
pub const ENTRIES_MAX: usize = 20;
/// Most bytes of a name in an access list, and one.
const NAME_BYTES: usize = 64;

/// Rights, as the sum of their bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AfsRights(pub u32);

impl AfsRights {
    /// `r`: read files.
    pub const READ: AfsRights = AfsRights(1);
    /// `w`: write files.
    pub const WRITE: AfsRights = AfsRights(2);
    /// `i`: add names.
    pub const INSERT: AfsRights = AfsRights(4);
    /// `l`: list and look up names.
    pub const LOOKUP: AfsRights = AfsRights(8);
    /// `d`: remove names.
    pub const DELETE: AfsRights = AfsRights(16);
    /// `k`: lock files.
    pub const LOCK: AfsRights = AfsRights(32);
    /// `a`: change the access list.
    pub const ADMINISTER: AfsRights = AfsRights(64);
    /// The seven rights.
    pub const ALL: AfsRights = AfsRights(127);
    /// `A` to `H`: their meaning is the users'.
    pub const USER: AfsRights = AfsRights(0xff00_0000);

    /// The rights that these letters stand for.
    pub fn from_letters(letters: &str) -> Option<AfsRights> {
        letters.chars().try_fold(AfsRights::default(), |AfsRights(bits), letter| {
            let (_, bit) = LETTERS.iter().find(|(one, _)| *one == letter)?;
            Some(AfsRights(bits | bit))
        })
    }

    /// Whether all of the rights are among these.
    pub fn contains(self, AfsRights(others): AfsRights) -> bool {
        self.0 & others == others
    }
}

/// The letters, in the order in which they are shown.
const LETTERS: [(char, u32); 15] = [
    ('r', 1),
    ('l', 8),
    ('i', 4),
    ('d', 16),
    ('w', 2),
    ('k', 32),
    ('a', 64),
    ('A', 0x0100_0000),
    ('B', 0x0200_0000),
    ('C', 0x0400_0000),
    ('D', 0x0800_0000),
    ('E', 0x1000_0000),
    ('F', 0x2000_0000),
    ('G', 0x4000_0000),
    ('H', 0x8000_0000),
];

/// The letters, as `fs listacl` shows them: `rlidwka`.
impl fmt::Display for AfsRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = LETTERS.iter().filter(|(_, bit)| self.0 & bit != 0);
        set.try_for_each(|(letter, _)| write!(f, "{letter}"))
    }
}

impl fmt::Debug for AfsRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} ({self})", self.0)
    }
}

/// An entry of an access list as text: a name, or a number in decimal digits, and rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclLine {
    /// The name.
    pub name: Vec<u8>,
    /// The rights.
    pub rights: AfsRights,
}

/// An access list as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclText {
    /// Entries that grant.
    pub positive: Vec<AclLine>,
    /// Entries that deny.
    pub negative: Vec<AclLine>,
}

/// The reason why an access list is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclFormError {
    /// A line is missing, or is not what its place demands.
    #[error("line {0} of the access list is not understood")]
    BadLine(usize),
    /// More entries than a list can have.
    #[error("{0} entries; an access list has at most {ENTRIES_MAX}")]
    TooMany(usize),
    /// A name that is empty, too long, or has a blank.
    #[error("bad name in line {0} of the access list")]
    BadName(usize),
    /// The stored form contradicts itself.
    #[error("a stored access list is damaged")]
    Damaged,
}

impl AclText {
    /// The list that a call carries: two lines with the numbers of entries that grant and deny,
    /// then a line for each entry. A zero byte ends the text; so does its end.
    ///
    /// # Errors
    /// [`AclFormError`].
    pub fn parse(text: &[u8]) -> Result<AclText, AclFormError> {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        let mut lines = text[..end].split(|byte| *byte == b'\n').enumerate();
        let mut next = || lines.next().map_or((0, &[][..]), |(no, line)| (no + 1, line));
        let [positive, negative] = [next(), next()]
            .map(|(no, line)| number::<usize>(line).ok_or(AclFormError::BadLine(no)));
        let (positive, negative) = (positive?, negative?);
        let all = positive.saturating_add(negative);
        if all > ENTRIES_MAX {
            return Err(AclFormError::TooMany(all));
        }
        let mut entries = |count: usize| -> Result<Vec<AclLine>, AclFormError> {
            (0..count).map(|_| entry(next())).collect()
        };
        Ok(AclText { positive: entries(positive)?, negative: entries(negative)? })
    }

    /// The text with its zero byte, as calls carry it.
    ///
    /// # Errors
    /// [`AclFormError`]: there are too many entries, or a name is none.
    pub fn print(&self) -> Result<Vec<u8>, AclFormError> {
        let all = self.positive.len() + self.negative.len();
        if all > ENTRIES_MAX {
            return Err(AclFormError::TooMany(all));
        }
        let mut text = format!("{}\n{}\n", self.positive.len(), self.negative.len()).into_bytes();
        for (no, line) in self.positive.iter().chain(&self.negative).enumerate() {
            if !is_name(&line.name) {
                return Err(AclFormError::BadName(no + 3));
            }
            text.extend_from_slice(&line.name);
            text.extend_from_slice(format!("\t{}\n", line.rights.0).as_bytes());
        }
        text.push(0);
        Ok(text)
    }
}

fn is_name(name: &[u8]) -> bool {
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0 || *byte == 0x0b;
    !name.is_empty() && name.len() < NAME_BYTES && !name.iter().any(blank)
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.trim_matches([' ', '\t', '\r']).parse().ok()
}

/// A name, blanks, rights in decimal digits. Rights with the bit of `H` may come as a negative
/// number, as from a client that prints them signed.
fn entry((no, line): (usize, &[u8])) -> Result<AclLine, AclFormError> {
    let blank = |byte: &u8| matches!(*byte, b'\t' | b' ');
    let end = line.iter().position(blank).ok_or(AclFormError::BadLine(no))?;
    let (name, rights) = line.split_at(end);
    if !is_name(name) {
        return Err(AclFormError::BadName(no));
    }
    let rights = number::<i64>(rights)
        .and_then(|rights| {
            let signed = i32::try_from(rights).map(i32::cast_unsigned);
            u32::try_from(rights).or(signed).ok()
        })
        .ok_or(AclFormError::BadLine(no))?;
    Ok(AclLine { name: name.to_vec(), rights: AfsRights(rights) })
}
