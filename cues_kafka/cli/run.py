"""``cues-kafka run``: a graph in this process, in several that come back when they die, or on Spark."""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from cues_kafka.cli.config import Bootstrap, File, Profile
from cues_kafka.cli.options import REFUSED, New, Require, Target, at_least, print_error
from cues_kafka.cli.printing import log_texts, say
from cues_kafka.cli.supervise import Said, absolute, served, supervise, worker_command
from cues_kafka.cli.watch import RELOAD, Signals, TaskWatch, announce
from cues_kafka.errors import ConfigError, CuesError, GraphError, TopicsMissing
from cues_kafka.graph.names import no_such_processor
from cues_kafka.graph.packages import require_packages
from cues_kafka.observe.log import JsonLog
from cues_kafka.words import count

if TYPE_CHECKING:
    from cues_kafka.cli.config import Config
    from cues_kafka.cli.on_spark import SparkOptions
    from cues_kafka.graph.definition import Graph
    from cues_kafka.ports import Observer

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
  # 'verdict' is not another processor under a new name
  cues-kafka run shop:graph --new verdict
  # only if no edge may lose or repeat messages
  cues-kafka run shop:graph --require exactly-once
  # health and Prometheus metrics of all workers, on a port of this machine
  cues-kafka run shop:graph --workers 4 --http 127.0.0.1:9100
  # replace a worker that takes more memory; 60 s for all to stop
  cues-kafka run shop:graph --workers 4 --max-memory 512MiB --stop-timeout 60
  # log lines as JSON, for a collector of logs
  cues-kafka run shop:graph --log-format json
  # tell a catalog of data which topics are read and written
  cues-kafka run shop:graph --openlineage http://marquez:5000
  # spans for one message in a hundred, to $OTEL_EXPORTER_OTLP_ENDPOINT
  cues-kafka run shop:graph --spans 0.01
  # on Spark, with two threads on this machine
  cues-kafka run shop:graph --engine spark --master 'local[2]' --checkpoint /var/lib/shop
  # on Spark, until all messages of now are delivered
  cues-kafka run shop:graph --engine spark --checkpoint s3a://shop/state --trigger available-now

SIGTERM and Ctrl-C shut down gracefully. SIGHUP replaces the workers one by one,
with new code, settings and passwords. SIGQUIT to a worker writes the stacks of
its threads to the log. When a task stops, its cause and the
remedy are printed, and it is retried; with --fail-fast the worker ends with
exit code 3 instead. A wrong graph or setting ends it with exit code 2.
"""

Refuse: TypeAlias = Callable[..., None]
"""Refuses options that go with something else only: what that is, the options by name, and what to do instead."""

MEMORY_ON_SPARK: Final = (
    "Spark limits its processes itself. In spark-defaults.conf, in the directory that SPARK_CONF_DIR names, set "
    "spark.driver.memory for Java in the driver (with --master local[...] that is all of Java), and for each executor "
    "spark.executor.memory (Java), spark.executor.pyspark.memory (the Python processes that call the functions) and "
    "spark.executor.memoryOverhead (what else its container may take)."
)
"""What to set in place of --max-memory."""

Names = Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Run only this processor; repeatable.")]
Others = Annotated[
    list[str] | None, typer.Option("--except", metavar="NAME", help="Run all processors but this one; repeatable.")
]


def run(  # noqa: PLR0917 - each is an option of the command line
    target: Target,
    bootstrap: Bootstrap = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", callback=at_least(1), help="Number of worker processes to keep running.")
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Stable name that survives restarts, so that a replacement takes over at once."
        ),
    ] = None,
    only: Names = None,
    without: Others = None,
    engine: Annotated[
        str | None,
        typer.Option(metavar="ENGINE", help="Where the processors run: native (default) or spark."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Spark: its master; local[2] is two threads on this machine. Default: local[*]."
        ),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="Spark: directory in which its queries keep their progress.")
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="INTERVAL", help="Spark: interval between micro-batches, such as '10 seconds'; or available-now."
        ),
    ] = None,
    new: New = None,
    require: Require = None,
    call_timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="End the worker when a function takes longer for a message.")
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Replace a worker process that takes more memory, such as 512MiB."),
    ] = None,
    stall_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Kill a worker process whose loops stand still for so long. Default: 120."
        ),
    ] = None,
    stop_timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="End so long after SIGTERM. Default with --workers: 30; Spark: 60."),
    ] = None,
    state_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory for the files of stores with on_disk=True.")
    ] = None,
    openlineage: Annotated[
        str | None, typer.Option(metavar="TO", help="File or URL for lineage events in the form of OpenLineage.")
    ] = None,
    spans: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Make spans of OpenTelemetry for this share of messages, 0 to 1."),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve /healthz, /readyz and /metrics there; PORT: on loopback."),
    ] = None,
    fail_fast: Annotated[
        bool | None, typer.Option("--fail-fast/--no-fail-fast", help="End the worker when a task stops, or retry it.")
    ] = None,
    profile: Profile = None,
    file: File = None,
    log_level: Annotated[str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = None,
    log_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="console, or json: one object a line.")
    ] = None,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
    unwarned: Annotated[bool, typer.Option("--unwarned", hidden=True)] = False,
) -> None:
    """Run a graph until SIGTERM or Ctrl-C."""
    began = time.monotonic()
    if parent is not None:
        from cues_kafka.workers.supervisor import die_with

        die_with(parent)
    try:
        from cues_kafka.cli.config import load
        from cues_kafka.cli.loading import load_graph

        options: dict[str, Any] = {
            "workers": workers, "instance": instance, "engine": engine, "master": master, "checkpoint": checkpoint,
            "trigger": trigger, "max_memory": max_memory, "stall_timeout": stall_timeout, "stop_timeout": stop_timeout,
            "openlineage": openlineage, "spans": spans, "http": http, "fail_fast": fail_fast,
            "require": require,
        }  # fmt: skip
        explicit = {
            "bootstrap": bootstrap,
            "log_level": log_level,
            "log_format": log_format,
            "calls.end_seconds": call_timeout,
            "state_dir": state_dir,
            **{f"run.{name}": value for name, value in options.items()},
        }
        settings = load(explicit, profile=profile, file=file)
        as_json = settings["log_format"] == "json"
        _log_to_stderr(
            settings["log_level"], as_json=as_json, unwarned=unwarned, worker=_number(instance) if parent else None
        )
        graph = load_graph(target)
        names = _selected(graph, only, without)
        if parent is None:  # else a supervisor has chosen, and gives its worker what is for it
            options |= settings.given("run")
        _check_level(graph, options["require"], names)
        workers, instance, http, stop_timeout = map(options.get, ("workers", "instance", "http", "stop_timeout"))
        openlineage, spans, fail_fast = options["openlineage"], options["spans"], bool(options["fail_fast"])
        refuse = partial(_none_given, settings)
        spark = _spark_options(options, refuse)
        graph, names = _resolved(graph, settings, names, spark)
        care = _care(options, refuse, spark=spark is not None)
        if spark is not None:
            own = {"workers": workers, "instance": instance, "call-timeout": call_timeout, "spans": spans}
            refuse("native workers", own)
        if spark is not None and parent is not None:
            from cues_kafka.cli.on_spark import run_on_spark

            _write_stacks()
            code = run_on_spark(
                graph, settings, spark, names=names, chosen=bool(only), new=new or (), fail_fast=fail_fast, began=began,
                observers=_observers(openlineage, None), http=http, warn=not unwarned and not as_json,
                tells=not as_json,
            )  # fmt: skip
        elif workers is None and spark is None:
            code = _work(
                graph, settings, names=names, instance=instance, new=new or (), fail_fast=fail_fast,
                may_reload=None if parent is not None else partial(_may_reload, explicit, profile, file),
                warn=not unwarned and not as_json, tells=not as_json, began=began,
                observers=_observers(openlineage, spans), http=http, stop_timeout_s=stop_timeout,
            )  # fmt: skip
            if code == RELOAD:
                sys.stdout.flush()
                os.execv(sys.executable, [sys.executable, "-m", "cues_kafka.cli.main", *sys.argv[1:]])  # noqa: S606
        else:
            _check_workers(graph, settings, names, spark)
            _observers(openlineage, spans)
            given = {
                "bootstrap": bootstrap, "profile": profile, "file": file and file.resolve(), "openlineage": openlineage,
                "spans": spans, "log-level": log_level, "log-format": log_format, "state-dir": state_dir,
                "call-timeout": call_timeout, "require": options["require"],
            }  # fmt: skip
            several = {"only": only, "except": without, "new": new}
            passed = [f"--{option}={name}" for option, names_of in several.items() for name in names_of or ()]
            passed += ["--fail-fast"] if fail_fast else []
            if spark is None:
                assert workers is not None
                name = instance or f"{socket.gethostname()}-{os.getpid()}"
                said = Said.of_workers(workers, name)
            else:
                from cues_kafka.cli.on_spark import STOP_S, announce_on_spark
                from cues_kafka.on_spark.query.triggers import AVAILABLE_NOW

                announce_on_spark(graph, settings, spark, names=names, chosen=bool(only))
                given |= {name: options[name] for name in ("engine", "master", "checkpoint", "trigger")}
                workers, name, said = 1, None, Said.of_driver(graph.name)
                care = {"stop_timeout_s": STOP_S, "may_end": spark.trigger == AVAILABLE_NOW, **care}
            passed += [f"--{option}={value}" for option, value in given.items() if value is not None]
            reload = partial(_may_reload, explicit, profile, file)
            command = partial(worker_command, absolute(target), options=passed)
            with served(graph.name, workers, http) as endpoint:
                if spark is None:
                    say(f"{graph.name}: {count(workers, 'worker')} on {settings.address}")
                code = supervise(command, workers, name, said=said, care=care, may_reload=reload, served=endpoint)
    except TopicsMissing as error:
        raise settings.refuse_to_create(str(error)) from None
    except (ConfigError, GraphError) as error:
        if parent is None:
            raise
        print_error(error)
        raise typer.Exit(REFUSED) from None
    raise typer.Exit(code)


def _work(
    graph: Graph,
    settings: Config,
    *,
    names: Sequence[str] | None,
    instance: str | None,
    new: Sequence[str],
    fail_fast: bool,
    may_reload: Callable[[], bool] | None,
    warn: bool,
    tells: bool,
    began: float,
    observers: Sequence[Observer],
    http: str | None,
    stop_timeout_s: float | None,
) -> int:
    """Run one native worker in this process; its exit code."""
    from cues_kafka.graph.declare import CallPolicy, CommitPolicy
    from cues_kafka.running.start import start

    kafka = settings.kafka()
    _write_stacks()
    policy, calls = CommitPolicy(**settings.given("commit")), CallPolicy(**settings.given("calls"))
    _collect_seldom()
    with Signals() as signals:
        running = start(
            graph, kafka, only=names, instance=instance, policy=policy, calls=calls, timeout_s=None, new=new,
            create_topics=settings.named, observers=observers, http=http,
        )  # fmt: skip
        announce(running, settings.address, warn=warn)
        return TaskWatch(
            graph, running, fail_fast=fail_fast, succeeded=may_reload is None, began=began, may_reload=may_reload,
            keeps_place=instance is not None, tells=tells, stop_timeout_s=stop_timeout_s,
        ).until(signals)  # fmt: skip


def _write_stacks() -> None:
    """Have a crash, such as SIGSEGV, and SIGQUIT write all stacks to stderr; after SIGQUIT the work goes on."""
    from cues_kafka.workers.supervisor import STACKS

    assert sys.__stderr__ is not None  # of this process, whatever stands in for sys.stderr
    faulthandler.enable(sys.__stderr__, all_threads=True)
    faulthandler.register(STACKS, sys.__stderr__, all_threads=True)


def _care(options: Mapping[str, Any], refuse: Refuse, *, spark: bool) -> dict[str, Any]:
    """How the supervisor looks after its workers, as arguments of `Supervisor`."""
    from cues_kafka.workers.memory import size

    for name in ("stall_timeout", "stop_timeout"):
        value = options[name]
        if value is not None and not value > 0:
            raise ConfigError(f"--{name.replace('_', '-')} must be more than 0 seconds, not {value:g}.")
    if spark:
        refuse("native workers", {"max-memory": options["max_memory"]}, MEMORY_ON_SPARK)
    elif options["workers"] is None:
        refuse("--workers", {"max-memory": options["max_memory"]})
    if options["workers"] is None and not spark:
        refuse("--workers and --engine spark", {"stall-timeout": options["stall_timeout"]})
    care = {"stall_s": options["stall_timeout"], "stop_timeout_s": options["stop_timeout"]}
    if options["max_memory"] is not None:
        care["max_memory"] = size(options["max_memory"], "--max-memory")
    return {name: value for name, value in care.items() if value is not None}


def _may_reload(explicit: Mapping[str, Any], profile: str | None, file: Path | None) -> bool:
    """Whether the settings as they are now, with their secrets, connect; else say why the old ones stay."""
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.brokers.tokens import read_again
    from cues_kafka.cli.config import load

    try:
        broker = open_broker(read_again(load(explicit, profile=profile, file=file).kafka()))
        try:
            broker.facts([])
        finally:
            broker.close()
    except CuesError as error:
        say(f"not reloaded, the workers go on as they are: {error}", fg="red", err=True)
        return False
    return True


def _observers(openlineage: str | None, spans: float | None) -> list[Observer]:
    """What --openlineage and --spans ask for."""
    found: list[Observer] = []
    if openlineage is not None:
        from cues_kafka.observe.openlineage import OpenLineage

        found.append(OpenLineage(openlineage))
    if spans is not None:
        from cues_kafka.observe.spans import Spans

        found.append(Spans(spans))
    return found


def _spark_options(options: Mapping[str, Any], refuse: Refuse) -> SparkOptions | None:
    """None: native workers were asked for."""
    from cues_kafka.cli.on_spark import SparkOptions

    engine = options["engine"] or "native"
    given = {name: options[name] for name in ("master", "checkpoint", "trigger")}
    if engine not in ("native", "spark"):
        raise ConfigError(f"--engine {engine!r} is not known. Choose native or spark.")
    if engine == "native":
        refuse("--engine spark", given)
        return None
    if not given["checkpoint"]:
        raise ConfigError(
            "--engine spark needs --checkpoint DIR: a directory that Spark's driver and executors can write."
        )
    return SparkOptions(**{name: value for name, value in given.items() if value})


def _none_given(
    settings: Config, where: str, given: Mapping[str, Any], instead: str = "Leave out one or the other."
) -> None:
    """Refuse options that the rest of the command has no use for, with the places of those that are settings."""
    said = []
    for name in (name for name, value in given.items() if value is not None):
        setting = settings.settings.get(f"run.{name.replace('-', '_')}")
        written = setting is not None and setting.origin not in ("default", f"--{name}")
        said.append(f"--{name} ({setting.origin})" if setting is not None and written else f"--{name}")
    if said:
        raise ConfigError(f"{', '.join(said)}: with {where} only. {instead}")


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
    known = [*graph.all_processors]
    if unknown := sorted({*(only or ()), *(without or ())} - set(known)):
        raise ConfigError(no_such_processor(graph.name, unknown, known))
    names = [name for name in only or known if name not in (without or ())]
    if not names:
        raise ConfigError("--only and --except leave no processor to run. Drop one of them.")
    return names


def _check_workers(graph: Graph, settings: Config, names: Sequence[str] | None, spark: SparkOptions | None) -> None:
    """Refuse once, before there are workers, what each of them would refuse."""
    settings.kafka()
    if spark is None:
        require_packages(graph, names)


def _resolved(
    graph: Graph, settings: Config, names: list[str] | None, spark: SparkOptions | None
) -> tuple[Graph, list[str] | None]:
    """On Spark, the graph with the topics of its patterns as they are now; native workers look for them themselves."""
    if spark is None or not graph.patterns:
        return graph, names
    from cues_kafka.task.making.patterns import resolved_at

    graph, chosen, _ = resolved_at(graph, settings.kafka(), names, ())
    return graph, None if chosen is None else list(chosen)


def _check_level(graph: Graph, require: str | None, names: Sequence[str] | None) -> None:
    """Refuse a graph with an edge that is weaker than --require."""
    if require is not None:
        from cues_kafka.plan.edges import refuse_weaker, required_level

        refuse_weaker(graph, required_level(require), names)


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

_TOLD: Final = ("stopped ", "worker failed ", "the group does not let this worker in any more ")


def is_not_told(record: logging.LogRecord) -> bool:
    """Whether `TaskWatch` does not print it as a sentence: it does so when a task stops or a worker fails."""
    return not record.getMessage().startswith(_TOLD)
