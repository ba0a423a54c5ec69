//! Translates the command line for the argument parser: OpenAFS has separate programs `vos`, `fs`
//! and `pts`, others for tokens, and words of its own for all of them (`openafs`); mount(8) and
//! umount(8) run helpers that are named for the type of the file system.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use local::failure::Failure;

use super::openafs::{ReadLine, is_program, program_line, read_line};

/// Commands with OpenAFS's options, which links can name as programs.
const SUITES: [&str; 3] = ["vos", "fs", "pts"];

/// Programs that are one command: helpers of mount(8) and umount(8), for the type in fstab and for
/// that in the table of mounts; and a `gzip`.
const HELPERS: [(&str, &str); 5] = [
    ("mount.rialto", "mount.rialto"),
    ("mount.fuse.rialto", "mount.rialto"),
    ("umount.rialto", "umount"),
    ("umount.fuse.rialto", "umount"),
    ("rialto-gzip", "gzip"),
];

/// Returns the arguments with the command in its place, and OpenAFS's words as the parser has them.
/// Prints remarks about options that do nothing.
///
/// # Errors
/// If OpenAFS's words are ambiguous or mean nothing here.
pub fn typed(arguments: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, Failure> {
    let mut arguments: Vec<OsString> = arguments.collect();
    let called =
        arguments.first().and_then(|program| Path::new(program).file_name()).map(OsStr::to_owned);
    if let Some(suite) =
        SUITES.into_iter().find(|suite| called.as_ref().is_some_and(|name| name == suite))
    {
        arguments.insert(1, suite.into());
    }
    let helper = |(name, _): &(&str, &str)| called.as_ref().is_some_and(|called| called == name);
    if let Some((_, command)) = HELPERS.into_iter().find(helper) {
        arguments.insert(1, command.into());
    }
    if let Some(program) = called.filter(|name| is_program(name)) {
        let ReadLine { words, notes } = program_line(&program, &arguments[1..])?;
        notes.iter().for_each(|note| eprintln!("rialto: {note}"));
        arguments.truncate(1);
        arguments.extend(words);
        return Ok(arguments);
    }
    let suite =
        SUITES.into_iter().find(|suite| arguments.get(1).is_some_and(|command| command == suite));
    let Some(suite) = suite else { return Ok(arguments) };
    let ReadLine { words, notes } = read_line(suite, &arguments[2..])?;
    notes.iter().for_each(|note| eprintln!("rialto {suite}: {note}"));
    arguments.truncate(2);
    if words.first().is_some_and(|word| word == "version") {
        // That of the program, which all its commands share.
        arguments.truncate(1);
        arguments.push("--version".into());
        return Ok(arguments);
    }
    arguments.extend(words);
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> String {
        let arguments = typed(line.split(' ').map(OsString::from)).expect("a good line");
        arguments.iter().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn options_have_one_or_two_dashes_and_links_name_suites() {
        assert_eq!(
            of("rialto vos create -server s -name --maxq=5"),
            "rialto vos create --server s --name --maxquota=5"
        );
        assert_eq!(of("/usr/sbin/vos examine -id 5 -h"), "/usr/sbin/vos vos examine --id 5 --help");
        assert_eq!(of("fs mkmount -dir x -vol y"), "fs fs mkmount --dir x --vol y");
        assert_eq!(of("vos create -- -name"), "vos vos create -- -name");
        assert_eq!(of("vos version"), "vos --version");
        assert_eq!(of("/usr/bin/unlog -c x.test"), "/usr/bin/unlog logout --cell x.test");
        assert_eq!(of("rialto up -dir x"), "rialto up -dir x");
        assert_eq!(of("rialto"), "rialto");
        assert_eq!(
            of("/sbin/mount.rialto cell /mnt -o ro"),
            "/sbin/mount.rialto mount.rialto cell /mnt -o ro"
        );
        assert_eq!(of("umount.fuse.rialto /mnt -f"), "umount.fuse.rialto umount /mnt -f");
    }
}
