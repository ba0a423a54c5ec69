//! The components that every other one of a volume stands on.

use std::sync::Arc;

use super::{Chores, Server};
use crate::base::{Kernel, VenusConfig, Workers};
use crate::names::Names;

/// See the head of the file.
#[derive(Clone)]
pub(crate) struct Ground {
    pub config: Arc<VenusConfig>,
    pub server: Arc<Server>,
    pub names: Arc<Names>,
    pub kernel: Arc<Kernel>,
    pub workers: Arc<Workers>,
    pub chores: Arc<Chores>,
}
