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

use crate::{Databases, Refusal, Services};

/// Principals of one question to the cell.
const AT_ONCE: u32 = 1000;
/// `NewEntry` makes a user, or a group.
const USER_FLAG: i32 = 0;
const GROUP_FLAG: i32 = 2;
/// `ListEntries` lists users, and groups.
const LIST_USERS: i32 = 1;
const LIST_GROUPS: i32 = 2;
/// A mask of `SetFieldsEntry` that names none of the fields that are here.
const NO_FIELD: u32 = fields_mask::USER_QUOTA;
/// Any number of groups, as AFS writes it.
const UNLIMITED: i32 = -1;

/// Codes of the protection service. Source: OpenAFS `src/ptserver/pterror.et`.
const PR: i32 = 267_264;
const EXISTS: Refusal = Refusal(PR);
const ID_EXISTS: Refusal = Refusal(PR + 1);
const NO_IDS: Refusal = Refusal(PR + 2);
const NO_ENTRY: Refusal = Refusal(PR + 4);
const NOT_PERMITTED: Refusal = Refusal(PR + 5);
const NOT_GROUP: Refusal = Refusal(PR + 6);
const BAD_NAME: Refusal = Refusal(PR + 8);
const BAD_ARGUMENT: Refusal = Refusal(PR + 9);
const INCONSISTENT: Refusal = Refusal(PR + 13);
const TOO_MANY: Refusal = Refusal(PR + 15);
const NAME_TOO_LONG: Refusal = Refusal(PR + 18);

/// The protection service.
pub struct ProtectionService {
    realm: String,
    databases: Databases,
}

fn is_change(call: &ProtectionCall) -> bool {
    matches!(
        call,
        ProtectionCall::NewEntry { .. }
            | ProtectionCall::INewEntry { .. }
            | ProtectionCall::Delete { .. }
            | ProtectionCall::AddToGroup { .. }
            | ProtectionCall::RemoveFromGroup { .. }
            | ProtectionCall::SetMax { .. }
            | ProtectionCall::ChangeEntry { .. }
            | ProtectionCall::SetFieldsEntry { .. }
    )
}

/// One call.
struct PtsWay<'a>(&'a dyn Services);

impl ProtectionService {
    /// Of a cell whose users are those of this Kerberos realm.
    pub fn new(realm: &str, databases: Databases) -> ProtectionService {
        ProtectionService { realm: realm.to_lowercase(), databases }
    }

    /// Answers a call.
    ///
    /// # Errors
    /// The code with which the call ends.
    pub fn serve(
        &self,
        services: &dyn Services,
        call: ProtectionCall,
    ) -> Result<ProtectionAnswer, Refusal> {
        if is_change(&call) {
            self.databases.need_own()?;
        }
        let at = PtsWay(services);
        match call {
            ProtectionCall::NameToID { names } => {
                Ok(ProtectionAnswer::NameToID { ids: at.numbers_of(&names, &self.realm)? })
            }
            ProtectionCall::IDToName { ids } => {
                Ok(ProtectionAnswer::IDToName { names: at.names_of(&ids)? })
            }
            ProtectionCall::NewEntry { name, flag, owner } => {
                let is_group = match flag {
                    USER_FLAG => false,
                    GROUP_FLAG => true,
                    _ => return Err(BAD_ARGUMENT),
                };
                let id = at.create(&name, is_group, None, owner)?;
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
                at.join(group, member)?;
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
                let is_member = at.is_member(user, group)?;
                Ok(ProtectionAnswer::IsAMemberOf { flag: i32::from(is_member) })
            }
            ProtectionCall::SetFieldsEntry { id, mask, flags, group_quota, .. } => {
                if mask != 0 {
                    at.set_fields(id, mask, flags, group_quota)?;
                }
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
                let groups = at.members(id, true)?;
                // A user's groups are its own, and no group's.
                let ids = if id < 0 { groups } else { Vec::new() };
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
        Fault::NoSpace => NO_IDS,
        other => other.into(),
    }
}

fn listed(ids: Vec<i32>) -> Result<PrIds, Refusal> {
    PrIds::new(ids).map_err(|_| TOO_MANY)
}

fn text_of(name: &[u8]) -> Result<String, Refusal> {
    std::str::from_utf8(name).map(str::to_lowercase).map_err(|_| BAD_NAME)
}

/// The code for a name that the services refuse, however they do it.
fn about_name(refusal: Refusal) -> Refusal {
    if [BAD_ARGUMENT, NAME_TOO_LONG].contains(&refusal) { BAD_NAME } else { refusal }
}

/// Everyone, all users, and the user that no one is: no record says what they are.
fn is_fixed(id: i32) -> bool {
    [PrincipalId::ANYBODY.0, PrincipalId::PROVED.0, ANONYMOUS].contains(&id)
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

    /// Names that no principal has are the anonymous user's. One of the cell's own realm need not
    /// name it.
    fn numbers_of(&self, names: &PrNames, realm: &str) -> Result<PrIds, Refusal> {
        let lower = |name: &Chars<64>| {
            let name = String::from_utf8_lossy(name.text()).to_lowercase();
            match name.rsplit_once('@') {
                Some((user, of)) if of == realm => user.to_owned(),
                _ => name,
            }
        };
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
        let new = NewPrincipal {
            kind: if is_group { PrincipalKind::Group } else { PrincipalKind::User },
            name: text_of(name.as_bytes())?,
            id: id.map(PrincipalId),
            owner: (owner != 0).then_some(WhichPrincipal::Id(PrincipalId(owner))),
            uid: None,
            gid: None,
        };
        match self.ask(PtsCall::Create { new: Box::new(new) }) {
            Ok(Answer::Principals { principals, .. }) => {
                principals.first().map(|(one, _)| one.id.0).ok_or(Refusal::IO)
            }
            Ok(_) => Err(Refusal::IO),
            Err(ID_EXISTS) => match id {
                Some(id) if self.exists(id)? => Err(ID_EXISTS),
                _ => Err(EXISTS),
            },
            Err(BAD_ARGUMENT) if id == Some(0) => Err(NOT_PERMITTED),
            Err(BAD_ARGUMENT) if id == Some(i32::MIN) => Err(INCONSISTENT),
            // A user of another cell, of which no group is here.
            Err(NO_ENTRY) if !is_group && name.as_bytes().contains(&b'@') => Err(BAD_NAME),
            Err(refusal) => Err(about_name(refusal)),
        }
    }

    fn exists(&self, id: i32) -> Result<bool, Refusal> {
        match self.ask(PtsCall::Names { ids: vec![PrincipalId(id)] })? {
            Answer::Names { names, .. } => Ok(names.iter().any(|(_, name)| !name.is_empty())),
            _ => Err(Refusal::IO),
        }
    }

    fn join(&self, group: PrincipalId, member: PrincipalId) -> Result<(), Refusal> {
        match self.change(PtsCall::Join { group, member }) {
            Err(BAD_ARGUMENT) if group == member => Err(INCONSISTENT),
            // Members of these are decided without records.
            Err(BAD_ARGUMENT) => Err(NOT_PERMITTED),
            joined => joined,
        }
    }

    /// A caller learns it that may see the user's groups or the group's members.
    fn is_member(&self, user: i32, group: i32) -> Result<bool, Refusal> {
        let is_proved = group == PrincipalId::PROVED.0 && user != ANONYMOUS;
        if group == PrincipalId::ANYBODY.0 || is_proved {
            return Ok(true);
        }
        if !self.exists(user)? || !self.exists(group)? {
            return Err(NO_ENTRY);
        }
        if group > 0 {
            return Err(BAD_ARGUMENT);
        }
        match self.cps(user) {
            Err(NOT_PERMITTED) => Ok(self.members(group, false)?.contains(&user)),
            groups => Ok(groups?.contains(&group)),
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
        let has_name = !name.as_bytes().is_empty();
        if owner != 0 {
            let call = PtsCall::ChangeOwner { id: PrincipalId(id), owner: PrincipalId(owner) };
            match self.change(call) {
                // Only groups have owners of their own.
                Err(BAD_ARGUMENT) if id > 0 => return Err(NOT_PERMITTED),
                changed => changed?,
            }
        } else if !has_name {
            return self.set_fields(id, NO_FIELD, 0, 0);
        }
        if !has_name {
            return Ok(());
        }
        let renamed =
            self.change(PtsCall::Rename { id: PrincipalId(id), name: text_of(name.as_bytes())? });
        renamed.map_err(|refusal| if refusal == ID_EXISTS { EXISTS } else { about_name(refusal) })
    }

    /// A mask without a field that is here asks whether the caller may change the entry.
    fn set_fields(&self, id: i32, mask: u32, flags: i32, quota: i32) -> Result<(), Refusal> {
        let (mut change, is_quota) = (PrincipalChange::default(), mask & fields_mask::GROUP_QUOTA);
        let before = self.examine(id)?.0;
        if mask & fields_mask::PRIVACY != 0 || is_quota == 0 {
            let kept = before.privacy.0 & !(mask as u8);
            change.privacy = Some(Privacy(flags as u8 & mask as u8 | kept));
        }
        let new_quota = u32::try_from(quota);
        if is_quota != 0 {
            change.group_quota = Some(new_quota.unwrap_or(before.group_quota));
        }
        if is_fixed(id) {
            return Err(NOT_PERMITTED);
        }
        self.change(PtsCall::SetFields { id: PrincipalId(id), change })?;
        if is_quota != 0 && new_quota.is_err() { Err(BAD_ARGUMENT) } else { Ok(()) }
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
