//! The replies that a standby which took over knows from the former server
//! (`docs/spec/standby.md`, *Takeover*).

use std::collections::HashMap;

use types::{
    Answer, Call, Fault, Fid, Inherited, ReplyAddress, ServerId, SessionId, VolumeCall,
    VolumeGroup, VolumeId,
};

use super::server_connection::ServerConnection;
use crate::{CallError, Cancel, DoneChange, Reply};

/// The knowledge of the changes that the former server acknowledged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heritage {
    /// The new server knows nothing of the former one's replies.
    Unknown,
    /// It has them all.
    Whole,
    /// Those of these files are missing.
    Lacks(Vec<Fid>),
}

/// Whether the records say that a standby took over, and not a released copy: it was one, or the
/// former server is its standby now, or one took over and gave the volume back.
pub(crate) fn was_standby(
    before: Option<&VolumeGroup>,
    now: &VolumeGroup,
    from: Option<ServerId>,
    to: ServerId,
) -> bool {
    let is = |group: &VolumeGroup, server| group.standbys().any(|site| site.server == server);
    let came_back = from == Some(to) && before.is_some_and(|group| group.standbys().count() > 0);
    before.is_some_and(|group| is(group, to)) || from.is_some_and(|from| is(now, from)) || came_back
}

/// The reply to a request that the former server executed, if its effect came here.
///
/// # Errors
/// The new server does not answer; `NoVolume` or `Offline` if it does not have the volume (any
/// more): then another one may know the reply.
pub(crate) fn reply_of(
    to: &ServerConnection,
    id: VolumeId,
    origin: ReplyAddress,
    cancel: Option<&Cancel>,
) -> Result<Option<Reply>, CallError> {
    let (known, verifier) = match ask(to, id, origin, cancel) {
        Ok(known) => known,
        Err(error @ CallError::Fault(Fault::NoVolume | Fault::Offline)) => return Err(error),
        // It keeps no replies: as if the request had not been executed.
        Err(CallError::Fault(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Without bytes only the number is known: the request changed nothing.
    if known.origin != origin || known.answer.is_empty() {
        return Ok(None);
    }
    match dafs::decode_answer_record(&known.answer) {
        // They come with descriptors, and change nothing by themselves.
        Ok(Answer::Body { .. } | Answer::Blank(_)) => Ok(None),
        Ok(answer) => Ok(Some(Reply { answer, body: None, verifier })),
        Err(error) => {
            tracing::warn!(%error, "a reply of the former server cannot be read");
            Err(CallError::Unreadable)
        }
    }
}

fn ask(
    to: &ServerConnection,
    id: VolumeId,
    origin: ReplyAddress,
    cancel: Option<&Cancel>,
) -> Result<(Inherited, Option<types::BootVerifier>), CallError> {
    let call = Call::Volume(VolumeCall::Inherit { id, origin });
    let reply = to.ask_reply(call, cancel)?;
    let Answer::Inherited(known) = reply.answer else {
        return Err(CallError::Fault(Fault::Invalid));
    };
    let same = (known.origin.session, known.origin.slot) == (origin.session, origin.slot);
    // A reply of another session is another client's.
    let known = if same || known.origin.request == 0 { known } else { none(origin) };
    Ok((known, reply.verifier))
}

fn none(origin: ReplyAddress) -> Inherited {
    Inherited { origin: ReplyAddress { request: 0, ..origin }, answer: bytes::Bytes::new() }
}

/// Compares the acknowledged changes with the last requests that the new server knows: one question
/// for each slot.
///
/// It knows the last request of each slot when the standby began, from before its base or after
/// it: a slot of which it knows nothing was first used later. A change that may have changed
/// nothing has no record at its server, so it alone shows nothing.
pub(crate) fn compare(to: &ServerConnection, id: VolumeId, changes: &[DoneChange]) -> Heritage {
    let mut known: HashMap<(SessionId, u32), u64> = HashMap::new();
    for DoneChange { origin, .. } in changes {
        let slot = (origin.session, origin.slot);
        if known.contains_key(&slot) {
            continue;
        }
        match ask(to, id, *origin, None) {
            Ok((seen, _)) => drop(known.insert(slot, seen.origin.request)),
            Err(error) => {
                tracing::debug!(%error, volume = id.0, "the new server knows no replies");
                return Heritage::Unknown;
            }
        }
    }
    let lacks =
        |done: &&DoneChange| done.origin.request > known[&(done.origin.session, done.origin.slot)];
    let missing: Vec<&DoneChange> = changes.iter().filter(lacks).collect();
    if missing.iter().any(|done| done.is_certain) {
        let mut fids: Vec<Fid> = missing.iter().map(|done| done.fid).collect();
        fids.sort_unstable();
        fids.dedup();
        Heritage::Lacks(fids)
    } else if known.values().any(|request| *request != 0) {
        Heritage::Whole
    } else {
        Heritage::Unknown
    }
}

/// Whether the server knows of replies of former servers at all.
pub(crate) fn knows_replies(to: &ServerConnection, id: VolumeId) -> bool {
    let none = ReplyAddress { session: SessionId(0), slot: 0, request: 0 };
    ask(to, id, none, None).is_ok()
}

/// Names the files of which acknowledged changes are missing.
pub(crate) fn report(id: VolumeId, name: &str, fids: &[Fid]) {
    const NAMED_MAX: usize = 100;
    let named: Vec<String> = fids.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    tracing::error!(
        volume = id.0,
        %name,
        files = fids.len(),
        fids = named.join(" "),
        consequence = "the next sync of them fails once",
        "the standby that took over lacks changes that were acknowledged"
    );
}
