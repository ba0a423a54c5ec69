"""The fenced blocks of a page, for tests that run them.

page.py PAGE list              KIND ARGUMENT... of each block, a line each, in order
page.py PAGE show NUMBER       the text of a block
page.py PAGE steps [SECTION]   NUMBER KIND ARGUMENT... of the blocks below the headings that begin
                               with SECTION (a pattern). A block of kind `sh unrun` must have its
                               reason in the paragraph before it.
"""

import re
import sys
import textwrap

REASON = re.compile(r"\bnot\b.*\bby\s+the\s+test\b", re.IGNORECASE | re.DOTALL)


class Block:
    def __init__(self, info, section, before):
        self.info, self.section, self.before, self.lines = info, section, before, []

    def text(self):
        # Blocks in lists are indented.
        return textwrap.dedent("\n".join(self.lines))


def blocks(page):
    found, inside, section, paragraphs = [], False, "", [""]
    for line in open(page):
        bare = line.rstrip("\n")
        if bare.strip().startswith("```"):
            if not inside:
                before = next((text for text in reversed(paragraphs) if text.strip()), "")
                found.append(Block(bare.strip()[3:].strip(), section, before))
                paragraphs = [""]
            inside = not inside
        elif inside:
            found[-1].lines.append(bare)
        elif bare.startswith("## "):
            section = bare[3:]
        elif bare.strip():
            paragraphs[-1] += bare + "\n"
        else:
            paragraphs.append("")
    assert not inside, "a block has no end"
    return found


if __name__ == "__main__":
    page, order, *rest = sys.argv[1:]
    all_blocks = blocks(page)
    if order == "show":
        print(all_blocks[int(rest[0])].text())
    for number, block in enumerate(all_blocks):
        if order == "list":
            print(block.info or "-")
        elif order == "steps" and (not rest or re.match(rest[0], block.section)):
            if block.info.endswith(" unrun") and not REASON.search(block.before):
                block.info += " without a reason"
            print(number, block.info or "-")
