//! Words and tools that all layers use: configuration, requests, results, errors, memory limits,
//! worker threads, the scheduler, the port to the kernel. Imports nothing of the crate.

mod budget;
mod config;
mod error;
mod kernel_port;
mod pool;
mod request;
mod result;
mod scheduler;

pub(crate) use self::budget::{Pot, Share};
pub use self::config::VenusConfig;
pub use self::error::Error;
pub use self::kernel_port::Backing;
pub(crate) use self::kernel_port::Kernel;
pub use self::kernel_port::KernelPort;
pub use self::kernel_port::NoKernel;
pub(crate) use self::pool::{WorkerThreads, Workers};
pub use self::request::RequestContext;
pub(crate) use self::request::{POLL_INTERVAL, as_caller};
pub use self::result::Attributes;
pub use self::result::DirHandle;
pub use self::result::DirListing;
pub use self::result::EntryReply;
pub use self::result::ListEntry;
pub use self::result::LookupReply;
pub use self::result::OpenHandle;
pub use self::result::OpenMode;
pub use self::result::OpenReply;
pub use self::result::PassthroughState;
pub use self::result::Stamp;
pub use self::result::{WriteOptions, Wrote};
pub(crate) use self::scheduler::{Chore, Scheduler, Seat};
