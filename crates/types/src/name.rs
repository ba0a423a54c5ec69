//! One component of a path: any bytes but `/` and NUL, 1 to 255 of them, and neither `.` nor `..`.

use std::fmt;

use crate::limits::NAME_BYTES_MAX;

/// A checked directory entry name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<[u8]>);

/// The reason why bytes are no [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No bytes at all.
    #[error("name is empty")]
    Empty,
    /// More than [`NAME_BYTES_MAX`] bytes.
    #[error("name is longer than {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// Contains `/` or NUL.
    #[error("name contains a slash or a NUL byte")]
    BadByte,
    /// Is `.` or `..`, which are not entries here.
    #[error("name is `.` or `..`")]
    Dots,
}

impl Name {
    /// Checks `bytes` once, so that no later code has to.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        match bytes {
            [] => Err(NameError::Empty),
            b"." | b".." => Err(NameError::Dots),
            _ if bytes.len() > NAME_BYTES_MAX => Err(NameError::TooLong),
            _ if bytes.iter().any(|b| matches!(b, 0 | b'/')) => Err(NameError::BadByte),
            _ => Ok(Name(bytes.into())),
        }
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Lets maps with [`Name`] keys be searched by plain bytes.
impl std::borrow::Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_any_bytes_but_slash_nul_and_dots() {
        assert_eq!(Name::new(b""), Err(NameError::Empty));
        assert_eq!(Name::new(b"."), Err(NameError::Dots));
        assert_eq!(Name::new(b".."), Err(NameError::Dots));
        assert_eq!(Name::new(b"a/b"), Err(NameError::BadByte));
        assert_eq!(Name::new(b"a\0"), Err(NameError::BadByte));
        assert_eq!(Name::new(&[b'x'; 256]), Err(NameError::TooLong));
        assert!(Name::new(&[b'x'; 255]).is_ok());
        assert!(Name::new(&[0xff, 0x80, b'\n']).is_ok());
    }
}
