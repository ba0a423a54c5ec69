//! The cache manager: a file system in fids that answers from its cache while the server's promises hold.

mod config;
mod error;
mod invalidate;
mod request;
mod result;
mod venus;

pub use config::VenusConfig;
pub use error::Error;
pub use invalidate::{Invalidate, Nobody};
pub use request::Request;
pub use result::{Attributes, DirHandle, Entry, Found, Handle, ListEntry, Listing, OpenMode, Opened, Stamp, Wrote};
pub use venus::Venus;
