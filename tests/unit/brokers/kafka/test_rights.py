"""What a client may not do, in words; on a real broker see tests/integration/test_permissions.py."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from cues_kafka import BrokerError, Kafka
from cues_kafka.brokers.kafka.classify import translate
from cues_kafka.brokers.kafka.reader import KafkaReader
from cues_kafka.brokers.kafka.rights import Right, refusal, user_of
from cues_kafka.brokers.kafka.watch import Watch
from cues_kafka.client.client import Client
from cues_kafka.graph.names import sender_id, tools_group
from cues_kafka.plan.acls import grant
from cues_kafka.ports.log import Outgoing
from cues_kafka.words import SERVER
from tests.unit.brokers.memory.test_broker import a_broker

AT = "--bootstrap-server localhost:1"
PREFIXED = "--transactional-id shop.check. --resource-pattern-type prefixed"
NEEDS = [
    Right("Read", "group", "shop.check"),
    Right("Read", "topic", "orders"),
    Right("Read", "topic", "refunds"),
    Right("Write", "transactional-id", "shop.check.2"),
]


@pytest.mark.parametrize(
    ("code", "what", "remedy"),
    [
        (
            "GROUP_AUTHORIZATION_FAILED",
            "user `worker` may not read group `shop.check`",
            f"kafka-acls {SERVER} --add --allow-principal User:worker --operation Read --group shop.check",
        ),
        (
            "TOPIC_AUTHORIZATION_FAILED",
            "user `worker` may not read topics `orders`, `refunds`",
            f"kafka-acls {SERVER} --add --allow-principal User:worker --operation Read --topic orders --topic refunds",
        ),
        (
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            "user `worker` may not use transactional id `shop.check.2`",
            f"kafka-acls {SERVER} --add --allow-principal User:worker --operation Write {PREFIXED}",
        ),
    ],
)
def test_a_refusal_names_user_operation_resource_and_command(code: str, what: str, remedy: str) -> None:
    """The answer has the kind of the resource alone; which one it was follows from what the call needs."""
    assert refusal(code, NEEDS, "worker") == (what, f"Grant it with `{remedy}`")


def test_a_refusal_without_a_right_of_its_kind_says_nothing() -> None:
    """Neither an answer about something else, nor an error that is no refusal."""
    assert refusal("GROUP_AUTHORIZATION_FAILED", NEEDS[1:], "worker") is None
    assert refusal("_TIMED_OUT", NEEDS, "worker") is None
    assert "lacks a right on the group" in str(translate(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), "reading"))


@pytest.mark.parametrize(
    ("settings", "user"),
    [
        ({}, "ANONYMOUS"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "w"}, "w"),
        ({"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "w"}, "w"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER", "sasl.username": "w"}, None),
        ({"security.protocol": "SSL", "ssl.certificate.location": "client.pem"}, None),
    ],
)
def test_user_is_known_from_a_login_by_name(settings: dict[str, Any], user: str | None) -> None:
    """What is in a token or in a certificate, only the brokers know."""
    assert user_of(settings) == user


def test_an_unknown_user_has_a_place_to_be_filled_in() -> None:
    """A command that grants it to another user would be worse than none."""
    assert refusal("GROUP_AUTHORIZATION_FAILED", NEEDS, None) == (
        "the user of this client may not read group `shop.check`",
        f"Grant it with `kafka-acls {SERVER} --add --allow-principal User:NAME --operation Read --group shop.check`",
    )


def test_a_principal_with_spaces_is_one_word_of_its_command() -> None:
    """Distinguished names of certificates have them."""
    command = grant("User:CN=worker, O=shop", ["Read"], "topic", ["orders"])
    assert "User:CN=worker, O=shop" in shlex.split(command)


@pytest.mark.parametrize(("group", "operation"), [("shop.check", "Read"), (tools_group("shop"), "Describe")])
def test_a_reader_names_the_right_on_its_group_and_topic(group: str, operation: str) -> None:
    """Workers join a processor's group, which needs Read; the tools' group nothing joins."""
    reader = KafkaReader(Kafka("localhost:1"), group)
    refused = [KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    reader._group([Message(error=refused[0]), Message(topic="orders", error=refused[1])])

    with pytest.raises(
        BrokerError,
        match=f"may not {operation.lower()} group `{group}`.*kafka-acls {AT} --add.*--operation {operation} ",
    ):
        reader.poll(0)
    with pytest.raises(BrokerError, match=r"may not read topic `orders`.*--operation Read --topic orders`"):
        reader.poll(0)
    reader.close()


def test_watch_knows_which_topic_a_transaction_could_not_take_in() -> None:
    """The other partitions of the same request are refused with it, and are not to blame."""
    watch = Watch("session t.0")
    line = '[t.0#producer-1] [thrd:main]: TxnCoordinator/1: Failed to add partition "%s" [%d] to transaction: %s'
    watch.log(40, line, "backing", 0, "Broker: Operation not attempted")
    watch.log(40, line, "checked", 0, "Broker: Topic authorization failed")
    watch.log(40, line, "gone", 3, "Broker: Unknown topic or partition")

    assert list(watch.unwritable) == ["checked"]
    assert watch.reasons == ["gone/3 could not join the transaction: Broker: Unknown topic or partition"]


def test_a_program_without_a_graph_stays_inside_of_the_topics_name() -> None:
    """So a policy by prefix that lets it use the topic lets it send and read."""
    broker = a_broker()
    broker.sender("s").send([Outgoing("t", 0, b"k", b"1")])
    asked: list[str] = []
    reader = broker.reader

    def named(name: str, **rest: Any) -> Any:
        asked.append(name)
        return reader(name, **rest)

    broker.reader = named  # type: ignore[method-assign]

    with Client(broker) as client:
        assert [message.value for message in client.messages("t")] == [1]

    assert asked == [tools_group("t")] == ["t.tools"]
    assert sender_id(None, "t", "x") == "t.send.x"
