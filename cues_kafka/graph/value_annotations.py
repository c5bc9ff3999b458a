"""What the annotations of a function say of the values that it gets and returns, beside the topics' classes."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections import abc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from cues_kafka.errors import GraphError
from cues_kafka.graph.binding import Traits, as_text, possible_types, unwrapped
from cues_kafka.graph.message import Message, Out

if TYPE_CHECKING:
    from cues_kafka.graph.processor import Processor
    from cues_kafka.graph.topic import Topic

_SCALARS: Final = (str, bytes, int, float, bool)


def check_values(processor: Processor, topic_of: Callable[[str], Topic]) -> None:
    """
    Compare annotations with the classes that codecs are declared with.

    Only what surely contradicts is refused: a class of records, or a scalar, that no value of the topic is.

    Raises:
        GraphError: a parameter gets, or the function returns, values of another class.
    """
    if processor.columnar:
        return
    plain = unwrapped(processor.fn)
    for binding, name, annotation in _annotated(processor, plain):
        topic = dict(processor.inputs)[binding]
        record = topic_of(topic).value.record
        if record is not None and _differs(_members(annotation, processor), record, wider=False):
            raise GraphError(
                f"{processor.label}: parameter {name!r} is annotated {as_text(annotation)}, but the values of "
                f"{topic!r} are {record.__name__}. Annotate it {record.__name__}, or declare another codec."
            )
    returns = Traits.of(processor.fn).returns
    for binding, annotation in _results(returns, processor):
        topic = dict(processor.outputs)[binding]
        record = topic_of(topic).value.record
        if record is not None and _differs(_members(annotation, processor), record, wider=True):
            raise GraphError(
                f"{processor.label}: the function gives {as_text(annotation)}, but the values of {topic!r} are "
                f"{record.__name__}. Return {record.__name__}, or declare another codec."
            )


def _annotated(processor: Processor, plain: Any) -> Iterator[tuple[str, str, Any]]:
    """The inputs whose parameters have an annotation: binding, parameter, annotation."""
    try:
        parameters = list(inspect.signature(processor.fn).parameters.values())
        hints = typing.get_type_hints(plain)
    except Exception:  # noqa: BLE001  an annotation may be any expression
        return
    by_name = {one.name: one for one in parameters}
    for binding, _ in processor.inputs:
        found = parameters[0] if processor.call.positional == binding and parameters else by_name.get(binding)
        if found is not None and found.name in hints and found.kind is not inspect.Parameter.VAR_KEYWORD:
            yield binding, found.name, hints[found.name]


def _results(returns: Any, processor: Processor) -> Iterator[tuple[str, Any]]:
    """The outputs whose values have an annotation: binding, annotation."""
    if processor.output_shape == "one":
        yield processor.outputs[0][0], returns
        return
    declared = dict(processor.outputs)
    for member in possible_types(returns):
        if typing.is_typeddict(member):
            for name, annotation in member.__annotations__.items():
                if name in declared and not isinstance(annotation, str | typing.ForwardRef):
                    yield name, annotation


def _members(annotation: Any, processor: Processor) -> list[Any]:
    """The types of one value; those in a list of a batch, and in a `Message`."""
    found: list[Any] = []
    for member in possible_types(annotation):
        origin = typing.get_origin(member) or member
        arguments = typing.get_args(member)
        if processor.batch and isinstance(origin, type) and issubclass(origin, abc.Sequence) and arguments:
            found.extend(inner for one in arguments for inner in _inner(one))
        else:
            found.extend(_inner(member))
    return found


def _inner(annotation: Any) -> Iterator[Any]:
    for member in possible_types(annotation):
        origin = typing.get_origin(member) or member
        if origin is Message:
            arguments = typing.get_args(member)
            yield from _inner(arguments[0]) if arguments else [Any]
        else:
            yield member


def _differs(members: list[Any], record: type[Any], *, wider: bool) -> bool:
    """Whether no value of the class is of one of these types; `wider`: a base of it may be what is meant."""
    return bool(members) and all(_is_other(member, record, wider=wider) for member in members)


def _is_other(member: Any, record: type[Any], *, wider: bool) -> bool:
    if not isinstance(member, type) or not isinstance(record, type) or not (_is_record(member) or member in _SCALARS):
        return False
    if not (_is_record(record) or record in _SCALARS) or issubclass(member, Out | BaseException):
        return False
    if {member, record} <= {int, float, bool}:
        return False
    return not (issubclass(record, member) or (wider and issubclass(member, record)))


def _is_record(cls: Any) -> bool:
    """A class whose values are records: of a dataclass, msgspec, pydantic or Protobuf."""
    marks = ("__struct_fields__", "__pydantic_fields__", "DESCRIPTOR")
    return dataclasses.is_dataclass(cls) or any(hasattr(cls, mark) for mark in marks)
