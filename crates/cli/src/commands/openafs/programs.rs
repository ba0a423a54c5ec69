//! OpenAFS's programs for tokens, as names of this one: `aklog`, `klog`, `klog.krb5`, `unlog`,
//! `tokens` and `kpasswd` are `rialto login`, `logout`, `tokens` and `passwd`. The rule that reads
//! the suites' options reads theirs.

use std::ffi::{OsStr, OsString};

use local::failure::Failure;

use super::foreign::ForeignUse::{self, AlwaysSo, NoMeaning, Refused};
use super::verbs::{OptionRow, OptionValues};
use super::{MeantOption, ReadLine, is_option, meant_option, split_option};

/// A program of OpenAFS.
pub(super) struct ProgramRow {
    pub name: &'static str,
    /// The words of this program that it means.
    pub command: &'static [&'static str],
    /// The meaning of a word that follows no option.
    word: PartUse,
    pub options: &'static [(OptionRow, PartUse)],
}

/// The meaning of an option, or of a word.
#[derive(Clone, Copy, Debug)]
pub(super) enum PartUse {
    /// This option, with the value if there is one.
    Own(&'static str),
    /// The name of a cell.
    Cell,
    /// The name of the user.
    User,
    /// The name of the user in a Kerberos realm.
    Principal,
    /// See `foreign.rs`.
    Foreign(ForeignUse, &'static str),
}

use PartUse::{Cell, Foreign, Own, Principal, User};

const fn flag(name: &'static str, part: PartUse) -> (OptionRow, PartUse) {
    option(name, None, OptionValues::None, part)
}

const fn value(name: &'static str, part: PartUse) -> (OptionRow, PartUse) {
    option(name, None, OptionValues::One, part)
}

const fn option(
    name: &'static str,
    other: Option<&'static str>,
    values: OptionValues,
    part: PartUse,
) -> (OptionRow, PartUse) {
    (OptionRow { name, other, values, is_abbreviated: true }, part)
}

const NO_WORD: PartUse = Foreign(Refused, "no word without an option is taken");
const PAGSH: PartUse = Foreign(Refused, "'rialto pagsh' gives a shell tokens of its own");

/// The programs.
pub(super) const PROGRAMS: &[ProgramRow] = &[
    ProgramRow {
        name: "aklog",
        command: &["login", "--kerberos"],
        word: Cell,
        options: &[
            option("cell", Some("c"), OptionValues::One, Cell),
            option("path", Some("p"), OptionValues::One, Own("--path")),
            flag("help", Own("--help")),
            flag("force", Foreign(AlwaysSo, "each login gets a new token")),
            flag("noprdb", Foreign(AlwaysSo, "the ticket names the user")),
            flag("d", Foreign(NoMeaning, "'rialto tokens' shows what was got, RIALTO_LOG more")),
            flag("hosts", Foreign(NoMeaning, "a token is for all servers of the cell")),
            flag("zsubs", Foreign(NoMeaning, "there are no Zephyr subscriptions")),
            flag("linked", Foreign(NoMeaning, "cells are not linked")),
            flag("insecure_des", Foreign(Refused, "DES is not used")),
            flag("524", Foreign(Refused, "tickets of Kerberos 4 are not used")),
            flag("noauth", Foreign(Refused, "it would do nothing")),
            flag("setpag", PAGSH),
            value("k", Foreign(Refused, "'kinit USER@REALM' chooses the realm")),
        ],
    },
    ProgramRow {
        name: "klog",
        command: &["login"],
        word: User,
        options: &[
            value("principal", User),
            value("cell", Cell),
            flag("pipe", Own("--password-stdin")),
            flag("help", Own("--help")),
            flag("silent", Foreign(AlwaysSo, "nothing else is printed")),
            flag("x", Foreign(AlwaysSo, "OpenAFS ignores it too")),
            flag("noprdb", Foreign(AlwaysSo, "the cell names the user")),
            value("lifetime", Foreign(NoMeaning, "a token is renewed until the login ends")),
            flag("tmp", Foreign(NoMeaning, "no ticket file is made")),
            flag("unwrap", Foreign(NoMeaning, "there is no ticket")),
            value("password", Foreign(Refused, "other users would see it: -pipe reads it")),
            value("k", Foreign(Refused, "'kinit USER@REALM' and 'aklog' log in by Kerberos")),
            flag("insecure_des", Foreign(Refused, "DES is not used")),
            flag("setpag", PAGSH),
        ],
    },
    ProgramRow {
        name: "klog.krb5",
        command: &["login", "--kerberos"],
        word: Principal,
        options: &[
            value("principal", Principal),
            value("cell", Cell),
            flag("pipe", Foreign(AlwaysSo, "kinit reads the password from a pipe")),
            flag("help", Own("--help")),
            flag("tmp", Own("--keep-ticket")),
            flag("silent", Foreign(AlwaysSo, "nothing else is printed")),
            flag("x", Foreign(AlwaysSo, "OpenAFS ignores it too")),
            flag("noprdb", Foreign(AlwaysSo, "the ticket names the user")),
            value("lifetime", Foreign(NoMeaning, "the realm gives the ticket's lifetime")),
            flag("unwrap", Foreign(NoMeaning, "there is no key of Kerberos 4 in the token")),
            value("password", Foreign(Refused, "other users would see it: -pipe reads it")),
            value("k", Foreign(Refused, "-principal USER@REALM chooses the realm")),
            flag("insecure_des", Foreign(Refused, "DES is not used")),
            flag("setpag", PAGSH),
        ],
    },
    ProgramRow {
        name: "unlog",
        command: &["logout"],
        word: NO_WORD,
        options: &[value("cell", Cell), flag("help", Own("--help"))],
    },
    ProgramRow {
        name: "tokens",
        command: &["tokens"],
        word: NO_WORD,
        options: &[flag("help", Own("--help"))],
    },
    ProgramRow {
        name: "kpasswd",
        command: &["passwd"],
        word: User,
        options: &[
            value("principal", User),
            value("cell", Cell),
            flag("pipe", Own("--password-stdin")),
            flag("help", Own("--help")),
            flag("x", Foreign(AlwaysSo, "OpenAFS ignores it too")),
            value("password", Foreign(Refused, "other users would see it: -pipe reads it")),
            value("newpassword", Foreign(Refused, "other users would see it: -pipe reads it")),
            value("servers", Foreign(NoMeaning, "the cell's database has the passwords")),
        ],
    },
];

/// Reads the words after a program's name. `of_cell`: the words that name a cell here.
///
/// # Errors
/// As for a suite.
pub(super) fn read_program(
    program: &ProgramRow,
    words: &[OsString],
    of_cell: &dyn Fn(&OsStr) -> Vec<OsString>,
    user: Option<OsString>,
) -> Result<ReadLine, Failure> {
    let mut line = ReadLine::default();
    line.words.extend(program.command.iter().map(OsString::from));
    let rows: Vec<OptionRow> = program.options.iter().map(|(row, _)| *row).collect();
    let (mut named, mut is_help) = (None, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (name, part, value) = if is_option(word) || word == "-524" {
            let (typed, mut value) = split_option(word);
            let meant = meant_option(program.name, &typed, &rows, &[])?;
            let MeantOption::Foreign(row) = meant else {
                return Err(refusal(&format!("-{typed}"), "there is no such option"));
            };
            if row.values != OptionValues::None && value.is_none() {
                value = words.next().cloned();
                if value.is_none() {
                    return Err(refusal(&format!("-{}", row.name), "its value is missing"));
                }
            }
            let part = program.options.iter().find(|(one, _)| *one == row).map(|(_, part)| *part);
            (format!("-{}", row.name), part.unwrap_or(NO_WORD), value)
        } else {
            (word.to_string_lossy().into_owned(), program.word, Some(word.clone()))
        };
        match part {
            Own(own) => {
                is_help |= own == "--help";
                line.words.push(own.into());
                line.words.extend(value);
            }
            Cell => line.words.extend(of_cell(&value.unwrap_or_default())),
            User | Principal if named.is_some() => {
                return Err(refusal(&name, "a user is named already"));
            }
            User | Principal => named = value,
            Foreign(AlwaysSo, _) => {}
            Foreign(NoMeaning, why) => line.notes.push(format!("{name} does nothing: {why}")),
            Foreign(Refused, why) => return Err(refusal(&name, why)),
        }
    }
    // klog and kpasswd without a name mean the user who types it.
    match program.word {
        User if !is_help => line.words.extend(named.or(user)),
        Principal if !is_help => {
            let named = named.or(user).unwrap_or_default();
            line.words.extend(["--kinit".into(), named]);
        }
        _ => {}
    }
    Ok(line)
}

fn refusal(name: &str, why: &str) -> Failure {
    Failure::new(format!("reading {name}"), why).wrong_usage()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(String, usize), String> {
        let mut words = line.split(' ').map(OsString::from);
        let name = words.next().unwrap_or_default();
        let program = PROGRAMS.iter().find(|row| name == row.name).expect("a program");
        let of_cell = |cell: &OsStr| vec!["--cell".into(), cell.to_owned()];
        let words: Vec<OsString> = words.collect();
        let read = read_program(program, &words, &of_cell, Some("me".into()));
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        read.map(|line| {
            (line.words.iter().map(text).collect::<Vec<_>>().join(" "), line.notes.len())
        })
        .map_err(|failure| failure.to_string())
    }

    #[test]
    fn programs_of_openafs_are_commands_of_this_one() {
        for (typed, meant, notes) in [
            ("aklog", "login --kerberos", 0),
            ("aklog -d -force", "login --kerberos", 1),
            ("aklog -c there", "login --kerberos --cell there", 0),
            ("aklog there", "login --kerberos --cell there", 0),
            ("aklog -pa /afs/there", "login --kerberos --path /afs/there", 0),
            ("klog", "login me", 0),
            ("klog joe -lifetime 5:00", "login joe", 1),
            ("klog -prin joe -pip --cell=there", "login --password-stdin --cell there joe", 0),
            ("klog -help", "login --help", 0),
            ("klog.krb5", "login --kerberos --kinit me", 0),
            ("klog.krb5 joe@R -tm -pipe", "login --kerberos --keep-ticket --kinit joe@R", 0),
            ("klog.krb5 -prin joe -c there", "login --kerberos --cell there --kinit joe", 0),
            ("unlog -c there", "logout --cell there", 0),
            ("tokens", "tokens", 0),
            ("kpasswd joe", "passwd joe", 0),
            ("kpasswd", "passwd me", 0),
        ] {
            assert_eq!(read(typed), Ok((meant.to_owned(), notes)), "{typed}");
        }
    }

    #[test]
    fn a_password_on_the_command_line_is_refused() {
        for (typed, why) in [
            ("klog joe -password secret", "other users would see it"),
            ("klog.krb5 joe -password secret", "other users would see it"),
            ("klog joe -pas", "its value is missing"),
            ("klog joe jane", "named already"),
            ("klog -p joe", "it may mean -password, -pipe, -principal"),
            ("aklog -setpag", "rialto pagsh"),
            ("aklog -zork", "no such option"),
            ("tokens joe", "no word"),
            ("aklog -524", "Kerberos 4"),
        ] {
            let refused = read(typed).expect_err(typed);
            assert!(refused.contains(why) && !refused.contains("secret"), "{typed}: {refused}");
        }
    }
}
