"""Starts a process that outlives what it was started by, in a session of its own, and ends when it runs.

remaining.py FILE: the process has no parent that started it, no terminal and no open pipe, ignores every signal that can be
ignored, and has written its number into FILE.
"""

import os
import signal
import sys
import time

file = sys.argv[1]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open("/dev/null", os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nothing, descriptor)
        with open(f"{file}.next", "w") as next_file:
            next_file.write(str(os.getpid()))
        os.rename(f"{file}.next", file)
        time.sleep(600)
    os._exit(0)
while not os.path.exists(file):
    time.sleep(0.01)
