"""What a group has committed, and what its members own, asked without the administrative calls to coordinators.

`describe_consumer_groups` and `list_consumer_group_offsets` end the whole process if the connection breaks between the
answer that names the coordinator and the request to it: librdkafka, 2.16 included, then frees the request twice and
aborts on an assertion of `rd_kafka_enq_once_del_source_return` (its issue 4605, pull request 5397). A broker that was
killed under six tasks did it in two of three tries. So a consumer that never joins asks for offsets, and the older
listing of groups tells their members.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from struct import unpack_from
from typing import Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from cues_kafka.brokers.kafka.classify import error_of, name, translate
from cues_kafka.brokers.kafka.opening import opened
from cues_kafka.brokers.kafka.watch import Watch
from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import RetriableError
from cues_kafka.ports import TopicPartition

STABLE_S: Final = 3.0
"""How long the client asks again by itself while an open transaction holds offsets (R2), or nobody answers. A fresh
client has its first answer in 0.1 s."""


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
    watch = Watch(f"offsets of {group}")
    settings = options.settings("reader", client_id=f"{group}.offsets") | {"group.id": group} | watch.callbacks()
    consumer = opened(Consumer, settings)
    doing = f"asking for the offsets of group {group}"
    try:
        places = consumer.committed([ClientPartition(*place) for place in partitions], timeout=STABLE_S)
    except KafkaException as problem:
        consumer.poll(0)  # hands out what the client has to say
        error = translate(problem, doing, reasons=watch.reasons, fatal=watch.fatal)
        if name(error_of(problem)) in {"_TIMED_OUT", "_WAIT_COORD"}:
            raise NoAnswer(str(error), code=error.code) from problem
        raise error from problem
    finally:
        consumer.close()
    return offsets_of(places, doing)


def offsets_of(places: Iterable[ClientPartition], doing: str) -> dict[TopicPartition, int | None]:
    """
    Committed offsets as the client answers them; None where there is none.

    Raises:
        BrokerError: one partition's; an error is never "absent" (R2): the offset beside it reads -1001 too (exp-10).
    """
    found: dict[TopicPartition, int | None] = {}
    for place in places:
        at = TopicPartition(place.topic, place.partition)
        if place.error is not None:
            raise translate(place.error, f"{doing} at {at.topic}/{at.partition}", at=at)
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
