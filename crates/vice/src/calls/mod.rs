//! The calls on files and on the cell, one function for each. A function is given the components
//! that it uses. Imports `files`, `sessions`, `cell`, `enforcement`, `audit` and what these import.

pub(crate) mod acl;
pub(crate) mod auth;
pub(crate) mod body_loan;
pub(crate) mod cell;
pub(crate) mod data;
pub(crate) mod delegate;
pub(crate) mod entries;
pub(crate) mod guard;
pub(crate) mod joining;
pub(crate) mod lock;
pub(crate) mod make;
pub(crate) mod opens;
pub(crate) mod persistent_lock;
pub(crate) mod preallocated;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod status;
pub(crate) mod volume;
pub(crate) mod xattr;

pub(crate) use body_loan::end_idle_loans;
