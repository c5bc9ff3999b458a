"""The keeper: parent of one server, run as a program of its own.

    python keeper.py PARENT END COMMAND...

However the tests end, also by SIGKILL, the server must end. A killed process cannot clean up, so this one does it.

1. It starts the command as its child, and adopts what the child leaves behind (PR_SET_CHILD_SUBREAPER): a database has
   processes of its own, which outlive a killed first process for a moment.
2. Each line of its standard input names a signal. SIGKILL, SIGSTOP and SIGCONT go to all processes of the server,
   others to the first one.
3. It ends when the first process has ended and no other is left. When the keeper has ended, no process of the server
   can write any more.
4. When its input ends, its parent dies, or it gets SIGTERM, it sends the signal END, and SIGKILL after `PATIENCE_S`.
5. If the keeper itself is killed, the kernel sends END to the server, which the command arranges (``setpriv``).

It imports the standard library alone, and Python runs it by path and isolated.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 5.0
TO_ALL = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT}


class Keeper:
    """One server, and the loop that passes signals on."""

    def __init__(self, parent: int, end: signal.Signals, argv: list[str]) -> None:
        self._parent, self._end = parent, end
        self._parent_fd = os.pidfd_open(parent)
        self._wake, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, self._note)
        self._ending = False
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, restore_signals=True)

    def run(self) -> None:
        """Pass signals on until the server has ended."""
        if os.getppid() != self._parent:  # the parent died before it could be watched
            self._ending = True
        pending = b""
        waiting = select.poll()
        for fd in (0, self._parent_fd, self._wake):
            waiting.register(fd, select.POLLIN)
        while not self._ending and self._server.poll() is None:
            ready = {fd for fd, _ in waiting.poll()}
            self._drain()
            if self._parent_fd in ready:
                break
            if 0 in ready:
                data = os.read(0, 4096)
                if not data:
                    break
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    self._send(signal.Signals[line.decode()])
        self._finish()

    def _note(self, number: int, _frame: object) -> None:
        if number == signal.SIGTERM:
            self._ending = True

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)

    def _send(self, number: signal.Signals) -> None:
        if number not in TO_ALL:
            self._server.send_signal(number)
            return
        for pid in below(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _finish(self) -> None:
        """End the server, if it has not ended, and all that it has left."""
        if self._server.poll() is None:
            self._server.send_signal(self._end)
            self._send(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(PATIENCE_S)
        self._send(signal.SIGKILL)
        self._server.wait()
        with contextlib.suppress(ChildProcessError):  # there are no children any more
            while True:
                self._send(signal.SIGKILL)
                os.waitpid(-1, 0)


def below(pid: int) -> list[int]:
    """All processes that descend from this one, except zombies: they are dead, and keep their number."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                state, parent, *_ = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                if state != "Z":
                    children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    due = [pid]
    while due:
        more = children.get(due.pop(), [])
        found += more
        due += more
    return found


if __name__ == "__main__":
    Keeper(int(sys.argv[1]), signal.Signals[sys.argv[2]], sys.argv[3:]).run()
