"""Keys of strangers in a changelog on a real broker: `rebuild` deletes them, and the task goes on."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import Producer

from cues_kafka import Graph, Json, Kafka, Processor, Source, State, Store, Topic, start
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.operate.move.rebuild import Rebuild
from cues_kafka.state.layers import MARK
from cues_kafka.testing.fixtures import KafkaFixture


def count(_: int, seen: State[int]) -> int:
    """How many there were."""
    seen["all"] = seen.get("all", 0) + 1
    return seen["all"]


def test_rebuild_deletes_keys_of_strangers_and_the_task_goes_on(kafka: KafkaFixture) -> None:
    """Also the empty key, which a compacted topic takes; the input and the changelog end with markers."""
    name, options = kafka.unique("foreign"), Kafka(kafka.bootstrap)
    work = Processor(count, name="work", inputs=f"{name}.in", outputs=f"{name}.out", state={"seen": Store(Json(int))})
    graph = Graph(name, Source(f"{name}.in"), work, defaults=Topic(value=Json(), partitions=1))
    changelog = f"{name}.work.seen.changelog"
    with start(graph, options) as running:
        running.send_many(f"{name}.in", [1, 2])
        running.wait_idle()
        mark = next(one.value() for one in reversed(list(running.committed(changelog))) if one.key() == MARK)
    stranger = Producer({"bootstrap.servers": kafka.bootstrap})
    for key, value in ((b"", b"x"), (b"zoo", b"x"), (b"e\xff", b"x"), (MARK, mark)):
        stranger.produce(changelog, value, key)
    assert stranger.flush(30) == 0

    with closing(KafkaBroker(options)) as broker, Rebuild(graph, broker, "work", who="test") as tool:
        tool.hold()
        lines = []
        for group in tool.look():
            lines += [one.line for one in group]
            tool.write(group)

    assert lines == ["work/0: 2 calls; 1 entry: else nothing changes; 3 keys that no task writes removed"]
    with start(graph, options) as running:
        running.send_many(f"{name}.in", [3])
        running.wait_idle()
        assert [message.value for message in running.messages(f"{name}.out")] == [1, 2, 3]
        newest = {one.key(): one.value() for one in running.committed(changelog)}
    assert [newest[key] for key in (b"", b"zoo", b"e\xff")] == [None, None, None]
