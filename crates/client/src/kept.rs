//! The records that a session leaves to the process that succeeds this one (crate `keep`).
//!
//! Model. A session has a *place*, a random number that is the `major` of its keys. One session of
//! a process has a place at a time: the one that has its words.
//!
//! | kind | `minor` | contents |
//! |---|---|---|
//! | `SERVER` | 0 | the client, and where the server is |
//! | `SLOTS` | 0 | word 0: the session, 0 if there is none; then the slots' last used numbers |
//! | `SESSION` | 0 | the terms of the session, with its client and incarnation |
//! | `REQUEST` | call | a request |
//! | `CHAIN` | chain | the state of a chain of which some members are answered |
//! | `ANSWER` | call | the answer to a request |
//!
//! A request's record is there before its frame is sent. When the answer arrives its number is used
//! up, before any caller gets the answer, and the record goes. The owner of some calls may be
//! killed between the answer and its use: the mount, before the kernel has its reply. Such an
//! answer is stored before the number is used up, and request and answer stay until the [`Receipt`]
//! is dropped.
//!
//! A request outlives its session. Without an answer its outcome is unknown then, and the record
//! says so until the caller knows: it goes with the end of the call, or with its receipt. Without
//! the record a successor would take the request for one that was never sent.
//!
//! A session without all its requests must not be resumed: its slots' next numbers would be taken
//! for repeats of the missing ones. If the keep is full, the session is therefore no longer kept,
//! and goes on.

use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use dafs::client::{
    ChainLanding, KeptChain, KeptRequest, KeptSession, KeptTerms, Landing, decode_outcome,
    encode_outcome,
};
use dafs::{CallId, WireError};
use fabric::Endpoint;
use keep::{Keep, Key, Words, kind};
use serde_json::{Value, json};
use types::limits::SLOTS_MAX;
use types::{Answer, BootVerifier, ClientId, Fault, ServerId, SessionId};

/// Words of a place: the session, and the slots.
const WORDS: usize = 1 + SLOTS_MAX as usize;

/// The place of a session; see the head of the file.
#[derive(Debug)]
pub(crate) struct Place {
    keep: Arc<Keep>,
    number: u64,
    words: Words,
    client: (ClientId, u64),
    /// The session that is kept.
    session: Option<SessionId>,
    /// A session that is no longer kept, since the keep is full.
    given_up: Option<SessionId>,
}

/// Where the server of a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptServer {
    pub client: ClientId,
    /// Where it was reached first.
    pub endpoint: Endpoint,
    pub server: Option<ServerId>,
    /// Its addresses in the cell database.
    pub addresses: Vec<SocketAddr>,
}

/// The state that a predecessor left in a place.
#[derive(Debug, Default)]
pub(crate) struct Legacy {
    /// The session, with the requests that have no answer.
    pub session: Option<KeptSession>,
    /// The answers that their callers may not have used.
    pub answered: Vec<Answered>,
    /// Requests of sessions that are over, whose callers may not know that the outcome is unknown.
    pub lost: Vec<KeptRequest>,
    /// Calls have greater numbers from now on.
    pub last_call: u64,
}

/// An answered request of a predecessor.
#[derive(Debug)]
pub(crate) struct Answered {
    pub request: KeptRequest,
    pub outcome: Result<Answer, Fault>,
    pub verifier: Option<BootVerifier>,
}

/// The record of an answer, which a successor gives again until this is dropped.
#[derive(Debug)]
pub(crate) struct Receipt {
    keep: Arc<Keep>,
    place: u64,
    call: u64,
    /// The records stay.
    left: bool,
}

impl Receipt {
    /// Drops the receipt, and leaves the records to the next process.
    pub fn leave(mut self) {
        self.left = true;
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let key = |kind| Key { kind, major: self.place, minor: self.call };
        // An answer without a request is none. A request without an answer may be a lost one.
        self.keep.remove(key(kind::REQUEST));
        self.keep.remove(key(kind::ANSWER));
    }
}

/// Why a place is of no use.
#[derive(Debug, thiserror::Error)]
enum LegacyError {
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("{0}")]
    Damaged(&'static str),
}

impl Place {
    /// The place of the client's session with this server, with what a predecessor left there; a
    /// new one, if there is none.
    ///
    /// # Errors
    /// The keep is full.
    pub fn open(
        keep: &Arc<Keep>,
        client: (ClientId, u64),
        server: Option<ServerId>,
        endpoint: &Endpoint,
    ) -> io::Result<(Place, Legacy)> {
        let is_its = |kept: &KeptServer| {
            let same = match (kept.server, server) {
                (Some(kept), Some(server)) => kept == server,
                _ => kept.endpoint == *endpoint,
            };
            kept.client == client.0 && same
        };
        for (number, _) in servers(keep).into_iter().filter(|(_, kept)| is_its(kept)) {
            // It may be in use, by a session of this process.
            let Ok(place) = Place::at(keep, client, number) else { continue };
            let legacy = read(keep, number, client);
            return match legacy {
                Ok(legacy) => {
                    place.clear_up(&legacy);
                    let session = legacy.session.as_ref().map(|kept| kept.terms.session);
                    Ok((Place { session, ..place }, legacy))
                }
                Err(error) => {
                    tracing::warn!(
                        %error,
                        %endpoint,
                        consequence = "a new session begins; locks and unanswered changes of the \
                            process before are lost",
                        "the records of a session of the process before are damaged"
                    );
                    place.clear();
                    Place::new(keep, client, server, endpoint)
                }
            };
        }
        Place::new(keep, client, server, endpoint)
    }

    fn new(
        keep: &Arc<Keep>,
        client: (ClientId, u64),
        server: Option<ServerId>,
        endpoint: &Endpoint,
    ) -> io::Result<(Place, Legacy)> {
        let place = Place::at(keep, client, rand::random())?;
        let endpoint = endpoint.clone();
        let kept = KeptServer { client: client.0, endpoint, server, addresses: Vec::new() };
        place.put_server(&kept)?;
        Ok((place, Legacy::default()))
    }

    fn at(keep: &Arc<Keep>, client: (ClientId, u64), number: u64) -> io::Result<Place> {
        let words = keep.words(key(kind::SLOTS, number, 0), WORDS)?;
        let keep = Arc::clone(keep);
        Ok(Place { keep, number, words, client, session: None, given_up: None })
    }

    /// Removes what a predecessor no longer needed, and finishes what it was about to do.
    fn clear_up(&self, legacy: &Legacy) {
        let needed: Vec<u64> = legacy
            .session
            .iter()
            .flat_map(|kept| kept.requests.iter())
            .chain(legacy.answered.iter().map(|answered| &answered.request))
            .chain(&legacy.lost)
            .map(|request| request.id.0)
            .collect();
        for kind in [kind::REQUEST, kind::ANSWER] {
            for key in keys(&self.keep, kind, self.number) {
                if !needed.contains(&key.minor) {
                    self.keep.remove(key);
                }
            }
        }
        match &legacy.session {
            Some(kept) => kept
                .landed
                .iter()
                .enumerate()
                .for_each(|(slot, number)| self.words.set(1 + slot, *number)),
            None => self.words.set(0, 0),
        }
    }

    /// Stores where the server is.
    ///
    /// # Errors
    /// The keep is full.
    pub fn put_server(&self, server: &KeptServer) -> io::Result<()> {
        self.keep.put(key(kind::SERVER, self.number, 0), &[server.to_text().as_bytes()])
    }

    /// The session's server has this id, and is at these addresses too.
    pub fn found_at(&self, server: ServerId, addresses: &[SocketAddr]) {
        let kept = self.keep.get(key(kind::SERVER, self.number, 0));
        let Some(kept) = kept.and_then(|text| KeptServer::parse(&text)) else { return };
        let now = KeptServer {
            server: Some(server),
            addresses: if addresses.is_empty() { kept.addresses.clone() } else { addresses.into() },
            ..kept.clone()
        };
        if now != kept
            && let Err(error) = self.put_server(&now)
        {
            tracing::debug!(%error, "where a server is was not kept");
        }
    }

    /// The session goes on with these terms, or begins.
    pub fn put_terms(&mut self, terms: &KeptTerms) {
        if self.given_up == Some(terms.session) {
            return;
        }
        let (ClientId(client), incarnation) = self.client;
        if self.session != Some(terms.session) {
            self.lost();
            (0..SLOTS_MAX as usize).for_each(|slot| self.words.set(1 + slot, 0));
        }
        let bytes = terms.encode(client, incarnation);
        match self.keep.put(key(kind::SESSION, self.number, 0), &[&bytes]) {
            Ok(()) => {
                self.words.set(0, terms.session.0);
                self.session = Some(terms.session);
            }
            Err(error) => self.give_up(terms.session, &error),
        }
    }

    /// A request is about to be sent.
    pub fn put_request(&mut self, request: &KeptRequest) {
        if self.session != Some(request.session) {
            return;
        }
        let put = request.encode().map_err(io::Error::other).and_then(|(head, payload)| {
            let parts: &[&[u8]] = if payload.is_empty() { &[&head] } else { &[&head, payload] };
            self.keep.put(key(kind::REQUEST, self.number, request.id.0), parts)
        });
        if let Err(error) = put {
            self.give_up(request.session, &error);
        }
    }

    /// A request is answered: its number is used up. With `answer`, the answer is kept until the
    /// receipt is dropped.
    pub fn land(
        &mut self,
        id: CallId,
        landing: &Landing,
        answer: Option<(&Result<Answer, Fault>, Option<BootVerifier>)>,
    ) -> Option<Receipt> {
        let receipt = answer.and_then(|(outcome, verifier)| self.put_answer(id, outcome, verifier));
        if let Some(session) = self.session {
            let place = self.number;
            let at = |chain| key(kind::CHAIN, place, chain);
            if let ChainLanding::Goes(chain) = &landing.chain
                && let Err(error) = self.keep.put(at(chain.number), &[&chain.encode(session)])
            {
                self.give_up(session, &error);
            }
            self.words.set(1 + landing.slot as usize, landing.number);
            if let ChainLanding::Over(chain) = landing.chain {
                self.keep.remove(at(chain));
            }
        }
        if receipt.is_none() {
            self.drop_request(id);
        }
        receipt
    }

    fn put_answer(
        &self,
        id: CallId,
        outcome: &Result<Answer, Fault>,
        verifier: Option<BootVerifier>,
    ) -> Option<Receipt> {
        let put = encode_outcome(outcome, verifier).map_err(io::Error::other);
        let put =
            put.and_then(|bytes| self.keep.put(key(kind::ANSWER, self.number, id.0), &[&bytes]));
        match put {
            Ok(()) => Some(self.receipt(id)),
            Err(error) => {
                tracing::debug!(%error, "an answer was not kept");
                None
            }
        }
    }

    /// The receipt of an answer that is kept, or of a lost request.
    pub fn receipt(&self, id: CallId) -> Receipt {
        let (keep, place) = (Arc::clone(&self.keep), self.number);
        Receipt { keep, place, call: id.0, left: false }
    }

    /// A request has no answer and will have none, and its caller knows.
    pub fn drop_request(&self, id: CallId) {
        self.keep.remove(key(kind::REQUEST, self.number, id.0));
    }

    /// There is no session to resume any more.
    pub fn lost(&mut self) {
        self.words.set(0, 0);
        self.session = None;
        keys(&self.keep, kind::CHAIN, self.number).iter().for_each(|key| self.keep.remove(*key));
    }

    fn give_up(&mut self, session: SessionId, error: &io::Error) {
        self.lost();
        if self.given_up.replace(session) != Some(session) {
            tracing::warn!(
                session = session.0,
                %error,
                consequence = "the session goes on, but ends with this process",
                "no room for what a successor of this process needs"
            );
        }
    }

    /// Removes everything.
    fn clear(self) {
        for kind in [kind::REQUEST, kind::ANSWER] {
            keys(&self.keep, kind, self.number).iter().for_each(|key| self.keep.remove(*key));
        }
        self.end();
    }

    /// Removes the session's records. Answers stay as long as their receipts.
    pub fn end(mut self) {
        self.lost();
        for kind in [kind::SESSION, kind::SERVER] {
            self.keep.remove(key(kind, self.number, 0));
        }
        let answers = keys(&self.keep, kind::ANSWER, self.number);
        for request in keys(&self.keep, kind::REQUEST, self.number) {
            if !answers.iter().any(|answer| answer.minor == request.minor) {
                self.keep.remove(request);
            }
        }
        self.words.end();
    }
}

impl KeptServer {
    fn to_text(&self) -> String {
        let KeptServer { client, endpoint, server, addresses } = self;
        json!({
            "client": format!("{:x}", client.0),
            "endpoint": endpoint.to_string(),
            "server": server.map(|server| format!("{:x}", server.0)),
            "addresses": addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>(),
        })
        .to_string()
    }

    fn parse(text: &[u8]) -> Option<KeptServer> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let number = |value: &Value| u128::from_str_radix(value.as_str()?, 16).ok();
        let addresses = value["addresses"].as_array()?.iter();
        Some(KeptServer {
            client: ClientId(number(&value["client"])?),
            endpoint: Endpoint::from_str(value["endpoint"].as_str()?).ok()?,
            server: match &value["server"] {
                Value::Null => None,
                server => Some(ServerId(number(server)?)),
            },
            addresses: addresses
                .map(|address| address.as_str()?.parse().ok())
                .collect::<Option<_>>()?,
        })
    }
}

/// Can a session of this client and incarnation be resumed?
pub(crate) fn has_session(keep: &Arc<Keep>, client: ClientId, incarnation: u64) -> bool {
    let of_client = servers(keep).into_iter().filter(|(_, kept)| kept.client == client);
    of_client.into_iter().any(|(place, _)| {
        read(keep, place, (client, incarnation)).is_ok_and(|legacy| legacy.session.is_some())
    })
}

/// The servers with which a predecessor of this client had sessions that are not resumed yet.
pub(crate) fn unclaimed(keep: &Arc<Keep>, client: ClientId) -> Vec<KeptServer> {
    let of_client = servers(keep).into_iter().filter(|(_, kept)| kept.client == client);
    of_client
        .filter(|(place, _)| keep.words(key(kind::SLOTS, *place, 0), WORDS).is_ok())
        .map(|(_, kept)| kept)
        .collect()
}

fn key(kind: u64, place: u64, minor: u64) -> Key {
    Key { kind, major: place, minor }
}

fn keys(keep: &Keep, kind: u64, place: u64) -> Vec<Key> {
    keep.keys(kind).into_iter().filter(|key| key.major == place).collect()
}

/// All places, with their servers.
fn servers(keep: &Keep) -> Vec<(u64, KeptServer)> {
    keep.all(kind::SERVER)
        .into_iter()
        .filter_map(|(key, text)| {
            let parsed = KeptServer::parse(&text);
            if parsed.is_none() {
                tracing::warn!(
                    consequence = "its session cannot be resumed",
                    "the record of a server is damaged"
                );
            }
            Some((key.major, parsed?))
        })
        .collect()
}

/// The state that is left in a place.
fn read(
    keep: &Arc<Keep>,
    place: u64,
    (client, incarnation): (ClientId, u64),
) -> Result<Legacy, LegacyError> {
    let words = keep.get(key(kind::SLOTS, place, 0)).unwrap_or_default();
    let words: Vec<u64> = words
        .chunks_exact(size_of::<u64>())
        .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
        .collect();
    if words.len() != WORDS {
        return Err(LegacyError::Damaged("the slots are missing"));
    }
    let mut session = None;
    if words[0] != 0 {
        let bytes = keep
            .get(key(kind::SESSION, place, 0))
            .ok_or(LegacyError::Damaged("the session is missing"))?;
        let (terms, owner, its) = KeptTerms::decode(&bytes)?;
        if terms.session.0 != words[0] || owner != client.0 {
            return Err(LegacyError::Damaged("the session is another one"));
        }
        let mut kept = KeptSession::new(terms);
        kept.landed = words[1..].to_vec();
        for key in keys(keep, kind::CHAIN, place) {
            let (chain, of) = KeptChain::decode(&keep.get(key).unwrap_or_default())?;
            if of == terms.session {
                kept.chains.push(chain);
            }
        }
        // The sessions of an earlier incarnation are over.
        session = Some(kept).filter(|_| its == incarnation);
    }
    let mut legacy = Legacy { session, ..Legacy::default() };
    for key in keys(keep, kind::REQUEST, place) {
        legacy.last_call = legacy.last_call.max(key.minor);
        let bytes = Bytes::from(keep.get(key).unwrap_or_default());
        let request = KeptRequest::decode(CallId(key.minor), &bytes)?;
        let of_session =
            legacy.session.as_ref().is_some_and(|kept| kept.terms.session == request.session);
        if let Some(kept) =
            legacy.session.as_mut().filter(|kept| kept.terms.session == request.session)
        {
            let landed = kept
                .landed
                .get_mut(request.slot as usize)
                .ok_or(LegacyError::Damaged("a slot that there is not"))?;
            let answered = |(number, at): (u64, u32)| {
                kept.chains.iter().any(|chain| chain.number == number && at < chain.answered)
            };
            if request.number > *landed && !request.chain.is_some_and(answered) {
                kept.requests.push(request);
                continue;
            }
            // The process may have been killed before it noted this.
            *landed = request.number.max(*landed);
        }
        let answer = keep.get(Key { kind: kind::ANSWER, ..key });
        if let Some(answer) = answer {
            let (outcome, verifier) = decode_outcome(&Bytes::from(answer))?;
            legacy.answered.push(Answered { request, outcome, verifier });
        } else if !of_session {
            legacy.lost.push(request);
        }
    }
    Ok(legacy)
}
