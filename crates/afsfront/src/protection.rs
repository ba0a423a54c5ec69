//! PR, the protection service: the cell's users and groups as AFS's clients and tools see them.
//!
//! Numbers, names and privacy flags are AFS's here too, so a call is mostly one of ours. The
//! services decide which caller may see and change what.

use afs3::protection::{
    ANONYMOUS, PrEntry, PrIds, PrName, PrNames, ProtectionAnswer, ProtectionCall, fields_mask,
};
use afs3::xdr::{Chars, XdrList};
use types::{
    Answer, Call, Fault, NewPrincipal, Principal, PrincipalChange, PrincipalId, PrincipalKind,
    Privacy, PtsCall, WhichPrincipal,
};

use crate::{Refusal, Services};

/// Principals of one question to the cell.
const AT_ONCE: u32 = 1000;
/// `NewEntry` makes a user, and a group.
const USER_FLAG: i32 = 0;
const GROUP_FLAG: i32 = 2;
/// `ListEntries` lists users, and groups.
const LIST_USERS: i32 = 1;
const LIST_GROUPS: i32 = 2;
/// Any number of groups, as AFS writes it.
const UNLIMITED: i32 = -1;

/// Codes of the protection service. Source: OpenAFS `src/ptserver/pterror.et`.
const PR: i32 = 267_264;
const EXISTS: Refusal = Refusal(PR);
const ID_EXISTS: Refusal = Refusal(PR + 1);
const NO_NUMBERS: Refusal = Refusal(PR + 2);
const NO_ENTRY: Refusal = Refusal(PR + 4);
const NOT_PERMITTED: Refusal = Refusal(PR + 5);
const NOT_GROUP: Refusal = Refusal(PR + 6);
const BAD_NAME: Refusal = Refusal(PR + 8);
const BAD_ARGUMENT: Refusal = Refusal(PR + 9);
const INCONSISTENT: Refusal = Refusal(PR + 13);
const TOO_MANY: Refusal = Refusal(PR + 15);
const NAME_TOO_LONG: Refusal = Refusal(PR + 18);

/// The protection service.
pub struct ProtectionService;

/// One call.
struct PtsWay<'a>(&'a dyn Services);

impl ProtectionService {
    /// Answers a call.
    ///
    /// # Errors
    /// The code with which the call ends.
    pub fn serve(
        &self,
        services: &dyn Services,
        call: ProtectionCall,
    ) -> Result<ProtectionAnswer, Refusal> {
        let at = PtsWay(services);
        match call {
            ProtectionCall::NameToID { names } => {
                Ok(ProtectionAnswer::NameToID { ids: at.numbers_of(&names)? })
            }
            ProtectionCall::IDToName { ids } => {
                Ok(ProtectionAnswer::IDToName { names: at.names_of(&ids)? })
            }
            ProtectionCall::NewEntry { flag, .. } if flag != USER_FLAG && flag != GROUP_FLAG => {
                Err(BAD_ARGUMENT)
            }
            ProtectionCall::NewEntry { name, flag, owner } => {
                let id = at.create(&name, flag == GROUP_FLAG, None, owner)?;
                Ok(ProtectionAnswer::NewEntry { id })
            }
            ProtectionCall::INewEntry { name, id, owner } => {
                at.create(&name, id < 0, Some(id), owner)?;
                Ok(ProtectionAnswer::INewEntry {})
            }
            ProtectionCall::Delete { id } => {
                at.change(PtsCall::Delete { id: PrincipalId(id) })?;
                Ok(ProtectionAnswer::Delete {})
            }
            ProtectionCall::AddToGroup { user, group } => {
                let (group, member) = at.group_and_member(group, user)?;
                at.change(PtsCall::Join { group, member }).map_err(|refusal| match refusal {
                    BAD_ARGUMENT if group == member => INCONSISTENT,
                    // The members of groups such as `system:anyuser` are nobody's to choose.
                    BAD_ARGUMENT => NOT_PERMITTED,
                    refusal => refusal,
                })?;
                Ok(ProtectionAnswer::AddToGroup {})
            }
            ProtectionCall::RemoveFromGroup { user, group } => {
                let (group, member) = at.group_and_member(group, user)?;
                at.change(PtsCall::Leave { group, member })?;
                Ok(ProtectionAnswer::RemoveFromGroup {})
            }
            ProtectionCall::ListMax {} => {
                let [user, group] = at.names(PtsCall::Max)?[..] else { return Err(Refusal::IO) };
                Ok(ProtectionAnswer::ListMax { user: user.0, group: group.0 })
            }
            ProtectionCall::SetMax { id, group_flag } => {
                let of = |is: bool| if is { PrincipalId(id) } else { PrincipalId::NONE };
                let is_group = group_flag & GROUP_FLAG != 0;
                at.change(PtsCall::SetMax { user: of(!is_group), group: of(is_group) })?;
                Ok(ProtectionAnswer::SetMax {})
            }
            ProtectionCall::ListEntry { id } => {
                let (principal, count) = at.examine(id)?;
                Ok(ProtectionAnswer::ListEntry { entry: entry(&principal, count)? })
            }
            ProtectionCall::ChangeEntry { id, name, owner, new_id } => {
                at.change_entry(id, &name, owner, new_id)?;
                Ok(ProtectionAnswer::ChangeEntry {})
            }
            ProtectionCall::ListElements { id } => {
                let ids = at.members(id, id > 0)?;
                Ok(ProtectionAnswer::ListElements { ids: listed(ids)?, over: 0 })
            }
            ProtectionCall::IsAMemberOf { user, group } => {
                let flag = i32::from(at.is_member(user, group)?);
                Ok(ProtectionAnswer::IsAMemberOf { flag })
            }
            ProtectionCall::SetFieldsEntry { id, mask, flags, group_quota, .. } => {
                at.set_fields(id, mask, flags, group_quota)?;
                Ok(ProtectionAnswer::SetFieldsEntry {})
            }
            ProtectionCall::ListOwned { id, .. } => {
                let ids = at.owned(id)?;
                Ok(ProtectionAnswer::ListOwned { ids: listed(ids)?, last: 0 })
            }
            ProtectionCall::GetCPS { id } => {
                let ids = listed(at.cps(id)?)?;
                Ok(ProtectionAnswer::GetCPS { ids, over: 0 })
            }
            // Groups of hosts are judged where the rights are.
            ProtectionCall::GetCPS2 { id, .. } => {
                let ids = listed(at.cps(id)?)?;
                Ok(ProtectionAnswer::GetCPS2 { ids, over: 0 })
            }
            ProtectionCall::GetHostCPS { .. } => {
                Ok(ProtectionAnswer::GetHostCPS { ids: PrIds::default(), over: 0 })
            }
            ProtectionCall::ListEntries { flags, start } => at.list(flags, start),
            ProtectionCall::ListSuperGroups { id } => {
                // They are the groups that a group is in; `ListElements` has those of a user.
                let all = at.members(id, true)?;
                let ids = if PrincipalId(id).is_group() { all } else { Vec::new() };
                Ok(ProtectionAnswer::ListSuperGroups { ids: listed(ids)?, over: 0 })
            }
            // They tell of the files of AFS's own database.
            ProtectionCall::WhereIsIt { .. }
            | ProtectionCall::DumpEntry { .. }
            | ProtectionCall::UpdateEntry { .. } => Err(Refusal::UNKNOWN),
        }
    }
}

/// The code of a refusal, for the protection service.
fn refused(fault: Fault) -> Refusal {
    match fault {
        Fault::NoPrincipal | Fault::NotFound => NO_ENTRY,
        Fault::NotPermitted | Fault::AccessDenied | Fault::Fenced => NOT_PERMITTED,
        Fault::Exists => ID_EXISTS,
        Fault::Invalid => BAD_ARGUMENT,
        Fault::NameTooLong => NAME_TOO_LONG,
        Fault::QuotaExceeded => TOO_MANY,
        Fault::NoSpace => NO_NUMBERS,
        other => other.into(),
    }
}

/// The code of a refusal that is about a name.
fn refused_name(refusal: Refusal) -> Refusal {
    match refusal {
        BAD_ARGUMENT | NAME_TOO_LONG => BAD_NAME,
        ID_EXISTS => EXISTS,
        refusal => refusal,
    }
}

fn listed(ids: Vec<i32>) -> Result<PrIds, Refusal> {
    PrIds::new(ids).map_err(|_| TOO_MANY)
}

fn text_of(name: &[u8]) -> Result<String, Refusal> {
    let text = std::str::from_utf8(name).map_err(|_| BAD_NAME)?;
    if text.is_empty() { Err(BAD_NAME) } else { Ok(text.to_lowercase()) }
}

fn chars(name: &str) -> Result<Chars<64>, Refusal> {
    Chars::new(name.as_bytes()).map_err(|_| NAME_TOO_LONG)
}

fn entry(principal: &Principal, count: u32) -> Result<PrEntry, Refusal> {
    let group_quota = match principal.group_quota {
        u32::MAX => UNLIMITED,
        quota => i32::try_from(quota).unwrap_or(i32::MAX),
    };
    Ok(PrEntry {
        flags: principal.privacy.0.into(),
        id: principal.id.0,
        owner: principal.owner.0,
        creator: principal.creator.0,
        group_quota,
        user_quota: 0,
        count: i32::try_from(count).unwrap_or(i32::MAX),
        reserved: [0; 5],
        name: chars(&principal.name)?,
    })
}

impl PtsWay<'_> {
    fn ask(&self, call: PtsCall) -> Result<Answer, Refusal> {
        let call = Call::Pts { on_behalf: None, call: Box::new(call) };
        self.0.ask(call).map_err(refused)
    }

    fn change(&self, call: PtsCall) -> Result<(), Refusal> {
        self.ask(call).map(drop)
    }

    fn names(&self, call: PtsCall) -> Result<Vec<PrincipalId>, Refusal> {
        match self.ask(call)? {
            Answer::Names { names, .. } => Ok(names.into_iter().map(|(id, _)| id).collect()),
            _ => Err(Refusal::IO),
        }
    }

    /// All answers of a call that lists, part by part.
    fn all(&self, part: impl Fn(PrincipalId) -> PtsCall) -> Result<Vec<i32>, Refusal> {
        let mut all: Vec<i32> = Vec::new();
        loop {
            let after = PrincipalId(all.last().copied().unwrap_or(i32::MIN));
            let Answer::Names { names, end } = self.ask(part(after))? else {
                return Err(Refusal::IO);
            };
            let is_over = end || names.is_empty();
            all.extend(names.into_iter().map(|(id, _)| id.0));
            if is_over {
                return Ok(all);
            }
        }
    }

    fn members(&self, id: i32, groups: bool) -> Result<Vec<i32>, Refusal> {
        let (id, max) = (PrincipalId(id), AT_ONCE);
        self.all(|after| PtsCall::Membership { id, groups, after, max })
    }

    fn owned(&self, id: i32) -> Result<Vec<i32>, Refusal> {
        let (owner, max) = (PrincipalId(id), AT_ONCE);
        let mut all = self.all(|after| PtsCall::Owned { owner, after, max })?;
        // Users are owned, too, and AFS lists groups.
        all.retain(|id| PrincipalId(*id).is_group());
        Ok(all)
    }

    fn examine(&self, id: i32) -> Result<(Principal, u32), Refusal> {
        match self.ask(PtsCall::Examine { id: PrincipalId(id) })? {
            Answer::Principals { mut principals, .. } => principals.pop().ok_or(NO_ENTRY),
            _ => Err(Refusal::IO),
        }
    }

    /// Names that no principal has are the anonymous user's.
    fn numbers_of(&self, names: &PrNames) -> Result<PrIds, Refusal> {
        let lower = |name: &Chars<64>| String::from_utf8_lossy(name.text()).to_lowercase();
        let mut all = Vec::new();
        for some in names.as_slice().chunks(AT_ONCE as usize) {
            let call = PtsCall::Numbers { names: some.iter().map(lower).collect() };
            let found = self.names(call)?;
            let known = |id: PrincipalId| if id == PrincipalId::NONE { ANONYMOUS } else { id.0 };
            all.extend(found.into_iter().map(known));
        }
        listed(all)
    }

    /// Numbers without a principal are their own names.
    fn names_of(&self, ids: &PrIds) -> Result<PrNames, Refusal> {
        let mut all = Vec::new();
        for some in ids.as_slice().chunks(AT_ONCE as usize) {
            let call = PtsCall::Names { ids: some.iter().copied().map(PrincipalId).collect() };
            let Answer::Names { names, .. } = self.ask(call)? else { return Err(Refusal::IO) };
            for (id, name) in names {
                let name = if name.is_empty() { id.0.to_string() } else { name };
                all.push(chars(&name)?);
            }
        }
        PrNames::new(all).map_err(|_| TOO_MANY)
    }

    fn create(
        &self,
        name: &PrName,
        is_group: bool,
        id: Option<i32>,
        owner: i32,
    ) -> Result<i32, Refusal> {
        if id == Some(0) {
            return Err(NOT_PERMITTED);
        }
        let new = NewPrincipal {
            kind: if is_group { PrincipalKind::Group } else { PrincipalKind::User },
            name: text_of(name.as_bytes())?,
            id: id.map(PrincipalId),
            owner: (owner != 0).then_some(WhichPrincipal::Id(PrincipalId(owner))),
            uid: None,
            gid: None,
        };
        let created = self.ask(PtsCall::Create { new: Box::new(new) });
        match created {
            Ok(Answer::Principals { principals, .. }) => {
                principals.first().map(|(one, _)| one.id.0).ok_or(Refusal::IO)
            }
            Ok(_) => Err(Refusal::IO),
            // The number is taken, or the name is.
            Err(ID_EXISTS) if id.is_some_and(|id| self.examine(id).is_ok()) => Err(ID_EXISTS),
            // A user of another realm, whose group is not there.
            Err(NO_ENTRY) if !is_group => Err(BAD_NAME),
            Err(refusal) => Err(refused_name(refusal)),
        }
    }

    /// The second one may be a user, or a group in this one.
    fn group_and_member(
        &self,
        group: i32,
        member: i32,
    ) -> Result<(PrincipalId, PrincipalId), Refusal> {
        let (group, member) = (PrincipalId(group), PrincipalId(member));
        if group == PrincipalId::NONE || member == PrincipalId::NONE {
            return Err(NO_ENTRY);
        }
        if !group.is_group() {
            return Err(NOT_GROUP);
        }
        Ok((group, member))
    }

    fn change_entry(&self, id: i32, name: &PrName, owner: i32, new_id: i32) -> Result<(), Refusal> {
        if new_id != 0 && new_id != id {
            // A number is written into access lists, which do not follow it.
            return Err(NOT_PERMITTED);
        }
        let id = PrincipalId(id);
        if owner != 0 {
            let owner = PrincipalId(owner);
            self.change(PtsCall::ChangeOwner { id, owner }).map_err(|refusal| match refusal {
                // A user has no owner to choose.
                BAD_ARGUMENT => NOT_PERMITTED,
                refusal => refusal,
            })?;
        }
        if name.as_bytes().is_empty() {
            return Ok(());
        }
        let name = text_of(name.as_bytes())?;
        self.change(PtsCall::Rename { id, name }).map_err(refused_name)
    }

    fn set_fields(&self, id: i32, mask: u32, flags: i32, quota: i32) -> Result<(), Refusal> {
        let mut change = PrincipalChange::default();
        if mask & fields_mask::PRIVACY != 0 {
            let kept = self.examine(id)?.0.privacy.0 & !(mask as u8);
            change.privacy = Some(Privacy(flags as u8 & mask as u8 | kept));
        }
        if mask & fields_mask::GROUP_QUOTA != 0 {
            change.group_quota = Some(u32::try_from(quota).map_err(|_| BAD_ARGUMENT)?);
        }
        self.change(PtsCall::SetFields { id: PrincipalId(id), change })
    }

    /// The principals whose rights a user has, by ascending numbers.
    fn cps(&self, id: i32) -> Result<Vec<i32>, Refusal> {
        let mut all = vec![PrincipalId::ANYBODY.0, id];
        if id != ANONYMOUS && id != PrincipalId::ANYBODY.0 {
            all.push(PrincipalId::PROVED.0);
            let mut new = self.members(id, true)?;
            // Groups in groups count, whoever may see their members.
            while let Some(group) = new.pop() {
                if !all.contains(&group) {
                    all.push(group);
                    new.extend(self.groups_of_group(group)?);
                }
            }
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// The groups that a group is in, as the server sees them.
    fn groups_of_group(&self, group: i32) -> Result<Vec<i32>, Refusal> {
        let (mut all, mut after) = (Vec::new(), PrincipalId(i32::MIN));
        loop {
            let id = PrincipalId(group);
            let call = PtsCall::Membership { id, groups: true, after, max: AT_ONCE };
            let call = Call::Pts { on_behalf: None, call: Box::new(call) };
            let Answer::Names { names, end } = self.0.ask_as_server(call).map_err(refused)? else {
                return Err(Refusal::IO);
            };
            all.extend(names.iter().map(|(id, _)| id.0));
            match names.last() {
                Some((last, _)) if !end => after = *last,
                _ => return Ok(all),
            }
        }
    }

    /// A caller who may see the groups of the user, or else the members of the group, learns it.
    fn is_member(&self, user: i32, group: i32) -> Result<bool, Refusal> {
        let (found, _) = self.examine(group)?;
        if !found.id.is_group() {
            return Err(BAD_ARGUMENT);
        }
        match self.cps(user) {
            Err(NOT_PERMITTED) => Ok(self.members(group, false)?.contains(&user)),
            all => Ok(all?.contains(&group)),
        }
    }

    /// A part of all entries: those with greater numbers than the `start` that the part before
    /// gave, which is not 0.
    fn list(&self, flags: i32, start: i32) -> Result<ProtectionAnswer, Refusal> {
        let after = if start == 0 { PrincipalId(i32::MIN) } else { PrincipalId(start) };
        let call = PtsCall::Entries { after, max: AT_ONCE };
        let Answer::Principals { principals, end } = self.ask(call)? else {
            return Err(Refusal::IO);
        };
        let last = principals.last().map(|(one, _)| one.id.0);
        let mut entries = Vec::new();
        for (principal, count) in &principals {
            let kind = if principal.id.is_group() { LIST_GROUPS } else { LIST_USERS };
            if flags & kind != 0 {
                entries.push(entry(principal, *count)?);
            }
        }
        let next = if end { -1 } else { last.unwrap_or(-1) };
        let entries = XdrList::new(entries).map_err(|_| TOO_MANY)?;
        Ok(ProtectionAnswer::ListEntries { entries, next })
    }
}
