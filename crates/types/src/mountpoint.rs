//! The target of a mount point: the volume that it mounts, and how its site is chosen.
//!
//! `#home` follows the preference for read-only volumes, `%home` is always the read-write one;
//! `#cell.org:home` and `%cell.org:home` are another cell's. Source: AFS.

use std::fmt;

use crate::limits::{CELL_BYTES_MAX, NAME_BYTES_MAX};
use crate::{Fault, Name};

/// A mount point's target, checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MountPoint {
    /// Always the volume of this exact name, even if a read-only one exists.
    pub read_write: bool,
    /// The cell; `None`: the one that contains the mount point.
    pub cell: Option<Box<str>>,
    /// The volume's name.
    pub volume: Name,
}

/// The reason why bytes are no [`MountPoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MountPointError {
    /// Neither `#` nor `%`.
    #[error("a mount point begins with # or %")]
    NoMark,
    /// Not a domain name.
    #[error("a cell's name has letters, digits, dots and hyphens, at most {CELL_BYTES_MAX}")]
    BadCell,
    /// More than [`NAME_BYTES_MAX`] bytes.
    #[error("the volume's name is longer than {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// Empty, only dots, or with bytes that no volume's name has.
    #[error("the volume's name is empty, or has a slash, a colon or a control character")]
    BadVolume,
}

impl MountPointError {
    /// The fault with which the service refuses it.
    pub const fn fault(self) -> Fault {
        match self {
            MountPointError::TooLong => Fault::NameTooLong,
            MountPointError::NoMark | MountPointError::BadCell | MountPointError::BadVolume => {
                Fault::Invalid
            }
        }
    }
}

impl MountPoint {
    /// Parses a target.
    ///
    /// # Errors
    /// See [`MountPointError`].
    pub fn parse(target: &[u8]) -> Result<Self, MountPointError> {
        let (read_write, rest) = match target {
            [b'#', rest @ ..] => (false, rest),
            [b'%', rest @ ..] => (true, rest),
            _ => return Err(MountPointError::NoMark),
        };
        let (cell, volume) = match rest.iter().position(|byte| *byte == b':') {
            Some(colon) => (Some(&rest[..colon]), &rest[colon + 1..]),
            None => (None, rest),
        };
        Ok(MountPoint {
            read_write,
            cell: cell.map(parse_cell).transpose()?,
            volume: parse_volume(volume)?,
        })
    }
}

fn parse_cell(cell: &[u8]) -> Result<Box<str>, MountPointError> {
    let fine = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let text = std::str::from_utf8(cell).map_err(|_| MountPointError::BadCell)?;
    let good = !cell.is_empty() && cell.len() <= CELL_BYTES_MAX && cell.iter().all(fine);
    if good { Ok(text.into()) } else { Err(MountPointError::BadCell) }
}

fn parse_volume(volume: &[u8]) -> Result<Name, MountPointError> {
    if volume.len() > NAME_BYTES_MAX {
        return Err(MountPointError::TooLong);
    }
    let bad = |byte: &u8| byte.is_ascii_control() || *byte == b':';
    Name::new(volume).ok().filter(|_| !volume.iter().any(bad)).ok_or(MountPointError::BadVolume)
}

impl fmt::Display for MountPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.read_write { "%" } else { "#" })?;
        if let Some(cell) = &self.cell {
            write!(f, "{cell}:")?;
        }
        f.write_str(&String::from_utf8_lossy(self.volume.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point(read_write: bool, cell: Option<&str>, volume: &[u8]) -> MountPoint {
        MountPoint { read_write, cell: cell.map(Into::into), volume: Name::new(volume).unwrap() }
    }

    #[test]
    fn the_four_forms() {
        assert_eq!(MountPoint::parse(b"#home"), Ok(point(false, None, b"home")));
        assert_eq!(MountPoint::parse(b"%home.readonly"), Ok(point(true, None, b"home.readonly")));
        assert_eq!(MountPoint::parse(b"#a.org:home"), Ok(point(false, Some("a.org"), b"home")));
        assert_eq!(MountPoint::parse(b"%a.org:home"), Ok(point(true, Some("a.org"), b"home")));
        assert_eq!(MountPoint::parse(b"##%"), Ok(point(false, None, b"#%")));
    }

    #[test]
    fn invalid_targets_are_refused() {
        for (text, error) in [
            (&b""[..], MountPointError::NoMark),
            (b"home", MountPointError::NoMark),
            (b"#", MountPointError::BadVolume),
            (b"#..", MountPointError::BadVolume),
            (b"#a/b", MountPointError::BadVolume),
            (b"#a\n", MountPointError::BadVolume),
            (b"#c:", MountPointError::BadVolume),
            (b"#c:v:w", MountPointError::BadVolume),
            (b"#:home", MountPointError::BadCell),
            (b"#a b:home", MountPointError::BadCell),
        ] {
            assert_eq!(MountPoint::parse(text), Err(error), "{:?}", String::from_utf8_lossy(text));
        }
        assert_eq!(
            MountPoint::parse(&[&b"#"[..], &[b'x'; 256]].concat()),
            Err(MountPointError::TooLong)
        );
        assert!(MountPoint::parse(&[&b"#"[..], &[b'x'; 255]].concat()).is_ok());
        assert_eq!(
            MountPoint::parse(&[&b"#"[..], &[b'c'; 254], b":v"].concat()),
            Err(MountPointError::BadCell)
        );
    }

    proptest! {
        #[test]
        fn the_printed_form_parses(
            read_write: bool,
            cell in proptest::option::of("[a-zA-Z0-9._-]{1,40}"),
            volume in "[^/:\\x00-\\x1f\\x7f]{1,60}",
        ) {
            prop_assume!(Name::new(volume.as_bytes()).is_ok());
            let point = point(read_write, cell.as_deref(), volume.as_bytes());
            prop_assert_eq!(MountPoint::parse(point.to_string().as_bytes()), Ok(point));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(point) = MountPoint::parse(&bytes) {
                prop_assert!(point.volume.as_bytes().len() <= NAME_BYTES_MAX);
            }
        }
    }
}
