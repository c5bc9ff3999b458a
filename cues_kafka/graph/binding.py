"""How a function is called, and what it may return: decided once, from its signature and its declaration (docs/api.md).

Calling. ``inputs="orders"`` passes the message as the first argument; ``inputs={...}`` and ``alts={...}`` pass messages
by name. Every other parameter is looked up by name in `state=`, `opts=`, `tailers=`, `appenders=` and the graph's
`system=`; ``step`` is the step; ``**rest`` takes what is declared and has no parameter of its own. What does not fit is
a `GraphError` here, so that a worker never finds out at its first message.

Returning. The declaration decides, never the value: ``outputs="checked"`` is a message, None or an iterator of them;
``outputs={...}`` is ``{binding: message}``, None or an iterator of `Out`. Annotations that contradict it are refused
here; without annotations it shows at the call, as an `OutputError`.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from cues_kafka.errors import GraphError
from cues_kafka.graph.kind import InputShape, OutputShape
from cues_kafka.graph.message import Message, Out
from cues_kafka.graph.names import hint, quoted

ContextSource: TypeAlias = Literal["state", "opts", "tailers", "appenders", "system"]

STEP = "step"
"""The parameter that gets the step; nothing else may be called so."""

_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_FIRST = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ITERATORS = (abc.Iterator, abc.Generator, abc.AsyncIterator, abc.AsyncGenerator)
_ASYNC_ITERATORS = (abc.AsyncIterator, abc.AsyncGenerator)
_AWAITABLES = (abc.Awaitable, abc.Coroutine)


@dataclass(frozen=True, slots=True)
class CallShape:
    """
    How to call one function.

    Attributes:
        positional: the input binding that is passed as the first argument; None: all are passed by name.
        named: input bindings that are passed by name, in order of declaration; only those that have a message.
        context: parameter -> (where it is declared, its name there); all are passed by name.
        wants_step: whether ``step=`` is passed.
        rest: whether there is a ``**rest`` parameter.
        optional: parameters with a default.
        is_async: whether the result is awaited, or iterated with ``async for``.
        is_generator: whether the result is iterated: a generator function, or one whose annotation says iterator.
    """

    positional: str | None
    named: tuple[str, ...]
    context: Mapping[str, tuple[ContextSource, str]]
    wants_step: bool
    rest: bool
    optional: frozenset[str]
    is_async: bool
    is_generator: bool


@dataclass(frozen=True, slots=True)
class Declared:
    """
    What `bind` needs to know of a declaration.

    Attributes:
        label: how messages name the processor, such as ``Processor 'check'``.
        shape: shape of the inputs.
        by_name: whether inputs are passed by name.
        inputs: the input bindings, in order.
        partial: whether a call may miss bindings: alts, or a join with a filter.
        output_shape: shape of the outputs.
        outputs: the output bindings, in order.
        places: for each kind of context what is declared; ``system`` is empty as long as no graph is known.
        batch: whether the function gets lists.
        in_graph: whether ``system`` is known, so that a name found nowhere is an error.
    """

    label: str
    shape: InputShape
    by_name: bool
    inputs: tuple[str, ...]
    partial: bool
    output_shape: OutputShape
    outputs: tuple[str, ...]
    places: Mapping[ContextSource, tuple[str, ...]]
    batch: bool
    in_graph: bool


def bind(fn: Callable[..., Any], declared: Declared) -> CallShape:
    """
    Decide how `fn` is called, and check that it can be.

    Raises:
        GraphError: a name in two places, found nowhere, not passable, or an annotation that contradicts the outputs.
    """
    parameters = _parameters(fn, declared)
    _check_names_once(declared)
    positional = None
    if not declared.by_name:
        _check_first(parameters, declared)
        positional = declared.inputs[0]
        if parameters[0].kind in _FIRST:
            parameters = parameters[1:]
    by_name = {p.name: p for p in parameters if p.kind in _KEYWORD}
    rest = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    optional = frozenset(name for name, p in by_name.items() if p.default is not inspect.Parameter.empty)
    named = declared.inputs if declared.by_name else ()
    _check_passable(parameters, declared)
    _check_taken(by_name, rest, declared)
    _check_may_miss(by_name, named, optional, declared)
    context = _context(by_name, rest, named, optional, declared)
    traits = Traits.of(fn)
    check_returns(traits, declared)
    return CallShape(
        positional=positional,
        named=named,
        context=types.MappingProxyType(context),
        wants_step=STEP in by_name,
        rest=rest,
        optional=optional,
        is_async=traits.is_async,
        is_generator=traits.is_generator,
    )


# --- Calling


def _parameters(fn: Callable[..., Any], declared: Declared) -> list[inspect.Parameter]:
    if not callable(fn):
        raise GraphError(f"{declared.label}: {fn!r} cannot be called. Give the function itself as the first argument.")
    if isinstance(fn, type) and "__call__" in vars(fn):
        raise GraphError(
            f"{declared.label}: {fn.__name__} is a class whose instances are called. "
            f"Give an instance: {fn.__name__}(...)."
        )
    try:
        return list(inspect.signature(fn).parameters.values())
    except (ValueError, TypeError) as error:
        raise GraphError(
            f"{declared.label}: {fn!r} does not tell its parameters. Wrap it in a function of your own: "
            "def convert(message): return ...(message)."
        ) from error


def _own_place(declared: Declared) -> tuple[str, tuple[str, ...]]:
    return "alts" if declared.shape == "alts" else "inputs", declared.inputs if declared.by_name else ()


def _check_names_once(declared: Declared) -> None:
    places: dict[str, str] = {}
    for place, names in [_own_place(declared), *declared.places.items()]:
        for name in names:
            if name == STEP and place != "system":
                raise GraphError(f"{declared.label}: {place}= declares 'step', which is the step itself. Rename it.")
            if name in places:
                raise GraphError(
                    f"{declared.label}: {name!r} is in {places[name]}= and in {place}=. Rename one of the two: "
                    "a parameter is looked up by its name in all of them."
                )
            places[name] = place


def _check_first(parameters: list[inspect.Parameter], declared: Declared) -> None:
    first = parameters[0] if parameters else None
    if first is None or first.kind not in (*_FIRST, inspect.Parameter.VAR_POSITIONAL):
        raise GraphError(
            f"{declared.label}: the function has no first parameter for the message. Write def fn(message, ...), "
            'or pass it by name with inputs={"name": "topic"}.'
        )
    known = {STEP: "the step", **{name: f"in {place}=" for place, names in declared.places.items() for name in names}}
    if first.kind in _FIRST and first.name in known:
        raise GraphError(
            f"{declared.label}: the first parameter gets the message, but {first.name!r} is {known[first.name]}. "
            f"Write def fn(message, {first.name}, ...)."
        )


def _check_passable(parameters: list[inspect.Parameter], declared: Declared) -> None:
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and parameter.default is inspect.Parameter.empty:
            raise GraphError(
                f"{declared.label}: parameter {parameter.name!r} is positional-only, but it is passed by name. "
                "Remove the '/' from the function's signature."
            )


def _check_taken(by_name: Mapping[str, inspect.Parameter], rest: bool, declared: Declared) -> None:
    if rest:
        return
    for place, names in [_own_place(declared), *declared.places.items()]:
        if place == "system":
            continue  # many processors share it; nobody has to take all of it
        for name in names:
            if name not in by_name:
                raise GraphError(
                    f"{declared.label}: {place}= declares {name!r}, but no parameter is called so"
                    f"{hint(name, by_name)}. Parameters: {quoted(by_name)}. Add the parameter, or **rest, or drop it "
                    f"from {place}=."
                )


def _check_may_miss(
    by_name: Mapping[str, inspect.Parameter],
    named: tuple[str, ...],
    optional: frozenset[str],
    declared: Declared,
) -> None:
    if not declared.partial:
        return
    strict = [name for name in named if name in by_name and name not in optional]
    if strict:
        why = "alts passes one of its bindings" if declared.shape == "alts" else "a filter may leave bindings out"
        fix = ", ".join(f"{name}=None" for name in strict)
        raise GraphError(f"{declared.label}: {why}, so their parameters need a default. Write {fix}, or use **rest.")


def _context(
    by_name: Mapping[str, inspect.Parameter],
    rest: bool,
    named: tuple[str, ...],
    optional: frozenset[str],
    declared: Declared,
) -> dict[str, tuple[ContextSource, str]]:
    where: dict[str, ContextSource] = {name: place for place, names in declared.places.items() for name in names}
    context: dict[str, tuple[ContextSource, str]] = {}
    for name in by_name:
        if name == STEP or name in named:
            continue
        if name in where:
            context[name] = (where[name], name)
        elif name not in optional and not declared.in_graph:
            context[name] = ("system", name)  # the graph has the last word
        elif name not in optional:
            raise GraphError(_found_nowhere(name, named, where, declared))
    if rest:
        left = (name for name, place in where.items() if place != "system" and name not in by_name)
        context.update((name, (where[name], name)) for name in left)
    return context


def _found_nowhere(name: str, named: tuple[str, ...], where: Mapping[str, str], declared: Declared) -> str:
    known = (*named, *where, STEP)
    lists = "; ".join(
        f"{place}: {quoted(names)}" for place, names in (("inputs", named), *declared.places.items()) if names
    )
    return (
        f"{declared.label}: parameter {name!r} is not defined{hint(name, known)}. "
        f"Available: {lists + '; ' if lists else ''}'step'. Pass it in opts= or the graph's "
        "system=, or give it a default."
    )


# --- Returning


class _Unknown:
    """Stands for an annotation that is missing or cannot be evaluated here."""


@dataclass(frozen=True, slots=True)
class Traits:
    """
    What is known of a function's result before it is called.

    Attributes:
        is_async: whether it is awaited, or iterated with ``async for``.
        is_generator: whether it is iterated.
        returns: the annotated type of the result, of one item if it is iterated; `_Unknown` where nothing is known.
    """

    is_async: bool
    is_generator: bool
    returns: Any

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> Traits:
        """Look at the function below partials, wrappers, bound methods and ``__call__``."""
        plain = _plain(fn)
        returns = _return_annotation(plain)
        origin = typing.get_origin(returns) or returns
        is_async = inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)
        if _is(origin, _AWAITABLES):
            is_async = True
            returns = _argument(returns, -1)
            origin = typing.get_origin(returns) or returns
        is_generator = (
            inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain) or _is(origin, _ITERATORS)
        )
        if is_generator:
            is_async = is_async or _is(origin, _ASYNC_ITERATORS)
            returns = _argument(returns, 0) if _is(origin, (*_ITERATORS, abc.Iterable, abc.AsyncIterable)) else _Unknown
        return cls(is_async, is_generator, returns)


def _plain(fn: Callable[..., Any]) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not (inspect.isroutine(fn) or isinstance(fn, type)):
        fn = type(fn).__call__
    return inspect.unwrap(getattr(fn, "__func__", fn))


def _return_annotation(plain: Any) -> Any:
    if isinstance(plain, type):
        return plain
    annotations = getattr(plain, "__annotations__", {})
    if "return" not in annotations:
        return _Unknown
    # Only this one is evaluated: a parameter whose type is imported for type checkers only must not hide the result.
    holder = types.SimpleNamespace(__annotations__={"return": annotations["return"]})
    try:
        return typing.get_type_hints(holder, getattr(plain, "__globals__", {}), include_extras=False)["return"]
    except Exception:  # noqa: BLE001  # an annotation may be any expression; then the call itself is what shows it
        return _Unknown


def _is(origin: Any, classes: tuple[Any, ...]) -> bool:
    return any(origin is cls for cls in classes)


def _argument(annotation: Any, index: int) -> Any:
    arguments = typing.get_args(annotation)
    return arguments[index] if arguments else _Unknown


def _members(annotation: Any) -> Iterator[Any]:
    """The types that a value may have, None left out; nothing at all where that is not known."""
    origin = typing.get_origin(annotation)
    if origin is typing.Union or isinstance(annotation, types.UnionType):
        for member in typing.get_args(annotation):
            yield from _members(member)
    elif (plain := getattr(annotation, "__supertype__", None) or getattr(annotation, "__value__", None)) is not None:
        yield from _members(plain)  # a NewType, or an alias of Python 3.12
    elif origin is typing.Annotated:
        yield from _members(typing.get_args(annotation)[0])
    elif annotation not in (_Unknown, Any, object, None, type(None), typing.NoReturn, typing.Never) and not isinstance(
        annotation, typing.TypeVar
    ):
        yield annotation


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def check_returns(traits: Traits, declared: Declared) -> None:
    """
    Check what the annotations say of the result against the declared outputs.

    Raises:
        GraphError: they contradict each other.
    """
    if declared.batch:
        if traits.is_generator:
            raise GraphError(
                f"{declared.label}: batch=True gets lists and returns as many results, but the function yields. "
                "Return a list, or drop batch=True."
            )
        results = _batch_results(traits.returns, declared)
    else:
        results = traits.returns
    if declared.output_shape == "none":
        _check_nothing(traits, results, declared)
    elif declared.output_shape == "one":
        _check_one(results, declared)
    else:
        _check_many(traits, results, declared)


def shows_bindings(fn: Callable[..., Any], *, batch: bool) -> bool:
    """Whether the annotation of a function's result names the output bindings, so that they could be checked."""
    traits = Traits.of(fn)
    results = [_argument(member, 0) for member in _members(traits.returns)] if batch else [traits.returns]
    members = [member for result in results for member in _members(result) if not _is_exception(member)]
    named = [_literals(_argument(m, 0)) if traits.is_generator else tuple(_mapping_keys(m)) for m in members]
    return bool(named) and all(named)


def _batch_results(returns: Any, declared: Declared) -> Any:
    """The type of one result of a batch."""
    for member in _members(returns):
        origin = typing.get_origin(member) or member
        if not (isinstance(origin, type) and issubclass(origin, abc.Sequence)) or issubclass(origin, str | bytes):
            raise GraphError(
                f"{declared.label}: batch=True returns as many results as it got messages, but the function is "
                f"annotated -> {_shown(returns)}. Return a list of results, or drop batch=True."
            )
        arguments = typing.get_args(member)
        return typing.Union[arguments] if origin is tuple and arguments else _argument(member, 0)  # noqa: UP007
    return _Unknown


def _is_exception(member: Any) -> bool:
    return isinstance(member, type) and issubclass(member, BaseException)


def _check_nothing(traits: Traits, results: Any, declared: Declared) -> None:
    if traits.is_generator:
        raise GraphError(
            f'{declared.label}: the function yields, but there are no outputs. Declare outputs="topic" or '
            'outputs={"binding": "topic"}, or do not yield.'
        )
    for member in _members(results):
        if not (declared.batch and _is_exception(member)):
            raise GraphError(
                f"{declared.label}: the function returns {_shown(member)}, but there are no outputs. "
                'Declare outputs="topic", or annotate -> None and return nothing.'
            )


def _check_one(results: Any, declared: Declared) -> None:
    for member in _members(results):
        origin = typing.get_origin(member) or member
        if origin is Out:
            raise GraphError(
                f'{declared.label}: Out(...) names a binding, but outputs="topic" has none. Give the message itself, '
                'or declare outputs={"binding": "topic"}.'
            )
        key, value = _mapping_types(member)
        if typing.get_origin(key) is Literal or (typing.get_origin(value) or value) is Message:
            raise GraphError(
                f"{declared.label}: the function returns messages by binding ({_shown(member)}), but outputs= is one "
                'topic. Return the message itself, or declare outputs={"binding": "topic"}.'
            )


def _check_many(traits: Traits, results: Any, declared: Declared) -> None:
    for member in _members(results):
        if declared.batch and _is_exception(member):
            continue
        origin = typing.get_origin(member) or member
        if traits.is_generator:
            if origin is not Out:
                raise GraphError(
                    f"{declared.label}: outputs= has bindings ({quoted(declared.outputs)}), but the function yields "
                    f"{_shown(member)}. Yield Out(binding, message)."
                )
            _check_bindings(_literals(_argument(member, 0)), declared)
        elif not (isinstance(origin, type) and issubclass(origin, abc.Mapping)):
            raise GraphError(
                f"{declared.label}: outputs= has bindings ({quoted(declared.outputs)}), but the function returns "
                f"{_shown(member)}. Return {{binding: message}}, or yield Out(binding, message)."
            )
        else:
            _check_bindings(_mapping_keys(member), declared)


def _mapping_types(member: Any) -> tuple[Any, Any]:
    origin = typing.get_origin(member)
    arguments = typing.get_args(member)
    if isinstance(origin, type) and issubclass(origin, abc.Mapping) and len(arguments) == 2:
        return arguments[0], arguments[1]
    return _Unknown, _Unknown


def _mapping_keys(member: Any) -> Iterable[str]:
    if typing.is_typeddict(member):
        return tuple(member.__annotations__)
    return _literals(_mapping_types(member)[0])


def _literals(annotation: Any) -> tuple[str, ...]:
    return typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()


def _check_bindings(names: Iterable[str], declared: Declared) -> None:
    for name in names:
        if name not in declared.outputs:
            raise GraphError(
                f"{declared.label}: the function gives output {name!r}, which outputs= does not declare"
                f"{hint(str(name), declared.outputs)}. Declared: {quoted(declared.outputs)}. "
                "Add it, or correct the name."
            )
