"""Whether rate and memory stay as they are while a backlog, messages, workers and a store grow."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.harness import Cluster, Pipe, cpu_s, side, unique, until, values_of
from benchmarks.report import Section, holds
from benchmarks.work import VALUE_BYTES

LOOK_S: Final = 0.05
GIVE_UP_S: Final = 900.0

TENTHS: Final = 10
WARM: Final = 2
"""Tenths that belong to the start."""

STEADY: Final = 0.8
"""The last third of a backlog must be as quick as the first one behind the start, but for noise."""

FLAT_MIB: Final = 30
"""So much may a worker grow meanwhile."""

LARGE_BYTES: Final = 990_000
"""Of a large value: the client's largest message is 1,000,000 bytes."""

LARGE_SHARE: Final = 5_000
"""The long backlog has this many times as many messages as the run with large ones."""

WIDE: Final = 8
"""Partitions for one to four workers."""

HOW = f"""One worker process, but in *workers*, raw values. *First* and *last* are the rates of the first and the last
third of what comes behind the start (a fifth of the messages), *then* and *at the end* the worker's own memory at the
beginning of the first and at the end of the last: its resident pages but those of files, which the kernel takes back
when it needs them. *Large* messages have {LARGE_BYTES:,} bytes that do not compress. *Workers* are processes of one
`run --workers`, {WIDE} partitions, with two processors for them, the broker and the load. *Keys* counts by different
keys in a store on disk; *over it again* is the same worker after its folder is lost, from its start to the commit of
one more message: it reads the whole changelog."""


@dataclass(frozen=True, slots=True)
class Look:
    """
    What was seen when a share of the messages was committed.

    Attributes:
        at_s: on the monotonic clock.
        done: messages committed.
        own_mib: of the worker, or of all workers.
        cpu_s: processor time of these so far.
    """

    at_s: float
    done: int
    own_mib: float
    cpu_s: float


class Counted(Sequence[bytes]):
    """Values that all begin with another number."""

    def __init__(self, count: int) -> None:
        self._count, self._rest = count, os.urandom(VALUE_BYTES // 2 - 4).hex().encode()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        return b"%08d" % at + self._rest


def measure(messages: int, cluster: Cluster) -> Section:
    """
    Measure all cases once each.

    Args:
        messages: of the backlog; keys of the store.
        cluster: the broker.
    """
    section = Section(
        "Growth",
        HOW,
        ("case", "first, /s", "last, /s", "then, MiB", "at the end, MiB", "CPU us", "goal"),
    )
    _backlog(section, messages, cluster)
    _large(section, messages // LARGE_SHARE, cluster)
    _workers(section, messages // 4, cluster)
    _keys(section, messages, cluster)
    return section


def _backlog(section: Section, messages: int, cluster: Cluster) -> None:
    source = cluster.create(unique("g-"), 4)
    cluster.fill(source, values_of("raw"), messages)
    looks = _moved("cues", Pipe(unique("g"), source, unique("out"), partitions=4), messages, cluster)
    _add(section, f"{messages:,} messages, 4 partitions", looks, flat=True)
    cluster.delete(source)


def _large(section: Section, messages: int, cluster: Cluster) -> None:
    source = cluster.create(unique("g-"))
    cluster.fill(source, [os.urandom(LARGE_BYTES) for _ in range(10)], messages)
    for name, title in (("cues", "large"), ("hand", "large, by hand")):
        looks = _moved(name, Pipe(unique("g"), source, unique("out")), messages, cluster)
        _add(section, f"{messages:,} {title}", looks, flat=False)
    cluster.delete(source)


def _workers(section: Section, messages: int, cluster: Cluster) -> None:
    source = cluster.create(unique("g-"), WIDE)
    cluster.fill(source, values_of("raw"), messages)
    for number in range(1, 5):
        pipe = Pipe(unique("g"), source, unique("out"), partitions=WIDE)
        looks = _moved("cues", pipe, messages, cluster, more=("--workers", str(number)))
        _add(section, f"{messages:,} messages, {number} worker{'s' * (number > 1)}", looks, flat=False)
    cluster.delete(source)


def _keys(section: Section, keys: int, cluster: Cluster) -> None:
    source = cluster.create(unique("g-"))
    cluster.fill(source, Counted(keys), keys)
    pipe = Pipe(unique("g"), source, cluster.create(unique("out")), "disk")
    _add(section, f"{keys:,} keys on disk", _moved("cues", pipe, keys, cluster, create=False), flat=True)
    cluster.fill(source, Counted(keys), 1)
    began = time.monotonic()
    with side("cues", cluster, pipe) as process:
        _wait(lambda: cluster.committed(pipe.group("cues"), source, 1) > keys, process, f"{keys + 1} committed")
        took_s, own, spent = time.monotonic() - began, _own_mib([process]), cpu_s(process)
    rate, cpu = f"{keys / took_s:,.0f} keys/s", f"{spent / keys * 1e6:.1f}"
    section.rows.append([f"over it again, {took_s:.1f} s", rate, "", "", f"{own:.0f}", cpu, "reported"])
    cluster.delete(source, pipe.target)


def _moved(
    name: str, pipe: Pipe, messages: int, cluster: Cluster, *, more: Sequence[str] = (), create: bool = True
) -> list[Look]:
    """Let one side move all messages; what was seen at each tenth, from the end of the start on."""
    if create:
        cluster.create(pipe.target, pipe.partitions)
    group, looks = pipe.group(name), list[Look]()
    with side(name, cluster, pipe, more=more) as process:

        def finished() -> bool:
            done = cluster.committed(group, pipe.source, pipe.partitions)
            if done * TENTHS >= messages * (WARM + len(looks)):
                workers = [process, *process.children(recursive=True)]
                looks.append(Look(time.monotonic(), done, _own_mib(workers), sum(map(cpu_s, workers))))
            return done >= messages

        _wait(finished, process, f"{messages:,} committed by {name}")
    if create:
        cluster.delete(pipe.target)
    return looks


def _wait(condition: Callable[[], bool], process: psutil.Popen, what: str) -> None:
    until(condition, timeout_s=GIVE_UP_S, every_s=LOOK_S, what=what, process=process)


def _own_mib(processes: Iterable[psutil.Process]) -> float:
    """Resident memory that no file backs."""
    texts = (Path(f"/proc/{process.pid}/status").read_text("ascii") for process in processes)
    return sum(int(found[1]) for text in texts if (found := re.search(r"RssAnon:\s*(\d+) kB", text))) / 1024


def _add(section: Section, case: str, looks: Sequence[Look], *, flat: bool) -> None:
    first, last = looks[0], looks[-1]
    third = max(1, (len(looks) - 1) // 3)
    rates = _per_s(first, looks[third]), _per_s(looks[-1 - third], last)
    cpu_us = (last.cpu_s - first.cpu_s) / (last.done - first.done) * 1e6
    held = rates[1] >= STEADY * rates[0] and last.own_mib - first.own_mib <= FLAT_MIB
    goal = f">= {STEADY} x first, + {FLAT_MIB} MiB at most: {holds(held)}" if flat else "reported"
    memory = f"{first.own_mib:.0f}", f"{last.own_mib:.0f}"
    section.rows.append([case, f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", *memory, f"{cpu_us:.1f}", goal])
    print(f"  {' | '.join(section.rows[-1])}", flush=True)


def _per_s(one: Look, other: Look) -> float:
    return (other.done - one.done) / (other.at_s - one.at_s)
