"""The options of ``cues-kafka run``, merged with the settings and the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cues_kafka.cli.config import RUN, Bootstrap, Config, File, Profile, load
from cues_kafka.cli.options import New, Options, Require, Target, at_least
from cues_kafka.errors import ConfigError
from cues_kafka.graph.names import no_such_processor

if TYPE_CHECKING:
    from cues_kafka.graph.definition import Graph
    from cues_kafka.ports.observer import Observer

MEMORY_ON_SPARK: Final = (
    "Spark limits its processes itself. In spark-defaults.conf, in the directory that SPARK_CONF_DIR names, set "
    "spark.driver.memory for Java in the driver (with --master local[...] that is all of Java), and for each executor "
    "spark.executor.memory (Java), spark.executor.pyspark.memory (the Python processes that call the functions) and "
    "spark.executor.memoryOverhead (what else its container may take)."
)
"""What to set in place of --max-memory."""


@dataclass(frozen=True, slots=True)
class RunOptions(Options):
    """The options of `run`, in the order of its help."""

    target: Target
    bootstrap: Bootstrap = None
    workers: Annotated[
        int | None, typer.Option(metavar="N", callback=at_least(1), help="Number of worker processes to keep running.")
    ] = None
    instance: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Stable name that survives restarts, so that a replacement takes over at once."
        ),
    ] = None
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Run only this processor; repeatable.")
    ] = None
    without: Annotated[
        list[str] | None,
        typer.Option("--except", metavar="NAME", help="Run all processors except this one; repeatable."),
    ] = None
    engine: Annotated[
        str | None,
        typer.Option(metavar="ENGINE", help="Where the processors run: native (default) or spark."),
    ] = None
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Spark: URL of the master; local[2]: two local threads. Default: local[*]."),
    ] = None
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="Spark: directory for the checkpoints of its queries.")
    ] = None
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="INTERVAL", help="Spark: interval between micro-batches, such as '10 seconds'; or available-now."
        ),
    ] = None
    standby: Annotated[
        bool | None,
        typer.Option(
            "--standby/--no-standby",
            help="Spark: keep a second driver ready, which takes over if the driver dies. It needs as much memory.",
        ),
    ] = None
    new: New = None
    require: Require = None
    call_timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="End the worker if a call takes longer than this.")
    ] = None
    max_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Replace a worker process that uses more memory, such as 512MiB."),
    ] = None
    stall_timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Kill a worker process that has hung for this long. Default: 120."),
    ] = None
    stop_timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Time to stop after SIGTERM. Default with --workers: 30; Spark: 60."),
    ] = None
    state_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory for the files of stores with on_disk=True.")
    ] = None
    openlineage: Annotated[
        str | None, typer.Option(metavar="TO", help="Send OpenLineage events to this file or URL.")
    ] = None
    spans: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Create OpenTelemetry spans for this share of messages, 0 to 1."),
    ] = None
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Serve /healthz, /readyz and /metrics at this address; PORT alone: on loopback."
        ),
    ] = None
    fail_fast: Annotated[
        bool | None,
        typer.Option("--fail-fast/--no-fail-fast", help="When a task stops, end the worker, or retry the task."),
    ] = None
    profile: Profile = None
    file: File = None
    log_level: Annotated[str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = None
    log_format: Annotated[str | None, typer.Option(metavar="FORMAT", help="console, or json: one object per line.")] = (
        None
    )
    parent: Annotated[int | None, typer.Option(hidden=True)] = None
    unwarned: Annotated[bool, typer.Option("--unwarned", hidden=True)] = False

    def load(self) -> Config:
        """All settings, these options among them."""
        own = {
            "bootstrap": self.bootstrap,
            "log_level": self.log_level,
            "log_format": self.log_format,
            "calls.end_seconds": self.call_timeout,
            "state_dir": self.state_dir,
        }
        return load(
            {**own, **{f"run.{name}": getattr(self, name) for name in RUN}}, profile=self.profile, file=self.file
        )


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """
    What the command line says of Spark.

    Attributes:
        checkpoint: directory of the queries' progress.
        master: of the cluster.
        trigger: see `Spark`; its default is a micro-batch as soon as there is something.
        standby: keep a second driver ready.
    """

    checkpoint: str
    master: str = "local[*]"
    trigger: str = "0 seconds"
    standby: bool = False

    @property
    def directory(self) -> str:
        """The checkpoint; made absolute if it is on this machine, so that the working directory does not matter."""
        here = self.master.startswith("local") and "://" not in self.checkpoint
        return str(Path(self.checkpoint).absolute()) if here else self.checkpoint


@dataclass(frozen=True, slots=True)
class GraphRun:
    """
    A graph to run, and the options for the run.

    Attributes:
        options: of the command line.
        settings: all settings.
        told: the options that are settings too, with what the file and variables say of them.
        graph: what to run; on Spark, with the topics of its patterns.
        names: of the processors that --only and --except leave; None: all.
        spark: what was said of Spark; None: native workers run it.
        care: how a supervisor looks after its workers, as arguments of `Supervisor`.
        began: when the command did, by `time.monotonic`.
    """

    options: RunOptions
    settings: Config
    told: Mapping[str, Any]
    graph: Graph
    names: Sequence[str] | None
    spark: SparkOptions | None
    care: Mapping[str, Any]
    began: float

    @classmethod
    def chosen(cls, options: RunOptions, settings: Config, graph: Graph, *, began: float) -> GraphRun:
        """
        What to run of a graph.

        Raises:
            ConfigError: options that exclude each other, or are unknown; a processor that the graph does not have.
            GraphError: an edge is weaker than --require.
        """
        names, told = _selected(graph, options.only, options.without), {name: getattr(options, name) for name in RUN}
        if options.parent is None:  # else a supervisor has chosen, and gives its worker what is for it
            told |= settings.given("run")
        _check_level(graph, told["require"], names)
        spark = _spark_options(settings, told)
        graph, names = _resolved(graph, settings, names, spark)
        care = _care(settings, told, spark=spark is not None)
        if spark is not None:
            own = {"workers": told["workers"], "instance": told["instance"], "call-timeout": options.call_timeout}
            _refuse(settings, "native workers", {**own, "spans": told["spans"]})
        return cls(options, settings, told, graph, names, spark, care, began)

    @property
    def as_json(self) -> bool:
        """Whether the log, as JSON, has what else is printed in sentences."""
        return bool(self.settings["log_format"] == "json")

    @property
    def warns(self) -> bool:
        """Whether this process prints the warnings of the plan."""
        return not self.options.unwarned and not self.as_json

    @property
    def new(self) -> Sequence[str]:
        """Processors that the user says are new, not renamed ones."""
        return self.options.new or ()

    @property
    def fail_fast(self) -> bool:
        """Whether a worker ends when a task stops."""
        return bool(self.told["fail_fast"])

    def observers(self) -> list[Observer]:
        """What --openlineage and --spans ask for."""
        found: list[Observer] = []
        if self.told["openlineage"] is not None:
            from cues_kafka.observe.openlineage import OpenLineage

            found.append(OpenLineage(self.told["openlineage"]))
        if self.told["spans"] is not None:
            from cues_kafka.observe.spans import Spans

            found.append(Spans(self.told["spans"]))
        return found

    def passed(self) -> list[str]:
        """The options of its workers."""
        options, told = self.options, self.told
        several = {"only": options.only, "except": options.without, "new": options.new}
        given = {
            "bootstrap": options.bootstrap,
            "profile": options.profile,
            "file": options.file and options.file.resolve(),
            "openlineage": told["openlineage"],
            "spans": told["spans"],
            "log-level": options.log_level,
            "log-format": options.log_format,
            "state-dir": options.state_dir,
            "call-timeout": options.call_timeout,
            "require": told["require"],
            **(
                {}
                if self.spark is None
                else {name: told[name] for name in ("engine", "master", "checkpoint", "trigger")}
            ),
        }
        return [
            *(f"--{option}={name}" for option, names in several.items() for name in names or ()),
            *(["--fail-fast"] if self.fail_fast else []),
            *(f"--{option}={value}" for option, value in given.items() if value is not None),
        ]


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


def _check_level(graph: Graph, require: str | None, names: Sequence[str] | None) -> None:
    """Refuse a graph with an edge that is weaker than --require."""
    if require is not None:
        from cues_kafka.plan.edges import refuse_weaker, required_level

        refuse_weaker(graph, required_level(require), names)


def _spark_options(settings: Config, told: Mapping[str, Any]) -> SparkOptions | None:
    """None: native workers were asked for."""
    engine = told["engine"] or "native"
    given = {name: told[name] for name in ("master", "checkpoint", "trigger")}
    given["standby"] = told["standby"] or None
    if engine not in ("native", "spark"):
        raise ConfigError(f"--engine {engine!r} is not known. Choose native or spark.")
    if engine == "native":
        _refuse(settings, "--engine spark", given)
        return None
    if not given["checkpoint"]:
        raise ConfigError(
            "--engine spark needs --checkpoint DIR: a directory that Spark's driver and executors can write."
        )
    options = SparkOptions(**{name: value for name, value in given.items() if value})
    if options.standby:
        _check_standby(options)
    return options


def _check_standby(options: SparkOptions) -> None:
    """Refuse a standby where it would hold what the driver needs, or where the driver has an end."""
    if options.master.partition("[")[0] != "local":
        raise ConfigError(
            f"--standby with --master {options.master}: its session would hold executors of the cluster all the time. "
            "Leave --standby out; a dead driver is started again without it. It is for --master 'local[...]'."
        )
    if options.trigger == "available-now":
        raise ConfigError("--standby with --trigger available-now: this run has an end. Leave --standby out.")


def _resolved(
    graph: Graph, settings: Config, names: list[str] | None, spark: SparkOptions | None
) -> tuple[Graph, list[str] | None]:
    """On Spark, the graph with the topics of its patterns as they are now; native workers look for them themselves."""
    if spark is None or not graph.patterns:
        return graph, names
    from cues_kafka.task.making.patterns import resolved_at

    graph, chosen, _ = resolved_at(graph, settings.kafka(), names, ())
    return graph, None if chosen is None else list(chosen)


def _care(settings: Config, told: Mapping[str, Any], *, spark: bool) -> dict[str, Any]:
    """How the supervisor looks after its workers, as arguments of `Supervisor`."""
    from cues_kafka.workers.memory import size

    for name in ("stall_timeout", "stop_timeout"):
        value = told[name]
        if value is not None and not value > 0:
            raise ConfigError(f"--{name.replace('_', '-')} must be more than 0 seconds, not {value:g}.")
    if spark:
        _refuse(settings, "native workers", {"max-memory": told["max_memory"]}, MEMORY_ON_SPARK)
    elif told["workers"] is None:
        _refuse(settings, "--workers", {"max-memory": told["max_memory"]})
    if told["workers"] is None and not spark:
        _refuse(settings, "--workers and --engine spark", {"stall-timeout": told["stall_timeout"]})
    care = {"stall_s": told["stall_timeout"], "stop_timeout_s": told["stop_timeout"]}
    if told["max_memory"] is not None:
        care["max_memory"] = size(told["max_memory"], "--max-memory")
    return {name: value for name, value in care.items() if value is not None}


def _refuse(
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
