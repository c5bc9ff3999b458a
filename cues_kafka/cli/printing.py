"""What commands print: text that others may have written is made safe for a terminal first."""

from __future__ import annotations

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
    typer.secho(visible(text), fg=fg, err=err, nl=nl)


def say_lines(text: str, *, fg: str | None = None, err: bool = False) -> None:
    """Print a text that has several lines of ours, such as JSON; else as `say`."""
    typer.secho(visible(text, lines=True), fg=fg, err=err)
