"""What a start does first: plan on the cluster, refuse what cannot run, create topics."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from cues_kafka.brokers.options import Kafka
from cues_kafka.brokers.patience import FIRST_S, ask_again
from cues_kafka.brokers.secrets import without_user
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.core.strategies import AT_MOST_ONCE, EXACTLY_ONCE
from cues_kafka.errors import BrokerError, ConfigError, RetriableError, TopicsMissing
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.names import no_such_processor, quoted
from cues_kafka.graph.processor import Processor
from cues_kafka.observe.log import get_logger
from cues_kafka.plan.inspectors import Findings, Inspector, Terms, inspect_cluster
from cues_kafka.plan.plan import Plan, plan
from cues_kafka.plan.refusals import refuse_unsafe
from cues_kafka.plan.starts import inspect_starts
from cues_kafka.plan.topics import Sides, topics_to_ask
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.facts import ClusterFacts, NewTopic
from cues_kafka.task.making.apart import AT_START_S, Apart, Away, cause_of
from cues_kafka.task.making.names import inspect_names
from cues_kafka.task.making.own_targets import inspect_own_targets, own_targets, refused_at

log = get_logger("cues_kafka.start")

VISIBLE_S = 30.0
"""How long it may take until every broker knows a topic that was just created."""


def _inspect_registry(graph: Graph, broker: Broker, terms: Terms) -> Findings:
    """The registry's inspector, whose library is an extra: only a graph on a cluster with a registry needs it."""
    if getattr(terms.cluster, "registry", None) is None:
        return Findings()
    from cues_kafka.codecs.subjects import inspect_registry  # noqa: PLC0415

    return inspect_registry(graph, broker, terms)


def _inspect_databases(graph: Graph, broker: Broker, terms: Terms) -> Findings:
    """The databases' inspector, which only a graph with `effects={...: Sql(...)}` needs."""
    if not graph.targets:
        return Findings()
    from cues_kafka.sinks.tables import inspect_databases  # noqa: PLC0415

    return inspect_databases(graph, broker, terms)


def _inspect_stores(graph: Graph, broker: Broker, terms: Terms) -> Findings:
    """The inspector of stores of files, which only a graph with `effects={...: Blobs(...)}` needs."""
    if not graph.targets:
        return Findings()
    from cues_kafka.sinks.blobs.checks import inspect_stores  # noqa: PLC0415
    from cues_kafka.task.making.file_schemas import with_schemas  # noqa: PLC0415

    for processor in selected(graph, terms.names):
        try:
            with_schemas(graph, processor)
        except ConfigError as error:
            return Findings(refusals=(str(error),))
    return inspect_stores(graph, broker, terms)


def unset_variables(graph: Graph, names: Sequence[str] | None = None) -> Iterator[tuple[str, Any]]:
    """The declarations whose address is in an environment variable that is not set here, with where they are."""
    feeds = ((f"feed {feed.name!r}", feed.source) for feed in selected_feeds(graph, names))
    for where, declared in (*graph.declared_targets(names), *feeds):
        home = getattr(declared, "home", None) or getattr(declared, "database", None) or declared
        if (variable := getattr(home, "env", "")) and not os.environ.get(variable):
            yield where, home


def _inspect_addresses(graph: Graph, broker: Broker, terms: Terms) -> Findings:
    """Refuse what lacks its address before topics are made; databases and stores have inspectors of their own."""
    del broker
    if terms.cluster is None:  # a `Tester`, which may have a stand-in
        return Findings()
    unset = (one for one in unset_variables(graph, terms.names) if not getattr(one[1], "transactional", False))
    return Findings(refusals=tuple(f"{where}: {unset_text(one)}" for where, one in unset))


def unset_text(declared: Any) -> str:
    """What is missing, and what to do."""
    where = f"{type(declared).__name__}(env={declared.env!r})"
    return f"{where}: the environment variable {declared.env} is not set. Set it to the address"


INSPECTORS: Final[list[Inspector]] = [
    inspect_cluster,
    inspect_names,
    inspect_starts,
    _inspect_registry,
    _inspect_databases,
    _inspect_stores,
    inspect_own_targets,
    _inspect_addresses,
]
"""What a plan asks before a start."""


def await_databases(graph: Graph, names: Sequence[str] | None, apart: Apart | None = None) -> None:
    """
    Wait until the databases and stores of these processors answer: they may be starting, too.

    Args:
        graph: the graph.
        names: of processors; None: all.
        apart: takes those that do not answer for a while; None: there is nothing without them.

    Raises:
        RetriableError: one does not answer.
    """
    if not graph.targets:
        return
    from cues_kafka.sinks import tables  # noqa: PLC0415
    from cues_kafka.sinks.blobs import checks  # noqa: PLC0415
    from cues_kafka.sinks.patience import PATIENCE_S  # noqa: PLC0415

    databases, stores = tables.databases(graph, names), checks.stores(graph, names)
    asked: dict[str, tuple[Any, Callable[..., None]]] = {}
    asked |= {where: (one, partial(tables.await_answer, one, where)) for where, one in databases.items()}
    asked |= {where: (one, partial(checks.await_store, one, where)) for where, one in stores.items()}
    for where, (home, ask) in asked.items():
        with _or_apart(apart, graph, names, where, home):
            ask(patience_s=PATIENCE_S if apart is None else AT_START_S)


@contextmanager
def _or_apart(apart: Apart | None, graph: Graph, names: Sequence[str] | None, where: str, home: Any) -> Iterator[None]:
    """Have the processors of a database or store wait that does not answer in here, if they may."""
    try:
        yield
    except RetriableError as error:
        if apart is None:
            raise
        users = _users_of(graph, names, home)
        apart.put(Away(where, users, getattr(home, "database", None) is not None, cause_of(error)))


def _users_of(graph: Graph, names: Sequence[str] | None, home: Any) -> tuple[str, ...]:
    """The processors of these that use a database or a store."""
    return tuple(
        name
        for name, targets in graph.targets.items()
        if (names is None or name in names) and any(home in (one.database, one.home) for one in targets.values())
    )


def prepared(graph: Graph, away: Away, created: Collection[str], terms: Terms, broker: Broker) -> None:
    """
    Do for a database or store that has been away what a start does for all, in one try.

    Args:
        graph: the graph.
        away: the database or store.
        created: the topics that the start has created.
        terms: of the start.
        broker: the cluster.

    Raises:
        ConfigError: it answers, and refuses, or does not fit.
        RetriableError: it does not answer.
    """
    users = list(away.processors)
    for inspect in (_inspect_databases,) if away.database else (_inspect_stores, inspect_own_targets):
        if found := inspect(graph, broker, replace(terms, names=users)).refusals:
            raise ConfigError("; ".join(found))
    make_stores(graph, users, created=created, patience_s=0.0)
    make_tables(graph, users, create=terms.create_topics, patience_s=0.0)


def make_stores(
    graph: Graph,
    names: Sequence[str] | None,
    *,
    created: Collection[str] | None,
    patience_s: float | None = None,
    apart: Apart | None = None,
) -> None:
    """
    Make the stores of files and the targets of these processors where they have not begun yet, and try all of them.

    It comes before topics are created: backing topics without a store mean that it is gone.

    Args:
        graph: the graph.
        names: of processors; None: all.
        created: the topics that are to be created; None: an operator wants stores made where there are none.
        patience_s: for how long a store is asked, in seconds; None: as long as a start asks.
        apart: see `await_databases`.

    Raises:
        ConfigError: a store refuses.
        RetriableError: a store does not answer, or is gone.
    """
    if not graph.targets:
        return
    from cues_kafka.sinks.blobs import checks  # noqa: PLC0415
    from cues_kafka.sinks.patience import PATIENCE_S, asking  # noqa: PLC0415

    patience_s = PATIENCE_S if patience_s is None else patience_s
    for where, store in checks.stores(graph, names).items():
        first = created is None or set(checks.backing_topics(graph, store)) <= set(created)
        inside = checks.tables_in(graph, store)
        with _or_apart(apart, graph, names, where, store):
            checks.make_ready(store, where, first=first, tables=inside, patience_s=patience_s)
    for own in own_targets(graph, names):
        first = created is None or own.backing_topics(graph) <= set(created)
        with _or_apart(apart, graph, names, own.where, own.declared), refused_at(own.where):
            asking(own.home.holder, own.where, patience_s)(own.home.make, first=first)


def make_tables(
    graph: Graph,
    names: Sequence[str] | None,
    *,
    create: bool,
    patience_s: float | None = None,
    apart: Apart | None = None,
) -> None:
    """
    Make our tables in the databases of these processors where they are missing.

    Args:
        graph: the graph.
        names: of processors; None: all.
        create: whether they may be made.
        patience_s: for how long a database is asked, in seconds; None: as long as a start asks.
        apart: see `await_databases`.

    Raises:
        ConfigError: they are missing and must not be made, a database refuses, or a table of the user's does not fit.
        RetriableError: a database does not answer.
    """
    if not graph.targets:
        return
    from cues_kafka.sinks import table_checks, tables  # noqa: PLC0415
    from cues_kafka.sinks.patience import PATIENCE_S  # noqa: PLC0415

    patience_s = PATIENCE_S if patience_s is None else patience_s
    for where, declared in tables.databases(graph, names).items():
        written = table_checks.tables_in(graph, declared, names)
        with _or_apart(apart, graph, names, where, declared):
            tables.make_tables(declared, where, create=create, written=written, patience_s=patience_s)


def plan_start(graph: Graph, broker: Broker, terms: Terms) -> Plan:
    """
    Plan a start with what all inspectors find; nothing is created.

    Raises:
        ConfigError: the terms do not fit the graph.
        CuesError: an inspector gets no answer.
    """
    return _planned(graph, broker, terms)[0]


def _planned(graph: Graph, broker: Broker, terms: Terms) -> tuple[Plan, ClusterFacts]:
    """The same, with the facts that it was planned on."""
    found = [inspect(graph, broker, terms) for inspect in INSPECTORS]
    [facts] = [one.facts for one in found if one.facts is not None]
    sides = Sides.of(terms.cluster)
    planned = plan(graph, facts, accept_unchecked=terms.accept_unchecked, sides=sides).with_findings(found)
    if isinstance(terms.cluster, Kafka):
        planned = planned.at(without_user(terms.cluster.bootstrap))
    return planned, facts


def prepare(
    graph: Graph,
    broker: Broker,
    *,
    only: Sequence[str] | None = None,
    terms: Terms | None = None,
    apart: Apart | None = None,
) -> tuple[Plan, ClusterFacts]:
    """
    Plan the graph on the cluster, create or refuse missing topics, and return the facts of the cluster then.

    Args:
        graph: the graph.
        broker: the cluster.
        only: names of the processors to run; None: all.
        terms: what the start may do; None: everything, and renamed processors are not looked for.
        apart: takes databases and stores that do not answer; None: nothing starts without them.

    Raises:
        ConfigError: the plan is refused, this release cannot run a processor, one may have been renamed, or the
            cluster gave new topics settings of its own that lose data.
        TopicsMissing: topics are missing and must not be created.
        BrokerError: the cluster, or a database, does not answer.
    """
    names, terms = topics_to_ask(graph), terms or Terms()
    await_databases(graph, only, apart)
    planned, before = _planned(graph, broker, terms)
    planned.refuse()
    for processor in selected(graph, only):
        if why := not_in_this_release(processor, graph, terms.cluster):
            raise ConfigError(f"processor {processor.name!r}: {why}")
    for feed in selected_feeds(graph, only):
        if why := next(feed_without_codec(feed, graph, terms.cluster), ""):
            raise ConfigError(f"feed {feed.name!r}: {why}")
    without = Sides.of(terms.cluster).topics(graph)
    needed = [topic for topic in planned.create if topic.name not in without]
    if needed and not terms.create_topics:
        raise TopicsMissing(
            f"graph {graph.name!r} needs topics that do not exist: "
            f"{quoted([topic.name for topic in needed])}. 'cues-kafka plan MODULE:GRAPH --apply' creates them"
        )
    created = {topic.name for topic in needed}
    patience_s = None if apart is None else AT_START_S
    here = only if apart is None else apart.others(only, graph, created)
    make_stores(graph, here, created=created, patience_s=patience_s, apart=apart)
    if planned.create and terms.create_topics:
        _create(broker, planned.create, needed)
    make_tables(graph, here, create=terms.create_topics, patience_s=patience_s, apart=apart)
    known = before.topics.keys() & set(names)  # it was planned on topics without which a graph works, too
    facts = _facts_with(broker, names, known | {topic.name for topic in needed})
    refuse_unsafe(facts, created)
    if facts.unchecked and not terms.accept_unchecked:
        plan(graph, facts).refuse()  # topics that were created just now
    return planned, facts


def _create(broker: Broker, topics: Sequence[NewTopic], needed: Sequence[NewTopic]) -> None:
    """Create topics; where that fails, only those that the graph cannot work without."""
    try:
        broker.create(topics)
    except BrokerError as error:
        if len(needed) == len(topics):
            raise
        left = quoted(topic.name for topic in topics if topic not in needed)
        log.warning("works without", topics=left, why=str(error))
        if needed:
            broker.create(needed)


class _Unseen(RetriableError):
    """Topics that were created a moment ago are not known yet."""


def _facts_with(broker: Broker, names: Sequence[str], there: Collection[str]) -> ClusterFacts:
    """Ask until the answer has these topics. A broker may not know them yet that were created a moment ago."""

    def all_of_them() -> ClusterFacts:
        facts = broker.facts(names)
        if missing := sorted(set(there) - set(facts.topics)):
            raise _Unseen(
                f"topics {missing} still do not exist {VISIBLE_S:g} s after their creation; look at the brokers' logs"
            )
        return facts

    return ask_again(all_of_them, VISIBLE_S, while_=lambda error: isinstance(error, _Unseen), longest_s=FIRST_S)


def selected(graph: Graph, only: Sequence[str] | None) -> list[Processor]:
    """
    The processors to run.

    Raises:
        ConfigError: the graph has no processor of a given name.
    """
    known = graph.all_processors
    unknown = sorted(set(only or ()) - set(known))
    if unknown:
        raise ConfigError(f"only=: {no_such_processor(graph.name, unknown, known)}")
    return [p for p in graph.processors.values() if only is None or p.name in only]


def selected_feeds(graph: Graph, only: Sequence[str] | None) -> list[Feed]:
    """The feeds to run; `selected` has checked the names."""
    return [feed for feed in graph.feeds.values() if only is None or feed.name in only]


def refusals(graph: Graph, only: Sequence[str] | None = None, cluster: Any = None) -> Iterator[str]:
    """What this release cannot run of these processors: a sentence with the remedy for each processor."""
    for processor in selected(graph, only):
        if why := not_in_this_release(processor, graph, cluster):
            yield f"processor {processor.name!r}: {why}"


def not_in_this_release(processor: Processor, graph: Graph, cluster: Any = None) -> str:
    """
    What this release cannot run of a declaration, with the remedy; empty: it runs all of it.

    Raises:
        GraphError: the class of `Json(cls)` of one of its topics has a field that cannot travel.
    """
    return _not_at(graph.strategy_of(processor), processor, graph) or next(
        _without_codec(processor, graph, cluster), ""
    )


def _not_at(strategy: str, processor: Processor, graph: Graph) -> str:
    """W8: what only exactly-once can carry: it is committed with the attempt that settles its steps."""
    if strategy == EXACTLY_ONCE:
        return ""
    for present, what, instead in (
        (
            processor.retry is not None and strategy == AT_MOST_ONCE,
            "retry= calls a step again",
            "leave retry= out: what the function raises becomes an error message",
        ),
        (processor.timers is not None, "timers are kept with the attempt", EXACTLY),
        (
            bool(processor.tailers or processor.appenders),
            "the places of tailers= and appenders= are in the attempt",
            EXACTLY,
        ),
        (bool(processor.state), "state= is committed with the attempt", EXACTLY),
        (
            processor.target is not None,
            "effects= with a database or a store of files commit the attempt too",
            EXACTLY,
        ),
        (
            bool(processor.targets),
            "calls of effects= are kept for a retry",
            f"call by a client of your own, which system= opens; or {EXACTLY}",
        ),
        (
            graph.cuts is not None,
            "cuts= say where all tasks stood at one moment",
            f"leave cuts= out; or {EXACTLY}",
        ),
    ):
        if present:
            return f"strategy={strategy!r}, and {what}. Remedy: {instead}."
    return ""


EXACTLY: Final = f"declare strategy={EXACTLY_ONCE!r}, or have a second processor do the rest"


def feed_without_codec(feed: Feed, graph: Graph, cluster: Any) -> Iterator[str]:
    """Why this release cannot write the topic of a feed, with the remedy."""
    if graph.strategy != "exactly-once":
        yield (
            f"the graph says strategy={graph.strategy!r}, and a feed is always exactly-once; give strategy= to the "
            "processors that shall have it"
        )
    yield from _without_codec(feed, graph, cluster)


def _without_codec(processor: Processor | Feed, graph: Graph, cluster: Any) -> Iterator[str]:
    """Topics whose declared codec this release does not have; reported before any topic is created."""
    errors = graph.errors_of(processor)
    for topic in dict.fromkeys((*processor.read_topics, *processor.output_topics, *([errors] if errors else []))):
        try:
            codec_for(graph.topic(topic).value, MadeFor(topic, cluster))
        except ConfigError as error:
            yield f"topic {topic!r}: {error}"
