//! `rialto pts`: users and groups, with the verbs, options and answers that administrators know from OpenAFS. A binary that is called as `pts` is
//! this command. Options may have one dash or two (`commands/typed.rs`), and may be shortened as long as they are not ambiguous.

mod change;
mod desk;
mod list;
mod make;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use local::failure::Failure;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto pts createuser joe                    somebody; the number is given
    rialto pts creategroup joe:friends -owner joe
    rialto pts adduser -user jane -group joe:friends
    rialto pts membership joe:friends            who is in it
    rialto pts examine joe
    rialto pts adduser joe system:administrators
    rialto pts VERB --help                       more, with examples

Verbs, options and their order are OpenAFS's. Options may be written -name or --name. What
is changed counts for everybody's next request, on every server. Groups may be in groups.
A set of hosts is made with 'createuser 10.1.0.0/16', and may be in groups too. Called
through a link named pts, the program is this command.

EXIT CODES
    0  done
    1  refused or failed: the message says what to do
    2  wrong usage
    3  no cell there, or its server does not run";

/// Users and groups: make, list, change and remove them.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP, infer_long_args = true, infer_subcommands = true, arg_required_else_help = true)]
pub struct Pts {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    common: Common,
}

/// What every verb takes.
#[derive(Args, Debug)]
pub struct Common {
    /// The cell's directory [default: $RIALTO_HOME, or rialto below $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
    /// The cell's name; refused if another cell is in that directory.
    #[arg(long, value_name = "NAME", global = true)]
    cell: Option<String>,
    /// JSON: one value for each line of the answer.
    #[arg(long, global = true)]
    json: bool,
    /// Ask as the user with this uid, as somebody who has the server's socket may, and not as the superuser.
    #[arg(long, value_name = "UID", global = true)]
    as_uid: Option<u32>,
    /// Go on with the next one where one is refused.
    #[arg(long, global = true)]
    force: bool,
    /// Taken for OpenAFS's sake: the server's socket says who asks.
    #[arg(long, global = true, hide = true)]
    localauth: bool,
    /// Likewise: nothing leaves this machine.
    #[arg(long, global = true, hide = true)]
    encrypt: bool,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Createuser(make::Createuser),
    Creategroup(make::Creategroup),
    Adduser(change::Adduser),
    Removeuser(change::Removeuser),
    Delete(change::Delete),
    Rename(change::Rename),
    Chown(change::Chown),
    Setfields(change::Setfields),
    Setmax(change::Setmax),
    Examine(list::Examine),
    Membership(list::Membership),
    Listowned(list::Listowned),
    Listentries(list::Listentries),
    Listmax(list::Listmax),
}

impl Pts {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let Pts { verb, common } = self;
        let desk = desk::Desk::open(common)?;
        match verb {
            Verb::Createuser(verb) => verb.run(&desk),
            Verb::Creategroup(verb) => verb.run(&desk),
            Verb::Adduser(verb) => verb.run(&desk),
            Verb::Removeuser(verb) => verb.run(&desk),
            Verb::Delete(verb) => verb.run(&desk),
            Verb::Rename(verb) => verb.run(&desk),
            Verb::Chown(verb) => verb.run(&desk),
            Verb::Setfields(verb) => verb.run(&desk),
            Verb::Setmax(verb) => verb.run(&desk),
            Verb::Examine(verb) => verb.run(&desk),
            Verb::Membership(verb) => verb.run(&desk),
            Verb::Listowned(verb) => verb.run(&desk),
            Verb::Listentries(verb) => verb.run(&desk),
            Verb::Listmax(verb) => verb.run(&desk),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use crate::commands::Cli;

    #[test]
    fn every_verb_has_examples_and_may_be_shortened() {
        let mut cli = Cli::command();
        cli.build();
        let pts = cli.find_subcommand("pts").expect("a command");
        for verb in pts.get_subcommands().filter(|verb| verb.get_name() != "help") {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("EXAMPLES") && verb.get_about().is_some(), "{}", verb.get_name());
        }
        for line in ["pts mem --nameorid joe", "pts adduser joe staff", "pts adduser --user a b --group c d"] {
            assert!(
                Cli::command().try_get_matches_from(["rialto"].into_iter().chain(line.split(' '))).is_ok(),
                "{line}"
            );
        }
    }
}
