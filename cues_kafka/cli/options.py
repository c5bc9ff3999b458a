"""Arguments that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from typer.core import TyperCommand

Target = Annotated[str, typer.Argument(metavar="MODULE:GRAPH", hidden=True)]
"""Which graph; the texts of the commands describe it, without the type that a list of arguments would show."""


class Command(TyperCommand):
    """A command whose usage shows arguments as they are written: MODULE:GRAPH, without braces."""

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """What follows the command's name."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]


def at_least(least: int) -> Callable[[int | None], int | None]:
    """A check of a number; an option's own minimum would show as ``[x>=1]`` in its help."""

    def check(number: int | None) -> int | None:
        if number is not None and number < least:
            raise typer.BadParameter(f"{number} is too small; give at least {least}.")
        return number

    return check
