//! The verbs that show principals.

use std::collections::{BTreeMap, VecDeque};

use clap::Args;
use local::failure::Failure;
use serde_json::{Value, json};
use types::{Answer, Principal, PrincipalId, PrincipalKind, PtsCall};

use super::client::PtsClient;
use super::typed::PrincipalNames;
use crate::commands::cell_client::odd;

pub(super) const EXAMINE_HELP: &str = "\
EXAMPLES
    rialto pts examine joe
    rialto pts examine -nameorid joe:friends -204";

const MEMBERSHIP_HELP: &str = "\
EXAMPLES
    rialto pts membership joe:friends         its members
    rialto pts membership joe                 the groups of joe
    rialto pts membership joe -expandgroups   also indirect ones
    rialto pts membership joe:friends -supergroups    the groups of the group";

pub(super) const LISTOWNED_HELP: &str = "\
EXAMPLES
    rialto pts listowned joe
    rialto pts listowned 0                    groups without an owner";

const LISTENTRIES_HELP: &str = "\
EXAMPLES
    rialto pts listentries                    all users
    rialto pts listentries -groups
    rialto pts listentries -users -groups --json";

pub(super) const LISTMAX_HELP: &str = "\
EXAMPLES
    rialto pts listmax";

/// Shows the members of a group, or the groups of a user.
#[derive(Args, Debug)]
#[command(after_help = MEMBERSHIP_HELP)]
pub struct Membership {
    #[command(flatten)]
    which: PrincipalNames,
    /// Of groups: show the groups that they are members of.
    #[arg(long)]
    supergroups: bool,
    /// Show indirect members too.
    #[arg(long)]
    expandgroups: bool,
}

/// Lists all users, or groups.
#[derive(Args, Debug)]
#[command(after_help = LISTENTRIES_HELP)]
pub struct Listentries {
    /// List users; the default.
    #[arg(long)]
    users: bool,
    /// List groups and sets of hosts.
    #[arg(long)]
    groups: bool,
}

fn kind(one: &Principal) -> &'static str {
    match one.kind {
        PrincipalKind::User => "user",
        PrincipalKind::Group => "group",
        PrincipalKind::Hosts => "hosts",
    }
}

fn quota(one: &Principal) -> String {
    if one.group_quota == u32::MAX { "unlimited".to_owned() } else { one.group_quota.to_string() }
}

pub(super) fn examine(which: PrincipalNames, client: &PtsClient) -> Result<(), Failure> {
    client.each(which.names(), |name| {
        let (one, count) = client.examine(&name)?;
        let names = client.names([one.owner, one.creator])?;
        let (owner, creator) = (&names[&one.owner], &names[&one.creator]);
        if client.json {
            local::show::json(&json!({
                "name": one.name, "id": one.id.0, "kind": kind(&one), "owner": owner,
                "creator": creator,
                "membership": count, "flags": one.privacy.to_string(),
                "group_quota": one.group_quota,
                "uid": one.uid, "gid": one.gid, "locked": one.locked,
                "tokens_after": one.tokens_after,
            }));
            return Ok(());
        }
        println!("Name: {}, id: {}, owner: {owner}, creator: {creator},", one.name, one.id);
        let quota = quota(&one);
        println!("  membership: {count}, flags: {}, group quota: {quota}.", one.privacy);
        if let Some(uid) = one.uid {
            println!("  uid: {uid}{}.", if one.locked { ", locked" } else { "" });
        }
        Ok(())
    })
}

fn print(client: &PtsClient, heading: &str, of: &Principal, names: &BTreeMap<PrincipalId, String>) {
    if client.json {
        let all: Vec<Value> =
            names.iter().map(|(id, name)| json!({ "name": name, "id": id.0 })).collect();
        local::show::json(&json!({ "of": of.name, "id": of.id.0, "list": all }));
        return;
    }
    println!("{heading}");
    names.values().for_each(|name| println!("  {name}"));
}

impl Membership {
    pub(crate) fn run(self, client: &PtsClient) -> Result<(), Failure> {
        let (up, all) = (self.supergroups, self.expandgroups);
        client.each(self.which.names(), |name| {
            let (one, _) = client.examine(&name)?;
            let members = one.kind == PrincipalKind::Group && !up;
            let mut found = BTreeMap::new();
            let mut ask = VecDeque::from([one.id]);
            while let Some(id) = ask.pop_front() {
                let part = |after, max| PtsCall::Membership { id, groups: !members, after, max };
                for (id, name) in
                    client.listed(&format!("listing the membership of {name}"), part)?
                {
                    if found.insert(id, name).is_none() && all && id.is_group() {
                        ask.push_back(id);
                    }
                }
            }
            let heading = match (members, all) {
                (true, false) => format!("Members of {} (id: {}) are:", one.name, one.id),
                (true, true) => format!("Expanded Members of {} (id: {}) are:", one.name, one.id),
                (false, false) => format!("Groups {} (id: {}) is a member of:", one.name, one.id),
                (false, true) => {
                    format!("Expanded Groups {} (id: {}) is a member of:", one.name, one.id)
                }
            };
            print(client, &heading, &one, &found);
            Ok(())
        })
    }
}

pub(super) fn list_owned(which: PrincipalNames, client: &PtsClient) -> Result<(), Failure> {
    client.each(which.names(), |name| {
        let id = client.id(&name)?;
        let part = |after, max| PtsCall::Owned { owner: id, after, max };
        let owned = client
            .listed(&format!("listing the groups of the owner {name}"), part)?
            .into_iter()
            .collect();
        if id != PrincipalId::NONE {
            let (one, _) = client.examine(&name)?;
            print(
                client,
                &format!("Groups owned by {} (id: {}) are:", one.name, one.id),
                &one,
                &owned,
            );
            return Ok(());
        }
        if client.json {
            owned
                .iter()
                .for_each(|(id, name)| local::show::json(&json!({ "name": name, "id": id.0 })));
        } else {
            println!("Orphaned groups are:");
            owned.values().for_each(|name| println!("  {name}"));
        }
        Ok(())
    })
}

impl Listentries {
    pub(crate) fn run(self, client: &PtsClient) -> Result<(), Failure> {
        let users = self.users || !self.groups;
        let wanted =
            |one: &Principal| if one.kind == PrincipalKind::User { users } else { self.groups };
        let all: Vec<Principal> = client.entries()?.into_iter().filter(wanted).collect();
        if !client.json {
            println!("{:<25} {:>6} {:>6} {:>7}", "Name", "ID", "Owner", "Creator");
        }
        for one in all {
            if client.json {
                let (owner, creator) = (one.owner.0, one.creator.0);
                local::show::json(&json!({
                    "name": one.name, "id": one.id.0, "kind": kind(&one), "owner": owner,
                    "creator": creator, "uid": one.uid,
                }));
            } else {
                println!("{:<25} {:>6} {:>6} {:>7}", one.name, one.id, one.owner, one.creator);
            }
        }
        Ok(())
    }
}

pub(super) fn list_max(client: &PtsClient) -> Result<(), Failure> {
    let doing = "reading the highest numbers in use";
    let Answer::Names { names, .. } = client.ask(doing, PtsCall::Max)? else {
        return Err(odd(doing));
    };
    let [(user, _), (group, _)] = &names[..] else { return Err(odd(doing)) };
    local::show::answer(
        client.json,
        &json!({ "user": user.0, "group": group.0 }),
        format_args!("Max user id is {user} and max group id is {group}."),
    );
    Ok(())
}
