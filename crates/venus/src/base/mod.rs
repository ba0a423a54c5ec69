//! Words that all modules use: configuration, requests, results, errors, limits, threads.

pub(crate) mod budget;
pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod kernel_port;
pub(crate) mod pool;
pub(crate) mod request;
pub(crate) mod result;
