//! `pts createuser` and `pts creategroup`.

use clap::Args;
use local::failure::Failure;
use serde_json::json;
use types::{Answer, NewPrincipal, Principal, PrincipalId, PrincipalKind, PtsCall, WhichPrincipal};

use super::client::PtsClient;
use crate::commands::cell_client::odd;

const CREATEUSER_HELP: &str = "\
EXAMPLES
    rialto pts createuser joe
    rialto pts createuser -name joe jane -id 501 502
    rialto pts createuser joe -uid 1000       joe's uid on trusted hosts
    rialto pts createuser 10.1.0.0/16         the hosts of a network, a member for groups
    rialto pts createuser amy@example.org     a user of another realm; its group must exist

Without -uid the uid of a user is the number, if it is free; users of other realms get none.";

const CREATEGROUP_HELP: &str = "\
EXAMPLES
    rialto pts creategroup joe:friends -owner joe
    rialto pts creategroup staff              without a colon: administrators' groups
    rialto pts creategroup joe:crew -owner joe:crew    its members may change it
    rialto pts creategroup system:authuser@example.org  lets the users of a realm log in

Without -owner the maker of a group owns it. The realm of system:authuser@REALM is in small
letters; its users are in this group, and not in system:authuser. Logins with Kerberos make
up to 30 of them; 'setfields -groupquota' allows more.";

/// Makes users, or sets of hosts.
#[derive(Args, Debug)]
#[command(after_help = CREATEUSER_HELP)]
pub struct Createuser {
    /// Their names.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    name: Vec<String>,
    /// Their numbers, in the same order.
    #[arg(long, value_name = "ID", num_args = 1.., allow_negative_numbers = true)]
    id: Vec<i32>,
    /// The uid on trusted hosts, of a single user.
    #[arg(long, value_name = "UID")]
    uid: Option<u32>,
    /// The gid on trusted hosts, of a single user.
    #[arg(long, value_name = "GID")]
    gid: Option<u32>,
    /// NAME, or NAME NUMBER, instead of -name and -id.
    #[arg(value_name = "NAME", conflicts_with = "name", required_unless_present = "name")]
    words: Vec<String>,
}

/// Makes groups.
#[derive(Args, Debug)]
#[command(after_help = CREATEGROUP_HELP)]
pub struct Creategroup {
    /// Their names.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    name: Vec<String>,
    /// Their owner: a user, a group, or the group itself.
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Their numbers, in the same order; below 0.
    #[arg(long, value_name = "ID", num_args = 1.., allow_negative_numbers = true)]
    id: Vec<i32>,
    /// NAME, instead of -name.
    #[arg(value_name = "NAME", conflicts_with = "name", required_unless_present = "name")]
    words: Vec<String>,
}

fn make(client: &PtsClient, new: NewPrincipal) -> Result<Principal, Failure> {
    let doing = format!("making {}", new.name);
    match client.ask(&doing, PtsCall::Create { new: Box::new(new) })? {
        Answer::Principals { mut principals, .. } => {
            principals.pop().map(|(one, _)| one).ok_or_else(|| odd(&doing))
        }
        _ => Err(odd(&doing)),
    }
}

fn print_made(client: &PtsClient, what: &str, one: &Principal) {
    local::show::answer(
        client.json,
        &json!({ "name": one.name, "id": one.id.0, "uid": one.uid }),
        format_args!("{what} {} has id {}", one.name, one.id),
    );
}

/// The names, and the numbers: OpenAFS takes `NAME NUMBER` without options. No name is a number.
fn without_options(mut words: Vec<String>, mut ids: Vec<i32>) -> (Vec<String>, Vec<i32>) {
    if let [_, number] = &words[..]
        && let (true, Ok(number)) = (ids.is_empty(), number.parse())
    {
        ids.push(number);
        words.truncate(1);
    }
    (words, ids)
}

/// Pairs names with numbers: as many numbers as names, or none.
fn numbered(
    names: Vec<String>,
    ids: &[i32],
) -> Result<Vec<(String, Option<PrincipalId>)>, Failure> {
    if !ids.is_empty() && ids.len() != names.len() {
        let why = format!("{} names and {} numbers", names.len(), ids.len());
        return Err(Failure::new("reading the command", why)
            .mend("give each name its number, or none of them"));
    }
    let ids = ids.iter().map(|id| Some(PrincipalId(*id))).chain(std::iter::repeat(None));
    Ok(names.into_iter().zip(ids).collect())
}

impl Createuser {
    pub(crate) fn run(self, client: &PtsClient) -> Result<(), Failure> {
        let (names, ids) = if self.name.is_empty() {
            without_options(self.words, self.id)
        } else {
            (self.name, self.id)
        };
        if names.len() > 1 && (self.uid.is_some() || self.gid.is_some()) {
            return Err(Failure::new("reading the command", "one uid for several users")
                .mend("make them one by one"));
        }
        client.each(numbered(names, &ids)?, |(name, id)| {
            let is_network = name.parse::<guard::Network>().is_ok();
            let kind = if is_network { PrincipalKind::Hosts } else { PrincipalKind::User };
            let made = make(
                client,
                NewPrincipal { kind, name, id, owner: None, uid: self.uid, gid: self.gid },
            )?;
            print_made(client, if is_network { "Set of hosts" } else { "User" }, &made);
            Ok(())
        })
    }
}

impl Creategroup {
    pub(crate) fn run(self, client: &PtsClient) -> Result<(), Failure> {
        let names = if self.name.is_empty() { self.words } else { self.name };
        let owner = self.owner.map(|owner| match owner.parse::<i32>() {
            Ok(number) => WhichPrincipal::Id(PrincipalId(number)),
            Err(_) => WhichPrincipal::Name(owner),
        });
        client.each(numbered(names, &self.id)?, |(name, id)| {
            let (kind, owner) = (PrincipalKind::Group, owner.clone());
            let made = make(client, NewPrincipal { kind, name, id, owner, uid: None, gid: None })?;
            print_made(client, "group", &made);
            Ok(())
        })
    }
}
