"""Rejects unknown keyword arguments of declarations, and suggests the intended one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from cues_kafka.errors import CuesError, GraphError
from cues_kafka.words import hint, quoted

P = ParamSpec("P")
T = TypeVar("T")


def known_arguments(refused: type[CuesError] = GraphError) -> Callable[[type[T]], type[T]]:
    """
    Have a class refuse unknown, missing and too many arguments with an error that says what it takes.

    It is for declarations. An instance takes a microsecond longer to make, too long for what is made for each message.

    Args:
        refused: the error that the class raises.
    """

    def decorate(cls: type[T]) -> type[T]:
        declared: Callable[..., None] = cls.__init__
        known = tuple(inspect.signature(declared).parameters.values())[1:]

        @wraps(declared)
        def checked(self: T, *args: Any, **named: Any) -> None:
            if wrong := _misfit(known, args, named):
                raise refused(f"{type(self).__name__}{wrong}")
            declared(self, *args, **named)

        type.__setattr__(cls, "__init__", checked)
        return cls

    return decorate


def known_call(refused: type[CuesError]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """
    The same as `known_arguments`, for a function.

    Args:
        refused: the error that the function raises.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        known = tuple(inspect.signature(function).parameters.values())

        @wraps(function)
        def checked(*args: P.args, **named: P.kwargs) -> T:
            if wrong := _misfit(known, args, named):
                raise refused(f"{function.__name__}{wrong}")
            return function(*args, **named)

        return checked

    return decorate


def given_arguments(one: Any, names: Iterable[str]) -> dict[str, Any]:
    """Those of an object's arguments that differ from their defaults; an empty mapping does not differ from None."""
    cls: Any = type(one)
    given, defaults = {name: getattr(one, name) for name in names}, _defaults(cls)
    return {
        name: value
        for name, value in given.items()
        if value != defaults[name] and not (value == {} and defaults[name] in (None, inspect.Parameter.empty))
    }


@cache
def _defaults(cls: Callable[..., Any]) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()}


def _misfit(known: tuple[inspect.Parameter, ...], args: tuple[Any, ...], named: dict[str, Any]) -> str:
    """What is wrong with the arguments of a call; empty: nothing."""
    kinds = {parameter.kind for parameter in known}
    names = [parameter.name for parameter in known if parameter.kind not in _VARIADIC]
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for name in named:
            if name not in names:
                return f"({name}=...): unknown argument{hint(name, names)}. It takes {quoted(names)}."
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        places = [parameter.name for parameter in known if parameter.kind in _PLACED and parameter.name not in named]
    else:
        places = [parameter.name for parameter in known if parameter.kind in _PLACED]
        if len(args) > len(places):
            behind = [name for name in names if name not in places]
            rest = f"Name the others: {', '.join(f'{name}=' for name in behind)}." if behind else "It takes no others."
            return f" takes {_counted(places)} and was given {len(args)}. {rest}"
        if twice := [name for name in places[: len(args)] if name in named]:
            at = places.index(twice[0]) + 1
            return f"({twice[0]}=...): argument {at}, without a name, is {twice[0]!r} already. Leave one of them out."
    given = {*places[: len(args)], *named}
    if lacking := [
        one.name for one in known if one.default is one.empty and one.kind not in _VARIADIC and one.name not in given
    ]:
        return f"(...): {lacking[0]!r} is missing. It takes {quoted(names)}."
    return ""


def _counted(places: list[str]) -> str:
    if not places:
        return "no argument without a name"
    return f"{'one argument' if len(places) == 1 else f'{len(places)} arguments'} without a name, {quoted(places)},"


_PLACED = frozenset({inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD})
_VARIADIC = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})
