"""Differences between OpenAFS's servers and Rialto's ports, as OpenAFS's programs show them.

A reason that begins with "to be mended" is a defect here.
"""

# Both streams are compared: the programs are the same, and their messages tell the codes.
STREAMS = ">!"

# VBUSY: what was removed before is still being removed. OpenAFS removes while the command waits.
AGAIN = r"Volume temporarily unavailable"

LINES = {
    "last-access": (
        "rialto",
        r"^Last Access DATE$",
        None,
        "the last access of a new volume is its creation",
    ),
    "root-counted": (
        "both",
        r"\b(filecount|used) [01]\b",
        r"\1 N",
        "the root directory counts as a file",
    ),
    "groups-by-one": (
        "both",
        r"(?<![\d-])-(20[5-8]|40[0-3])\b",
        "-G",
        "there is no group system:backup, so the numbers of new groups begin one earlier",
    ),
    "no-backup-group": (
        "openafs",
        r"^system:backup( -G .*)?$",
        None,
        "there is no group system:backup, so the numbers of new groups begin one earlier",
    ),
    "versions-of-databases": (
        "both",
        r"(db version is|last trans I handled was) \d+\.\d+",
        r"\1 V",
        "each database has its own",
    ),
    "times-of-databases": ("both", r"^\d+ secs ago \(at DATE\)$", "ago", "as above"),
    "versions-of-programs": (
        "both",
        r"^AFS version: .*$",
        "AFS version",
        "each server tells its own",
    ),
    "packets-and-threads": (
        "both",
        r"^(Free packets: .*|\d+ (calls waiting for a thread|threads are idle))$",
        "figures",
        "no packets and threads are kept for calls here",
    ),
}

ORDER = (
    {
        "pts listentries",
        "pts listent -g",
        "pts listentries -users -groups",
        "pts mem bob -expandgroups",
        "pts listowned alice",
        "pts listowned system:administrators",
        "vos listvldb -nosort -quiet",
    },
    "lists are sorted by number or name; OpenAFS's come in the order of its hash table",
)

# Of whole commands: name: (commands, reason). What is said here instead is in here.txt.
COMMANDS = {
    "numbers-when-needed": (
        {"vos examine home.robert", "vos examine afs.one", "vos examine afs.one -format"},
        "the numbers of the backup and read-only volumes are shown when these are there",
    ),
    "one-place-at-a-server": (
        {
            "vos move proj.copied S b S a",
            "vos move -id proj.copied -fromserver S -frompartition b -toserver S -topartition a",
            "vos examine proj.copied",
            "vos move afs.copy S b S a",
            "vos move afs.copy S a S b -live",
            "vos shadow proj.two S a S b",
            "vos shadow -id proj.two -fromserver S -frompartition a -toserver S -topartition b "
            "-incremental",
            "vos restore S b afs.back -file FILE -overwrite full",
            "vos examine afs.back",
            "vos restore S a afs.back -file FILE -id 536900100",
        },
        "a server has a volume's tree once, so it does not move from one of its partitions to "
        "another; and a copy has no date of a backup",
    ),
    "replicas-of-no-volume": (
        {"vos restore S a afs.ro -file FILE -readonly", "vos listvldb afs.ro"},
        "a read-only volume is one of a read-write one's",
    ),
    "lists-after-these": (
        {
            "vos listvol S a -quiet",
            "vos listvol S a -q",
            "vos listvol S a -fast -noauth",
            "vos listvol S b -extended",
            "vos listvldb proj.copied",
            "vos remove -id proj.copied",
            "vos remsite S a proj.one",
            "vos syncvldb S -noauth",
            "vos syncvldb -server S",
            "vos syncvldb S a",
            "vos listvldb -nosort -quiet",
            "vos examine afs.one",
            "vos offline S a afs.one.readonly",
            "vos online S a afs.one.readonly",
        },
        "the commands before, which ended otherwise, made and removed other volumes",
    ),
    "removed-by-force": (
        {"vos zap S b 536999999 -force"},
        "what cannot be removed is refused with the reason; OpenAFS's server ends",
    ),
    "administrators-name-groups": (
        {"pts creategroup nobody:x", "pts listowned system:administrators"},
        "administrators may make a group with any prefix",
    ),
    "one-instance": (
        {"bos status S", "bos status S -noauth", "bos status S -long", "bos listhosts S"},
        "one server does everything, and servers are listed by their names in the cell",
    ),
    "bos-changes-nothing": (
        {
            "bos listusers S",
            "bos listkeys S -noauth",
            "bos getrestart S",
            "bos getrestricted S",
            "bos getlog S /var/log/openafs/nothere",
            "bos salvage S a -noauth",
            "bos delete S nothere",
            "bos start S nothere",
            "bos stop S nothere",
            "bos restart S nothere",
        },
        "the system's service manager starts and stops servers, whoever asks; lists of users and "
        "keys are empty",
    ),
}
