//! Codes with which calls end.
//!
//! Model: a code is an error of Rx (below 0), an error number of the server's system or a code of
//! the file service (small numbers), or entry n of a com_err table, which is the table's base plus
//! n. Error numbers differ between systems, so servers send them to willing clients as the table
//! UAE ([`on_wire`], [`errno_from_uae`]).
//!
//! Source: OpenAFS `src/rx/rx.h`, `src/rxgen/rpc_errors.h`, `src/util/errors.h`,
//! `src/afs/unified_afs.et` and the `.et` files of the services.

mod tables;
mod uae;

pub use tables::*;
pub use uae::{UAE_BASE, errno_from_uae, on_wire, uae_from_errno};

/// A table of codes, in the order of the numbers.
#[derive(Clone, Copy, Debug)]
pub struct ErrorTable {
    /// The first code.
    pub base: i32,
    /// The names, by the distance from the base.
    pub names: &'static [&'static str],
}

/// The name of a code in any of the tables; not of error numbers, whose names systems know.
pub fn code_name(code: i32) -> Option<&'static str> {
    let single = SINGLE_CODES.iter().find(|(one, _)| *one == code).map(|(_, name)| *name);
    single.or_else(|| {
        ALL_TABLES.iter().find_map(|table| {
            let index = usize::try_from(code.checked_sub(table.base)?).ok()?;
            table.names.get(index).copied()
        })
    })
}
