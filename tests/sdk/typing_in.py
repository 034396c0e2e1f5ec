"""Types into the terminal that it was started at, and opens every other; tells in FILE what it could do.

typing_in.py FILE: each line is a path, an attempt, and `done` or the name of an error.
"""

import errno
import fcntl
import os
import sys

TIOCSTI, TIOCLINUX = 0x5412, 0x541C


def attempts(path):
    try:
        terminal = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        yield "open", error
        return
    yield "open", None
    # Others may be those of people.
    for name, request in [("type", TIOCSTI), ("paste", TIOCLINUX)] if path == "/dev/tty" else []:
        try:
            fcntl.ioctl(terminal, request, b"#")
            yield name, None
        except OSError as error:
            yield name, error


with open(f"{sys.argv[1]}.next", "w") as told:
    others = [f"/dev/pts/{name}" for name in os.listdir("/dev/pts") if name != "ptmx"]
    for path in ["/dev/tty", "/dev/console", *others]:
        for name, error in attempts(path):
            told.write(f"{path} {name}: {errno.errorcode.get(error.errno) if error else 'done'}\n")
os.rename(f"{sys.argv[1]}.next", sys.argv[1])
