"""``cues-kafka run --engine spark``: a driver process with a session of its own, which a supervisor keeps running."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cues_kafka.cli.options import BROKEN, UNDONE
from cues_kafka.cli.printing import say
from cues_kafka.cli.watch import Signals, TaskWatch, announce
from cues_kafka.errors import ConfigError
from cues_kafka.extras import SPARK, require

if TYPE_CHECKING:
    from cues_kafka.brokers.options import Kafka
    from cues_kafka.cli.run_options import GraphRun, SparkOptions
    from cues_kafka.graph.definition import Graph

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


def run_on_spark(chosen: GraphRun, options: SparkOptions) -> int:
    """
    Run under a supervisor until a signal comes, or all is delivered; the exit code.

    Raises:
        ConfigError: Spark is not installed or does not start, it cannot carry what was chosen, or the plan is refused.
        BrokerError: the cluster does not answer.
        SparkLost: Spark's JVM was killed.
    """
    require_spark()
    from cues_kafka.graph.declare import CommitPolicy
    from cues_kafka.on_spark.engine import Spark
    from cues_kafka.on_spark.query.slots import POLICY
    from cues_kafka.on_spark.query.triggers import AVAILABLE_NOW
    from cues_kafka.on_spark.session import choose_shuffle_partitions, is_jvm_gone, opened_session
    from cues_kafka.running.start import start

    observers, graph, settings = chosen.observers(), chosen.graph, chosen.settings
    kafka, policy = settings.kafka(), CommitPolicy(**{**dataclasses.asdict(POLICY), **settings.given("commit")})
    carried, _ = _carried(graph, chosen.names, chosen=bool(chosen.options.only))
    slots = _widest_input(graph, kafka, carried)
    quiet = settings["log_level"] != "debug"
    with Signals() as signals, opened_session(options.master, name=graph.name, quiet=quiet) as session:
        if any(name in graph.dataframes for name in carried) and (said := choose_shuffle_partitions(session, slots)):
            say(f"{graph.name}: {said}")
        engine = Spark(session, checkpoint=options.directory, trigger=options.trigger, policy=policy)
        running = start(
            graph, kafka, engine=engine, only=carried, timeout_s=None, new=chosen.new,
            create_topics=settings.named, observers=observers, http=chosen.told["http"],
        )  # fmt: skip
        announce(running, settings.address, warn=chosen.warns)
        watch = TaskWatch(
            graph, running, fail_fast=chosen.fail_fast, succeeded=True, began=chosen.began, tells=not chosen.as_json
        )
        code, failed = watch.until(signals), running.failed
        ends = options.trigger == AVAILABLE_NOW and not (failed and is_jvm_gone(failed))
        return UNDONE if code == BROKEN and ends else code


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
    from cues_kafka.on_spark.explain import explain

    explained = explain(graph)
    left = {name: why for name, why in explained.left.items() if names is None or name in names}
    carried = [name for name in explained.carried if names is None or name in names]
    if left and (chosen or not carried):
        raise ConfigError("Spark cannot run " + "; ".join(f"{name}: {why}" for name, why in left.items()))
    left |= {one.name: "not chosen here" for one in explained.processors if one.name not in {*carried, *left}}
    return carried, left
