//! `rialto cell import`: the changes that make the cell as a file has it.
//!
//! First the whole file is read and compared, and refused if it has what cannot be: nothing is
//! changed then. The changes follow in an order in which each is possible: users, groups (owners
//! before what they own), fields, members, rules, removals.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use guard::is_system;
use local::failure::{Doing, Failure};
use local::show;
use serde_json::json;
use types::{
    Answer, Call, ClientId, GuardCall, NewPrincipal, Principal, PrincipalChange, PrincipalId,
    PrincipalKind, PtsCall, Realm, WhichPrincipal, Whom,
};

use super::entry::ExportLine;
use super::state::{People, fence_entry, mandate_entry, open, quota, rules};
use crate::commands::backup_file::{is_standard, now};
use crate::commands::cell_client::{CellClient, CellOptions, odd};

/// How records are applied.
pub(in crate::commands) struct ImportWay {
    /// Nothing is changed.
    pub dry_run: bool,
    /// The records that are removed if they are not there.
    pub pruned: Pruned,
    /// Each change is printed.
    pub is_told: bool,
    /// The records are of a cell that locks no users: locks stay as they are.
    pub keeps_locks: bool,
}

/// Records that an import removes if it does not have them.
pub(in crate::commands) enum Pruned {
    None,
    /// Users and groups with these numbers, and members of such groups with such numbers.
    Those(BTreeSet<PrincipalId>),
    /// All of the kinds that the import has.
    All,
}

impl Pruned {
    fn has(&self, id: PrincipalId) -> bool {
        match self {
            Pruned::None => false,
            Pruned::Those(ids) => ids.contains(&id),
            Pruned::All => true,
        }
    }
}

const WHAT: &str = "reading the file";
/// The creator of a principal that a dry run has not made.
const UNMADE: PrincipalId = PrincipalId(i32::MIN);

pub(super) fn run(options: &CellOptions, file: &Path, way: ImportWay) -> Result<ExitCode, Failure> {
    let dry_run = way.dry_run;
    let changes = apply(options, &read(file)?, way)?;
    if !options.json {
        println!("{changes} changes {}", if dry_run { "to be made" } else { "made" });
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the cell as these records have it. Returns the number of changes, each of which is
/// printed.
pub(in crate::commands) fn apply(
    options: &CellOptions,
    wanted: &[ExportLine],
    way: ImportWay,
) -> Result<u64, Failure> {
    let client = open(options)?;
    let people = People::fetch(&client)?;
    let mut import = Import { client, people, way, json: options.json, changes: 0 };
    import.check(wanted)?;
    import.rename_people(wanted)?;
    import.make_people(wanted)?;
    import.change_people(wanted)?;
    import.members(wanted)?;
    import.rules(wanted)?;
    import.remove_people(wanted)?;
    Ok(import.changes)
}

fn read(file: &Path) -> Result<Vec<ExportLine>, Failure> {
    let what = || format!("reading {}", file.display());
    let text = if is_standard(file) {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(file)
    };
    let mut entries = Vec::new();
    for (at, line) in text.doing(what)?.lines().enumerate() {
        let refused = |why: String| Failure::new(what(), format!("line {}: {why}", at + 1));
        let Some(entry) = ExportLine::read(line).map_err(refused)? else { continue };
        let kinds = ["user", "group", "hosts", "member", "fence", "admin", "server", "location"];
        if !kinds.contains(&entry.kind.as_str()) {
            return Err(refused(format!("there are no records of the kind {}", entry.kind)));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn kind_of(entry: &ExportLine) -> Option<PrincipalKind> {
    match entry.kind.as_str() {
        "user" => Some(PrincipalKind::User),
        "group" => Some(PrincipalKind::Group),
        "hosts" => Some(PrincipalKind::Hosts),
        _ => None,
    }
}

/// A field that is a number, or has another form.
fn parsed<T: std::str::FromStr>(entry: &ExportLine, field: &str) -> Result<Option<T>, Failure> {
    let Some(text) = entry.field(field) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| wrong(entry, format!("{text:?} is no {field}")))
}

fn wrong(entry: &ExportLine, why: impl std::fmt::Display) -> Failure {
    Failure::new(WHAT, format!("{} {}: {why}", entry.kind, entry.name))
}

/// The differences between a principal and its entry.
fn difference(
    one: &Principal,
    entry: &ExportLine,
    keeps_locks: bool,
) -> Result<(PrincipalChange, Vec<String>), Failure> {
    let mut words = Vec::new();
    let mut differs = |field: &str, was: String, is: String| {
        if was != is {
            words.push(format!("{field} {was} -> {is}"));
        }
        was != is
    };
    let mut change = PrincipalChange::default();
    let number = |number: Option<u32>| number.map_or_else(|| "none".to_owned(), |n| n.to_string());
    if let Some(uid) = parsed::<u32>(entry, "uid")?
        && differs("uid", number(one.uid), uid.to_string())
    {
        change.uid = Some(uid);
    }
    if let Some(gid) = parsed::<u32>(entry, "gid")?
        && differs("gid", number(one.gid), gid.to_string())
    {
        change.gid = Some(gid);
    }
    if let Some(privacy) = parsed::<types::Privacy>(entry, "privacy")?
        && differs("privacy", one.privacy.to_string(), privacy.to_string())
    {
        change.privacy = Some(privacy);
    }
    if let Some(text) = entry.field("groupquota") {
        let groups = match text {
            "any" => u32::MAX,
            text => text.parse().map_err(|_| wrong(entry, format!("{text:?} is no quota")))?,
        };
        if differs("groupquota", quota(one.group_quota), quota(groups)) {
            change.group_quota = Some(groups);
        }
    }
    // An export has the field only where it is set, so a record with a number and without it is
    // not locked.
    let locked = match entry.field("locked") {
        None if keeps_locks || entry.field("id").is_none() => None,
        None | Some("no") => Some(false),
        Some("yes") => Some(true),
        Some(text) => return Err(wrong(entry, format!("locked is yes or no, and not {text:?}"))),
    };
    let word = |locked| if locked { "yes" } else { "no" }.to_owned();
    if let Some(locked) = locked
        && differs("locked", word(one.locked), word(locked))
    {
        change.locked = Some(locked);
    }
    Ok((change, words))
}

struct Import {
    client: CellClient,
    people: People,
    way: ImportWay,
    json: bool,
    changes: u64,
}

impl Import {
    /// Refuses what no call can make.
    fn check(&self, wanted: &[ExportLine]) -> Result<(), Failure> {
        let mut seen = BTreeSet::new();
        let (names, keeps_locks) = (names_in(wanted), self.way.keeps_locks);
        for entry in wanted {
            let Some(kind) = kind_of(entry) else { continue };
            if !seen.insert(&entry.name) {
                return Err(wrong(entry, "it is there twice"));
            }
            let id = parsed::<i32>(entry, "id")?.map(PrincipalId);
            match self.people.named(&entry.name) {
                Some(one) if one.kind != kind => {
                    return Err(wrong(entry, "the cell has one of another kind by that name"));
                }
                Some(one) if id.is_some_and(|id| id != one.id) => {
                    let why = format!("it has the number {} in the cell", one.id);
                    return Err(wrong(entry, why).mend(
                        "access lists and files have numbers, so no number is changed: mend the \
                         file",
                    ));
                }
                Some(one) => drop(difference(one, entry, keeps_locks)?),
                None => {
                    let taken = id.and_then(|id| self.people.all.get(&id));
                    match taken {
                        Some(other) if other.kind != kind || names.contains(&other.name[..]) => {
                            let why = format!("{} has its number in the cell", other.name);
                            return Err(wrong(entry, why));
                        }
                        Some(renamed) => drop(difference(renamed, entry, keeps_locks)?),
                        None => drop(difference(&blank(kind), entry, keeps_locks)?),
                    }
                }
            }
        }
        for entry in wanted.iter().filter(|entry| entry.kind == "member") {
            let member = entry.field("member").ok_or_else(|| wrong(entry, "it names no member"))?;
            for name in [&entry.name[..], member] {
                if self.people.named(name).is_none() && !seen.iter().any(|it| *it == name) {
                    return Err(wrong(entry, format!("there is no {name}")));
                }
            }
        }
        Ok(())
    }

    /// Prints a change; whether it is to be made.
    fn begin(&mut self, change: &str) -> bool {
        self.changes += 1;
        if self.way.is_told {
            show::answer(self.json, &json!({ "change": change }), format_args!("{change}"));
        }
        !self.way.dry_run
    }

    /// One of another name that has the number of an entry gets that name. Groups that it owns get
    /// theirs from the service.
    fn rename_people(&mut self, wanted: &[ExportLine]) -> Result<(), Failure> {
        let mut is_changed = false;
        for entry in wanted.iter().filter(|entry| kind_of(entry).is_some()) {
            let id = parsed::<i32>(entry, "id")?.map(PrincipalId);
            let known = id.and_then(|id| self.people.all.get(&id)).cloned();
            let Some(known) = known.filter(|known| known.name != entry.name) else { continue };
            let doing = format!("rename {} to {}", known.name, entry.name);
            if self.begin(&doing) {
                let call = PtsCall::Rename { id: known.id, name: entry.name.clone() };
                self.client.ask_pts(&doing, call)?;
                is_changed = true;
            }
            self.people.put(Principal { name: entry.name.clone(), ..known });
        }
        if is_changed {
            self.people = People::fetch(&self.client)?;
        }
        Ok(())
    }

    fn make_people(&mut self, wanted: &[ExportLine]) -> Result<(), Failure> {
        let is_missing = |import: &Import, entry: &&ExportLine| {
            kind_of(entry).is_some() && import.people.named(&entry.name).is_none()
        };
        let mut missing: Vec<&ExportLine> =
            wanted.iter().filter(|entry| is_missing(self, entry)).collect();
        // Users come first, since groups have their owners' names.
        missing.sort_by_key(|entry| entry.kind != "user");
        while !missing.is_empty() {
            let before = missing.len();
            let mut later = Vec::new();
            for entry in missing {
                let owner = entry.field("owner").filter(|owner| *owner != entry.name);
                let is_ready = owner.is_none_or(|owner| self.people.named(owner).is_some());
                if is_ready { self.make(entry)? } else { later.push(entry) }
            }
            if later.len() == before {
                let why =
                    format!("its owner {} does not exist", later[0].field("owner").unwrap_or(""));
                return Err(wrong(later[0], why));
            }
            missing = later;
        }
        Ok(())
    }

    fn make(&mut self, entry: &ExportLine) -> Result<(), Failure> {
        let Some(kind) = kind_of(entry) else { return Ok(()) };
        let doing = format!("make {} {}", entry.kind, entry.name);
        let mut one = blank(kind);
        one.name.clone_from(&entry.name);
        let id = parsed::<i32>(entry, "id")?.map(PrincipalId);
        if self.begin(&doing) {
            let owner = entry.field("owner").map(|owner| WhichPrincipal::Name(owner.to_owned()));
            let (uid, gid) = (parsed(entry, "uid")?, parsed(entry, "gid")?);
            let new = NewPrincipal { kind, name: entry.name.clone(), id, owner, uid, gid };
            let call = PtsCall::Create { new: Box::new(new) };
            let Answer::Principals { mut principals, .. } = self.client.ask_pts(&doing, call)?
            else {
                return Err(odd(&doing));
            };
            one = principals.pop().ok_or_else(|| odd(&doing))?.0;
        } else {
            // A number that no other has, for the members that follow.
            one.creator = UNMADE;
            let free = || (1 << 30..).map(PrincipalId).find(|id| !self.people.all.contains_key(id));
            one.id = id.or_else(free).unwrap_or(PrincipalId::NONE);
        }
        self.people.put(one);
        Ok(())
    }

    fn change_people(&mut self, wanted: &[ExportLine]) -> Result<(), Failure> {
        for entry in wanted.iter().filter(|entry| kind_of(entry).is_some()) {
            let Some(one) = self.people.named(&entry.name).cloned() else { continue };
            if one.creator == UNMADE {
                continue;
            }
            let (change, words) = difference(&one, entry, self.way.keeps_locks)?;
            if !words.is_empty() {
                let doing = format!("change {} {}: {}", entry.kind, entry.name, words.join(", "));
                if self.begin(&doing) {
                    self.client.ask_pts(&doing, PtsCall::SetFields { id: one.id, change })?;
                }
            }
            let owner = entry.field("owner").map(|owner| (owner, self.people.named(owner)));
            let Some((name, owner)) = owner else { continue };
            let owner = owner.ok_or_else(|| wrong(entry, format!("there is no {name}")))?.id;
            if one.owner != owner {
                let was = self.people.name(one.owner);
                let doing = format!("change {} {}: owner {was} -> {name}", entry.kind, entry.name);
                if self.begin(&doing) {
                    self.client.ask_pts(&doing, PtsCall::ChangeOwner { id: one.id, owner })?;
                }
            }
        }
        Ok(())
    }

    fn members(&mut self, wanted: &[ExportLine]) -> Result<(), Failure> {
        let mut kept = BTreeSet::new();
        for entry in wanted.iter().filter(|entry| entry.kind == "member") {
            let member = entry.field("member").unwrap_or_default();
            let ids =
                [&entry.name[..], member].map(|name| self.people.named(name).map(|one| one.id));
            let [Some(group), Some(id)] = ids else {
                return Err(wrong(entry, format!("there is no {member}")));
            };
            kept.insert((group, id));
            let is_in = self.people.members.get(&group).is_some_and(|all| all.contains(&id));
            let doing = format!("add {member} to {}", entry.name);
            if !is_in && self.begin(&doing) {
                self.client.ask_pts(&doing, PtsCall::Join { group, member: id })?;
            }
        }
        if !has_any(wanted, &["group", "hosts", "member"]) {
            return Ok(());
        }
        let members = self.people.members.clone();
        let pairs =
            members.iter().flat_map(|(group, all)| all.iter().map(|member| (*group, *member)));
        for (group, member) in pairs.filter(|pair| !kept.contains(pair)) {
            if !self.way.pruned.has(group) || !self.way.pruned.has(member) {
                continue;
            }
            let (of, name) = (self.people.name(group), self.people.name(member));
            let doing = format!("remove {name} from {of}");
            if self.begin(&doing) {
                self.client.ask_pts(&doing, PtsCall::Leave { group, member })?;
            }
        }
        Ok(())
    }

    fn rules(&mut self, wanted: &[ExportLine]) -> Result<(), Failure> {
        let (fences, mandates) = rules(&self.client)?;
        let mut present: Vec<(ExportLine, GuardCall)> = Vec::new();
        present.extend(fences.iter().map(|fence| {
            (fence_entry(fence, &self.people), GuardCall::RemoveFence { number: fence.number })
        }));
        present.extend(mandates.iter().map(|mandate| {
            let removal = GuardCall::RemoveMandate { number: mandate.number };
            (mandate_entry(mandate, &self.people), removal)
        }));
        for entry in wanted.iter().filter(|entry| ["fence", "admin"].contains(&&entry.kind[..])) {
            if present.iter().any(|(there, _)| there == entry) {
                continue;
            }
            let Some(call) = self.addition(entry)? else { continue };
            let doing = format!("add {}", entry.text());
            if self.begin(&doing) {
                self.change_rule(&doing, call)?;
            }
        }
        if !matches!(self.way.pruned, Pruned::All) || !has_any(wanted, &["fence", "admin"]) {
            return Ok(());
        }
        for (there, removal) in present.into_iter().filter(|(there, _)| !wanted.contains(there)) {
            let doing = format!("remove {}", there.text());
            if self.begin(&doing) {
                self.change_rule(&doing, removal)?;
            }
        }
        Ok(())
    }

    /// Changes a rule, and tells of servers that did not confirm it.
    fn change_rule(&self, doing: &str, call: GuardCall) -> Result<(), Failure> {
        let call = Call::Guard { behalf: None, call: Box::new(call) };
        let Answer::Enforced { missing, .. } = self.client.ask(doing, call)? else {
            return Err(odd(doing));
        };
        for server in missing {
            eprintln!(
                "rialto cell: {doing}: server {server} did not confirm; it is in force there once \
                 that server hears the database"
            );
        }
        Ok(())
    }

    /// The call that adds a rule; `None`: its time is over.
    fn addition(&self, entry: &ExportLine) -> Result<Option<GuardCall>, Failure> {
        let principal = |name: &str| {
            let one = self.people.named(name).map(|one| one.id);
            one.ok_or_else(|| wrong(entry, format!("there is no {name}")))
        };
        let no_form = || wrong(entry, "it has no form that this program knows");
        if entry.kind == "admin" {
            let part = entry.field("part").and_then(|part| part.split_once(':'));
            let server = |text: &str| text.parse().map_err(|error| wrong(entry, error));
            let realm = match part.ok_or_else(no_form)? {
                ("volume", pattern) => Realm::Volumes(pattern.to_owned()),
                ("server", id) => Realm::Server(server(id)?),
                ("partition", place) => {
                    let (id, name) = place.split_once(':').ok_or_else(no_form)?;
                    Realm::Partition(server(id)?, name.to_owned())
                }
                _ => return Err(no_form()),
            };
            let principal = principal(&entry.name)?;
            return Ok(Some(GuardCall::AddMandate { principal, realm }));
        }
        let hex = |text: &str| u128::from_str_radix(text, 16).map_err(|error| wrong(entry, error));
        let whom = match entry.name.split_once(':').ok_or_else(no_form)? {
            ("user", name) => Whom::User(principal(name)?),
            ("host", network) => {
                let (address, prefix) = network.split_once('/').ok_or_else(no_form)?;
                let address = address.parse().map_err(|error| wrong(entry, error))?;
                let prefix = prefix.parse().map_err(|error| wrong(entry, error))?;
                Whom::Hosts { address, prefix }
            }
            ("token", number) => Whom::Token(hex(number)?),
            ("client", number) => Whom::Client(ClientId(hex(number)?)),
            _ => return Err(no_form()),
        };
        let why = entry.field("why").unwrap_or_default().to_owned();
        let seconds = match parsed::<i64>(entry, "until")? {
            None => 0,
            Some(until) => match u64::try_from(until.saturating_sub(now())) {
                Ok(seconds @ 1..) => seconds,
                _ => return Ok(None),
            },
        };
        Ok(Some(GuardCall::AddFence { whom, seconds, why }))
    }

    /// Groups go before their owners.
    fn remove_people(&mut self, wanted: &[ExportLine]) -> Result<(), Failure> {
        let names = names_in(wanted);
        let gone = |kinds: &[&str], is_user: bool, people: &People| -> Vec<Principal> {
            let is_gone = |one: &&Principal| {
                (one.kind == PrincipalKind::User) == is_user
                    && !is_system(one.id)
                    && self.way.pruned.has(one.id)
                    && !names.contains(one.name.as_str())
            };
            let all = people.all.values().filter(is_gone).cloned();
            if has_any(wanted, kinds) { all.collect() } else { Vec::new() }
        };
        let groups = gone(&["group", "hosts", "member"], false, &self.people);
        let users = gone(&["user"], true, &self.people);
        for one in groups.into_iter().chain(users) {
            let doing = format!("remove {}", one.name);
            if self.begin(&doing) {
                self.client.ask_pts(&doing, PtsCall::Delete { id: one.id })?;
            }
        }
        Ok(())
    }
}

/// The names of users and groups.
fn names_in(wanted: &[ExportLine]) -> BTreeSet<&str> {
    let people = wanted.iter().filter(|entry| kind_of(entry).is_some());
    people.map(|entry| entry.name.as_str()).collect()
}

fn has_any(wanted: &[ExportLine], kinds: &[&str]) -> bool {
    wanted.iter().any(|entry| kinds.contains(&entry.kind.as_str()))
}

/// A principal that is not made yet.
fn blank(kind: PrincipalKind) -> Principal {
    let none = PrincipalId::NONE;
    Principal {
        id: none,
        kind,
        name: String::new(),
        owner: none,
        creator: none,
        privacy: types::Privacy(0),
        group_quota: 0,
        uid: None,
        gid: None,
        tokens_after: 0,
        locked: false,
    }
}
