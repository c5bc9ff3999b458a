"""The supervisor's part of ``cues-kafka run``: it starts the same command as workers, and takes signals for them."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

from cues_kafka.cli.printing import say
from cues_kafka.cli.watch import Signals
from cues_kafka.words import count

if TYPE_CHECKING:
    from cues_kafka.observe.http import Endpoint
    from cues_kafka.workers.supervisor import Supervisor
    from cues_kafka.workers.together import TogetherLook


MOST_BYTES: Final = 80
"""How long the temporary directory may be: the whole path of a socket file may have 107 bytes, see unix(7)."""


class Said(NamedTuple):
    """
    What a supervisor prints of its workers.

    Attributes:
        who: the workers, by number and name.
        how_many: the same, shorter.
    """

    who: str
    how_many: str

    @classmethod
    def of_workers(cls, workers: int, name: str) -> Self:
        """What is printed of native workers."""
        how_many = count(workers, "worker")
        return cls(f"{how_many}, {name}.1" + (f" to {name}.{workers}" if workers > 1 else ""), how_many)

    @classmethod
    def of_driver(cls, graph: str) -> Self:
        """The one process that has Spark's JVM."""
        return cls(f"{graph}: Spark's driver", "Spark's driver")


class WorkerProgram(Protocol):
    """Gives the program of a worker; `worker_command` with the target and the options of the user."""

    def __call__(self, *, instance: str | None, also: Sequence[str]) -> list[str]:
        """The program of the worker with this instance name, and with these options besides."""
        ...


def worker_command(
    target: str, *, instance: str | None, options: Sequence[str] = (), also: Sequence[str] = ()
) -> list[str]:
    """The program of one worker, which dies with this process."""
    program = [sys.executable, "-m", "cues_kafka.cli.main", "run", target]
    named = ["--instance", instance] if instance is not None else []
    return [*program, *named, "--parent", str(os.getpid()), *options, *also]


def absolute(target: str) -> str:
    """The same target from any directory, where it is a path."""
    path, _, name = target.rpartition(":")
    return f"{Path(path).resolve()}:{name}" if path.endswith(".py") else target


@contextlib.contextmanager
def served(graph: str, workers: int, http: str | None) -> Iterator[tuple[TogetherLook, Endpoint] | None]:
    """Listen where --http says; the workers listen at socket files in a directory that only this user can read."""
    if http is None:
        yield None
        return
    from cues_kafka.observe.http import listen
    from cues_kafka.workers.together import TogetherLook

    short = None if len(os.fsencode(tempfile.gettempdir())) <= MOST_BYTES else "/tmp"  # noqa: S108 - private below it
    with tempfile.TemporaryDirectory(prefix="cues-kafka-", dir=short) as directory:
        endpoint = listen(http)
        try:
            yield TogetherLook(graph, workers, Path(directory)), endpoint
        finally:
            endpoint.close()


def supervise(
    program: WorkerProgram,
    workers: int,
    name: str | None,
    *,
    said: Said,
    care: Mapping[str, Any],
    may_reload: Callable[[], bool],
    served: tuple[TogetherLook, Endpoint] | None,
) -> int:
    """
    Keep the workers running until a signal comes, or no restart helps; the exit code.

    Args:
        program: of a worker.
        workers: how many.
        name: what the instance names of the workers begin with; None: they have none.
        said: how they are named in what is printed.
        care: how the supervisor looks after them, as arguments of `Supervisor`.
        may_reload: asked at SIGHUP, whether the settings of now connect.
        served: where their health and metrics are served.
    """
    from cues_kafka.cli.notify import NOTIFY_SOCKET, notify
    from cues_kafka.workers.supervisor import Supervisor

    ended_read, ended_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    started = itertools.count()

    def command(k: int) -> list[str]:
        """The first one prints the plan's warnings for all."""
        unwarned = ["--unwarned"] if next(started) else []
        heard = ["--http", served[0].address(k)] if served else []
        return program(instance=None if name is None else f"{name}.{k}", also=[*unwarned, *heard])

    def changed() -> None:
        if supervisor.gave_up is not None:
            os.write(ended_write, b"x")
        elif not told and supervisor.ready:
            told.append(notify("READY=1"))

    told: list[bool] = []
    env = {name: value for name, value in os.environ.items() if name != NOTIFY_SOCKET}  # this process tells for all
    supervisor = Supervisor(command, workers=workers, env=env, on_change=changed, **care)
    with Signals() as signals:
        with supervisor:
            if served:
                look, endpoint = served
                endpoint.begin(partial(look.look, supervisor))
            say(f"{said.who}, supervised by pid {os.getpid()}")
            while signals.wait(None, ended_read) == signal.SIGHUP:
                signals.again()
                if may_reload():
                    say(f"replacing {said.how_many}" + (" one by one" if workers > 1 else ""))
                    _replace(supervisor, signals, said)
            notify("STOPPING=1")
        if supervisor.gave_up != 0:
            say(f"stopped: {said.who}")
        return supervisor.gave_up or 0


def _replace(supervisor: Supervisor, signals: Signals, said: Said) -> None:
    """Replace the workers until a signal comes."""
    if supervisor.roll(ended=lambda: signals.came is not None):
        say(f"replaced: {said.who}")
    elif signals.came is None:
        say("not all workers are replaced: see why the last one is not ready", fg="red", err=True)
