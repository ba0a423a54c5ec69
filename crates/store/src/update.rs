//! What one operation changes: published interface.
#![allow(clippy::unimplemented, unused_variables, clippy::new_without_default)]
use bytes::Bytes;
use types::{Origin, VnodeNo};

use crate::{Quota, Vnode};

/// Gathers the effects of one operation; [`crate::Volume::commit`] applies them all or none.
pub struct Update {}

impl Update {
    /// Nothing yet.
    pub fn new() -> Update {
        unimplemented!()
    }
    /// A vnode that was not there before: counts one file more. May be followed by `put_vnode` of the same vnode.
    pub fn create_vnode(&mut self, vnode: &Vnode) {
        unimplemented!()
    }
    /// The new state of a vnode; the last one given counts. Needed after every body, entry and attribute operation.
    pub fn put_vnode(&mut self, vnode: &Vnode) {
        unimplemented!()
    }
    /// Notes that a vnode without names is still held.
    pub fn add_orphan(&mut self, vnode: VnodeNo) {
        unimplemented!()
    }
    /// The vnode is no orphan (any more).
    pub fn remove_orphan(&mut self, vnode: VnodeNo) {
        unimplemented!()
    }
    /// The reply to the request that is executed, for exactly-once.
    pub fn reply(&mut self, origin: Origin, reply: Bytes) {
        unimplemented!()
    }
    /// A new quota of the volume.
    pub fn set_quota(&mut self, quota: Quota) {
        unimplemented!()
    }
}
