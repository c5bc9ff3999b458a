"""`cues-kafka schemas`: what a graph declares beside what a registry has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cues_kafka.cli.main import app
from cues_kafka.testing.registry import TestRegistry

SHOP = """
from dataclasses import dataclass
from cues_kafka import Avro, Graph, Processor, Source, Topic

@dataclass
class Order:
    id: int
    total: float

@dataclass
class Bill:
    order: int

def bill(order: Order) -> Bill:
    return Bill(order.id)

graph = Graph("shop", Source("orders"), Processor(bill, inputs="orders", outputs="bills"), topics={
    "orders": Topic(value=Avro(Order, registry=True)),
    "bills": Topic(value=Avro(Bill, registry=True), key="order", key_codec=Avro("long", registry=True)),
})
"""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestRegistry]:
    """A registry, and a directory with a graph and the registry's address."""
    (tmp_path / "shop_of_schemas.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    with TestRegistry(token="s3cret") as found:
        (tmp_path / "cues-kafka.toml").write_text(f'[registry]\nurl = "{found.url}"\ntoken = {{env = "TOKEN"}}\n')
        monkeypatch.setenv("TOKEN", "s3cret")
        yield found


def schemas(*words: str) -> Result:
    """`cues-kafka schemas ...` of the graph."""
    return CliRunner().invoke(app, ["schemas", words[0], "shop_of_schemas.py:graph", *words[1:]], catch_exceptions=True)


def test_check_says_what_the_registry_lacks_and_writes_nothing(registry: TestRegistry) -> None:
    """What is only read needs no registration."""
    done = schemas("check")

    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "bills: bills-key: not registered: the subject does not exist",
        '  AVRO: "long"',
        "bills: bills-value: not registered: the subject does not exist",
        '  AVRO: {"type": "record", "name": "Bill", "fields": [{"name": "order", "type": "long"}]}',
        (
            "orders: orders-value: read only, not compared: the subject does not exist. Check the registry's address "
            "and the subject's name."
        ),
    ]
    assert registry.subjects() == {}


def test_register_adds_what_is_written_after_it_was_shown(registry: TestRegistry) -> None:
    """Not without --yes, and nothing twice."""
    assert schemas("register").exit_code == 1
    assert registry.subjects() == {}
    assert schemas("register", "--yes").exit_code == 0
    assert schemas("register", "--yes").exit_code == 0
    assert registry.subjects() == {"bills-key": [1], "bills-value": [2]}
    assert schemas("check").exit_code == 0


def test_nothing_is_registered_if_one_schema_does_not_fit(registry: TestRegistry) -> None:
    """The registry's own rule decides."""
    registry.register(
        "bills-value", {"type": "record", "name": "Bill", "fields": [{"name": "order", "type": "string"}]}
    )

    done = schemas("register", "--yes")

    assert done.exit_code == 1
    assert "bills: bills-value: refused: not compatible with the registered versions" in done.output
    assert registry.subjects() == {"bills-value": [1]}


def test_messages_that_could_not_be_read_are_told_before_the_start(registry: TestRegistry) -> None:
    """A newest version that lacks a field without a default."""
    registry.register("orders-value", {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})

    done = schemas("check", "--json")

    assert done.exit_code == 1
    found = {one["subject"]: one for one in json.loads(done.output)}
    assert found["orders-value"]["unreadable"] == [
        "Order.total: the writer does not have this field, and it has no default"
    ]
    assert (found["bills-key"]["type"], found["bills-key"]["schema"]) == ("AVRO", '"long"')
    assert "orders: orders-value: read only, differs from the newest version" in schemas("check").output


def test_a_schema_that_is_only_read_may_differ_if_messages_fit(registry: TestRegistry) -> None:
    """The writer has a field more."""
    fields = [{"name": name, "type": "double" if name == "total" else "long"} for name in ("id", "total", "more")]
    registry.register("orders-value", {"type": "record", "name": "Order", "fields": fields})

    assert (
        "orders: orders-value: read only: messages of the newest version are read into the declared schema"
        in schemas("check").output.splitlines()
    )


def test_a_registry_that_refuses_the_login_is_named_without_the_login(
    registry: TestRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the token stands in the text."""
    monkeypatch.setenv("TOKEN", "wr0ng-token")

    done = schemas("check")

    assert done.exit_code == 1
    assert "Unauthorized" in done.output
    assert "wr0ng-token" not in done.output


def test_without_a_registry_the_command_says_where_to_name_one(registry: TestRegistry) -> None:
    """2, as for any wrong setting."""
    Path("cues-kafka.toml").unlink()

    done = schemas("check")

    assert done.exit_code == 2
    assert "no registry is named. Give --registry URL" in done.output
    assert schemas("check", "--registry", "nowhere").exit_code != 0


MIXED = """
from dataclasses import dataclass
from cues_kafka import Graph, JsonSchema, Processor, Protobuf, Source, Topic
from tests.unit.codecs.protos import Bill

@dataclass
class Order:
    id: int

def bill(order: Order) -> Bill:
    return Bill(order=order.id)

def order(bill: Bill) -> dict:
    return {"id": bill.order}

LINE = {"type": "object"}
graph = Graph(
    "mixed",
    Source("orders"),
    Processor(bill, inputs="orders", outputs="bills"),
    Processor(order, inputs="bills", outputs="again"),
    topics={
        "orders": Topic(value=JsonSchema(Order, registry=True)),
        "bills": Topic(value=Protobuf(Bill, registry=True)),
        "again": Topic(value=JsonSchema({"$ref": "line.json"}, references={"line.json": LINE}, registry=True)),
    },
)
"""


def test_json_schemas_and_protobuf_are_registered_with_what_they_name(registry: TestRegistry) -> None:
    """First the schemas that others name; then nothing is missing. What does not fit is refused by the registry."""
    Path("mixed_schemas.py").write_text(MIXED)

    def mixed(*words: str) -> Result:
        return CliRunner().invoke(app, ["schemas", words[0], "mixed_schemas.py:graph", *words[1:]])

    done = mixed("register", "--yes")
    assert done.exit_code == 0, done.output
    assert sorted(registry.subjects()) == ["again-value", "bills-value", "cues/money.proto", "line.json"]
    done = mixed("check")
    assert done.exit_code == 0, done.output
    assert "bills: cues/money.proto: registered" in done.output
    assert "orders: orders-value: read only" in done.output

    registry.register("orders-value", '"long"')
    assert "of another format: it is of the type AVRO" in mixed("check").output


def test_a_field_that_is_nearly_the_writers_is_told(registry: TestRegistry) -> None:
    """As after a typo in the class."""
    fields = [{"name": name, "type": "double"} for name in ("id", "totals")]
    registry.register("orders-value", {"type": "record", "name": "Order", "fields": fields})

    assert "Order.total: the writer does not have this field (did you mean 'totals'?)" in schemas("check").output
