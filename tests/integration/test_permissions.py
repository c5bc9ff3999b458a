"""A cluster that allows nothing but what ACLs allow: the printed ones suffice, and each of them is needed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from typer.testing import CliRunner

from cues_kafka import BrokerError, ConfigError, Graph, Kafka, Source, TaskStopped, Topic, connect, processor, start
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.main import app
from cues_kafka.graph.acls import Acl
from cues_kafka.plan import acls_of, kafka_acls, plan, topics_to_ask
from cues_kafka.ports import NewTopic
from cues_kafka.runtime.build import Terms, prepare
from cues_kafka.runtime.maintenance import Maintenance, apply_plan
from cues_kafka.runtime.verify import verify

CLIENT: Any = confluent_kafka.admin  # its names of rights are not exported to type checkers
ROLES = ("worker", "sender", "deployer", "operator", "verifier")
KINDS = {"topic": "TOPIC", "group": "GROUP", "transactional-id": "TRANSACTIONAL_ID"}


class Cluster:
    """The broker, and its super user's client."""

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker
        self.admin = CLIENT.AdminClient({"bootstrap.servers": broker.bootstrap})
        how = CLIENT.ScramCredentialInfo(CLIENT.ScramMechanism.SCRAM_SHA_512, 4096)
        users = [CLIENT.UserScramCredentialUpsertion(role, how, role.encode()) for role in ROLES]
        for future in self.admin.alter_user_scram_credentials(users).values():
            future.result()

    @property
    def super_user(self) -> Kafka:
        return Kafka(self.broker.bootstrap)

    def login(self, role: str) -> Kafka:
        login = {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": role, "sasl.password": role}
        return Kafka(self.broker.secured, config={"security.protocol": "SASL_PLAINTEXT", **login})

    def grant(self, *acls: Acl) -> None:
        """As their commands would."""
        self._grant((acl.role, acl.operation, acl.resource, acl.name, acl.pattern) for acl in acls)

    def grant_by(self, command: str) -> tuple[str, str, str]:
        """
        Do what a printed command says.

        Returns:
            User, operation, and name of the resource.
        """
        words = shlex.split(command)
        assert words[:3] == ["kafka-acls", "--add", "--allow-principal"]
        prefixed = words[-2:] == ["--resource-pattern-type", "prefixed"]
        user, rest = words[3].removeprefix("User:"), words[4 : -2 if prefixed else None]
        pairs = list(zip(rest[::2], rest[1::2], strict=True))
        operations = [value for option, value in pairs if option == "--operation"]
        resources = [(option[2:], value) for option, value in pairs if option != "--operation"]
        pattern = "prefixed" if prefixed else "literal"
        self._grant((user, operation, *resource, pattern) for operation in operations for resource in resources)
        [operation] = operations
        return user, operation, resources[0][1]

    def _grant(self, wanted: Iterator[tuple[str, ...]] | Any) -> None:
        bindings = [
            CLIENT.AclBinding(
                CLIENT.ResourceType[KINDS[resource]],
                name,
                CLIENT.ResourcePatternType[pattern.upper()],
                f"User:{user}",
                "*",
                CLIENT.AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()],
                CLIENT.AclPermissionType.ALLOW,
            )
            for user, operation, resource, name, pattern in wanted
        ]
        for future in self.admin.create_acls(bindings).values():
            future.result()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One broker for all tests here."""
    with LocalBroker(secured=True) as broker:
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
LEFT_OUT = [acl for acl in acls_of(shop("left")) if acl.role == "worker"]


def test_printed_permissions_suffice_for_the_work_of_each_role(cluster: Cluster) -> None:
    """Nobody has any other: not to create, to run, to send, to look at errors, to verify or to reset."""
    graph = shop("enough")
    cluster.grant(*plan(graph).acls)
    super_user = KafkaBroker(cluster.super_user)
    deployer, verifier = KafkaBroker(cluster.login("deployer")), KafkaBroker(cluster.login("verifier"))
    asked = topics_to_ask(graph)
    apply_plan(plan(graph, deployer.facts(asked), listed=deployer.partitions()), deployer)
    super_user.add_partitions("enough.orders", 3)
    grown = plan(graph, deployer.facts(asked))
    assert grown.acls == plan(graph).acls
    apply_plan(grown, deployer)
    assert set(deployer.partitions(["enough.check.backing", "enough.check.replay"]).values()) == {3}
    with connect(cluster.login("sender"), graph) as sender:
        sender.send(ORDERS[0])
        sender.send_many("enough.orders", ORDERS[1:])
    with start(graph, cluster.login("worker")) as running:
        running.wait_idle()
    with connect(cluster.login("operator"), graph) as operator:
        assert {message.value.text for message in operator.messages("enough.errors")} == {"negative"}
    assert verify(graph, verifier).complete
    worker = KafkaBroker(cluster.login("worker"))
    maintenance = Maintenance(graph, worker, "check", who="test")
    maintenance.carry_out(maintenance.reset(to="earliest"))
    for broker in (super_user, deployer, verifier, worker):
        broker.close()


def test_each_right_of_a_worker_is_named_where_it_is_missing_and_its_command_mends_it(cluster: Cluster) -> None:
    """With all but one: the text has user, operation, resource and command. Once granted, all is delivered."""
    graphs = [shop(f"left{number}") for number in range(len(LEFT_OUT))]
    admin = KafkaBroker(cluster.super_user)
    admin.create([new for graph in graphs for new in plan(graph, admin.facts(())).create])
    for graph in graphs:
        with connect(cluster.super_user, graph) as sender:
            sender.send_many(f"{graph.name}.orders", ORDERS)
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda pair: _mended(cluster, *pair), zip(graphs, LEFT_OUT, strict=True)))

    for left, granted in zip(LEFT_OUT, said, strict=True):
        assert {user for user, _, _ in granted} == {"worker"}, left
        # Read and Write imply Describe, which is asked for first.
        operations = [operation for _, operation, _ in granted]
        assert operations in ([left.operation], ["Describe", left.operation]), (left, granted)
        assert {name.removeprefix("left").lstrip("0123456789") for _, _, name in granted} == {left.name[4:]}, left
    admin.close()


def _mended(cluster: Cluster, graph: Graph, left: Acl) -> list[tuple[str, str, str]]:
    """What had to be granted, as the messages said, until all was delivered and another start recovered from it."""
    missing = left._replace(name=left.name.replace("left", graph.name, 1))
    cluster.grant(*(acl for acl in acls_of(graph) if acl.role == "worker" and acl[:5] != missing[:5]))
    granted: list[tuple[str, str, str]] = []
    served = 0
    while len(granted) < 4 and served < 2:
        try:
            with start(graph, cluster.login("worker")) as running:
                running.wait_idle()
        except (BrokerError, ConfigError, TaskStopped) as error:
            text = str(error)
            [command] = set(re.findall(r"`(kafka-acls [^`]*)`", text))
            granted.append(cluster.grant_by(command))
            assert "user `worker` may not" in text, text
            assert f"`{granted[-1][2]}" in text, text
        else:
            served += 1
    return granted


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
    login = "\n".join(f'"{key}" = "{value}"' for key, value in cluster.login("sender").config.items())
    (tmp_path / "cues-kafka.toml").write_text(f'bootstrap = "{cluster.broker.secured}"\n[config]\n{login}\n')
    command = ["plan", f"{tmp_path / 'app.py'}:graph", "--file", str(tmp_path / "cues-kafka.toml")]

    result = CliRunner().invoke(app, command)

    assert result.exit_code == 1, result.output
    assert "user `sender` may not describe topics `strange.in`, `strange.out`, `strange.same.backing`" in result.output
    for commands in kafka_acls(acls_of(load_graph(f"{tmp_path / 'app.py'}:graph"))).values():
        assert all(line in result.output for line in commands)
