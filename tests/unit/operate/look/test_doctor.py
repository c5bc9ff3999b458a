"""What `doctor` finds: each ailment is made, and found with its remedy; a healthy graph has none."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cues_kafka import Graph, Json, Processor, Source, Topic
from cues_kafka.brokers.examination import Examination, GroupHealth, NodeFacts, TopicHealth
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.cli.main import app
from cues_kafka.errors import FatalError, RetriableError, UnstableOffsets
from cues_kafka.operate.look.broker_checks import NEEDED
from cues_kafka.operate.look.doctor import Ailment, examine
from cues_kafka.operate.look.held_offsets import offsets_partition
from cues_kafka.plan.acls import grant
from cues_kafka.ports.facts import ClusterFacts, NewTopic, Watermarks
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.tester import Crash, Tester

APIS = {api: version for api, version, _, _ in NEEDED.values()}


def double(n: int) -> int:
    """A pipe."""
    return 2 * n


def graph_of(**declared: Any) -> Graph:
    """One processor `work`, from `a` to `out`."""
    work = Processor(double, name="work", **{"inputs": "a", "outputs": "out", **declared})
    return Graph("g", Source("a"), work, defaults=Topic(value=Json(), partitions=2))


GRAPH = graph_of()


def delivered(stop: bool = True) -> Tester:
    """The graph has delivered two messages on three brokers."""
    tester = Tester(GRAPH)
    for n in range(4):
        tester.send("a", n, key=str(n))
    tester.run()
    if stop:
        tester.stop()
    return tester


class Seen:
    """A cluster of three brokers, with other answers to some questions."""

    def __init__(self, broker: MemoryBroker, **answers: Callable[..., Any]) -> None:
        self._broker, self._answers = broker, answers

    def __getattr__(self, name: str) -> Any:
        return self._answers.get(name) or getattr(self._broker, name)

    def examine(self, topics: Any, groups: Any) -> Examination:
        if answer := self._answers.get("examine"):
            given: Examination = answer(topics, groups)
            return given
        found = self._broker.examine(topics, groups)
        return found._replace(topics=dict.fromkeys(found.topics, TopicHealth((), (3, 3), (3, 3), None)))

    def facts(self, topics: Any) -> ClusterFacts:
        found: ClusterFacts = self._answers.get("facts", self._broker.facts)(topics)
        sound = {"min.insync.replicas": "2"}
        known = {t: replace(one, replication=3, config={**one.config, **sound}) for t, one in found.topics.items()}
        return replace(found, brokers=3, topics=known)


def ailments(tester: Tester, graph: Graph = GRAPH, clock: Any = None, **answers: Any) -> list[Ailment]:
    """All of them."""
    broker = Seen(tester.broker, **answers)
    return list(examine(graph, broker, address="here:9092", clock=clock or tester.clock))


def test_a_graph_that_is_well_has_no_ailments() -> None:
    """Idle, at work, and before its first start, where only topics are missing."""
    assert ailments(delivered()) == []
    assert ailments(delivered(stop=False)) == []
    [missing] = examine(GRAPH, Seen(MemoryBroker()))
    assert (missing.check, missing.wrong, missing.remedy) == ("topics", False, "`cues-kafka plan MODULE:GRAPH --apply`")


def test_a_cluster_that_does_not_answer_is_all_that_is_said() -> None:
    """Nothing else can be looked at."""

    def away(_: Any) -> Any:
        raise RetriableError("Kafka did not answer within 10 s")

    [ailment] = ailments(delivered(), facts=away)

    assert ailment == Ailment("reach", True, "Kafka did not answer within 10 s")


def test_rights_of_a_user_who_may_not_see_all_topics_are_checked() -> None:
    """Only a worker, a deployer and a verifier see all of them; what the role needs and the user lacks is wrong."""
    tester = delivered()

    def none_of(*hidden: str) -> dict[str, Callable[..., Any]]:
        def hide(ask: Callable[..., Any]) -> Callable[..., Any]:
            def asked(topics: Any) -> Any:
                if set(hidden) & set(topics):
                    raise FatalError("user `ann` may not describe topics", code="TOPIC_AUTHORIZATION_FAILED")
                return ask(topics)

            return asked

        return {"facts": hide(tester.broker.facts), "partitions": hide(tester.broker.partitions)}

    only = "This user may not see all topics of the graph, so only the rights of the role sender were checked."
    [note] = examine(GRAPH, Seen(tester.broker, **none_of("out")), role="sender")
    assert (note.check, note.wrong, note.what) == ("reach", False, only)
    assert note.remedy.endswith("as the user of a worker, who may see them all")

    _, lacking = examine(GRAPH, Seen(tester.broker, **none_of("a", "out")), role="sender")
    assert lacking == Ailment(
        "permissions",
        True,
        "The user of this client lacks Write on topic a, which the role sender needs.",
        "`kafka-acls --bootstrap-server BOOTSTRAP --add --allow-principal User:NAME --operation Write --topic a`",
    )

    [wrong] = examine(GRAPH, Seen(tester.broker, **none_of("out")))
    assert (wrong.check, wrong.wrong) == ("reach", True)
    assert "as the user of a worker" in wrong.remedy

    away = none_of("out")["facts"]

    def gone(_: Any) -> Any:
        raise RetriableError("Kafka did not answer within 10 s")

    _, unchecked = examine(GRAPH, Seen(tester.broker, facts=away, partitions=gone), role="sender")
    assert unchecked == Ailment("permissions", True, "Not checked: Kafka did not answer within 10 s")


def test_a_check_that_cannot_be_made_is_an_ailment() -> None:
    """The others are made."""

    def refused(*_: Any) -> Any:
        raise FatalError("the brokers refuse it")

    verdict, ailment = ailments(delivered(), partitions=refused)

    assert verdict == Ailment("verdict", True, "g: the cluster does not answer: the brokers refuse it.")
    assert ailment == Ailment("leftovers", True, "Not checked: the brokers refuse it")

    def forbidden(*_: Any) -> Any:
        raise FatalError("user `till` may not list topics", code="CLUSTER_AUTHORIZATION_FAILED")

    _, ailment = ailments(delivered(), partitions=forbidden)
    seldom = "Not looked at, for this user has no right to it: user `till` may not list topics. This check needs the"
    assert (ailment.check, ailment.wrong, ailment.what) == ("leftovers", False, f"{seldom} rights of a worker.")
    assert ailment.remedy == "see `permissions`, or run `cues-kafka doctor MODULE:GRAPH` as the user of a worker"


@pytest.mark.parametrize("role", ["deployer", "verifier"])
def test_what_a_role_may_not_look_at_is_not_called_ok(role: Any) -> None:
    """No group may be described, so no command is printed that would give the role more than it needs."""

    def hidden(_: Any) -> Any:
        command = grant("User:ann", ["Describe"], "group", ["g.work"])
        what = "describing group g.work: user `ann` may not describe group `g.work` [GROUP_AUTHORIZATION_FAILED]"
        raise FatalError(f"{what}. Grant it with `{command}`", code="GROUP_AUTHORIZATION_FAILED")

    closed = examination(groups=lambda known: dict.fromkeys(known, GroupHealth("", (), frozenset())))
    found = list(examine(GRAPH, Seen(delivered().broker, examine=closed, members=hidden), role=role))

    assert [(one.check, one.wrong) for one in found] == [("groups", False), ("tasks", False)]
    of_groups, of_tasks = (one.what for one in found)
    assert "the user of this client may not describe groups g.work. This check needs the rights of a wor" in of_groups
    assert of_tasks.startswith("Not looked at, for this user has no right to it: describing group g.work: user `ann`")
    assert {one.remedy for one in found} == {"run `cues-kafka doctor MODULE:GRAPH` as the user of a worker"}
    assert "kafka-acls" not in of_tasks


def examination(**given: Any) -> Callable[..., Examination]:
    """The answer of a healthy cluster, with some of it replaced."""
    nodes = tuple(NodeFacts(n, f"kafka-{n}:9092", APIS) for n in (1, 2, 3))

    def answer(topics: Any, groups: Any) -> Examination:
        health = TopicHealth((), (3, 3), (3, 3), None)
        sound = Examination(
            nodes, dict.fromkeys(topics, health), {group: GroupHealth("Empty", (), None) for group in groups}, (), {}
        )
        return sound._replace(**{name: one(getattr(sound, name)) for name, one in given.items()})

    return answer


def with_topic(name: str, health: TopicHealth) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    return lambda known: {**known, name: health}


CLUSTERS: Mapping[str, tuple[Any, str, bool, str]] = {
    "silent": (
        examination(nodes=lambda nodes: (nodes[0]._replace(apis=None), *nodes[1:])),
        "Broker 1 gives clients the address kafka-1:9092, and does not answer",
        True,
        "advertised.listeners",
    ),
    "untold": (
        examination(nodes=lambda nodes: (nodes[0]._replace(apis={}), nodes[1], nodes[2]._replace(apis=None))),
        "Broker 3 gives clients the address kafka-3:9092, and does not answer",
        True,
        "advertised.listeners",
    ),
    "old": (
        examination(nodes=lambda nodes: tuple(node._replace(apis={**APIS, 28: 2}) for node in nodes)),
        "Broker 1, 2, 3 has no TxnOffsetCommit v3",
        True,
        "upgrade to Kafka 2.5",
    ),
    "mixed": (
        examination(nodes=lambda nodes: (nodes[0]._replace(apis={**APIS, 99: 1}), *nodes[1:])),
        "different releases",
        False,
        "finish the upgrade",
    ),
    "leaderless": (
        examination(topics=with_topic("a", TopicHealth((1,), (3, 0), (3, 3), None))),
        "No broker leads a/1",
        True,
        "start the brokers that are down",
    ),
    "few": (
        examination(topics=with_topic("out", TopicHealth((), (1, 3), (3, 3), None))),
        "Too few replicas are in sync of out/0, so writes are refused.",
        True,
        "start the brokers that are down",
    ),
    "thin": (
        examination(topics=with_topic("out", TopicHealth((), (3, 2), (3, 3), None))),
        "Replicas are not in sync of out/1.",
        False,
        "start the brokers that are down",
    ),
    "many": (
        examination(topics=lambda known: dict.fromkeys(known, TopicHealth((), (2, 2), (3, 3), None))),
        "Replicas are not in sync of a/0, a/1, out/0, out/1 and 2 other partitions.",
        False,
        "start the brokers that are down",
    ),
    "unread": (examination(settings=lambda _: None), "may not read the settings of the brokers", False, "--cluster`"),
    "ids": (
        examination(settings=lambda _: {"transactional.id.expiration.ms": "3600000"}),
        "transactional.id.expiration.ms=3600000, 1 hours",
        False,
        "--alter --entity-type brokers --entity-default --add-config transactional.id.expiration.ms=604800000",
    ),
    "offsets": (
        examination(settings=lambda _: {"offsets.retention.minutes": "60"}),
        "offsets.retention.minutes=60, 1 hours",
        False,
        "--add-config offsets.retention.minutes=10080",
    ),
    "time-out": (
        examination(settings=lambda _: {"transaction.max.timeout.ms": "30000"}),
        "our transactions ask for 60000: no task can start",
        True,
        "--add-config transaction.max.timeout.ms=60000",
    ),
    "rebalancing": (
        examination(groups=lambda known: dict.fromkeys(known, GroupHealth("PreparingRebalancing", ("w-1",), None))),
        "Group g.work is PreparingRebalancing: it has members (w-1)",
        False,
        "10 s by default",
    ),
    "rights": (
        examination(
            topics=with_topic("out", TopicHealth((), (3, 3), (3, 3), frozenset({"Describe"}))),
            groups=lambda known: dict.fromkeys(known, GroupHealth("", (), frozenset({"Read"}))),
        ),
        "The user of this client lacks Write on topic out, which the role worker needs",
        True,
        "`kafka-acls --bootstrap-server here:9092 --add --allow-principal User:NAME --operation Write --topic out`",
    ),
}


@pytest.mark.parametrize(("answer", "what", "wrong", "remedy"), CLUSTERS.values(), ids=CLUSTERS)
def test_what_is_wrong_with_a_cluster_is_said_with_its_remedy(answer: Any, what: str, wrong: bool, remedy: str) -> None:
    """And nothing else, but for a second right that is missing."""
    found = ailments(delivered(), examine=answer)

    ailment = next(one for one in found if what in one.what)
    assert (ailment.wrong, remedy in ailment.remedy) == (wrong, True)
    assert [one.what for one in found if one is not ailment and "lacks DescribeConfigs" not in one.what] == []


def test_settings_of_topics_are_judged_as_by_a_plan() -> None:
    """In the words of the plan, with its commands."""
    tester = delivered()
    tester.broker.configure("g.work.backing", {"cleanup.policy": "delete"})

    [ailment] = ailments(tester)

    assert (ailment.check, ailment.wrong) == ("topics", True)
    assert (
        "kafka-configs --bootstrap-server here:9092 --alter --topic g.work.backing --add-config cleanup.policy=compact"
        in ailment.what
    )


def test_an_open_transaction_is_named_with_the_command_that_ends_it() -> None:
    """Only if it is still the same one after a while."""
    tester = delivered()
    session = tester.broker.session("stranger")
    session.init(timeout_s=1)
    session.begin()
    session.produce([("out", 1, None, b"1", None, 0)])
    low, stable, high = tester.broker.watermarks([TopicPartition("out", 1)])[TopicPartition("out", 1)]
    assert low <= stable < high

    [ailment] = ailments(tester)

    assert (ailment.check, ailment.wrong) == ("transactions", True)
    assert "open for at least 3 s, and hides out/1 from" in ailment.what
    command = "kafka-transactions --bootstrap-server here:9092 abort --topic out --partition 1 --start-offset"
    assert f"{command} {stable}`" in ailment.remedy

    class Moving:
        """Time in which the transaction ends, and another one begins."""

        def __getattr__(self, name: str) -> Any:
            return getattr(tester.clock, name)

        def sleep(self, _: float) -> None:
            session.flush()
            session.commit()
            session.begin()
            session.produce([("out", 1, None, b"2", None, 0)])

    assert ailments(tester, clock=Moving()) == []


def test_transaction_that_holds_offsets_is_named_with_the_command_that_ends_it() -> None:
    """With its place, where this user may see it; else with the command that finds it. One that ends is nothing."""
    tester = delivered()
    partition = TopicPartition("__consumer_offsets", offsets_partition("g.work", 50))
    starts: Iterator[int] = itertools.repeat(40)

    def held(group: str, places: Any) -> Any:
        raise UnstableOffsets(f"an open transaction holds offsets of {group}")

    def partitions(topics: Any = None) -> dict[str, int]:
        return {"__consumer_offsets": 50} if topics == ["__consumer_offsets"] else tester.broker.partitions(topics)

    def watermarks(places: Any) -> Any:
        if list(places) == [partition]:
            return {partition: Watermarks(0, next(starts), 60)}
        return tester.broker.watermarks(places)

    def found(**answers: Any) -> list[Ailment]:
        given = {"committed": held, "partitions": partitions, "watermarks": watermarks, **answers}
        return [one for one in ailments(tester, **given) if one.check == "transactions"]

    def forbidden(_: Any = None) -> Any:
        raise FatalError("user `ann` may not describe topics", code="TOPIC_AUTHORIZATION_FAILED")

    [ailment] = found()
    assert ailment.wrong
    assert "A transaction has held offsets of group g.work for at least 3 s" in ailment.what
    at = f"--topic __consumer_offsets --partition {partition.partition}"
    assert ailment.remedy == (
        f"if it stays: `kafka-transactions --bootstrap-server here:9092 abort {at} --start-offset 40`"
    )
    [note] = found(partitions=lambda topics=None: forbidden() if topics else tester.broker.partitions(topics))
    assert not note.wrong
    assert "`kafka-transactions --bootstrap-server here:9092 find-hanging --topic __consumer_offsets`" in note.remedy
    starts = itertools.count(40)
    assert found() == []
    assert found(committed=tester.broker.committed) == []


def test_messages_that_no_worker_delivers_are_noted() -> None:
    """With the command that runs the processor; a marker at the end of an input is no message."""
    tester = delivered()
    session = tester.broker.session("stranger")
    session.init(timeout_s=1)
    session.begin()
    session.produce([("a", 1, None, b"1", None, 0)])
    session.flush()
    session.commit()

    [ailment] = ailments(tester)

    assert (ailment.check, ailment.wrong) == ("groups", True)
    assert "No worker runs work, and 2 offsets of its inputs wait" in ailment.what
    assert ailment.remedy == "`cues-kafka run MODULE:GRAPH --only work`"
    tester.restart()
    tester.run()
    tester.stop()
    assert ailments(tester) == []


def test_workers_that_commit_nothing_while_messages_wait_are_noted() -> None:
    """For as long as they were watched."""
    tester = delivered(stop=False)
    tester.send("a", 9, key="1")

    [ailment] = ailments(tester)

    assert (ailment.check, ailment.wrong) == ("groups", False)
    assert "committed nothing for 3 s, while messages of a/" in ailment.what


def test_a_worker_that_was_killed_is_a_member_until_its_session_ends() -> None:
    """Until then the remedy says so, and from then on how to run the processor."""
    tester = delivered(stop=False)
    tester.send("a", 9, key="1")
    tester.run(crash=Crash("before", "Begin", 1))
    assert tester.crashed
    [dead] = tester.broker.members("g.work")

    [ailment] = ailments(tester)

    assert (ailment.check, ailment.wrong) == ("groups", False)
    assert f"work has workers ({dead}), and committed nothing for 3 s, while messages of a/" in ailment.what
    assert "Or a process is dead, and one that was killed is a member until its session ends" in ailment.remedy
    tester.broker.expire("g.work")
    assert [one.what.partition(",")[0] for one in ailments(tester)] == ["No worker runs work"]
    tester.run()
    assert ailments(tester) == []


def test_retention_that_is_about_to_take_what_is_not_delivered_is_wrong() -> None:
    """Half of it is over."""
    tester = delivered()
    tester.broker.configure("a", {"retention.ms": str(8 * 3_600_000)})
    tester.send("a", 9, key="1")
    assert [one.check for one in ailments(tester)] == ["groups", "topics"][:1]
    tester.clock.advance(5 * 3600)

    found = ailments(tester)

    [ailment] = [one for one in found if one.check == "topics"]
    assert ailment.wrong
    assert "older than half of what the topic keeps (0.333333 days)" in ailment.what
    assert "--topic a --add-config retention.ms=-1`" in ailment.remedy


class Shifted:
    """A clock of a machine that goes wrong by some seconds."""

    def __init__(self, clock: Any, by_s: float, then: Callable[[], Any] = lambda: None) -> None:
        self._clock, self._by_s, self._then = clock, by_s, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    def time(self) -> float:
        return float(self._clock.time() + self._by_s)

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)
        self._then()


def test_a_clock_of_the_brokers_that_is_ahead_is_found_by_their_stamps() -> None:
    """A record cannot have been written in the future."""
    tester = delivered()

    [ailment] = ailments(tester, clock=Shifted(tester.clock, -60))

    assert (ailment.check, ailment.wrong) == ("clock", True)
    assert "The clock of a broker is 60 s ahead of the one of this machine." in ailment.what


def test_a_clock_of_the_brokers_that_is_behind_is_found_where_records_come() -> None:
    """One that came while it was looked at cannot have been written before."""
    tester = delivered(stop=False)
    tester.send("a", 9, key="1")

    found = ailments(tester, clock=Shifted(tester.clock, 60, tester.run))

    assert [(one.check, one.wrong) for one in found] == [("clock", True)]
    assert "s behind the one of this machine" in found[0].what


def test_tasks_that_would_stop_are_wrong() -> None:
    """As `plan --records` says it."""
    found = ailments(delivered(), graph_of(strategy="at-least-once"))

    [ailment] = [one for one in found if one.check == "tasks"]
    assert ailment.wrong
    assert ailment.what.startswith("work/0, work/1: the newest record of 'g.work.backing' was written exactly-once")
    assert "`cues-kafka strategy MODULE:GRAPH work`" in ailment.remedy


def test_what_removed_processors_have_left_is_noted() -> None:
    """Topics and groups under the graph's name; those of other graphs and of tools are not."""
    tester = delivered()
    for topic in ("g.gone.backing", "g.gone.store.changelog", "other.gone.backing", "g.a.b.c", "g.free.tailers"):
        tester.broker.create([NewTopic(topic, 1)])

    listed = lambda _: ("g.gone", "g.other-app", "g.tools", "g.work", "other.gone", "gg.gone")  # noqa: E731
    found = ailments(tester, examine=examination(listed=listed))

    assert [(one.check, one.wrong) for one in found] == [("leftovers", False)]
    assert "topics g.gone.backing, g.gone.store.changelog and groups g.gone belong to processors" in found[0].what
    assert found[0].remedy.startswith("`cues-kafka delete MODULE:GRAPH --unused`")


def test_the_command_ends_with_1_if_something_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text for people, JSON for programs; remedies name the graph that it was given."""
    tester = delivered()
    monkeypatch.setattr("cues_kafka.brokers.open.open_broker", lambda _: Seen(tester.broker))
    path = tmp_path / "sick.py"
    path.write_text(
        "from cues_kafka import *\ndef work(n): return n\n"
        'graph = Graph("g", Source("a"), Processor(work, inputs="a", outputs="out"), '
        "defaults=Topic(value=Json(), partitions=2))\n"
    )
    command = ["doctor", f"{path}:graph", "--bootstrap", "localhost:9092", "--for", "0"]

    without = CliRunner().invoke(app, command)
    assert (without.exit_code, without.stdout.splitlines()[-1]) == (0, "Nothing is wrong, 1 note.")
    assert "The cluster is not as the graph declares it" in without.stdout
    monkeypatch.setenv("CUES_KAFKA_STATUS_EVERY_S", "0")
    monkeypatch.setenv("CUES_KAFKA_CONTROL", "false")
    well = CliRunner().invoke(app, command)
    assert (well.exit_code, well.stdout.splitlines()[-1]) == (0, "Nothing is wrong.")
    tester.broker.trim(dict.fromkeys([TopicPartition("a", 0)], 1))
    tester.broker.delete(["g.work.backing"])
    tester.broker.create([NewTopic("g.work.backing", 2, config={"cleanup.policy": "compact"})])
    sick = CliRunner().invoke(app, command)
    assert sick.exit_code == 1
    assert "tasks:\n  WRONG work/0, work/1: backing topic 'g.work.backing' is empty" in sick.stdout
    assert f"`cues-kafka reset {path}:graph work`" in sick.stdout
    data = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert (data["graph"], data["wrong"]) == ("g", len([one for one in data["findings"] if one["wrong"]]))
    assert CliRunner().invoke(app, [*command, "--role", "king"]).exit_code == 2
    assert "--for -1: takes a number of seconds" in CliRunner().invoke(app, [*command, "--for", "-1"]).output

    def away(_: Any) -> Any:
        raise RetriableError("Kafka did not answer within 10 s")

    monkeypatch.setattr("cues_kafka.brokers.open.open_broker", lambda _: Seen(tester.broker, facts=away))
    unreached = CliRunner().invoke(app, command)
    assert unreached.exit_code == 1
    assert "reach:\n  WRONG Kafka did not answer within 10 s\n\nNothing else could be checked." in unreached.stdout
    assert "ok" not in unreached.stdout

    def hidden(topics: Any) -> Any:
        if topics:
            raise FatalError("user `ann` may not describe topics", code="TOPIC_AUTHORIZATION_FAILED")
        return tester.broker.facts(topics)

    monkeypatch.setattr("cues_kafka.brokers.open.open_broker", lambda _: Seen(tester.broker, facts=hidden))
    alone = CliRunner().invoke(app, [*command, "--role", "sender"])
    assert alone.exit_code == 0
    assert "reach:\n  note  This user may not see all topics" in alone.stdout
    assert "permissions: ok\n\nNothing else could be checked." in alone.stdout
