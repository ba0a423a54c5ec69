//! Arguments as verbs take them: by options, or by words without them.

use clap::Args;

/// Users and groups.
#[derive(Args, Debug)]
pub struct PrincipalNames {
    /// The users and groups.
    #[arg(long, value_name = "NAME", num_args = 1.., allow_negative_numbers = true)]
    nameorid: Vec<String>,
    /// NAMES, instead of the option.
    #[arg(
        value_name = "NAME",
        conflicts_with = "nameorid",
        required_unless_present = "nameorid",
        allow_negative_numbers = true
    )]
    words: Vec<String>,
}

impl PrincipalNames {
    /// As many as were typed.
    pub(crate) fn names(self) -> Vec<String> {
        if self.nameorid.is_empty() { self.words } else { self.nameorid }
    }
}

/// Users, and the groups that they enter or leave.
#[derive(Args, Debug)]
pub struct UsersAndGroups {
    /// The users, groups or sets of hosts.
    #[arg(long, value_name = "NAME", num_args = 1.., requires = "group")]
    user: Vec<String>,
    /// The groups.
    #[arg(long, value_name = "GROUP", num_args = 1.., requires = "user")]
    group: Vec<String>,
    /// NAME GROUP, instead of the options.
    #[arg(
        value_name = "NAME", num_args = 2, conflicts_with_all = ["user", "group"],
        required_unless_present = "user",
    )]
    words: Vec<String>,
}

impl UsersAndGroups {
    /// Each user with each group.
    pub(crate) fn pairs(self) -> Vec<(String, String)> {
        if let [user, group] = &self.words[..] {
            return vec![(user.clone(), group.clone())];
        }
        self.user
            .iter()
            .flat_map(|user| self.group.iter().map(|group| (user.clone(), group.clone())))
            .collect()
    }
}

/// The two names, from options or words.
pub(crate) fn two(
    first: Option<String>,
    second: Option<String>,
    words: Vec<String>,
) -> (String, String) {
    let mut words = words.into_iter();
    let mut one =
        |option: Option<String>| option.or_else(|| words.next()).expect("the parser requires it");
    (one(first), one(second))
}
