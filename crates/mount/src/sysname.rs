//! `@sys`: one name in the tree for files that differ between kinds of machines.
//!
//! A name that is `@sys`, or ends so, is looked up with each name of the mount's list in place of
//! these four bytes, and means the first that exists. If none does, the name means itself. Only
//! look-ups do this: a program that creates such a name has looked it up before without success, so
//! it gets the literal name. Links' targets need nothing more, because the kernel looks up each of
//! their components.
//!
//! The kernel caches no such name, neither found nor absent, so a new list applies from the next
//! look-up on, and so does an entry that is created or removed meanwhile. The file found is cached
//! as under any other name.
//!
//! Source: AFS.

use std::sync::Arc;

use parking_lot::RwLock;
use types::{Name, NameError};

const MARK: &[u8] = b"@sys";
/// Names of a list. Source: AFS.
pub const SYSNAMES_MAX: usize = 16;

/// The part before the `@sys` at the end; `None` if there is none.
pub fn stem(name: &[u8]) -> Option<&[u8]> {
    name.strip_suffix(MARK)
}

/// The list of a mount.
pub struct Sysnames(RwLock<Arc<[Name]>>);

/// The reason why a list is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadList;

impl Default for Sysnames {
    /// OpenAFS's name for this machine, the same without the kernel's version, and one for every
    /// Linux.
    fn default() -> Self {
        let machine = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "i386",
            "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
            other => other,
        };
        let list = [format!("{machine}_linux26"), format!("{machine}_linux"), "linux".to_owned()];
        let names: Result<Vec<Name>, NameError> =
            list.iter().map(|name| Name::new(name.as_bytes())).collect();
        Sysnames(RwLock::new(names.expect("names of machines are short words").into()))
    }
}

impl Sysnames {
    /// The list, the best first.
    pub fn get(&self) -> Arc<[Name]> {
        Arc::clone(&self.0.read())
    }

    /// Parses a list of names with a space between each two.
    ///
    /// # Errors
    /// If there is none, too many, or one that cannot be a name, or is an `@sys` itself.
    pub fn set(&self, list: &[u8]) -> Result<(), BadList> {
        let names: Result<Vec<Name>, BadList> =
            list.split(|byte| *byte == b' ').map(checked).collect();
        let names = names?;
        if names.len() > SYSNAMES_MAX {
            return Err(BadList);
        }
        *self.0.write() = names.into();
        Ok(())
    }

    /// The names that such a name may stand for, in order.
    pub fn meant<'a>(&self, stem: &'a [u8]) -> impl Iterator<Item = Name> + use<'a> {
        let list = self.get();
        // A name that becomes too long matches nothing.
        (0..list.len()).filter_map(move |at| Name::new(&[stem, list[at].as_bytes()].concat()).ok())
    }
}

fn checked(name: &[u8]) -> Result<Name, BadList> {
    Name::new(name).ok().filter(|_| stem(name).is_none()).ok_or(BadList)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(names: &Sysnames, name: &[u8]) -> Vec<String> {
        let stem = stem(name).into_iter();
        stem.flat_map(|stem| names.meant(stem))
            .map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned())
            .collect()
    }

    #[test]
    fn the_mark_stands_at_the_end_for_each_name_of_the_list() {
        let names = Sysnames::default();
        names.set(b"one two").unwrap();
        assert_eq!(meant(&names, b"@sys"), ["one", "two"]);
        assert_eq!(meant(&names, b"bin.@sys"), ["bin.one", "bin.two"]);
        for none in [&b"sys"[..], b"@sys.bin", b"@SYS", b""] {
            assert!(meant(&names, none).is_empty(), "{none:?}");
        }
        let long = [&[b'x'; 250][..], b"@sys"].concat();
        assert!(meant(&names, &long).iter().all(|name| name.len() <= 255));
        names.set(&[b'y'; 255]).unwrap();
        assert!(meant(&names, b"bin.@sys").is_empty());
    }

    #[test]
    fn lists_that_cannot_be_leave_the_old_one() {
        let names = Sysnames::default();
        names.set(b"one").unwrap();
        let many = ["x"; SYSNAMES_MAX + 1].join(" ");
        for bad in [&b""[..], b"a  b", b"a/b", b"@sys", b"x@sys", b"..", many.as_bytes()] {
            assert_eq!(names.set(bad), Err(BadList), "{bad:?}");
        }
        assert_eq!(meant(&names, b"@sys"), ["one"]);
        names.set(["x"; SYSNAMES_MAX].join(" ").as_bytes()).unwrap();
    }

    #[test]
    fn every_machine_has_a_list() {
        assert_eq!(meant(&Sysnames::default(), b"@sys").last().unwrap(), "linux");
    }
}
