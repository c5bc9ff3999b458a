"""Plans: names, tasks, topics to create, ACLs, and reasons to refuse."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import pytest

from cues_kafka import (
    CommitPolicy,
    ConfigError,
    DataFrameProcessor,
    Dedupe,
    Graph,
    Header,
    Kafka,
    Memory,
    Out,
    Processor,
    Source,
    Table,
    Topic,
    rekey,
)
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.core.hashing import fingerprint
from cues_kafka.errors import FatalError
from cues_kafka.graph.declare import Store
from cues_kafka.graph.levels import SEND
from cues_kafka.graph.names import sender_id, transactional_id
from cues_kafka.plan.acls import Acl, grant, kafka_acls
from cues_kafka.plan.inspectors import Terms, facts_of
from cues_kafka.plan.plan import plan
from cues_kafka.plan.processors import PlannedTask
from cues_kafka.plan.topics import STATUS_SEGMENT_BYTES, Growth, Sides, backing_config, topics_to_ask
from cues_kafka.ports.facts import ClusterFacts, NewTopic, TopicFacts
from cues_kafka.task.making.names import inspect_names

SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
BACKING = {**SAFE, "cleanup.policy": "compact"}


def anything(*messages: Any, **rest: Any) -> Any: ...


def facts(
    brokers: int = 3, /, *, replication: int | None = None, config: Mapping[str, str] | None = None, **sizes: int
) -> ClusterFacts:
    """Topics with their number of partitions; ``__`` in a keyword stands for a dot."""
    copies = min(3, brokers) if replication is None else replication
    topics = {}
    for keyword, partitions in sizes.items():
        name = keyword.replace("__", ".")
        usual = BACKING if name.endswith(("backing", "changelog")) else SAFE
        topics[name] = TopicFacts(name, name.encode().ljust(16, b"."), partitions, copies, {**usual, **(config or {})})
    return ClusterFacts(brokers, topics)


PIPE = Graph(
    "shop",
    Source("orders"),
    Processor(anything, name="check", inputs="orders", outputs="checked"),
    errors="shop.errors",
    defaults=Topic(partitions=4),
)
JOIN = Graph("flights", Processor(anything, name="zip", inputs={"a": "left", "b": "right"}, outputs="both"))


def test_everything_is_named_as_the_design_says() -> None:
    """The table of names in docs/plan.md; the replay topic is X1."""
    graph = Graph(
        "shop", Processor(anything, name="check", inputs="orders", outputs="o", state={"totals": Store()}, errors="e")
    )
    [planned] = plan(graph, facts(orders=3)).processors

    assert planned.group == "shop.check"
    assert planned.transactional_prefix == "shop.check."
    assert "shop.check.2" == planned.transactional_id(2) == transactional_id("shop", "check", 2)
    assert (planned.backing, planned.replay) == ("shop.check.backing", "shop.check.replay")
    assert planned.changelogs == (("totals", "shop.check.totals.changelog"),)
    assert sender_id("shop", "orders", "client") == "shop.orders.send.client"
    assert tuple(map(str, planned.tasks)) == ("check/0", "check/1", "check/2")


def test_an_empty_cluster_gets_all_topics() -> None:
    """The user's first, then the framework's own, as many partitions as the lead input has."""
    planned = plan(PIPE, facts())

    assert [
        NewTopic("checked", 4, 3, {"min.insync.replicas": "2"}),
        NewTopic("orders", 4, 3, {"min.insync.replicas": "2"}),
        NewTopic("shop.errors", 4, 3, {"min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"}),
        NewTopic("shop.check.backing", 4, 3, backing_config(3)),
        NewTopic("shop.check.replay", 4, 3, {**backing_config(3), "cleanup.policy": "delete", "retention.ms": "-1"}),
    ] == list(planned.create)
    assert (planned.warnings, planned.refusals) == ((), ())
    planned.refuse()


def test_backing_topics_are_compacted_and_stamped_by_the_broker() -> None:
    """O5; a single broker cannot have two copies in sync."""
    assert backing_config(3) == {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": "2",
        "segment.bytes": "16777216",
        "unclean.leader.election.enable": "false",
    }
    assert (backing_config(1)["min.insync.replicas"], backing_config(None)["min.insync.replicas"]) == ("1", "2")


def test_settings_that_we_choose_may_be_left_out_and_those_of_the_user_never() -> None:
    """A managed cluster may keep them to itself. Without compaction a task would not find its record."""
    declared = {"checked": Topic(config={"min.insync.replicas": "3", "segment.bytes": "50000000"})}
    graph = Graph("g", Source("a"), Processor(anything, name="check", inputs="a", outputs="checked"), topics=declared)

    may_lack = {topic.name: topic.may_lack for topic in plan(graph, facts(a=4)).create}

    assert may_lack == {
        "checked": (),
        "g.check.backing": ("segment.bytes", "unclean.leader.election.enable", "min.insync.replicas"),
    }
    assert {topic.name: topic.may_lack for topic in plan(PIPE, facts()).create}["shop.errors"] == (
        "min.insync.replicas",
    )
    assert "may_lack" not in plan(PIPE, facts()).to_dict()["create"][0]


def test_what_exists_is_not_created_and_decides_the_number_of_tasks() -> None:
    """The declared number of partitions is for topics that are missing."""
    planned = plan(PIPE, facts(orders=6, checked=4, shop__errors=1))

    assert [topic.name for topic in planned.create] == ["shop.check.backing", "shop.check.replay"]
    assert len(planned.tasks) == 6
    assert {6} == {topic.partitions for topic in planned.create}


def test_settings_of_the_user_go_to_topics_that_are_created() -> None:
    """And win over ours."""
    graph = Graph("g", Source("a"), topics={"a": Topic(config={"retention.ms": "5", "min.insync.replicas": "3"})})

    assert dict(plan(graph, facts()).create[0].config) == {"retention.ms": "5", "min.insync.replicas": "3"}


def test_one_broker_is_for_development() -> None:
    """A warning, not a refusal; one copy of everything."""
    planned = plan(PIPE, facts(1, orders=4, config={"min.insync.replicas": "1"}))

    assert planned.refusals == ()
    assert "for development" in planned.warnings[0]
    assert {1} == {topic.replication for topic in planned.create}
    assert {"1"} == {topic.config["min.insync.replicas"] for topic in planned.create}


def test_broker_that_is_down_is_said_before_topics_are_created_on_the_others() -> None:
    """Topics that exist have more copies than brokers answer; that is no cluster for development."""
    planned = plan(PIPE, facts(2, replication=3, orders=4))

    assert planned.refusals == ()
    assert planned.warnings[0] == (
        "Topics of this graph have 3 replicas, and 2 brokers answered, so at least 1 is down. Start all brokers before "
        "you create topics: those that are created now get 2 replicas, and keep that number. If the cluster shall have "
        "no more brokers, declare replication=2, and change the topics that exist with kafka-reassign-partitions."
    )
    alone = plan(PIPE, facts(1, replication=3, orders=4)).warnings[0]
    assert "3 replicas, and 1 broker answered, so at least 2 are down." in alone
    assert (
        "get 1 replica, and keep that number. If the cluster shall have no more brokers, declare replication=1" in alone
    )
    assert {2} == {topic.replication for topic in planned.create}
    assert not any("development" in warning for warning in planned.warnings)


def test_offline_all_that_is_declared_is_planned() -> None:
    """Tasks of a topic that is not declared are not known."""
    assert len(plan(PIPE).tasks) == 4
    planned = plan(JOIN)
    assert (planned["zip"].partitions, planned.tasks) == (None, ())
    assert tuple(topic.name for topic in planned.create) == ("both",)
    assert "offline" in str(planned)


@pytest.mark.parametrize(
    ("graph", "known", "says"),
    [
        (JOIN, facts(left=4), ["'right'", "does not exist", "Source('right')"]),
        (JOIN, facts(left=4, right=6), ["left: 4, right: 6", "Task p reads partition p", "add partitions"]),
        (
            Graph("g", Processor(anything, alts={"a": "left", "b": "right"})),
            facts(left=1, right=2),
            ["left: 1, right: 2"],
        ),
        (
            Graph("g", Processor(anything, inputs="a", tailers={"t": "b"})),
            facts(a=4, b=2),
            ["tails 'b'", "2 partitions", "inputs have 4"],
        ),
        (
            Graph("g", Processor(anything, inputs="a", tailers={"t": "b"})),
            facts(a=4),
            ["'b'", "does not exist"],
        ),
        (
            Graph("g", Processor(anything, inputs="a", tailers={"t": "b"}, strategy="at-least-once")),
            facts(a=4, b=4),
            ["has tailers and runs at-least-once", "strategy='exactly-once'"],
        ),
        (
            PIPE,
            facts(orders=4, shop__check__backing=4, config={"cleanup.policy": "compact,delete"}),
            ["cleanup.policy=compact,delete", "kafka-configs --bootstrap-server BOOTSTRAP --alter"],
        ),
        (
            PIPE,
            facts(orders=4, shop__errors=1, config={"max.message.bytes": "17000"}),
            ["'shop.errors' has max.message.bytes=17000", "--add-config max.message.bytes=65536"],
        ),
        (
            Graph(PIPE.name, *PIPE.parts, topics={"checked": Topic(config={"max.message.bytes": "2000"})}),
            facts(orders=4),
            ["'checked' has max.message.bytes=2000", "Declare it in Topic(config={'max.message.bytes': '65536'})"],
        ),
        (PIPE, facts(orders=2, shop__check__backing=4), ["4 partitions", "have 2", "new name="]),
        (PIPE, facts(orders=4, replication=1), ["'orders' has 1 replica,", "Give it 3"]),
        (PIPE, facts(orders=4, config={"min.insync.replicas": "1"}), ["min.insync.replicas=1", "kafka-configs"]),
        (
            PIPE,
            facts(orders=4, config={"unclean.leader.election.enable": "true"}),
            ["unclean leader election", "unclean.leader.election.enable=false"],
        ),
    ],
    ids=[
        "missing input",
        "join of unequal inputs",
        "alts of unequal inputs",
        "tailer too narrow",
        "missing tailer",
        "tailer of another strategy",
        "backing topic with deletion",
        "errors topic too narrow",
        "output too narrow",
        "fewer partitions than before",
        "one replica",
        "one in sync",
        "unclean election",
    ],
)
def test_a_cluster_that_breaks_the_promise_is_refused(graph: Graph, known: ClusterFacts, says: list[str]) -> None:
    """One sentence each, with the remedy."""
    planned = plan(graph, known)

    assert len(planned.refusals) == 1
    with pytest.raises(ConfigError) as refused:
        planned.refuse()
    assert all(part in str(refused.value) for part in says)


def test_all_refusals_are_told_at_once() -> None:
    """All of them are reported at once."""
    planned = plan(JOIN, facts(left=4, both=1, replication=2, config={"min.insync.replicas": "1"}))

    assert len(planned.refusals) == 5
    with pytest.raises(ConfigError) as refused:
        planned.refuse()
    assert all(refusal in str(refused.value) for refusal in planned.refusals)


def test_topics_of_other_graphs_are_not_checked() -> None:
    """Facts may hold more than the graph uses."""
    known = facts(orders=4)
    unsafe = TopicFacts("other", b"o" * 16, 1, 1, {"min.insync.replicas": "1"})

    assert plan(PIPE, ClusterFacts(3, {**known.topics, "other": unsafe})).refusals == ()


def test_without_the_promise_unsafe_topics_are_let_pass() -> None:
    """At-least-once promises less; the plan says what."""
    graph = Graph("g", Source("a"), Processor(anything, name="p", inputs="a"), strategy="at-least-once")
    planned = plan(graph, facts(a=1, replication=1))

    assert planned.refusals == ()
    assert "p runs at-least-once: a crash may repeat messages." in planned.warnings


def test_new_tasks_of_added_partitions_wait_for_the_backing_topic() -> None:
    """O9: plan adds backing partitions first; until then the new tasks stop, naming the command."""
    planned = plan(PIPE, facts(orders=6, shop__check__backing=4, shop__check__replay=4))

    assert (
        Growth("shop.check.backing", 4, 6),
        Growth("shop.check.replay", 4, 6),
    ) == planned.grow
    assert (PlannedTask("check", 4), PlannedTask("check", 5)) == planned["check"].stopped
    [warning] = planned.warnings
    assert "check/4, check/5 cannot start until 'cues-kafka plan MODULE:GRAPH --apply'" in warning
    planned.refuse()


@pytest.mark.parametrize("per_task", [False, True])
def test_a_store_is_not_split_by_added_partitions(per_task: bool) -> None:
    """Messages of a key would come to another task than its entry."""
    graph = Graph(
        "g", Source("a"), Processor(anything, name="p", inputs="a", state={"messages": Store(per_task=per_task)})
    )
    known = facts(a=3, g__p__backing=2, g__p__messages__changelog=2)
    refusals = plan(graph, known).refusals

    assert len(refusals) == (0 if per_task else 1)
    assert all("'a' has 3 partitions, 'g.p.messages.changelog' has 2." in one for one in refusals)
    assert plan(graph, facts(a=3)).refusals == ()


def test_what_weakens_something_is_a_warning() -> None:
    """Cycles, topics without provenance, processors that this runtime does not run."""
    graph = Graph(
        "g",
        Source("a"),
        Processor(anything, name="p", inputs="a", outputs="a"),
        DataFrameProcessor(anything, inputs={"x": "a", "y": "b"}, outputs="c", name="frame"),
        topics={"a": Topic(provenance=False), "b": Topic(partitions=3)},
    )
    planned = plan(graph, facts())

    assert [next(word for word in ("'p'", "'a'", "frame") if word in text) for text in planned.warnings] == [
        "'p'",
        "'a'",
        "frame",
    ]
    assert ("g.frame.backing", 3) in {(topic.name, topic.partitions) for topic in planned.create}


def test_transient_inputs_are_warned_of() -> None:
    """As inputs, in a table, and of DataFrames; outputs may be transient without a word."""
    graph = Graph(
        "g",
        Source("a"),
        Processor(anything, name="one", inputs="a", outputs="b"),
        Processor(anything, name="two", inputs="c", tables={"t": Table("t")}),
        DataFrameProcessor(anything, inputs={"x": "a", "y": "c"}, outputs="d", name="frame"),
        topics={
            "a": Topic(transient=True),
            "b": Topic(transient="1 day"),
            "c": Topic(),
            "t": Topic(compacted=True, transient="36 hours"),
        },
    )
    planned = plan(graph)
    transient = [text for text in planned.warnings if "transient" in text]

    assert [text.partition(", delivered")[0] for text in transient] == [
        "one reads 'a', which is transient: Kafka deletes its messages after 10 days",
        "two reads 't', which is transient: Kafka deletes its messages after 1.5 days",
        "frame reads 'a', which is transient: Kafka deletes its messages after 10 days",
    ]
    assert {topic.name: topic.config.get("segment.ms") for topic in planned.create if topic.name in "abct"} == {
        "a": "86400000", "b": "8640000", "c": None, "t": "12960000",
    }  # fmt: skip


def test_a_topic_that_exists_with_other_settings_is_warned_of() -> None:
    """Nothing would change them, though the declaration looks as if."""
    graph = Graph("g", Source("a"), Source("b"), topics={"a": Topic(compacted=True, transient="1 day")})
    has = {"cleanup.policy": "delete", "retention.ms": "604800000", "segment.ms": "8640000"}
    same = {"cleanup.policy": "delete,compact", "retention.ms": "86400000", "segment.ms": "8640000"}

    [policy, retention] = plan(graph, facts(a=1, b=1, config=has)).warnings
    assert "has cleanup.policy=delete, and the graph declares compact,delete" in policy
    assert (
        "kafka-configs --bootstrap-server BOOTSTRAP --alter --topic a --add-config cleanup.policy=[compact,delete]"
        in policy
    )
    assert "--add-config retention.ms=86400000; or declare what it has" in retention
    assert plan(graph, facts(a=1, b=1, config=same)).warnings == plan(graph, facts(b=1)).warnings == ()


def test_permissions_are_the_least_that_is_needed() -> None:
    """The table of least privilege, without a wildcard; only transactional ids are a prefix."""
    acls = plan(PIPE, facts()).acls
    asked = set(topics_to_ask(PIPE))

    def granted(role: str, resource: str = "topic") -> set[tuple[str, str]]:
        return {(acl.operation, acl.name) for acl in acls if (acl.role, acl.resource) == (role, resource)}

    checks = {("DescribeConfigs", topic) for topic in asked}
    assert granted("worker") == checks | {
        ("Read", "orders"),
        ("Write", "checked"),
        ("Read", "shop.errors"),
        ("Write", "shop.errors"),
        ("Read", "shop.check.backing"),
        ("Write", "shop.check.backing"),
        ("Read", "shop.check.replay"),
    }
    assert granted("worker", "group") == {("Read", "shop.check")}
    assert granted("worker", "transactional-id") == {("Write", "shop.check.")}
    assert granted("sender") == {("Write", "orders")}
    assert granted("sender", "transactional-id") == {("Write", "shop.orders.send.")}
    assert sender_id("shop", "orders", "x").startswith("shop.orders.send.")
    own = {"shop.check.backing", "shop.check.replay"}
    assert granted("deployer") == (
        checks
        | {("Create", topic) for topic in asked}
        | {("Describe", topic) for topic in asked - own}
        | {("Alter", topic) for topic in own}
    )
    assert granted("operator") == {
        ("Read", "shop.errors"),
        ("Describe", "orders"),
        ("Read", "shop.check.backing"),
        ("Read", "shop.check.replay"),
        ("Write", "shop.check.replay"),
    }
    assert granted("verifier") == (
        checks | {("Read", topic) for topic in asked - {"shop.check.replay"}} | {("Describe", "shop.check.replay")}
    )
    assert granted("operator", "group") == granted("verifier", "group") == {("Describe", "shop.tools")}
    assert not [acl for acl in acls if "*" in acl.name]
    assert {acl.resource for acl in acls if acl.pattern == "prefixed"} == {"transactional-id"}


def test_permissions_are_the_same_before_and_after_the_topics_exist() -> None:
    """An operator who grants them before the first start has granted all that is needed later."""
    assert plan(PIPE).acls == plan(PIPE, facts()).acls == plan(PIPE, facts(orders=6)).acls


@pytest.mark.parametrize("user", ["User:CN=O'Brien, O=shop", "User:a$(id)", "User:a;b", 'User:"a"', "User:CN=w"])
def test_command_grants_to_the_user_that_was_named(user: str) -> None:
    """Pasted into a shell, whatever characters the name has."""
    command = grant(user, ["Read"], "topic", ["orders"])

    assert shlex.split(command)[5] == user


def test_permissions_are_commands_that_grant_them() -> None:
    """One for all resources of a kind that need the same; users that are called otherwise than the role are named."""
    commands = kafka_acls(plan(PIPE).acls, {"worker": "User:CN=w, O=shop"})

    prefix = "--transactional-id shop.orders.send. --resource-pattern-type prefixed"
    worker = "kafka-acls --add --allow-principal 'User:CN=w, O=shop'"
    assert commands["worker"][0] == f"{worker} --operation Read --group shop.check"
    assert commands["sender"] == (
        "kafka-acls --add --allow-principal User:sender --operation Write --topic orders",
        f"kafka-acls --add --allow-principal User:sender --operation Write {prefix}",
    )
    operator = "kafka-acls --add --allow-principal User:operator"
    assert commands["operator"] == (
        f"{operator} --operation Describe --group shop.tools",
        f"{operator} --operation Describe --topic orders",
        f"{operator} --operation Read --topic shop.check.backing --topic shop.errors",
        f"{operator} --operation Read --operation Write --topic shop.check.replay",
    )
    assert all(command in plan(PIPE).text(acls=True) for command in commands["verifier"])


def test_a_plan_is_printed_as_text() -> None:
    """The same facts give the same text."""
    assert str(plan(PIPE, facts())) == str(plan(PIPE, facts()))
    assert (
        "  check  pipe  6 tasks  orders -> checked; errors: shop.errors"
        in str(plan(PIPE, facts(orders=6))).splitlines()
    )
    text = plan(PIPE, facts()).text(topics=True, acls=True)
    for part in (
        "transactional ids  shop.check.0 .. shop.check.3",
        "Would change:",
        "ACLs of the worker:",
        "replay",
    ):
        assert part in text
    assert "Refused:" in str(plan(JOIN, facts()))


def test_a_plan_says_when_a_processor_commits() -> None:
    """Where it has a policy of its own; as text, and as data."""
    policy = CommitPolicy(max_messages=5_000, max_seconds=0.5)
    own = Processor(anything, name="check", inputs="orders", outputs="checked", commit=policy)
    planned = plan(Graph("shop", Source("orders"), own, errors="shop.errors"), facts())
    assert "commits after      5,000 messages, 33,554,432 bytes or 0.5 s" in planned.text(topics=True)
    assert planned.to_dict()["processors"][0]["commit"]["max_messages"] == 5_000
    assert "commits after" not in plan(PIPE, facts()).text(topics=True)


def test_a_backing_topic_without_its_processor_is_warned_of() -> None:
    """A renamed processor starts again, and no record can say so; topics of other graphs do not matter."""
    others = ["shop.check.backing", "shop.old.backing", "shop.a.b.backing", "shops.old.backing", "shop.old.replay"]
    broker = MemoryBroker()
    broker.create([NewTopic(name, 1) for name in others])

    [warning] = inspect_names(PIPE, broker, Terms(["check"])).warnings

    assert "'shop.old.backing'" in warning
    assert "outputs repeat" in warning
    assert plan(PIPE, facts()).warnings == ()


def test_the_fingerprint_is_the_one_that_recovery_compares() -> None:
    """Of name, shape of the inputs, and bindings with topic ids."""
    known = facts(left=1, right=1)
    ids = [("a", known.topics["left"].topic_id), ("b", known.topics["right"].topic_id)]

    assert plan(JOIN, known)["zip"].fingerprint == fingerprint("zip", "join", ids)


def test_the_fingerprint_stays_when_outputs_and_partitions_change() -> None:
    """And is not known while an input has no id."""
    forked = Graph("shop", Processor(anything, name="check", inputs="orders", outputs={"a": "x", "b": "y"}))

    assert None is plan(PIPE, facts())["check"].fingerprint
    assert plan(PIPE, facts(orders=4))["check"].fingerprint == plan(forked, facts(orders=8))["check"].fingerprint


def test_facts_are_asked_for_all_topics_of_the_graph() -> None:
    """The user's and the framework's own."""
    assert topics_to_ask(PIPE) == ("checked", "orders", "shop.errors", "shop.check.backing", "shop.check.replay")
    with pytest.raises(KeyError):
        plan(PIPE)["chek"]


FRAMES = Graph(
    "shop",
    Source("orders"),
    Source("payments"),
    DataFrameProcessor(anything, name="paid", inputs={"o": "orders", "p": "payments"}, outputs="paid"),
    DataFrameProcessor(anything, name="sums", inputs="orders", outputs="sums"),
    errors="shop.errors",
    topics={"orders": Topic(partitions=2), "payments": Topic(partitions=5), "paid": Topic(provenance=False)},
)


def test_processors_of_dataframes_are_planned_as_others() -> None:
    """Backing topic, parts, ids and permissions; a staged one has as many parts as its widest input has partitions."""
    planned = plan(FRAMES, facts())

    assert [(one.name, one.staged, one.slots) for one in planned.dataframes] == [("paid", True, 5), ("sums", False, 2)]
    own = {("shop.paid.backing", 5), ("shop.sums.backing", 2), ("shop.paid.replay", 5), ("shop.sums.replay", 2)}
    assert own <= {(topic.name, topic.partitions) for topic in planned.create}
    assert Acl("worker", "transactional-id", "prefixed", "shop.paid.", "Write", "transactions of paid") in planned.acls
    assert Acl("worker", "group", "literal", "shop.paid", "Read", "membership and offsets of paid") in planned.acls
    assert {
        ("Read", "orders"),
        ("Read", "payments"),
        ("Write", "paid"),
        ("Write", "sums"),
        *((verb, "shop.errors") for verb in ("Read", "Write")),
        *(("Read", f"shop.{name}.replay") for name in ("paid", "sums")),
        *((verb, f"shop.{name}.backing") for verb in ("Read", "Write") for name in ("paid", "sums")),
        *(("DescribeConfigs", topic) for topic in topics_to_ask(FRAMES)),
    } == {(acl.operation, acl.name) for acl in planned.acls if acl.role == "worker" and acl.resource == "topic"}
    assert "Topic 'paid' has provenance=False" in "\n".join(planned.warnings)
    text = planned.text(topics=True)
    for part in (
        "2 processors, 7 slots on Spark",
        "  paid  dataframe, staged  5 parts  o=orders, p=payments -> paid; errors: shop.errors",
        "transactional ids  shop.paid.0 .. shop.paid.4",
        "  sums  dataframe          2 slots  orders -> sums; errors: shop.errors",
        "written            direct, or staged if its plan shuffles or keeps state",
    ):
        assert part in text
    assert "? parts" in str(plan(Graph("g", FRAMES.dataframes["paid"])))


def named(order: Any) -> Iterator[Out[Literal["all", "big"]]]:
    yield Out("all", order)


def unnamed(order: Any) -> Iterator[Out]:
    yield Out("all", order)


def by_name(order: Any) -> dict[Literal["all", "big"], int]:
    return {"all": order}


def by_any_name(order: Any) -> dict[str, int]:
    return {"all": order}


def named_batch(orders: list[Any]) -> list[dict[Literal["all"], int] | Exception | None]:
    return [None for _ in orders]


def test_a_plan_is_what_changes_and_a_line_for_each_processor() -> None:
    """Names and permissions are for those who ask."""
    assert str(plan(PIPE, facts(1, orders=1, checked=4, shop__errors=1))).splitlines() == [
        "Graph shop, planned on 1 broker: 1 processor, 1 task",
        "",
        "Would change:",
        "  + topic shop.check.backing: 1 partition, replication 1",
        "  + topic shop.check.replay: 1 partition, replication 1",
        "",
        "Processors:",
        "  check  pipe  1 task  orders -> checked; errors: shop.errors",
        "",
        "Edges:",
        "  applications -> orders  at least once  a send repeated after a crash is a second message; give it an id",
        "  check                   exactly once   from Kafka to Kafka: one transaction with the position in the input",
        "",
        "Weakest edge:",
        f"  applications -> orders: at least once. {SEND.remedy}",
        "",
        "Warnings:",
        "  The cluster has 1 broker, but the guarantee needs 3: a lost disk can lose data. Use it for development.",
    ]


def test_a_plan_says_what_grows_and_when_nothing_would_change() -> None:
    """Offline it does not know."""
    known = facts(orders=6, checked=4, shop__errors=1, shop__check__backing=4, shop__check__replay=6)
    planned = plan(PIPE, known)

    assert planned.would_change
    assert "\nWould change:\n  ~ topic shop.check.backing: partitions from 4 to 6\n\n" in planned.text()
    settled = replace(planned, grow=())
    assert not settled.would_change
    assert settled.text().splitlines()[2] == "Nothing would change."
    assert "\nWould create, where missing:\n  + topic checked: 4 partitions, replication 3\n" in plan(PIPE).text()
    assert replace(settled, changes=("make a table",)).text().splitlines()[2:4] == ["Would change:", "  ~ make a table"]


@pytest.mark.parametrize(
    ("fn", "batch", "unchecked"),
    [
        (named, False, ()),
        (by_name, False, ()),
        (named_batch, True, ()),
        (unnamed, False, ("all", "big")),
        (by_any_name, False, ("all", "big")),
        (anything, False, ("all", "big")),
    ],
)
def test_output_bindings_that_no_annotation_names_are_not_checked(
    fn: Callable[..., Any], batch: bool, unchecked: tuple[str, ...]
) -> None:
    """A misspelt one shows at the first message that it is given for."""
    outputs = {"all": "x", "big": "y"}
    planned = plan(Graph("g", Processor(fn, name="p", inputs="a", outputs=outputs, batch=batch)))

    assert planned["p"].unchecked == unchecked
    assert ("Output bindings not checked:\n  p: " in str(planned)) == bool(unchecked)


def test_offline_an_input_that_is_nearly_a_topic_of_the_graph_is_warned_of() -> None:
    """Offline it is not known which topics exist: the others are listed."""
    graph = Graph(
        "g",
        Source("orders"),
        Processor(anything, name="check", inputs="order"),
        Processor(anything, name="pay", inputs="invoices"),
    )
    planned = plan(graph)

    [warning] = planned.warnings
    assert "check reads 'order'" in warning
    assert "did you mean 'orders'?" in warning
    assert planned.expected == ("invoices", "order")
    assert "Topics that must exist:\n  invoices\n  order\n" in str(planned)
    [misspelt, missing] = plan(graph, facts()).refusals
    assert "did you mean 'orders'?" in misspelt
    assert "did you mean" not in missing


def test_the_row_of_a_processor_names_its_tables_and_its_stores() -> None:
    """What it looks up and what it keeps, beside what it reads and writes."""
    check = Processor(
        anything, name="check", inputs="o", tables={"c": Table("customers")}, state={"sums": Store(), "seen": Store()}
    )
    row = "  check  sink  1 task  o; tables: customers; state: sums, seen; errors: e"
    shop = Graph("shop", Source("o"), Source("customers"), check, errors="e", topics={"o": Topic(partitions=1)})
    assert row in str(plan(shop)).splitlines()


REKEYED = rekey("by-id", inputs="in", outputs="orders", by="id")


@pytest.mark.parametrize(
    ("key", "by", "partitions", "beside", "told"),
    [
        ("id", "id", 4, [], None),
        ("customer", "id", 4, [], "has the key 'customer'"),
        (None, "id", 4, [], "has no declared key"),
        ("customer", "id", 1, [], None),
        ("customer", Header("order"), 4, [], None),
        ("customer", "id", 4, [REKEYED], None),
        ("customer", "id", 4, [REKEYED, Processor(anything, name="p", inputs="in", outputs="orders")], "'customer'"),
    ],
)
def test_a_note_says_where_an_id_may_be_in_several_partitions(
    key: str | None, by: Any, partitions: int, beside: list[Any], told: str | None
) -> None:
    """It has the line that helps. Nothing is refused: the messages may be partitioned by the id all the same."""
    once = Dedupe("once", inputs="orders", outputs="first", by=by, within="1 day")
    shop = Graph("shop", Source("in"), *beside, once, topics={"orders": Topic(key=key, partitions=partitions)})
    planned = plan(shop)

    assert planned.refusals == ()
    if told is None:
        assert planned.notes == ()
        assert "Notes" not in str(planned)
        return
    [note] = planned.notes
    assert told in note
    assert 'rekey("by-id", inputs="orders", outputs="orders.by-id", by="id")' in note
    assert ("declare Topic(key='id')" in note) == (key is None)
    assert f"Notes:\n  {note}" in str(planned)


def test_a_note_knows_that_dedupe_keeps_the_key() -> None:
    """Of two in a row, the second one is told the key of the first one's input."""
    parts = [
        Dedupe("one", inputs="orders", outputs="once", by="id", within="1 day"),
        Dedupe("two", inputs="once", outputs="twice", by="id", within="1 day"),
    ]
    own = {"orders": Topic(key="id", partitions=4), "once": Topic(partitions=4)}
    assert plan(Graph("shop", Source("orders"), *parts, topics=own)).notes == ()


def test_a_plan_is_plain_data_with_stable_keys() -> None:
    """For other programs, who must not parse the text."""
    data = json.loads(json.dumps(plan(PIPE, facts(orders=2)).to_dict()))

    assert sorted(data) == [
        "acls", "alter", "brokers", "changes", "control", "create", "dataframes", "edges", "expected", "feeds", "graph",
        "grow", "guarantee", "notes", "processors", "refusals", "status", "stops", "unwell", "warnings", "weakest",
        "would_change",
    ]  # fmt: skip
    [check] = data["processors"]
    assert check == {
        "name": "check",
        "kind": "pipe",
        "strategy": "exactly-once",
        "inputs": {"input": "orders"},
        "outputs": {"output": "checked"},
        "errors": "shop.errors",
        "tasks": 2,
        "waiting": [],
        "group": "shop.check",
        "transactional_prefix": "shop.check.",
        "backing": "shop.check.backing",
        "replay": "shop.check.replay",
        "changelogs": {},
        "journal": None,
        "tables": {},
        "tailers": {},
        "fingerprint": (plan(PIPE, facts(orders=2))["check"].fingerprint or b"").hex(),
        "commit": None,
        "unchecked": [],
    }
    assert {"name": "checked", "partitions": 4, "replication": 3, "config": {"min.insync.replicas": "2"}} in data[
        "create"
    ]
    [frame, _] = json.loads(json.dumps(plan(FRAMES, facts()).to_dict()))["dataframes"]
    assert (frame["inputs"], frame["slots"], frame["staged"]) == ({"o": "orders", "p": "payments"}, 5, True)


def test_added_input_partitions_give_a_staged_processor_no_parts() -> None:
    """Its first record fixes them; one that may be direct needs a slot for each partition."""
    planned = plan(FRAMES, facts(orders=8, payments=9, shop__paid__backing=5, shop__sums__backing=2))

    assert [one.slots for one in planned.dataframes] == [5, 8]
    assert planned.grow == (Growth("shop.sums.backing", 2, 8),)


def test_backing_topics_of_dataframes_must_be_compacted_too() -> None:
    """And be safe, as all topics of the promise."""
    planned = plan(FRAMES, facts(config={"cleanup.policy": "delete"}, shop__paid__backing=5))

    assert "'shop.paid.backing' has cleanup.policy=delete" in planned.refusals[0]


@pytest.mark.parametrize(
    ("config", "topics", "warns"),
    [
        ({"retention.ms": "-1"}, {}, True),
        ({"cleanup.policy": "compact"}, {}, True),
        ({"retention.ms": "-1"}, {"checked": Topic(config={"retention.ms": "-1"})}, False),
        ({"retention.ms": "-1"}, {"checked": Topic(config={"message.timestamp.type": "LogAppendTime"})}, False),
        ({"retention.ms": "604800000"}, {}, False),
        ({}, {}, False),
    ],
    ids=["kept forever", "compacted", "both forever", "append time", "as long", "nothing known"],
)
def test_outputs_that_are_kept_for_less_than_their_inputs_are_warned_of(
    config: dict[str, str], topics: dict[str, Topic], warns: bool
) -> None:
    """They inherit timestamps, so what is made of older messages is deleted at once; error messages do not."""
    graph = Graph(PIPE.name, *PIPE.parts, errors=PIPE.errors, defaults=PIPE.defaults, topics=topics)
    planned = plan(graph, facts(orders=4, config=config))

    assert [w for w in planned.warnings if "retention.ms=-1" in w and "'checked' keeps messages for 7 days" in w] == (
        list(planned.warnings) if warns else []
    )


COMPACT = {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("declared", "everywhere", "known", "compacted"),
    [
        (COMPACT, {}, {}, True),
        (COMPACT, {}, {"cleanup.policy": "delete"}, False),
        ({}, {}, COMPACT, True),
        ({}, {}, {"cleanup.policy": "compact,delete"}, True),
        ({}, COMPACT, {}, False),
        ({}, COMPACT, None, True),
        (COMPACT, {}, None, True),
        ({}, {}, None, False),
    ],
    ids=["settings not shown", "not as declared", "not declared", "both", "default only", "created so", "new", "plain"],
)
def test_the_cluster_decides_what_is_compacted_and_else_the_topics_own_declaration(
    declared: dict[str, str], everywhere: dict[str, str], known: dict[str, str] | None, compacted: bool
) -> None:
    """Of a compacted topic a retry goes on without what was superseded, so a guess would lose messages."""
    graph = Graph(
        "shop",
        Processor(anything, name="check", inputs="orders", outputs="checked"),
        topics={"orders": Topic(config=declared)} if declared else {},
        defaults=Topic(config=everywhere),
    )
    found = facts() if known is None else facts(orders=4, config=known)

    assert plan(graph, found)["check"].compacted == (("orders",) if compacted else ())


@pytest.mark.parametrize("offline", [True, False])
def test_a_join_over_a_compacted_input_is_refused(offline: bool) -> None:
    """It paired what was left, in silence; offline a declaration is enough."""
    if offline:
        graph = Graph(
            "flights",
            Processor(anything, name="zip", inputs={"a": "left", "b": "right"}, outputs="both"),
            topics={"right": Topic(config=COMPACT)},
        )
        [refusal] = plan(graph).refusals
    else:
        [refusal] = plan(JOIN, facts(left=2, right=2, both=2, flights__zip__backing=2, config=COMPACT)).refusals[1:]

    assert "The join zip reads 'right', which is compacted." in refusal
    assert "cleanup.policy=delete" in refusal


def test_alts_over_a_compacted_input_are_warned_of() -> None:
    """With the command that lets a stopped task go on; a single compacted input is nothing to warn of."""
    graph = Graph(
        "g",
        Processor(anything, name="either", alts={"a": "left", "b": "right"}),
        Processor(anything, name="one", inputs="left"),
        topics={"left": Topic(config=COMPACT)},
    )
    [warning] = plan(graph, facts(right=1)).warnings

    assert warning.startswith("either (alts) reads 'left', which is compacted. If a worker dies")
    assert "'cues-kafka accept-loss MODULE:GRAPH either'" in warning


BOTH = Sides(status=True, control=True)


def test_plan_has_the_topics_and_rights_of_status_and_control_where_the_settings_want_them() -> None:
    """With their names; the operator sees the status, and writes the control topic."""
    planned, without = plan(PIPE, facts(orders=2), sides=BOTH), plan(PIPE, facts(orders=2))
    assert (planned.status, planned.control) == ("shop.status", "shop.control")
    assert (without.status, without.control) == (None, None)

    added = [topic for topic in planned.create if topic not in without.create]
    assert [(topic.name, topic.partitions, topic.config["cleanup.policy"]) for topic in added] == [
        ("shop.status", 1, "compact"),
        ("shop.control", 1, "compact"),
    ]
    assert added[0].config["segment.bytes"] == str(STATUS_SEGMENT_BYTES)
    rights = {(acl.role, acl.name, acl.operation) for acl in planned.acls} - {
        (acl.role, acl.name, acl.operation) for acl in without.acls
    }
    assert {one for one in rights if one[1] in ("shop.status", "shop.control") and "Describe" not in one[2]} == {
        ("deployer", "shop.control", "Alter"), ("deployer", "shop.control", "Create"),
        ("deployer", "shop.status", "Alter"), ("deployer", "shop.status", "Create"),
        ("operator", "shop.control", "Read"), ("operator", "shop.control", "Write"),
        ("operator", "shop.status", "Read"), ("worker", "shop.control", "Read"), ("worker", "shop.status", "Write"),
            ("worker", "shop.status", "Read"),
    }  # fmt: skip
    assert {one for one in rights if one[0] == "operator"} >= {
        ("operator", "orders", "Read"),
        ("operator", "shop.check", "Describe"),
    }
    shown = planned.text(topics=True)
    assert "Names of the graph:\n  status   shop.status\n  control  shop.control" in shown
    assert "Names of the graph" not in without.text(topics=True)


@pytest.mark.parametrize("sides", [Sides(), Sides(status=True), Sides(control=True)])
def test_each_of_both_topics_can_be_switched_off(sides: Sides) -> None:
    """Neither its topic nor its rights are in the plan then."""
    planned = plan(PIPE, facts(orders=2), sides=sides)
    names = {topic.name for topic in planned.create} | {acl.name for acl in planned.acls}
    assert ("shop.status" in names, "shop.control" in names) == (sides.status, sides.control)


def test_settings_of_the_cluster_say_which_topics_there_are() -> None:
    """Both for Kafka; none in memory, unless a test wants them."""
    assert Sides.of(Kafka("localhost:9092")) == BOTH
    assert Sides.of(Kafka("localhost:9092", status_every_s=0, control=False)) == Sides()
    assert (Sides.of(Memory()), Sides.of(None)) == (Sides(), Sides())
    for wrong in (-1.0, 0.1):
        with pytest.raises(ConfigError, match=r"write 0\.5 seconds or more, or 0 for no status"):
            Kafka("localhost:9092", status_every_s=wrong)


def test_a_graph_with_cuts_needs_its_control_topic_whatever_the_settings_say() -> None:
    """So it is not among those that it can work without."""
    graph = Graph("g", *PIPE.parts, cuts="1 day")
    assert BOTH.topics(graph) == ("g.status",)
    assert Sides().of_graph(graph).control
    assert plan(graph, facts(orders=2)).control == "g.control"


def test_topic_of_another_program_with_the_name_of_ours_is_warned_of() -> None:
    """Its policy tells: ours are compacted."""
    foreign = facts(orders=2, config={"cleanup.policy": "delete"}, shop__status=1, shop__control=1)
    texts = [text for text in plan(PIPE, foreign, sides=BOTH).warnings if "exists with cleanup.policy" in text]
    assert [text.split(" exists")[0] for text in texts] == ["'shop.status'", "'shop.control'"]
    assert (
        "kafka-configs --bootstrap-server BOOTSTRAP --alter --topic shop.status --add-config cleanup.policy=compact"
        in texts[0]
    )


def test_side_topics_that_may_not_be_looked_at_count_as_missing() -> None:
    """A graph that worked with an earlier release works on with its rights of then."""

    class Refusing(MemoryBroker):
        def facts(self, topics: Collection[str]) -> ClusterFacts:
            if "shop.status" in topics:
                raise FatalError("may not describe", code="TOPIC_AUTHORIZATION_FAILED")
            return super().facts(topics)

    assert facts_of(PIPE, Refusing(), BOTH).brokers == 1
    with pytest.raises(FatalError, match="may not describe"):
        Refusing().facts(["shop.status"])


def test_commands_of_a_plan_name_the_cluster() -> None:
    """`plan_start` knows its address, so that they can be pasted; without one there is a placeholder."""
    planned = plan(PIPE, facts(orders=4, config={"min.insync.replicas": "1"}))
    before = "".join((*planned.warnings, *planned.refusals))
    assert "kafka-configs --bootstrap-server BOOTSTRAP --alter" in before
    named = planned.at("k-1:9092,k-2:9092")
    text = "".join((*named.warnings, *named.refusals))
    assert "kafka-configs --bootstrap-server k-1:9092,k-2:9092 --alter" in text
    assert "BOOTSTRAP" not in text
