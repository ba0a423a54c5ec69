//! .

pub(crate) mod reader;
