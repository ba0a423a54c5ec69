"""What of fs is accepted to differ from OpenAFS, each with its reason."""

# The streams that are compared: the standard output. Messages are the programs' own.
STREAMS = ">"

LINES = {
    "bytes-used": (
        "both",
        r"^(\S+ (?:no limit|[\d.]+(?:\w| \wiB)?)) [\d.]+(?:\w| \wiB)? (\d+%) \d+%$",
        r"\1 USED \2 DISK",
        "names and access lists take other bytes, on another disk",
    ),
    "blocks-used": (
        "both",
        r"^(Current blocks used are|The partition has) .*$",
        r"\1 BLOCKS",
        "names and access lists take other bytes, on another disk",
    ),
    "disk": (
        "both",
        r"^(\S+) \d+ \d+ \d+ \d+%$",
        r"\1 DISK",
        "it is another disk",
    ),
    "files-by-number": (
        "both",
        r"\((5368\d+)\.(?!1\.1\))\d+\.\d+\)",
        r"(\1.FILE)",
        "files and directories get other numbers; the root of a volume has the same",
    ),
    "no-offline-message": (
        "openafs",
        r"^Current offline message is .*$",
        None,
        "a volume has no message",
    ),
    "ranks": (
        "both",
        r"^S (\d\d)0\d\d$",
        r"S \g<1>0NN",
        "OpenAFS adds a small random number to a server's rank",
    ),
    "dynamic-root": (
        "openafs",
        r"^Cell dynroot on hosts\.$",
        None,
        "the dynamic root is no cell",
    ),
}

ORDER = (set(), "")

# What is said here instead is in here.txt.
COMMANDS = {
    "more-names": (
        {"fs primarycell", "fs removemount -dir M/none M/own"},
        "second names of 'wscell' and 'rmmount', which this version of OpenAFS does not have",
    ),
    "human": (
        {"fs lq M/work -human"},
        "units are KiB and MiB, and are written so",
    ),
    "no-messages": (
        {"fs setvol M/work -offlinemsg gone"},
        "a volume has no message: the command is refused, and says so",
    ),
    "cache": (
        {
            "fs getcacheparms",
            "fs setcachesize 10000",
            "fs cachesize -reset",
        },
        "a mount on the server's machine has no cache of its own; OpenAFS's was in memory, and "
        "takes no -reset",
    ),
    "sysnames": (
        {"fs sysname"},
        "the list begins with more general names too",
    ),
    "stores-wait-for-nothing": (
        {"fs sb -allfiles 10"},
        "a file is at its server when close(2) returns",
    ),
    "cells": (
        {"fs listaliases", "fs getcellstatus session.test"},
        "there are no aliases, and no cell whose programs get their owner's rights",
    ),
    "usage-codes": (
        {
            "fs mkmount",
            "fs setacl",
            "fs setcrypt zork",
            "fs listacl -zork",
            "fs zork",
            "fs l",
        },
        "a wrong usage ends with 1; OpenAFS's fs has a code for each kind of it",
    ),
    "version": (
        {"fs version"},
        "the version is that of this program",
    ),
}
