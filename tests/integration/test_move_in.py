"""A running consumer group moves to a graph: nothing lost, nothing repeated (docs/move-in.md)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient

from cues_kafka import ConfigError, Graph, Json, Kafka, Processor, RecoveryError, Source, Topic, connect, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.operate.applying import apply_plan
from cues_kafka.operate.move.adopt import adopt, forget
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.plan.inspectors import Terms
from cues_kafka.ports.log import TopicPartition
from cues_kafka.task.making.prepare import plan_start
from cues_kafka.testing.fixtures import KafkaFixture

WIDTH = 3


def check(order: dict[str, Any]) -> dict[str, Any]:
    """The new application."""
    return {"checked": order["n"]}


def graph_of(name: str, of: str | None = None, begin: Any = "earliest") -> Graph:
    """One processor over the topic of the old application; `of`: a copy of that graph."""
    return Graph(
        name,
        Source(f"{of or name}.orders"),
        Processor(check, inputs=f"{of or name}.orders", outputs=f"{name}.checked", start=begin),
        defaults=Topic(value=Json(), partitions=WIDTH),
    )


class Legacy:
    """An application with a consumer group of its own, which commits what it has processed."""

    def __init__(self, kafka: KafkaFixture, name: str) -> None:
        self.group = f"{name}-legacy"
        self.seen: list[int] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe([f"{name}.orders"])

    def process(self, count: int) -> None:
        """Take this many messages, and commit behind them."""
        while len(self.seen) < count:
            message = self._consumer.poll(10)
            assert message is not None
            assert message.error() is None
            self.seen.append(json.loads(message.value() or b"")["n"])
            self._consumer.commit(message=message, asynchronous=False)

    def stop(self) -> None:
        """Leave the group."""
        self._consumer.close()


@pytest.fixture
def moving(kafka: KafkaFixture) -> tuple[Graph, Kafka, Legacy]:
    """A topic with 40 messages, of which the old application has processed some in each partition."""
    name = kafka.unique("move")
    graph, options = graph_of(name), Kafka(kafka.bootstrap)
    broker = open_broker(options)
    apply_plan(plan_start(graph, broker, Terms(cluster=options)), broker)
    with connect(options, graph) as client:
        for n in range(30):
            client.send(f"{name}.orders", {"n": n}, key=str(n))
    legacy = Legacy(kafka, name)
    legacy.process(30)
    with connect(options, graph) as client:
        for n in range(30, 40):
            client.send(f"{name}.orders", {"n": n}, key=str(n))
    legacy.process(33)
    return graph, options, legacy


def tool(graph: Graph, options: Kafka) -> Maintenance:
    """What the commands use."""
    return Maintenance(graph, open_broker(options), "check", who="test")


def test_a_group_is_taken_over_without_loss_or_repeat(moving: tuple[Graph, Kafka, Legacy]) -> None:
    """Refused while its application runs; then the two have processed each message once, and the group is gone."""
    graph, options, legacy = moving
    with pytest.raises(RecoveryError, match="has members"):
        adopt(tool(graph, options), legacy.group)
    legacy.stop()

    adopting = tool(graph, options)
    adopting.carry_out(adopt(adopting, legacy.group), holding=legacy.group)
    assert forget(adopting, legacy.group)

    with start(graph, options) as running:
        running.wait_idle()
        checked = [message.value["checked"] for message in running.messages(f"{graph.name}.checked")]
    assert sorted(legacy.seen + checked) == list(range(40))
    listed = AdminClient({"bootstrap.servers": options.bootstrap}).list_consumer_groups().result()
    assert legacy.group not in {one.group_id for one in listed.valid}


def test_old_and_new_work_side_by_side_until_the_new_one_takes_over(moving: tuple[Graph, Kafka, Legacy]) -> None:
    """A copy under another name reads the same topic, from a place of its own, and leaves the old one alone."""
    graph, options, legacy = moving
    copy = graph_of(f"{graph.name}-trial", graph.name, dict.fromkeys(range(WIDTH), 1))
    broker = open_broker(options)
    apply_plan(plan_start(copy, broker, Terms(cluster=options)), broker)
    with start(copy, options) as trial:
        legacy.process(36)
        trial.wait_idle()
        tried = [message.value["checked"] for message in trial.messages(f"{copy.name}.checked")]
    legacy.process(37)
    assert len(tried) == len(set(tried)) == 40 - WIDTH
    legacy.stop()

    adopting = tool(graph, options)
    adopting.carry_out(adopt(adopting, legacy.group), holding=legacy.group)
    with start(graph, options) as running:
        running.wait_idle()
        checked = [message.value["checked"] for message in running.messages(f"{graph.name}.checked")]
    assert sorted(legacy.seen + checked) == list(range(40))


def test_a_takeover_that_was_cut_short_is_run_again(moving: tuple[Graph, Kafka, Legacy]) -> None:
    """What stands there already is left; once the processor has gone on from there, the group is not taken any more."""
    graph, options, legacy = moving
    legacy.stop()
    first = tool(graph, options)
    moves = adopt(first, legacy.group)
    first.carry_out(moves[:1], holding=legacy.group)

    second = tool(graph, options)
    rest = adopt(second, legacy.group)
    assert [move.spec.partition for move in rest] == [move.spec.partition for move in moves[1:]]
    second.carry_out(rest, holding=legacy.group)
    assert adopt(tool(graph, options), legacy.group) == []

    with start(graph, options) as running:
        running.wait_idle()
    with pytest.raises(RecoveryError, match="a place of its own"):
        adopt(tool(graph, options), legacy.group)


def test_a_group_that_has_moved_on_since_the_plan_is_not_taken_over(moving: tuple[Graph, Kafka, Legacy]) -> None:
    """Its application was started again between the look and the takeover; what it processed must not come again."""
    graph, options, legacy = moving
    legacy.stop()
    first = tool(graph, options)
    moves = adopt(first, legacy.group)
    again = Legacy(KafkaFixture(options.bootstrap, ""), graph.name)
    again.process(1)
    again.stop()
    with pytest.raises(RecoveryError, match="has moved on since it was looked at"):
        first.carry_out(moves, holding=legacy.group)

    second = tool(graph, options)
    second.carry_out(adopt(second, legacy.group), holding=legacy.group)
    with start(graph, options) as running:
        running.wait_idle()
        checked = [message.value["checked"] for message in running.messages(f"{graph.name}.checked")]
    assert sorted(legacy.seen + again.seen + checked) == list(range(40))


def test_a_place_that_is_gone_from_the_log_is_not_taken_over(moving: tuple[Graph, Kafka, Legacy]) -> None:
    """Messages that the group has not seen were deleted: that is said, and nothing is moved."""
    graph, options, legacy = moving
    legacy.stop()
    broker = open_broker(options)
    places = [TopicPartition(f"{graph.name}.orders", partition) for partition in range(WIDTH)]
    broker.trim({place: marks.stable for place, marks in broker.watermarks(places).items()})
    with pytest.raises(RecoveryError, match="is not in the log"):
        adopt(tool(graph, options), legacy.group)


def test_a_group_without_an_offset_is_refused(moving: tuple[Graph, Kafka, Legacy]) -> None:
    """Where it would begin is not known here."""
    graph, options, legacy = moving
    legacy.stop()
    with pytest.raises(RecoveryError, match=r"no committed offset of .*orders/0.*this group does not exist"):
        adopt(tool(graph, options), "never-seen")


def test_a_group_without_the_offset_of_one_partition_is_refused_with_those_it_has(
    moving: tuple[Graph, Kafka, Legacy],
) -> None:
    """As after few messages of few keys; the text has what the file for `reset` needs."""
    graph, options, legacy = moving
    legacy.stop()
    topic, group = f"{graph.name}.orders", f"{graph.name}-narrow"
    consumer = Consumer({"bootstrap.servers": options.bootstrap, "group.id": group})
    consumer.commit(offsets=[Offset(topic, 0, 1)], asynchronous=False)
    consumer.close()
    with pytest.raises(RecoveryError) as raised:
        adopt(tool(graph, options), group)
    text = str(raised.value)
    assert f"no committed offset of {topic}/1" in text
    assert json.dumps({topic: {"0": 1}}) in text
    assert "reset MODULE:GRAPH PROCESSOR --to FILE" in text


def test_the_own_group_is_not_taken_over(moving: tuple[Graph, Kafka, Legacy]) -> None:
    """All tasks stand where it stands, so nothing would be moved, and then the group would be deleted."""
    graph, options, legacy = moving
    legacy.stop()
    with start(graph, options) as running:
        running.wait_idle()
    adopting = tool(graph, options)
    with pytest.raises(ConfigError, match="is this processor's own"):
        adopt(adopting, adopting.specs[0].group)


def test_a_group_that_another_run_took_over_is_not_said_to_have_moved_on(moving: tuple[Graph, Kafka, Legacy]) -> None:
    """Two users ran the command at the same time: the second one need not stop the application again."""
    graph, options, legacy = moving
    legacy.stop()
    first, second = tool(graph, options), tool(graph, options)
    moves, same = adopt(first, legacy.group), adopt(second, legacy.group)
    first.carry_out(moves, holding=legacy.group)
    assert forget(first, legacy.group)
    with pytest.raises(RecoveryError, match="was deleted since it was looked at"):
        second.carry_out(same, holding=legacy.group)


def test_a_widened_topic_is_not_taken_over_in_part(moving: tuple[Graph, Kafka, Legacy]) -> None:
    """A task for each partition is planned first, or the group would be deleted with the offsets of the others."""
    graph, options, legacy = moving
    legacy.stop()
    topic, broker = f"{graph.name}.orders", open_broker(options)
    broker.add_partitions(topic, WIDTH + 1)
    consumer = Consumer({"bootstrap.servers": options.bootstrap, "group.id": legacy.group})
    consumer.commit(offsets=[Offset(topic, WIDTH, 0)], asynchronous=False)
    consumer.close()
    with pytest.raises(ConfigError, match="has 4 partitions, and only 3 tasks can take a place"):
        adopt(tool(graph, options), legacy.group)

    apply_plan(plan_start(graph, broker, Terms(cluster=options)), broker)
    assert [move.spec.partition for move in adopt(tool(graph, options), legacy.group)] == list(range(WIDTH + 1))


def test_a_processor_is_reset_to_a_group_a_time_or_a_file(moving: tuple[Graph, Kafka, Legacy], tmp_path: Path) -> None:
    """After it ran: each message behind the place comes again."""
    graph, options, legacy = moving
    legacy.stop()
    topic = f"{graph.name}.orders"
    with start(graph, options) as running:
        running.wait_idle()
        found = running.messages(topic)
    late = [message for message in found if message.value["n"] >= 35]
    when = min(message.timestamp_ms for message in late) / 1000
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({topic: {str(p): 1 for p in range(WIDTH)}}))

    def again(to: str) -> list[int]:
        with connect(options, graph) as client:
            before = len(client.messages(f"{graph.name}.checked"))
        resetting = tool(graph, options)
        resetting.carry_out(reset(resetting, to=to))
        with start(graph, options) as running:
            running.wait_idle()
            return sorted(m.value["checked"] for m in running.messages(f"{graph.name}.checked")[before:])

    expected = {message.value["n"] for message in found if message.timestamp_ms >= int(when * 1000)}
    assert len(again(datetime.fromtimestamp(when, UTC).isoformat())) == len(expected)
    assert len(again(f"group:{legacy.group}")) == 7
    assert len(again(str(file))) == 40 - WIDTH


@pytest.mark.parametrize(
    ("to", "error", "text"),
    [
        ("yesterday", ConfigError, "'yesterday' is not a place"),
        ("2026-11-23T10:00:00", ConfigError, "the time has no zone. Write 2026-11-23T10:00:00Z"),
        ("2026-11-23", ConfigError, "Write 2026-11-23T00:00:00Z for UTC"),
    ],
)
def test_words_that_are_no_place_are_refused(
    moving: tuple[Graph, Kafka, Legacy], to: str, error: type[Exception], text: str
) -> None:
    """With what could be written instead."""
    graph, options, legacy = moving
    legacy.stop()
    with pytest.raises(error, match=text):
        reset(tool(graph, options), to=to)
