"""Before a start: the plan on the cluster, what is refused, and the topics that are created."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from cues_kafka.brokers.patience import FIRST_S, ask_again
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.errors import ConfigError, RetriableError, TopicsMissing
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import no_such_processor, quoted
from cues_kafka.graph.processor import Processor
from cues_kafka.plan.inspectors import Inspector, Terms, inspect_cluster
from cues_kafka.plan.plan import Plan, plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports import Broker, ClusterFacts

VISIBLE_S = 30.0
"""How long a topic that was just made may take until every broker has heard of it."""


INSPECTORS: Final[list[Inspector]] = [inspect_cluster]
"""What a plan asks before a start; a registry or a database comes here."""


def plan_start(graph: Graph, broker: Broker, terms: Terms) -> Plan:
    """
    Plan a start with what all inspectors find; nothing is created.

    Raises:
        ConfigError: the terms do not fit the graph.
        CuesError: an inspector gets no answer.
    """
    found = [inspect(graph, broker, terms) for inspect in INSPECTORS]
    [facts] = [one.facts for one in found if one.facts is not None]
    return plan(graph, facts, accept_unchecked=terms.accept_unchecked).with_findings(found)


def prepare(
    graph: Graph, broker: Broker, *, only: Sequence[str] | None = None, terms: Terms | None = None
) -> tuple[Plan, ClusterFacts]:
    """
    Plan the graph on the cluster, refuse or create what is missing, and give the facts as they are then.

    Args:
        graph: the graph.
        broker: the cluster.
        only: names of the processors to run; None: all.
        terms: what the start may do; None: everything, with no look for renamed processors.

    Raises:
        ConfigError: the plan is refused, this runtime cannot carry a processor, or one may have been renamed.
        TopicsMissing: they must not be created.
        BrokerError: the cluster does not answer.
    """
    names, terms = topics_to_ask(graph), terms or Terms()
    planned = plan_start(graph, broker, terms)
    planned.refuse()
    for processor in selected(graph, only):
        if why := not_in_this_release(processor, graph, terms.cluster):
            raise ConfigError(f"processor {processor.name!r}: {why}")
    if planned.create:
        if not terms.create_topics:
            raise TopicsMissing(
                f"graph {graph.name!r} needs topics that do not exist: "
                f"{quoted([topic.name for topic in planned.create])}. 'cues-kafka plan MODULE:GRAPH --apply' creates "
                "them"
            )
        broker.create(planned.create)
    facts = _facts_with(broker, names, {topic.name for topic in planned.create})
    if facts.unchecked and not terms.accept_unchecked:
        plan(graph, facts).refuse()  # topics that were created just now
    return planned, facts


class _Unseen(RetriableError):
    """Topics that were created a moment ago are not known yet."""


def _facts_with(broker: Broker, names: Sequence[str], created: set[str]) -> ClusterFacts:
    """Facts with all topics that were just made: the broker that answers may not have heard of them yet."""

    def all_of_them() -> ClusterFacts:
        facts = broker.facts(names)
        if missing := sorted(created - set(facts.topics)):
            raise _Unseen(f"topics {missing} are still not there after {VISIBLE_S:g} s; look at the brokers' logs")
        return facts

    return ask_again(all_of_them, VISIBLE_S, while_=lambda error: isinstance(error, _Unseen), longest_s=FIRST_S)


def selected(graph: Graph, only: Sequence[str] | None) -> list[Processor]:
    """
    The processors to run.

    Raises:
        ConfigError: a name that the graph does not have.
    """
    unknown = sorted(set(only or ()) - set(graph.processors))
    if unknown:
        raise ConfigError(f"only=: {no_such_processor(graph.name, unknown, graph.processors)}")
    return [p for p in graph.processors.values() if only is None or p.name in only]


def refusals(graph: Graph, only: Sequence[str] | None = None, cluster: Any = None) -> Iterator[str]:
    """What of these processors no runtime of this release can do, a sentence with the remedy for each."""
    for processor in selected(graph, only):
        if why := not_in_this_release(processor, graph, cluster):
            yield f"processor {processor.name!r}: {why}"


def not_in_this_release(processor: Processor, graph: Graph, cluster: Any = None) -> str:
    """
    What of a declaration no runtime of this release can do, with the remedy; empty: nothing.

    Raises:
        GraphError: the class of `Json(cls)` of one of its topics has a field that cannot travel.
    """
    missing = [
        (bool(processor.state), "state="),
        (bool(processor.tailers or processor.appenders), "tailers= and appenders="),
        (graph.strategy_of(processor) != "exactly-once", f"strategy={graph.strategy_of(processor)!r}"),
    ]
    for present, what in missing:
        if present:
            return (
                f"{what} can be declared, but this release does not run it. Leave it out, or leave the processor out: "
                f"only=[...] of start(), --except {processor.name} of the commands."
            )
    return next(_without_codec(processor, graph, cluster), "")


def _without_codec(processor: Processor, graph: Graph, cluster: Any) -> Iterator[str]:
    """Topics that it reads or writes in bytes that nobody makes, so it is said before anything is created."""
    errors = graph.errors_of(processor)
    for topic in dict.fromkeys((*processor.input_topics, *processor.output_topics, *([errors] if errors else []))):
        try:
            codec_for(graph.topic(topic).value, MadeFor(topic, cluster))
        except ConfigError as error:
            yield f"topic {topic!r}: {error}"
