"""Arguments, exit codes and help that several commands share."""

from __future__ import annotations

import inspect
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from cues_kafka.cli.interrupted import INTERRUPTED, begin, interrupted, not_begun
from cues_kafka.cli.printing import say, say_block
from cues_kafka.errors import BrokerError, ConfigError, CuesError, GraphError

if TYPE_CHECKING:
    from typer._click.formatting import HelpFormatter

F = TypeVar("F", bound=Callable[..., None])

BROKEN, WRONG, FAILED, REFUSED, DONE, UNDONE = 1, 2, 3, 4, 5, 6
"""Exit codes: the cluster or a function fails; a graph or setting is wrong; a task stopped under --fail-fast. The last
three are for a supervisor only: its worker was refused, has delivered all, or failed before; see `supervisor`."""

DIFFERS = 3
"""Exit code of `plan --exit-code` if the plan would change something."""

Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:GRAPH",
        hidden=True,
        help="Where the graph is: shop:graph, path/shop.py:graph, or path/shop.toml.",
    ),
]

New = Annotated[
    list[str] | None,
    typer.Option("--new", metavar="NAME", help="This processor is new, not a renamed one; repeatable."),
]

Require = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help="Refuse a graph with an edge below this level: exactly-once, at-least-once or at-most-once.",
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without this option, only say what would happen.")]

_OF_A_GRAPH: Final = re.compile(r"(cues-kafka(?: [a-z-]+)+ )MODULE:GRAPH")

_TARGET: Final = ContextVar("cues_kafka.target", default="")
"""Which graph the command that runs was given."""


def pasteable(text: str, target: str | None = None) -> str:
    """
    A text whose commands of ours name the graph, so that they can be pasted.

    Args:
        text: with commands such as ``cues-kafka plan MODULE:GRAPH --apply``.
        target: what the user gave for MODULE:GRAPH; empty: nothing, and the text stays as it is; None: what the command
            that runs was given.
    """
    target = _TARGET.get() if target is None else target
    return _OF_A_GRAPH.sub(lambda found: found[1] + target, text) if target else text


class Options:
    """Options that a command takes together, as one parameter: a dataclass with a field for each."""

    __slots__ = ()


class Commands(typer.Typer):
    """Registers commands, whose options may be in groups."""

    def command(self, name: str | None = None, **given: Any) -> Callable[[F], F]:
        """Register a command; each field of its `Options` is an option of its own."""

        def register(command: F) -> F:
            super(Commands, self).command(name, **given)(_ungrouped(command))
            return command

        return register


def _ungrouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a parameter for each option, which typer reads."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and issubclass(kind, Options)}
    if not groups:
        return command
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        own = inspect.signature(groups[name], eval_str=True).parameters.values() if name in groups else [parameter]
        parameters += [one.replace(kind=one.KEYWORD_ONLY) for one in own]

    @wraps(command)
    def called(**given: Any) -> None:
        made = {
            name: group(**{one: given.pop(one) for one in inspect.signature(group).parameters})
            for name, group in groups.items()
        }
        command(**given, **made)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called


class Command(TyperCommand):
    """A command whose help shows arguments as users write them: MODULE:GRAPH, without braces and types."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command, and keep for what it prints which graph it was given."""
        _TARGET.set(ctx.params.get("target") or "")
        not_begun(ctx.command_path.partition(" ")[2])
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """What follows the command's name."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: typer.Context, formatter: HelpFormatter) -> None:  # type: ignore[override]
        """Write the arguments, then the options; typer leaves out arguments, because they are hidden."""
        arguments = [(str(p.metavar), str(p.help)) for p in self.params if isinstance(p, TyperArgument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        super().format_options(ctx, formatter)


class PrintsErrors(TyperGroup):
    """A group of commands that prints an error of ours as its message, without a traceback."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command that was given."""
        try:
            return super().invoke(ctx)
        except CuesError as error:
            print_error(error)
            raise typer.Exit(WRONG if isinstance(error, ConfigError | GraphError) else BROKEN) from None
        except KeyboardInterrupt as interrupt:
            for line in interrupted(interrupt):
                say_block(pasteable(line), err=True)
            raise typer.Exit(INTERRUPTED) from None


def print_error(error: CuesError) -> None:
    """Print an error to stderr, as the program's; see `pasteable`."""
    say_block(f"cues-kafka: {pasteable(str(error))}", fg="red", err=True)


@contextmanager
def as_tools_of(graph: str) -> Iterator[None]:
    """
    Where a right to a group is missing, add to the error that --graph makes do without it.

    Without a graph, a reader names a group after the topic, to which no role has a right.

    Raises:
        BrokerError: the one of the block.
    """
    try:
        yield
    except BrokerError as error:
        if graph or error.code != "GROUP_AUTHORIZATION_FAILED":
            raise
        text = f"{str(error).rstrip('.')}. Or add --graph MODULE:GRAPH, and log in as a user with its role verifier"
        raise BrokerError(text, code=error.code) from None


def at_least(least: int) -> Callable[[int | None], int | None]:
    """A check of a number; an option's own minimum would show as ``[x>=1]`` in its help."""

    def check(number: int | None) -> int | None:
        if number is not None and number < least:
            raise typer.BadParameter(f"{number} is too small; give at least {least}.")
        return number

    return check


def say_first(lines: Iterable[str], *, yes: bool, past: str = "changed") -> None:
    """
    Print what a command would do, and end it there unless it was told to do it.

    Args:
        lines: what it would do.
        yes: whether `--yes` was given.
        past: what was not done without it.

    Raises:
        typer.Exit: without `--yes`.
    """
    for line in lines:
        say_block(pasteable(line))
    if not yes:
        say(f"Nothing was {past}. Add --yes to do it.", err=True)
        raise typer.Exit(BROKEN)
    begin()


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Make SIGINT and SIGTERM an event; a second one kills."""
    ended = threading.Event()

    def on(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        ended.set()

    before = {number: signal.signal(number, on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
