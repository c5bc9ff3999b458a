"""Annotations of the parameters that get stores, handlers and tables."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from cues_kafka import (
    Avro,
    Graph,
    GraphError,
    Handler,
    Json,
    Message,
    Processor,
    Raw,
    Source,
    State,
    StateHandler,
    Store,
    Table,
    TableView,
    Topic,
)

if TYPE_CHECKING:
    from cues_kafka.state.mapping import State as Unknown


class Base:
    """Of values."""


@dataclass
class Order(Base):
    """A value."""

    id: str


class Held(StateHandler):
    """A handler."""

    def reset(self, entries: Iterable[tuple[bytes, bytes]]) -> None: ...

    def checkpoint(self) -> Iterable[tuple[bytes, bytes | None]]:
        return ()


def make() -> Held:
    """A function does not tell the class."""
    return Held()


class Like(Protocol):
    """Not checked at runtime."""

    def add(self) -> None: ...


def evaluated_late(message: Any, kept: Unknown[int]) -> None: ...


def unannotated(message: Any, kept: Any) -> None: ...


del unannotated.__annotations__["kept"]


def declared(annotation: Any, kept: Any) -> Graph:
    """A graph with a function whose parameter is annotated so."""

    def fn(message: Any, kept: Any) -> None: ...

    fn.__annotations__["kept"] = annotation
    place: Any = {"tables" if isinstance(kept, Table) else "state": {"kept": kept}}
    return Graph("g", Source("in"), Processor(fn, inputs="in", **place))


@pytest.mark.parametrize(
    ("annotation", "kept"),
    [
        *((one, Store(Json(int))) for one in (State, State[int], State[float], State[Any], "State[int]", Any, object)),
        *(
            (one, Store())
            for one in (dict, dict[str, int], Mapping[str, int], MutableMapping[str, int], Container[str])
        ),
        *((one, Store()) for one in (State[int] | None, State[int] | dict[str, int], "Unknown", Like, State[Order])),
        *((one, Store(Json(Order))) for one in (State[Base], State[Order])),
        (State[bytes], Store(Raw())),
        *((one, Handler(Held)) for one in (Held, StateHandler, Like, "Held", Any)),
        (State[int], Handler(make)),
        *((one, Table("t")) for one in (TableView, TableView[int], Mapping[str, int], dict[str, int], object)),
    ],
)
def test_an_annotation_that_fits_is_taken(annotation: Any, kept: Any) -> None:
    """One that is not known here fits, too."""
    declared(annotation, kept)


@pytest.mark.parametrize("fn", [evaluated_late, unannotated])
def test_what_cannot_be_evaluated_is_not_checked(fn: Callable[..., Any]) -> None:
    """The type of a parameter may be imported for type checkers only."""
    Graph("g", Source("in"), Processor(fn, inputs="in", state={"kept": Store()}))


@pytest.mark.parametrize(
    ("annotation", "kept", "told"),
    [
        (
            list,
            Store(),
            "parameter 'kept' is annotated list, but state= passes a State. Annotate it State, or as a map",
        ),
        ("list[int]", Store(), r"is annotated list\[int\], but state= passes a State"),
        (Store, Store(), "is annotated Store, but state= passes a State"),
        (TableView[int], Store(), "but state= passes a State"),
        (Order | None, Store(Json(Order)), r"is annotated .*Order.*, but state= passes a State"),
        (State[str], Store(Json(int)), r"State\[str\], but the values of this store are int. Annotate it State\[int\]"),
        (State[int], Store(Avro(Order)), r"the values of this store are Order. Annotate it State\[Order\]"),
        (State[int], Handler(Held), r"State\[int\], but state= passes a Held. Annotate it Held"),
        (Order, Handler(Held), "is annotated Order, but state= passes a Held"),
        (State[int], Table("t"), "but tables= passes a TableView. Annotate it TableView, or as a mapping"),
        (Table, Table("t"), "is annotated Table, but tables= passes a TableView"),
    ],
)
def test_an_annotation_that_cannot_be_is_refused(annotation: Any, kept: Any, told: str) -> None:
    """The text says what the function is passed."""
    with pytest.raises(GraphError, match=told):
        declared(annotation, kept)


# Values


class Other:
    """No record: nothing is known of it."""


@dataclass
class Bill:
    """Another value."""

    id: str


@dataclass
class Late(Order):
    """A kind of order."""


def swapped(bill: Bill) -> Order:
    return Order(bill.id)


def right(order: Order) -> Bill:
    return Bill(order.id)


def base(order: Base) -> Bill:
    return Bill("a")


def text(order: str) -> Bill:
    return Bill(order)


def gives_text(order: Order) -> str:
    return order.id


def perhaps(order: Order | None) -> Message[Bill] | Bill | None:
    return None if order is None else Bill(order.id)


def bare(order: Order) -> Message:
    return Message(order)


def many(order: Order) -> Iterator[Bill]:
    yield Bill(order.id)


def many_wrong(order: Order) -> Iterator[Message[Order]]:
    yield Message(order)


def narrow(order: Late) -> Bill:
    return Bill(order.id)


def listed(orders: list[Order]) -> list[Bill | Exception | None]:
    return [Bill(one.id) for one in orders]


def listed_wrong(orders: list[Bill]) -> list[Bill]:
    return orders


def unknown(order: Other) -> Other:
    return order


async def awaited(order: Bill) -> Bill:
    return order


@pytest.mark.parametrize("value", [Json, Avro])
@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (swapped, "parameter 'bill' is annotated Bill, but the values of 'orders' are Order. Annotate it Order"),
        (text, "parameter 'order' is annotated str, but the values of 'orders' are Order"),
        (narrow, "parameter 'order' is annotated Late"),
        (awaited, "parameter 'order' is annotated Bill"),
        (gives_text, "the function gives str, but the values of 'bills' are Bill"),
        (many_wrong, r"the function gives .*Message\[.*Order\].*, but the values of 'bills' are Bill"),
        (listed_wrong, "parameter 'orders' is annotated list"),
        *((fn, "") for fn in (right, base, perhaps, bare, many, listed, unknown)),
    ],
)
def test_annotations_of_values_are_compared_with_the_topics_classes(value: Any, fn: Any, text: str) -> None:
    """What surely contradicts is refused; a base class, and what is not known, is taken."""
    batch = fn.__name__.startswith("listed")
    processor = Processor(fn, inputs="orders", outputs="bills", batch=batch)
    topics = {"orders": Topic(value=value(Order)), "bills": Topic(value=value(Bill))}

    def graph() -> Graph:
        return Graph("shop", Source("orders"), processor, topics=topics)

    if text:
        with pytest.raises(GraphError, match=text):
            graph()
    else:
        graph()
