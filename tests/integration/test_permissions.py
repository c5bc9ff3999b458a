"""A cluster that allows nothing but what ACLs allow: the printed ones suffice, and each of them is needed."""

from __future__ import annotations

import gc
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from cues_kafka import (
    BrokerError,
    ConfigError,
    Graph,
    Json,
    Kafka,
    Processor,
    Scram,
    Source,
    State,
    Store,
    TaskStopped,
    Topic,
    connect,
    processor,
    start,
)
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.kafka.users import UserAdmin, _binding, _filter
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.main import app
from cues_kafka.operate.applying import apply_plan
from cues_kafka.operate.cut.drain import Drain
from cues_kafka.operate.cut.going_back import GoBack
from cues_kafka.operate.look.doctor import examine
from cues_kafka.operate.look.status import status
from cues_kafka.operate.move.adopt import adopt, forget
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.operate.pausing import Pausing
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.plan.acls import Acl, Pattern, acls_of, kafka_acls, script
from cues_kafka.plan.inspectors import Terms
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import Sides, topics_to_ask
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.task.making.prepare import plan_start, prepare
from cues_kafka.verify.scan import verify
from tests.fault.support import until
from tests.integration.clients import clients

CHANGES = (Path(__file__).parents[2] / "docs" / "change.md").read_text(encoding="utf-8")
ROLES = ("worker", "sender", "client", "deployer", "operator", "verifier")
WITH_LOGIN = {
    # Only ACLs give rights, except on the listener without a login, which creates users and ACLs.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "false",
    "super.users": "User:ANONYMOUS",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.secured.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}
"""Settings of a broker with a listener for users beside the one without a login: many users are made quickly."""


class Cluster:
    """The broker, and its super user's client."""

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker
        self.admin = UserAdmin(self.super_user)
        self.make_users(ROLES)

    def make_users(self, names: Iterable[str]) -> None:
        """Their passwords are their names."""
        self.admin.set_passwords({name: name for name in names})

    @property
    def super_user(self) -> Kafka:
        return Kafka(self.broker.bootstrap)

    def login(self, user: str) -> Kafka:
        return Kafka(self.secured, security=Scram(user, user, tls=None))

    @property
    def secured(self) -> str:
        """The addresses for those who log in."""
        return self.broker.listener("SECURED")

    def grant(self, *acls: Acl, user: str = "") -> None:
        """As their commands would, to a user of the role's name or to another one."""
        self.admin.grant((f"User:{user or acl.role}", acl) for acl in acls)

    def revoke(self, acl: Acl) -> None:
        """Take a right from the user of the role's name."""
        wanted = _filter(_binding(f"User:{acl.role}", acl))
        client = AdminClient({"bootstrap.servers": self.broker.bootstrap})  # it has to live until the answer is there
        [future] = client.delete_acls([wanted]).values()
        assert len(future.result()) == 1

    def grant_by(self, command: str) -> tuple[str, str, str]:
        """
        Do what a message says.

        Returns:
            User, operation, and name of the resource.
        """
        [done] = self.carry_out(command)
        return done

    def carry_out(self, *commands: str) -> list[tuple[str, str, str]]:
        """Do what printed commands say, see `grant_by`: each operation on each resource."""
        granted = [each for command in commands for each in self._granted_by(command)]
        self.admin.grant(granted)
        return [(user.removeprefix("User:"), acl.operation, acl.name) for user, acl in granted]

    def _granted_by(self, command: str) -> Iterator[tuple[str, Acl]]:
        words = shlex.split(command)
        if words[1] == "--bootstrap-server":
            assert words[2] in (self.secured, "BOOTSTRAP")
            del words[1:3]
        assert words[:3] == ["kafka-acls", "--add", "--allow-principal"]
        prefixed = words[-2:] == ["--resource-pattern-type", "prefixed"]
        user, rest = words[3], words[4 : -2 if prefixed else None]
        pairs = list(zip(rest[::2], rest[1::2], strict=True))
        operations = [value for option, value in pairs if option == "--operation"]
        resources = [(option[2:], value) for option, value in pairs if option != "--operation"]
        pattern: Pattern = "prefixed" if prefixed else "literal"
        for operation in operations:
            for resource, name in resources:
                yield user, Acl("worker", resource, pattern, name, operation, "")  # type: ignore[arg-type]  # as it says


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One broker for all tests here."""
    with LocalBroker(overrides=WITH_LOGIN, listeners=("SECURED",)) as broker:
        yield Cluster(broker)


def tidy(order: dict[str, Any]) -> dict[str, Any]:
    """Refuses some, for the errors topic."""
    if order["n"] < 0:
        raise ValueError("negative")
    return order


def shop(name: str) -> Graph:
    """From orders to clean ones; its topics are its own."""
    return Graph(
        name,
        Source(f"{name}.orders", default=True),
        processor(inputs=f"{name}.orders", outputs=f"{name}.clean", name="check")(tidy),
        errors=f"{name}.errors",
        topics={f"{name}.{topic}": Topic(partitions=2) for topic in ("orders", "clean")},
    )


ORDERS = [{"n": n} for n in (1, 2, 3, 4, -1, -2)]


def test_printed_permissions_suffice_for_the_work_of_each_role(cluster: Cluster) -> None:
    """No role has any other: not to create, to run, to send, to look at errors, to pause, to verify or to reset."""
    graph, sides, users = shop("enough"), Sides(status=True, control=True), {role: f"User:{role}" for role in ROLES}
    printed = script(acls_of(graph, ["enough-client"], sides=sides), users, bootstrap=cluster.secured)
    cluster.carry_out(*(line for line in printed if not line.startswith("#")))
    super_user = KafkaBroker(cluster.super_user)
    deployer, verifier = KafkaBroker(cluster.login("deployer")), KafkaBroker(cluster.login("verifier"))
    asked = topics_to_ask(graph)
    apply_plan(plan_start(graph, deployer, Terms(["check"], cluster=cluster.login("deployer"))), deployer)
    super_user.add_partitions("enough.orders", 3)
    grown = plan(graph, deployer.facts((*asked, *sides.topics(graph))), sides=sides)
    assert grown.acls == plan(graph, sides=sides).acls
    assert not grown.create
    apply_plan(grown, deployer)
    assert set(deployer.partitions(["enough.check.backing", "enough.check.replay"]).values()) == {3}
    with connect(cluster.login("sender"), graph) as sender:
        sender.send(ORDERS[0])
        sender.send_many("enough.orders", ORDERS[1:])
    with connect(cluster.login("client"), graph, name="enough-client") as client:
        place = client.send("enough.orders", {"n": 7}, id="seven")
        assert client.sent("enough.orders", "seven")
        orders = client.topic("enough.orders")
        with orders.tailer(name="t", partition=place.partition) as tailer, client.transaction() as tx:
            assert tailer.read_blocking(10)
            tx.advance(tailer)
    with start(graph, cluster.login("worker")) as running, closing(KafkaBroker(cluster.login("operator"))) as broker:
        running.wait_idle()
        tool = Pausing(graph, broker, who="test", sides=sides)
        assert tool.pause(timeout_s=20.0) == {}
        seen = status(cluster.login("operator"), graph)
        assert ({one.state for one in seen.tasks}, seen.unseen, seen.lag) == ({"paused"}, (), 0)
        tool.resume()
        tool.close()
        with Repairs(graph, broker) as repairs:
            requested = repairs.ask("replay")
            assert repairs.wait(requested, timeout_s=20.0)
            assert requested.outcomes == {"error": 2}
    with connect(cluster.login("operator"), graph) as operator:
        assert {message.value.text for message in operator.messages("enough.errors")} == {"negative"}
    assert verify(graph, verifier).complete
    worker = KafkaBroker(cluster.login("worker"))
    assert not [ailment for ailment in examine(graph, worker, watch_s=0.5) if ailment.wrong]
    lacking = [ailment for ailment in examine(graph, verifier, watch_s=0) if ailment.check == "permissions"]
    assert lacking[0].what.startswith("User `verifier` lacks ")
    assert {done[1:] for one in lacking for done in cluster.carry_out(one.remedy.strip("`"))} == {
        *(("Read", f"enough.{name}") for name in ("check", "check.replay")),
        *(("Write", f"enough.{topic}") for topic in ("check.backing", "clean", "errors")),
    }
    maintenance = Maintenance(graph, worker, "check", who="test")
    maintenance.carry_out(reset(maintenance, to="earliest"))
    for broker in (super_user, deployer, verifier, worker):
        broker.close()


def numbered(order: dict[str, Any], seen: State[int]) -> dict[str, Any]:
    """Which order it is."""
    seen["all"] = seen.get("all", 0) + 1
    return {**order, "nth": seen["all"]}


@pytest.mark.full
def test_printed_permissions_suffice_for_cuts(cluster: Cluster) -> None:
    """The deployer prepares a graph that ran without them; the worker's role pauses, cuts and goes back."""

    def graph_of(cuts: str | None) -> Graph:
        state = {"seen": Store(Json(int))}
        first = Processor(numbered, inputs="cuts.orders", outputs="cuts.seen", state=state)
        last = Processor(tidy, inputs="cuts.seen", outputs="cuts.clean")
        return Graph("cuts", Source("cuts.orders"), first, last, cuts=cuts, defaults=Topic(value=Json(), partitions=1))

    before, graph = graph_of(None), graph_of("1 day")
    cluster.grant(*plan(graph).acls)
    deployer, worker = KafkaBroker(cluster.login("deployer")), KafkaBroker(cluster.login("worker"))
    apply_plan(plan_start(before, deployer, Terms()), deployer)
    planned = plan_start(graph, deployer, Terms())
    assert [one.topic for one in planned.alter] == ["cuts.numbered.seen.changelog"]
    apply_plan(planned, deployer)
    with start(graph, cluster.login("worker")) as running, connect(cluster.login("sender"), graph) as sender:
        for numbers in ([1, 2], [3]):
            for n in numbers:
                sender.send("cuts.orders", {"n": n})
            running.wait_idle()
            Drain(graph, worker, who="test").take(f"at-{numbers[-1]}")
    tool = GoBack(graph, worker, who="test")
    tool.carry_out(tool.plan("at-2"))
    with start(graph, cluster.login("worker")) as running:
        running.wait_idle()
        assert running.query("numbered", "seen", "all").value == 3
    for broker in (deployer, worker):
        broker.close()


VERBS = """
from cues_kafka import Graph, Json, Processor, Source, State, Store, Topic


def tidy(order: dict | None = None, refund: dict | None = None) -> dict:
    return order or refund


def count(order: dict, seen: State[int]) -> dict:
    seen["all"] = seen.get("all", 0) + 1
    return order | {"nth": seen["all"]}


graph = Graph(
    "verbs",
    Source("verbs.orders", default=True),
    Source("verbs.refunds"),
    Processor(tidy, inputs="verbs.orders", outputs="verbs.clean"),
    Processor(count, inputs="verbs.clean", outputs="verbs.counted", state={"seen": Store(Json(int))}),
    errors="verbs.errors",
    defaults=Topic(value=Json(), partitions=1),
)
"""


class CommandLine:
    """A graph in a file, and the commands of users whose rights are those that `plan --acls` prints."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster, self._module, self._file = cluster, directory / "verbs.py", directory / "cues-kafka.toml"
        self.target, self._text = f"{self._module}:graph", VERBS
        profile = '[profile.{0}.security]\ntype = "scram"\nuser = "{0}"\npassword = "{0}"\ntls = false\n'
        profiles = "".join(map(profile.format, (*ROLES, "ann")))
        self._file.write_text(f'bootstrap = "{cluster.secured}"\n{profiles}')

    def declare(self, before: str = "", after: str = "", *, new: Sequence[str] = ()) -> Graph:
        """Change the graph, grant what it prints, and create what it lacks."""
        assert before in self._text
        self._text = self._text.replace(before, after)
        self._module.write_text(self._text)
        users = [f"--principal={role}=User:{role}" for role in ROLES]
        printed = self.do("deployer", "plan", "--offline", "--acls", "--format", "kafka-acls", *users)
        self._cluster.carry_out(*(command for command in printed.splitlines() if not command.startswith("#")))
        self.do("deployer", "plan", "--apply", *(f"--new={name}" for name in new))
        return load_graph(self.target)

    def do(self, user: str, verb: str, *words: str, code: int = 0) -> str:
        """What a command prints to a user; it must end with this code, and lack nothing that the user should see."""
        graph = ["--graph", self.target] if verb in ("tail", "lineage") else [self.target]
        result = CliRunner().invoke(app, [verb, *graph, *words, "--file", str(self._file), "--profile", user])
        assert result.exit_code == code, f"{verb} as {user}: {result.output}"
        assert user not in ("worker", "verifier") or " may not " not in result.output, f"{verb} as {user}"
        return result.output

    def deliver(self, graph: Graph, *numbers: int) -> None:
        """Send orders, and run the graph until they are delivered."""
        with connect(self._cluster.login("sender"), graph) as sender:
            sender.send_many("verbs.orders", [{"n": n} for n in numbers])
        with start(graph, self._cluster.login("worker")) as running:
            running.wait_idle()


@pytest.mark.full
def test_printed_permissions_suffice_for_each_verb_of_the_pages(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each as the user whom docs/operations.md names; docs/change.md has the two rights of one who deletes it all."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    line = CommandLine(cluster, tmp_path)
    graph = line.declare()
    line.deliver(graph, 1, 2, 3)

    assert "stop:\n  none\n" in line.do("worker", "plan", "--records")
    assert line.do("verifier", "tail", "verbs.counted").splitlines()[-1] == '{"n": 3, "nth": 3}'
    assert "verbs.orders/0@0" in line.do("verifier", "lineage", "verbs.counted/0@0")

    graph = line.declare("+ 1\n", "+ 10\n")
    assert "count: " in line.do("worker", "rebuild", "count", "--yes")
    line.deliver(graph, 4)
    assert line.do("verifier", "tail", "verbs.counted").splitlines()[-1] == '{"n": 4, "nth": 40}'

    with connect(cluster.login("sender"), graph) as sender:
        place = [sender.send("verbs.orders", {"n": n}) for n in (5, 6)][-1]
    with closing(KafkaBroker(cluster.super_user)) as admin:
        admin.trim({TopicPartition("verbs.orders", 0): place.offset})
    assert "`cues-kafka accept-loss" in line.do("worker", "plan", "--records", code=1)
    assert "tidy: 1 task moved" in line.do("worker", "accept-loss", "tidy", "--yes")

    line.declare('outputs="verbs.clean"', 'outputs="verbs.clean", strategy="at-most-once"')
    assert "tidy: 1 task moved" in line.do("worker", "strategy", "tidy", "--yes")

    alts = 'alts={"order": "verbs.orders", "refund": "verbs.refunds"}'
    line.declare('tidy, inputs="verbs.orders"', f"tidy, {alts}")
    added = ("--add", "refund=latest", "--yes")
    moved = line.do("worker", "migrate", "tidy", "--drop", "input", "--add", "order=input", *added)
    assert "tidy: 1 task moved" in moved

    renamed = 'Processor(count, name="total", renamed_from="count", '
    graph = line.declare("Processor(count, ", renamed, new=["total"])
    assert "count: goes on as total" in line.do("worker", "rename", "count", "total", "--yes")
    line.deliver(graph, 7)
    assert line.do("verifier", "tail", "verbs.counted").splitlines()[-1] == '{"n": 7, "nth": 60}'

    commands = re.findall(r"^kafka-acls --add .* --operation Delete .*$", CHANGES, re.MULTILINE)
    cluster.make_users(["ann"])
    cluster.carry_out(*(command.replace(" shop.", " verbs.") for command in commands))
    assert len(commands) == 2
    line.do("ann", "delete", "--data", "--confirm", "verbs")
    with closing(KafkaBroker(cluster.super_user)) as admin:
        assert [topic for topic in admin.partitions() if topic.startswith("verbs.")] == []


@pytest.mark.full
def test_a_worker_at_least_once_has_no_right_to_any_transactional_id(cluster: Cluster) -> None:
    """W5: what the plan prints for it suffices."""
    graph = Graph(
        "loose",
        Source("loose.orders"),
        Processor(tidy, inputs="loose.orders", outputs="loose.clean", strategy="at-least-once"),
        errors="loose.errors",
        defaults=Topic(value=Json(), partitions=2),
    )
    acls = plan(graph).acls
    assert [acl for acl in acls if acl.role == "worker" and acl.resource == "transactional-id"] == []
    cluster.make_users(["loose"])
    cluster.grant(*(acl for acl in acls if acl.role == "worker"), user="loose")
    cluster.grant(*(acl for acl in acls if acl.role in ("deployer", "sender", "verifier")))
    deployer, verifier = KafkaBroker(cluster.login("deployer")), KafkaBroker(cluster.login("verifier"))
    apply_plan(plan_start(graph, deployer, Terms()), deployer)
    with start(graph, cluster.login("loose")) as running:
        with connect(cluster.login("sender"), graph) as sender:
            sender.send_many("loose.orders", ORDERS)
        running.wait_idle()
    report = verify(graph, verifier)
    assert (report.ok, report["tidy"].outputs, report["tidy"].errors) == (True, 4, 2)
    for broker in (deployer, verifier):
        broker.close()


class Case(NamedTuple):
    """All permissions of a role but one."""

    user: str
    graph: Graph
    left: Acl


def permissions(graph: Graph, *roles: str) -> list[Acl]:
    return [acl for acl in acls_of(graph) if acl.role in roles]


def of_own_graphs(name: str, role: str) -> list[Case]:
    """A graph for each permission of a role that works once."""
    graphs = [shop(f"{name}{number}") for number in range(len(permissions(shop(name), role)))]
    return [Case(role, graph, permissions(graph, role)[number]) for number, graph in enumerate(graphs)]


@pytest.mark.full
def test_each_right_of_a_worker_is_named_where_it_is_missing_and_its_command_repairs_it(cluster: Cluster) -> None:
    """The text has user, operation, resource and a command. Once that was carried out, all is delivered."""
    cases = of_own_graphs("left", "worker")
    admin = KafkaBroker(cluster.super_user)
    admin.create([new for case in cases for new in plan(case.graph, admin.facts(())).create])
    for case in cases:
        with connect(cluster.super_user, case.graph) as sender:
            sender.send_many(f"{case.graph.name}.orders", ORDERS)

    def works(case: Case) -> None:
        for _ in range(2):  # the second one recovers from what the first one has written
            with start(case.graph, cluster.login(case.user)) as running:
                running.wait_idle()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda case: _is_repaired(cluster, case, works), cases))
    admin.close()


@pytest.mark.full
@pytest.mark.parametrize(("topic", "operation"), [("clean", "Write"), ("orders", "Read")], ids=["write", "read"])
def test_a_right_that_is_revoked_stops_the_tasks_and_given_back_lets_them_go_on(
    cluster: Cluster, topic: str, operation: str
) -> None:
    """While they run, by themselves, and each message once."""
    kind = f"revoked{topic}"
    graph, name = shop(kind), f"{kind}.{topic}"
    cluster.grant(*plan(graph).acls)
    [right] = [acl for acl in permissions(graph, "worker") if (acl.name, acl.operation) == (name, operation)]
    with closing(KafkaBroker(cluster.super_user)) as admin:
        admin.create(plan(graph, admin.facts(())).create)
    with start(graph, cluster.login("worker")) as running, connect(cluster.super_user, graph) as sender:
        sender.send_many(f"{kind}.orders", ORDERS)
        running.wait_idle()
        cluster.revoke(right)
        sender.send_many(f"{kind}.orders", ORDERS)
        stopped = until(lambda: running.status().stopped, "the tasks say why")
        assert f"user `worker` may not {'write to' if topic == 'clean' else 'read'} topic `{name}`" in str(
            stopped[0].stopped
        )
        cluster.grant(right)
        until(lambda: not running.status().stopped, "they go on")
        running.wait_idle(timeout_s=60)
        clean = [message.value["n"] for message in sender.messages(f"{kind}.clean")]
        assert sorted(clean) == sorted(2 * [order["n"] for order in ORDERS if order["n"] > 0])
        assert len(list(sender.messages(f"{kind}.errors"))) == 4


@pytest.mark.full
def test_a_right_on_the_group_that_is_revoked_pauses_the_tasks_until_it_is_given_back(cluster: Cluster) -> None:
    """The member is out when its session has ended. The worker says why, and joins again by itself."""
    name = "ungrouped"
    graph, login = shop(name), replace(cluster.login("worker"), session_timeout_s=6.0)  # brokers allow no shorter one
    cluster.grant(*plan(graph).acls)
    [right] = [acl for acl in permissions(graph, "worker") if (acl.resource, acl.operation) == ("group", "Read")]
    with closing(KafkaBroker(cluster.super_user)) as admin:
        admin.create(plan(graph, admin.facts(())).create)
    with start(graph, login) as running, connect(cluster.super_user, graph) as sender:
        sender.send_many(f"{name}.orders", ORDERS)
        running.wait_idle()
        cluster.revoke(right)
        until(lambda: [one.task for one in running.status().tasks] == ["check"], "its tasks are gone, with the reason")
        [stopped] = running.status().stopped
        assert f"user `worker` may not read group `{name}.check`" in stopped.stopped
        assert "by itself" in stopped.remedy
        sender.send_many(f"{name}.orders", ORDERS)
        assert running.failed is None
        [command] = re.findall(r"`(kafka-acls [^`]*)`", stopped.stopped)
        assert cluster.grant_by(command) == ("worker", "Read", f"{name}.check")
        until(lambda: len(running.status().tasks) == 2 and not running.status().stopped, "the tasks go on")
        running.wait_idle(timeout_s=60)
        clean = [message.value["n"] for message in sender.messages(f"{name}.clean")]
        assert sorted(clean) == sorted(2 * [order["n"] for order in ORDERS if order["n"] > 0])
        assert len(list(sender.messages(f"{name}.errors"))) == 4


@pytest.mark.full
def test_a_replay_without_the_right_to_read_error_messages_is_refused_and_can_be_asked_for_again(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The task goes on, and the log names the right and its command."""
    name = "unread"
    graph = shop(name)
    cluster.grant(*plan(graph).acls)
    [right] = [one for one in permissions(graph, "worker") if (one.name, one.operation) == (f"{name}.errors", "Read")]
    cluster.revoke(right)
    admin = KafkaBroker(cluster.super_user)
    admin.create(plan(graph, admin.facts(())).create)
    with (
        closing(admin),
        start(graph, cluster.login("worker")) as running,
        connect(cluster.super_user, graph) as sender,
    ):
        sender.send_many(f"{name}.orders", ORDERS)
        running.wait_idle()

        def asked_for() -> None:
            with Repairs(graph, admin) as repairs:
                assert repairs.ask("replay").asked == 2

        asked_for()
        missing = f"user `worker` may not read topic `{name}.errors`"
        refused = until(lambda: [one for one in caplog.messages if missing in one][1:], "both requests are refused")
        [command] = set(re.findall(r"`(kafka-acls [^`]*)`", refused[0]))
        assert cluster.grant_by(command) == ("worker", "Read", f"{name}.errors")
        asked_for()
        until(lambda: len(list(sender.messages(f"{name}.errors"))) == 4, "each has failed once more")
        running.wait_idle(timeout_s=60)
        assert not running.status().stopped
        assert verify(graph, admin).ok


@pytest.mark.full
def test_each_right_of_the_other_roles_is_named_where_it_is_missing_and_its_command_repairs_it(
    cluster: Cluster,
) -> None:
    """What reads names a group too; it may be done before it hears that it may not, so this right is not left out."""
    graph = shop("seen")
    with start(graph, cluster.super_user) as running:
        running.send_many("seen.orders", [*ORDERS, *[{"n": -3}] * 10])
        running.wait_idle()
    asked = [
        acl
        for acl in permissions(graph, "sender", "operator", "verifier")
        if acl.resource != "group" and acl.operation != "DescribeConfigs"
    ]
    cases = [Case(f"{acl.role}{number}", graph, acl) for number, acl in enumerate(asked)]
    cluster.make_users(case.user for case in cases)

    def works(case: Case) -> None:
        login = cluster.login(case.user)
        if case.left.role == "verifier":
            with closing(KafkaBroker(login)) as broker:
                assert verify(graph, broker).complete
            return
        if case.left.role == "operator":
            with closing(KafkaBroker(login)) as broker, Repairs(graph, broker) as tool:
                assert tool.ask("drop", limit=1).asked == 1
            return
        with connect(login, graph) as client:
            client.send({"n": 7})
            client.send_many("seen.orders", [{"n": 8}])

    def deploys(case: Case) -> None:
        topics = topics_to_ask(case.graph)
        with (
            closing(KafkaBroker(cluster.login(case.user))) as broker,
            closing(KafkaBroker(cluster.super_user)) as admin,
        ):
            apply_plan(plan(case.graph, broker.facts(topics)), broker)
            admin.add_partitions(f"{case.graph.name}.orders", 3)
            plan(case.graph, broker.facts(topics)).refuse()
            apply_plan(plan(case.graph, broker.facts(topics)), broker)

    with ThreadPoolExecutor(4) as pool:
        for case in sorted(cases, key=lambda case: case.left.role == "sender"):  # what was sent is not delivered
            _is_repaired(cluster, case, works)
        list(pool.map(lambda case: _is_repaired(cluster, case, deploys), of_own_graphs("made", "deployer")))


def _is_repaired(cluster: Cluster, case: Case, works: Callable[[Case], None]) -> None:
    """Grant what the messages say until it works: what was left out, and nothing else."""
    role, left = case.left.role, case.left
    cluster.grant(*(acl for acl in permissions(case.graph, role) if acl != left), user=case.user)
    granted: list[tuple[str, str, str]] = []
    while len(granted) < 4 and (text := _refused(case, works)):
        commands = set(re.findall(r"`(kafka-acls [^`]*)`", text))
        assert len(commands) == 1, text
        granted.append(cluster.grant_by(*commands))
        assert f"user `{case.user}` may not" in text
        assert f"`{granted[-1][2]}" in text
    # Read, Write and Alter imply Describe, which is asked for first.
    wanted, seen = (case.user, left.operation, left.name), (case.user, "Describe", left.name)
    # Without Read on the replay topic messages are delivered as ever, and a warning says so (Y1). The errors topic is
    # read for a replay alone.
    reads = left.name.rpartition(".")[2] if (role, left.operation) == ("worker", "Read") else ""
    enough = {"replay": [seen], "errors": []}.get(reads, [wanted])
    assert granted in ([wanted], [seen, wanted], enough), left


def test_a_sender_that_has_failed_says_why_at_each_send(cluster: Cluster) -> None:
    """The client names the reason once; the second `send` waited 5 s for it, and named none."""
    with closing(KafkaBroker(cluster.super_user)) as admin:
        admin.create([NewTopic("closed.orders", 1)])
    cluster.make_users(["stranger"])
    [writing] = [acl for acl in permissions(shop("closed"), "sender") if acl.resource == "topic"]
    cluster.grant(writing._replace(operation="Describe", name="closed.orders"), user="stranger")

    with closing(KafkaBroker(cluster.login("stranger"))) as broker, closing(broker.sender("stranger")) as sender:
        for _ in range(2):
            with pytest.raises(BrokerError, match=r"user `stranger` may not write to topic `closed\.orders`"):
                sender.send([("closed.orders", 0, None, b"x", [], 0)])


def counted(order: dict[str, Any], counts: State[int]) -> None:
    """Count orders."""
    counts["all"] = counts.get("all", 0) + 1


@pytest.mark.parametrize("topic", ["backing", "count.counts.changelog"])
def test_a_table_needs_the_rights_of_a_verifier_and_names_the_missing_one(cluster: Cluster, topic: str) -> None:
    """At once, not after its time-out."""
    name = f"counted-{topic.split('.', maxsplit=1)[0]}"
    counts = processor(inputs=f"{name}.orders", name="count", state={"counts": Store(Json(int))})(counted)
    graph = Graph(name, Source(f"{name}.orders"), counts)
    with start(graph, cluster.super_user) as running:
        running.send(f"{name}.orders", {"n": 1})
        running.wait_idle()
    [left] = [
        acl
        for acl in permissions(graph, "verifier")
        if acl.operation == "Read" and acl.name.endswith(topic) and acl.name.startswith(f"{name}.count")
    ]

    def works(case: Case) -> None:
        with connect(cluster.login(case.user), graph) as client, client.table("count", "counts") as view:
            assert view.copy() == {"all": 1}
        with closing(KafkaBroker(cluster.login(case.user))) as broker:
            assert verify(graph, broker, state=True, pure=["count"]).ok

    cluster.make_users([f"{name}-reader"])
    _is_repaired(cluster, Case(f"{name}-reader", graph, left), works)


@pytest.mark.parametrize("seen", [False, True], ids=["hidden", "seen"])
def test_verify_names_the_right_to_the_records_of_a_former_name(cluster: Cluster, seen: bool) -> None:
    """A topic that this user may not read, or not even see, was taken for that of a renamed processor."""
    name = f"former-{'seen' if seen else 'hidden'}"

    def graph(name_of: str, **options: Any) -> Graph:
        own = processor(inputs=f"{name}.orders", name=name_of, outputs=f"{name}.out", **options)(passed)
        return Graph(name, Source(f"{name}.orders"), own)

    with start(graph("old"), cluster.super_user) as running:
        running.send(f"{name}.orders", {"n": 1})
        running.wait_idle()
    new = graph("new", renamed_from="old")
    with closing(KafkaBroker(cluster.super_user)) as broker:
        apply_plan(plan(new, broker.facts(topics_to_ask(new))), broker)
    [left] = [acl for acl in permissions(new, "verifier") if acl.name == f"{name}.old.backing"]
    user = f"{name}-verifier"
    cluster.make_users([user])
    if seen:
        cluster.grant(left._replace(operation="Describe"), user=user)

    def works(case: Case) -> None:
        with closing(KafkaBroker(cluster.login(case.user))) as broker:
            assert verify(new, broker).anomalies == 0

    _is_repaired(cluster, Case(user, new, left), works)


def passed(order: dict[str, Any]) -> dict[str, Any]:
    """Pass orders on."""
    return order


def test_a_tool_that_may_not_join_the_group_leaves_no_client(cluster: Cluster) -> None:
    """One that was left tried to join again without end, at a whole core, and the program took minutes to end."""
    graph = shop("unjoined")
    with closing(KafkaBroker(cluster.super_user)) as admin:
        apply_plan(plan(graph, admin.facts(topics_to_ask(graph))), admin)
    cluster.make_users(["onlooker"])
    [joining] = [acl for acl in permissions(graph, "worker") if acl.resource == "group" and acl.operation == "Read"]
    cluster.grant(*(acl for acl in permissions(graph, "worker") if acl != joining), user="onlooker")
    cluster.grant(joining._replace(operation="Describe"), user="onlooker")
    before = _clients()

    with closing(KafkaBroker(cluster.login("onlooker"))) as broker:
        tool = Maintenance(graph, broker, "check", who="test")
        moves = reset(tool, to="latest")
        assert moves
        with pytest.raises(BrokerError, match=r"user `onlooker` may not read group `unjoined\.check`"):
            tool.carry_out(moves)

    assert _no_more_clients(before)


def test_a_worker_takes_a_group_over_with_the_rights_that_messages_name(cluster: Cluster) -> None:
    """The page names them: to describe the other group, to hold it as a member, and to delete it."""
    graph, legacy = shop("moved"), "moved-legacy"
    admin = KafkaBroker(cluster.super_user)
    apply_plan(plan(graph, admin.facts(topics_to_ask(graph))), admin)
    with connect(cluster.super_user, graph) as sender:
        sender.send_many("moved.orders", ORDERS)
    session = admin.session("moved-legacy-commits")
    session.init(timeout_s=30)
    session.begin()
    places = [TopicPartition("moved.orders", partition) for partition in range(2)]
    session.send_offsets(dict.fromkeys(places, 0), GroupMetadata.outside(legacy))
    session.commit()
    session.close()
    cluster.make_users(["mover"])
    cluster.grant(*permissions(graph, "worker"), user="mover")

    def adopts(_: Case) -> None:
        with closing(KafkaBroker(cluster.login("mover"))) as broker:
            tool = Maintenance(graph, broker, "check", who="test")
            tool.carry_out(adopt(tool, legacy), holding=legacy)
            assert forget(tool, legacy)

    before = _clients()
    granted: list[tuple[str, str, str]] = []
    case = Case("mover", graph, permissions(graph, "worker")[0])
    while len(granted) < 4 and (text := _refused(case, adopts)):
        assert "user `mover` may not" in text
        [command] = set(re.findall(r"`(kafka-acls [^`]*)`", text))
        granted.append(cluster.grant_by(command))
    assert _no_more_clients(before), "a client that may not join tries it again without end, unless it is closed"
    assert granted == [("mover", operation, legacy) for operation in ("Describe", "Read", "Delete")]
    with start(graph, cluster.login("mover")) as running:
        running.wait_idle()
        assert sum(task.totals.deliveries for task in running.status().tasks) == len(ORDERS)
    assert admin.committed(legacy, places) == dict.fromkeys(places)
    admin.close()


def _clients() -> frozenset[int]:
    gc.collect()
    return clients()


def _no_more_clients(than: frozenset[int]) -> bool:
    """Whether there are no others; a client's threads end a little after it is closed."""
    deadline = time.monotonic() + 10
    while not _clients() <= than and time.monotonic() < deadline:
        time.sleep(0.05)
    return _clients() <= than


def _refused(case: Case, works: Callable[[Case], None]) -> str:
    """Why it does not work; empty: it does."""
    try:
        works(case)
    except (BrokerError, ConfigError, TaskStopped) as error:
        return str(error)
    return ""


def test_settings_that_may_not_be_read_are_refused_until_they_are_accepted(cluster: Cluster) -> None:
    """A backing topic that is not kept looks like any other to who cannot read its settings."""
    graph = shop("blind")
    cluster.grant(*(acl for acl in acls_of(graph) if acl.role == "worker" and acl.operation != "DescribeConfigs"))
    admin = KafkaBroker(cluster.super_user)
    short = {"cleanup.policy": "delete", "retention.ms": "60000"}
    admin.create([NewTopic("blind.check.backing", 2, config=short)])
    admin.create(plan(graph, admin.facts(topics_to_ask(graph))).create)
    worker = KafkaBroker(cluster.login("worker"))

    refusal = r"Not checked: user `worker` may not read the settings of .*`blind.check.backing`"
    with pytest.raises(ConfigError, match=refusal):
        prepare(graph, worker)
    planned, _ = prepare(graph, worker, terms=Terms(accept_unchecked=True))
    assert [text for text in planned.warnings if text.startswith("Not checked: user `worker`")]
    assert not verify(graph, worker).ok  # nor can it tell what is compacted
    cluster.grant(*acls_of(graph))
    with pytest.raises(ConfigError, match=r"cleanup\.policy=delete"):
        prepare(graph, worker, terms=Terms(accept_unchecked=True))
    for broker in (admin, worker):
        broker.close()


def test_topics_that_a_worker_may_not_create_are_the_deployers_work(cluster: Cluster) -> None:
    """All of them are named, with who creates them."""
    graph = shop("early")
    cluster.grant(*(acl for acl in acls_of(graph) if acl.role == "worker"))

    refusal = r"user `worker` may not create topics `early.clean`, .*`early.check.replay`"
    with pytest.raises(BrokerError, match=refusal) as refused:
        start(graph, cluster.login("worker"))

    assert "run `cues-kafka plan MODULE:GRAPH --apply`" in str(refused.value)


def test_plan_prints_the_permissions_to_a_user_who_has_none(cluster: Cluster, tmp_path: Path) -> None:
    """The cluster may not be asked, so the plan is the offline one, refused with the right that is missing."""
    (tmp_path / "app.py").write_text(
        "from cues_kafka import Graph, Source, processor\n\n\n"
        '@processor(inputs="strange.in", outputs="strange.out")\n'
        "def same(message):\n    return message\n\n\n"
        'graph = Graph("strange", Source("strange.in"), same)\n'
    )
    (tmp_path / "cues-kafka.toml").write_text(
        f'bootstrap = "{cluster.secured}"\n[security]\n'
        'type = "scram"\nuser = "sender"\npassword = "sender"\ntls = false\n'
    )
    command = ["plan", f"{tmp_path / 'app.py'}:graph", "--file", str(tmp_path / "cues-kafka.toml")]

    result = CliRunner().invoke(app, command)

    assert result.exit_code == 1, result.output
    assert "user `sender` may not describe topics `strange.in`, `strange.out`, `strange.same.backing`" in result.output
    acls = acls_of(load_graph(f"{tmp_path / 'app.py'}:graph"), sides=Sides(status=True, control=True))
    for commands in kafka_acls(acls).values():
        assert all(line in result.output for line in commands)
    assert "--operation Read --operation Write --topic strange.control" in result.output


@pytest.mark.full
def test_a_client_with_a_name_needs_the_rights_that_its_page_lists(cluster: Cluster) -> None:
    """Each is named by a message when it is missing."""
    with closing(KafkaBroker(cluster.super_user)) as admin:
        admin.create([NewTopic("named-orders", 1)])
    cluster.make_users(["named"])
    case = Case("named", shop("named"), permissions(shop("named"), "sender")[0])

    def works(_: Case) -> None:
        with connect(cluster.login("named"), name="named-client") as client:
            client.send("named-orders", 1, id="one")
            assert client.sent("named-orders", "one")
            with client.topic("named-orders").tailer(name="t") as tailer, client.transaction() as tx:
                assert tailer.read_blocking(10)
                tx.advance(tailer)

    granted: list[tuple[str, str, str]] = []
    while len(granted) < 20 and (text := _refused(case, works)):
        assert "user `named` may not" in text
        [command] = set(re.findall(r"`(kafka-acls [^`]*)`", text))
        granted.append(cluster.grant_by(command))
    assert {(operation, name.removeprefix("named-")) for _, operation, name in granted} == {
        ("Write", "client."),
        ("Read", "client.tailer.t"),
        *((operation, "client.tailers") for operation in ("Create", "Describe", "Read", "Write")),
        ("Describe", "client.tailers.tools"),
        *((operation, "orders") for operation in ("Describe", "Read", "Write")),
        ("Describe", "orders.tools"),
    }
