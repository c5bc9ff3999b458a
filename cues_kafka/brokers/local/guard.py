"""The guard: parent of the broker's JVMs, run as a program of its own.

However the program that started a broker ends, also by SIGKILL, the JVMs must end and their directory must go. A killed
process cannot clean up, so another process does it.

1. The guard starts the JVMs as its children, by commands that come as JSON lines on its standard input.
2. It ends when its input ends, when its parent dies, or on SIGTERM or SIGINT. It watches its parent itself, because a
   forked sibling may keep the pipe open. At its end it kills the JVMs, waits for them, and removes the directory.
3. If the guard itself is killed, the kernel kills the JVMs (PR_SET_PDEATHSIG), and the next start removes the
   directory: the guard inherits the lock on it, and holds it as long as it lives. PR_SET_PDEATHSIG fires when the
   *thread* that started the child ends. So this program has one thread, and the user's program starts no JVM.
4. After the command `detach`, for ``cues-kafka broker up``, only a signal ends it. On SIGHUP it then starts the JVMs
   again that have ended, and writes their pids into a file, because nothing reads its answers any more.

It imports the standard library alone, and Python runs it by path and isolated, so it starts in a few hundredths of a
second.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1

PIDS = "pids.json"
"""The file in the broker's directory: how often ended JVMs were looked for, and the pids by name."""


class Guard:
    """The children by name, and the loop that serves commands."""

    def __init__(self, directory: Path, parent: int) -> None:
        self._directory = directory
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._starts: dict[str, dict[str, Any]] = {}
        self._looks = 0
        self._detached = False
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        self._parent = parent
        # macOS has no pidfd; there, only the end of the input shows that the parent ended.
        self._parent_fd = os.pidfd_open(parent) if hasattr(os, "pidfd_open") else -1

    def run(self) -> None:
        """Serve commands, and clean up at the end."""
        signal.set_wakeup_fd(self._wake_write)  # first, so that no signal with a handler is missed
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: None)
        try:
            if os.getppid() == self._parent:  # else the parent died before it could be watched
                self._serve()
        finally:
            self._end()

    def _serve(self) -> None:
        """Answer commands until a signal comes, or the parent or the input ends; after `detach` only a signal ends."""
        waiting = select.poll()
        of_parent = [fd for fd in (0, self._parent_fd) if fd >= 0]
        for fd in (self._wake_read, *of_parent):
            waiting.register(fd, select.POLLIN)
        pending = b""
        while ready := {fd for fd, _ in waiting.poll()}:
            if self._wake_read in ready:
                if set(os.read(self._wake_read, 64)) != {signal.SIGHUP}:
                    return
                if self._detached:
                    self._start_again()
                continue
            if ready != {0}:
                return
            data = os.read(0, 65536)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                self._answer(json.loads(line))
            if self._detached:
                for fd in of_parent:
                    waiting.unregister(fd)

    def _answer(self, command: dict[str, Any]) -> None:
        try:
            answer = getattr(self, f"do_{command.pop('do')}")(**command)
        except Exception as error:  # noqa: BLE001 - the caller gets it and raises it
            answer = {"error": f"{type(error).__name__}: {error}"}
        with contextlib.suppress(BrokenPipeError):  # the parent has ended, which ends the loop
            os.write(1, json.dumps(answer).encode() + b"\n")

    def do_start(self, name: str, argv: list[str], log: str, cwd: str) -> dict[str, Any]:
        """Start a child of this name, and append its output to `log`."""
        self._starts[name] = {"argv": argv, "log": log, "cwd": cwd}
        with Path(log).open("ab") as out:
            self._children[name] = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                preexec_fn=self._die_with_me,  # noqa: PLW1509 - safe: this program has one thread
            )
        return {"pid": self._children[name].pid}

    def do_signal(self, name: str, number: int) -> dict[str, Any]:
        """
        Send a signal to a child, unless it has ended: its pid may belong to another process by now.

        Behind SIGSTOP, wait until all of its threads stand still. One on another processor goes on for a moment.
        """
        child = self._children[name]
        if child.poll() is None:
            child.send_signal(number)
            if number == signal.SIGSTOP and hasattr(os, "waitid"):  # macOS has none in Python 3.12
                os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return {}

    def do_wait(self, name: str, timeout_s: float) -> dict[str, Any]:
        """Exit code of a child; None if it still runs after this time."""
        try:
            return {"exit": self._children[name].wait(timeout_s)}
        except subprocess.TimeoutExpired:
            return {"exit": None}

    def do_detach(self) -> dict[str, Any]:
        """Outlive the parent."""
        self._detached = True
        return {}

    def _start_again(self) -> None:
        """Start the children that have ended, as they were started before."""
        self._looks += 1
        for name, child in [*self._children.items()]:
            if child.poll() is not None:
                self.do_start(name, **self._starts[name])
        new = self._directory / f"{PIDS}.new"
        pids = {name: child.pid for name, child in self._children.items()}
        new.write_text(json.dumps({"looks": self._looks, "pids": pids}), "utf-8")
        new.replace(self._directory / PIDS)

    def _die_with_me(self) -> None:
        """Run in the child before the JVM: restore the signals, and let the child die with the guard."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if self._libc is not None:
            self._libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def _end(self) -> None:
        """Kill the JVMs and remove the directory; the data is not read again, so no JVM closes its files."""
        for child in self._children.values():
            if child.poll() is None:
                child.kill()
        for child in self._children.values():
            child.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


if __name__ == "__main__":
    Guard(Path(sys.argv[1]), int(sys.argv[2])).run()
