//! Where the verbs ask: the server of the cell's directory, which has the database or asks who has it.

use std::collections::HashMap;

use client::{CallError, Endpoint};
use local::ask::Asking;
use local::cell::Where;
use local::failure::Failure;
use types::limits::PRINCIPALS_MAX;
use types::{Answer, Call, Caller, Fault, Principal, PrincipalId, PtsCall, Who};

use super::Common;

/// Before the first number.
pub const FIRST: PrincipalId = PrincipalId(i32::MIN);
const AT_ONCE: u32 = PRINCIPALS_MAX as u32;

/// See the head of the file.
pub struct Desk {
    pub common: Common,
    asking: Asking,
    caller: Caller,
}

impl Desk {
    pub fn open(common: Common) -> Result<Desk, Failure> {
        let cell = Where { dir: common.dir.clone(), clear: false }.cell()?;
        if let Some(name) = common.cell.as_ref().filter(|name| **name != cell.config.name) {
            let why = format!("{} holds the cell {}", cell.dir().display(), cell.config.name);
            return Err(Failure::new(format!("finding the cell {name}"), why).mend("name its directory with --dir"));
        }
        let asking = Asking::connect(Endpoint::Unix(cell.socket()))?;
        let caller = match common.as_uid {
            Some(uid) => Caller { uid, gid: uid, groups: None, who: Who::NAMED },
            None => Caller::ROOT,
        };
        Ok(Desk { common, asking, caller })
    }

    /// Asks, or changes something. `doing`: what is tried, for people.
    pub fn ask(&self, doing: &str, call: PtsCall) -> Result<Answer, Failure> {
        self.try_ask(call).map_err(|error| refused(doing, &error))
    }

    fn try_ask(&self, call: PtsCall) -> Result<Answer, CallError> {
        self.asking.call_as(&self.caller, Call::Pts { on_behalf: None, call: Box::new(call) })
    }

    /// Does it for each; with `-force` for those behind one that was refused too.
    pub fn each<T>(&self, all: Vec<T>, mut act: impl FnMut(T) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut first = None;
        for one in all {
            match act(one) {
                Ok(()) => {}
                Err(failure) if self.common.force => {
                    eprintln!("rialto pts: {failure}");
                    first.get_or_insert(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// The number of a name; a number stands for itself.
    pub fn id(&self, name: &str) -> Result<PrincipalId, Failure> {
        if let Ok(number) = name.parse::<i32>() {
            return Ok(PrincipalId(number));
        }
        let doing = format!("finding {name}");
        match self.ask(&doing, PtsCall::Numbers { names: vec![name.to_owned()] })? {
            Answer::Names { names, .. } => match names.first() {
                Some((id, _)) if *id != PrincipalId::NONE => Ok(*id),
                _ => Err(refused(&doing, &CallError::Fault(Fault::NoPrincipal))),
            },
            _ => Err(odd(&doing)),
        }
    }

    /// What numbers are called; a number that nobody has is its own name.
    pub fn names(&self, ids: impl IntoIterator<Item = PrincipalId>) -> Result<HashMap<PrincipalId, String>, Failure> {
        let doing = "finding names";
        let mut ids: Vec<PrincipalId> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        let mut known = HashMap::new();
        for some in ids.chunks(PRINCIPALS_MAX) {
            let Answer::Names { names, .. } = self.ask(doing, PtsCall::Names { ids: some.to_vec() })? else {
                return Err(odd(doing));
            };
            let called = |(id, name): (PrincipalId, String)| (id, if name.is_empty() { id.to_string() } else { name });
            known.extend(names.into_iter().map(called));
        }
        Ok(known)
    }

    /// One record, with how many members it has, or groups it is in.
    pub fn examine(&self, name: &str) -> Result<(Principal, u32), Failure> {
        let doing = format!("examining {name}");
        match self.ask(&doing, PtsCall::Examine { id: self.id(name)? })? {
            Answer::Principals { mut principals, .. } => principals.pop().ok_or_else(|| odd(&doing)),
            _ => Err(odd(&doing)),
        }
    }

    /// All of a list that comes in parts.
    pub fn listed(
        &self,
        doing: &str,
        part: impl Fn(PrincipalId, u32) -> PtsCall,
    ) -> Result<Vec<(PrincipalId, String)>, Failure> {
        let mut all: Vec<(PrincipalId, String)> = Vec::new();
        loop {
            let after = all.last().map_or(FIRST, |(id, _)| *id);
            let Answer::Names { names, end } = self.ask(doing, part(after, AT_ONCE))? else { return Err(odd(doing)) };
            let empty = names.is_empty();
            all.extend(names);
            if end || empty {
                return Ok(all);
            }
        }
    }

    /// Every record.
    pub fn entries(&self) -> Result<Vec<Principal>, Failure> {
        let doing = "listing users and groups";
        let mut all: Vec<Principal> = Vec::new();
        loop {
            let after = all.last().map_or(FIRST, |one| one.id);
            let Answer::Principals { principals, end } = self.ask(doing, PtsCall::Entries { after, max: AT_ONCE })?
            else {
                return Err(odd(doing));
            };
            let empty = principals.is_empty();
            all.extend(principals.into_iter().map(|(one, _)| one));
            if end || empty {
                return Ok(all);
            }
        }
    }
}

pub fn odd(doing: &str) -> Failure {
    Failure::new(doing, "the server answered something else").mend("see whether it has the same version")
}

fn refused(doing: &str, error: &CallError) -> Failure {
    let failure = Failure::new(doing, error);
    match error.fault() {
        Some(Fault::NotPermitted) => failure.mend("its owner may, and members of system:administrators"),
        Some(Fault::NoPrincipal) => failure.mend("'pts listentries -users -groups' has all of them; a new user NAME@REALM needs the group system:authuser@REALM"),
        Some(Fault::QuotaExceeded) => failure.mend("an administrator gives more with 'pts setfields -groupquota'"),
        Some(Fault::Exists) => failure.mend("'pts examine' says who has it, 'pts membership' who is in it"),
        Some(Fault::Invalid) => failure.mend(
            "users have names without a colon, groups of users OWNER:NAME, and no name is a number; numbers of users are above 0, of groups below; \
             the realm in NAME@REALM and system:authuser@REALM has small letters, and that group has the users of the realm alone",
        ),
        Some(Fault::CellAway) => {
            failure.mend("see whether the server that has the database runs: 'database' in cell.toml names it")
        }
        _ => failure,
    }
}
