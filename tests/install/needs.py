"""A graph for each extra, declared without its package. The tests of the wheel load it in a core installation."""

from __future__ import annotations

from cues_kafka import (
    Amqp,
    Avro,
    Blobs,
    DataFrameProcessor,
    Delta,
    Feed,
    Graph,
    Http,
    IbmMq,
    JsonSchema,
    Mqtt,
    Processor,
    RabbitMq,
    Raw,
    Sink,
    Source,
    Sql,
    SqlOutbox,
    Store,
    Topic,
)
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.feed import ReplayableSource

RECORD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}


def passed(order: dict[str, str]) -> dict[str, str]:
    """The order."""
    return order


def counted(order: dict[str, str], seen: object) -> dict[str, str]:
    """The order; what it has seen is another test's."""
    del seen
    return order


def written(order: dict[str, str], to: object) -> None:
    """Nothing: what is written is another test's."""


def written_alone(columns: object) -> None:
    """Nothing, of columns."""
    del columns


def _typed(value: CodecSpec) -> Graph:
    return Graph("typed", Source("a"), Processor(passed, inputs="a", outputs="b"), defaults=Topic(value=value))


def _fed(source: ReplayableSource) -> Graph:
    return Graph("fed", Feed(source, "a", name="feed"))


core = Graph("core", Source("a"), Processor(passed, inputs="a", outputs="b"))
disk = Graph("disk", Source("a"), Processor(counted, inputs="a", outputs="b", state={"seen": Store(on_disk=True)}))
jsonschema = _typed(JsonSchema({"title": "Order", "type": "object"}))
registry = _typed(Avro(RECORD, registry=True))
postgres = Graph("w", Source("a"), Processor(written, inputs="a", effects={"to": Sql("postgresql://u@h/d")}))
mysql = Graph("w", Source("a"), Processor(written, inputs="a", effects={"to": Sql("mysql://u@h/d")}))
http = Graph("w", Source("a"), Processor(written, inputs="a", effects={"to": Http("http://h")}))
delta = Graph("w", Source("a"), Sink("to", inputs="a", into=Delta("file:///d").table("t", columns={"id": "string"})))
arrow = Graph("w", Source("a"), Processor(written_alone, inputs="a", batch="arrow"), defaults=Topic(value=Raw()))
blobs = Graph("w", Source("a"), Sink("s", inputs="a", into=Blobs("s3://b/p").parquet("t", schema={"id": "string"})))
upserts = Graph(
    "w", Source("a"), Sink("s", inputs="a", into=Sql("postgresql://u@h/d").upsert("t", key="id", columns=["id"]))
)
outbox = _fed(SqlOutbox("mysql://u@h/d", table="outbox"))
mqtt = _fed(Mqtt("mqtt://h", topics=["a"], session="s"))
rabbitmq = _fed(RabbitMq("amqp://h").queue("a"))
amqp = _fed(Amqp("amqp://h").queue("a"))
ibmmq = _fed(IbmMq("mq://h:1414/QM1?channel=C").queue("A"))
to_mqtt = Graph("w", Source("a"), Sink("s", inputs="a", into=Mqtt("mqtt://h").topic("b")))
to_rabbitmq = Graph("w", Source("a"), Sink("s", inputs="a", into=RabbitMq("amqp://h").exchange("b", "{key}")))
to_amqp = Graph("w", Source("a"), Sink("s", inputs="a", into=Amqp("amqp://h").to_queue("b")))
to_ibmmq = Graph("w", Source("a"), Sink("s", inputs="a", into=IbmMq("mq://h:1414/QM1?channel=C").to_queue("B")))
several = Graph(
    "several",
    Source("a"),
    Processor(written, inputs="a", effects={"to": Sql("postgresql://u@h/d")}),
    Processor(counted, inputs="a", outputs="b", state={"seen": Store(on_disk=True)}),
)
frames = Graph("frames", Source("a"), DataFrameProcessor(passed, inputs="a", outputs="b"))
