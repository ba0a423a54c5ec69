//! The session of the verbs.

use std::collections::HashMap;

use client::CallError;
use local::failure::Failure;
use types::limits::PRINCIPALS_MAX;
use types::{Answer, Fault, Principal, PrincipalId, PtsCall};

use crate::commands::cell_client::{CELL_AWAY, CellClient, CellOptions, odd};

/// The position before the first number.
pub const FIRST: PrincipalId = PrincipalId(i32::MIN);
const AT_ONCE: u32 = PRINCIPALS_MAX as u32;

/// A session for calls about principals.
pub struct PtsClient {
    pub json: bool,
    force: bool,
    cell: CellClient,
}

impl PtsClient {
    pub(crate) fn open(options: &CellOptions, force: bool) -> Result<PtsClient, Failure> {
        Ok(PtsClient { json: options.json, force, cell: CellClient::open(options, refused)? })
    }

    /// Sends a query or a change. `doing`: the action, for people.
    pub(crate) fn ask(&self, doing: &str, call: PtsCall) -> Result<Answer, Failure> {
        self.cell.ask_pts(doing, call)
    }

    /// Runs `one` for each; with `-force` continues after a refusal.
    ///
    /// # Errors
    /// The first refusal without `-force`; with it, that some were refused.
    pub fn each<T>(
        &self,
        all: Vec<T>,
        mut act: impl FnMut(T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut first = None;
        for one in all {
            match act(one) {
                Ok(()) => {}
                Err(failure) if self.force => {
                    eprintln!("rialto pts: {failure}");
                    first.get_or_insert(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Returns the number of a name; a number means itself.
    pub(crate) fn id(&self, name: &str) -> Result<PrincipalId, Failure> {
        self.cell.principal(name)
    }

    /// Returns the names of numbers; an unused number is its own name.
    pub(crate) fn names(
        &self,
        ids: impl IntoIterator<Item = PrincipalId>,
    ) -> Result<HashMap<PrincipalId, String>, Failure> {
        let called = |(id, name): (PrincipalId, String)| {
            (id, if name.is_empty() { id.to_string() } else { name })
        };
        Ok(self.cell.names(ids.into_iter().collect())?.into_iter().map(called).collect())
    }

    /// Returns a record, with the count of its members, or of its groups.
    pub(crate) fn examine(&self, name: &str) -> Result<(Principal, u32), Failure> {
        let doing = format!("examining {name}");
        match self.ask(&doing, PtsCall::Examine { id: self.id(name)? })? {
            Answer::Principals { mut principals, .. } => {
                principals.pop().ok_or_else(|| odd(&doing))
            }
            _ => Err(odd(&doing)),
        }
    }

    /// Returns all of a list that the server sends in parts.
    pub(crate) fn listed(
        &self,
        doing: &str,
        part: impl Fn(PrincipalId, u32) -> PtsCall,
    ) -> Result<Vec<(PrincipalId, String)>, Failure> {
        let mut all: Vec<(PrincipalId, String)> = Vec::new();
        loop {
            let after = all.last().map_or(FIRST, |(id, _)| *id);
            let Answer::Names { names, end } = self.ask(doing, part(after, AT_ONCE))? else {
                return Err(odd(doing));
            };
            let empty = names.is_empty();
            all.extend(names);
            if end || empty {
                return Ok(all);
            }
        }
    }

    /// Returns every record.
    pub(crate) fn entries(&self) -> Result<Vec<Principal>, Failure> {
        let doing = "listing users and groups";
        let mut all: Vec<Principal> = Vec::new();
        loop {
            let after = all.last().map_or(FIRST, |one| one.id);
            let Answer::Principals { principals, end } =
                self.ask(doing, PtsCall::Entries { after, max: AT_ONCE })?
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

fn refused(doing: &str, error: &CallError) -> Failure {
    let mend = match error.fault() {
        Some(Fault::NotPermitted) => "its owner may, and members of system:administrators",
        Some(Fault::NoPrincipal) => {
            "'pts listentries -users -groups' has all of them; a new user NAME@REALM needs the \
                group system:authuser@REALM"
        }
        Some(Fault::QuotaExceeded) => {
            "an administrator gives more with 'pts setfields -groupquota'"
        }
        Some(Fault::Exists) => "'pts examine' shows its owner, 'pts membership' its members",
        Some(Fault::Invalid) => {
            "users have names without a colon, groups of users OWNER:NAME, and no name is a \
                number; numbers of users are above 0, of groups below; the realm in NAME@REALM and \
                system:authuser@REALM has small letters, and that group has the users of the realm \
                alone"
        }
        Some(Fault::CellAway) => CELL_AWAY,
        _ => return Failure::new(doing, error),
    };
    Failure::new(doing, error).mend(mend)
}
