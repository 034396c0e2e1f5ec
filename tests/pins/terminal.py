"""Runs a command at a terminal and answers its questions.

terminal.py ANSWERS COMMAND...: ANSWERS is a JSON list of lines, of which each question takes one. In place of a
line there may be {"run": COMMAND, "line": LINE}: another command is run before the answer. What the
command has written is printed, and the exit code is its own.
"""

import json
import os
import pty
import select
import subprocess
import sys
import time

# How a line ends on which an answer is waited for.
QUESTIONS = (b"]: ", b"[q]uit: ", b"(needed): ", b"(may be empty): ")
# Seconds that the whole of it may take.
PATIENCE = 20


def main():
    answers = json.loads(sys.argv[1])
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(sys.argv[2], sys.argv[2:])
    said, asked, deadline = b"", 0, time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 1)
        if not ready:
            continue
        try:
            part = os.read(terminal, 4096)
        except OSError:
            break
        if not part:
            break
        said += part
        if said[asked:].endswith(QUESTIONS):
            asked = len(said)
            # Without an answer the input ends.
            answer = answers.pop(0) if answers else None
            if isinstance(answer, dict):
                subprocess.run(answer["run"], check=True, stdin=subprocess.DEVNULL)
                answer = answer["line"]
            line = "\x04" if answer is None else answer + "\n"
            os.write(terminal, line.encode())
    else:
        os.kill(child, 9)
    _, status = os.waitpid(child, 0)
    sys.stdout.write(said.decode().replace("\r\n", "\n"))
    sys.stdout.flush()
    sys.exit(os.waitstatus_to_exitcode(status))


main()
