"""Compares the answers of OpenAFS's servers and of Rialto's ports.

compare.py OPENAFS RIALTO    the outputs of crates/afscell/examples/afs_procedures

A line is `procedure caller, case: answer`. Answers may differ if a rule of differences.py says so,
each with its reason. A rule that no line needs is a failure, so the list does not outlive its
reasons.
"""

import os
import re
import sys

from differences import DIFFERENCES, SAME

PART = os.environ.get("PART", "afs_procedures")


def lines(path):
    with open(path) as file:
        return [tuple(line.rstrip("\n").split(": ", 1)) for line in file]


def same(want, have, without=None):
    """Whether two answers are the same by the rules but for one."""
    for name, (of, pattern, replacement, _) in SAME.items():
        if name == without:
            continue
        if of in ("openafs", "both"):
            want = re.sub(pattern, replacement, want)
        if of in ("rialto", "both"):
            have = re.sub(pattern, replacement, have)
    return want == have


def compare(theirs, ours):
    used, failed, accepted, equal = set(), 0, 0, 0
    if [line[0] for line in theirs] != [line[0] for line in ours]:
        failed += 1
        print(f"FAIL {PART}: the calls are the same ({len(theirs)} and {len(ours)})")
    for (call, want), (_, have) in zip(theirs, ours):
        if want == have:
            equal += 1
            continue
        if same(want, have):
            equal += 1
            used.update(name for name in SAME if not same(want, have, name))
            continue
        for name, (calls, their, our, _) in DIFFERENCES.items():
            if re.search(calls, call) and re.search(their, want) and re.search(our, have):
                used.add(name)
                accepted += 1
                break
        else:
            failed += 1
            print(f"FAIL {PART}: {call}")
            print(f"     | OpenAFS: {want[:700]}")
            print(f"     | here:    {have[:700]}")
    for name in [name for name in [*SAME, *DIFFERENCES] if name not in used]:
        failed += 1
        print(f"FAIL {PART}: no call needs the difference '{name}'")
    print(f"     {PART}: {equal} answers are the same, {accepted} differ for a reason")
    return failed


if __name__ == "__main__":
    sys.exit(compare(lines(sys.argv[1]), lines(sys.argv[2])) > 0)
