"""A quota of a real broker: what it holds back is logged and counted."""

from __future__ import annotations

import os
import socket
import struct

import pytest

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.wire import request
from cues_kafka.observe.throttling import THROTTLING
from cues_kafka.ports import NewTopic, Outgoing
from cues_kafka.testing.fixtures import KafkaFixture

ALTER_CLIENT_QUOTAS = 49


def limit(bootstrap: str, client_id: str, bytes_per_s: float) -> None:
    """Give a client id a quota for what it produces, by version 0 of the request."""

    def text(found: str) -> bytes:
        return struct.pack(f">h{len(found)}s", len(found), found.encode())

    entity = struct.pack(">i", 1) + text("client-id") + text(client_id)
    change = struct.pack(">i", 1) + text("producer_byte_rate") + struct.pack(">d?", bytes_per_s, False)
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        answer = request(connection, ALTER_CLIENT_QUOTAS, 0, struct.pack(">i", 1) + entity + change + b"\0")
    answer.int32()  # throttle time
    assert (answer.int32(), answer.int16()) == (1, 0)


def test_a_client_above_its_quota_is_throttled_and_that_is_said(
    kafka: KafkaFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker answers the first request at once, and says how long it holds back the next one."""
    name = kafka.unique("throttled")
    broker = open_broker(Kafka(kafka.bootstrap))
    limit(kafka.bootstrap, name, 2_000)
    before_s = THROTTLING.total_s
    try:
        broker.create([NewTopic(name, 1)])
        sender = broker.sender(name)
        with caplog.at_level("WARNING", "cues_kafka.broker"):
            sender.send([Outgoing(name, 0, None, os.urandom(22_000))])
            sender.send([Outgoing(name, 0, None, b"y")])
        sender.close()
    finally:
        broker.close()

    assert THROTTLING.total_s > before_s
    assert f"throttled by a quota client='sender {name}'" in caplog.text
