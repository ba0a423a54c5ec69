//! The command lines of `vos`, `fs`, `pts` and the programs for tokens (`programs.rs`) as OpenAFS
//! reads them: the one rule for all verbs.
//!
//! Options have one dash or two. A verb or option may be shortened to any beginning that no other
//! one has. OpenAFS's own decide first (`verbs.rs`): `vos create -m 5` sets the quota, though
//! `-model` is an option here too; those that only this program has count where OpenAFS has none.
//! An exact name comes before all beginnings, `vos e` is examine. More than one candidate: the
//! line is refused, and the message names them.
//!
//! The definitions of the commands (`clap`) say which options there are here. One that OpenAFS has
//! and they have not is in `foreign.rs`: it is accepted with a note, or refused with the remedy.
//! The result has full names and two dashes, and the argument parser guesses nothing.

mod exit_codes;
mod foreign;
mod programs;
mod verbs;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use local::failure::Failure;

use super::Cli;
use super::fs::tree;
pub use exit_codes::ProgramExit;
use foreign::{ForeignUse, foreign_option, foreign_verb};
use programs::{PROGRAMS, read_program};
use verbs::{OptionRow, OptionValues, VerbRow, common, verbs};

/// A command line for the argument parser.
#[derive(Debug, Default)]
pub(super) struct ReadLine {
    pub words: Vec<OsString>,
    /// Remarks about options that mean nothing here.
    pub notes: Vec<String>,
}

/// The meaning of a typed option.
#[derive(Debug, PartialEq, Eq)]
enum MeantOption {
    /// The full name.
    Own(String),
    /// One that only OpenAFS has.
    Foreign(OptionRow),
    /// Left to the argument parser, which refuses it.
    Unknown,
}

/// Reads the words after the suite's name.
///
/// # Errors
/// If a verb or option is ambiguous, or OpenAFS has it and there is none here.
pub(super) fn read_line(suite: &str, words: &[OsString]) -> Result<ReadLine, Failure> {
    let mut command = Cli::command();
    let mut command = command.find_subcommand_mut(suite).expect("a suite is a command").clone();
    command.build();
    let mut reader = Reader { suite, command: &command, row: None, line: ReadLine::default() };
    let mut follows = OptionValues::None;
    let mut is_dropped = false;
    for (at, word) in words.iter().enumerate() {
        if word == "--" {
            reader.line.words.extend_from_slice(&words[at..]);
            break;
        }
        if is_option(word) {
            (follows, is_dropped) = reader.option(word)?;
            continue;
        }
        match follows {
            _ if is_dropped && follows != OptionValues::None => {}
            OptionValues::None if reader.command.has_subcommands() => reader.verb(word)?,
            _ => reader.line.words.push(word.clone()),
        }
        if follows == OptionValues::One {
            follows = OptionValues::None;
        }
    }
    Ok(reader.line)
}

/// Whether a link of this name makes the program one of OpenAFS's.
pub(super) fn is_program(name: &OsStr) -> bool {
    PROGRAMS.iter().any(|program| name == program.name)
}

/// Reads the words after such a program's name; the result begins with the command.
///
/// # Errors
/// As [`read_line`].
pub(super) fn program_line(name: &OsStr, words: &[OsString]) -> Result<ReadLine, Failure> {
    let program = PROGRAMS.iter().find(|program| name == program.name).expect("it is a program");
    read_program(program, words, &of_cell, std::env::var_os("USER"))
}

/// The words that name a cell: a place in its mounted tree, which keeps the token for all
/// processes, or else its name.
fn of_cell(cell: &OsStr) -> Vec<OsString> {
    let name = cell.to_string_lossy();
    let is_it = |place: &Path| tree::get(place, "rialto.cell").is_ok_and(|of| of == *name);
    let in_root = Path::new("/afs").join(cell);
    let mounted = tree::some_place(None).ok().into_iter().chain([in_root]);
    match mounted.into_iter().find(|place| is_it(place)) {
        Some(place) => vec!["--path".into(), place.into()],
        None => vec!["--cell".into(), cell.to_owned()],
    }
}

/// An option's name, and the value behind `=`.
fn split_option(word: &OsStr) -> (String, Option<OsString>) {
    let bytes = word.as_bytes();
    let bare = bytes.strip_prefix(b"--").or_else(|| bytes.strip_prefix(b"-")).unwrap_or(bytes);
    let end = bare.iter().position(|byte| *byte == b'=').unwrap_or(bare.len());
    let value = bare.get(end + 1..).map(|value| OsString::from_vec(value.to_vec()));
    (String::from_utf8_lossy(&bare[..end]).into_owned(), value)
}

/// `-name` or `--name`, but not a number, `-` or `--`.
fn is_option(word: &OsStr) -> bool {
    match word.as_bytes() {
        [b'-', b'-', first, ..] | [b'-', first, ..] => first.is_ascii_alphabetic(),
        _ => false,
    }
}

struct Reader<'c> {
    suite: &'c str,
    /// The suite, its verb, or a verb of that.
    command: &'c Command,
    /// The verb, if OpenAFS has it.
    row: Option<&'static VerbRow>,
    line: ReadLine,
}

impl Reader<'_> {
    fn name(&self) -> String {
        let verb = self.command.get_name();
        if verb == self.suite { verb.to_owned() } else { format!("{} {verb}", self.suite) }
    }

    /// Reads an option. Returns the values that follow, and whether they are dropped with it.
    fn option(&mut self, word: &OsStr) -> Result<(OptionValues, bool), Failure> {
        let (typed, value) = split_option(word);
        let options: Vec<OptionRow> = match self.row {
            Some(row) => row.options().collect(),
            None => common(self.suite).collect(),
        };
        let (own, given) = (own_options(self.command), value.is_some());
        match meant_option(&self.name(), &typed, &options, &own)? {
            MeantOption::Own(name) => {
                let values = if given { OptionValues::None } else { values(self.command, &name) };
                let mut full = OsString::from(format!("--{name}"));
                if let Some(value) = value {
                    full.push("=");
                    full.push(value);
                }
                self.line.words.push(full);
                Ok((values, false))
            }
            // `vos help -topic VERB`.
            MeantOption::Foreign(OptionRow { name: "topic", .. }) => {
                Ok((OptionValues::Many, false))
            }
            MeantOption::Foreign(option) => {
                let verb = self.row.map_or("*", |row| row.name);
                match foreign_option(self.suite, verb, option.name) {
                    Some((ForeignUse::AlwaysSo, _)) => {}
                    Some((ForeignUse::NoMeaning, why)) => {
                        self.line.notes.push(format!("-{} does nothing: {why}", option.name));
                    }
                    Some((ForeignUse::Refused, why)) => {
                        let what = format!("reading the option -{}", option.name);
                        return Err(Failure::new(what, why).wrong_usage());
                    }
                    None => self.line.words.push(format!("--{}", option.name).into()),
                }
                Ok((if given { OptionValues::None } else { option.values }, true))
            }
            MeantOption::Unknown => {
                let is_long = typed.len() > 1 && !word.as_bytes().starts_with(b"--");
                let mut left = OsString::from(if is_long { "-" } else { "" });
                left.push(word);
                self.line.words.push(left);
                Ok((OptionValues::None, false))
            }
        }
    }

    fn verb(&mut self, word: &OsStr) -> Result<(), Failure> {
        let typed = word.to_string_lossy();
        let is_first = self.command.get_name() == self.suite;
        let rows: Vec<&VerbRow> = verbs(self.suite).filter(|_| is_first).collect();
        let own = own_verbs(self.command);
        let Some(meant) = meant_verb(self.suite, &typed, &rows, &own)? else {
            self.line.words.push(word.to_owned());
            return Ok(());
        };
        if is_first {
            self.row = rows.into_iter().find(|row| row.names().any(|name| name == meant));
        }
        let full = self.row.map_or(meant.as_str(), |row| if is_first { row.name } else { &meant });
        if let Some(command) = find(self.command, full).or_else(|| find(self.command, &meant)) {
            self.line.words.push(command.get_name().into());
            self.command = command;
            return Ok(());
        }
        match foreign_verb(self.suite, full) {
            Some(why) => {
                let what = format!("reading the command {} {full}", self.suite);
                Err(Failure::new(what, why).wrong_usage())
            }
            None => {
                self.line.words.push(full.into());
                Ok(())
            }
        }
    }
}

fn find<'c>(command: &'c Command, name: &str) -> Option<&'c Command> {
    command
        .get_subcommands()
        .find(|one| one.get_name() == name || one.get_all_aliases().any(|other| other == name))
}

/// The names of options, each with whether it may be shortened to its beginning.
fn own_options(command: &Command) -> Vec<(String, bool)> {
    let mut names = Vec::new();
    for option in command.get_arguments() {
        names.extend(option.get_long().map(|name| (name.to_owned(), !option.is_hide_set())));
        let others = option.get_all_aliases().unwrap_or_default();
        names.extend(others.into_iter().map(|name| (name.to_owned(), false)));
    }
    names
}

fn own_verbs(command: &Command) -> Vec<String> {
    let names = |one: &Command| {
        let others = one.get_all_aliases().map(str::to_owned).collect::<Vec<_>>();
        std::iter::once(one.get_name().to_owned()).chain(others)
    };
    command.get_subcommands().filter(|one| !one.is_hide_set()).flat_map(names).collect()
}

/// The values of an option of this program.
fn values(command: &Command, name: &str) -> OptionValues {
    let is_it = |option: &&Arg| {
        let others = option.get_all_aliases().unwrap_or_default();
        option.get_long() == Some(name) || others.contains(&name)
    };
    match command.get_arguments().find(is_it) {
        Some(option) if option.get_action().takes_values() => {
            let most = option.get_num_args().map_or(1, |range| range.max_values());
            if most > 1 { OptionValues::Many } else { OptionValues::One }
        }
        _ => OptionValues::None,
    }
}

/// See the head of the file.
///
/// # Errors
/// If it is ambiguous.
fn meant_option(
    command: &str,
    typed: &str,
    options: &[OptionRow],
    own: &[(String, bool)],
) -> Result<MeantOption, Failure> {
    let is_own = |name: &str| own.iter().any(|(own, _)| own == name);
    let of_row = |row: &OptionRow| {
        if is_own(row.name) {
            MeantOption::Own(row.name.to_owned())
        } else {
            MeantOption::Foreign(*row)
        }
    };
    if is_own(typed) {
        return Ok(MeantOption::Own(typed.to_owned()));
    }
    let is_exact = |row: &&OptionRow| row.name == typed || row.other == Some(typed);
    if let Some(row) = options.iter().find(is_exact) {
        return Ok(of_row(row));
    }
    if typed == "h" {
        return Ok(MeantOption::Own("help".to_owned()));
    }
    let begins = |row: &&OptionRow| row.is_abbreviated && row.name.starts_with(typed);
    let rows: Vec<&OptionRow> = options.iter().filter(begins).collect();
    match rows[..] {
        [row] => return Ok(of_row(row)),
        [] => {}
        _ => return Err(ambiguous(command, "-", typed, rows.iter().map(|row| row.name))),
    }
    let begins = |(name, shortened): &&(String, bool)| *shortened && name.starts_with(typed);
    let found: Vec<&str> = own.iter().filter(begins).map(|(name, _)| name.as_str()).collect();
    match found[..] {
        [name] => Ok(MeantOption::Own(name.to_owned())),
        [] => Ok(MeantOption::Unknown),
        _ => Err(ambiguous(command, "-", typed, found.into_iter())),
    }
}

/// One of the names of the meant verb; `None` if there is none.
///
/// # Errors
/// If it is ambiguous.
fn meant_verb(
    suite: &str,
    typed: &str,
    rows: &[&VerbRow],
    own: &[String],
) -> Result<Option<String>, Failure> {
    let is_typed = |name: &&str| *name == typed;
    let exact = rows.iter().flat_map(|row| row.names()).find(is_typed);
    if let Some(exact) = exact.or_else(|| own.iter().map(String::as_str).find(is_typed)) {
        return Ok(Some(exact.to_owned()));
    }
    let begins = |row: &&&VerbRow| row.names().any(|name| name.starts_with(typed));
    let found: Vec<&&VerbRow> = rows.iter().filter(begins).collect();
    match found[..] {
        [row] => return Ok(Some(row.name.to_owned())),
        [] => {}
        _ => return Err(ambiguous(suite, "", typed, found.iter().map(|row| row.name))),
    }
    let begins = |name: &&String| name.starts_with(typed);
    let found: Vec<&String> = own.iter().filter(begins).collect();
    match found[..] {
        [name] => Ok(Some(name.clone())),
        [] => Ok(None),
        _ => Err(ambiguous(suite, "", typed, found.iter().map(|name| name.as_str()))),
    }
}

fn ambiguous<'n>(
    command: &str,
    dash: &str,
    typed: &str,
    names: impl Iterator<Item = &'n str>,
) -> Failure {
    let mut names: Vec<String> = names.map(|name| format!("{dash}{name}")).collect();
    names.sort_unstable();
    names.dedup();
    let what = format!("reading {dash}{typed} of {command}");
    Failure::new(what, format_args!("it may mean {}", names.join(", ")))
        .mend("type more of it")
        .wrong_usage()
}

#[cfg(test)]
mod tests;
