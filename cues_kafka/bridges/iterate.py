"""A function as the source of a feed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import GraphError


@known_arguments()
@dataclass(frozen=True, slots=True)
class Iterate:
    """
    What a function gives, for a `Feed`.

    ``fn(place)`` gives an iterable of (message, place), from the beginning if `place` is None, else behind that place.
    It ends where nothing more is there now, and is called again later with the last place.

    Attributes:
        fn: the function; with several tasks, ``fn(place, part)``.
        tasks: how many tasks call it, each for its own part.
    """

    fn: Callable[..., Iterable[tuple[Any, str]]]
    tasks: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise GraphError(f"Iterate({self.fn!r}): takes a function of the place.")
        if isinstance(self.tasks, bool) or not isinstance(self.tasks, int) or self.tasks < 1:
            raise GraphError(f"Iterate(tasks={self.tasks!r}): takes a whole number from 1 on.")

    def parts(self) -> int:
        return self.tasks

    def open(self) -> Iterating:
        """Make what a process reads from."""
        return Iterating(self)

    def read(self, part: int, place: str | None, limit: int) -> Iterable[tuple[Any, str]]:
        return self.fn(place) if self.tasks == 1 else self.fn(place, part)


class Iterating:
    """
    Calls the function of an `Iterate` in one process.

    An iterator that was not taken to its end goes on where it stands, as long as the next place is its last one.
    """

    def __init__(self, declared: Iterate) -> None:
        self._declared = declared
        self._open: dict[int, tuple[str | None, Iterator[tuple[Any, str]]]] = {}

    def parts(self) -> int:
        return self._declared.tasks

    def read(self, part: int, place: str | None, limit: int) -> Iterator[tuple[Any, str]]:
        last, rows = self._open.pop(part, (None, None))
        if rows is None or last != place:
            if (close := getattr(rows, "close", None)) is not None:
                close()
            rows = iter(self._declared.read(part, place, limit))
        try:
            for message, at in rows:
                self._open[part] = at, rows
                yield message, at
        except GeneratorExit:  # enough was taken for now
            raise
        except BaseException:
            self._open.pop(part, None)  # a generator that has raised gives nothing more
            raise
        self._open.pop(part, None)
