"""`delete`: a plan first, only what is the graph's, never under a worker, and to the end if it is run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cues_kafka import ConfigError, Graph, Json, Processor, RecoveryError, Source, State, Store, TaskStopped, Topic
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.cli.main import app
from cues_kafka.errors import FatalError, RetriableError
from cues_kafka.graph.names import processor_of
from cues_kafka.operate.deleting import Deleting, Deletion
from cues_kafka.operate.look.status import StatusView
from cues_kafka.ports.facts import NewTopic
from cues_kafka.records.status import StatusRecord, TaskOwner, encode_status
from cues_kafka.testing.tester import Tester


def clean(n: int, seen: State[int]) -> int:
    """With a store."""
    seen["all"] = seen.get("all", 0) + 1
    return n


def route(n: int) -> int:
    """A pipe."""
    return n


def graph_of(*left_out: str) -> Graph:
    """Two processors, in a row; some of them are not declared any more."""
    parts = [
        Processor(clean, inputs="a", outputs="b", state={"seen": Store(Json(int))}),
        Processor(route, inputs="b", outputs="c"),
    ]
    kept = [part for part in parts if part.name not in left_out]
    return Graph("g", Source("a"), Source("b"), *kept, errors="g.errors", defaults=Topic(value=Json(), partitions=2))


GRAPH = graph_of()
CLEAN = ("g.clean.replay", "g.clean.seen.changelog", "g.clean.backing")
ROUTE = ("g.route.replay", "g.route.backing")
FOREIGN = ("gg.clean.backing", "g.clean", "other", "g.tailers", "g.x.y.backing")


def delivered(stop: bool = True) -> Tester:
    """The graph has delivered; topics of others are there, too."""
    tester = Tester(GRAPH)
    tester.broker.create([NewTopic(name, 1) for name in FOREIGN])
    for n in range(4):
        tester.send("a", n, key=str(n))
    tester.run()
    if stop:
        tester.stop()
    return tester


def carried_out(tester: Tester, planned: Deletion, graph: Graph = GRAPH) -> list[str]:
    """What was told."""
    told: list[str] = []
    Deleting(graph, tester.broker).carry_out(planned, tell=told.append)
    return told


class Ignoring:
    """A listener of a group."""

    def on_assign(self, _: Any) -> None: ...
    def on_revoke(self, _: Any) -> None: ...
    def on_lost(self, _: Any) -> None: ...


def groups(broker: MemoryBroker) -> set[str]:
    """All of them."""
    return {*broker.examine((), ()).listed}


def test_a_graph_goes_with_its_own_topics_and_groups_and_leaves_those_of_others() -> None:
    """The topics of the user stay, unless they are asked for."""
    tester = delivered()
    planned = Deleting(GRAPH, tester.broker).whole()

    assert [(part.name, part.group, part.topics) for part in planned.parts] == [
        ("clean", "g.clean", CLEAN),
        ("route", "g.route", ROUTE),
    ]
    assert planned.kept == ("a", "b", "c", "g.errors")
    text = "\n".join(planned.lines())
    assert "route:\n  - group g.route\n  - topic g.route.replay\n  - topic g.route.backing\n" in text
    assert "kept: topics a, b, c, g.errors" in text
    carried_out(tester, planned)
    assert {*tester.broker.partitions()} == {"a", "b", "c", "g.errors", *FOREIGN}
    assert not groups(tester.broker) & {"g.clean", "g.route"}
    assert Deleting(GRAPH, tester.broker).whole().empty

    everything = Deleting(GRAPH, tester.broker).whole(data=True)
    assert everything.topics == ("a", "b", "c", "g.errors")
    carried_out(tester, everything)
    assert {*tester.broker.partitions()} == {*FOREIGN}


def test_topics_that_the_user_may_not_see_are_named() -> None:
    """The cluster lists the others, and nothing says otherwise that something stays."""
    tester = delivered()

    class Hiding:
        """A broker that hides a topic of data, and a changelog."""

        def __getattr__(self, name: str) -> Any:
            return getattr(tester.broker, name)

        def partitions(self, topics: Any = None) -> Any:
            hidden = {"c", CLEAN[1]}
            if topics is not None and hidden & {*topics}:
                names = ", ".join(sorted(hidden & {*topics}))
                raise FatalError(f"user `ann` may not describe topics {names}", code="TOPIC_AUTHORIZATION_FAILED")
            return {topic: n for topic, n in tester.broker.partitions(topics).items() if topic not in hidden}

    own, everything = Deleting(GRAPH, Hiding()).whole(), Deleting(GRAPH, Hiding()).whole(data=True)

    said = "topics that this user cannot see are not deleted: user `ann` may not describe topics"
    assert own.warnings == (f"{said} {CLEAN[1]}",)
    assert everything.warnings == (f"{said} c, {CLEAN[1]}",)
    assert Deleting(GRAPH, tester.broker).whole(data=True).warnings == ()


def test_topics_of_status_and_control_go_with_the_graph_unless_another_program_has_them() -> None:
    """Ours are compacted; one that the user's processors use is never taken for ours."""
    tester = delivered()
    tester.broker.create(
        [NewTopic(name, 1, config={"cleanup.policy": "compact"}) for name in ("g.status", "g.control")]
    )
    assert set(Deleting(GRAPH, tester.broker).whole().topics) == {"g.status", "g.control"}

    tester.broker.delete(["g.status"])
    tester.broker.create([NewTopic("g.status", 1)])
    assert Deleting(GRAPH, tester.broker).whole().topics == ("g.control",)


def test_one_processor_goes_alone_and_what_follows_is_said() -> None:
    """Started again, it begins again."""
    tester = delivered()
    planned = Deleting(GRAPH, tester.broker).processor("clean")

    assert [part.topics for part in planned.parts] == [CLEAN]
    assert "the graph still declares clean. Started again, it begins at its start=" in planned.warnings[0]
    carried_out(tester, planned)
    assert {*ROUTE} < {*tester.broker.partitions()}
    again = Tester(GRAPH, broker=tester.broker).run()
    assert sorted(again.values("b")) == sorted([0, 1, 2, 3] * 2)
    with pytest.raises(ConfigError, match=r"no processor 'claen'.* \(did you mean 'clean'\?\)"):
        Deleting(GRAPH, tester.broker).processor("claen")


def test_what_removed_processors_have_left_goes_and_nothing_else() -> None:
    """A group whose name only begins alike may be another application's."""
    tester = delivered()
    tester.broker.member("g.other-app", "a", Ignoring()).close(leave=True)
    graph = graph_of("clean")
    planned = Deleting(graph, tester.broker).unused()

    assert "g.other-app" in groups(tester.broker)
    assert [(part.name, part.declared, part.topics) for part in planned.parts] == [("clean", False, CLEAN)]
    assert next(planned.lines()) == "clean (no longer in the graph):"
    assert Deleting(graph, tester.broker).processor("clean") == planned
    carried_out(tester, planned, graph)
    assert Deleting(graph, tester.broker).unused().empty
    assert Deleting(GRAPH, tester.broker).unused().empty
    assert [part.name for part in Deleting(graph, tester.broker).whole().parts] == ["route"]
    assert "g.other-app" in groups(tester.broker)


def test_what_a_declaration_does_without_now_is_unused() -> None:
    """The changelog of a store that was removed, and the replay topic without an errors topic; the task goes on."""
    tester = delivered()
    parts = [Processor(route, name="clean", inputs="a", outputs="b"), Processor(route, inputs="b", outputs="c")]
    graph = Graph("g", Source("a"), *parts, defaults=Topic(value=Json(), partitions=2))
    planned = Deleting(graph, tester.broker).unused()

    assert [(part.name, part.declared, part.group, part.topics) for part in planned.parts] == [
        ("clean", True, "", CLEAN[:2]),
        ("route", True, "", ROUTE[:1]),
    ]
    assert (
        "without 'g.clean.seen.changelog': its task refuses to run until `cues-kafka rebuild MODULE"
        in planned.warnings[0]
    )
    assert not any("transactional ids" in line for line in planned.lines())
    carried_out(tester, planned, graph)
    assert Deleting(graph, tester.broker).unused().empty
    after = Tester(graph, broker=tester.broker)
    after.send("a", 9)
    assert sorted(after.run().values("c")) == [0, 1, 2, 3, 9]
    after.stop()
    with pytest.raises(TaskStopped, match="cues-kafka rebuild MODULE:GRAPH"):
        Tester(GRAPH, broker=tester.broker).run()


def test_nothing_is_deleted_under_a_worker() -> None:
    """Whatever is to be deleted: a topic that it reads, writes or gives errors to, its processor, the graph."""
    tester = delivered(stop=False)
    tool = Deleting(GRAPH, tester.broker)
    before = tester.broker.partitions()

    for planned in (tool.whole(), tool.processor("clean"), tool.topic("b"), tool.topic("g.errors")):
        with pytest.raises(RecoveryError, match=r"group 'g\.clean' has members .* 45 s by default"):
            tool.carry_out(planned)
    assert tester.broker.partitions() == before
    tester.stop()
    tool.carry_out(tool.topic("c"))
    assert "c" not in tester.broker.partitions()


def test_a_worker_that_starts_meanwhile_keeps_its_backing_topic() -> None:
    """It has not lost its place, so nothing is delivered twice."""
    tester = delivered()
    planned = Deleting(GRAPH, tester.broker).processor("route")

    class Starting:
        """A cluster where a worker starts while the replay topic is deleted."""

        def __getattr__(self, name: str) -> Any:
            return getattr(tester.broker, name)

        def delete(self, topics: list[str]) -> None:
            tester.broker.delete(topics)
            tester.restart()
            tester.run()

    with pytest.raises(RecoveryError, match=r"group 'g\.route' has members"):
        Deleting(GRAPH, Starting()).carry_out(planned)
    assert "g.route.backing" in tester.broker.partitions()
    assert sorted(tester.values("c")) == [0, 1, 2, 3]


def test_a_group_that_stays_is_not_said_to_be_gone() -> None:
    """It has the offset of a topic that was created since the topics were listed."""
    tester = delivered()
    planned = Deleting(GRAPH, tester.broker).processor("route")

    class Keeping:
        def __getattr__(self, name: str) -> Any:
            return getattr(tester.broker, name)

        def forget(self, group: str, topics: Any) -> bool:
            return False

    told: list[str] = []
    Deleting(GRAPH, Keeping()).carry_out(planned, tell=told.append)

    assert told[0].startswith("group g.route stays: it has offsets of a topic")
    assert not any(line.endswith("is deleted") and line.startswith("group") for line in told)


@pytest.mark.parametrize("after", range(1, 5))
def test_a_deletion_that_was_cut_short_is_run_again_to_its_end(after: int) -> None:
    """Behind each of its steps; and a graph that is started instead delivers nothing twice."""
    tester = delivered()
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if len(told) == after:
            raise RetriableError("cut short")

    tool = Deleting(GRAPH, tester.broker)
    with pytest.raises(RetriableError):
        tool.carry_out(tool.processor("clean"), tell=tell)
    rest = Deleting(GRAPH, tester.broker).processor("clean")
    assert rest.empty == (after == 4)
    carried_out(tester, rest)

    assert not {*CLEAN} & {*tester.broker.partitions()}
    assert "g.clean" not in groups(tester.broker)
    assert told[0] == "group g.clean is deleted"


def test_a_transaction_that_is_open_is_not_cut_off() -> None:
    """A query on Spark is no member of the group."""
    tester = delivered()
    session = tester.broker.session("g.route.0")
    session.init(timeout_s=1)
    session.begin()
    session.produce([("g.route.backing", 0, b"t", b"x", None, 0)])

    with pytest.raises(RecoveryError, match=r"a transaction is open in g\.route\.backing"):
        carried_out(tester, Deleting(GRAPH, tester.broker).processor("route"))
    assert {*ROUTE} < {*tester.broker.partitions()}


def test_one_topic_of_the_graph_may_go() -> None:
    """Not one of the framework's own, and none that the graph does not use."""
    tool = Deleting(GRAPH, delivered().broker)

    planned = tool.topic("b")
    assert planned.topics == ("b",)
    assert "read by route. A topic that is created again" in planned.warnings[0]
    with pytest.raises(ConfigError, match=r"belongs to 'clean'. Delete it with its processor: MODULE:GRAPH clean"):
        tool.topic("g.clean.backing")
    with pytest.raises(ConfigError, match="does not use a topic 'other'"):
        tool.topic("other")


@pytest.mark.parametrize(
    ("graph", "topic", "owner"),
    [
        ("team-x.g", "team-x.g.clean.backing", "clean"),
        ("team-x.g", "team-x.g.clean.seen.changelog", "clean"),
        ("team-x", "team-x.g.clean.backing", None),
        ("team-x", "team-x.g.clean.seen.changelog", None),
        ("g", "team-x.g.clean.backing", None),
        ("g", "g.clean.changelog", None),
        ("g", "g.send.tailers", None),
        ("g", "g.backing", None),
        ("g", "g.control", None),
    ],
)
def test_topics_of_another_graph_are_never_taken_for_ones_of_this(graph: str, topic: str, owner: str | None) -> None:
    """Also where the name of one begins with that of the other, as with a prefix."""
    assert processor_of(graph, topic) == owner


MODULE = """
from cues_kafka import *
def route(n): return n
graph = Graph("g", Source("b"), Processor(route, inputs="b", outputs="c"), errors="g.errors",
              defaults=Topic(value=Json(), partitions=2))
"""


def test_the_command_deletes_when_the_name_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal, only with --confirm; at an address that was not given, never."""
    tester = delivered()
    monkeypatch.setattr("cues_kafka.brokers.open.open_broker", lambda _: tester.broker)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(MODULE)

    def delete(*options: str, to: tuple[str, ...] = ("--bootstrap", "localhost:9092")) -> Result:
        return CliRunner().invoke(app, ["delete", f"{tmp_path / 'app.py'}:graph", *options, *to])

    shown = delete("--unused")
    assert (shown.exit_code, "clean (no longer in the graph):" in shown.stdout) == (1, True)
    assert "Nothing was deleted. Add --confirm g to do it." in shown.output
    assert '"group": "g.clean"' in delete("--unused", "--json").stdout
    for wrong in (["--confirm", "shop"], ["route", "--unused"], ["route", "--data"], ["--topic", "z"]):
        assert delete(*wrong).exit_code == 2
    assert delete("--unused", "--confirm", "g", to=()).exit_code == 2
    assert {*CLEAN} < {*tester.broker.partitions()}

    done = delete("--unused", "--confirm", "g")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "topic g.clean.backing is deleted")
    assert "nothing to delete" in delete("--unused", "--confirm", "g").stdout
    monkeypatch.setattr("cues_kafka.cli.delete._at_a_terminal", lambda: True)
    command = ["delete", f"{tmp_path / 'app.py'}:graph", "route", "--bootstrap", "localhost:9092"]
    assert CliRunner().invoke(app, command, input="no\n").exit_code == 1
    assert CliRunner().invoke(app, command, input="g\n").exit_code == 0
    assert not {*ROUTE} & {*tester.broker.partitions()}


def told(tester: Tester, state: Any = "idle", runtime: str = "spark", every_s: float = 5.0) -> None:
    """A driver tells that it runs `clean`, on the graph's status topic."""
    if "g.status" not in tester.broker.partitions():
        tester.broker.create([NewTopic("g.status", 1, config={"cleanup.policy": "compact"})])
    owner = TaskOwner(instance="spark-1", host="node-7", pid=12, runtime=runtime)
    value = encode_status(StatusRecord(task="clean/0", state=state, owner=owner, every_s=every_s))
    tester.broker.sender("driver").send([("g.status", 0, b"clean/0", value, None, 0)])


@pytest.mark.parametrize("name", ["clean", ""])
def test_what_an_idle_driver_of_spark_runs_is_not_deleted(name: str) -> None:
    """It is no member of a group and has no transaction; `--unused` names a processor that is not declared any more."""
    tester, graph = delivered(), graph_of("clean")
    told(tester)
    tool = Deleting(graph, tester.broker)
    planned = tool.processor(name) if name else tool.unused()

    with pytest.raises(
        RecoveryError, match=r"spark-1 \(node-7, pid 12\) runs clean on Spark, and reported it 0 s ago"
    ) as refused:
        tool.carry_out(planned)
    assert "has not reported for 15 s" in str(refused.value)
    assert {*CLEAN} <= {*tester.broker.partitions()}

    told(tester, state="left")
    tool.carry_out(planned)
    assert not {*CLEAN} & {*tester.broker.partitions()}


@pytest.mark.parametrize("last", [{"every_s": -1.0}, {"runtime": "native"}])
def test_a_driver_that_has_told_nothing_for_three_periods_is_gone(last: dict[str, Any]) -> None:
    """Native workers are members of their group, which tells sooner. Other processors are not asked for."""
    tester = delivered()
    told(tester)
    carried_out(tester, Deleting(GRAPH, tester.broker).processor("route"))
    told(tester, **last)
    carried_out(tester, Deleting(GRAPH, tester.broker).processor("clean"))
    assert not {*CLEAN} & {*tester.broker.partitions()}


def test_status_that_may_not_be_read_is_said_and_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rights that a deletion needs stay as they were."""
    tester = delivered()
    told(tester)
    monkeypatch.setattr(StatusView, "told", _forbidden)
    said = carried_out(tester, Deleting(GRAPH, tester.broker).processor("clean"))
    assert said[0] == (
        "if Spark runs 'clean', stop its query first: that was not looked at, because user `ann` may not read topic "
        "`g.status`"
    )
    assert "topic g.clean.backing is deleted" in said


def _forbidden(_: Any) -> Any:
    raise FatalError("user `ann` may not read topic `g.status`", code="TOPIC_AUTHORIZATION_FAILED")
