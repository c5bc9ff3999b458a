"""How a function is called, and what it may return, decided once from its signature and declaration (docs/api.md).

Calling. ``inputs="orders"`` passes the message as the first argument; ``inputs={...}`` and ``alts={...}`` pass messages
by name. Every other parameter is looked up by name in `state=`, `effects=`, `tables=`, `opts=`, `tailers=`,
`appenders=` and the graph's `system=`. ``step`` is the step, and ``**rest`` takes declared names without a parameter. A
function that cannot be called so is refused here with a `GraphError`, before a worker gets a message.

Returning. The declaration decides, never the value: ``outputs="checked"`` is a message, None or an iterator of them;
``outputs={...}`` is ``{binding: message}``, None or an iterator of `Out`. Annotations that contradict it are refused
here. Without annotations, a wrong result is an `OutputError` at the call.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections import abc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from cues_kafka.errors import GraphError
from cues_kafka.graph.batch_form import check_result
from cues_kafka.graph.message import Message, Out
from cues_kafka.graph.names import hint, quoted
from cues_kafka.graph.processor_fields import ProcessorFields
from cues_kafka.graph.timers import Timers

ContextSource: TypeAlias = Literal["state", "effects", "tables", "opts", "tailers", "appenders", "system"]

STEP = "step"
"""The parameter that gets the step; no other declaration may use the name."""

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
        context: the declared names that are passed by name, and the place that declares each.
        wants_step: whether ``step=`` is passed.
        rest: whether there is a ``**rest`` parameter.
        is_async: whether the result is awaited, or iterated with ``async for``.
        is_generator: whether the result is iterated: a generator function, or one whose annotation says iterator.
    """

    positional: str | None
    context: Mapping[str, ContextSource]
    wants_step: bool
    rest: bool
    is_async: bool
    is_generator: bool


def bind(processor: ProcessorFields, system: Iterable[str] | None = None) -> CallShape:
    """
    Decide how a processor's function is called, and check that it can be.

    Args:
        processor: the processor; all but its `call` is set.
        system: names in the graph's `system=`; None: no graph is known yet, and unknown names are taken to be there.

    Raises:
        GraphError: a name in two places, defined nowhere, not passable, or an annotation that contradicts the outputs.
    """
    bindings = tuple(binding for binding, _ in processor.inputs)
    named = bindings if processor.by_name else ()
    places = _places(processor, system)
    where = _where({processor.inputs_word: named, **places}, processor.label)
    parameters = _parameters(processor, where)
    by_name = {p.name: p for p in parameters if p.kind in _KEYWORD}
    rest = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    required = {name for name, p in by_name.items() if p.default is inspect.Parameter.empty}
    if not rest:
        others = asked_for(processor.timers[1].fn)[0] if processor.timers else frozenset()
        _check_taken({*by_name, *others}, where, processor.label)
    if processor.may_miss_bindings:
        _check_defaults(processor, [name for name in named if name in required])
    context = dict(_declared_context(places, by_name, rest=rest))
    for name in [name for name in by_name if name in required and name not in {STEP, *named, *context}]:
        if system is not None:
            raise GraphError(_not_defined(name, {"inputs": named, **places}, processor.label))
        context[name] = "system"
    traits = Traits.of(processor.fn)
    _check_returns(traits, processor)
    return CallShape(
        positional=None if processor.by_name else bindings[0],
        context=types.MappingProxyType(context),
        wants_step=STEP in by_name,
        rest=rest,
        is_async=traits.is_async,
        is_generator=traits.is_generator,
    )


# --- Calling


def _parameters(processor: ProcessorFields, where: Mapping[str, str]) -> list[inspect.Parameter]:
    """The function's parameters that are passed by name: all but the first where that gets the message."""
    parameters = _signature(processor.fn, processor.label)
    if not processor.by_name:
        _check_first(parameters, where, processor.label)
        if parameters[0].kind in _FIRST:
            parameters = parameters[1:]
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and parameter.default is inspect.Parameter.empty:
            raise GraphError(
                f"{processor.label}: parameter {parameter.name!r} is positional-only, but it is passed by name. "
                "Remove the '/' from the function's signature."
            )
    return parameters


def _signature(fn: Callable[..., Any], label: str) -> list[inspect.Parameter]:
    if not callable(fn):
        raise GraphError(f"{label}: {fn!r} cannot be called. Give the function itself as the first argument.")
    if isinstance(fn, type) and "__call__" in vars(fn):
        raise GraphError(
            f"{label}: {fn.__name__} is a class whose instances are called. Give an instance: {fn.__name__}(...)."
        )
    try:
        return list(inspect.signature(fn).parameters.values())
    except (ValueError, TypeError) as error:
        raise GraphError(
            f"{label}: {fn!r} does not tell its parameters. Wrap it in a function of your own: "
            "def convert(message): return ...(message)."
        ) from error


def _places(processor: ProcessorFields, system: Iterable[str] | None) -> dict[ContextSource, tuple[str, ...]]:
    return {
        "state": tuple(name for name, store in processor.state.items() if not isinstance(store, Timers)),
        "effects": tuple(processor.targets),
        "tables": tuple(processor.tables),
        "opts": tuple(processor.opts),
        "tailers": tuple(processor.tailers),
        "appenders": tuple(processor.appenders),
        "system": tuple(system or ()),
    }


def _where(by_place: Mapping[Any, tuple[str, ...]], label: str) -> dict[str, str]:
    """The place that declares each name."""
    where: dict[str, str] = {}
    for place, names in by_place.items():
        for name in names:
            if name == STEP and place != "system":
                raise GraphError(f"{label}: {place}= declares 'step', which is the step itself. Rename it.")
            if name in where:
                raise GraphError(
                    f"{label}: {name!r} is in {where[name]}= and in {place}=. Rename one of the two: "
                    "a parameter is looked up by its name in all of them."
                )
            where[name] = place
    return where


def _check_first(parameters: list[inspect.Parameter], where: Mapping[str, str], label: str) -> None:
    first = parameters[0] if parameters else None
    if first is None or first.kind not in (*_FIRST, inspect.Parameter.VAR_POSITIONAL):
        raise GraphError(
            f"{label}: the function has no first parameter for the message. Write def fn(message, ...), "
            'or pass it by name with inputs={"name": "topic"}.'
        )
    if first.kind in _FIRST and (first.name == STEP or first.name in where):
        taken = "the step" if first.name == STEP else f"in {where[first.name]}="
        raise GraphError(
            f"{label}: the first parameter gets the message, but {first.name!r} is {taken}. "
            f"Write def fn(message, {first.name}, ...)."
        )


def asked_for(fn: Callable[..., Any]) -> tuple[frozenset[str], bool]:
    """The names of a function's parameters, and whether it takes all others, too (``**rest``)."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (ValueError, TypeError):
        return frozenset(), False
    return frozenset(one.name for one in parameters), any(one.kind is one.VAR_KEYWORD for one in parameters)


def _check_taken(by_name: Collection[str], where: Mapping[str, str], label: str) -> None:
    for name, place in where.items():
        if name not in by_name and place != "system":  # all processors share the system; each takes what it needs
            raise GraphError(
                f"{label}: {place}= declares {name!r}, but the function does not have this "
                f"parameter{hint(name, by_name)}. Parameters: {quoted(by_name)}. Add the parameter, or **rest, or drop "
                f"it from {place}=."
            )


def _check_defaults(processor: ProcessorFields, strict: list[str]) -> None:
    if strict:
        alts = processor.input_shape == "alts"
        why = "alts passes one of its bindings" if alts else "a filter may leave bindings out"
        fix = ", ".join(f"{name}=None" for name in strict)
        raise GraphError(f"{processor.label}: {why}, so their parameters need a default. Write {fix}, or use **rest.")


def _declared_context(
    places: Mapping[ContextSource, tuple[str, ...]], by_name: Collection[str], *, rest: bool
) -> Iterator[tuple[str, ContextSource]]:
    """The declared names that the function takes, each with its place. Only what it names is taken of the system."""
    for place, names in places.items():
        for name in names:
            if name != STEP and (name in by_name or (rest and place != "system")):
                yield name, place


def _not_defined(name: str, by_place: Mapping[Any, tuple[str, ...]], label: str) -> str:
    known = (*(known for names in by_place.values() for known in names), STEP)
    lists = "".join(f"{place}: {quoted(names)}; " for place, names in by_place.items() if names)
    return (
        f"{label}: parameter {name!r} is not defined{hint(name, known)}. Available: {lists}'step'. "
        "Pass it in opts= or the graph's system=, or give it a default."
    )


# --- Returning


class _Unknown:
    """Marks an annotation that is missing or cannot be evaluated here."""


@dataclass(frozen=True, slots=True)
class Traits:
    """
    What is known of a function's result before it is called.

    Attributes:
        is_async: whether it is awaited, or iterated with ``async for``.
        is_generator: whether it is iterated.
        returns: the annotated type of the result, or of one item if it is iterated; `_Unknown` if not known.
    """

    is_async: bool
    is_generator: bool
    returns: Any

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> Traits:
        """Read them from a function and its annotations."""
        plain = unwrapped(fn)
        returns = _return_annotation(plain)
        origin = typing.get_origin(returns) or returns
        is_async = inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)
        if origin in _AWAITABLES:
            is_async = True
            returns = _type_argument(returns, -1)
            origin = typing.get_origin(returns) or returns
        is_generator = inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain) or origin in _ITERATORS
        if is_generator:
            is_async = is_async or origin in _ASYNC_ITERATORS
            returns = (
                _type_argument(returns, 0) if origin in (*_ITERATORS, abc.Iterable, abc.AsyncIterable) else _Unknown
            )
        return cls(is_async, is_generator, returns)


def unwrapped(fn: Callable[..., Any]) -> Any:
    """The function below partials, wrappers, bound methods and ``__call__``."""
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
    # The other annotations are not evaluated: the type of a parameter may be imported for type checkers only.
    holder = types.SimpleNamespace(__annotations__={"return": annotations["return"]})
    try:
        return typing.get_type_hints(holder, getattr(plain, "__globals__", {}), include_extras=False)["return"]
    except Exception:  # noqa: BLE001  # an annotation may be any expression; then the call shows the type
        return _Unknown


def _type_argument(annotation: Any, index: int) -> Any:
    arguments = typing.get_args(annotation)
    return arguments[index] if arguments else _Unknown


def possible_types(annotation: Any) -> Iterator[Any]:
    """The types that a value may have, without None; empty if they are not known."""
    origin = typing.get_origin(annotation)
    if origin is typing.Union or isinstance(annotation, types.UnionType):
        for member in typing.get_args(annotation):
            yield from possible_types(member)
    elif (plain := getattr(annotation, "__supertype__", None) or getattr(annotation, "__value__", None)) is not None:
        yield from possible_types(plain)  # a NewType, or an alias of Python 3.12
    elif origin is typing.Annotated:
        yield from possible_types(typing.get_args(annotation)[0])
    elif annotation not in (_Unknown, Any, object, None, type(None), typing.NoReturn, typing.Never) and not isinstance(
        annotation, typing.TypeVar
    ):
        yield annotation


def as_text(annotation: Any) -> str:
    """An annotation as it is written."""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _check_returns(traits: Traits, processor: ProcessorFields) -> None:
    """Check what the annotations say of the result against the declared outputs."""
    results = traits.returns
    if processor.batch:
        if traits.is_generator:
            raise GraphError(
                f"{processor.label}: batch={processor.batch!r} is one call for all messages, but the function yields. "
                f"Return {'columns' if processor.columnar else 'a list'}, or drop batch=."
            )
        if processor.columnar:
            check_result([*possible_types(results)], processor.label)
        else:
            results = _batch_results(results, processor.label)
    members = [member for member in possible_types(results) if not (processor.batch and _is_exception(member))]
    match processor.output_shape:
        case "none":
            _check_nothing(traits, members, processor.label)
        case "one":
            _check_one(members, processor.label)
        case "many":
            _check_many(traits, members, processor)


def shows_bindings(fn: Callable[..., Any], *, batch: bool) -> bool:
    """Whether the annotation of a function's result names the output bindings, so that they could be checked."""
    traits = Traits.of(fn)
    results = [_type_argument(member, 0) for member in possible_types(traits.returns)] if batch else [traits.returns]
    members = [member for result in results for member in possible_types(result) if not _is_exception(member)]
    return bool(members) and all(_bindings_of(member, traits) for member in members)


def _batch_results(returns: Any, label: str) -> Any:
    """The type of one result of a batch."""
    for member in possible_types(returns):
        origin = typing.get_origin(member) or member
        if not _is_subclass(origin, abc.Sequence) or issubclass(origin, str | bytes):
            raise GraphError(
                f"{label}: batch=True returns as many results as it got messages, but the function is "
                f"annotated -> {as_text(returns)}. Return a list of results, or drop batch=True."
            )
        arguments = typing.get_args(member)
        return typing.Union[arguments] if origin is tuple and arguments else _type_argument(member, 0)  # noqa: UP007
    return _Unknown


def _is_subclass(member: Any, cls: type[Any]) -> bool:
    return isinstance(member, type) and issubclass(member, cls)


def _is_exception(member: Any) -> bool:
    return _is_subclass(member, BaseException)


def _check_nothing(traits: Traits, members: list[Any], label: str) -> None:
    if traits.is_generator:
        raise GraphError(
            f'{label}: the function yields, but there are no outputs. Declare outputs="topic" or '
            'outputs={"binding": "topic"}, or do not yield.'
        )
    if members:
        raise GraphError(
            f"{label}: the function returns {as_text(members[0])}, but there are no outputs. "
            'Declare outputs="topic", or annotate -> None and return nothing.'
        )


def _check_one(members: list[Any], label: str) -> None:
    for member in members:
        if (typing.get_origin(member) or member) is Out:
            raise GraphError(
                f'{label}: Out(...) names a binding, but outputs="topic" has none. Give the message itself, '
                'or declare outputs={"binding": "topic"}.'
            )
        key, value = _mapping_types(member)
        if typing.get_origin(key) is Literal or (typing.get_origin(value) or value) is Message:
            raise GraphError(
                f"{label}: the function returns messages by binding ({as_text(member)}), but outputs= is one "
                'topic. Return the message itself, or declare outputs={"binding": "topic"}.'
            )


def _check_many(traits: Traits, members: list[Any], processor: ProcessorFields) -> None:
    declared = [binding for binding, _ in processor.outputs]
    gives, fix = "returns", "Return {binding: message}, or yield Out(binding, message)."
    if traits.is_generator:
        gives, fix = "yields", "Yield Out(binding, message)."
    for member in members:
        origin = typing.get_origin(member) or member
        if not (origin is Out if traits.is_generator else _is_subclass(origin, abc.Mapping)):
            raise GraphError(
                f"{processor.label}: outputs= has bindings ({quoted(declared)}), but the function {gives} "
                f"{as_text(member)}. {fix}"
            )
        for name in _bindings_of(member, traits):
            if name not in declared:
                raise GraphError(
                    f"{processor.label}: the function gives output {name!r}, which outputs= does not declare"
                    f"{hint(str(name), declared)}. Declared: {quoted(declared)}. Add it, or correct the name."
                )


def _mapping_types(member: Any) -> tuple[Any, Any]:
    arguments = typing.get_args(member)
    if _is_subclass(typing.get_origin(member), abc.Mapping) and len(arguments) == 2:
        return arguments[0], arguments[1]
    return _Unknown, _Unknown


def _bindings_of(member: Any, traits: Traits) -> tuple[str, ...]:
    """The output bindings that the annotation of one result names; empty where it names none."""
    if typing.is_typeddict(member) and not traits.is_generator:
        return tuple(member.__annotations__)
    names = _type_argument(member, 0) if traits.is_generator else _mapping_types(member)[0]
    return typing.get_args(names) if typing.get_origin(names) is Literal else ()
