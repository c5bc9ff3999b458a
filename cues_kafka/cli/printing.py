"""What commands print: text that others may have written is made safe for a terminal first."""

from __future__ import annotations

import logging
from typing import Final

import typer

from cues_kafka.words import visible

LOGGER: Final = "cues_kafka.run"
"""The logger of texts that are printed as lines of the log."""


def say(text: str, *, fg: str | None = None, err: bool = False, nl: bool = True) -> None:
    """
    Print one line, whatever it holds: control characters, line ends and marks of direction are shown as escapes.

    Args:
        text: the line.
        fg: its colour; None: that of the terminal.
        err: print it on stderr.
        nl: end the line.
    """
    if _formatter is not None:
        typer.echo(_logged(_formatter, visible(text), error=fg == "red"), err=err)
    else:
        typer.secho(visible(text), fg=fg, err=err, nl=nl)


def say_lines(text: str, *, fg: str | None = None, err: bool = False) -> None:
    """Print a text that has several lines of ours, such as JSON; else as `say`."""
    if _formatter is not None:
        typer.echo(_logged(_formatter, visible(text, lines=True), error=fg == "red"), err=err)
    else:
        typer.secho(visible(text, lines=True), fg=fg, err=err)


def say_block(text: str, *, fg: str | None = None, err: bool = False) -> None:
    """
    Print a text that may hold texts of others: its further lines are indented, so that none looks like one of ours.

    Args:
        text: the lines; the first one is ours.
        fg: see `say`.
        err: see `say`.
    """
    first, *more = text.split("\n")
    say_lines("\n".join([first, *(f"  {line}" if line else "" for line in more)]), fg=fg, err=err)


def log_texts(formatter: logging.Formatter | None) -> None:
    """From now on print each text as a line of the log, so that programs can read all of it; None: as text."""
    global _formatter  # noqa: PLW0603 - of the process, as its log
    _formatter = formatter


_formatter: logging.Formatter | None = None


def _logged(formatter: logging.Formatter, text: str, *, error: bool) -> str:
    level = logging.ERROR if error else logging.INFO
    return formatter.format(logging.LogRecord(LOGGER, level, "", 0, "%s", (text,), None))
