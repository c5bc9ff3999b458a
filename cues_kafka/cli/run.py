"""``cues-kafka run``: a graph in this process, or in several that come back when they die."""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final, Self

import typer

from cues_kafka.cli.config import Bootstrap, File, Profile
from cues_kafka.errors import BrokerError, ConfigError, GraphError, RetriableError

if TYPE_CHECKING:
    from cues_kafka.graph.definition import Graph
    from cues_kafka.runtime.running import Running

epilog = """Examples:\n\n
    cues-kafka run shop:graph                                # one worker, this process\n\n
    cues-kafka run path/shop.py:graph --workers 4            # four processes, kept running\n\n
    cues-kafka run shop:graph --bootstrap localhost:9092 --only check\n\n
    cues-kafka run shop:graph --workers 2 --instance blue    # names that survive a restart of all of it\n\n
    SIGTERM and Ctrl-C stop in order. A task that stops is printed with its remedy and tried again; --fail-fast ends
    the worker instead, with code 3. A wrong graph or setting ends it with code 2."""

LOOK_S: Final = 0.5
"""How soon a stopped task is printed."""

WRONG, FAILED = 2, 3
"""See `supervisor.GIVE_UP`."""

Names = Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Run this processor; may be repeated.")]
Others = Annotated[
    list[str] | None, typer.Option("--except", metavar="NAME", help="Run all but this processor; may be repeated.")
]


def run(  # noqa: PLR0917 - each is an option of the command line
    target: Annotated[str, typer.Argument(metavar="MODULE:GRAPH", help="shop:graph, or path/shop.py:graph.")],
    bootstrap: Bootstrap = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Keep so many worker processes running.")] = None,
    instance: Annotated[
        str | None, typer.Option(help="A name that a successor has too: it takes over at once. Unique in the group.")
    ] = None,
    only: Names = None,
    without: Others = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="A task that stops ends the worker.")] = False,
    profile: Profile = None,
    file: File = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a graph until SIGTERM or Ctrl-C."""
    began = time.monotonic()
    if parent is not None:
        from cues_kafka.runtime.native.supervisor import die_with

        die_with(parent)
    try:
        from cues_kafka.cli.config import load
        from cues_kafka.cli.loading import load_graph

        settings = load({"bootstrap": bootstrap, "log_level": log_level}, profile=profile, file=file)
        _log_to_stderr(settings["log_level"])
        graph = load_graph(target)
        names = _selected(graph, only, without)
        if workers is None:
            from cues_kafka.runtime.lane import CommitPolicy
            from cues_kafka.runtime.start import start

            kafka, policy = settings.kafka(), CommitPolicy(**settings.commit())
            _collect_seldom()
            with _Signals() as signals:
                running = start(graph, kafka, only=names, instance=instance, policy=policy, timeout_s=None)
                watch = _Watch(graph, running, fail_fast=fail_fast, succeeded=parent is not None, began=began)
                code = watch.until(signals)
        else:
            settings.kafka()  # refused here once, and not by each worker
            given = [(f"--{name}", value) for name, value in (("bootstrap", bootstrap), ("profile", profile)) if value]
            given += [("--file", str(file.resolve()))] if file else []
            given += [("--log-level", log_level)] if log_level else []
            options = [*(part for pair in given for part in pair), *(f"--only={name}" for name in names or ())]
            code = _supervise(target, workers, instance, [*options, *(["--fail-fast"] if fail_fast else [])])
    except (ConfigError, GraphError) as error:
        typer.secho(f"cues-kafka: {error}", fg="red", err=True)
        raise typer.Exit(WRONG) from None
    except BrokerError as error:
        typer.secho(f"cues-kafka: {error}", fg="red", err=True)
        raise typer.Exit(1) from None
    raise typer.Exit(code)


def worker_command(target: str, *, instance: str, options: Sequence[str] = ()) -> list[str]:
    """The program of one worker, which dies with this process."""
    program = [sys.executable, "-m", "cues_kafka.cli.main"]
    return [*program, "run", target, "--instance", instance, "--parent", str(os.getpid()), *options]


def _collect_seldom() -> None:
    """
    Make the collector of cyclic garbage look every 50,000 objects, not every 700.

    A worker holds tens of thousands of messages, none of them in a cycle, and the collector walks through all of them
    again and again: 1.5 us of 14 for each message. What was imported, it need not look at at all.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _selected(graph: Graph, only: list[str] | None, without: list[str] | None) -> list[str] | None:
    if not (only or without):
        return None
    if unknown := sorted({*(only or ()), *(without or ())} - set(graph.processors)):
        raise ConfigError(f"graph {graph.name!r} has no {unknown}; its processors are {sorted(graph.processors)}")
    names = [name for name in only or graph.processors if name not in (without or ())]
    if not names:
        raise ConfigError("--only and --except leave no processor to run. Drop one of them.")
    return names


def _log_to_stderr(level: str) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    logging.getLogger("cues_kafka").setLevel(level.upper())
    if level != "debug":
        logging.getLogger("cues_kafka.librdkafka").setLevel(logging.WARNING)


class _Signals:
    """SIGTERM, SIGINT and SIGHUP as a value to wait for; a second one of the first two kills."""

    def __init__(self) -> None:
        self.came: int | None = None
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
        self.waiting = False

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._on)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        os.close(self._read)
        os.close(self._write)

    def wait(self, timeout_s: float | None, *fds: int) -> int | None:
        """The signal that came; None: the time is over, or a descriptor is readable."""
        self.waiting = True
        if self.came is None:
            select.select([self._read, *fds], [], [], timeout_s)
        return self.came

    def _on(self, number: int, _: FrameType | None) -> None:
        self.came = number
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if not self.waiting:  # still starting: there is nothing to stop in order
            raise SystemExit(128 + number)
        os.write(self._write, b"x")


class _Watch:
    """One worker in this process: says what happens to its tasks, and when it is over."""

    def __init__(self, graph: Graph, running: Running, *, fail_fast: bool, succeeded: bool, began: float) -> None:
        self._graph = graph
        self._running = running
        self._fail_fast = fail_fast
        self._succeeded = succeeded  # a supervisor starts a successor at once
        self._began = began
        self._told: dict[str, str] = {}
        self._ready = False

    def until(self, signals: _Signals) -> int:
        """Exit code, after the worker has stopped."""
        running = self._running
        while (came := signals.wait(LOOK_S if self._ready else LOOK_S / 10)) is None:
            self._look()
            if running.failed:
                typer.secho(f"this worker failed: {running.failed}", fg="red", err=True)
                running.abandon(leave=not self._succeeded)
                return 1
            if self._told and self._fail_fast:
                running.stop()
                return FAILED
        if came == signal.SIGHUP:
            running.release()
        else:
            running.stop()
        return 0

    def _look(self) -> None:
        stopped = {task.task: task for task in self._running.status().stopped}
        for name, task in stopped.items():
            if self._told.get(name) != task.stopped:
                typer.secho(f"{name} stopped: {task.stopped}\n  remedy: {task.remedy}", fg="red", err=True)
        for name in self._told.keys() - stopped.keys():
            typer.echo(f"{name} is tried again", err=True)
        self._told = {name: task.stopped for name, task in stopped.items()}
        if not self._ready and self._settled():
            self._ready = True
            count, seconds = len(self._running.status().tasks), time.monotonic() - self._began
            typer.echo(f"{self._graph.name}: ready after {seconds:.2f} s, {count} tasks here, pid {os.getpid()}")

    def _settled(self) -> bool:
        try:
            return self._running.settled
        except RetriableError:  # a leader moves; tasks recover from that
            return False


def _supervise(target: str, workers: int, instance: str | None, options: list[str]) -> int:
    from cues_kafka.runtime.native.supervisor import Supervisor

    name = instance or f"{socket.gethostname()}-{os.getpid()}"
    target = _absolute(target)
    ended_read, ended_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def changed() -> None:
        if supervisor.gave_up is not None:
            os.write(ended_write, b"x")

    supervisor = Supervisor(
        lambda k: worker_command(target, instance=f"{name}.{k}", options=options),
        workers=workers,
        on_change=changed,
    )
    with _Signals() as signals:
        with supervisor:
            typer.echo(f"{workers} workers {name}.1 to {name}.{workers}, supervised by pid {os.getpid()}")
            signals.wait(None, ended_read)
        return supervisor.gave_up or 0


def _absolute(target: str) -> str:
    """The same target from any directory, where it is a path."""
    path, _, name = target.rpartition(":")
    return f"{Path(path).resolve()}:{name}" if path.endswith(".py") else target
