"""The fenced blocks of a page, for tests that run them.

page.py PAGE list              KIND ARGUMENT... of each block, a line each, in order
page.py PAGE show NUMBER       the text of a block
"""

import sys
import textwrap


def blocks(page):
    found, inside = [], False
    for line in open(page):
        bare = line.rstrip("\n")
        if bare.strip().startswith("```"):
            if not inside:
                found.append((bare.strip()[3:].strip(), []))
            inside = not inside
        elif inside:
            found[-1][1].append(bare)
    assert not inside, "a block has no end"
    # Blocks in lists are indented.
    return [(info, textwrap.dedent("\n".join(lines)).split("\n")) for info, lines in found]


if __name__ == "__main__":
    all_blocks = blocks(sys.argv[1])
    if sys.argv[2] == "list":
        for info, _ in all_blocks:
            print(info or "-")
    else:
        print(*all_blocks[int(sys.argv[3])][1], sep="\n")
