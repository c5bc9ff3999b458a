"""``cues-kafka run --engine spark``: a driver process with a session of its own, which a supervisor keeps running."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cues_kafka.cli.options import BROKEN, UNDONE
from cues_kafka.cli.printing import say
from cues_kafka.cli.standby import stand_by
from cues_kafka.cli.watch import Signals, TaskWatch, announce
from cues_kafka.errors import ConfigError
from cues_kafka.extras import SPARK, require

if TYPE_CHECKING:
    from cues_kafka.brokers.options import Kafka
    from cues_kafka.cli.run_options import GraphRun, SparkOptions
    from cues_kafka.graph.dataframe import DataFrameProcessor
    from cues_kafka.graph.definition import Graph
    from cues_kafka.graph.processor import Processor

STOP_S: Final = 60.0
"""From SIGTERM to SIGKILL: a micro-batch ends, and the session waits up to 15 s for Spark's processes."""


def announce_on_spark(chosen: GraphRun, options: SparkOptions) -> None:
    """
    Refuse what is wrong before a JVM is started, and print what runs on Spark, and why the rest does not.

    Raises:
        ConfigError: Spark is not installed, it cannot carry what was chosen, or the plan is refused.
        BrokerError: the cluster does not answer.
    """
    require_spark()
    from cues_kafka.on_spark.query.triggers import streaming_trigger

    graph = chosen.graph
    streaming_trigger(options.trigger)
    carried, left = _carried(graph, chosen.names, chosen=bool(chosen.options.only))
    said = "; ".join(f"{name} ({why})" for name, why in left.items())
    say(f"{graph.name}: running {', '.join(carried)} on Spark" + (f"; not there: {said}" if said else ""))
    _widest_input(graph, chosen.settings.kafka(), carried)


def run_on_spark(chosen: GraphRun, options: SparkOptions, *, choose: Callable[[], GraphRun]) -> int:
    """
    Run under a supervisor until a signal comes, or all is delivered; the exit code.

    A standby first makes a session ready, and waits until it is the driver.

    Args:
        chosen: what to run.
        options: of Spark.
        choose: chooses again, for a standby, which may have waited for days.

    Raises:
        ConfigError: Spark is not installed or does not start, it cannot carry what was chosen, or the plan is refused.
        BrokerError: the cluster does not answer.
        SparkLost: Spark's JVM was killed.
    """
    require_spark()
    from cues_kafka.on_spark.session import choose_shuffle_partitions, opened_session
    from cues_kafka.workers.standby import Go

    go = Go.given()
    graph, quiet = chosen.graph, chosen.settings["log_level"] != "debug"
    carried, frames = _to_carry(chosen)
    with Signals() as signals:
        beside = _beside(partial(_make_ready, graph, chosen.settings.kafka(), carried))
        with opened_session(options.master, name=graph.name, quiet=quiet, frames=frames) as session:
            if go is not None:
                if not stand_by(session, go, signals, frames=frames, began=chosen.began):
                    return 0
                chosen = choose()
                carried, _ = _to_carry(chosen)
                beside = _beside(partial(_widest_input, chosen.graph, chosen.settings.kafka(), carried))
            slots = beside.result()
            if frames and (said := choose_shuffle_partitions(session, slots)):
                say(f"{graph.name}: {said}")
            return _run(chosen, options, session, carried, signals)


def _to_carry(chosen: GraphRun) -> tuple[list[str], bool]:
    """The processors that Spark runs, and whether they compute DataFrames."""
    carried, _ = _carried(chosen.graph, chosen.names, chosen=bool(chosen.options.only))
    return carried, any(name in chosen.graph.dataframes for name in carried)


def _run(chosen: GraphRun, options: SparkOptions, session: Any, carried: list[str], signals: Signals) -> int:
    """Run these processors in a session until a signal comes, or all is delivered; the exit code."""
    from cues_kafka.graph.declare import CommitPolicy
    from cues_kafka.on_spark.engine import Spark
    from cues_kafka.on_spark.lost import is_jvm_gone
    from cues_kafka.on_spark.query.slots import POLICY
    from cues_kafka.on_spark.query.triggers import AVAILABLE_NOW
    from cues_kafka.running.start import start

    graph, settings = chosen.graph, chosen.settings
    policy = CommitPolicy(**{**dataclasses.asdict(POLICY), **settings.given("commit")})
    engine = Spark(session, checkpoint=options.directory, trigger=options.trigger, policy=policy)
    running = start(
        graph, settings.kafka(), engine=engine, only=carried, timeout_s=None, new=chosen.new,
        create_topics=settings.named, observers=chosen.observers(), http=chosen.told["http"],
    )  # fmt: skip
    announce(running, settings.address, warn=chosen.warns)
    watch = TaskWatch(
        graph, running, fail_fast=chosen.fail_fast, succeeded=True, began=chosen.began, tells=not chosen.as_json
    )
    code, failed = watch.until(signals), running.failed
    ends = options.trigger == AVAILABLE_NOW and not (failed and is_jvm_gone(failed))
    return UNDONE if code == BROKEN and ends else code


def _make_ready(graph: Graph, kafka: Kafka, names: Sequence[str]) -> int:
    """Import what the run needs, and ask the cluster for the widest input, while Java starts."""
    import cues_kafka.on_spark.engine
    import cues_kafka.running.starting  # noqa: F401

    return _widest_input(graph, kafka, names)


def _beside(make: Callable[[], int]) -> Future[int]:
    """Call it in the background. A process that ends meanwhile does not wait for it."""
    found: Future[int] = Future()

    def call() -> None:
        try:
            found.set_result(make())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            found.set_exception(error)

    threading.Thread(target=call, name="beside-java", daemon=True).start()
    return found


def require_spark() -> None:
    """
    Say what is missing, before anything is started.

    Raises:
        MissingExtra: a package of Spark is not installed.
        ConfigError: there is no Java.
    """
    require("--engine spark", SPARK)
    from cues_kafka.on_spark import java

    java.find_java()


def _widest_input(graph: Graph, kafka: Kafka, names: Sequence[str]) -> int:
    """
    Partitions of the widest input of these processors; a cluster that does not answer is told before a JVM is started.

    Raises:
        ConfigError: the plan is refused.
        BrokerError: the cluster does not answer.
    """
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.plan.plan import plan
    from cues_kafka.plan.topics import topics_to_ask

    broker = open_broker(kafka)
    try:
        facts = broker.facts(topics_to_ask(graph))
    finally:
        broker.close()
    planned = plan(graph, facts)
    planned.refuse()
    widths = {topic.name: topic.partitions for topic in planned.create}
    widths |= {name: found.partitions for name, found in facts.topics.items()}
    parts = [graph.processors.get(name) or graph.dataframes[name] for name in names]
    return max(widths[topic] for part in parts for topic in part.read_topics)


def _carried(graph: Graph, names: Sequence[str] | None, *, chosen: bool) -> tuple[list[str], dict[str, str]]:
    """What Spark runs of these, and of each other processor why it does not."""
    from cues_kafka.on_spark.verdict import refusal

    everyone: list[Processor | DataFrameProcessor] = [*graph.processors.values(), *graph.dataframes.values()]
    reasons = {one.name: refusal(graph, one) for one in everyone}
    left = {name: why for name, why in reasons.items() if why and (names is None or name in names)}
    carried = [name for name, why in reasons.items() if not why and (names is None or name in names)]
    if left and (chosen or not carried):
        raise ConfigError("Spark cannot run " + "; ".join(f"{name}: {why}" for name, why in left.items()))
    left |= {name: "not chosen here" for name in reasons if name not in {*carried, *left}}
    return carried, left
