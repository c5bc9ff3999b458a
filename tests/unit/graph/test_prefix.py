"""`Graph(prefix=...)`, with which everything begins that the framework names; and copies of new topics."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, Memory, Processor, Source, State, Store, Topic, connect, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.core.delivery import Provenance
from cues_kafka.core.hashing import delivery_hash
from cues_kafka.errors import GraphError
from cues_kafka.graph.declare import Json
from cues_kafka.operate.applying import apply_plan
from cues_kafka.plan.acls import acls_of
from cues_kafka.plan.inspectors import Terms
from cues_kafka.plan.plan import plan
from cues_kafka.ports.facts import ClusterFacts, TopicFacts
from cues_kafka.task.making.prepare import plan_start
from cues_kafka.testing.tester import Tester
from cues_kafka.verify.scan import verify


def count(order: dict[str, Any], seen: State[int]) -> dict[str, Any]:
    """Refuse some, and say which order it is."""
    if order["n"] < 0:
        raise ValueError("negative")
    seen["all"] = seen.get("all", 0) + 1
    return {**order, "nth": seen["all"]}


def shop(prefix: str = "", **settings: Any) -> Graph:
    """With a store and errors, so that it has each kind of topic."""
    return Graph(
        "shop",
        Source("orders"),
        Processor(count, inputs="orders", outputs="counted", state={"seen": Store(Json(int))}),
        errors="shop.errors",
        prefix=prefix,
        **settings,
    )


def test_every_name_on_the_cluster_begins_with_the_prefix() -> None:
    """Topics of the framework's own, groups and transactional ids; topics of the user keep their names."""
    graph = shop("team-x.", cuts="1 day")
    planned = plan(graph)
    ours = [*graph.internal_topics(), *(new.name for new in planned.create if new.name not in graph.topics_used())]
    ours += [acl.name for acl in acls_of(graph, ["billing"]) if acl.name not in graph.topics_used()]

    assert set(graph.topics_used()) == {"orders", "counted", "shop.errors"}
    assert len(set(ours)) >= 6
    assert {name for name in ours if not name.startswith(("team-x.shop.", "team-x.billing."))} == set()


def test_a_graph_with_a_prefix_runs_and_is_verified_and_traced() -> None:
    """On a cluster where the same graph runs under another prefix and another name for its topics."""
    cluster = Memory()
    other = shop("team-y.").bind({"orders": "y.orders", "counted": "y.counted", "shop.errors": "y.errors"})
    for graph, (orders, counted) in ((other, ("y.orders", "y.counted")), (shop("team-x."), ("orders", "counted"))):
        with start(graph, cluster) as running:
            running.send_many(orders, [{"n": n} for n in (1, 2, -1)])
            running.wait_idle()
            assert [message.value["nth"] for message in running.messages(counted)] == [1, 2]
        report = verify(graph, open_broker(cluster))
        assert (report.ok, report["count"].outputs, report["count"].errors) == (True, 2, 1)
    topics = open_broker(cluster).partitions()
    own = {topic for topic in topics if topic.startswith(("team-x.", "team-y."))}
    kinds = ("backing", "replay", "seen.changelog")
    assert own == {f"{team}.shop.count.{kind}" for team in ("team-x", "team-y") for kind in kinds}


def test_hashes_without_a_prefix_are_those_of_before() -> None:
    """A tester finds those with one, too."""
    plain, named = Tester(shop()), Tester(shop("team-x."))
    for tester in (plain, named):
        tester.send("orders", {"n": 1})
        tester.run()

    [before], [after] = plain.outcomes("count"), named.outcomes("count")
    assert before != after
    assert delivery_hash("shop", "count", []) != delivery_hash("team-x.shop", "count", [])
    assert Provenance("team-x.shop.count/0", 1, 0, 1, ()).hash == delivery_hash("team-x.shop", "count", [])


def test_a_prefix_is_given_once_and_survives_each_way_of_making_a_graph() -> None:
    """As data, merged, bound, and by its whole name."""
    graph = shop("team-x.")

    assert (graph.name, graph.prefix) == ("team-x.shop", "team-x.")
    assert Graph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph
    assert graph.to_dict()["name"] == "shop"
    assert "prefix" not in shop().to_dict()
    assert graph.bind({"orders": "other"}).name == "team-x.shop"
    assert graph.merge(Graph("more", Source("more")), name="both").name == "team-x.both"
    assert Graph("team-x.shop", *graph.parts, **graph.settings()) == graph


@pytest.mark.parametrize("prefix", ["team-x", ".", ".x.", "__x.", "a b.", "a..b.", 7, "x" * 77 + "."], ids=repr)
def test_a_prefix_that_cannot_begin_names_is_refused(prefix: Any) -> None:
    """When the graph is declared."""
    with pytest.raises(GraphError, match="prefix="):
        shop(prefix)


def test_a_name_with_a_dot_names_the_prefix_as_the_way_out() -> None:
    """A dot alone would not say which part is whose."""
    with pytest.raises(GraphError, match=r"has a dot.*prefix='team-x\.'"):
        Graph("team-x.shop", Source("orders"))


def records(graph: Graph, cluster: Memory) -> None:
    with start(graph, cluster) as running:
        running.send("orders", {"n": 1})
        running.wait_idle()


@pytest.mark.parametrize(("before", "after"), [("", "team-x."), ("team-x.", "team-y."), ("team-x.", "")])
def test_another_prefix_for_a_graph_that_ran_is_refused_as_a_new_name_is(before: str, after: str) -> None:
    """It would begin again; a user who means another graph says so once."""
    cluster = Memory()
    records(shop(before), cluster)

    broker = open_broker(cluster)
    [refused] = plan_start(shop(after), broker, Terms(["count"])).refusals
    assert f"'{before}shop.count.backing' holds the place" in refused
    assert f"under prefix='{before}'" in refused
    assert not plan_start(shop(before), broker, Terms(["count"])).refusals
    assert not plan_start(shop(after), broker, Terms(["count"], new=["count"])).refusals
    records(shop(after), cluster)
    assert not plan_start(shop(after), broker, Terms(["count"])).refusals, "it is known by now"


def test_a_graph_of_another_team_on_other_topics_is_no_former_prefix() -> None:
    """Only the same inputs make it the same graph."""
    cluster = Memory()
    records(shop("team-x."), cluster)
    other = shop("team-y.").bind({"orders": "y.orders", "counted": "y.counted"})

    assert not plan_start(other, open_broker(cluster), Terms(["count"])).refusals


def test_a_client_of_the_graph_has_names_with_the_prefix() -> None:
    """Its id for transactions and the topic of its places; without a graph the name itself may have one."""
    cluster = Memory()
    records(shop("team-x."), cluster)
    broker = open_broker(cluster)
    with connect(cluster, shop("team-x."), name="billing") as client, client.topic("counted").tailer(name="at") as one:
        one.read()
    assert "team-x.billing.tailers" in broker.partitions()
    with connect(cluster, name="team-z.reports") as client, client.topic("counted").tailer(name="at") as one:
        one.read()
    assert "team-z.reports.tailers" in broker.partitions()
    for name in ("a..b", ".a", "a b", "a.send"):
        with pytest.raises(ConfigError, match="name"):
            connect(cluster, name=name)


def test_topics_that_others_have_made_are_taken_as_they_are() -> None:
    """All of them, before the first start, which may create none."""
    cluster = Memory()
    graph = shop("team-x.", topics={"orders": Topic(partitions=3)})
    broker = open_broker(cluster)
    apply_plan(plan(graph, broker.facts(())), broker)
    made = broker.partitions()

    with start(graph, cluster, create_topics=False) as running:
        running.send("orders", {"n": 1})
        running.wait_idle()

    assert broker.partitions() == made


def brokers(count: int, **topics: int) -> ClusterFacts:
    """A cluster of this many brokers, and how many of them have a topic."""
    config = {"min.insync.replicas": "2"}
    return ClusterFacts(
        count, {name: TopicFacts(name, b"x" * 16, 1, copies, config) for name, copies in topics.items()}
    )


def test_copies_of_new_topics_are_declared_for_the_graph_and_for_single_topics() -> None:
    """The framework's own have those of the graph; a small cluster has fewer."""
    graph = shop(defaults=Topic(replication=4), topics={"counted": Topic(replication=5)})

    made = {new.name: new.replication for new in plan(graph, brokers(5)).create}
    assert made.pop("counted") == 5
    assert set(made.values()) == {4}
    assert {new.replication for new in plan(graph, brokers(1)).create} == {1}
    assert {new.replication for new in plan(shop(), brokers(5)).create} == {3}
    assert Graph.from_dict(graph.to_dict()).defaults.replication == 4
    [refused] = [text for text in plan(graph, brokers(3)).refusals if "replication" in text]
    assert "replication=5 for new topics, and the cluster has 3 brokers. Declare at most 3" in refused
    [warned] = [text for text in plan(graph, brokers(5, counted=3)).warnings if "replica" in text]
    assert "'counted' has 3 replicas, and the graph declares 5" in warned
    with pytest.raises(GraphError, match="fewer than 3 copies"):
        Topic(replication=2)
