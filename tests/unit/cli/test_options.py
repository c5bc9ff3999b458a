"""What all commands share: an error is printed with commands that can be pasted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from cues_kafka.cli.options import Command, Commands, Options, PrintsErrors, Target, pasteable, say_first
from cues_kafka.errors import GraphError, RecoveryError

app = Commands(cls=PrintsErrors)
under = typer.Typer()
app.add_typer(under, name="under")

TEXT = "Run `cues-kafka errors replay MODULE:GRAPH --yes`, or 'cues-kafka plan MODULE:GRAPH'; add --graph MODULE:GRAPH."
PASTED = "Run `cues-kafka errors replay shop:g --yes`, or 'cues-kafka plan shop:g'; add --graph MODULE:GRAPH."


@app.command(cls=Command)
def refuse(target: Target) -> None:
    """Fail as a tool does."""
    raise RecoveryError(TEXT)


@under.command(cls=Command)
def declare(target: Target) -> None:
    """Fail below a group of commands."""
    raise GraphError(TEXT)


@app.command(cls=Command)
def down() -> None:
    """Fail without a graph."""
    raise RecoveryError(TEXT)


def test_commands_in_an_error_name_the_graph_that_was_given() -> None:
    """Only those of ours, and where a graph was given."""
    for arguments, code, text in (
        (["refuse", "shop:g"], 1, PASTED),
        (["under", "declare", "shop:g"], 2, PASTED),
        (["down"], 1, TEXT),
    ):
        result = CliRunner().invoke(app, arguments)
        assert (result.exit_code, result.stderr) == (code, f"cues-kafka: {text}\n")


def test_what_a_command_would_do_names_the_graph_too() -> None:
    """So the next command can be pasted."""
    assert pasteable(TEXT, "") == TEXT
    assert pasteable(TEXT, "shop:g") == PASTED

    @app.command(cls=Command)
    def plan(target: Target) -> None:
        say_first([TEXT], yes=True)

    assert CliRunner().invoke(app, ["plan", "shop:g"]).stdout == f"{PASTED}\n"


@dataclass(frozen=True)
class Place(Options):
    """Two options that several commands have."""

    x: int = 0
    y: Annotated[int, typer.Option("--down")] = 0


def test_options_of_a_group_are_options_of_the_command_in_the_order_of_its_parameters() -> None:
    """The command gets the group as one value."""

    @app.command(cls=Command)
    def move(target: Target, first: bool = False, *, place: Place, last: bool = False) -> None:
        typer.echo((target, first, place, last))

    [command] = [one for name, one in typer.main.get_group(app).commands.items() if name == "move"]
    assert [one.name for one in command.params] == ["target", "first", "x", "y", "last"]
    given = CliRunner().invoke(app, ["move", "shop:g", "--down", "2", "--last"])
    assert given.stdout == "('shop:g', False, Place(x=0, y=2), True)\n"
