"""``cues-kafka run``: run a graph in this process, in supervised worker processes, or on Spark."""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from cues_kafka.cli.options import REFUSED, print_error
from cues_kafka.cli.printing import log_texts, say
from cues_kafka.cli.run_options import GraphRun, RunOptions
from cues_kafka.cli.supervise import Said, absolute, served, supervise, worker_command
from cues_kafka.cli.watch import RELOAD, Signals, TaskWatch, announce
from cues_kafka.errors import ConfigError, CuesError, GraphError, TopicsMissing
from cues_kafka.graph.packages import require_packages
from cues_kafka.observe.log import JsonLog
from cues_kafka.words import count

if TYPE_CHECKING:
    from cues_kafka.cli.config import Config
    from cues_kafka.graph.definition import Graph

epilog = """
\b
Examples:
  # one worker, this process
  cues-kafka run shop:graph
  # four worker processes, restarted when they die
  cues-kafka run path/shop.py:graph --workers 4
  # one processor only
  cues-kafka run shop:graph --bootstrap localhost:9092 --only check
  # names that survive a restart of all workers
  cues-kafka run shop:graph --workers 2 --instance blue
  # 'verdict' is a new processor, not a renamed one
  cues-kafka run shop:graph --new verdict
  # only if no edge may lose or repeat messages
  cues-kafka run shop:graph --require exactly-once
  # health and Prometheus metrics of all workers, on a local port
  cues-kafka run shop:graph --workers 4 --http 127.0.0.1:9100
  # replace workers that use more memory; allow 60 s for the shutdown
  cues-kafka run shop:graph --workers 4 --max-memory 512MiB --stop-timeout 60
  # log lines as JSON, for a log collector
  cues-kafka run shop:graph --log-format json
  # report to a data catalog which topics are read and written
  cues-kafka run shop:graph --openlineage http://marquez:5000
  # spans for 1 % of the messages, to $OTEL_EXPORTER_OTLP_ENDPOINT
  cues-kafka run shop:graph --spans 0.01
  # on Spark, with two threads on this machine
  cues-kafka run shop:graph --engine spark --master 'local[2]' --checkpoint /var/lib/shop
  # on Spark, until all present messages are delivered
  cues-kafka run shop:graph --engine spark --checkpoint s3a://shop/state --trigger available-now

SIGTERM and Ctrl-C shut down gracefully. SIGHUP replaces the workers one by one,
with new code, settings and passwords. On SIGQUIT a worker writes the stacks of
its threads to the log. When a task stops, the command prints the cause and the
remedy, and retries the task; with --fail-fast the worker exits with 3 instead.
If the graph or a setting is wrong, the command exits with 2.
"""


def run(options: RunOptions) -> None:
    """Run a graph until SIGTERM or Ctrl-C."""
    began = time.monotonic()
    if options.parent is not None:
        from cues_kafka.workers.die_with import die_with

        die_with(options.parent)
    try:
        settings = options.load()
        code = _run(options, settings, began)
    except TopicsMissing as error:
        raise settings.refuse_to_create(str(error)) from None
    except (ConfigError, GraphError) as error:
        if options.parent is None:
            raise
        print_error(error)
        raise typer.Exit(REFUSED) from None
    raise typer.Exit(code)


def _run(options: RunOptions, settings: Config, began: float) -> int:
    """Run it in this process, or as the supervisor of others; the exit code."""
    from cues_kafka.cli.loading import load_graph

    worker = _number(options.instance) if options.parent else None
    _log_to_stderr(
        settings["log_level"], as_json=settings["log_format"] == "json", unwarned=options.unwarned, worker=worker
    )
    graph = load_graph(options.target)
    chosen = GraphRun.chosen(options, settings, graph, began=began)
    if chosen.spark is not None and options.parent is not None:
        from cues_kafka.cli.on_spark import run_on_spark

        _write_stacks()
        return run_on_spark(chosen, chosen.spark, choose=partial(_choose, options, graph))
    if chosen.spark is not None or chosen.told["workers"] is not None:
        return _supervise(chosen)
    code = _work(chosen)
    if code == RELOAD:
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "cues_kafka.cli.main", *sys.argv[1:]])  # noqa: S606
    return code


def _choose(options: RunOptions, graph: Graph) -> GraphRun:
    """What to run of a graph, with the settings and the topics of its patterns as they are now."""
    return GraphRun.chosen(options, options.load(), graph, began=time.monotonic())


def _work(chosen: GraphRun) -> int:
    """Run one native worker in this process; its exit code."""
    from cues_kafka.graph.declare import CallPolicy, CommitPolicy
    from cues_kafka.running.start import start

    observers, settings, told = chosen.observers(), chosen.settings, chosen.told
    kafka = settings.kafka()
    _write_stacks()
    policy, calls = CommitPolicy(**settings.given("commit")), CallPolicy(**settings.given("calls"))
    _collect_seldom()
    may_reload = partial(_may_reload, chosen.options) if chosen.options.parent is None else None
    with Signals() as signals:
        running = start(
            chosen.graph, kafka, only=chosen.names, instance=told["instance"], policy=policy, calls=calls,
            timeout_s=None, new=chosen.new, create_topics=settings.named, observers=observers, http=told["http"],
        )  # fmt: skip
        announce(running, settings.address, warn=chosen.warns)
        return TaskWatch(
            chosen.graph, running, fail_fast=chosen.fail_fast, succeeded=may_reload is None, began=chosen.began,
            may_reload=may_reload, keeps_place=told["instance"] is not None, tells=not chosen.as_json,
            stop_timeout_s=told["stop_timeout"],
        ).until(signals)  # fmt: skip


def _supervise(chosen: GraphRun) -> int:
    """Keep native workers or Spark's driver running; the exit code. What they would refuse is refused here once."""
    graph, told, care, name = chosen.graph, chosen.told, chosen.care, None
    chosen.settings.kafka()
    if chosen.spark is None:
        require_packages(graph, chosen.names)
    chosen.observers()
    if chosen.spark is None:
        workers, name = told["workers"], told["instance"] or f"{socket.gethostname()}-{os.getpid()}"
        said = Said.of_workers(workers, name)
    else:
        from cues_kafka.cli.on_spark import STOP_S, announce_on_spark
        from cues_kafka.on_spark.query.triggers import AVAILABLE_NOW
        from cues_kafka.workers.standby import AFTER_S

        announce_on_spark(chosen, chosen.spark)
        workers, said = 1, Said.of_driver(graph.name)
        care = {"stop_timeout_s": STOP_S, "may_end": chosen.spark.trigger == AVAILABLE_NOW, **care}
        if chosen.spark.standby:
            care["standby_after_s"] = AFTER_S
    command = partial(worker_command, absolute(chosen.options.target), options=chosen.passed())
    may_reload = partial(_may_reload, chosen.options)
    with served(graph.name, workers, told["http"]) as endpoint:
        if chosen.spark is None:
            say(f"{graph.name}: {count(workers, 'worker')} on {chosen.settings.address}")
        return supervise(command, workers, name, said=said, care=care, may_reload=may_reload, served=endpoint)


def _write_stacks() -> None:
    """Have a crash, such as SIGSEGV, and SIGQUIT write all stacks to stderr; after SIGQUIT the work goes on."""
    from cues_kafka.workers.supervisor import STACKS

    assert sys.__stderr__ is not None  # of this process, whatever stands in for sys.stderr
    faulthandler.enable(sys.__stderr__, all_threads=True)
    faulthandler.register(STACKS, sys.__stderr__, all_threads=True)


def _may_reload(options: RunOptions) -> bool:
    """Whether the settings as they are now, with their secrets, connect; else say why the old ones stay."""
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.brokers.tokens import read_again

    try:
        broker = open_broker(read_again(options.load().kafka()))
        try:
            broker.facts([])
        finally:
            broker.close()
    except CuesError as error:
        say(f"not reloaded, the workers go on as they are: {error}", fg="red", err=True)
        return False
    return True


def _collect_seldom() -> None:
    """
    Make the collector of cyclic garbage look every 50,000 objects, not every 700.

    A worker holds tens of thousands of messages, none of them in a cycle, and the collector walks through all of them
    again and again: 1.5 us of 14 for each message. What was imported, it need not look at at all.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _number(instance: str | None) -> int | None:
    """The number of a worker, from the name that its supervisor gave it; None: on Spark there is one worker."""
    return int(instance.rpartition(".")[2]) if instance else None


def _log_to_stderr(level: str, *, as_json: bool = False, unwarned: bool = False, worker: int | None = None) -> None:
    """Send the log to stderr. As JSON it also has what is else printed: the plan's warnings, and tasks that stop."""
    of = "" if worker is None else f" worker={worker}"
    text = logging.Formatter(
        f"%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s %(message)s{of}", datefmt="%Y-%m-%dT%H:%M:%S"
    )
    handler = logging.StreamHandler(sys.stderr)
    as_line = JsonLog(worker) if as_json else None
    handler.setFormatter(as_line or text)
    log_texts(as_line)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("cues_kafka").setLevel(level.upper())
    if unwarned or not as_json:
        logging.getLogger("cues_kafka.start").setLevel(logging.WARNING)
    if level != "debug":
        logging.getLogger("cues_kafka.librdkafka").setLevel(logging.WARNING)
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # the frames of what the command tells in a sentence
        logging.getLogger().addFilter(_is_not_of_py4j)
        for name in () if as_json else TOLD_OF:
            logging.getLogger(name).addFilter(is_not_told)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Whether py4j did not log it: two of its lines go to the root logger, whatever the level of its own one."""
    return Path(record.pathname).parent.name != "py4j"


TOLD_OF: Final = ("cues_kafka.task", "cues_kafka.spark", "cues_kafka.worker")
"""Loggers with lines that `TaskWatch` prints as sentences."""

_TOLD: Final = ("stopped ", "worker failed ", "the group refuses this worker ")


def is_not_told(record: logging.LogRecord) -> bool:
    """Whether `TaskWatch` does not print it as a sentence: it does so when a task stops or a worker fails."""
    return not record.getMessage().startswith(_TOLD)
