"""What `tail` prints of a message."""

from __future__ import annotations

import json

import pytest

from cues_kafka import BrokerError, Graph, Json, Processor, Source, Topic
from cues_kafka.cli.options import as_tools_of
from cues_kafka.cli.tail import Shown, printer
from cues_kafka.testing.tester import Tester


def refuse(left: int, right: int) -> int:
    raise ValueError(f"{left} and {right} do not fit")


@pytest.mark.parametrize("form", ["value", "json"])
def test_error_message_shows_its_hash_as_the_log_does_and_its_messages_by_topic(form: Shown) -> None:
    graph = Graph(
        "g",
        Source("lefts"),
        Source("rights"),
        Processor(refuse, inputs={"left": "lefts", "right": "rights"}, outputs="out"),
        defaults=Topic(value=Json()),
        errors="g.errors",
    )
    tester = Tester(graph)
    tester.send("lefts", 1)
    tester.send("rights", 2)
    [received] = tester.run().messages("g.errors")

    shown = json.loads(printer(form)(received))
    error = shown["value"] if form == "json" else shown

    assert error["hash"] == received.value.hash.hex()
    assert error["consumed"] == [
        {"binding": "left", "topic": "lefts", "partition": 0, "offset": 0},
        {"binding": "right", "topic": "rights", "partition": 0, "offset": 0},
    ]
    assert (error["text"], error["exception"]) == ("1 and 2 do not fit", "ValueError")


def test_missing_right_to_the_group_of_a_topic_names_the_option_that_needs_none() -> None:
    """Roles have the right to the group of the graph's tools; other rights are missing with a graph as without."""

    def refused(graph: str, code: str) -> str:
        with pytest.raises(BrokerError) as caught, as_tools_of(graph):
            raise BrokerError("user `ann` may not describe group `a.tools`.", code=code)
        assert caught.value.code == code
        return str(caught.value)

    assert "`a.tools`. Or add --graph MODULE:GRAPH" in refused("", "GROUP_AUTHORIZATION_FAILED")
    assert "--graph" not in refused("shop:graph", "GROUP_AUTHORIZATION_FAILED")
    assert "--graph" not in refused("", "TOPIC_AUTHORIZATION_FAILED")
