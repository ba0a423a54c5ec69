//! The verbs that change principals.

use clap::Args;
use local::failure::Failure;
use types::{PrincipalChange, PrincipalId, Privacy, PtsCall};

use super::client::PtsClient;
use super::typed::{PrincipalNames, UsersAndGroups, two};

pub(super) const ADDUSER_HELP: &str = "\
EXAMPLES
    rialto pts adduser jane joe:friends
    rialto pts adduser -user jane jim -group joe:friends staff
    rialto pts adduser joe:friends staff      a group in a group
    rialto pts adduser joe system:administrators";

pub(super) const REMOVEUSER_HELP: &str = "\
EXAMPLES
    rialto pts removeuser jane joe:friends
    rialto pts removeuser -user jane jim -group joe:friends

It takes effect with the next request of the removed user, on every server.";

const DELETE_HELP: &str = "\
EXAMPLES
    rialto pts delete joe:friends
    rialto pts delete -nameorid joe 502

It leaves all groups; what it owned has no owner then, and its entries in access lists have
no effect ('fs cleanacl' removes them). Numbers are not used again.";

const RENAME_HELP: &str = "\
EXAMPLES
    rialto pts rename joe joseph              joe:friends is joseph:friends then
    rialto pts rename -oldname joe:friends -newname joe:crew";

const CHOWN_HELP: &str = "\
EXAMPLES
    rialto pts chown joe:friends jane         it is jane:friends then
    rialto pts chown -name staff -owner staff its members own it";

const SETFIELDS_HELP: &str = "\
EXAMPLES
    rialto pts setfields joe:friends -access SOMar
    rialto pts setfields -nameorid joe -groupquota 50
    rialto pts setfields joe -uid 1000        joe's uid on trusted hosts
    rialto pts setfields joe -locked yes      refuses logins of joe

-access has a letter for each of status, owned groups, membership, adding and removing:
capital for all users, small for members, - for the owner and administrators alone.";

const SETMAX_HELP: &str = "\
EXAMPLES
    rialto pts setmax -user 1000              the next user is 1001
    rialto pts setmax -group -500";

/// Removes users and groups.
#[derive(Args, Debug)]
#[command(after_help = DELETE_HELP)]
pub struct Delete {
    #[command(flatten)]
    which: PrincipalNames,
}

/// Gives a user or group another name.
#[derive(Args, Debug)]
#[command(after_help = RENAME_HELP)]
pub struct PtsRename {
    /// The name now.
    #[arg(long, value_name = "NAME", requires = "newname")]
    oldname: Option<String>,
    /// The name from now on.
    #[arg(long, value_name = "NAME", requires = "oldname")]
    newname: Option<String>,
    /// OLD NEW, instead of the options.
    #[arg(
        value_name = "NAME", num_args = 2, conflicts_with_all = ["oldname", "newname"],
        required_unless_present = "oldname",
    )]
    words: Vec<String>,
}

/// Gives a group another owner.
#[derive(Args, Debug)]
#[command(after_help = CHOWN_HELP)]
pub struct Chown {
    /// The group.
    #[arg(long, value_name = "GROUP", requires = "owner")]
    name: Option<String>,
    /// Its owner from now on.
    #[arg(long, value_name = "NAME", requires = "name")]
    owner: Option<String>,
    /// GROUP OWNER, instead of the options.
    #[arg(
        value_name = "NAME", num_args = 2, conflicts_with_all = ["name", "owner"],
        required_unless_present = "name",
    )]
    words: Vec<String>,
}

/// Sets the visibility of users or groups, and other fields.
#[derive(Args, Debug)]
#[command(
    after_help = SETFIELDS_HELP,
    mut_arg("words", |arg| arg.help("NAMES, instead of -nameorid")),
)]
pub struct PtsSetfields {
    #[command(flatten)]
    which: PrincipalNames,
    /// Five letters: S or s, O, M or m, A or a, r; - for none.
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true)]
    access: Option<String>,
    /// Limit of groups that the user may still make; of system:authuser@REALM, of users that the
    /// realm may still add.
    #[arg(long, value_name = "COUNT")]
    groupquota: Option<u32>,
    /// The uid on trusted hosts; -1: none.
    #[arg(long, value_name = "UID", allow_negative_numbers = true)]
    uid: Option<i64>,
    /// The gid; -1: none.
    #[arg(long, value_name = "GID", allow_negative_numbers = true)]
    gid: Option<i64>,
    /// yes or no: whether logins of this user are refused.
    #[arg(long, value_name = "WHETHER", value_parser = ["yes", "no"])]
    locked: Option<String>,
    /// Make all tokens void that were issued until now.
    #[arg(long)]
    voidtokens: bool,
}

/// Sets the highest numbers in use.
#[derive(Args, Debug)]
#[command(after_help = SETMAX_HELP)]
pub struct Setmax {
    /// Of groups.
    #[arg(
        long,
        value_name = "ID",
        allow_negative_numbers = true,
        required_unless_present = "user"
    )]
    group: Option<i32>,
    /// Of users.
    #[arg(long, value_name = "ID")]
    user: Option<i32>,
}

pub(super) fn add(pairs: UsersAndGroups, client: &PtsClient) -> Result<(), Failure> {
    client.each(pairs.pairs(), |(user, group)| {
        let call = PtsCall::Join { group: client.id(&group)?, member: client.id(&user)? };
        client.ask(&format!("adding {user} to {group}"), call).map(drop)
    })
}

pub(super) fn remove(pairs: UsersAndGroups, client: &PtsClient) -> Result<(), Failure> {
    client.each(pairs.pairs(), |(user, group)| {
        let call = PtsCall::Leave { group: client.id(&group)?, member: client.id(&user)? };
        client.ask(&format!("removing {user} from {group}"), call).map(drop)
    })
}

impl Delete {
    pub(crate) fn run(self, client: &PtsClient) -> Result<(), Failure> {
        client.each(self.which.names(), |name| {
            client
                .ask(&format!("removing {name}"), PtsCall::Delete { id: client.id(&name)? })
                .map(drop)
        })
    }
}

impl PtsRename {
    pub(crate) fn run(self, client: &PtsClient) -> Result<(), Failure> {
        let (old, new) = two(self.oldname, self.newname, self.words);
        let doing = format!("renaming {old} to {new}");
        client.ask(&doing, PtsCall::Rename { id: client.id(&old)?, name: new }).map(drop)
    }
}

impl Chown {
    pub(crate) fn run(self, client: &PtsClient) -> Result<(), Failure> {
        let (name, owner) = two(self.name, self.owner, self.words);
        let call = PtsCall::ChangeOwner { id: client.id(&name)?, owner: client.id(&owner)? };
        client.ask(&format!("giving {name} to {owner}"), call).map(drop)
    }
}

/// A uid or gid as typed; -1 means none.
fn number(typed: Option<i64>) -> Result<Option<u32>, Failure> {
    let read = |typed| match typed {
        -1 => Ok(u32::MAX),
        typed => u32::try_from(typed)
            .map_err(|error| Failure::new(format!("reading the number {typed}"), error)),
    };
    typed.map(read).transpose()
}

impl PtsSetfields {
    pub(crate) fn run(self, client: &PtsClient) -> Result<(), Failure> {
        let privacy = self.access.map(|text| text.parse::<Privacy>()).transpose();
        let privacy = privacy.map_err(|error| Failure::new("reading -access", error))?;
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let change = PrincipalChange {
            privacy,
            group_quota: self.groupquota,
            uid: number(self.uid)?,
            gid: number(self.gid)?,
            tokens_after: self.voidtokens.then_some(i64::try_from(now).unwrap_or(i64::MAX)),
            locked: self.locked.map(|whether| whether == "yes"),
        };
        if change == PrincipalChange::default() {
            return Err(Failure::new("reading the command", "no field is given")
                .mend("see 'pts setfields --help'"));
        }
        client.each(self.which.names(), |name| {
            client
                .ask(
                    &format!("changing {name}"),
                    PtsCall::SetFields { id: client.id(&name)?, change },
                )
                .map(drop)
        })
    }
}

impl Setmax {
    pub(crate) fn run(self, client: &PtsClient) -> Result<(), Failure> {
        let id = |typed: Option<i32>| typed.map_or(PrincipalId::NONE, PrincipalId);
        let call = PtsCall::SetMax { user: id(self.user), group: id(self.group) };
        client.ask("setting the highest numbers in use", call).map(drop)
    }
}
