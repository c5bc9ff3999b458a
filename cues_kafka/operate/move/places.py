"""Where tasks are moved to: the words of an operator, as offsets of partitions."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.graph.times import milliseconds_of, time_of
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import TopicPartition

WORDS = "earliest, latest, an offset, a time such as 2026-11-23T10:00:00Z, group:NAME, database, here, or a file"


def wanted(broker: Broker, to: str, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """
    Find the offset that each partition shall begin at.

    Args:
        broker: the cluster.
        to: earliest: the first message in the log. latest: behind the last committed one. A number: the offset, of the
            only partition. A time in ISO form with its zone: the first message that is not older. group:NAME: what a
            consumer group has committed. The path of a JSON file: ``{"orders": {"0": 17}}``.
        places: the partitions.

    Raises:
        ConfigError: the words mean nothing, the file cannot be read, or it leaves out a partition; or one offset is
            given for several.
        RecoveryError: the group has members, or no offset of a partition; or an offset is not in the log.
    """
    marks = broker.watermarks(places)
    if to == "earliest":
        return {place: marks[place].low for place in places}
    if to == "latest":
        return {place: marks[place].stable for place in places}
    if to.isdecimal():
        found = _one_offset(int(to), places)
    elif to.startswith("group:"):
        found = of_group(broker, to.removeprefix("group:"), places)
    elif (when := time_of(to)) is not None:
        asked = broker.offsets_at(dict.fromkeys(places, milliseconds_of(when, "")))
        found = {place: marks[place].stable if asked[place] is None else asked[place] or 0 for place in places}
    else:
        found = _of_file(Path(to), places)
    for place, offset in found.items():
        if not marks[place].low <= offset <= marks[place].stable:
            raise RecoveryError(
                f"{to}: {place.topic}/{place.partition} at {offset} is not in the log, which has "
                f"[{marks[place].low}, {marks[place].stable}). Give an offset in it; those of several in a file."
            )
    return found


def _one_offset(offset: int, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    if len(places) > 1:
        names = ", ".join(f"{place.topic}/{place.partition}" for place in sorted(places))
        raise ConfigError(
            f"--to {offset}: an offset is for one partition, and these are {len(places)}: {names}. Give "
            "--partition P if the processor has one input; else the offsets of all in a JSON file: "
            '{"orders": {"0": 17}}.'
        )
    return dict.fromkeys(places, offset)


def of_group(broker: Broker, group: str, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """
    The committed offsets of another consumer group.

    Raises:
        RecoveryError: the group has members, or no offset of one of the partitions.
    """
    if members := broker.members(group):
        raise RecoveryError(
            f"group {group!r} has members ({', '.join(sorted(members))}). Stop its application first, or its position "
            "moves on; one that was killed is a member until its session ends."
        )
    asked = broker.committed(group, places)
    found = {place: offset for place, offset in asked.items() if offset is not None}
    if len(found) < len(asked):
        raise RecoveryError(_lacking(group, asked, found))
    return found


def _lacking(group: str, asked: Collection[TopicPartition], found: Mapping[TopicPartition, int]) -> str:
    missing = ", ".join(f"{place.topic}/{place.partition}" for place in asked if place not in found)
    if not found:
        return (
            f"group {group!r} has no committed offset of {missing}: this group does not exist, or it never read these "
            "topics. Check its name: `kafka-consumer-groups --bootstrap-server BOOTSTRAP --list` prints all groups."
        )
    offsets: dict[str, dict[str, int]] = {}
    for place, offset in found.items():
        offsets.setdefault(place.topic, {})[str(place.partition)] = offset
    return (
        f"group {group!r} has no committed offset of {missing}. Its application begins there as its auto.offset.reset "
        "says. Write the offsets of all partitions into a file, and run `cues-kafka reset MODULE:GRAPH PROCESSOR --to "
        f"FILE`. The group has {json.dumps(offsets)}."
    )


def _of_file(path: Path, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    try:
        plain: Any = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} is not a place to begin, and there is no file of this name ({error.strerror}). Give "
            f"{WORDS}."
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}. Write " + '{"orders": {"0": 17}}.') from None
    found: dict[TopicPartition, int] = {}
    for place in places:
        of_topic = plain.get(place.topic) if isinstance(plain, Mapping) else None
        offset = of_topic.get(str(place.partition)) if isinstance(of_topic, Mapping) else None
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise ConfigError(
                f"{path} has no offset of {place.topic}/{place.partition}. Write each partition as "
                '{"orders": {"0": 17}}.'
            )
        found[place] = offset
    return found
