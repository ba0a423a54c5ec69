//! Translates the command line for the argument parser: OpenAFS writes long options with one dash,
//! and has separate programs `vos`, `fs` and `pts`; mount(8) and umount(8) run helpers that are
//! named for the type of the file system.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Commands with OpenAFS's options, which links can name as programs.
const SUITES: [&str; 3] = ["vos", "fs", "pts"];

/// Helpers of mount(8) and umount(8), for the type in fstab and for that in the table of mounts.
const HELPERS: [(&str, &str); 4] = [
    ("mount.rialto", "mount.rialto"),
    ("mount.fuse.rialto", "mount.rialto"),
    ("umount.rialto", "umount"),
    ("umount.fuse.rialto", "umount"),
];

/// Returns the arguments with the command in its place and two dashes before each of its options.
pub fn typed(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
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
    if arguments.get(1).is_some_and(|command| SUITES.iter().any(|suite| command == suite)) {
        let options = arguments.iter_mut().skip(2).take_while(|argument| *argument != "--");
        options.filter(|argument| has_one_dash(argument)).for_each(|argument| {
            let mut option = OsString::from("-");
            option.push(&*argument);
            *argument = option;
        });
    }
    arguments
}

/// `-name`, but neither `-h` nor `--name` nor a number.
fn has_one_dash(argument: &OsStr) -> bool {
    matches!(argument.as_bytes(), [b'-', first, _, ..] if first.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> String {
        let arguments = typed(line.split(' ').map(OsString::from));
        arguments.iter().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn options_have_one_or_two_dashes_and_links_name_suites() {
        assert_eq!(
            of("rialto vos create -server s -name --quick"),
            "rialto vos create --server s --name --quick"
        );
        assert_eq!(of("/usr/sbin/vos examine -id 5 -h"), "/usr/sbin/vos vos examine --id 5 -h");
        assert_eq!(of("fs mkmount -dir x -vol y"), "fs fs mkmount --dir x --vol y");
        assert_eq!(of("vos create -- -name"), "vos vos create -- -name");
        assert_eq!(of("rialto up -dir x"), "rialto up -dir x");
        assert_eq!(of("rialto"), "rialto");
        assert_eq!(
            of("/sbin/mount.rialto cell /mnt -o ro"),
            "/sbin/mount.rialto mount.rialto cell /mnt -o ro"
        );
        assert_eq!(of("umount.fuse.rialto /mnt -f"), "umount.fuse.rialto umount /mnt -f");
    }
}
