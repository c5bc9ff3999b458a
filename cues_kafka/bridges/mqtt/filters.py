"""Filters of MQTT topics, as the standard has them (MQTT 5, 4.7), and texts that brokers take (1.5.4)."""

from __future__ import annotations

import re
from typing import Final

from cues_kafka.bridges.published import Names

LONGEST_BYTES: Final = 65_535

MOST_LEVELS: Final = 200
"""Levels of a topic that is published. Mosquitto closes the connection of a publisher that has more than 201."""

_UNUSED: Final = "".join(chr(plane + end) for plane in range(0, 0x110000, 0x10000) for end in (0xFFFE, 0xFFFF))
_DOUBTFUL: Final = re.compile(f"[\x01-\x1f\x7f-\x9f\ufdd0-\ufdef{_UNUSED}]")
"""Characters for which a broker may close the connection: control characters, and those that Unicode leaves unused."""


def wrong_filter(text: object) -> str:
    """Why a text is not a filter; empty: it is one."""
    if not isinstance(text, str) or not text:
        return "is not a text"
    if (why := _wrong_text(text)) or not ({"+", "#"} & set(text)):
        return why
    levels = text.split("/")
    if any("#" in one and (one != "#" or at < len(levels) - 1) for at, one in enumerate(levels)):
        return "has a '#' that is not its last level"
    if any("+" in one and one != "+" for one in levels):
        return "has a '+' that is not a whole level"
    return ""


def wrong_topic(text: str) -> str:
    """Why a message cannot be published under a text; empty: it can."""
    if not text:
        return "is empty"
    if {"+", "#"} & set(text):
        return "has a '+' or '#', which only filters have"
    if text.startswith("$SYS/"):
        return "begins with '$SYS/', where only the broker publishes"
    if text.count("/") >= MOST_LEVELS:
        return f"has more than {MOST_LEVELS} levels"
    return wrong_published(text)


def wrong_published(text: str) -> str:
    """Why a text, such as a topic or a property, cannot be sent to a broker; empty: it can."""
    if found := _DOUBTFUL.search(text):
        return f"has the character U+{ord(found[0]):04X}, for which brokers close the connection"
    return _wrong_text(text)


def _wrong_text(text: str) -> str:
    if "\0" in text:
        return "has the character U+0000"
    try:
        return f"has more than {LONGEST_BYTES:,} bytes" if len(text.encode()) > LONGEST_BYTES else ""
    except UnicodeEncodeError:
        return "has characters that are not UTF-8"


def overlap(one: str, other: str) -> bool:
    """Whether a topic can match both filters. A `$` at the beginning of a topic is matched by no wildcard."""
    mine, others = one.split("/"), other.split("/")
    if any(a.startswith("$") and b in ("+", "#") for a, b in ((mine[0], others[0]), (others[0], mine[0]))):
        return False
    return _meet(mine, others)


def _meet(mine: list[str], others: list[str]) -> bool:
    for at, (a, b) in enumerate(zip(mine, others, strict=False)):
        if "#" in (a, b):
            return True
        if a != b and "+" not in (a, b):
            return False
        if at + 1 in (len(mine), len(others)) and len(mine) != len(others):
            rest = mine[at + 1 :] or others[at + 1 :]
            return rest == ["#"]  # `a/#` matches `a`, too
    return True


TOPICS: Final = Names(*("MQTT topic", "an", "/", "lead to another topic", "levels", "site", "topic()"), wrong_topic)
