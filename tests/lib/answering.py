"""answering.py PASSWORD COMMAND...: runs a command on a terminal of its own, and types the password
whenever it is asked for one. Prints what the command prints; ends with its exit code."""

import os
import pty
import re
import sys
import termios
import time

password, *command = sys.argv[1:]
child, terminal = pty.fork()
if child == 0:
    os.execvp(command[0], command)
said = b""
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:  # The other end is closed.
        break
    if not part:
        break
    said += part
    sys.stdout.buffer.write(part.replace(b"\r\n", b"\n"))
    sys.stdout.buffer.flush()
    if re.search(rb"(?i)(password[^\n]*|again): *$", said):
        said = b""
        # What is typed before the program reads secretly is thrown away.
        while termios.tcgetattr(terminal)[3] & termios.ECHO:
            time.sleep(0.01)
        os.write(terminal, password.encode() + b"\n")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
