"""Values of a topic as a column with types: types, nulls, nesting, bad messages, and options that are refused."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DecimalType, LongType, MapType, StringType, StructType, TimestampType

from cues_kafka import Alias, Avro, Codec, CodecError, ConfigError, Digits, GraphError, Json, Raw
from cues_kafka.brokers.memory import MemoryMessage
from cues_kafka.codecs.avro import schema_text
from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.error_message import ErrorCause, ErrorMessage, ErrorMessages
from cues_kafka.on_spark.source.options import values_of
from cues_kafka.on_spark.source.values import Values, arrow_type
from cues_kafka.ports.log import UNREADABLE, Headers
from cues_kafka.testing.registry import TestRegistry

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


class Kind(Enum):
    """Travels by its value."""

    NEW = "new"
    USED = "used"


@dataclass(frozen=True)
class Line:
    """Inside an order."""

    sku: str
    price: Annotated[Decimal, Digits(12, 2)] | None = None


@dataclass(frozen=True)
class Order:
    """A column of each type."""

    id: int
    at: datetime
    day: date
    kind: Kind
    raw: bytes
    ref: UUID
    price: Annotated[Decimal, Digits(12, 2)] | None = None
    note: str | None = None
    paid: bool = True
    weight: float = 1.5
    lines: list[Line] = field(default_factory=list)
    tags: dict[str, int] = field(default_factory=dict)
    first: Line | None = None


NOON = datetime(2026, 1, 1, 12, 0, 0, 123456, UTC)
REF = UUID(int=7)
FULL = Order(
    *(1, NOON, date(2026, 1, 1), Kind.USED, b"\xff", REF, Decimal("3.5"), "n", False, 2.5),
    lines=[Line("a", Decimal("0.05")), Line("b")],
    tags={"a": 1, "b": 2},
    first=Line("c", Decimal(1)),
)
BARE = Order(2, NOON, date(2026, 1, 2), Kind.NEW, b"", REF)

LINE = pa.struct([("sku", pa.string()), ("price", pa.decimal128(12, 2))])
KIND = pa.struct(
    [
        *(("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("kind", pa.string())),
        *(("raw", pa.binary()), ("ref", pa.string()), ("price", pa.decimal128(12, 2)), ("note", pa.string())),
        *(("paid", pa.bool_()), ("weight", pa.float64()), ("lines", pa.list_(LINE))),
        *(("tags", pa.map_(pa.string(), pa.int64())), ("first", LINE)),
    ]
)
"""What Spark makes of the DDL."""

DDL = (
    "STRUCT<`id`: BIGINT, `at`: TIMESTAMP, `day`: DATE, `kind`: STRING, `raw`: BINARY, `ref`: STRING, "
    "`price`: DECIMAL(12, 2), `note`: STRING, `paid`: BOOLEAN, `weight`: DOUBLE, "
    "`lines`: ARRAY<STRUCT<`sku`: STRING, `price`: DECIMAL(12, 2)>>, `tags`: MAP<STRING, BIGINT>, "
    "`first`: STRUCT<`sku`: STRING, `price`: DECIMAL(12, 2)>>"
)

ROWS: list[dict[str, Any] | None] = [
    {
        "id": 1,
        "at": NOON,
        "day": date(2026, 1, 1),
        "kind": "used",
        "raw": b"\xff",
        "ref": str(REF),
        "price": Decimal("3.50"),
        "note": "n",
        "paid": False,
        "weight": 2.5,
        "lines": [{"sku": "a", "price": Decimal("0.05")}, {"sku": "b", "price": None}],
        "tags": [("a", 1), ("b", 2)],
        "first": {"sku": "c", "price": Decimal("1.00")},
    },
    {
        "id": 2,
        "at": NOON,
        "day": date(2026, 1, 2),
        "kind": "new",
        "raw": b"",
        "ref": str(REF),
        "price": None,
        "note": None,
        "paid": True,
        "weight": 1.5,
        "lines": [],
        "tags": [],
        "first": None,
    },
    None,
]


@dataclass(frozen=True)
class Own(Codec):
    """JSON behind a mark."""

    schema: Any = Order

    def encode(self, value: Any) -> bytes:
        """Behind it."""
        return b">" + codec_for(Json(Order), MadeFor("t")).encode(value)

    def decode(self, data: bytes) -> Any:
        """Without it."""
        return codec_for(Json(Order), MadeFor("t")).decode(data[1:])


FAILED = ErrorMessage(
    graph="shop",
    processor="check",
    task="check/0",
    consumed=(),
    topics=(),
    hash=bytes(16),
    kind="raised",
    exception="OrderRefused",
    text="no",
    context={},
    timestamp_ms=1,
    causes=(ErrorCause("ValueError", "negative"),),
)


def message(offset: int, value: bytes | None, headers: Headers | None = None) -> Any:
    """Of one partition."""
    return MemoryMessage("t", 0, offset, b"k", value, headers, (1, 1000), 0)


def test_values_of_every_codec_are_the_same_columns() -> None:
    """With nulls, nesting, decimals, timestamps; also when what makes them has been sent to another process."""
    text = schema_text(Avro(Order, namespace="shop"))
    for declared in (Json(Order), Own(), Avro(Order), Avro(text), Avro(text, Order)):
        codec: Any = codec_for(declared, MadeFor("t"))
        values = [FULL, BARE] if declared != Avro(text) else [_plain(FULL), _plain(BARE)]
        data = [message(n, codec.encode(value)) for n, value in enumerate(values)]
        made: Values = pickle.loads(pickle.dumps(Values(declared, MadeFor("t"))))

        assert made.ddl == DDL, declared
        assert made.id_header is None
        assert made.column([*data, message(2, None)], [], KIND).to_pylist() == ROWS, declared


def test_error_messages_are_columns() -> None:
    """Their bytes name the schema, so those of earlier releases are read, too."""
    values = Values(ErrorMessages(), MadeFor("failed"))
    kind = pa.struct([("processor", pa.string()), ("causes", pa.list_(pa.struct([("text", pa.string())])))])
    [row] = values.column([message(0, error_messages().encode(FAILED))], [], kind).to_pylist()

    assert "`causes`: ARRAY<STRUCT<`exception`: STRING, `text`: STRING" in values.ddl
    assert row == {"processor": "check", "causes": [{"text": "negative"}]}


def test_the_type_in_arrow_is_that_of_sparks_type() -> None:
    """Spark reads record batches by it; timestamps are in UTC."""
    line = StructType().add("sku", StringType()).add("price", DecimalType(12, 2))
    kind = StructType().add("id", LongType()).add("at", TimestampType()).add("lines", ArrayType(line))
    kind = kind.add("tags", MapType(StringType(), LongType()))

    assert arrow_type(kind) == pa.struct([KIND.field(name) for name in ("id", "at", "lines", "tags")])


def _plain(order: Order) -> dict[str, Any]:
    return {
        **vars(order),
        "kind": order.kind.value,
        "lines": [vars(line) for line in order.lines],
        "first": order.first and vars(order.first),
    }


@dataclass(frozen=True)
class Renamed:
    """A name that Python has not."""

    order: Annotated[int, Alias("order-id")]


def test_a_column_has_the_name_in_messages() -> None:
    """Of a field with an alias."""
    values = Values(Json(Renamed), MadeFor("t"))

    assert values.ddl == "STRUCT<`order-id`: BIGINT>"
    found = values.column([message(0, b'{"order-id":3}')], [], pa.struct([("order-id", pa.int64())]))
    assert found.to_pylist() == [{"order-id": 3}]


BAD = [message(7, b'{"order-id":3}'), message(8, b"{"), message(9, None)]


def test_a_message_that_cannot_be_read_fails_with_its_place_or_is_null(caplog: pytest.LogCaptureFixture) -> None:
    """By the mode; a warning names what is left out."""
    kind = pa.struct([("order-id", pa.int64())])
    with pytest.raises(CodecError, match=r"t/0 at 8 cannot be read: .* is not JSON.*PERMISSIVE"):
        Values(Json(Renamed), MadeFor("t")).column(BAD, [], kind)
    with caplog.at_level(logging.WARNING):
        found = Values(Json(Renamed), MadeFor("t"), "PERMISSIVE").column(BAD, [], kind)

    assert found.to_pylist() == [{"order-id": 3}, None, None]
    assert "value left out" in caplog.text


def test_a_value_that_no_column_holds_is_named() -> None:
    """Whole numbers of JSON have no end; Spark's have 64 bits."""
    with pytest.raises(CodecError, match=r"t/0 from 0: a value does not fit its column"):
        Values(Json(Renamed), MadeFor("t")).column(
            [message(0, b'{"order-id":%d}' % 2**70)], [], pa.struct([("order-id", pa.int64())])
        )


@pytest.mark.parametrize("declared", [Json(), Raw(), Own(None)])
def test_a_codec_without_schema_is_refused_with_the_remedy(declared: CodecSpec) -> None:
    """It could only be bytes."""
    with pytest.raises(ConfigError, match=r"'orders' has no columns: its codec .* Declare Json\(SomeDataclass\)"):
        values_of(LEAST | {"graph": "shop"}, {"shop": {"orders": declared}})


GRAPHS = {"shop": {"orders": Json(Order), "bills": Json(Line), "copies": Json(Order)}}
RECORD = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})


def test_options_name_a_graph_or_a_schema() -> None:
    """Without them values are bytes; topics of one codec are read together."""
    by_place = {"kafka.bootstrap.servers": "localhost:9092", "assign": '{"orders": [0], "copies": [1]}'}
    found = [
        values_of(LEAST | {"graph": "shop"}, GRAPHS),
        values_of(LEAST | {"subscribe": "orders,copies", "GRAPH": "shop"}, GRAPHS),
        values_of(by_place | {"graph": "shop"}, GRAPHS),
        values_of(LEAST | {"avroschema": RECORD, "mode": "permissive"}, {}),
    ]

    assert values_of(LEAST, GRAPHS) is None
    assert [one and one.ddl for one in found] == [DDL, DDL, DDL, "STRUCT<`a`: BIGINT>"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"graph": "shp"}, r"does not know the graph.*did you mean.*shop|Did you mean 'shop'"),
        ({"graph": "shop", "subscribe": "order"}, r"graph 'shop' has no topic 'order'.*orders"),
        ({"graph": "shop", "subscribe": "orders,bills"}, r"'bills' and 'orders' have different codecs"),
        ({"graph": "shop", "subscribePattern": "o.*", "subscribe": None}, r"needs topics by name"),
        ({"graph": "shop", "avroSchema": RECORD}, r"both say what values are"),
        ({"graph": "shop", "mode": "DROPMALFORMED"}, r"mode=DROPMALFORMED is not known; it is FAILFAST or PERMISSIVE"),
        ({"mode": "FAILFAST"}, r"here values are bytes. Leave it out"),
        ({"avroSchema": "nowhere/order.avsc"}, r"the file cannot be read"),
        ({"avroSchema": '{"type": "record"}'}, r"not an Avro schema"),
        ({"schema.registry.bearer.auth.token": "t"}, r'needs option\("schema.registry.url"'),
        ({"schema.registry.url": "https://r", "schema.registry.basic.auth.user.info": "u"}, r"is user:password"),
        ({"schema.registry.url": "https://r", "subscribe": "a,b"}, r"one topic at a time"),
        ({"schema.registry.urls": "https://r"}, r"did you mean schema.registry.url\?"),
    ],
)
def test_options_that_cannot_be_followed_are_refused_with_the_remedy(
    options: Mapping[str, str | None], text: str
) -> None:
    """Before anything is read."""
    given = {name: value for name, value in {**LEAST, **options}.items() if value is not None}
    with pytest.raises((ConfigError, GraphError), match=text):
        values_of(given, GRAPHS)


def test_the_newest_schema_of_a_registry_gives_the_columns() -> None:
    """Or a schema of ones own, into which messages are read; the id may be in a header."""
    reader = '{"type": "record", "name": "R", "fields": [{"name": "b", "type": "string", "default": "x"}]}'
    with TestRegistry(token="t0k") as registry:
        number = registry.register("orders-value", json.loads(RECORD))
        options = LEAST | {"schema.registry.url": registry.url, "schema.registry.bearer.auth.token": "t0k"}
        whole, own = values_of(options, {}), values_of(options | {"avroSchema": reader}, {})
        graph = values_of(options | {"graph": "g"}, {"g": {"orders": Avro(RECORD, registry=True)}})
        assert whole is not None
        assert own is not None
        assert graph is not None
        framed = message(0, b"\0" + number.to_bytes(4, "big") + b"\x06")
        header: Headers = [("__value_schema_id", b"\0" + number.to_bytes(4, "big"))]

        assert (whole.ddl, graph.ddl, own.ddl) == (*["STRUCT<`a`: BIGINT>"] * 2, "STRUCT<`b`: STRING>")
        for values in (whole, graph):
            kind = pa.struct([("a", pa.int64())])
            assert values.column([framed], [None], kind).to_pylist() == [{"a": 3}]
            assert values.id_header == "__value_schema_id"
            assert values.column([message(1, b"\x06", header)], [header], kind).to_pylist() == [{"a": 3}]
            with pytest.raises(CodecError, match="a header is not UTF-8"):
                values.column([framed], [UNREADABLE], kind)
        assert own.column([framed], [None], pa.struct([("b", pa.string())])).to_pylist() == [{"b": "x"}]
    with pytest.raises(ConfigError, match=r'add option\("schema.registry.url"'):
        values_of(LEAST | {"graph": "g"}, {"g": {"orders": Avro(RECORD, registry=True)}})
