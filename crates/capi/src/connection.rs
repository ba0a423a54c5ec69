//! Connections with cells.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use rialto_client::{DirectCell, DirectOptions};

use crate::completions::GroupObject;
use crate::error::{ARGUMENT, Failure, answer, status, watch_forks};
use crate::handle::{Handle, Handled, Table};
use crate::pointers::{Out, text};
use crate::staging::Staging;

/// A connection with a cell.
pub struct ConnectionObject {
    pub(crate) cell: DirectCell,
    /// The group of operations that name none.
    pub(crate) group: Arc<GroupObject>,
    pub(crate) staging: Arc<Staging>,
}

impl Handled for ConnectionObject {
    const NAME: &'static str = "connection";

    fn table() -> &'static Table<Self> {
        static TABLE: Table<ConnectionObject> = Table::new();
        &TABLE
    }
}

/// Connects to a cell.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rialto_connect(
    server: *const c_char,
    root: *const c_char,
    connection: *mut Handle<ConnectionObject>,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises texts that stay until the function returns, and room for a
        // handle.
        let (server, root, mut connection) = unsafe {
            let root = if root.is_null() { None } else { Some(text(root, "root volume")?) };
            (text(server, "server's address")?, root, Out::new(connection, 1, "connection")?)
        };
        let address = server.parse().map_err(|error| ARGUMENT.because(format!("{error}")))?;
        let mut options = DirectOptions::new(address);
        if let Some(root) = root {
            options.root = root.to_owned();
        }
        watch_forks();
        let cell = DirectCell::connect(options)?;
        let staging = Arc::new(Staging::new(cell.clone()));
        let object = ConnectionObject { cell, group: Arc::default(), staging };
        connection.put(0, Handle::make(Arc::new(object)));
        Ok(())
    })
}

/// Ends a connection.
#[unsafe(no_mangle)]
pub extern "C" fn rialto_disconnect(connection: Handle<ConnectionObject>) -> c_int {
    status(|| connection.close(|object| object.group.close()))
}

/// Does memory that both sides share carry the operations?
#[unsafe(no_mangle)]
pub extern "C" fn rialto_has_lane(connection: Handle<ConnectionObject>) -> c_int {
    answer(|| Ok(i64::from(connection.get()?.cell.has_lane()))) as c_int
}

/// The group that a call names: this one, or the connection's.
pub(crate) fn group_of(
    group: Handle<GroupObject>,
    default: impl FnOnce() -> Result<Arc<GroupObject>, Failure>,
) -> Result<Arc<GroupObject>, Failure> {
    if group.is_null() { default() } else { group.get() }
}
