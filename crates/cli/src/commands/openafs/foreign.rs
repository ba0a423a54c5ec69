//! Options and verbs that OpenAFS has and this program has not, and why. The table in
//! `docs/operations/openafs-commands.md` is compared with this one by a test.

/// How an option is met that only OpenAFS has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForeignUse {
    /// It asks for something that is always so: accepted.
    AlwaysSo,
    /// It changes nothing here: accepted, with a note.
    NoMeaning,
    /// The command would do something else than the caller expects: refused.
    Refused,
}

use ForeignUse::{AlwaysSo, NoMeaning, Refused};

/// Suite, verb (`*`: all of them), option, how it is met, and why.
pub(super) const FOREIGN_OPTIONS: &[(&str, &str, &str, ForeignUse, &str)] = &[
    ("vos", "*", "encrypt", AlwaysSo, "connections are encrypted, unless the cell is 'clear'"),
    ("vos", "*", "noauth", NoMeaning, "the server decides who asks, by the socket or the login"),
    ("vos", "*", "noresolve", NoMeaning, "servers are shown by their names in the cell"),
    ("vos", "*", "config", Refused, "no directory of OpenAFS is read; -dir or -cell name a cell"),
    ("vos", "changeaddr", "force", NoMeaning, "a server has any number of addresses"),
    ("vos", "clone", "toid", Refused, "the cell gives the number"),
    ("vos", "clone", "offline", Refused, "'vos offline' takes it offline afterwards"),
    ("vos", "copy", "fromserver", NoMeaning, "the cell knows where the volume is"),
    ("vos", "copy", "frompartition", NoMeaning, "the cell knows where the volume is"),
    ("vos", "copy", "offline", Refused, "'vos offline' takes it offline afterwards"),
    ("vos", "copy", "readonly", Refused, "'vos addsite' and 'vos release' make read-only copies"),
    ("vos", "copy", "live", AlwaysSo, "clients use the volume while it is copied"),
    ("vos", "create", "roid", Refused, "'vos addsite -roid' gives it with the first site"),
    (
        "vos",
        "create",
        "encrypt",
        NoMeaning,
        "connections are encrypted anyway; -encrypt-at-rest encrypts the volume on its disk",
    ),
    ("vos", "dump", "clone", AlwaysSo, "a dump of a read-write volume is of a sealed state"),
    ("vos", "dump", "omitdirs", AlwaysSo, "an incremental dump has only directories that changed"),
    ("vos", "examine", "extended", NoMeaning, "accesses are not counted by volume"),
    ("vos", "listaddrs", "uuid", Refused, "-host takes a server's id too"),
    ("vos", "listvol", "extended", NoMeaning, "accesses are not counted by volume"),
    ("vos", "move", "live", AlwaysSo, "clients use the volume while it is moved"),
    ("vos", "offline", "sleep", Refused, "'vos online' ends it"),
    ("vos", "offline", "busy", NoMeaning, "clients are told that it is offline"),
    ("vos", "release", "force", NoMeaning, "a site that has lost something always fetches all"),
    ("vos", "release", "force-reclone", AlwaysSo, "the current state is always released"),
    ("vos", "release", "stayonline", AlwaysSo, "readers see the old state or the new one"),
    ("vos", "restore", "offline", Refused, "'vos offline' takes it offline afterwards"),
    ("vos", "restore", "nodelete", Refused, "a restored volume is exactly what was dumped"),
    ("vos", "setfields", "clearuse", NoMeaning, "accesses are not counted by volume"),
    ("vos", "setfields", "clearVolUpCounter", NoMeaning, "there is no such counter"),
    ("vos", "shadow", "fromserver", NoMeaning, "the cell knows where the volume is"),
    ("vos", "shadow", "frompartition", NoMeaning, "the cell knows where the volume is"),
    ("vos", "shadow", "readonly", AlwaysSo, "'vos clone -readwrite' makes a writable volume of it"),
    ("vos", "shadow", "live", AlwaysSo, "clients use the volume while it is copied"),
    ("vos", "shadow", "incremental", AlwaysSo, "only what changed is sent, if one is there"),
    ("pts", "*", "auth", AlwaysSo, "the server always decides who asks"),
    ("pts", "*", "encrypt", AlwaysSo, "connections are encrypted, unless the cell is 'clear'"),
    ("pts", "*", "noauth", NoMeaning, "the server decides who asks, by the socket or the login"),
    ("pts", "*", "config", Refused, "no directory of OpenAFS is read; -dir or -cell name a cell"),
    ("pts", "*", "test", Refused, "-dir or -cell name another cell"),
    ("fs", "checkservers", "all", AlwaysSo, "all servers of the tree's cell are asked"),
    ("fs", "checkservers", "cell", Refused, "-path names a place of the tree of that cell"),
    ("fs", "checkservers", "fast", NoMeaning, "each server is asked"),
    ("fs", "checkservers", "interval", Refused, "a lost connection is noticed at once"),
    ("fs", "copyacl", "id", Refused, "new directories copy the list of their directory"),
    ("fs", "copyacl", "if", Refused, "new files have no lists of their own"),
    ("fs", "getcacheparms", "excessive", NoMeaning, "there is no more to show"),
    ("fs", "getcacheparms", "files", NoMeaning, "a cached file takes the space of its data"),
    ("fs", "getserverprefs", "file", Refused, "send the output to the file: > FILE"),
    ("fs", "getserverprefs", "numeric", NoMeaning, "--json has the addresses"),
    ("fs", "getserverprefs", "vlservers", Refused, "one server has the cell's database"),
    ("fs", "newcell", "linkedcell", Refused, "cells are not linked"),
    ("fs", "uuid", "generate", Refused, "a mount with another --cache-dir is another client"),
    ("fs", "setserverprefs", "file", Refused, "-servers takes all of them: $(cat FILE)"),
    ("fs", "setserverprefs", "stdin", Refused, "-servers takes all of them: $(cat)"),
    ("fs", "setserverprefs", "vlservers", Refused, "one server has the cell's database"),
    (
        "fs",
        "setvol",
        "offlinemsg",
        Refused,
        "a volume has no message; 'vos offline' takes it offline",
    ),
];

/// Suite, verb, and why there is none, with the remedy.
pub(super) const FOREIGN_VERBS: &[(&str, &str, &str)] = &[
    ("vos", "apropos", "'vos --help' lists all verbs"),
    ("vos", "remaddrs", "'vos changeaddr -remove' removes an address"),
    (
        "vos",
        "setaddrs",
        "a server enters its addresses at its start; 'vos changeaddr' corrects them",
    ),
    ("pts", "apropos", "'pts --help' lists all verbs"),
    ("fs", "apropos", "'fs --help' lists all verbs"),
    ("fs", "bypassthreshold", "large files are read past the disk cache where that is faster"),
    ("fs", "discon", "a client waits for its servers; it does not work without them"),
    ("fs", "cscpolicy", "there is no client for Windows"),
    ("fs", "exportafs", "there is no translator for NFS"),
    ("fs", "getcellstatus", "programs of other cells never get their owner's rights"),
    ("fs", "getclientaddrs", "servers answer on the connection that the client opened"),
    ("fs", "listaliases", "a cell has one name; a symbolic link in the root gives it another"),
    ("fs", "messages", "messages go to the log of the mount; RIALTO_LOG says which"),
    ("fs", "minidump", "there is no client for Windows; 'gcore' dumps the mount's process"),
    ("fs", "monitor", "'fs getcacheparms' shows the cache, RIALTO_LOG=debug each request"),
    ("fs", "newalias", "a cell has one name; a symbolic link in the root gives it another"),
    ("fs", "nukenfscreds", "there is no translator for NFS"),
    ("fs", "precache", "the cache has no blocks to set aside"),
    ("fs", "rxstatpeer", "'rialto status --json' has the times of requests"),
    ("fs", "rxstatproc", "'rialto status --json' has the times of requests"),
    ("fs", "setcbaddr", "servers answer on the connection that the client opened"),
    ("fs", "setcell", "programs of other cells never get their owner's rights"),
    ("fs", "setclientaddrs", "servers answer on the connection that the client opened"),
    ("fs", "trace", "RIALTO_LOG=trace logs what a mount does"),
];

/// How an option is met, and why; `None`: it is unknown.
pub(super) fn foreign_option(
    suite: &str,
    verb: &str,
    option: &str,
) -> Option<(ForeignUse, &'static str)> {
    let find = |verb: &str| {
        FOREIGN_OPTIONS.iter().find(|(of, at, name, ..)| (*of, *at, *name) == (suite, verb, option))
    };
    // A row of one verb precedes those of all verbs.
    let row = find(verb).or_else(|| find("*"));
    row.map(|(.., how, why)| (*how, *why))
}

/// Why there is no such verb; `None`: it is unknown.
pub(super) fn foreign_verb(suite: &str, verb: &str) -> Option<&'static str> {
    FOREIGN_VERBS.iter().find(|(of, name, _)| *of == suite && *name == verb).map(|(.., why)| *why)
}
