"""What a group has committed, and what its members own, asked without the administrative calls to coordinators.

`describe_consumer_groups` and `list_consumer_group_offsets` end the whole process if the connection breaks between the
answer that names the coordinator and the request to it: librdkafka, 2.16 included, then frees the request twice and
aborts on an assertion of `rd_kafka_enq_once_del_source_return` (its issue 4605, pull request 5397). A broker that was
killed under six tasks did it in two of three tries. The second call also ends it with a segmentation fault where the
answer is that the coordinator has moved, as brokers say in the first moments after a restart (its issue 5040; seen in
one of some forty restarts). So a consumer that never joins asks for offsets, and the older listing of groups tells
their members.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from struct import unpack_from
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from cues_kafka.brokers.kafka.classify import error_of, name, translate
from cues_kafka.brokers.kafka.opening import opened
from cues_kafka.brokers.kafka.rights import Right, user_of
from cues_kafka.brokers.kafka.watch import Watch
from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import FatalError, RetriableError
from cues_kafka.ports import TopicPartition

STABLE_S: Final = 3.0
"""How long the client asks again by itself while an open transaction holds offsets (R2), or nobody answers. A fresh
client has its first answer in 0.1 s."""

AGAIN_S: Final = 1.0
"""The same where the coordinator has just answered another question."""

_SILENT: Final = {"_TIMED_OUT", "_WAIT_COORD"}


class NoAnswer(RetriableError):
    """Offsets are not stable, or the coordinator is gone: the client does not tell the two apart."""


def committed(options: Kafka, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
    """
    The group's committed offsets, stable (R2); None where there is none. Each question has a client of its own, which
    knows no coordinator of before.

    Raises:
        NoAnswer: see there.
        BrokerError: anything else, also where it concerns one partition only.
    """
    return _asked(options, group, partitions, STABLE_S)


def committed_or_why(
    options: Kafka, group: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """
    Ask what had no answer once more, of a cluster that can be reached.

    Raises:
        UnstableOffsets: the coordinator answers, but not with offsets that are stable.
        NoAnswer: nobody coordinates the group.
    """
    _asked(options, group, partitions, STABLE_S, stable=False)  # whether it answers; what, nobody may rely on
    try:
        return _asked(options, group, partitions, AGAIN_S)
    except NoAnswer as problem:
        pending = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
        at = next(iter(partitions)) if len(partitions) == 1 else None
        doing = _doing(group) if at is None else f"{_doing(group)} at {at.topic}/{at.partition}"
        raise translate(pending, doing, at=at) from problem


def _asked(
    options: Kafka, group: str, partitions: Collection[TopicPartition], timeout_s: float, *, stable: bool = True
) -> dict[TopicPartition, int | None]:
    watch = Watch(f"offsets of {group}", options)
    settings = options.settings("reader", client_id=f"{group}.offsets") | {"group.id": group} | watch.callbacks()
    if not stable:
        settings["isolation.level"] = "read_uncommitted"  # the client then does not ask for stable offsets (KIP-447)
    rights: dict[str, Any] = {"needs": [Right("Read", "group", group)], "user": user_of(settings)}
    consumer = opened(Consumer, settings)
    try:
        places = consumer.committed([ClientPartition(*place) for place in partitions], timeout=timeout_s)
    except KafkaException as problem:
        said = consumer.poll(0)  # hands out what the client has to say: why it finds no coordinator comes as a message
        error = translate(problem, _doing(group), reasons=watch.reasons, fatal=watch.fatal, **rights)
        if name(error_of(problem)) not in _SILENT:
            raise error from problem
        refusal = said.error() if said is not None else None
        if refusal is not None and isinstance(why := translate(refusal, _doing(group), **rights), FatalError):
            raise why from problem
        raise NoAnswer(str(error), code=error.code) from problem
    finally:
        consumer.close()
    return _offsets_of(places, _doing(group), user=rights["user"])


def _doing(group: str) -> str:
    return f"asking for the offsets of group {group}"


def _offsets_of(
    places: Iterable[ClientPartition], doing: str, *, user: str | None = None
) -> dict[TopicPartition, int | None]:
    """
    Committed offsets as the client answers them; None where there is none.

    Raises:
        BrokerError: one partition's; an error is never "absent" (R2): the offset beside it reads -1001 too (M10).
    """
    found: dict[TopicPartition, int | None] = {}
    for place in places:
        at = TopicPartition(place.topic, place.partition)
        if place.error is not None:
            needs = [Right("Read", "topic", at.topic)]
            raise translate(place.error, f"{doing} at {at.topic}/{at.partition}", at=at, needs=needs, user=user)
        found[at] = int(place.offset) if place.offset >= 0 else None
    return found


def partitions_of(assignment: bytes, topic: str) -> set[int]:
    """
    The partitions of a topic in what a member of a classic group was assigned.

    Args:
        assignment: ConsumerProtocolAssignment in Kafka's words: a version, then topics with their partitions; what
            follows is the assignor's own.
        topic: whose.
    """
    return {partition for name_, partition in _assigned(assignment) if name_ == topic}


def _assigned(data: bytes) -> Iterator[tuple[str, int]]:
    if len(data) < 6:
        return  # a member that was assigned nothing may have no bytes at all
    (topics,) = unpack_from(">i", data, 2)
    at = 6
    for _ in range(topics):
        (size,) = unpack_from(">h", data, at)
        topic = data[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (count,) = unpack_from(">i", data, at)
        for partition in unpack_from(f">{count}i", data, at + 4):
            yield topic, partition
        at += 4 + 4 * count
