"""What is accepted to differ from OpenAFS, each with its reason."""

# The streams that are compared: the standard output. Messages are the programs' own.
STREAMS = ">"

# Of single lines: name: (side, pattern, replacement or None to leave the line out, reason).
LINES = {
    "examine-more": (
        "rialto",
        r"^(Access (mode bits|access lists)|Read times (on|off)|At rest .*|Files \d+)$",
        None,
        "the access model, access times, encryption and count of files are shown too",
    ),
    "root-counted": (
        "both",
        r"^filecount [01]$",
        "filecount N",
        "the root directory counts as a file",
    ),
    "examine-copy": (
        "openafs",
        r"^Copy DATE$",
        None,
        "a copy on another partition or server is the same volume, with no date of its own",
    ),
    "examine-accesses": (
        "openafs",
        r"^\d+ accesses in the past day .*$",
        None,
        "accesses are not counted by volume",
    ),
    "locked-by": (
        "rialto",
        r"^(Volume is currently LOCKED): .*$",
        r"\1",
        "the operation, its leader and its beginning are named in the same line",
    ),
    "locked-for": (
        "openafs",
        r"^Volume is locked for a .* operation$",
        None,
        "the operation, its leader and its beginning are named in the same line",
    ),
    "release-figures": (
        "rialto",
        r"^(Released volume \S+ successfully): .*$",
        r"\1",
        "the bytes and servers are told too",
    ),
    "clone-named": (
        "rialto",
        r"^Created clone \S+ \(\d+\) for (\S+)$",
        r"Created clone for volume \1",
        "the clone's name and number are told too",
    ),
    "clones-are-snapshots": (
        "rialto",
        r"^(\S+ \d+) SN ",
        r"\1 BK ",
        "a clone is a kind of its own, beside the one backup volume of a group",
    ),
    "moved-by-name": (
        "rialto",
        r"^Volume \S+ (moved|copied) to (.*?)(: .* ms\))?$",
        r"Volume \1 to \2",
        "the volume is named as it was typed, and the present place is looked up",
    ),
    "moved-from": (
        "openafs",
        r"^Volume \d+ (moved|copied) from S \S+ to (.*)$",
        r"Volume \1 to \2",
        "the volume is named as it was typed, and the present place is looked up",
    ),
    "dump-figures": (
        "rialto",
        r"^Dumped volume .* in file .*$",
        None,
        "OpenAFS says it on the standard error",
    ),
    "unlocked-count": ("rialto", r"^Unlocked volumes: \d+$", None, "the count is told"),
    "synchronized-figures": (
        "both",
        r"^(VLDB( volume \S+)?|Servers?|Server S) synchronized( with .*)?$",
        "synchronized",
        "all servers are one line with the counts of what was looked at and changed",
    ),
    "groups-by-one": (
        "both",
        r"(?<![\d-])-20[5-8]\b",
        "-G",
        "there is no group system:backup, so the numbers of new groups begin one earlier",
    ),
    "no-backup-group": (
        "openafs",
        r"^system:backup -G .*$",
        None,
        "there is no group system:backup, so the numbers of new groups begin one earlier",
    ),
    "addresses": (
        "rialto",
        r"^S only from its own machine$",
        "S",
        "the server's name is followed by where it listens",
    ),
    "uids": ("rialto", r"^uid: \d+\.$", None, "the uid on trusted hosts is shown too"),
}

# Commands whose lines may come in another order, and why.
ORDER = (
    {
        "pts listentries",
        "pts listent -g",
        "pts listentries -users -groups",
        "pts mem bob -expandgroups",
        "pts listowned alice",
    },
    "lists are sorted by number or name; OpenAFS's come in the order of its hash table",
)

# Of whole commands: name: (commands, reason). What is said here instead is in here.txt.
COMMANDS = {
    "one-volume-a-line-group": (
        {"vos listvol S -long"},
        "a line of a list is about one volume; 'vos examine' shows the others of its group",
    ),
    "already-so": (
        {"vos unlock home.alice", "vos remsite S a proj.two"},
        "a command whose work is done already says so and succeeds, so that it can be repeated",
    ),
    "nothing-to-set": (
        {"vos setfields home.bob -clearuse"},
        "accesses are not counted, so nothing is left to be set",
    ),
    "numbers-when-needed": (
        {"vos examine home.robert", "vos listvldb proj.one", "vos listvldb proj.two"},
        "the numbers of the backup and read-only volumes are taken when they are first needed, "
        "by 'vos addsite' the latter",
    ),
    "backups-by-name": (
        {
            "vos backupsys -prefix proj",
            "vos backupsys -prefix proj -dryrun",
            "vos backupsys -prefix proj -xprefix proj.t -dryrun",
            "vos backupsys -xprefix proj home.r -dryrun",
        },
        "each volume that was backed up is named, and 'done' is not said",
    ),
    "copies-have-no-backup": (
        {"vos examine proj.copied"},
        "the date of a backup belongs to the volume that has it",
    ),
    "missing-names-fail": (
        {
            "vos delentry nothere",
            "vos syncvldb -volume nothere",
            "pts membership nothere",
            "pts listowned nothere",
            "pts delete nothere",
        },
        "a name that is not there is a failure, also where OpenAFS ends with 0",
    ),
    "places-are-checked": (
        {"vos changeloc S b proj.two", "vos changeloc S a proj.two"},
        "a server that answers must have the volume where it is to be recorded",
    ),
    "shadows-are-elsewhere": (
        {
            "vos shadow proj.two S a S b",
            "vos shadow proj.two S a S b -toname proj.shadow -toid 536879500",
            "vos shadow -id proj.two -fromserver S -frompartition a -toserver S -topartition b "
            "-incremental",
        },
        "a server has a volume's tree once, so a shadow is at another server",
    ),
    "help-and-version": (
        {"vos help", "vos version", "pts"},
        "the help is that of this program, and so is the version",
    ),
    "administrators-name-groups": (
        {"pts creategroup nobody:x"},
        "administrators may make a group with any prefix",
    ),
    "groups-in-groups": (
        {"pts membership alice:work -expandgroups"},
        "a group that is a member is listed beside its members",
    ),
}
