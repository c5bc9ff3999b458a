"""What the driver sends to Spark's processes can be used where the user's modules are not."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import msgspec
import pytest
from pyspark import cloudpickle

import cues_kafka
from cues_kafka import Graph, Json, Processor, Source, Topic
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.on_spark.shipping import NotShipped, packed, resolve_annotations, ship, ship_modules

MODULE = """
from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, NewType

Cents = NewType("Cents", int)


class Colour(Enum):
    RED = "red"


@dataclass
class Base:
    at: datetime


@dataclass
class Leg:
    price: Decimal | None
    next: Leg | None = None


@dataclass
class Trip(Base):
    cents: Cents
    colour: Annotated[Colour, "of the car"]
    legs: list[Leg] = field(default_factory=list)


def same(trip: Trip) -> Trip:
    return trip
"""

ELSEWHERE = """
import pickle, sys
from cues_kafka.codecs.lookup import codec_for
_, [made] = pickle.load(sys.stdin.buffer)
codec = codec_for(*made)
print(codec.encode(codec.decode(sys.argv[1].encode())).decode())
"""

TRIP = (
    '{"at":"2026-11-23T01:00:00Z","cents":7,"colour":"red","legs":[{"price":"1.50","next":{"price":null,"next":null}}]}'
)


def test_a_class_whose_annotations_are_text_is_usable_where_its_module_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By value a class has no module in which "datetime" could be looked up."""
    (tmp_path / "trips_of_a_user.py").write_text(dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = importlib.import_module("trips_of_a_user")
    graph = Graph(
        "g",
        Source("in"),
        Processor(module.same, inputs="in", outputs="out"),
        defaults=Topic(value=Json(module.Trip)),
    )

    codec_for(graph.topic("in").value, MadeFor("in"))  # what msgspec keeps of a decoder must not hinder
    msgspec.json.Decoder(module.Colour)
    ship(graph)
    data = packed(graph, [(graph.topic("in").value, MadeFor("in"))])

    command = [sys.executable, "-c", ELSEWHERE, TRIP]
    done = subprocess.run(command, input=data, capture_output=True, timeout=60, check=False)
    assert done.stdout.decode().strip() == TRIP, done.stderr.decode()


def test_what_cannot_be_sent_is_refused_with_the_way_out() -> None:
    """A connection in opts=, say."""
    with pytest.raises(NotShipped, match=r"cannot be sent to Spark's Python processes .*factory of system="):
        packed((line for line in "x"), [])


def test_a_struct_of_a_users_module_is_refused_and_one_of_a_package_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """By value it would arrive without its fields, and read and write nothing."""

    class Car(msgspec.Struct):
        seats: int

    with pytest.raises(NotShipped, match=r"Car: a msgspec.Struct cannot be sent .*Declare a dataclass"):
        resolve_annotations(list[Car])
    monkeypatch.setattr(Car, "__module__", "packaging")
    Car.__qualname__ = "Car"

    resolve_annotations(list[Car])


def test_a_users_module_travels_by_value_also_from_the_folder_that_has_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `examples/shop.py` of a clone does. The package itself is installed on the executors."""
    root = Path(cues_kafka.__file__).parents[1]
    shop = ModuleType("a_shop_beside_the_package")
    shop.__file__ = str(root / "examples" / "shop.py")
    monkeypatch.setitem(sys.modules, shop.__name__, shop)

    ship_modules()

    pickled: Any = cloudpickle  # its functions have no types
    by_value = pickled.list_registry_pickle_by_value()
    assert shop.__name__ in by_value
    assert not [name for name in by_value if name.startswith("cues_kafka")]
    pickled.unregister_pickle_by_value(shop)
