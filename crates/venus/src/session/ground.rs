//! The components that every other one of a volume stands on.

use std::sync::Arc;

use crate::base::config::VenusConfig;
use crate::base::kernel_port::Kernel;
use crate::base::pool::Workers;
use crate::names::names::Names;
use crate::session::server::Server;
use crate::writeback::chores::Chores;

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
