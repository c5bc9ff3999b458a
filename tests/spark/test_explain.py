"""What Spark can run of a graph, under which names, and what is refused with which words; no session is needed."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from cues_kafka import (
    Blobs,
    ConfigError,
    DataFrameProcessor,
    Graph,
    Json,
    Kafka,
    Once,
    Processor,
    Sink,
    Source,
    Sql,
    Topic,
    start,
)
from cues_kafka.cli.on_spark import _carried
from cues_kafka.graph.declare import Store
from cues_kafka.on_spark.query.triggers import streaming_trigger
from cues_kafka.on_spark.verdict import Verdict, refused_settings, weak_settings
from cues_kafka.plan.plan import plan
from cues_kafka.ports.facts import ClusterFacts, TopicFacts
from cues_kafka.running.starting import carried
from cues_kafka.spark import Spark, explain
from cues_kafka.testing.fixtures import KafkaFixture


def one(x: Any) -> Any:
    """A function of one message."""
    return x


def two(a: Any = None, b: Any = None) -> Any:
    """A function of two bindings."""
    return a or b


def stateful(x: Any, seen: Any) -> Any:
    """A function with a store."""
    return x


def reads(x: Any, old: Any) -> Any:
    """A function that reads by itself."""
    return x


async def later(x: Any) -> Any:
    """A coroutine."""
    return x


GRAPH = Graph(
    "shop",
    Source("orders"),
    Source("customers"),
    Processor(one, name="clean", inputs="orders", outputs="cleaned"),
    Processor(one, name="archive", inputs="foreign"),
    Processor(two, name="pair", inputs={"a": "orders", "b": "customers"}, outputs="paired"),
    Processor(two, name="any", alts={"a": "orders", "b": "customers"}, outputs="merged"),
    Processor(stateful, name="count", inputs="orders", outputs="counted", state={"seen": Store()}),
    Processor(reads, name="look", inputs="orders", outputs="looked", tailers={"old": "customers"}),
    Processor(later, name="later", inputs="orders", outputs="latered", concurrency=8),
    Processor(one, name="often", inputs="orders", outputs="oftened", strategy="at-least-once"),
    DataFrameProcessor(two, name="stats", inputs={"a": "orders", "b": "customers"}, outputs="stats"),
    DataFrameProcessor(one, name="rows", inputs="orders", outputs="rowed"),
    errors="shop.errors",
    defaults=Topic(partitions=3),
)


CARRIED = ["clean", "archive", "pair", "any", "later", "stats", "rows"]


@dataclass(frozen=True)
class Row:
    """A message with fields."""

    id: str


PLAIN = Graph("plain", Source("orders"), Processor(one, name="clean", inputs="orders", outputs="cleaned"))


def session(**settings: str) -> Any:
    """What is asked of a session before anything runs."""
    names = {name.replace("__", "."): value for name, value in settings.items()}
    return SimpleNamespace(
        readStream=None, conf=SimpleNamespace(getAll=names), streams=SimpleNamespace(active=[]), dataSource=None
    )


# What runs, and where


def test_a_plain_processor_runs_directly_under_the_names_of_its_plan() -> None:
    """Slots, ids, group, query and checkpoint; the same ids and group as natively, so that it can move."""
    found, planned = explain(GRAPH)["clean"], plan(GRAPH)["clean"]

    assert (found.mode, found.kind, found.slots) == ("direct", "pipe", 3)
    assert found.transactional_ids == tuple(planned.transactional_id(p) for p in range(3))
    assert (found.group, found.query) == (planned.group, "shop.clean")
    assert found.checkpoint == "<checkpoint>/shop.clean"


def test_slots_of_a_topic_that_no_graph_declares_are_known_to_the_cluster_only() -> None:
    """None, until its facts are given."""
    facts = ClusterFacts(3, {"foreign": TopicFacts("foreign", b"1" * 16, 7)})

    assert explain(GRAPH)["archive"].slots is None
    assert explain(GRAPH)["archive"].transactional_ids == ()
    assert explain(GRAPH, facts)["archive"].slots == 7
    assert "as many as the input has partitions" in str(explain(GRAPH)["archive"])


def test_the_cluster_is_asked_where_it_is_given(kafka: KafkaFixture) -> None:
    """A real broker; nothing is created."""
    graph = GRAPH.bind({"orders": kafka.unique("orders")})

    assert explain(graph, Kafka(kafka.bootstrap))["clean"].slots == 3


@pytest.mark.parametrize(
    ("name", "mode", "words"),
    [
        ("count", "natively", "state= lives in a native worker"),
        ("look", "natively", "tailers= and appenders= live in a native worker"),
    ],
)
def test_what_spark_cannot_carry_says_why_and_where_it_runs(name: str, mode: str, words: str) -> None:
    """The remedy is an option of the command; where this release cannot do it natively either, that is said too."""
    found = explain(GRAPH)[name]

    assert found.mode == mode
    assert words in found.why
    assert f"run it natively: --only {name}" in found.why
    assert ("or write it as a DataFrameProcessor" in found.why) is (name == "count")
    assert ("this release does not run it" in found.why) is (mode == "refused")
    assert (found.query, found.checkpoint, found.slots) == ("", "", None)


@pytest.mark.parametrize(
    ("name", "words"),
    [("pair", "pairs their messages and commits by itself"), ("any", "takes turns and commits by itself")],
)
def test_joins_and_alts_run_directly_with_a_slot_for_each_partition(name: str, words: str) -> None:
    """Of all inputs; ids and group are those of the plan, so that they can move too."""
    facts = ClusterFacts(3, {topic: TopicFacts(topic, b"1" * 16, 3) for topic in ("orders", "customers")})
    found, planned = explain(GRAPH, facts)[name], plan(GRAPH, facts)[name]

    assert (found.mode, found.slots, found.query) == ("direct", 3, f"shop.{name}")
    assert found.why == f"one Spark task for the same partition of all inputs, which {words}"
    assert found.transactional_ids == tuple(planned.transactional_id(p) for p in range(3))
    assert (found.group, explain(GRAPH, facts).refusals) == (planned.group, plan(GRAPH, facts).refusals)


def test_coroutines_run_on_spark() -> None:
    """As they do natively."""
    assert explain(GRAPH)["later"].mode == "direct"


def test_other_strategies_are_for_native_workers() -> None:
    """W8: refused by name, with the option of the command."""
    found = explain(GRAPH)["often"]

    assert found.mode == "natively"
    assert "strategy='at-least-once' is for native workers" in found.why
    assert "run it natively: --only often" in found.why


def written(x: Any, db: Any, **rest: Any) -> Any:
    """A function that writes somewhere."""
    return x


@pytest.mark.parametrize(
    ("effects", "words"),
    [
        ({"db": Sql("postgresql://host/db")}, ""),
        ({"db": Sql("postgresql://host/db").upsert("rows", key="id", columns=["total"])}, ""),
        ({"db": Blobs("file:///tmp/lake")}, "a store of files, or a target of your own, is written by native workers"),
        ({"db": Once()}, "calls of effects= are made by native workers"),
        ({"db": Sql("postgresql://host/db"), "once": Once()}, "calls of effects= are made by native workers"),
    ],
)
def test_databases_are_written_on_spark_and_other_effects_natively(effects: Any, words: str) -> None:
    """With the option that runs it there."""
    graph = Graph("shop", Source("orders"), Processor(written, name="book", inputs="orders", effects=effects))
    found = explain(graph)["book"]

    assert found.mode == ("natively" if words else "direct")
    assert words in found.why
    assert (": in the database, then in Kafka" in found.why) is not bool(words)
    assert ("run it natively: --only book" in found.why) is bool(words)


def test_sqlite_is_refused_where_executors_may_be_on_other_machines() -> None:
    """Before anything is opened, with what to do instead."""
    into = Sql("sqlite:////tmp/shop.db").table("rows", columns=["id"])
    graph = Graph("shop", Source("orders"), Sink("book", inputs="orders", into=into))

    def engine(master: str) -> Spark:
        return Spark(session(spark__master=master), checkpoint="/tmp/checkpoints")

    with pytest.raises(ConfigError, match="'book' writes to SQLite, which is a file of one machine"):
        start(graph, Kafka("127.0.0.1:9"), engine=engine("spark://host:7077"))
    assert "Refused: processor 'book' writes to SQLite" in str(explain(graph, engine=engine("k8s://host")))
    assert explain(graph, engine=engine("local[2]")).refusals == ()


def test_dataframes_with_several_inputs_are_staged() -> None:
    """That is known without their plan; as many parts as the widest input has partitions."""
    facts = ClusterFacts(3, {name: TopicFacts(name, b"1" * 16, n) for name, n in {"orders": 2, "customers": 5}.items()})
    found = explain(GRAPH, facts)["stats"]

    assert (found.mode, found.kind, found.slots, found.state) == ("staged", "dataframe", 5, None)
    assert found.why == "several inputs: each batch is prepared in files, then published part by part"
    assert found.stage == "<checkpoint>/shop.stats/stage"
    assert found.transactional_ids[-1] == "shop.stats.4"
    lines = str(found).splitlines()
    assert lines[0] == "stats: dataframe, on Spark, staged"
    assert "  parts                 5" in lines
    assert lines[-1] == "  stage                 <checkpoint>/shop.stats/stage"


def test_dataframes_into_files_are_staged_in_one_part() -> None:
    """That is known without their plan, too."""
    table = Blobs(env="LAKE").parquet("sums")
    found = explain(Graph("shop", Source("orders"), DataFrameProcessor(one, inputs="orders", into=table)))["one"]

    assert (found.mode, found.slots, found.transactional_ids) == ("staged", 1, ("shop.one.0",))
    assert found.why == (
        "rows go to table of files sums, which must get the same ones if a batch comes again: each batch is prepared "
        "in files, then committed as a whole by one entry of the store's log"
    )


def test_how_dataframes_with_one_input_are_written_their_plan_says() -> None:
    """Without an engine only that is known."""
    found = explain(GRAPH)["rows"]

    assert (found.mode, found.slots, found.stage) == ("direct or staged", 3, "")
    assert "direct, or staged if its plan shuffles or keeps state" in found.why
    assert "engine=" in found.why
    assert str(found).startswith("rows: dataframe, on Spark, direct or staged")


def _rows(orders: Any) -> Any:
    return orders.select("id")


def _sums(orders: Any) -> Any:
    return orders.groupBy("id").count()


def _apart(orders: Any) -> Any:
    return orders.repartition(3, "id").select("id")


def _beside(orders: Any) -> Any:
    table = orders.sparkSession.createDataFrame([("a", 1)], "id STRING, rank INT")  # Spark does not know its size
    return orders.join(table, "id")


def _split(orders: Any) -> Any:
    return {"a": orders.select("id"), "b": orders.dropDuplicates(["id"])}


FILES = "each batch is prepared in files, then published part by part"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("fn", "outputs", "found"),
    [
        (
            _rows,
            "out",
            Verdict("direct", "one input, one output, and the plan leaves the input's partitions apart", state=False),
        ),
        (
            _sums,
            "out",
            Verdict(
                "staged", f"the plan has Aggregate: {FILES}; Spark keeps state from one batch to the next", state=True
            ),
        ),
        (
            _apart,
            "out",
            Verdict(
                "staged",
                f"the plan has RepartitionByExpression: {FILES}; Spark keeps no state from one batch to the next",
                state=False,
            ),
        ),
        (
            _beside,
            "out",
            Verdict(
                "staged",
                f"the plan has Exchange: {FILES}; Spark keeps no state from one batch to the next",
                state=False,
            ),
        ),
        (
            _split,
            {"a": "out", "b": "other"},
            Verdict(
                "staged",
                f"several outputs; the plan has Deduplicate: {FILES}; Spark keeps state from one batch to the next",
                state=True,
            ),
        ),
    ],
)
def test_with_an_engine_the_plan_of_the_function_is_shown(spark: Any, fn: Any, outputs: Any, found: Verdict) -> None:
    """The node, and whether Spark keeps state; nothing is started, and no broker is asked."""
    graph = Graph(
        "plans",
        Source("orders"),
        DataFrameProcessor(fn, name="frames", inputs="orders", outputs=outputs),
        topics={"orders": Topic(value=Json(Row), partitions=2)},
    )
    shown = explain(graph, ClusterFacts(3, {}), engine=Spark(spark, checkpoint="/cp"))["frames"]

    assert Verdict(shown.mode, shown.why, shown.state) == found
    assert shown.checkpoint == "/cp/plans.frames"
    assert shown.stage == ("/cp/plans.frames/stage" if found.mode == "staged" else "")
    assert not spark.streams.active


def test_a_run_carries_dataframes_too_and_says_why_the_rest_stays() -> None:
    """Staged or not, Spark carries them."""
    on_spark, left = _carried(GRAPH, None, chosen=False)

    assert on_spark == CARRIED
    assert list(left) == ["count", "look", "often"]
    assert left["count"].startswith("state= lives in a native worker: run it natively: --only count")


def test_an_explanation_prints_every_processor() -> None:
    """The whole text of a small graph."""
    text = str(
        explain(
            PLAIN,
            ClusterFacts(
                3, {"orders": TopicFacts("orders", b"1" * 16, 2, replication=3, config={"min.insync.replicas": "2"})}
            ),
        )
    )

    assert text == (
        "Graph plain on Spark\n"
        "\n"
        "clean: pipe, on Spark, direct\n"
        "  why                   one input, so one Spark task for each of its partitions, which commits by itself\n"
        "  slots                 2\n"
        "  transactional ids     plain.clean.0 .. plain.clean.1\n"
        "  group                 plain.clean\n"
        "  query                 plain.clean\n"
        "  checkpoint            <checkpoint>/plain.clean"
    )
    everything = str(explain(GRAPH))
    assert all(f"\n{name}: " in everything for name in [*GRAPH.processors, *GRAPH.dataframes])


def test_an_explanation_is_a_value() -> None:
    """Equal for equal graphs, and frozen."""
    assert explain(PLAIN) == explain(PLAIN)
    with pytest.raises(AttributeError):
        explain(PLAIN).graph = "other"  # type: ignore[misc]
    with pytest.raises(KeyError):
        explain(PLAIN)["no-such"]


def test_what_the_cluster_refuses_is_refused_here_too() -> None:
    """Inputs of a join with different numbers of partitions, as `cues-kafka plan` says it."""
    topics = {name: TopicFacts(name, name.encode().ljust(16), n) for name, n in {"orders": 3, "customers": 4}.items()}
    facts = ClusterFacts(3, topics)

    assert explain(GRAPH, facts).refusals == plan(GRAPH, facts).refusals
    assert explain(GRAPH, facts).refusals


# The engine says the same


def test_the_engine_and_the_explanation_agree() -> None:
    """One source of truth: `start` runs what is said to run."""
    engine = Spark(session(), checkpoint="s3a://shop/checkpoints/")
    explained = explain(GRAPH, engine=engine)

    assert carried(GRAPH, engine, None) == list(explained.carried) == CARRIED
    assert explained["clean"].checkpoint == "s3a://shop/checkpoints/shop.clean"
    everyone: dict[str, Any] = {**GRAPH.processors, **GRAPH.dataframes}
    assert {name: why for name, part in everyone.items() if (why := engine.refuses(GRAPH, part))} == explained.left


def test_what_was_asked_for_and_cannot_run_is_named_before_anything_is_opened() -> None:
    """All of it at once; the broker is not there, and is not asked."""
    engine = Spark(session(), checkpoint="/tmp/checkpoints")

    with pytest.raises(ConfigError) as caught:
        start(GRAPH, Kafka("127.0.0.1:9"), engine=engine, only=["clean", "count", "look"])

    text = str(caught.value)
    assert "run it natively: --only count" in text
    assert "run it natively: --only look" in text
    assert "clean: " not in text


def test_a_name_that_the_graph_does_not_have_is_not_taken_for_one_that_spark_cannot_run() -> None:
    """The processors are listed."""
    with pytest.raises(ConfigError, match="shop' has no processor"):
        carried(GRAPH, Spark(session(), checkpoint="/tmp/checkpoints"), ["claen"])


# The session, options, triggers


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("asyncProgressTrackingEnabled", "more than one micro-batch would be in doubt"),
        ("minPartitions", "each partition has one writer"),
        ("maxRecordsPerPartition", "each partition has one writer"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "spark.datasource.kafka.", "SPARK.SQL."])
def test_settings_that_exactly_once_does_not_go_with_are_refused_with_the_reason(
    name: str, words: str, prefix: str
) -> None:
    """As options, or as defaults of a session; in any case, for Spark does not tell it apart."""
    for given in (prefix + name, (prefix + name).lower()):
        [text] = refused_settings({given: "true", "spark.app.name": "x"})
        assert given in text
        assert words in text
        assert "Leave it out" in text
    assert refused_settings({prefix + name: "false"}) == []


def test_a_setting_that_only_looks_like_one_of_them_is_left_alone() -> None:
    """The last word counts."""
    harmless = {"spark.sql.files.minPartitionNum": "8", "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1MB"}

    assert refused_settings(harmless) == []


def test_a_session_with_such_a_setting_is_refused_before_anything_is_opened() -> None:
    """By `start`; `explain` says it too."""
    engine = Spark(session(asyncProgressTrackingEnabled="true"), checkpoint="/tmp/checkpoints")

    with pytest.raises(ConfigError, match="asyncProgressTrackingEnabled=true"):
        start(PLAIN, Kafka("127.0.0.1:9"), engine=engine)
    assert "Refused: asyncProgressTrackingEnabled=true" in str(explain(PLAIN, engine=engine))


def test_speculation_is_warned_of_and_not_refused() -> None:
    """It is correct, and wasteful."""
    engine = Spark(session(spark__speculation="true"), checkpoint="/tmp/checkpoints")

    [text] = weak_settings({"spark.speculation": "true"})
    assert "fences the first" in text
    assert weak_settings({"spark.speculation": "false"}) == []
    assert explain(PLAIN, engine=engine).warnings == (text,)
    assert explain(PLAIN, engine=engine).refusals == ()
    engine.check(PLAIN, ["clean"])


def test_a_second_query_for_a_processor_is_refused_by_name() -> None:
    """Where a query of this name is at work in the session; others do not matter."""
    busy = session()
    busy.streams.active = [SimpleNamespace(name="plain.clean"), SimpleNamespace(name=None)]

    with pytest.raises(ConfigError, match=r"'plain\.clean' runs in this session already.*Stop it"):
        start(PLAIN, Kafka("127.0.0.1:9"), engine=Spark(busy, checkpoint="/tmp/checkpoints"))
    Spark(busy, checkpoint="/tmp/checkpoints").check(GRAPH, ["clean"])


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        ("continuous", "calls no foreachBatch"),
        ("continuous 1 second", "For milliseconds run it natively"),
        ("real-time 5 minutes", "offsets down after the messages are out"),
        ("realTime", "For milliseconds run it natively"),
        ("10 bananas", "is not known here"),
        ("10 seconds or so", "is not known here"),
        ("ten seconds", "is not known here"),
        ("once", "Write '10 seconds'"),
    ],
)
def test_triggers_that_commit_nothing_with_the_positions_are_refused(trigger: str, words: str) -> None:
    """When the engine is made, and not when its first query fails."""
    with pytest.raises(ConfigError) as caught:
        Spark(session(), checkpoint="/tmp/checkpoints", trigger=trigger)

    assert words in str(caught.value)
    assert "'available-now'" in str(caught.value)


@pytest.mark.parametrize("trigger", ["0 seconds", "10 seconds", "500 milliseconds", "1 minute", "2 hours"])
def test_triggers_of_micro_batches_are_taken(trigger: str) -> None:
    """As Spark writes them."""
    assert streaming_trigger(trigger) == {"processingTime": trigger}
