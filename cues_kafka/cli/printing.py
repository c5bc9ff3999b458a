"""What commands print: text that others may have written is made safe for a terminal first."""

from __future__ import annotations

from typing import Any

import typer

from cues_kafka.words import visible


def say(text: str, *, fg: str | None = None, err: bool = False, nl: bool = True) -> None:
    """
    Print one line, whatever it holds: control characters, line ends and marks of direction are shown as escapes.

    Args:
        text: the line.
        fg: its colour; None: that of the terminal.
        err: print it on stderr.
        nl: end the line.
    """
    options: dict[str, Any] = {"err": err, "nl": nl}
    typer.secho(visible(text), fg=fg, **options)
