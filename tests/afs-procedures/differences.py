"""Answers of Rialto's ports that differ from those of OpenAFS's servers, each with its reason.

A reason that begins with "to be mended" is a defect here.
"""

REFUSED = r"\(-?\d+\)$"

# Of texts within answers: name: (side, pattern, replacement, reason).
SAME = {
    "uuids": (
        "both",
        r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
        "UUID",
        "each server has its own",
    ),
    "new-numbers": (
        "both",
        r"^GetNewVolumeId { volume: 5368\d{5} }$",
        "GetNewVolumeId",
        "the database here has given others",
    ),
    "blocks": (
        "both",
        r"\b42781900(80|81)\b",
        "BLOCK",
        "the blocks of addresses are numbered from 0 here",
    ),
    "foreign-quota": (
        "both",
        r"\buser_quota: \d+",
        "user_quota: N",
        "the number of users of another realm is the quota of that realm's group",
    ),
    "fixed-group-quota": (
        "both",
        r'\bgroup_quota: (0|20), (.*"(system:administrators|anonymous)")',
        r"group_quota: N, \2",
        "administrators may make any number of groups, and the anonymous user none",
    ),
    "no-backup-group": ("openafs", r"-205, ", "", "there is no group system:backup"),
    "usage": (
        "both",
        r"\bfiles: [01]\b(.*)\bsize: [24]\b",
        r"files: N\1size: N",
        "the root directory counts as a file, and its access list takes room",
    ),
    "authors": (
        "both",
        r"\bauthor: \d+, owner: 5001\b",
        "author: A, owner: 5001",
        "the author of a file is its owner here",
    ),
    "superuser": (
        "both",
        r"\b(author|owner): (0|5099)\b",
        r"\1: U",
        "the holder of the key is user 5099 there, and number 0 here",
    ),
    "versions": (
        "both",
        r"\bdata_version_low: \d+",
        "data_version_low: N",
        "a new file has version 1 here, and a change may count more than once",
    ),
    "numbers-of-files": (
        "both",
        r"(\bvolume: v20, )vnode: \d+",
        r"\1vnode: N",
        "numbers of files are not used again here",
    ),
    "parents": (
        "both",
        r"\bparent_vnode: \d+",
        "parent_vnode: N",
        "the status of a file names the file itself as its parent here",
    ),
    "modes-of-roots": (
        "both",
        r"\bmode: (511|493)\b",
        "mode: DIRECTORY",
        "the root of a new volume has mode 755 here",
    ),
    "anonymous-rights": (
        "both",
        r"\banonymous_access: \d+",
        "anonymous_access: R",
        "the status in the answer to a new list has the rights by it here, and those before it "
        "there",
    ),
    "superuser-rights": (
        "both",
        r"\bcaller_access: (63|127|8|9|126|136|4278190207)\b",
        "caller_access: R",
        "the holder of the key may do everything here; there it is a member of "
        "system:administrators, which may change lists",
    ),
}

# Of whole answers: name: (calls, OpenAFS's answer, the answer here, reason); patterns are searched.
DIFFERENCES = {
    "refused-either-way": (
        r" stranger, ",
        r"\(\d+\)$",
        r"^(?!RXGEN).*\(\d+\)$",
        "a call that is wrong in two ways is refused for one of them: as a rule here the arguments "
        "are looked at before the caller",
    ),
    # PR.
    "database-of-afs": (
        r"^PR\.(WhereIsIt|DumpEntry|UpdateEntry) ",
        r"",
        r"RXGEN_OPCODE",
        "they are about the records of AFS's own database",
    ),
    "groups-by-administrators": (
        r"^PR\.(INewEntry|ChangeEntry) superuser, a (group of a|group's name of a|name of the sys)",
        r"^PRBADNAM|^PRNOENT",
        r"^INewEntry|^ChangeEntry|^PRIDEXIST",
        "administrators may make a group with any prefix",
    ),
    "groups-by-administrators-after": (
        r"^PR\.ListEntry \w+, (after ChangeEntry|of an owner that is gone)$",
        r'"staff"',
        r'"system:team"',
        "administrators may make a group with any prefix",
    ),
    "least-number": (
        r"^PR\.(INewEntry superuser|GetCPS2 stranger), the least number$",
        r"^PRINCONSISTENT|^GetCPS2",
        r"^PRBADNAM|^PRNOENT",
        "no principal has that number",
    ),
    "flags-of-new-entries": (
        r"^PR\.NewEntry superuser, all flags$",
        r"^PRPERM",
        r"^PRBADARG",
        "no flag besides 0 and 2 is known",
    ),
    "names-are-not-empty": (
        r"^PR\.NewEntry superuser, no name",
        r"^NewEntry|^PREXIST",
        r"^PRBADNAM",
        "a user or group without a name cannot be told apart",
    ),
    "names-are-not-empty-after": (
        r"^PR\.(NameToID \w+, unknown|ListMax \w+, (before|after))$",
        r"",
        r"",
        "the user without a name that OpenAFS made is not there; numbers of later ones differ",
    ),
    "capitals": (
        r"^PR\.NameToID \w+, capitals$",
        r"32766, 32766",
        r"5001, -101",
        "the server makes names lower case, not the client alone",
    ),
    "no-backup-group-by-name": (
        r"^PR\.IDToName \w+, backup$",
        r"system:backup",
        r'"-205"',
        "there is no group system:backup",
    ),
    "membership-of-all": (
        r"^PR\.IsAMemberOf stranger, (by a group|everyone|all users)$",
        r"flag: 1",
        r"flag: 0",
        "a stranger who may not see a user's groups learns the members of the group alone",
    ),
    "cps": (
        r"^PR\.GetCPS2? ",
        r"XdrList",
        r"XdrList",
        "each number is once in a CPS, and that of a group is without its members",
    ),
    "sight-of-the-systems": (
        r"^PR\.(ListOwned|ListElements|ListSuperGroups) stranger, (everyone|the anonymous user)$",
        r"XdrList\(\[\]\)",
        r"^PRPERM",
        "what strangers may see is set for each principal; these are seen by administrators",
    ),
    "order-of-entries": (
        r"^PR\.ListEntries superuser, ",
        r"^ListEntries",
        r"^ListEntries",
        "entries come by their numbers, and there is no group system:backup",
    ),
    "flags-that-say-more": (
        r"^PR\.ListEntry \w+, after (SetFields|Change)Entry$",
        r"flags: 25[45]",
        r"flags: 18[01]",
        "a flag for everyone says more than the same one for members, which is left out",
    ),
    "numbers-are-kept": (
        r"^PR\.ChangeEntry superuser, (a number|the number as before)",
        r"^ChangeEntry|^PRIDEXIST",
        r"^PRPERM",
        "access lists name numbers, so a principal keeps its own",
    ),
    # VL.
    "no-statistics": (
        r"^VL\.GetStats |^RXAFS\.(GetStatistics|GetStatistics64|GetXStats|CallBackRxConnAddr) ",
        r"",
        r"RXGEN_OPCODE",
        "figures of the database and the file server are shown by `rialto status`",
    ),
    "lists-by-pattern": (
        r"^VL\.(ListAttributesN2|ListEntryN?) ",
        r"",
        r"RXGEN_OPCODE",
        "clients fall back to ListAttributesN; positions in AFS's own database are not there",
    ),
    "old-forms": (
        r"^VL\.(CreateEntry|ReplaceEntry|UpdateEntry|UpdateEntryByName) superuser, ",
        r"",
        r"^VL_PERM",
        "no program of the last decades uses the old forms of changes",
    ),
    "old-forms-after": (
        r"^VL\.(GetEntryByIDN \w+, after (ReplaceEntry|UpdateEntryByName)|"
        r"DeleteEntry superuser, the old form)$",
        r"^GetEntryByIDN|^DeleteEntry",
        r"^VL_NOENT",
        "no program of the last decades uses the old forms of changes",
    ),
    "servers-enter-themselves": (
        r"^VL\.ChangeAddr superuser, remove one that has volumes$",
        r"^VL_",
        r"^VL_PERM",
        "a server of Rialto enters itself, so its address is changed by no other program",
    ),
    "sound-entries": (
        r"^VL\.CreateEntryN superuser, (number 0|no name|a number as|a name of the read-only|13 |"
        r"partition 255|site flags)",
        r"^CreateEntryN",
        r"^VL_",
        "an entry has a number and a name of a volume, and sites at servers and partitions that "
        "are there",
    ),
    "sound-entries-after": (
        r"^VL\.DeleteEntry superuser, after it$",
        r"^DeleteEntry",
        r"^VL_NOENT",
        "what was not made is not removed",
    ),
    "numbers-when-needed": (
        r"^VL\.GetEntryByIDN \w+, the number of a backup volume to come$",
        r"v5",
        r"",
        "the number of a backup volume is shown when there is one",
    ),
    "names-are-one-volumes": (
        r"^VL\.ReplaceEntryN superuser, (a name that is taken|no name)$",
        r"^ReplaceEntryN",
        r"^VL_(NAMEEXIST|BADNAME)",
        "two volumes never have one name, nor has one none",
    ),
    "marks-of-releases": (
        r"^VL\.GetEntryByIDN \w+, while a release goes on$",
        r"clone: v12",
        r"clone: 0",
        "which sites are to be used is kept; that a release goes on, and from which clone, is not: "
        "the next one begins anew",
    ),
    # AFSVol.
    "partitions-by-their-names": (
        r"^AFSVol\.PartitionInfo(64)? \w+, 'vicepz'$",
        r"^VOLSERILLEGAL_PARTITION",
        r"^PartitionInfo",
        "a partition has the name that its server has for it, with a slash or without",
    ),
    "partitions-have-one-code": (
        r"^AFSVol\.(CreateVolume|TransCreate) superuser, (no partition|partition -1|-1|256)$",
        REFUSED,
        r"^VOLSERILLEGAL_PARTITION",
        "a partition that is not there has the code that the table of codes has for it",
    ),
    "volumes-have-names": (
        r"^AFSVol\.(CreateVolume superuser, no name|(DeleteVolume|EndTrans) superuser, it goes)$",
        r"^CreateVolume|^DeleteVolume|^EndTrans",
        r"^VOLSERBADNAME|\(2\)$",
        "a volume has a name",
    ),
    "kinds-have-one-code": (
        r"^AFSVol\.CreateVolume superuser, kind ",
        r"\(22\)$",
        r"^VOLSERBADOP",
        "a kind that is not there is refused as one that cannot be made",
    ),
    "made-twice": (
        r"^AFSVol\.(CreateVolume superuser, while it is made|Clone superuser, (its own number|"
        r"again))$",
        r"^VOLSERVOLBUSY|^VVOLEXISTS",
        r"\(5\)$",
        "a volume that exists is refused with EIO, as OpenAFS does for one without a transaction",
    ),
    "transactions-keep-off-others-alone": (
        r"^AFSVol\.X?List(One)?Volumes? ",
        r"status: (0|110)|name: \"\"",
        r"status: 2",
        "a volume is shown whole while it is made and while a transaction has it, and lists of "
        "numbers have names, too",
    ),
    "strangers-have-no-transactions": (
        r"^AFSVol\.(GetStatus|GetFlags|GetName) stranger, ",
        r"^Get",
        r"^VOLSERBAD_ACCESS",
        "only an administrator uses a transaction, whatever its number is",
    ),
    "flags-of-a-new-volume": (
        r"^AFSVol\.GetFlags superuser, while it is made$",
        r"flags: 0",
        r"flags: 3",
        "a volume that is being made goes with its transaction, and its flags say so",
    ),
    "flags-of-transactions": (
        r"^AFSVol\.(TransCreate superuser, (flags 0x1000|a second one)|"
        r"EndTrans superuser, (it|a second one)|Monitor \w+, one|"
        r"Get(Status|Name|Flags) superuser, it)$",
        r"\(22\)$|^TransCreate|^EndTrans|\[\]|\(2\)$",
        r"^TransCreate|^VOLSERVOLBUSY|\(2\)$|^Monitor|^EndTrans|^Get",
        "the flag of a volume of which the number alone is taken makes a transaction here, too",
    ),
    "quotas-are-sizes": (
        r"^AFSVol\.(SetInfo|GetStatus) superuser, -2$",
        r"^SetInfo|max_quota: -2",
        r"\(22\)$|max_quota: 0",
        "a quota is not negative",
    ),
    "groups-from-the-database": (
        r"^AFSVol\.(GetStatus|ListOneVolume) \w+, (it|after all|the clone|the volume)$",
        r"clone: v21",
        r"clone: 0",
        "the numbers of a volume's clone and backup come from the volumes that are there, and "
        "uses are not counted",
    ),
    "kinds-of-clones": (
        r"^AFSVol\.Clone superuser, kind 3$",
        r"^Clone",
        r"^VOLSERBADOP",
        "there are the kinds read-write, read-only and backup",
    ),
    "into-itself": (
        r"^AFSVol\.ReClone superuser, itself$",
        r"^VOLSERVOLBUSY",
        r"^VOLSERBADOP",
        "a volume is no clone of itself",
    ),
    "removed-in-a-transaction": (
        r"^AFSVol\.(DeleteVolume superuser, a clone again|GetStatus superuser, of what was rem)",
        r"\(2\)$",
        r"^VNOVOL",
        "the transaction is there until it is ended, and the volume is not",
    ),
    "removed-by-force": (
        r"^AFSVol\.NukeVolume superuser, ",
        r"^RX_CALL_DEAD|^NukeVolume",
        r"\(19\)$|^VOLSERILLEGAL_PARTITION|^NukeVolume",
        "what cannot be removed is refused with the reason",
    ),
    "sizes-of-dumps": (
        r"^AFSVol\.GetSize superuser, of all$",
        r"bytes: \d+",
        r"bytes: \d+",
        "a dump has no entries for what is not kept here",
    ),
    "replicas": (
        r"^AFSVol\.ListOneVolume \w+, (a replica|what it became)$",
        r'"cmp\.rep".*max_quota: 5000',
        r'"cmp\.rep(\.readonly)?".*max_quota: 0',
        "a replica has the ending of its kind in its name at once, and the quota that comes in "
        "with its contents",
    ),
    "conversions": (
        r"^AFSVol\.ConvertROtoRWvolume superuser, a replica$",
        r"\(43\)$",
        r"^ConvertROtoRWvolume$",
        "OpenAFS converts the replica and then fails with EIDRM",
    ),
    # BOZO.
    "bos-changes-nothing": (
        r"^BOZO\.(\w+ \w+, (a change|unknown|of an unknown kind|of everything|of no kind|nothing|"
        r"true)|GetLog superuser, )",
        r"",
        r"^BZACCESS|^Operation not permitted",
        "the system's service manager starts and stops servers, and no list of users is kept",
    ),
    "wait-for-nothing": (
        r"^BOZO\.WaitAll stranger, ",
        r"^BZACCESS",
        r"^WaitAll$",
        "all servers are in the state that they are to be in",
    ),
    "negative-places": (
        r"^BOZO\.(EnumerateInstance|ListKeys) \w+, negative$",
        r"^EnumerateInstance|^ListKeys|^RX_CALL_DEAD",
        r"^BZDOM",
        "there is nothing before the first place",
    ),
    "one-instance": (
        r"^BOZO\.(GetStatus|GetInstanceInfo|GetInstanceParm) \w+, the instance",
        r"run next|cron|/bin/true",
        r"^Get",
        "the instance is the server itself",
    ),
    "hosts-have-names": (
        r"^BOZO\.GetCellHost \w+, the first$",
        r"server\.x\.org",
        r"^GetCellHost",
        "servers are listed by their names in the cell",
    ),
    "restricted": (
        r"^BOZO\.GetRestrictedMode ",
        r"mode: 0",
        r"mode: 1",
        "it changes nothing",
    ),
    "no-programs": (
        r"^BOZO\.GetDates \w+, of ''$",
        r"new: \d+",
        r"new: 0",
        "there is no directory of programs",
    ),
    # RXAFS.
    "rights-are-fresh": (
        r"^RXAFS\.FlushCPS superuser, ",
        r"^FlushCPS",
        r"\(1\)$",
        "rights are looked up at each call, so nothing is to be forgotten",
    ),
    "old-volume-information": (
        r"^RXAFS\.GetVolumeInfo ",
        r"",
        r"type4: 2882378137",
        "clients are told to ask the location database, which OpenAFS does by refusing",
    ),
    "new-store-acl": (
        r"^RXAFS\.StoreACL ",
        r"RXGEN_OPCODE",
        r"",
        "later versions of OpenAFS have this procedure",
    ),
    "forms-of-lists": (
        r"^RXAFS\.(OldStoreACL|FetchACL) \w+, (without its end|rights that are not there|"
        r"the user's rights|a name twice)$",
        r"",
        r"",
        "a list without a zero byte is read, rights that are not there are refused, rights are "
        "positive numbers, and of a name twice the last counts",
    ),
    "lists-before-fids": (
        r"^RXAFS\.OldStoreACL superuser, (unknown v|another un)",
        r"\(22\)$",
        r"^VNO",
        "the file is looked up before its list is read",
    ),
    "names-that-cannot-be": (
        r"^RXAFS\.\w+ superuser, (no name|a slash|a dot|two dots)$",
        r"\((2|17)\)$",
        r"\(22\)$",
        "a name that no file can have is refused with EINVAL by every call",
    ),
    "names-of-256-bytes": (
        r"^RXAFS\.\w+ superuser, 256 bytes$",
        r"",
        r"\(36\)$",
        "a name has 255 bytes at most",
    ),
    "symlinks-have-targets": (
        r"^RXAFS\.\w+ \w+, no target$",
        r"",
        r"\((22|2|102)\)$",
        "a symlink has a target",
    ),
    "positions": (
        r"^RXAFS\.(FetchData|FetchData64|StoreData64) \w+, (a negative|the greatest|beyond the g)",
        r"^File too large|^VDISKFULL",
        r"\((22|27)\)$|bytes",
        "what is behind the end of a file is empty, and negative positions are wrong arguments",
    ),
    "stores-of-nothing": (
        r"^RXAFS\.(StoreData|StoreStatus|SetVolumeStatus|Rename) stranger, ",
        r"\(13\)$",
        r"^(StoreData|StoreStatus|SetVolumeStatus|Rename)\b",
        "a change of nothing that is known here changes nothing, whoever asks",
    ),
    "holes-take-no-room": (
        r"^RXAFS\.\w+ \w+, (beyond 2\^31|of a long file)$",
        r"",
        r"length_low: 2147483649",
        "a hole does not count for the quota",
    ),
    "more-bits-of-modes": (
        r"^RXAFS\.(StoreStatus|FetchStatus) \w+, (an owner|a group|a sync|other bits)$",
        r"mode: 4095",
        r"mode: 1023",
        "a new owner takes away the bits with which a program has its owner's rights",
    ),
    "pairs-of-callbacks": (
        r"^RXAFS\.GiveUpCallBacks \w+, more callbacks$",
        r"\(22\)$",
        r"^GiveUpCallBacks",
        "the fids alone say which promises end",
    ),
    "links-of-directories": (
        r"^RXAFS\.Link superuser, (of a directory|a dot)$",
        r"\((21|17)\)$",
        r"\((1|22)\)$",
        "a link of a directory is not permitted, as on other file systems",
    ),
    "names-of-one-file": (
        r"^RXAFS\.Rename superuser, (the same name|a name of the same file)$",
        r"\(22\)$",
        r"^Rename",
        "a rename of a file to another of its names does nothing, as on other file systems",
    ),
    "directories-into-themselves": (
        r"^RXAFS\.Rename superuser, a directory into itself$",
        r"\(90\)$",
        r"\(22\)$",
        "EINVAL, as on other file systems",
    ),
    "links-of-parents": (
        r"^RXAFS\.(\w+) \w+, (over a full directory|the directory after all|a file with two names|"
        r"with a file|the last name|a file|in a directory)$",
        r"",
        r"",
        "OpenAFS does not lower the links of a directory when a rename replaces one in it; and "
        "what a rename to the system's name moved is there under its former name",
    ),
    "status-of-volumes": (
        r"^RXAFS\.[GS]etVolumeStatus \w+, it, (after all|mask 2, -1 KiB)$",
        r"\(13\)$|^SetVolumeStatus$|min_quota: 5",
        r"\(22\)$|min_quota: 0",
        "a quota is not negative; a least quota and messages are not kept",
    ),
}
