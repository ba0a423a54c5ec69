//! The rights of an access list, and their letters.

use std::fmt;
use std::str::FromStr;

/// A set of rights. Numbers and letters are AFS's (OpenAFS `prs_fs.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(pub u32);

const LETTERS: [(char, Rights); 15] = [
    ('r', Rights::READ),
    ('l', Rights::LOOKUP),
    ('i', Rights::INSERT),
    ('d', Rights::DELETE),
    ('w', Rights::WRITE),
    ('k', Rights::LOCK),
    ('a', Rights::ADMINISTER),
    ('A', Rights(1 << 24)),
    ('B', Rights(1 << 25)),
    ('C', Rights(1 << 26)),
    ('D', Rights(1 << 27)),
    ('E', Rights(1 << 28)),
    ('F', Rights(1 << 29)),
    ('G', Rights(1 << 30)),
    ('H', Rights(1 << 31)),
];

impl Rights {
    /// None.
    pub const NONE: Rights = Rights(0);
    /// `r`: read the files of a directory.
    pub const READ: Rights = Rights(1);
    /// `w`: write them.
    pub const WRITE: Rights = Rights(2);
    /// `i`: make entries.
    pub const INSERT: Rights = Rights(4);
    /// `l`: list the directory, and look up what is in it.
    pub const LOOKUP: Rights = Rights(8);
    /// `d`: remove entries.
    pub const DELETE: Rights = Rights(16);
    /// `k`: lock files.
    pub const LOCK: Rights = Rights(32);
    /// `a`: change the list.
    pub const ADMINISTER: Rights = Rights(64);
    /// All that mean something to the file system: `rlidwka`.
    pub const ALL: Rights = Rights(127);
    /// The bits that have a letter.
    const KNOWN: Rights = Rights(0xff00_007f);

    /// Whether all of `wanted` are included.
    pub const fn has(self, wanted: Rights) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// The union of both.
    #[must_use]
    pub const fn with(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }

    /// Without `other`.
    #[must_use]
    pub const fn without(self, other: Rights) -> Rights {
        Rights(self.0 & !other.0)
    }

    /// The rights that the list of a single file decides: `r`, `w`, `k`, `a`, and those for
    /// applications. Only a directory's list gives the others.
    #[must_use]
    pub const fn of_file(self) -> Rights {
        self.without(Rights::LOOKUP).without(Rights::INSERT).without(Rights::DELETE)
    }

    /// Whether each bit has a meaning.
    pub const fn is_known(self) -> bool {
        self.0 & !Rights::KNOWN.0 == 0
    }
}

/// The reason why a text is no [`Rights`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{letter}' is no right: rights are letters of rlidwka and A to H, or one of read, write, \
        all, none"
)]
pub struct RightsError {
    /// The unknown letter.
    pub letter: char,
}

impl FromStr for Rights {
    type Err = RightsError;

    /// Letters in any order, or a word: `read` (rl), `write` (rlidwk), `all` (rlidwka), `none`.
    fn from_str(text: &str) -> Result<Self, RightsError> {
        match text {
            "read" => return Ok(Rights::READ.with(Rights::LOOKUP)),
            "write" => return Ok(Rights::ALL.without(Rights::ADMINISTER)),
            "all" => return Ok(Rights::ALL),
            "none" => return Ok(Rights::NONE),
            _ => {}
        }
        text.chars().try_fold(Rights::NONE, |rights, letter| {
            let known = LETTERS.iter().find(|(known, _)| *known == letter);
            known.map(|(_, right)| rights.with(*right)).ok_or(RightsError { letter })
        })
    }
}

impl fmt::Display for Rights {
    /// In the order of `fs listacl`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LETTERS
            .iter()
            .filter(|(_, right)| self.has(*right))
            .try_for_each(|(letter, _)| write!(f, "{letter}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_words_and_back() {
        for (text, shown) in [
            ("read", "rl"),
            ("write", "rlidwk"),
            ("all", "rlidwka"),
            ("none", ""),
            ("akwdilr", "rlidwka"),
            ("HAl", "lAH"),
        ] {
            let rights: Rights = text.parse().unwrap();
            assert_eq!(rights.to_string(), shown, "{text}");
            assert_eq!(shown.parse(), Ok(rights));
            assert!(rights.is_known());
        }
        assert_eq!("rx".parse::<Rights>(), Err(RightsError { letter: 'x' }));
        assert!(!Rights(128).is_known());
    }
}
