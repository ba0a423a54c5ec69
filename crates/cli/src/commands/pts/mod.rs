//! `rialto pts`: users and groups, with OpenAFS's verbs, options and answers. A binary that is
//! called as `pts` is this command. `commands/openafs` reads its words.

mod batch;
mod change;
mod client;
mod list;
mod make;
mod typed;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use local::failure::Failure;

use super::cell_client::CellOptions;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto pts createuser joe                    a user, with the next number
    rialto pts creategroup joe:friends -owner joe
    rialto pts adduser -user jane -group joe:friends
    rialto pts membership joe:friends            its members
    rialto pts examine joe
    rialto pts adduser joe system:administrators
    rialto pts creategroup joe:mates --via fs1.example.org:7620    from another machine
    rialto pts VERB --help                       more, with examples

Verbs, options and their order are OpenAFS's. Options may be written -name or --name. A
change takes effect with every user's next request, on every server. Groups may be in
groups. A set of hosts is made with 'createuser 10.1.0.0/16', and may be in groups too.
Called through a link named pts, the program is this command.

EXIT CODES
    0  done
    1  refused or failed: the message names the remedy
    2  wrong usage
    3  no cell there, or its server does not run or answer";

/// Users and groups: make, list, change and remove them.
#[derive(Args, Debug)]
#[command(
    after_help = AFTER_HELP,
    arg_required_else_help = true
)]
pub struct Pts {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    options: CellOptions,
    /// Continue with the next one after a refusal.
    #[arg(long, global = true)]
    force: bool,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Createuser(make::Createuser),
    Creategroup(make::Creategroup),
    /// Puts users, groups or sets of hosts into groups.
    #[command(after_help = change::ADDUSER_HELP)]
    Adduser(typed::UsersAndGroups),
    /// Removes users, groups or sets of hosts from groups.
    #[command(after_help = change::REMOVEUSER_HELP)]
    Removeuser(typed::UsersAndGroups),
    Delete(change::Delete),
    Rename(change::PtsRename),
    Chown(change::Chown),
    Setfields(change::PtsSetfields),
    Setmax(change::Setmax),
    /// Shows users and groups.
    #[command(after_help = list::EXAMINE_HELP)]
    Examine(typed::PrincipalNames),
    Membership(list::Membership),
    /// Shows the groups that a user or group owns.
    #[command(after_help = list::LISTOWNED_HELP)]
    Listowned(typed::PrincipalNames),
    Listentries(list::Listentries),
    /// Shows the highest numbers in use.
    #[command(after_help = list::LISTMAX_HELP)]
    Listmax,
    Interactive(batch::Interactive),
    Source(batch::Source),
    Sleep(batch::Sleep),
    /// Ends the commands of a file.
    #[command(after_help = QUIT_HELP)]
    Quit,
}

const QUIT_HELP: &str = "\
EXAMPLES
    quit                                         a line of 'rialto pts source FILE'";

impl Pts {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let client = client::PtsClient::open(&self.options, self.force)?;
        batch::Batch::new(&client).run(self.verb)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Verb {
    /// Runs a verb that is no batch of others.
    fn run(self, client: &client::PtsClient) -> Result<(), Failure> {
        match self {
            Verb::Createuser(verb) => verb.run(client),
            Verb::Creategroup(verb) => verb.run(client),
            Verb::Adduser(pairs) => change::add(pairs, client),
            Verb::Removeuser(pairs) => change::remove(pairs, client),
            Verb::Delete(verb) => verb.run(client),
            Verb::Rename(verb) => verb.run(client),
            Verb::Chown(verb) => verb.run(client),
            Verb::Setfields(verb) => verb.run(client),
            Verb::Setmax(verb) => verb.run(client),
            Verb::Examine(which) => list::examine(which, client),
            Verb::Membership(verb) => verb.run(client),
            Verb::Listowned(which) => list::list_owned(which, client),
            Verb::Listentries(verb) => verb.run(client),
            Verb::Listmax => list::list_max(client),
            Verb::Interactive(_) | Verb::Source(_) | Verb::Sleep(_) | Verb::Quit => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use crate::commands::Cli;

    #[test]
    fn every_verb_has_examples() {
        let mut cli = Cli::command();
        cli.build();
        let pts = cli.find_subcommand("pts").expect("a command");
        for verb in pts.get_subcommands().filter(|verb| verb.get_name() != "help") {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("EXAMPLES") && verb.get_about().is_some(), "{}", verb.get_name());
        }
        for line in [
            "pts membership --nameorid joe",
            "pts adduser joe staff",
            "pts adduser --user a b --group c d",
        ] {
            assert!(
                Cli::command()
                    .try_get_matches_from(["rialto"].into_iter().chain(line.split(' ')))
                    .is_ok(),
                "{line}"
            );
        }
    }
}
