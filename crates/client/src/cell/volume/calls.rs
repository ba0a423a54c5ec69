//! Calls at the place of a volume, which are repeated where the volume is when they were refused or
//! given up (`volume.rs` has the model).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use types::{Call, Caller, Fault, ReplyAddress};

use super::super::inherit::reply_of;
use super::super::server_connection::ServerConnection;
use super::{PAUSE, RemoteVolume};
use crate::chain_link::ChainLink;
use crate::{CallError, Cancel, Remote, Reply};

/// How often a call is repeated that was refused as if the volume were not there. Some calls are
/// refused although it is: for the root of a volume by a name that it no longer has.
const AGAIN_MAX: u32 = 4;

/// Makes a call; says where its request was, if it has an error.
pub(super) type HowToCall = fn(
    &dyn Remote,
    &Caller,
    Call,
    Option<&Cancel>,
    &mut Option<ReplyAddress>,
) -> Result<Reply, CallError>;

/// A request that was sent, and was given up or refused.
#[derive(Clone, Copy)]
struct MadeRequest {
    origin: ReplyAddress,
    /// That of the volume where it was made.
    generation: u64,
}

impl RemoteVolume {
    /// Calls at the volume's place, until that answers.
    pub(super) fn call_there(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
        how: HowToCall,
    ) -> Result<Reply, CallError> {
        if !self.cell.has_others() {
            return how(&*self.here().remote, caller, call, cancel, &mut None);
        }
        let (mut again, mut made) = (0, None);
        loop {
            let (connection, gone, generation) = self.connection(cancel)?;
            let learnt =
                if self.has_copies() { self.learn_epoch(&connection, cancel) } else { Ok(()) };
            self.waiting.fetch_add(1, Ordering::AcqRel);
            let inherited = self.inherited(&connection, made, generation, cancel);
            let result = learnt.and_then(|()| match inherited {
                Ok(Some(reply)) => Ok(reply),
                Err(error) => Err(error),
                Ok(None) => either(&gone, cancel, |either| {
                    let mut at = None;
                    let call = call.clone();
                    let result = how(&*connection.remote, caller, call, Some(either), &mut at);
                    made = at.map(|origin| MadeRequest { origin, generation });
                    result
                }),
            });
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            match result {
                Err(error) if self.is_elsewhere(&error, &gone, cancel) && again < AGAIN_MAX => {
                    self.leave(&connection, &error, cancel)?;
                    again += u32::from(matches!(error, CallError::Fault(_)));
                }
                result => return result,
            }
        }
    }

    /// SB-5: the reply to a request that was made at the former server, if the volume that took
    /// over has its effect.
    fn inherited(
        &self,
        to: &ServerConnection,
        made: Option<MadeRequest>,
        generation: u64,
        cancel: Option<&Cancel>,
    ) -> Result<Option<Reply>, CallError> {
        match made.filter(|made| made.generation < generation) {
            Some(made) => reply_of(to, self.id, made.origin, cancel),
            None => Ok(None),
        }
    }

    /// Sends a chain; calls that were refused because the volume is no longer there are repeated at
    /// its new place. `claims`: it is a part of a reclaim, so it does not wait for that; it is
    /// repeated only after a takeover.
    pub(super) fn chain_there(
        &self,
        caller: &Caller,
        calls: &[Call],
        claims: bool,
        take: &mut dyn FnMut(usize, Result<Reply, CallError>),
    ) {
        let (mut done, mut link, mut again) = (0, ChainLink::default(), 0);
        let mut made: HashMap<usize, MadeRequest> = HashMap::new();
        loop {
            let now = || Ok(self.place_now(&self.place.lock()));
            let (connection, gone, generation) =
                match if claims { now() } else { self.connection(None) } {
                    Ok(found) => found,
                    Err(error) => {
                        return (done..calls.len()).for_each(|at| take(at, Err(error.clone())));
                    }
                };
            self.waiting.fetch_add(1, Ordering::AcqRel);
            let mut refused = None;
            // Up to the last member that the former server executed each is settled by itself.
            let replies = self.inherited_members(&connection, &made, generation);
            let settled = match &replies {
                Ok(replies) => replies.keys().max().map_or(done, |last| last + 1),
                Err(error) => {
                    refused = Some(error.clone());
                    done
                }
            };
            let mut replies = replies.unwrap_or_default();
            while done < calls.len() && refused.is_none() {
                let inherited = replies.remove(&done).map(Ok);
                if inherited.is_none() && self.has_copies() {
                    refused = self.learn_epoch(&connection, None).err();
                }
                let end = if done < settled { done + 1 } else { calls.len() };
                let mut rest = calls[done..end].to_vec();
                link.put_in(&mut rest);
                let before = done;
                let mut sieve =
                    |at: usize, result: Result<Reply, CallError>, origin: Option<ReplyAddress>| {
                        if let Some(origin) = origin {
                            made.insert(before + at, MadeRequest { origin, generation });
                        }
                        match result {
                            _ if refused.is_some() => {}
                            Err(error)
                                if again < AGAIN_MAX
                                    && (!claims || error.fault().is_none())
                                    && self.is_elsewhere(&error, &gone, None) =>
                            {
                                refused = Some(error);
                            }
                            result => {
                                debug_assert_eq!(before + at, done, "DA-4: one result for each");
                                link.follow(&result);
                                done = before + at + 1;
                                take(before + at, result);
                            }
                        }
                    };
                match inherited {
                    Some(reply) => sieve(0, reply, None),
                    None => connection.remote.chain_each_at(caller, rest, &gone, &mut sieve),
                }
                if link.failed {
                    let aborted = || Err(CallError::Fault(Fault::ChainAborted));
                    (done..calls.len()).for_each(|at| take(at, aborted()));
                    done = calls.len();
                }
            }
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            let Some(error) = refused else { return };
            again += u32::from(matches!(error, CallError::Fault(_)));
            let left = if claims {
                self.await_other_place(&connection, &error)
            } else {
                self.leave(&connection, &error, None)
            };
            if let Err(error) = left {
                return (done..calls.len()).for_each(|at| take(at, Err(error.clone())));
            }
        }
    }

    /// A part of a reclaim does not wait for its end, but goes where the volume is from then on.
    fn await_other_place(
        &self,
        from: &Arc<ServerConnection>,
        error: &CallError,
    ) -> Result<(), CallError> {
        loop {
            let place = self.place.lock();
            if !Arc::ptr_eq(&place.connection, from) {
                return Ok(());
            }
            if !place.searching {
                return Err(error.clone());
            }
            drop(place);
            std::thread::sleep(PAUSE);
        }
    }

    /// SB-5: the replies to the members of a chain that the former server executed.
    fn inherited_members(
        &self,
        to: &ServerConnection,
        made: &HashMap<usize, MadeRequest>,
        generation: u64,
    ) -> Result<HashMap<usize, Reply>, CallError> {
        let mut replies = HashMap::new();
        for (at, one) in made {
            if let Some(reply) = self.inherited(to, Some(*one), generation, None)? {
                replies.insert(*at, reply);
            }
        }
        Ok(replies)
    }
}

/// Runs with a [`Cancel`] that fires when either of these does.
fn either<R>(gone: &Cancel, cancel: Option<&Cancel>, run: impl FnOnce(&Cancel) -> R) -> R {
    let Some(cancel) = cancel else { return run(gone) };
    let both = cancel.beside();
    let _listening = [gone, cancel].map(|one| {
        let both = both.clone();
        one.on_cancel(move || both.cancel())
    });
    run(&both)
}

/// Calls of a reclaim after a server's restart go to the volume's place, though others wait.
pub(super) fn claims(calls: &[Call]) -> bool {
    matches!(calls.first(), Some(Call::Delegated { .. }))
}
