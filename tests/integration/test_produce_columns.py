"""A session that takes records column by column, on a real broker."""

from __future__ import annotations

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.task.calling.outbox import Outbox
from cues_kafka.testing.fixtures import KafkaFixture

COUNT = 2_000


def test_records_in_columns_get_past_a_full_queue_in_order_and_are_counted(kafka: KafkaFixture) -> None:
    """P6: with room for 100 records the client refuses most of them at first; none is lost, doubled or overtaken."""
    broker = open_broker(Kafka(kafka.bootstrap, producer={"queue.buffering.max.messages": 100}))
    topic = kafka.unique("out")
    broker.create([NewTopic(topic, 1)])
    box = Outbox()
    values = [b"%d" % i for i in range(COUNT)]
    box.extend(
        topic,
        0,
        [b"k"] * COUNT,
        values,
        [b"p%d" % i for i in range(COUNT)],
        [1_000 + i for i in range(COUNT)],
        alone=True,
    )
    session = broker.session(kafka.unique("tx"))
    session.init(timeout_s=30)
    session.begin()

    produced = session.produce([(topic, 0, b"t", b"record", None, 0)]) + session.produce(box)
    flushed = session.flush()
    session.commit()
    session.close()

    assert produced == COUNT + 1
    assert (flushed.delivered, flushed.first_offset) == (COUNT + 1, 0)
    reader = broker.reader(kafka.unique("look"))
    reader.assign({TopicPartition(topic, 0): 1})
    found: list[WireMessage] = []
    while len(found) < COUNT:
        found += [message for part in reader.poll(10) for message in part.messages]
    reader.close()
    broker.close()
    assert [message.value() for message in found] == values
    assert found[-1].headers() == [("cues", b"p1999")]
    assert found[-1].timestamp()[1] == 2_999
