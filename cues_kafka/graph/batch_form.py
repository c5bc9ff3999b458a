"""What a function gets in one call: a message, a list of messages, or their columns."""

from __future__ import annotations

import typing
from collections import abc
from typing import Any, Final, Literal, TypeAlias

from cues_kafka.errors import GraphError

BatchForm: TypeAlias = bool | Literal["arrow"]
"""What a function gets: one message; a list of them (True); or their columns."""

COLUMNS: Final = "arrow"


def check_batch(batch: object, label: str) -> None:
    """
    Check the form of batches.

    Raises:
        GraphError: there is no such form.
    """
    if not isinstance(batch, bool) and batch != COLUMNS:
        raise GraphError(
            f"{label}: batch={batch!r}: takes True for lists of messages, 'arrow' for their columns, or False."
        )


def check_result(members: list[Any], label: str) -> None:
    """
    Check what the annotation of a function with columns says of its result.

    Raises:
        GraphError: it returns a list.
    """
    for member in members:
        origin = typing.get_origin(member) or member
        if isinstance(origin, type) and issubclass(origin, abc.Sequence | abc.Iterator):
            raise GraphError(
                f"{label}: batch='arrow' returns columns, but the function is annotated -> {origin.__name__}. Return a "
                "pyarrow.RecordBatch or Table, or write batch=True to return a list."
            )
