"""Ctrl-C in the middle of each command that changes something: what it says, and that the next run goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from cues_kafka import Graph, Json, Processor, Source, Topic
from cues_kafka.brokers import open as opening
from cues_kafka.cli import loading
from cues_kafka.cli.interrupted import AGAIN, INTERRUPTED
from cues_kafka.cli.main import COMMANDS, app
from cues_kafka.operate import pausing
from cues_kafka.operate.applying import apply_plan
from cues_kafka.operate.cut.drain import Drain
from cues_kafka.operate.pausing import Pausing
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import Sides, topics_to_ask
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.tester import Tester
from tests.unit.operate.move.dying import CLIENTS
from tests.unit.operate.move.test_killed_verbs import GRAPH, WIDTH, World, any_of, delivered, graph_of, route

PLACES: Final = [TopicPartition("numbers", p) for p in range(WIDTH)]


class Interrupted:
    """A cluster, or a client of it, where Ctrl-C comes just before the nth call of a method."""

    def __init__(self, target: Any, method: str, calls: list[int]) -> None:
        self._target, self._method, self._calls = target, method, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found) or (name not in CLIENTS and name != self._method):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            if name == self._method:
                self._calls[0] -= 1
                if self._calls[0] == 0:
                    raise KeyboardInterrupt
            result = found(*args, **kwargs)
            return Interrupted(result, self._method, self._calls) if name in CLIENTS else result

        return call


@dataclass(frozen=True)
class Row:
    """
    A command, and where it is interrupted.

    Attributes:
        words: of the command, without the graph and the cluster.
        at: the method, and which call of it.
        said: what it says, besides how to go on.
        world: what it is done to.
        graph: what is declared then.
    """

    words: tuple[str, ...]
    at: tuple[str, int]
    said: tuple[str, ...] = ()
    world: Callable[[], World] = delivered
    graph: Graph = GRAPH

    @property
    def name(self) -> str:
        """Of the command."""
        return " ".join(self.words[:2]) if self.words[0] in ("errors", "schemas") else self.words[0]


def trimmed() -> World:
    """Messages that were not delivered are gone."""
    world = delivered()
    world.send(91, 92, 93)
    world.broker.trim(dict.fromkeys(PLACES, 8))
    return world


def cut() -> World:
    """A cut was taken, and more delivered since."""
    world = delivered()
    Drain(GRAPH, world.broker, who="drain on here", clock=world.tester.clock).take("one", timeout_s=20.0)
    world.send(91, 92, 93)
    return world.deliver()


def of_others() -> World:
    """Another application has delivered a part of the topic, and our graph never ran."""
    world = World(Tester(GRAPH))
    apply_plan(plan(GRAPH, world.broker.facts(topics_to_ask(GRAPH))), world.broker)
    world.send(*range(1, 7))
    session = world.broker.session("legacy")
    session.init(timeout_s=1.0)
    session.begin()
    session.send_offsets(dict(zip(PLACES, (2, 4), strict=True)), GroupMetadata.outside("legacy"))
    session.commit()
    return world


def paused() -> World:
    """Two processors are paused."""
    world = delivered()
    world.broker.create([NewTopic("g.status", 1, config={"cleanup.policy": "compact"})])
    tool = Pausing(GRAPH, world.broker, who="amy", clock=world.tester.clock, sides=Sides(status=True, control=True))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pausing, "LOOK_S", 0.001)
        patched.setattr(pausing, "UNMANNED_S", 0.0)
        for name in ("route", "total"):
            tool.pause(name, timeout_s=5.0)
    tool.close()
    return world


WIDE: Final = Graph(
    "g", Source("numbers"), Source("doubles"),
    Processor(any_of, name="route", alts={"input": "numbers", "extra": "doubles"}, outputs="routed"),
    errors="g.errors", defaults=Topic(value=Json(), partitions=WIDTH),
)  # fmt: skip

LOOSE: Final = Graph(
    "g", Source("numbers"), Processor(route, inputs="numbers", outputs="routed", strategy="at-most-once"),
    defaults=Topic(value=Json(), partitions=WIDTH),
)  # fmt: skip

RENAMED: Final = Graph(
    "g", Source("numbers"), Processor(route, name="way", inputs="numbers", outputs="routed", renamed_from="route"),
    errors="g.errors", defaults=Topic(value=Json(), partitions=WIDTH),
)  # fmt: skip

ARRIVES: Final = "Written or not: route/0."
HALF: Final = ("Written: route/0.", "Written or not: route/1.")

ROWS: Final = [
    Row(("reset", "route", "--to", "earliest", "--yes"), ("commit", 2), HALF),
    Row(("accept-loss", "route", "--yes"), ("commit", 2), HALF, trimmed),
    Row(("migrate", "route", "--add", "extra=earliest", "--yes"), ("commit", 2), HALF, graph=WIDE),
    Row(("strategy", "route", "--yes"), ("commit", 2), HALF, graph=LOOSE),
    Row(
        ("rename", "route", "way", "--yes"),
        ("commit", 3),
        ("Written: way/0, way/1.", "Written or not: route/0."),
        graph=RENAMED,
    ),
    Row(("rebuild", "double", "--yes"), ("member", 1)),
    Row(("reset", "--to", "cut:one", "--yes"), ("commit", 2), ("Written:",), cut),
    Row(("cuts", "--delete", "one"), ("send", 1), world=cut),
    Row(("delete", "--confirm", "g"), ("delete", 2), ("group g.double is deleted", "topic g.double.replay is deleted")),
    Row(("errors", "replay", "--yes"), ("send", 1)),
    Row(("errors", "drop", "--yes"), ("send", 1)),
    Row(("plan", "--apply"), ("create", 1), world=lambda: World(Tester(graph_of("total")))),
    Row(("resume",), ("send", 2), world=paused),
    Row(("adopt", "route", "--group", "legacy", "--yes"), ("commit", 2), HALF, of_others),
]


def run(world: World, graph: Graph, words: tuple[str, ...], broker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command, on this cluster."""
    monkeypatch.setattr(loading, "load_graph", lambda _: graph)
    monkeypatch.setattr(opening, "open_broker", lambda _: broker)
    monkeypatch.setattr(world.broker, "close", lambda: None)
    named = 2 if words[0] in ("errors", "schemas") else 1
    given = [*words[:named], "shop:graph", *words[named:], "--bootstrap", "localhost:9092"]
    return CliRunner().invoke(app, given)


@pytest.mark.parametrize("row", ROWS, ids=lambda one: " ".join(one.words).replace("/", "_"))
def test_interrupted_command_says_what_was_done_and_the_next_run_ends_it(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 130, no traceback; the same command then ends it."""
    world = row.world()
    calls = [row.at[1]]
    broker = Interrupted(world.broker, row.at[0], calls)
    first = run(world, row.graph, row.words, broker, monkeypatch)
    assert calls[0] <= 0, f"not interrupted: {first.output}"
    assert (first.exit_code, first.exception.__class__) == (INTERRUPTED, SystemExit), first.output
    for text in ("Interrupted.", *row.said, AGAIN[row.name].replace("MODULE:GRAPH", "shop:graph")):
        assert text in first.output.replace("\n", " ").replace("  ", " "), first.output
    second = run(world, row.graph, row.words, world.broker, monkeypatch)
    assert second.exit_code == 0, second.output


@pytest.mark.parametrize("words", [("reset", "route"), ("verify",), ("status",)], ids=" ".join)
def test_command_that_has_not_begun_says_that_nothing_was_changed(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it looks; typer printed `Aborted.`, and ended with 1."""
    world = delivered()
    broker = Interrupted(world.broker, "watermarks", [1])
    found = run(world, GRAPH, words, broker, monkeypatch)
    assert (found.exit_code, found.output) == (INTERRUPTED, "Interrupted. Nothing was changed.\n")


def test_each_command_of_the_table_is_one() -> None:
    """A renamed one would say that nothing was changed."""
    names = {*COMMANDS, "errors replay", "errors drop", "schemas register"}
    assert {*AGAIN} <= names
    assert {row.name for row in ROWS} == {*AGAIN} - {"grant", "schemas register", "send"}
