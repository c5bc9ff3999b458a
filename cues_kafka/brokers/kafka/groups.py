"""Reads the committed offsets of a group and the partitions of its members, without the administrative client.

`describe_consumer_groups` and `list_consumer_group_offsets` end the whole process if the connection breaks between the
answer that names the coordinator and the request to it: librdkafka, 2.16 included, then frees the request twice and
aborts on an assertion of `rd_kafka_enq_once_del_source_return` (its issue 4605, pull request 5397). A broker that was
killed under six tasks caused it in two of three tries. The second call also crashes with a segmentation fault if the
coordinator has moved, as brokers answer just after a restart (its issue 5040; seen in one of forty restarts). So a
consumer that never joins asks for offsets, and the older listing of groups gives their members.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from cues_kafka.brokers.kafka.classify import error_of, name, translate
from cues_kafka.brokers.kafka.rights import Right
from cues_kafka.brokers.kafka.watch import Watch
from cues_kafka.brokers.options import Kafka
from cues_kafka.brokers.wire import Parts
from cues_kafka.errors import FatalError, RetriableError
from cues_kafka.ports.log import TopicPartition
from cues_kafka.words import BOOTSTRAP

STABLE_S: Final = 3.0
"""How long the client itself asks again while an open transaction holds offsets (R2), or no coordinator answers. A
new client has its first answer in 0.1 s."""

AGAIN_S: Final = 1.0
"""The same for a coordinator that has just answered another question."""

_SILENT: Final = {"_TIMED_OUT", "_WAIT_COORD"}


class NoAnswer(RetriableError):
    """Offsets are not stable, or no coordinator answers: the client does not tell the two apart."""


def committed(
    options: Kafka,
    group: str,
    partitions: Collection[TopicPartition],
    timeout_s: float = STABLE_S,
    *,
    stable: bool = True,
) -> dict[TopicPartition, int | None]:
    """
    The group's committed offsets; None: the group has none. `stable` waits for open transactions (R2).

    Each question has a client of its own, which knows no earlier coordinator.

    Raises:
        NoAnswer: see there.
        BrokerError: anything else, also an error of one partition only.
    """
    watch, doing = Watch(f"offsets of {group}", options), f"asking for the offsets of group {group}"
    settings = options.settings("reader", client_id=f"{group}.offsets") | {"group.id": group}
    if not stable:
        settings["isolation.level"] = "read_uncommitted"  # the client then does not ask for stable offsets (KIP-447)
    needs = [Right("Read", "group", group)]
    consumer = watch.open(Consumer, settings)
    try:
        places = consumer.committed([ClientPartition(*place) for place in partitions], timeout=timeout_s)
    except KafkaException as problem:
        message = consumer.poll(0)  # the reason why the client finds no coordinator comes as a message
        error = watch.error(problem, doing, needs=needs)
        if name(error_of(problem)) not in _SILENT:
            raise error from problem
        refusal = message.error() if message is not None else None
        if refusal is not None and isinstance(why := watch.error(refusal, doing, needs=needs), FatalError):
            raise why from problem
        raise NoAnswer(str(error), code=error.code) from problem
    finally:
        consumer.close()
    return _offsets_of(places, doing, user=watch.user, address=watch.address)


def committed_or_why(
    options: Kafka, group: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """
    Ask once more what had no answer, of a cluster that can be reached.

    Raises:
        UnstableOffsets: the coordinator answers, but not with stable offsets.
        NoAnswer: the group has no coordinator.
    """
    # This only shows whether the coordinator answers; the offsets are not used.
    committed(options, group, partitions, stable=False)
    try:
        return committed(options, group, partitions, AGAIN_S)
    except NoAnswer as problem:
        pending = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
        at = next(iter(partitions)) if len(partitions) == 1 else None
        doing = f"asking for the offsets of group {group}" + (f" at {at.topic}/{at.partition}" if at else "")
        raise translate(pending, doing, at=at, address=options.bootstrap) from problem


def _offsets_of(
    places: Iterable[ClientPartition], doing: str, *, user: str | None = None, address: str = BOOTSTRAP
) -> dict[TopicPartition, int | None]:
    """
    Committed offsets as the client answers them; None: the group has none.

    Raises:
        BrokerError: the error of one partition. It is never "absent" (R2), although the offset beside it is -1001, too
            (M10).
    """
    found: dict[TopicPartition, int | None] = {}
    for place in places:
        at = TopicPartition(place.topic, place.partition)
        if place.error is not None:
            needs = [Right("Read", "topic", at.topic)]
            where = f"{doing} at {at.topic}/{at.partition}"
            raise translate(place.error, where, at=at, needs=needs, user=user, address=address)
        found[at] = int(place.offset) if place.offset >= 0 else None
    return found


def partitions_of(assignment: bytes, topic: str) -> set[int]:
    """
    The partitions of a topic that a member of a classic group was assigned.

    Kafka's ConsumerProtocolAssignment is a version, then topics with their partitions, then bytes of the assignor.
    """
    found: set[int] = set()
    if len(assignment) >= 6:  # a member without partitions may have no bytes at all
        parts = Parts(assignment, 2)
        for _ in range(parts.int32()):
            listed, partitions = parts.text(), parts.int32s()
            if listed == topic:
                found.update(partitions)
    return found
