"""How functions are called: the `CallShape` of every form of function and declaration."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NewType, TypedDict

import pytest

from cues_kafka import Graph, GraphError, Message, Out, Processor, has_type, processor
from cues_kafka.graph.binding import CallShape
from cues_kafka.graph.declare import Store

if TYPE_CHECKING:
    from somewhere_else import Missing  # type: ignore[import-not-found]


def call_of(fn: Callable[..., Any], **arguments: Any) -> CallShape:
    """The call of a function between two topics, unless `arguments` say otherwise."""
    return Processor(fn, name="p", **{"inputs": "orders", "outputs": "checked", **arguments}).call


def plain(order: Any) -> Any: ...


def with_step(order: Any, step: Any) -> Any: ...


def with_all(order: Any, totals: Any, *, factor: int, old: Any, log: Any, step: Any, spare: int = 3) -> Any: ...


def with_rest(order: Any, **rest: Any) -> Any: ...


def with_star(*orders: Any) -> Any: ...


def joined(left: Any, right: Any) -> Any: ...


def either(left: Any = None, right: Any = None) -> Any: ...


def from_db(order: Any, db: Any, cache: Any = None) -> None: ...


async def awaited(order: Any) -> Any: ...


async def async_yields(order: Any) -> AsyncIterator[Any]:
    yield order


def yields(order: Any) -> Iterator[Any]:
    yield order


def gives_iterator(order: Any) -> Iterator[Any]:
    return iter([order])


def gives_awaitable(order: Any) -> Awaitable[Any]:
    return awaited(order)


def wrapped(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


class Scale:
    """Scales by a factor that it keeps."""

    def __call__(self, order: Any, factor: int) -> Any: ...

    def method(self, order: Any, step: Any) -> Any: ...

    @staticmethod
    def static(order: Any) -> Any: ...

    @classmethod
    def made(cls, order: Any) -> Any: ...

    async def later(self, order: Any) -> Any: ...


def test_a_single_input_is_the_first_argument() -> None:
    """Whatever the parameter is called."""
    call = call_of(plain)

    assert (call.positional, dict(call.context)) == ("input", {})
    assert (call.wants_step, call.rest, call.is_async, call.is_generator) == (False, False, False, False)


def test_other_parameters_are_looked_up_by_name() -> None:
    """In state, opts, tailers, appenders and system; a default is left alone where nothing has the name."""
    p = Processor(
        with_all,
        inputs="orders",
        state={"totals": Store()},
        opts={"factor": 2},
        tailers={"old": "archive"},
    )
    call = Graph("g", p, system={"log": object, "unused": object}).processors["with_all"].call

    assert dict(call.context) == {
        "totals": "state",
        "factor": "opts",
        "old": "tailers",
        "log": "system",
    }
    assert call.wants_step


def test_before_there_is_a_graph_unknown_names_are_taken_for_systems() -> None:
    """A processor is declared before its graph; the graph has the last word."""
    declared = Processor(from_db, inputs="orders")

    assert dict(declared.call.context) == {"db": "system"}
    with pytest.raises(GraphError, match="'db' is not defined"):
        Graph("g", declared)
    with_cache = Graph("g", declared, system={"db": object, "cache": object}).processors["from_db"]
    assert dict(with_cache.call.context) == {"db": "system", "cache": "system"}


def test_a_mapping_passes_inputs_by_name_even_if_there_is_one() -> None:
    """The form of the declaration decides, not the number of inputs."""
    one = call_of(lambda left: left, inputs={"left": "a"})
    both = call_of(joined, inputs={"right": "b", "left": "a"})

    assert (one.positional, both.positional) == (None, None)


def test_alts_and_filtered_joins_pass_what_came() -> None:
    """Their parameters have defaults, or `**rest` takes them."""
    bindings = {"left": "a", "right": "b"}

    assert not call_of(either, inputs=None, alts=bindings).context
    assert not call_of(either, inputs=bindings, filter=has_type("x")).context
    assert call_of(lambda **rest: rest, inputs=None, alts=bindings).rest
    with pytest.raises(GraphError, match="left=None, right=None"):
        call_of(joined, inputs=None, alts=bindings)


def test_rest_takes_what_is_declared_and_has_no_parameter() -> None:
    """Bindings and options, but not the graph's systems, which are not meant for one processor."""
    p = Processor(with_rest, inputs="orders", opts={"factor": 2}, appenders={"out": "archive"})
    call = Graph("g", p, system={"db": object}).processors["with_rest"].call

    assert dict(call.context) == {"factor": "opts", "out": "appenders"}


def test_a_binding_that_is_no_identifier_needs_rest() -> None:
    """Python can pass it, but no parameter can be called so."""
    assert call_of(lambda **rest: rest, inputs={"my-flight": "a"}).rest
    with pytest.raises(GraphError, match=r"\*\*rest"):
        call_of(plain, inputs={"my-flight": "a"})


@pytest.mark.parametrize(
    ("fn", "positional", "context"),
    [
        (with_star, "input", {}),
        (functools.partial(joined, 1), "input", {}),
        (functools.partial(joined, right=1), "input", {}),
        (Scale(), "input", {"factor": "system"}),
        (Scale().method, "input", {}),
        (Scale.static, "input", {}),
        (Scale.made, "input", {}),
        (wrapped(from_db), "input", {"db": "system"}),
        (len, "input", {}),
        (str.upper, "input", {}),
    ],
)
def test_any_callable_with_a_signature_will_do(
    fn: Callable[..., Any], positional: str, context: dict[str, str]
) -> None:
    """Functions, bound methods, partials, callable objects, wrappers and builtins."""
    call = call_of(fn, outputs=None if fn is len else "checked")

    assert (positional, context) == (call.positional, dict(call.context))


@pytest.mark.parametrize(
    ("fn", "is_async", "is_generator"),
    [
        (plain, False, False),
        (yields, False, True),
        (awaited, True, False),
        (async_yields, True, True),
        (gives_iterator, False, True),
        (gives_awaitable, True, False),
        (wrapped(yields), False, True),
        (wrapped(awaited), True, False),
        (functools.partial(yields), False, True),
        (functools.partial(awaited), True, False),
        (Scale().later, True, False),
    ],
)
def test_how_the_result_is_taken_is_known_before_the_call(
    fn: Callable[..., Any], is_async: bool, is_generator: bool
) -> None:
    """Generators and coroutines are seen through wrappers, partials and methods."""
    call = call_of(fn)

    assert (is_async, is_generator) == (call.is_async, call.is_generator)


def hidden(order: Missing) -> int:
    return 1


def test_a_parameter_that_cannot_be_evaluated_does_not_hide_the_result() -> None:
    """Only the return type is evaluated, because other types may be imported for type checkers only."""
    with pytest.raises(GraphError, match="returns int"):
        call_of(hidden, outputs=None)


def unknown_result(order: Any) -> Missing: ...


class Keys(TypedDict, total=False):
    all: Any
    big: Any


def good_dict(order: Any) -> dict[str, Any] | None: ...


def good_mapping(order: Any) -> Mapping[Literal["all", "big"], Message[int]]:
    return {"all": Message(1)}


def good_typed(order: Any) -> Keys:
    return {}


def good_outs(order: Any) -> Iterator[Out[Literal["all"]]]:
    yield Out("all", order)


Routed = NewType("Routed", dict[str, Any])


def good_newtype(order: Any) -> Routed:
    return Routed({})


def json_value(order: Any) -> dict[str, Any]:
    return {}


def batch_one(orders: list[Any]) -> list[int | ValueError | None]:
    return []


def batch_none(orders: list[Any]) -> None: ...


def batch_errors(orders: list[Any]) -> list[Exception | None]:
    return []


def batch_many(orders: list[Any]) -> list[dict[str, Any] | Exception | None]:
    return []


@pytest.mark.parametrize(
    ("fn", "arguments"),
    [
        (unknown_result, {"outputs": None}),
        (good_dict, {"outputs": {"all": "a", "big": "b"}}),
        (good_mapping, {"outputs": {"all": "a", "big": "b"}}),
        (good_typed, {"outputs": {"all": "a", "big": "b"}}),
        (good_outs, {"outputs": {"all": "a", "big": "b"}}),
        (json_value, {}),
        (good_newtype, {"outputs": {"all": "a"}}),
        (batch_one, {"batch": True}),
        (batch_none, {"batch": True, "outputs": None}),
        (batch_errors, {"batch": True, "outputs": None}),
        (batch_many, {"batch": True, "outputs": {"all": "a"}}),
    ],
)
def test_annotations_that_fit_are_accepted(fn: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Also a dict as the one output, which is an ordinary JSON value."""
    assert call_of(fn, **arguments).positional == "input"


def test_a_decorated_function_stays_what_it_was() -> None:
    """The decorator is sugar; the graph takes the function as a part."""

    @processor(inputs="orders", outputs="doubled", opts={"factor": 2})
    def double(order: int, factor: int) -> int:
        return order * factor

    assert double(3, 2) == 6
    assert Graph("g", double).processors["double"].kind == "pipe"
