"""Records the commands of commands.txt with their answers, or replays them and compares.

session.py record DIRECTORY SERVER ROOT              writes DIRECTORY/recorded.txt (record.sh does
                                                     it)
session.py replay DIRECTORIES SERVER ROOT PROGRAMS   compares; PROGRAMS has the programs
session.py accept DIRECTORIES SERVER ROOT PROGRAMS   writes here.txt: what is said here instead by
                                                     the commands that are accepted

ROOT is the root of the tree, for fs. DIRECTORIES are one or more, with colons between: their
sessions are replayed one after the other, and differences.py and here.txt are those of the last.

recorded.txt: `$ command`, `= exit code`, then its lines: `>` standard output, `!` standard error.
The comparison is of exit codes and of lines of the streams in STREAMS, after NORMAL, which are the
things that differ between any two runs, and DIFFERENCES, each with its reason. A rule that no
command needs is a failure, so the list does not outlive its reasons.
"""

import os
import re
import subprocess
import sys
import tempfile
import time

DIRECTORIES = sys.argv[2].split(":")
sys.path.insert(0, DIRECTORIES[-1])

import differences
from differences import COMMANDS, LINES, ORDER, STREAMS

SECONDS_MAX = 60
# A message that asks to try again, which is done.
AGAIN = getattr(differences, "AGAIN", None)
TRIES_MAX = 20
# Words that OpenAFS refuses before it reads options.
BARE = {"help", "version", "apropos", "zork", "l", "lis"}
# Programs that know no key.
KEYLESS = {"fs", "udebug", "rxdebug"}
PART = os.environ.get("PART", "openafs_session")

# What differs between two runs of one program: (pattern, replacement).
NORMAL = [
    (r"\b\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\b", "DATE"),
    (r"\s+", " "),
    (r"^(\w+Date) \d+ ", r"\1 SECONDS "),
    (r"^diskused \d+$", "diskused N"),
    (r"\b\d+ (K|KB)\b", r"N \1"),
    (r"out of total \d+", "out of total N"),
    (r"\bUUID: [0-9a-f-]+", "UUID: U"),
    (r"\bdump_size: \d+", "dump_size: N"),
]

def commands(directory):
    with open(f"{directory}/commands.txt") as file:
        return [line.rstrip("\n") for line in file if line.strip() and not line.startswith("#")]


def run(command, server, root, programs, scratch):
    """Runs a command; returns its exit code and its lines."""
    words = [{"S": server, "FILE": f"{scratch}/dump"}.get(word, word) for word in command.split()]
    words = [re.sub(r"^M(?=/|$)", root, word) for word in words]
    if words[0] == "%":
        subprocess.run(" ".join(words[1:]), shell=True, check=True, timeout=SECONDS_MAX)
        return 0, []
    has_key = words[0] not in KEYLESS and len(words) > 1 and words[1] not in BARE
    if has_key and "-noauth" not in words:
        words.append("-localauth")
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=SECONDS_MAX, stdin=subprocess.DEVNULL,
        # The program has its own name all the same, which it shows.
        executable=f"{programs}/{words[0]}" if programs else None,
    )
    lines = [">" + line for line in done.stdout.splitlines()]
    return done.returncode, lines + ["!" + line for line in done.stderr.splitlines()]


def record(directory, server, root):
    with tempfile.TemporaryDirectory() as scratch, open(f"{directory}/recorded.txt", "w") as out:
        for command in commands(directory):
            code, lines = run(command, server, root, None, scratch)
            print(f"$ {command}\n= {code}", file=out)
            for line in lines:
                print(line.replace(scratch, "").replace(root, "M").rstrip(), file=out)


def recorded(directory, name="recorded.txt"):
    found = []
    with open(f"{directory}/{name}") as file:
        for line in file:
            line = line.rstrip("\n")
            if line.startswith("$ "):
                found.append((line[2:], None, []))
            elif line.startswith("= "):
                found[-1] = (found[-1][0], int(line[2:]), [])
            elif line:
                found[-1][2].append(line)
    return found


class Numbers:
    """Numbers of volumes, by the order in which one command shows them: other volumes got others."""

    def __init__(self):
        self.known = {}

    def named(self, text):
        def name(match):
            return self.known.setdefault(match.group(), f"#{len(self.known) + 1}")

        return re.sub(r"\b536[89]\d{5}\b", name, text)


def normal(lines, servers, side, used):
    """The lines of the compared streams as they are compared."""
    kept = []
    for line in lines:
        if line[0] not in STREAMS:
            continue
        line = line[1:]
        for server in servers:
            line = re.sub(rf"(?<![\w.]){re.escape(server)}(?![\w.]*\w)", "S", line)
        for pattern, replacement in NORMAL:
            line = re.sub(pattern, replacement, line)
        line = line.strip()
        for name, (of, pattern, replacement, _) in LINES.items():
            if of in (side, "both") and re.search(pattern, line):
                used.add(name)
                line = None if replacement is None else re.sub(pattern, replacement, line).strip()
                if line is None:
                    break
        if line:
            kept.append(line)
    return kept


def replay(server, root, programs, accepts):
    wanted, asked = [], []
    for directory in DIRECTORIES:
        wanted += recorded(directory)
        asked += commands(directory)
    instead = [] if accepts else recorded(DIRECTORIES[-1], "here.txt")
    said = []
    assert [command for command, _, _ in wanted] == asked, "record it again"
    used, failed = set(), 0
    accepted = {command: name for name, (of, _) in COMMANDS.items() for command in of}
    with tempfile.TemporaryDirectory() as scratch:
        for command, code, lines in wanted:
            for _ in range(TRIES_MAX):
                got, got_lines = run(command, server, root, programs, scratch)
                if not AGAIN or not any(re.search(AGAIN, line) for line in got_lines):
                    break
                time.sleep(0.5)
            got_lines = [line.replace(scratch, "").replace(root, "M") for line in got_lines]
            theirs, ours = Numbers(), Numbers()
            want = [theirs.named(line) for line in normal(lines, ["10.94.0.1"], "openafs", used)]
            have = [ours.named(line) for line in normal(got_lines, [server], "rialto", used)]
            if want != have and command in ORDER[0]:
                used.add("order")
                want, have = sorted(want), sorted(have)
            same = want == have and code == got
            name = accepted.get(command)
            as_accepted = (command, got, [">" + line for line in have])
            if name and not same and (accepts or as_accepted in instead):
                used.add(name)
                said.append(as_accepted)
                print(f"PASS {PART}: {command} (differs: {name})")
            elif same:
                print(f"PASS {PART}: {command}")
            else:
                failed += 1
                print(f"FAIL {PART}: {command} (exit codes {code} and {got})")
                for line in want:
                    print(f"     | OpenAFS: {line}")
                for line in have:
                    print(f"     | here:    {line}")
                for line in [line[1:] for line in got_lines if line.startswith("!")][:5]:
                    print(f"     | message: {line[:200]}")
    needed = [*LINES, *COMMANDS, *(["order"] if ORDER[0] else [])]
    for name in [name for name in needed if name not in used]:
        failed += 1
        print(f"FAIL {PART}: no command needs the difference '{name}'")
    if accepts:
        with open(f"{DIRECTORIES[-1]}/here.txt", "w") as out:
            for command, code, lines in said:
                print(f"$ {command}\n= {code}", *lines, sep="\n", file=out)
    return failed


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(*sys.argv[2:5])
    else:
        accepts = sys.argv[1] == "accept"
        sys.exit(replay(*sys.argv[3:6], accepts) > 0)
