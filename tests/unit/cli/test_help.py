"""The help of the commands: what it shows can be copied, and it shows nothing of how it is made."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from cues_kafka.cli.main import COMMANDS as LISTED
from cues_kafka.cli.main import app

WIDTH = 80

EXAMPLE_WIDTH = 100
"""Of an example, which is one line so that it can be copied."""


def commands() -> Iterator[tuple[str, Any]]:
    """(Words, command) of every command and group."""

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        yield " ".join(path), command
        for name, below in getattr(command, "commands", {}).items():
            yield from walk(below, (*path, name))

    yield from walk(typer.main.get_command(app), ())


COMMANDS = dict(commands())


@cache
def text(path: str, option: str = "--help") -> str:
    """What the program prints, on a screen of 80 columns."""
    result = CliRunner().invoke(app, [*path.split(), option], env={"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH)})
    assert result.exit_code == 0, result.output
    return result.output


def examples(path: str) -> list[list[str]]:
    """The commands among the examples, as a shell splits them."""
    _, _, shown = text(path).partition("Examples:\n")
    lines = shown.split("\n\n")[0].splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path or "cues-kafka")
def test_help_shows_nothing_of_how_it_is_made(path: str) -> None:
    """No types of the library, no markup, no blank lines in a row; only an example is wider than the screen."""
    shown = text(path)

    wide = [line for line in shown.splitlines() if len(line) > WIDTH]
    assert not [line for line in wide if not line.startswith("    cues-kafka ") or len(line) > EXAMPLE_WIDTH]
    assert not [mark for mark in ("<", "{", "x>=", "\b", "\n\n\n", "  process\n") if mark in shown]


def test_the_page_of_commands_names_every_command() -> None:
    """In its tables; groups by their first commands."""
    page = (Path(__file__).parents[3] / "docs" / "commands.md").read_text(encoding="utf-8")
    assert not [path for path in COMMANDS if " " not in path and not re.search(rf"`cues-kafka {path}\b", page)]


def test_help_has_a_short_option() -> None:
    """Everywhere."""
    assert all(text(path, "-h") == text(path) for path in COMMANDS)


def test_help_lists_commands_with_whole_sentences() -> None:
    """None ends in three dots."""
    assert not [path for path, command in COMMANDS.items() if hasattr(command, "commands") and "..." in text(path)[60:]]


@pytest.mark.parametrize("path", [path for path, command in COMMANDS.items() if command.epilog])
def test_examples_can_be_copied(path: str) -> None:
    """Each is one command of the program on one line, with options that it has."""
    shown = examples(path)

    assert shown
    for words in shown:
        place = words.index("cues-kafka")
        assert words[place + 1 : place + 1 + len(path.split())] == path.split()
        known = {option for parameter in COMMANDS[path].params for option in parameter.opts}
        end = next((i for i, word in enumerate(words) if word in {"|", ";"} or word.endswith(";")), len(words))
        used = {word.rstrip(";") for word in words[place : end + 1] if word.startswith("--")}
        assert used <= known


@pytest.mark.parametrize(
    "arguments", [["run", "shop:graph", "--workers", "0"], ["reset", "shop:graph", "check", "--partition", "-1"]]
)
def test_a_number_that_is_too_small_is_refused(arguments: list[str]) -> None:
    """Before anything is loaded."""
    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 2
    assert "is too small; give at least" in result.output


@pytest.mark.parametrize("name", LISTED)
def test_list_of_commands_has_the_first_line_of_each_ones_help(name: str) -> None:
    """The list is printed without the commands, so it could say something else."""
    assert LISTED[name].summary == COMMANDS[name].get_short_help_str(10 * WIDTH)


@pytest.mark.parametrize(
    ("words", "commands"),
    [("--help", set()), ("--version", set()), ("tail --help", {"tail"})],
    ids=str,
)
def test_program_imports_the_command_that_is_asked_for(words: str, commands: set[str]) -> None:
    """All of them with their options would take longer than everything else at a start."""
    modules = {one.place.partition(":")[0] for one in LISTED.values()} - {"config"}  # which others share
    told = "import atexit; atexit.register(lambda: print(*sys.modules))"
    code = f"import sys; from cues_kafka.cli.main import main; {told}; sys.argv[1:] = {words.split()}; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.removeprefix("cues_kafka.cli.") for name in done.stdout.splitlines()[-1].split()}
    assert loaded & modules == commands
