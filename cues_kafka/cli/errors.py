"""``cues-kafka errors list``, ``show``, ``replay`` and ``drop``: count, show, replay and drop error messages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cues_kafka.cli.bars import progress_bar
from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.interrupted import INTERRUPTED, begin
from cues_kafka.cli.options import (
    BROKEN,
    AsJson,
    Command,
    Commands,
    Options,
    Target,
    at_least,
    interrupts,
    pasteable,
    say_first,
)
from cues_kafka.cli.printing import say, say_lines
from cues_kafka.cli.tables import WIDTH, aligned, fits, paragraph
from cues_kafka.errors import ConfigError
from cues_kafka.graph.times import milliseconds_of, shown_time, time_of
from cues_kafka.words import count

if TYPE_CHECKING:
    from cues_kafka.graph.definition import Graph
    from cues_kafka.operate.repair.ask import Repairs
    from cues_kafka.operate.repair.filed import FailureCause, FiledError, Requested, Selection
    from cues_kafka.records.requests import Wish

app = Commands(help="List error messages, and replay or drop them.", no_args_is_help=True)

_EXITS = """
Exits with 1 if the cluster does not answer, and with 2 if the graph, a setting
or TOPIC/P@OFFSET is wrong.
"""

_list_epilog = f"""
\b
Examples:
  cues-kafka errors list shop:graph
  cues-kafka errors list shop:graph --processor check --since 2026-11-25T10:00Z
  cues-kafka errors list shop:graph --all --json | jq .causes
{_EXITS}"""

_show_epilog = f"""
\b
Examples:
  cues-kafka errors show shop:graph shop.errors/0@17
  cues-kafka errors show shop:graph shop.errors/0@17 --json | jq .causes
{_EXITS}"""

_ASKED = """
The command can be repeated: it leaves out error messages that are settled or
were requested before. Ctrl-C ends a wait; the requests remain.

Exits with 0 if all were requested; with --wait, if all are settled. Exits with
1 if --yes is missing, if some are not settled in time (the command names them),
or if the cluster does not answer. Exits with 2 if the graph, a setting or
TOPIC/P@OFFSET is wrong.
"""

_replay_epilog = f"""
\b
Examples:
  # say what would be replayed
  cues-kafka errors replay shop:graph
  cues-kafka errors replay shop:graph --processor check --exception KeyError --yes
  cues-kafka errors replay shop:graph --limit 1 --yes --wait 30
  cues-kafka errors replay shop:graph shop.errors/0@17 --yes
{_ASKED}"""

_drop_epilog = f"""
\b
Examples:
  # say what would be dropped
  cues-kafka errors drop shop:graph --kind decode
  cues-kafka errors drop shop:graph --kind decode --until 2026-11-25T10:00Z --yes
  cues-kafka errors drop shop:graph shop.errors/0@17 --yes --wait 30
{_ASKED}"""

NAMED = 20
"""How many error messages that are not settled are named."""

Places = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC/P@OFFSET]...", hidden=True, help="Only these error messages.")
]
Limit = Annotated[int | None, typer.Option(metavar="N", callback=at_least(1), help="At most N error messages.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without it, only say what would happen.")]
Wait = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Wait until tasks have settled them, at most this long.")
]


@dataclass(frozen=True, slots=True)
class Filters(Options):
    """Which error messages a command is for."""

    processor: Annotated[
        str | None, typer.Option("--processor", metavar="NAME", help="Only those of this processor.")
    ] = None
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Only this kind: raised, decode, output, 'retries exhausted' or quarantine."),
    ] = None
    exception: Annotated[
        str | None, typer.Option("--exception", metavar="CLASS", help="Only this class of exception, such as KeyError.")
    ] = None
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only those that failed at this time or later.")] = (
        None
    )
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only those that failed before this time.")] = None

    def selection(self, places: Iterable[str] = ()) -> Selection:
        """What they select, of these error messages if some are named."""
        from cues_kafka.operate.look.lineage import parse_place
        from cues_kafka.operate.repair.filed import Selection

        parsed = [parse_place(place) for place in places]
        return Selection(
            processor=self.processor,
            kind=self.kind,
            exception=self.exception,
            since_ms=_moment(self.since, "--since"),
            until_ms=_moment(self.until, "--until"),
            places=frozenset((place.topic, place.partition, offset) for place, offset in parsed),
        )


@app.command("list", cls=Command, epilog=_list_epilog)
def list_(
    target: Target,
    *,
    filters: Filters,
    everything: Annotated[bool, typer.Option("--all", help="Also count settled error messages.")] = False,
    limit: Annotated[
        int | None, typer.Option(metavar="N", callback=at_least(1), help="Show N causes, the largest first.")
    ] = None,
    as_json: AsJson = False,
    cluster: ClusterOptions,
) -> None:
    """
    Count the open error messages by cause.

    A cause is a processor, a class of exception and a kind.
    """
    wanted = filters.selection()
    with _opened(target, cluster) as (graph, tool), progress_bar("reading") as tell:
        found = tool.causes(wanted, settled=everything, progress=tell)
    shown = found[:limit]
    if as_json:
        counts = {"graph": graph.name, "of other graphs": tool.foreign, "unreadable": tool.unreadable}
        say_lines(json.dumps(counts | {"causes": [_cause_data(one) for one in shown]}, indent=2))
        return
    for line in table(shown, everything=everything, width=_width()):
        say(line)
    total = sum(one.count for one in found)
    which = "error message" if everything else "open error message"
    say(f"{graph.name}: {count(total, which)} of {count(len(found), 'cause')}{_besides(tool)}")


@app.command(cls=Command, epilog=_show_epilog)
def show(
    target: Target,
    place: Annotated[
        str, typer.Argument(metavar="TOPIC/P@OFFSET", hidden=True, help="The error message, as `list` names it.")
    ],
    *,
    as_json: AsJson = False,
    cluster: ClusterOptions,
) -> None:
    """Show one error message in full, and its outcome."""
    from cues_kafka.operate.look.lineage import parse_place
    from cues_kafka.operate.repair.shown import lines, payload_text

    at, offset = parse_place(place)
    with _opened(target, cluster) as (graph, tool):
        one = tool.show(at.topic, at.partition, offset)
    if as_json:
        say_lines(json.dumps(_error_data(one), indent=2))
        return
    for line in lines(one, payload_text(one.message, graph, cluster.kafka()), text=pasteable):
        say(line)


def _asks(wish: Wish, doc: str, epilog: str) -> None:
    """Add a command that asks tasks to do something with error messages."""

    def command(
        target: Target,
        places: Places = None,
        *,
        filters: Filters,
        limit: Limit = None,
        yes: Yes = False,
        wait: Wait = None,
        as_json: AsJson = False,
        cluster: ClusterOptions,
    ) -> None:
        wanted = filters.selection(places or ())
        with _opened(target, cluster) as (graph, tool):
            _ask(graph, tool, wish, wanted, limit=limit, yes=yes, wait=wait, as_json=as_json)

    app.command(wish, cls=Command, help=doc, epilog=epilog)(command)


_asks(
    "replay",
    "Deliver failed messages again.\n\n"
    "Their tasks deliver them between live messages, exactly once, under the same hash. Other readers of the input do "
    "not see them. Each one becomes outputs, nothing, or a new error message.",
    _replay_epilog,
)
_asks(
    "drop",
    "Settle error messages without delivering the failed messages again.\n\n"
    "The error messages stay in their topic. They are no longer listed as open, and cannot be replayed afterwards.",
    _drop_epilog,
)


def _ask(
    graph: Graph,
    tool: Repairs,
    wish: Wish,
    wanted: Selection,
    *,
    limit: int | None,
    yes: bool,
    wait: float | None,
    as_json: bool,
) -> None:
    from cues_kafka.operate.repair.ask import PAST

    if wait is not None and not (wait > 0 and yes):
        raise ConfigError(f"--wait {wait:g}: takes a number of seconds above 0, and goes with --yes only.")
    if yes:
        begin()
    with progress_bar("reading") as tell:
        result = tool.ask(wish, wanted, limit=limit, dry=not yes, progress=tell)
    done = True
    if wait is not None and result.open:
        with interrupts() as ended, progress_bar("settling") as tell:
            done = tool.wait(result, timeout_s=wait, ended=ended, progress=tell)
    lines: Iterable[str] = told(graph, tool, result, yes=yes, waited=wait is not None, width=_width())
    if as_json:
        lines = [json.dumps(_requested_data(graph, result, yes=yes), indent=2)]
    say_first(lines, yes=yes or not result.asked, past=PAST[wish])
    if not done:
        *named, last = late(graph.name, result.open)
        for line in named:
            say(line, err=True)
        say(last, fg="red", err=True)
        raise typer.Exit(INTERRUPTED if ended.is_set() else BROKEN)


def late(graph: str, left: Sequence[str]) -> list[str]:
    """What is said of error messages that are not settled in time; at the end, what to do."""
    more = f", {len(left) - NAMED:,} of them not named here" if len(left) > NAMED else ""
    last = (
        f"{graph}: {count(len(left), 'error message')} not settled in time{more}. The requests stay. Do the workers "
        "run? See `cues-kafka status`."
    )
    return [*(f"not settled yet: {where}" for where in left[:NAMED]), last]


def told(graph: Graph, tool: Repairs, result: Requested, *, yes: bool, waited: bool, width: int) -> Iterator[str]:
    """What was done, for people; see `table`."""
    from cues_kafka.operate.repair.ask import PAST
    from cues_kafka.operate.repair.shown import OUTCOMES

    yield from table(list(result.causes.values()), width=width)
    verb = f"{result.wish} requested for" if yes else f"would {result.wish}"
    yield f"{graph.name}: {verb} {count(result.asked, 'error message')}{_besides(tool)}"
    if result.before:
        yield f"asked for before, and not settled when this command began: {result.before:,}"
    if result.settled:
        yield f"settled already: {result.settled:,}"
    for why, number in result.refused.most_common():
        yield f"cannot be {PAST[result.wish]}: {number:,}, such as {result.examples[why]}: {why}"
    if waited and result.outcomes:
        ended = ", ".join(f"{number:,} {OUTCOMES[key]}" for key, number in result.outcomes.items())
        yield f"{PAST[result.wish]} now: {ended}"


def table(causes: Sequence[FailureCause], *, width: int, everything: bool = False) -> list[str]:
    """
    One row for each cause; where the rows are wider than the screen, a paragraph.

    Args:
        causes: what is shown.
        width: of the screen, in characters.
        everything: whether settled ones are among them.
    """
    if not causes:
        return []
    numbers = ["errors", "asked", *(["settled"] if everything else [])]
    titles = ["processor", "exception", "kind", *numbers, "first", "last", "newest"]
    rows = [
        [
            *(one.processor, one.exception, one.kind, f"{one.count:,}", f"{one.asked:,}"),
            *([f"{one.settled:,}"] if everything else []),
            *(shown_time(one.first_ms), shown_time(one.last_ms), one.example),
        ]
        for one in causes
    ]
    found = aligned([titles, *rows], left={0, 1, 2, *range(3 + len(numbers), len(titles))})
    if fits(found, width):
        return found
    return [
        line
        for row in rows
        for line in paragraph(f"{row[0]}: {row[1]} ({row[2]})", list(zip(titles[3:], row[3:], strict=True)), width)
    ]


def _moment(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    when = time_of(text)
    if when is None:
        raise ConfigError(f"{option} {text!r}: give a time such as 2026-11-25T10:00Z or 2026-11-25T10:00+02:00.")
    return milliseconds_of(when, option)


@contextmanager
def _opened(target: str, cluster: ClusterOptions) -> Iterator[tuple[Graph, Repairs]]:
    from cues_kafka.cli.loading import opened
    from cues_kafka.operate.repair.ask import Repairs

    with opened(target, cluster) as (graph, broker), Repairs(graph, broker) as tool:
        yield graph, tool


def _besides(tool: Repairs) -> str:
    found = [
        f"{count(number, 'message')} {what}"
        for number, what in ((tool.foreign, "of other graphs"), (tool.unreadable, "that cannot be read"))
        if number
    ]
    return f" (not counted: {', '.join(found)})" if found else ""


def _cause_data(one: FailureCause) -> dict[str, Any]:
    names = ("processor", "exception", "kind", "count", "asked", "settled", "first_ms", "last_ms", "example", "text")
    return {name: getattr(one, name) for name in names}


def _error_data(one: FiledError) -> dict[str, Any]:
    from cues_kafka.operate.shown import of_error

    own = {
        "place": str(one),
        "asked of": one.asked_of,
        "asked": one.asked,
        "obstacle": one.obstacle,
        "replay": one.number,
    }
    data = own | {"settled": None if one.settled is None else one.settled._asdict()} | of_error(one.message)
    data["causes"] = [{"exception": c.exception, "text": c.text, "trace": list(c.trace)} for c in one.message.causes]
    return data


def _requested_data(graph: Graph, result: Requested, *, yes: bool) -> dict[str, Any]:
    return {
        "graph": graph.name,
        "wish": result.wish,
        "dry run": not yes,
        "asked": result.asked,
        "asked before": result.before,
        "settled before": result.settled,
        "refused": [
            {"count": number, "example": result.examples[why], "why": why} for why, number in result.refused.items()
        ],
        "settled now": dict(result.outcomes),
        "open": list(result.open) if yes else [],
        "causes": [_cause_data(one) for one in result.causes.values()],
    }


def _width() -> int:
    return shutil.get_terminal_size((WIDTH, 24)).columns
