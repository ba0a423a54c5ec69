//! Calls to the server.
//!
//! Model: a change that was answered here goes to the server before any call about its files, so
//! the journal is sent here (`Flusher`); what the server may lose is recorded here (`Unstable`);
//! and each answer is checked for another server instance before its caller sees it (`Calls`).
//! `Sender` sends one file's written bytes. Imports `base` to `cache`.

mod call;
mod flusher;
mod free_space;
mod journal;
mod sender;
mod unstable;
mod unstable_metadata;

pub(crate) use self::call::Calls;
pub(crate) use self::flusher::Flusher;
pub(crate) use self::free_space::Space;
pub(crate) use self::journal::{Journal, JournalEntry, Look, Take, fids_of};
pub(crate) use self::sender::{Sender, TAIL_SENT_BYTES};
pub(crate) use self::unstable::Unstable;
pub(crate) use self::unstable_metadata::{MetadataSubject, Point, UnstableMetadata};
