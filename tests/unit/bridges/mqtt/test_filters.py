"""Filters of MQTT topics: which are valid, which overlap."""

from __future__ import annotations

import itertools

import pytest
from paho.mqtt.client import topic_matches_sub

from cues_kafka.bridges.mqtt.filters import overlap, wrong_filter, wrong_topic

LEVELS = ("a", "b", "+", "#", "")


@pytest.mark.parametrize("text", ["#", "+", "a/#", "a/+/c", "/", "$SYS/#", "a b", "+/+/#"])
def test_valid_filters_are_taken(text: str) -> None:
    """As the standard shows them."""
    assert wrong_filter(text) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a text"),
        (5, "is not a text"),
        ("a/#/b", "'#' that is not its last level"),
        ("a#", "'#' that is not its last level"),
        ("a/b+", "'+' that is not a whole level"),
        ("a\0", "U+0000"),
        ("a\ud800", "not UTF-8"),
        ("x" * 65_536, "more than 65,535 bytes"),
    ],
)
def test_other_texts_are_refused_with_the_reason(text: object, why: str) -> None:
    """Before a broker sees them."""
    assert why in wrong_filter(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("a/+", "which only filters have"),
        ("a\0b", "U+0000"),
        ("a\tb", "U+0009"),
        ("a\x9f", "U+009F"),
        ("a\U0010ffff", "U+10FFFF"),
        ("a\ud800", "not UTF-8"),
        ("$SYS/broker", "where only the broker publishes"),
        ("/" * 200, "more than 200 levels"),
    ],
)
def test_topics_without_sense_are_refused(text: str, why: str) -> None:
    """A message has one topic."""
    assert why in wrong_topic(text)


@pytest.mark.parametrize("text", ["a/b", "/", "$aws/a", "a b", "\xa0\ufffd", "/" * 199])
def test_other_topics_are_taken(text: str) -> None:
    """Brokers do, too."""
    assert wrong_topic(text) == ""


def test_filters_overlap_where_a_topic_matches_both() -> None:
    """All filters and topics of up to three levels, judged by paho's matching."""
    words = ["/".join(one) for count in (1, 2, 3) for one in itertools.product(LEVELS, repeat=count)]
    filters = [one for one in words if one not in ("", "/#") and not wrong_filter(one)]  # `/#` matches an empty topic
    topics = ["/".join(one) for count in (1, 2, 3, 4) for one in itertools.product(("a", "b", ""), repeat=count)]
    matched = {one: {topic for topic in topics if topic and topic_matches_sub(one, topic)} for one in filters}
    for one, other in itertools.combinations_with_replacement(filters, 2):
        assert overlap(one, other) == overlap(other, one) == bool(matched[one] & matched[other]), (one, other)


def test_wildcards_do_not_match_topics_of_the_broker() -> None:
    """Those that begin with a dollar sign."""
    assert not overlap("#", "$SYS/#")
    assert not overlap("+/load", "$SYS/load")
    assert overlap("$SYS/#", "$SYS/load")
