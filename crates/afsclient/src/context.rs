//! One call of a caller: the way to the servers, and what is promised of the answer.
//!
//! The cache manager takes each status of an answer for promised. [`Answered`] notes for which
//! files an answer claims that, and since when; at the end a break follows for those without a
//! promise.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Weak};

use afs3::files::{FilesAnswer, FilesCall};
use afs3::structs::{CallBack, FetchStatus};
use client::{CallError, Cancel, clock};
use parking_lot::Mutex;
use types::{Answer, BreakItem, BreakReason, Caller, Fid, Name, Status, VolumeId};

use crate::coherence::Coherence;
use crate::directories::DirectoryCache;
use crate::locating::Locations;
use crate::lock_table::LockedFiles;
use crate::promises::{AskedAt, Promises};
use crate::servers::{FileServers, Trouble};
use crate::statuses::{foreign, shown};
use crate::users::{AfsUser, AfsUsers};

/// Files whose stores are in order at a time, before those that are over are forgotten.
const STORES_SWEPT_AT: usize = 1024;

/// The session with a foreign cell or with one server: the parts that all calls share.
pub(crate) struct AfsSession {
    /// That of the cell or of the server, for people.
    pub name: String,
    pub locations: Locations,
    pub servers: FileServers,
    pub users: Arc<AfsUsers>,
    pub coherence: Arc<Coherence>,
    pub directories: DirectoryCache,
    pub stores: StoreOrder,
    pub hidden: HiddenFiles,
    pub locks: LockedFiles,
}

impl AfsSession {
    /// Whether the server of a session with one answers now; its addresses are asked in order.
    pub fn is_there(&self) -> bool {
        self.locations.own_addresses().into_iter().any(|address| {
            let answers = self.servers.answers(address);
            if answers {
                self.locations.heard(address, true);
            } else {
                self.server_is_silent(address);
            }
            answers
        })
    }

    /// A server did not answer: it may have missed to call back.
    pub fn server_is_silent(&self, server: Ipv4Addr) {
        let was_parted = self.locations.is_parted();
        self.locations.heard(server, false);
        self.coherence.server_lost(server);
        if !was_parted && self.locations.is_parted() {
            self.coherence.part();
        }
    }
}

/// A file that lost its last name while it is open here: AFS has no holds, so it gets a hidden name
/// until it is closed, as OpenAFS's clients give it.
#[derive(Clone, Debug)]
pub(crate) struct HiddenFile {
    pub dir: Fid,
    pub name: Name,
    pub user: AfsUser,
}

/// The hidden files of the cell.
pub(crate) type HiddenFiles = Mutex<HashMap<Fid, HiddenFile>>;

/// Stores of one file go one after the other: each tells the length of the file, and a store with
/// an earlier length would cut off what another one wrote.
#[derive(Default)]
pub(crate) struct StoreOrder {
    files: Mutex<HashMap<Fid, Weak<Mutex<()>>>>,
}

impl StoreOrder {
    /// To be locked while the file is stored.
    pub fn of(&self, fid: Fid) -> Arc<Mutex<()>> {
        let mut files = self.files.lock();
        if files.len() >= STORES_SWEPT_AT {
            files.retain(|_, order| order.strong_count() > 0);
        }
        let known = files.get(&fid).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let new = Arc::default();
            files.insert(fid, Arc::downgrade(&new));
            new
        })
    }
}

/// An answer, and the files that it shows as promised, each with the start of its question.
pub(crate) struct Answered {
    pub answer: Answer,
    pub claims: Vec<(Fid, AskedAt)>,
}

impl Answered {
    /// An answer about no file's state.
    pub fn plain(answer: Answer) -> Answered {
        Answered { answer, claims: Vec::new() }
    }
}

/// A status that a server told.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    pub fid: Fid,
    pub status: FetchStatus,
    /// When the question began.
    pub start: AskedAt,
}

impl Told {
    /// The status as Rialto has it.
    ///
    /// # Errors
    /// `Unreadable`: it makes no sense.
    pub fn shown(&self) -> Result<Status, CallError> {
        shown(self.fid, &self.status, self.start.version).ok_or(CallError::Unreadable)
    }

    pub fn claim(&self) -> (Fid, AskedAt) {
        (self.fid, self.start)
    }
}

/// See the head of the file.
pub(crate) struct AfsCall<'a> {
    pub cell: &'a AfsSession,
    pub caller: &'a Caller,
    pub user: AfsUser,
    pub cancel: Option<&'a Cancel>,
}

impl AfsCall<'_> {
    /// A call of the session itself.
    pub fn of_session(cell: &AfsSession) -> AfsCall<'_> {
        AfsCall { cell, caller: &Caller::ROOT, user: AfsUser::default(), cancel: None }
    }

    /// Makes a call at a server that has the volume; `call` gets the server's address.
    ///
    /// # Errors
    /// The service's refusal, or why there is no answer.
    pub fn at<R>(
        &self,
        volume: VolumeId,
        is_question: bool,
        mut call: impl FnMut(Ipv4Addr) -> Result<R, Trouble>,
    ) -> Result<R, CallError> {
        let moved = || self.cell.coherence.moved(volume);
        self.cell.locations.call(volume, is_question, self.cancel, moved, |server| {
            call(server).inspect_err(|trouble| {
                let gave_up = is_question && self.cancel.is_some_and(Cancel::is_cancelled);
                if *trouble == Trouble::Silent && !gave_up {
                    self.cell.server_is_silent(server);
                }
            })
        })
    }

    /// Asks a question without a stream. Returns the answer, the server, and the start of the
    /// question.
    ///
    /// # Errors
    /// As [`AfsCall::at`].
    pub fn ask(
        &self,
        volume: VolumeId,
        call: &FilesCall,
    ) -> Result<(FilesAnswer, Ipv4Addr, AskedAt), CallError> {
        self.at(volume, true, |server| {
            let start = self.begin();
            let answer = self.cell.servers.ask(server, self.user, call, self.cancel)?;
            Ok((answer, server, start))
        })
    }

    /// Makes a change. Returns as [`AfsCall::ask`].
    ///
    /// # Errors
    /// As [`AfsCall::at`].
    pub fn change(
        &self,
        volume: VolumeId,
        call: &FilesCall,
    ) -> Result<(FilesAnswer, Ipv4Addr, AskedAt), CallError> {
        self.at(volume, false, |server| {
            let start = self.begin();
            Ok((self.cell.servers.ask(server, self.user, call, None)?, server, start))
        })
    }

    /// The state of the promises before a question.
    pub fn begin(&self) -> AskedAt {
        self.cell.coherence.with(Promises::begin)
    }

    /// A question was answered with a status and a promise.
    pub fn learn(
        &self,
        server: Ipv4Addr,
        start: AskedAt,
        (fid, status): (Fid, FetchStatus),
        promise: CallBack,
    ) -> Told {
        let ended = self
            .cell
            .coherence
            .with(|promises| promises.learn(clock::now(), start, server, (fid, status), promise));
        self.cell.coherence.send(ended);
        Told { fid, status, start }
    }

    /// This client changed these files, which have these states now.
    pub fn changed<const N: usize>(&self, files: [(Fid, FetchStatus); N]) -> [Told; N] {
        self.cell.coherence.with(|promises| {
            promises.changed(&files.map(|(fid, _)| fid));
            let start = promises.begin();
            files.map(|(fid, status)| {
                promises.renew(fid, status);
                Told { fid, status, start }
            })
        })
    }

    /// The file's status, asked of the server.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn fetch_status(&self, fid: Fid) -> Result<Told, CallError> {
        let call = FilesCall::FetchStatus { fid: foreign(fid)? };
        let (answer, server, start) = self.ask(fid.volume, &call)?;
        let FilesAnswer::FetchStatus { status, callback, .. } = answer else {
            return Err(CallError::Unreadable);
        };
        Ok(self.learn(server, start, (fid, status), callback))
    }

    /// The file's status, as it is promised, or else asked of the server. The rights in it may be
    /// another caller's.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn status(&self, fid: Fid) -> Result<Told, CallError> {
        self.promised(fid).map_or_else(|| self.fetch_status(fid), Ok)
    }

    /// The file's status, if it is promised.
    pub fn promised(&self, fid: Fid) -> Option<Told> {
        self.cell.coherence.with(|promises| {
            let start = promises.begin();
            let status = promises.status(clock::now(), fid)?;
            Some(Told { fid, status, start })
        })
    }

    /// The cache manager forgets what it knows of a file.
    pub fn break_promise(&self, fid: Fid) {
        self.cell.coherence.send([BreakItem { fid, reason: BreakReason::Data, name: None }]);
    }

    /// The answer. A break follows for what is not promised.
    pub fn finish(&self, answered: Answered) -> Answer {
        let now = clock::now();
        let unpromised: Vec<BreakItem> = self.cell.coherence.with(|promises| {
            let claims = answered.claims.iter();
            let open = claims.filter(|(fid, start)| !promises.covers(now, *start, *fid));
            open.map(|(fid, _)| BreakItem { fid: *fid, reason: BreakReason::Data, name: None })
                .collect()
        });
        if !unpromised.is_empty() {
            self.cell.coherence.send(unpromised);
        }
        answered.answer
    }
}
