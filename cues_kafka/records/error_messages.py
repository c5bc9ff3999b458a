"""Reads error messages, which other programs may have written too, with the bounds that tools and tasks rely on."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from cues_kafka.errors import CodecError
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.ports.log import WireMessage
from cues_kafka.records.requests import next_number
from cues_kafka.records.strangers import MOST, NAME, PARTITIONS, TOPIC

_TASK: Final = re.compile(r"[A-Za-z0-9_-]{1,80}/(0|[1-9][0-9]{0,9})")


def read_error(message: WireMessage, decode: Callable[[bytes], ErrorMessage]) -> tuple[ErrorMessage, int]:
    """
    An error message, and the number of its replay.

    Args:
        message: from an errors topic.
        decode: that of the codec of error messages.

    Raises:
        CodecError: the bytes are not an error message, or have fields that ours never have.
    """
    error = decode(message.value() or b"")
    if why := _unfit(error):
        raise CodecError(f"not an error message of cues-kafka: {why}")
    return error, next_number(message)


def _unfit(error: ErrorMessage) -> str:
    """What is wrong with it; empty: nothing."""
    if not NAME.fullmatch(error.processor):
        return f"its processor is {error.processor[:40]!a}"
    if not _TASK.fullmatch(error.task) or int(error.task.rpartition("/")[2]) > PARTITIONS:
        return f"its task is {error.task[:40]!a}"
    for place, topic in zip(error.consumed, error.topics, strict=True):
        if not TOPIC.fullmatch(topic) or len(place.topic_id) not in (0, 16):
            return f"it names the topic {topic[:40]!a} with an id of {len(place.topic_id)} bytes"
        if not 0 <= place.partition <= PARTITIONS or not 0 <= place.offset <= MOST:
            return f"it names partition {place.partition} and offset {place.offset}"
    return ""
