//! Access lists and the names in them.
//!
//! AFS's calls carry lists with names, Rialto's with numbers: the databases of the cell tell one
//! from the other. Numbers of the groups that each cell has are the same in both.

use std::ops::Deref;

use afs3::files::{FilesAnswer, FilesCall};
use afs3::rights::{AclLine, AclText, AfsRights};
use afs3::structs::AfsOpaque;
use bytes::Bytes;
use client::CallError;
use guard::{Acl, Rights};
use types::{Answer, Fault, Fid, PrincipalId, PtsCall};

use crate::context::{AfsCall, Answered};
use crate::statuses::{foreign, parent};

/// The calls about access lists.
pub(crate) struct ListCalls<'c>(pub &'c AfsCall<'c>);

impl<'c> Deref for ListCalls<'c> {
    type Target = AfsCall<'c>;

    fn deref(&self) -> &AfsCall<'c> {
        self.0
    }
}

impl ListCalls<'_> {
    /// A question about users and groups.
    pub(crate) fn principals(&self, call: &PtsCall) -> Result<Answered, CallError> {
        let databases = self.cell.locations.databases();
        Ok(Answered::plain(databases.principals(self.caller, call, self.cancel)?))
    }

    /// The answer to a question for so many principals, which has as many.
    fn asked(&self, call: &PtsCall, count: usize) -> Result<Vec<(PrincipalId, String)>, CallError> {
        match self.principals(call)?.answer {
            Answer::Names { names, .. } if names.len() == count => Ok(names),
            _ => Err(CallError::Unreadable),
        }
    }

    /// The names of these numbers; empty of those without.
    fn names(&self, ids: &[PrincipalId]) -> Result<Vec<String>, CallError> {
        let names = self.asked(&PtsCall::Names { ids: ids.to_vec() }, ids.len())?;
        Ok(names.into_iter().map(|(_, name)| name).collect())
    }

    /// The numbers of these names; [`PrincipalId::NONE`] of those without.
    fn numbers(&self, names: &[String]) -> Result<Vec<PrincipalId>, CallError> {
        let ids = self.asked(&PtsCall::Numbers { names: names.to_vec() }, names.len())?;
        Ok(ids.into_iter().map(|(id, _)| id).collect())
    }

    /// The list of a directory, or of a file's directory.
    fn fetch_list(&self, fid: Fid) -> Result<Acl, CallError> {
        let call = FilesCall::FetchACL { fid: foreign(fid)? };
        let (answer, ..) = self.ask(fid.volume, &call)?;
        let FilesAnswer::FetchACL { acl, .. } = answer else { return Err(CallError::Unreadable) };
        let text = AclText::parse(acl.as_bytes()).map_err(|_| CallError::Unreadable)?;
        let lines = || text.positive.iter().chain(&text.negative);
        let names = lines().map(|line| String::from_utf8_lossy(&line.name).into_owned());
        let names: Vec<String> = names.collect();
        let ids = self.numbers(&names)?;
        let mut list = Acl::new();
        let denied = text.positive.len();
        for (at, (line, (id, name))) in lines().zip(ids.into_iter().zip(&names)).enumerate() {
            // The name of a principal that is gone is its number.
            let gone = || name.parse().map(PrincipalId).unwrap_or(PrincipalId::NONE);
            let who = if id == PrincipalId::NONE { gone() } else { id };
            if who != PrincipalId::NONE && !list.set(who, Rights(line.rights.0), at >= denied) {
                return Err(Fault::TooBig.into());
            }
        }
        Ok(list)
    }

    pub(crate) fn get_acl(&self, fid: Fid) -> Result<Answered, CallError> {
        let told = self.status(fid)?;
        let of = if fid.vnode.is_directory() { fid } else { parent(fid, &told.status) };
        let list = self.fetch_list(of)?.encode().into();
        Ok(Answered::plain(Answer::Acl { of, list }))
    }

    /// A file has no list of its own, and a directory always has one.
    pub(crate) fn set_acl(
        &self,
        fid: Fid,
        list: Option<&Bytes>,
        instead_of: Option<[u8; 32]>,
    ) -> Result<Answered, CallError> {
        let list = list.filter(|_| fid.vnode.is_directory()).ok_or(Fault::Unsupported)?;
        let list = Acl::decode(list).map_err(|_| Fault::Invalid)?;
        if instead_of.is_some_and(|seen| self.fetch_list(fid).map_or(true, |now| now.sum() != seen))
        {
            return Err(Fault::Conflict.into());
        }
        let entries = || list.positive().iter().chain(list.negative());
        let ids: Vec<PrincipalId> = entries().map(|entry| entry.who).collect();
        let names = self.names(&ids)?;
        let each = entries().zip(names).map(|(entry, name)| {
            let name = if name.is_empty() { entry.who.0.to_string() } else { name };
            AclLine { name: name.into_bytes(), rights: AfsRights(entry.rights.0) }
        });
        let mut positive: Vec<AclLine> = each.collect();
        let negative = positive.split_off(list.positive().len());
        let text = AclText { positive, negative }.print().map_err(|_| Fault::TooBig)?;
        let acl = AfsOpaque::new(text).map_err(|_| Fault::TooBig)?;
        let place = foreign(fid)?;
        let call = FilesCall::StoreACL { fid: place, acl: acl.clone() };
        let answer = match self.change(fid.volume, &call) {
            // A server from before the call.
            Err(CallError::Fault(Fault::Unsupported)) => {
                self.change(fid.volume, &FilesCall::OldStoreACL { fid: place, acl })?.0
            }
            answer => answer?.0,
        };
        let (FilesAnswer::StoreACL { status, .. } | FilesAnswer::OldStoreACL { status, .. }) =
            answer
        else {
            return Err(CallError::Unreadable);
        };
        self.changed([(fid, status)]);
        // The rights of all users may be others now. The server does not call back its author.
        self.break_promise(fid);
        Ok(Answered::plain(Answer::Done))
    }
}
