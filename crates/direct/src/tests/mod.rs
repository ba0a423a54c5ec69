//! Orders of events that a server in another process shows by chance alone.

#![allow(clippy::unwrap_used)]

mod races;
mod scripted;
