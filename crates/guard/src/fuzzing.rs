//! What the fuzz targets check, so that plain tests run it too (feature `fuzzing`).

use crate::{Acl, Token};

/// Bytes that are taken as a list are the one form of it, and text that is reads as it is shown.
pub fn acl(bytes: &[u8]) {
    if let Ok(list) = Acl::decode(bytes) {
        assert_eq!(list.encode(), bytes);
        assert_eq!(Acl::parse(&list.to_string()), Ok(list));
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(list) = Acl::parse(text)
    {
        assert_eq!(Acl::decode(&list.encode()), Ok(list.clone()));
        assert_eq!(Acl::parse(&list.to_string()), Ok(list));
    }
}

/// Bytes that are taken as a token are the one form of it.
pub fn token(bytes: &[u8]) {
    if let Ok((token, signature)) = Token::parse(bytes) {
        let again = token.with_signature(&signature);
        assert_eq!(again, bytes);
    }
}
