//! Keys that trees of encrypted volumes have, and the keeper of the key that wraps them.
//!
//! The store encrypts with the former; crate `keys` has the latter on disk or from a key server.

use std::fmt;
use std::ops::{Deref, DerefMut};

use zeroize::Zeroizing;

/// Bytes of a tree's key.
pub const TREE_KEY_BYTES: usize = 32;
/// A tree's key in the clear; erased when it is dropped, and never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TreeKey(Zeroizing<[u8; TREE_KEY_BYTES]>);

impl TreeKey {
    /// This key.
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

/// Who keeps the key that trees' keys are wrapped with.
pub trait KeyKeeper: Send + Sync + fmt::Debug {
    /// Wraps a tree's key.
    ///
    /// # Errors
    /// What is wrong, for people; without any part of a key.
    fn wrap(&self, key: &TreeKey) -> Result<Vec<u8>, String>;

    /// Unwraps it.
    ///
    /// # Errors
    /// As [`KeyKeeper::wrap`]: the key is not here, or what is to be unwrapped is damaged.
    fn unwrap(&self, wrapped: &[u8]) -> Result<TreeKey, String>;

    /// The number of the keeper's key that it was wrapped with, for people; 0: keys have none.
    fn wrapped_by(&self, wrapped: &[u8]) -> u32;
}
