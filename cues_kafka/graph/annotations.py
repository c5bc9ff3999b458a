"""What the annotations of a function say of the stores, handlers and tables that it is passed."""

from __future__ import annotations

import inspect
import types
import typing
from collections import abc
from typing import Any, Final

from cues_kafka.errors import GraphError
from cues_kafka.graph.binding import as_text, possible_types, unwrapped
from cues_kafka.graph.handler import Handler
from cues_kafka.graph.processor import Processor

_BASES: Final = {"state": ("State", abc.MutableMapping), "tables": ("TableView", abc.Mapping)}
"""How a parameter is annotated by the place of its declaration, and what the value is besides."""


def check_annotations(processor: Processor) -> None:
    """
    Check the annotations of parameters that get a store, a handler or a table.

    An annotation that cannot be evaluated here, such as one that is imported for type checkers only, is not checked.

    Raises:
        GraphError: a parameter gets what its annotation excludes.
    """
    plain = unwrapped(processor.fn)
    for name, parameter in inspect.signature(processor.fn).parameters.items():
        place = processor.call.context.get(name)
        if place not in _BASES or parameter.annotation is inspect.Parameter.empty:
            continue
        annotation = _evaluated(name, parameter.annotation, plain)
        members = [*possible_types(annotation)]
        declared = processor.state.get(name)
        if isinstance(declared, Handler):
            _check_handler(processor, name, declared, members)
        elif members and not any(_is_passed(member, place) for member in members):
            kind = _BASES[place][0]
            raise GraphError(
                f"{processor.label}: parameter {name!r} is annotated {as_text(annotation)}, but {place}= passes a "
                f"{kind}. Annotate it {kind}, or as a mapping, or leave the annotation out."
            )
        elif declared is not None:
            for member in members if len(members) == 1 else ():
                _check_value(processor, name, declared.value.record, member)


def _evaluated(name: str, annotation: Any, plain: Any) -> Any:
    holder = types.SimpleNamespace(__annotations__={name: annotation})
    try:
        return typing.get_type_hints(holder, getattr(plain, "__globals__", {}), include_extras=False)[name]
    except Exception:  # noqa: BLE001  # an annotation may be any expression
        return Any


def _is_passed(member: Any, place: str) -> bool:
    """Whether a store or a table is one of this type; a `dict` is what functions are tested with."""
    origin = typing.get_origin(member) or member
    if not isinstance(origin, type):
        return not callable(origin)  # no type, so nothing is known
    return origin is dict or getattr(origin, "passed_by", None) == place or _is_base(origin, _BASES[place][1])


def _is_base(origin: type[Any], cls: Any) -> bool:
    try:
        return issubclass(cls, origin)
    except TypeError:  # a protocol that is not checked at runtime
        return True


def _check_handler(processor: Processor, name: str, declared: Handler, members: list[Any]) -> None:
    made = declared.make
    if not isinstance(made, type):
        return
    origins = [typing.get_origin(member) or member for member in members]
    if origins and not any(not isinstance(one, type) or _is_base(one, made) for one in origins):
        raise GraphError(
            f"{processor.label}: parameter {name!r} is annotated {as_text(members[0])}, but state= passes a "
            f"{made.__name__}. Annotate it {made.__name__}."
        )


def _check_value(processor: Processor, name: str, record: type[Any] | None, member: Any) -> None:
    """``State[str]`` for a store of whole numbers is a mistake; a base class of the values is right."""
    arguments = typing.get_args(member)
    values = [*possible_types(arguments[0])] if len(arguments) == 1 else []
    fit = any(not isinstance(one, type) or _is_base(one, record) or (one, record) == (float, int) for one in values)
    if record is not None and values and not fit:
        raise GraphError(
            f"{processor.label}: parameter {name!r} is annotated {as_text(member)}, but the values of this store are "
            f"{record.__name__}. Annotate it State[{record.__name__}]."
        )
