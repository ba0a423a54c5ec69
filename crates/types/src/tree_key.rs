//! Keys of the trees of encrypted volumes, and the keeper of the key that wraps them.
//!
//! The store encrypts with the former; crate `keys` reads the latter from disk or a key server.

use std::fmt;
use std::ops::{Deref, DerefMut};

use zeroize::Zeroizing;

/// Bytes of a tree's key.
pub const TREE_KEY_BYTES: usize = 32;
/// A tree's key in the clear; erased when it is dropped, and never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TreeKey(Zeroizing<[u8; TREE_KEY_BYTES]>);

impl TreeKey {
    /// Takes the 32 bytes of the key.
    pub fn new(key: [u8; TREE_KEY_BYTES]) -> TreeKey {
        TreeKey(Zeroizing::new(key))
    }
}

impl Deref for TreeKey {
    type Target = [u8; TREE_KEY_BYTES];

    fn deref(&self) -> &[u8; TREE_KEY_BYTES] {
        &self.0
    }
}

impl DerefMut for TreeKey {
    fn deref_mut(&mut self) -> &mut [u8; TREE_KEY_BYTES] {
        &mut self.0
    }
}

impl fmt::Debug for TreeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TreeKey(..)")
    }
}

/// Has the key that wraps the trees' keys.
pub trait KeyKeeper: Send + Sync + fmt::Debug {
    /// Wraps a tree's key.
    ///
    /// # Errors
    /// The reason, for people; without any part of a key.
    fn wrap(&self, key: &TreeKey) -> Result<Vec<u8>, String>;

    /// Unwraps it.
    ///
    /// # Errors
    /// As [`KeyKeeper::wrap`]: the wrapping key is missing, or the wrapped bytes are damaged.
    fn unwrap(&self, wrapped: &[u8]) -> Result<TreeKey, String>;

    /// The number of the key that wrapped it, for people; 0: the keeper's keys have no numbers.
    fn wrapped_by(&self, wrapped: &[u8]) -> u32;
}
