"""What `send` does with messages that have ids of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cues_kafka import ConfigError, Memory, Topic, connect
from cues_kafka.cli.send import _Sending
from cues_kafka.client.connect import Connection


def sending(client: Connection) -> _Sending:
    """One run of the command."""
    return _Sending(client, "orders", "message", key=None, headers=None, named=True)


def lines(*given: tuple[int, str | None]) -> list[str]:
    return [json.dumps({"value": value} | ({"id": own} if own else {})) for value, own in given]


def values(client: Connection) -> list[Any]:
    return [message.value for message in client.messages("orders")]


@pytest.mark.parametrize("atomic", [False, True])
def test_what_was_sent_with_an_id_of_its_own_is_not_sent_again(atomic: bool) -> None:
    """A run that died in the middle is repeated with the same lines."""
    memory = Memory()
    with connect(memory, name="loader") as client:
        client.topic("orders", Topic(partitions=1), create=True)
        sending(client).chunk(lines((1, "a"), (2, "b")))
    with connect(memory, name="loader") as client:
        again = sending(client)
        given = lines((1, "a"), (2, "b"), (3, "c"), (3, "c"))
        send = again.at_once if atomic else again.chunk
        send(given)
        assert values(client) == [1, 2, 3]
        assert (again.number, again.skipped) == (4, 3)


def test_lines_keep_their_order_whether_they_have_ids_or_not() -> None:
    """Messages with an id are transactions of their own, those between them are sent together."""
    with connect(Memory(), name="loader") as client:
        client.topic("orders", Topic(partitions=1), create=True)
        sending(client).chunk(lines((1, None), (2, "b"), (3, None), (4, None), (5, "e")))
        assert values(client) == [1, 2, 3, 4, 5]


def test_headers_that_are_no_pairs_are_refused_with_the_line() -> None:
    """Before anything is sent; null is the same as none."""
    with connect(Memory(), name="loader") as client:
        client.topic("orders", Topic(partitions=1), create=True)
        sending(client).chunk(['{"value": 1, "headers": null}'])
        to = sending(client)
        with pytest.raises(ConfigError, match=r"message 2, .*its headers are no pairs"):
            to.chunk(['{"value": 2, "headers": [["unit", "celsius"]]}', '{"value": 3, "headers": [1]}'])
        assert values(client) == [1]


def test_line_that_is_no_json_is_refused_with_the_format_that_takes_it() -> None:
    """Such as a line of CSV for a topic of bytes."""
    with connect(Memory(), name="loader") as client:
        client.topic("orders", Topic(partitions=1), create=True)
        to = _Sending(client, "orders", "json", key=None, headers=None, named=False)
        with pytest.raises(ConfigError, match=r"message 1, '7,a': the line is not JSON: .* Use --format text to"):
            to.chunk(["7,a"])
