"""
Processor seconds of tests and of what fixtures set up: `make test ARGS="--costs 40"` prints the 40 costliest lines and
files; all of them are in `costs` in pytest's cache.

Counted are the tester's own process with all threads and every program below it (brokers, workers, JVMs of Spark), also
where it or its parent has ended meanwhile. Unlike wall time, that says the same on a loaded machine.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pytest

TICKS = os.sysconf("SC_CLK_TCK")
EVERY_S = 0.25
OUTPUT = "costs"
"""Where a tester leaves its costs for the process that started it, and that for later looks."""


@dataclass(slots=True)
class Cost:
    """Seconds: of the tester's process, of the programs below it, and on the clock; and how often it was paid."""

    own: float = 0.0
    below: float = 0.0
    wall: float = 0.0
    times: int = 0

    @property
    def processor(self) -> float:
        """Seconds of a processor in all."""
        return self.own + self.below

    def add(self, other: Cost) -> None:
        """Add another one, with its times."""
        self.own += other.own
        self.below += other.below
        self.wall += other.wall
        self.times += other.times


@dataclass(frozen=True, slots=True)
class _Program:
    """What `/proc/<pid>/stat` says; the seconds are its own and those of ended children that it has waited for."""

    parent: int
    started: int
    seconds: float


def _programs() -> Iterator[tuple[int, _Program]]:
    """Every process of the machine."""
    for name in (entry.name for entry in os.scandir("/proc")):
        if name.isdigit():
            try:
                stat = Path("/proc", name, "stat").read_bytes()
            except (FileNotFoundError, ProcessLookupError):  # it has ended since
                continue
            fields = stat[stat.rindex(b")") + 2 :].split()
            yield int(name), _Program(int(fields[1]), int(fields[19]), sum(map(int, fields[11:15])) / TICKS)


class Meter:
    """
    The seconds of a processor that the programs below a process have used until now.

    A program that has ended is in the seconds of its parent, which has waited for it. Where the parent was killed
    before, it is not, so all programs are read every `EVERY_S`, and what was last read of such a program is kept.
    """

    def __init__(self, root: int | None = None) -> None:
        self._root = os.getpid() if root is None else root
        self._seen: dict[tuple[int, int], _Program] = {}
        """Programs that were below the process when it was last read, by process id and start."""
        self._orphans: set[tuple[int, int]] = set()
        """Those of them whose parent had ended."""
        self._lost = 0.0
        self._last = self._used = 0.0
        self._lock = threading.Lock()

    def watch(self) -> None:
        """Read every `EVERY_S` from now on, in a thread of its own, which ends with the process."""

        def read() -> None:
            while True:
                time.sleep(EVERY_S)
                self.below()

        threading.Thread(target=read, name="costs", daemon=True).start()

    def below(self) -> float:
        """Read all processes once; with sixty of them that takes about a millisecond."""
        with self._lock:
            total = self._read()
            self._used += max(0.0, total - self._last)
            self._last = total
            return self._used

    def _read(self) -> float:
        programs = dict(_programs())
        children: dict[int, list[int]] = {}
        for pid, program in programs.items():
            children.setdefault(program.parent, []).append(pid)
        left = [pid for pid, started in self._seen if pid in programs and programs[pid].started == started]
        todo = children.get(self._root, []) + left
        seen: dict[tuple[int, int], _Program] = {}
        while todo:
            pid = todo.pop()
            key = pid, programs[pid].started
            if key not in seen:
                seen[key] = programs[pid]
                todo += children.get(pid, [])
        self._lost += sum(self._seen[key].seconds for key in self._orphans if key not in seen)
        self._orphans = {key for key, program in seen.items() if not self._inside(program.parent, programs)}
        self._seen = seen
        waited = os.times().children_user + os.times().children_system
        return waited + self._lost + sum(program.seconds for program in seen.values())

    def running(self) -> float:
        """Only of the programs below the process that still run, with what each of them has waited for."""
        programs = dict(_programs())
        return sum(
            program.seconds for pid, program in programs.items() if pid != self._root and self._inside(pid, programs)
        )

    def _inside(self, pid: int, programs: dict[int, _Program]) -> bool:
        """Whether a process is below the root by its parents."""
        while pid in programs and pid > 1:
            if pid == self._root:
                return True
            pid = programs[pid].parent
        return False


class Costs:
    """
    Costs of one tester: of each test, each fixture of more than one test, collecting, and what cleans up at the end.

    Where several testers run, the process that shares out the tests adds up their costs.
    """

    def __init__(self, shown: int, *, shares_out: bool) -> None:
        self._shown = shown
        self._shares_out = shares_out
        self._meter = Meter()
        if not shares_out:
            self._meter.watch()
        self._costs: dict[str, Cost] = {}
        self._names = ["(start and collection)"]
        self._at = (0.0, 0.0, time.monotonic())

    def _account(self) -> None:
        """What was used since the last call goes to the line that is named last."""
        if self._shares_out:
            return
        now = time.process_time(), self._meter.below(), time.monotonic()
        own, below, wall = (new - old for new, old in zip(now, self._at, strict=True))
        self._costs.setdefault(self._names[-1], Cost()).add(Cost(own, below, wall, 0))
        self._at = now

    def _begin(self, name: str) -> None:
        self._account()
        self._names.append(name)
        self._costs.setdefault(name, Cost()).times += 1

    def _end(self) -> None:
        self._account()
        self._names.pop()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """One test, with what its own fixtures do."""
        self._begin(item.nodeid)
        try:
            return (yield)
        finally:
            self._end()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """What is set up for more than one test has a line of its own."""
        if fixturedef.scope == "function":
            return (yield)
        self._begin(f"fixture {fixturedef.argname} ({fixturedef.scope})")
        try:
            return (yield)
        finally:
            self._end()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Iterator[None]:
        """Behind the last test, everything is cleaned up."""
        if nextitem is not None:
            return (yield)
        self._begin("(cleaning up at the end)")
        try:
            return (yield)
        finally:
            self._end()

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """A tester of several hands its costs to the process that started it."""
        self._account()
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output[OUTPUT] = {name: list(astuple(cost)) for name, cost in self._costs.items()}
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A tester has ended; one that a test ended left nothing."""
        for name, cost in getattr(node, "workeroutput", {}).get(OUTPUT, {}).items():
            self._costs.setdefault(name, Cost()).add(Cost(*cost))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the costliest lines and their sum. All testers have ended, and the broker that they shared has not."""
        if self._shares_out:
            self._costs["(the process that shares out the tests)"] = Cost(own=time.process_time(), times=1)
            self._costs["(the broker that all testers share)"] = Cost(below=self._meter.running(), times=1)
        files: dict[str, Cost] = {}
        for name, cost in self._costs.items():
            if "::" in name:
                files.setdefault(name.partition("::")[0], Cost()).add(cost)
        for kind, costs in (("", self._costs), (" files", files)):
            self._print(terminalreporter, kind, costs)
        if (cache := getattr(terminalreporter.config, "cache", None)) is not None:
            cache.set(OUTPUT, {name: astuple(cost) for name, cost in self._costs.items()})

    def _print(self, terminalreporter: Any, kind: str, costs: dict[str, Cost]) -> None:
        lines = sorted(costs.items(), key=lambda line: line[1].processor, reverse=True)
        terminalreporter.section(f"processor seconds: the {self._shown} costliest{kind}")
        terminalreporter.write_line("processor  in tester       wall  times  what")
        for name, cost in lines[: self._shown]:
            terminalreporter.write_line(
                f"{cost.processor:9.1f}  {cost.own:9.1f}  {cost.wall:9.1f}  {cost.times:5}  {name}"
            )
        top, total = (sum(cost.processor for _, cost in some) for some in (lines[: self._shown], lines))
        terminalreporter.write_line(f"{top:9.1f} of {total:.1f} in all {len(lines)}")
