"""A program with a terminal of its own, as seen from the keyboard."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios

from tests.e2e.relay import wait_until


class Terminal:
    def __init__(self, command, folder, environment, rows=24, columns=80):
        self.shown = ""
        self.code = None
        self.process, self.keyboard = pty.fork()
        if self.process == 0:
            # Before the program can ask: a size that is set from outside may come later.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.chdir(folder)
            os.execvpe(str(command[0]), [str(word) for word in command], environment)

    def resize(self, rows, columns):
        fcntl.ioctl(self.keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def attributes(self):
        """How the terminal treats keys: echo, lines and so on."""
        return termios.tcgetattr(self.keyboard)

    def type(self, keys):
        os.write(self.keyboard, keys.encode())

    def signal(self, number):
        os.kill(self.process, number)

    def read(self):
        """All that was shown so far."""
        try:
            while select.select([self.keyboard], [], [], 0.05)[0]:
                self.shown += os.read(self.keyboard, 65536).decode(errors="replace")
        except OSError:
            pass    # the program has ended
        return self.shown

    def page(self):
        """What a program that draws whole pages shows now: lines without sequences."""
        page = self.read().rpartition("\x1b[H")[2]
        plain = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", page)
        return re.split(r"\r+\n", plain.rstrip())

    def ended(self):
        """The exit code, or None while it runs."""
        self.read()
        if self.code is None:
            process, status = os.waitpid(self.process, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if process else None
        return self.code

    def stopped(self):
        """Whether it was put to sleep, as Ctrl-Z does."""
        with open(f"/proc/{self.process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "T"

    def wait(self, timeout=10):
        wait_until(lambda: self.ended() is not None, timeout, "the end of the program")
        return self.code

    def close(self):
        if self.ended() is None:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        os.close(self.keyboard)
