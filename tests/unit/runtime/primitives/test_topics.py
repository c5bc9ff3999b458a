"""Topics as objects of a client."""

from __future__ import annotations

import pytest

from cues_kafka import ConfigError, Memory, connect


def test_sending_to_a_topic_that_does_not_exist_says_how_to_create_it() -> None:
    with connect(Memory()) as client, pytest.raises(ConfigError, match=r"plan MODULE:GRAPH --apply.*create=True"):
        client.send("orders", 1)
