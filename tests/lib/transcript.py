"""Runs the console blocks of a document and compares what the commands print with the document.

transcript.py DOCUMENT A B

A block is fenced as ```console. `a$ command` and `b$ command` are two shells whose working directory
is one new directory as the mounts A and B show it; the lines below a command are what it prints. The
shells live as long as the block, so descriptors and variables stay. Exit code: 1 if a block differs.
"""

import os
import re
import subprocess
import sys
import threading

COMMAND_SECONDS_MAX = 60
PROMPT = re.compile(r"^([ab])\$ (.*)$")
END = "\x01end"


class Shell:
    def __init__(self, directory):
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
            text=True,
            errors="replace",
        )

    def run(self, command):
        """The lines that a command prints."""
        timer = threading.Timer(COMMAND_SECONDS_MAX, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(f"{command}\nprintf '%s\\n' '{END}'\n")
            self.process.stdin.flush()
            lines = []
            for line in self.process.stdout:
                if line.rstrip("\n").endswith(END):
                    rest = line.rstrip("\n").removesuffix(END)
                    return lines + ([rest] if rest else [])
                lines.append(line.rstrip("\n"))
            return lines + [f"(the shell ended, or waited for {COMMAND_SECONDS_MAX} s)"]
        finally:
            timer.cancel()

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=COMMAND_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def blocks(text):
    """Each block as its first line's number and [(mount, command, lines that it prints)]."""
    found, current = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if current is None:
            if line == "```console":
                current = (number, [])
        elif line == "```":
            found.append(current)
            current = None
        elif prompt := PROMPT.match(line):
            current[1].append((prompt[1], prompt[2], []))
        elif current[1]:
            current[1][-1][2].append(line)
        else:
            sys.exit(f"line {number}: a block begins with a command")
    return found


def main():
    document, a, b = sys.argv[1:]
    with open(document, encoding="utf-8") as file:
        found = blocks(file.read())
    if not found:
        sys.exit(f"{document} has no console block")
    differing = 0
    for number, steps in found:
        name = f"block-{number}"
        os.mkdir(os.path.join(a, name))
        shells = {"a": Shell(os.path.join(a, name)), "b": Shell(os.path.join(b, name))}
        for mount, command, expected in steps:
            printed = shells[mount].run(command)
            if printed != expected:
                differing += 1
                print(f"{document}:{number}: {mount}$ {command}\n  expected {expected}\n  printed  {printed}")
                break
        for shell in shells.values():
            shell.end()
    print(f"{len(found)} blocks, {differing} differ")
    sys.exit(differing > 0)


main()
