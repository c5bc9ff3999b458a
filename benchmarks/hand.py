"""The other side: a good hand-written transactional loop with confluent-kafka.

It consumes up to 10,000 messages (`--most`), produces what the function gives in one transaction, counts the delivery
reports, sends the positions with the group's metadata, commits. With `state` it also counts in a dictionary, and
writes the last count of each changed key to a changelog. Nothing else: no snapshot, no recovery but the client's, no
error topic, no provenance. It dies at the first error, and does not restart itself.

Reviewed for speed; what was tried and kept or dropped stands beside it. Bound names and no work per message besides the
calls that have to be.
"""

from __future__ import annotations

import argparse
import gc
import signal
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError, Message, Producer

from benchmarks.work import TAKE, Payment, count, forward, settle, settle_plain

# Made once each, as the framework does it, with the same library.
read_payment = msgspec.json.Decoder(Payment).decode
read = msgspec.json.Decoder().decode
write = msgspec.json.Encoder().encode


def raw(value: bytes) -> bytes:
    """Call the function on bytes."""
    return forward(value)


def by_hand(value: bytes) -> bytes:
    """Call the function on JSON read into a dataclass; what it returns is written without a check."""
    return write(settle(read_payment(value)))


def plain_by_hand(value: bytes) -> bytes:
    """Call the function on JSON read into a dictionary, and write without a check."""
    return write(settle_plain(read(value)))


counts: dict[str, int] = {}
changed: set[bytes] = set()
"""Keys of this transaction, as bytes."""


def counting(value: bytes) -> bytes:
    """Call the function with a plain dictionary, and remember the key for the changelog."""
    changed.add(value[:8])
    return count(value, counts)


FUNCTIONS: dict[str, Callable[[bytes], bytes]] = {"raw": raw, "json": by_hand, "dict": plain_by_hand, "state": counting}


def changelog(group: str) -> str:
    """The topic that gets the last count of each changed key, in the transaction of the outputs."""
    return f"{group}.changelog"


class Loop:
    """The loop: consume, produce, commit."""

    def __init__(
        self, bootstrap: str, group: str, source: str, target: str, function: Callable[[bytes], bytes], *, most: int
    ) -> None:
        common = {"bootstrap.servers": bootstrap, "client.id": group}
        self.consumer = Consumer(
            {
                **common,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                # By default the client fetches 100,000 messages ahead, ten transactions; more was not faster.
                "fetch.wait.max.ms": 100,
                # With the default, 1 s, it waits that long when it has them, and stays at 120,000 messages/s.
                "fetch.queue.backoff.ms": 10,
            }
        )
        self.producer = Producer(
            {
                **common,
                "transactional.id": group,
                "compression.type": "lz4",
                "linger.ms": 5,
                # With the default, 100 ms, a transaction that begins right after another one waits that long.
                "retry.backoff.ms": 2,
            }
        )
        self.target = target
        self.changelog = changelog(group)
        self.function = function
        self.most = most
        self.stopping = False
        self.producer.init_transactions()
        self.consumer.subscribe([source])

    def full(self) -> list[Any]:
        """For throughput: wait a little for the messages of a whole transaction."""
        return list(self.consumer.consume(self.most, 0.1))

    def soon(self) -> list[Any]:
        """For latency: take all messages that are there, as soon as there is one."""
        first = self.consumer.poll(0.1)
        return [] if first is None else [first, *self.consumer.consume(self.most - 1, 0)]

    def run(self, take: Callable[[], list[Any]]) -> None:
        """Run until SIGTERM."""
        while not self.stopping:
            batch = take()
            if batch:
                self.transact(batch)
        self.consumer.close()

    def transact(self, batch: list[Any]) -> None:
        """Run one transaction."""
        producer, consumer, target, function = self.producer, self.consumer, self.target, self.function
        produce = producer.produce
        delivered = 0

        def report(error: KafkaError | None, _: Message) -> None:
            nonlocal delivered
            if error is None:
                delivered += 1

        producer.begin_transaction()
        for message in batch:
            if message.error():
                raise RuntimeError(message.error())
            produce(target, function(message.value()), message.key(), on_delivery=report)
        for key in changed:
            produce(self.changelog, write(counts[key.decode()]), key, 0, on_delivery=report)
        sent = len(batch) + len(changed)
        changed.clear()
        if producer.flush() or delivered != sent:
            raise RuntimeError(f"{delivered} of {sent} were delivered")
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()


def main(loops: Mapping[str, Callable[..., Loop]] | None = None) -> None:
    """Run what the arguments say; `loops` are others than `Loop`, by the codec."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "group", "source", "target"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--codec", choices=tuple(loops or FUNCTIONS), default="raw")
    parser.add_argument("--most", type=int, default=TAKE)
    parser.add_argument("--take", choices=("full", "soon"), default="full")
    given = parser.parse_args()
    function = FUNCTIONS.get(given.codec, raw)
    loop = (loops or {}).get(given.codec, Loop)(
        given.bootstrap, given.group, given.source, given.target, function, most=given.most
    )

    def stop(*_: object) -> None:
        loop.stopping = True

    signal.signal(signal.SIGTERM, stop)
    # As in a worker of the framework; it saves half a microsecond for each message.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    loop.run(loop.full if given.take == "full" else loop.soon)


if __name__ == "__main__":
    main()
