"""Keys that are not where the declared partitioner puts them are found, and the rule that they fit is named."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import Mock

import pytest

from cues_kafka import (
    Avro,
    Dedupe,
    GlobalTable,
    Graph,
    GraphError,
    Json,
    JsonSchema,
    Memory,
    Message,
    OutputError,
    Processor,
    Raw,
    Source,
    State,
    Store,
    Table,
    Topic,
    connect,
    start,
)
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.partitioners import crc32_partition, fnv1a_partition, place_of
from cues_kafka.brokers.placement import AT_FIRST, Placement
from cues_kafka.errors import TaskStopped
from cues_kafka.graph.partitioners import PARTITIONERS
from cues_kafka.operate.look.foreseen import foresee
from cues_kafka.operate.move.rebuild import Rebuild
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.state.tables import TableView
from cues_kafka.task.making import contexts
from cues_kafka.testing.tester import Tester

KEYS = [f"c{n}" for n in range(40)]


def by_crc32(key: str, width: int = 4) -> int:
    """Where librdkafka's default puts a key."""
    return zlib.crc32(key.encode()) % width


def named(order: str, customers: TableView[str]) -> str:
    """The order with its customer."""
    return f"{order} of {customers.get(order, 'unknown')}"


def counted(word: str, counts: State[int]) -> int:
    """How often."""
    counts[word] = counts.get(word, 0) + 1
    return counts[word]


def told(word: str, counts: State[int]) -> list[Any]:
    """The word, and how often."""
    return [word, counted(word, counts)]


def same(word: str) -> str:
    """A pipe."""
    return word


def joined(table: Table, *, orders: str = "murmur2", customers: str = "murmur2") -> Graph:
    """Orders with their customers."""
    topics = {
        "orders": Topic(value=Json(), partitions=4, partitioner=orders),
        "customers": Topic(value=Json(), partitions=4, partitioner=customers),
    }
    named_with = Processor(named, inputs={"order": "orders", "customers": table}, outputs="out")
    return Graph("g", Source("orders"), Source("customers"), named_with, defaults=Topic(value=Json()), topics=topics)


def counting(partitioner: str = "murmur2", *, per_task: bool = False, partitions: int = 4) -> Graph:
    """A store by key."""
    count = Processor(
        counted, name="count", inputs="words", outputs="out", state={"counts": Store(Json(int), per_task=per_task)}
    )
    topics = {"words": Topic(value=Json(), partitions=partitions, partitioner=partitioner)}
    return Graph("g", Source("words"), count, defaults=Topic(value=Json(), partitions=partitions), topics=topics)


def fill(tester: Tester, topic: str, place: Callable[[str], int | None], keys: Iterable[str] = KEYS) -> None:
    """One message a key."""
    for key in keys:
        tester.send(topic, Message(key, key=key, partition=place(key)))


def test_a_table_that_another_client_wrote_stops_the_task_with_the_rule_that_fits() -> None:
    """Lookups would find a quarter of the customers, without any error."""
    tester = Tester(joined(Table("customers")))
    fill(tester, "customers", by_crc32)
    fill(tester, "orders", lambda _: None)

    with pytest.raises(TaskStopped) as stopped:
        tester.run()

    text = str(stopped.value)
    assert "the table 'customers' needs all messages of a key in one partition" in text
    assert "declare Topic(partitioner='consistent_random')" in text
    assert "rekey(...)" in text


def test_both_topics_of_one_rule_meet_once_it_is_declared() -> None:
    """And what a client of ours sends to them goes where the declared rule puts it."""
    tester = Tester(joined(Table("customers"), orders="consistent_random", customers="consistent"))
    fill(tester, "customers", by_crc32)
    fill(tester, "orders", lambda _: None)

    tester.run()

    assert sorted(tester.values("out")) == sorted(f"{key} of {key}" for key in KEYS)


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(joined(GlobalTable("customers")), id="a global table"),
        pytest.param(joined(Table("customers"), orders="custom", customers="custom"), id="a rule of their own"),
    ],
)
def test_what_counts_on_nothing_goes_on(graph: Graph) -> None:
    """Keys need not be anywhere."""
    tester = Tester(graph)
    fill(tester, "customers", by_crc32)
    fill(tester, "orders", by_crc32)

    tester.run()

    assert sorted(tester.values("out")) == sorted(f"{key} of {key}" for key in KEYS)


def test_a_store_stops_before_the_first_message_of_another_rule() -> None:
    """What came before is committed, so the counts so far are right."""
    tester = Tester(counting())
    fill(tester, "words", lambda _: None)
    tester.run()
    moved = next(key for key in KEYS if partition_for(key.encode(), 4) != by_crc32(key) == 3)
    tester.send("words", Message("more", key=KEYS[0]))
    tester.send("words", Message("wrong", key=moved, partition=3))

    with pytest.raises(
        TaskStopped, match=rf"the store 'counts' .* key '{moved}' at offset .* murmur2, Kafka's default"
    ):
        tester.run()

    assert "wrong" not in [m.value for m in tester.messages("out")]


@pytest.mark.parametrize("graph", [counting("custom"), counting(per_task=True)], ids=["custom", "per task"])
def test_stores_that_do_not_count_on_keys_take_any_place(graph: Graph) -> None:
    """Such as one of regions by partition."""
    tester = Tester(graph)
    fill(tester, "words", by_crc32)
    tester.run()
    assert len(tester.values("out")) == len(KEYS)


def test_duplicates_in_two_partitions_are_not_missed_in_silence() -> None:
    """`Dedupe` keeps a store, so it counts on keys too."""
    dedupe = Dedupe("once", inputs="words", outputs="out", by=str, within="1 hour")
    graph = Graph(
        "g", Source("words"), dedupe, defaults=Topic(value=Json(), partitions=4), topics={"words": Topic(partitions=4)}
    )
    tester = Tester(graph)
    fill(tester, "words", by_crc32)
    with pytest.raises(TaskStopped, match="needs all messages of a key in one partition"):
        tester.run()


def test_messages_from_before_partitions_were_added_are_explained() -> None:
    """They are where the smaller number put them; a key of another rule among them is still found."""

    class Keyed:
        def __init__(self, key: str) -> None:
            self._key = key.encode()

        def key(self) -> bytes:
            return self._key

        def offset(self) -> int:
            return 7

    def at(partition: int, place: Callable[[bytes, int], int], width: int) -> list[Any]:
        return [one for n in range(400) if place((one := Keyed(f"k{n}")).key(), width) == partition]

    old = Placement("words", 1, 8, "murmur2", "the store 'counts'")
    assert old.look(at(1, partition_for, 4)) is None
    assert old.look(at(1, partition_for, 8)) is None
    wrong = at(1, crc32_partition, 8)
    found = old.look(wrong)
    assert found is not None
    assert old.found is not None
    alone = Placement("words", 7, 8, "murmur2", "the store 'counts'")
    alone.look(at(7, partition_for, 8) * (AT_FIRST // 30))
    alone.look(at(7, fnv1a_partition, 8) * 20)
    assert alone.found is not None
    assert "fnv1a_random" not in alone.found.remedy, "the keys of before do not fit it"
    assert "put rekey(...)" in alone.found.remedy


@pytest.mark.parametrize("width", [3, 4])
def test_partitions_that_are_added_beside_a_worker_are_met_by_its_remedy(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Others place keys by the new number; tasks stop before a key that is not theirs, and a rebuild brings all on.

    Of 2 partitions, 3 move keys between those that there were, and 4 only to new ones.
    """
    monkeypatch.setattr(contexts, "LEARN_S", 0.0)  # the producers know
    function = Processor(told, inputs="words", outputs="out", name="told", state={"counts": Store(Json(int))})
    graph = Graph("g", Source("words"), function, defaults=Topic(value=Json(), partitions=2))
    memory = Memory()
    broker = open_broker(memory)
    assert isinstance(broker, MemoryBroker)

    def send(partitions: int) -> None:
        keys = [(key.encode(), partition_for(key.encode(), partitions)) for key in KEYS]
        records = [("words", place, key, b'"%s"' % key, None, 0) for key, place in keys]
        broker.sender("other").send(records, timeout_s=5)

    running = start(graph, memory)
    send(2)
    running.wait_idle(timeout_s=20)
    broker.add_partitions("words", width)
    send(width)
    with pytest.raises(TaskStopped) as stopped:
        running.wait_idle(timeout_s=20)
    assert "cues-kafka plan MODULE:GRAPH" in str(stopped.value)
    assert "consistent_random" not in str(stopped.value)
    running.stop()

    planned = plan(graph, broker.facts(topics_to_ask(graph)))
    assert any("cues-kafka rebuild" in refusal for refusal in planned.refusals)
    with Rebuild(graph, broker, "told", who="test") as tool:
        tool.hold()
        for group in tool.look():
            tool.write(group)
    running = start(graph, memory)
    running.wait_idle(timeout_s=20)
    running.stop()

    with connect(memory, graph) as client:
        found = Counter(tuple(message.value) for message in client.messages("out"))
    assert found == Counter((key, number) for key in KEYS for number in (1, 2))


def test_time_decides_whether_fewer_partitions_excuse_a_key() -> None:
    """A message of the time when all producers know the number of partitions has no excuse, in partition 0 neither."""
    key = next(name.encode() for name in KEYS if partition_for(name.encode(), 2) == 1)
    message = Mock()
    message.key.return_value, message.offset.return_value = key, 7
    for known_ms, stops in ((None, False), (1_001, False), (1_000, True)):
        message.timestamp.return_value = (1, 1_000)
        placement = Placement("words", 0, 2, "murmur2", "the store 'counts'", known_ms=known_ms)
        assert (placement.look([message]) is not None) is stops


def test_every_name_has_a_rule_but_a_custom_one() -> None:
    """Names are librdkafka's."""
    assert [name for name in PARTITIONERS if place_of(name) is None] == ["custom"]
    with pytest.raises(GraphError, match="not known"):
        Topic(partitioner="murmur")


def test_client_refuses_to_place_a_key_by_a_rule_that_it_does_not_know() -> None:
    """Any place might be a second one, and a topic of such a rule is not checked."""
    tester = Tester(counting("custom"))
    with pytest.raises(OutputError, match=r"partitioner='custom'.* Give the message its partition"):
        tester.send("words", Message("ann", key="ann"))
    tester.send("words", Message("ann", key="ann", partition=3))
    tester.send("words", Message("no key"))
    assert tester.run().values("out") == [1, 1]
    only = Tester(counting("custom", partitions=1))
    only.send("words", Message("ann", key="ann"))
    assert only.run().values("out") == [1]


def test_a_plan_refuses_topics_whose_rules_differ() -> None:
    """One key would be in two partitions."""
    found = plan(joined(Table("customers"), customers="consistent_random")).refusals
    assert [text for text in found if "different partitioners (orders: murmur2, customers: consistent_random)" in text]
    assert not plan(joined(GlobalTable("customers"), customers="consistent_random")).refusals


@pytest.mark.parametrize(
    ("orders", "customers", "refused"),
    [
        (None, Avro("string"), "orders: plain text or bytes, customers: Avro"),
        (Json(), None, "orders: Json, customers: plain text or bytes"),
        (Avro("string"), Avro("string"), ""),
        (None, Raw(), ""),
        (Json(), JsonSchema({}), ""),
    ],
)
def test_a_plan_refuses_topics_whose_keys_are_other_bytes(orders: Any, customers: Any, refused: str) -> None:
    """A partitioner places bytes, so lookups would find some of the customers, without any error."""
    for table, partitions, stops in (
        (Table("customers"), 4, refused),
        (Table("customers"), 1, ""),
        (GlobalTable("customers"), 4, ""),
    ):
        topics = {
            "orders": Topic(value=Json(), partitions=partitions, key_codec=orders),
            "customers": Topic(value=Json(), partitions=partitions, key_codec=customers),
        }
        function = Processor(named, inputs={"order": "orders", "customers": table}, outputs="out")
        settings = Topic(value=Json(), key="id")
        graph = Graph("g", Source("orders"), Source("customers"), function, defaults=settings, topics=topics)
        found = [text for text in plan(graph).refusals if "in different forms" in text]
        assert bool(found) is bool(stops)
        assert all(f"({stops})" in text for text in found)


def test_a_plan_refuses_another_rule_for_a_topic_that_the_graph_writes() -> None:
    """Our own writers place keys by murmur2."""
    graph = Graph(
        "g",
        Source("words"),
        Processor(same, name="same", inputs="words", outputs="out"),
        topics={"out": Topic(partitions=2, partitioner="fnv1a")},
    )
    assert [text for text in plan(graph).refusals if "'out'" in text and "partitioner='fnv1a'" in text]


def test_a_plan_with_records_and_the_doctor_say_it_before_the_start() -> None:
    """With the text that the task would stop with."""
    graph = joined(Table("customers"))
    tester = Tester(graph)
    fill(tester, "customers", by_crc32)
    planned = plan(graph, tester.broker.facts(topics_to_ask(graph)))

    seen = foresee(graph, tester.broker, planned, ["named"], clock=tester.clock)

    assert ["the table 'customers' needs" in stop.why for stop in seen.stops] == [True]
    assert "consistent_random" in seen.stops[0].remedy


def test_a_key_in_a_store_of_another_rule_is_looked_for_where_that_rule_puts_it() -> None:
    """A rebuild goes by the declared rule, too; `custom` is refused with the reason."""
    tester = Tester(counting("consistent_random"))
    fill(tester, "words", by_crc32)
    tester.run()
    assert len(tester.values("out")) == len(KEYS)
