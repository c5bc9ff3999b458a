"""An idempotent producer for applications: `ports.clients.Sender`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from cues_kafka.brokers.kafka.classify import CLIENT_ERRORS, catchable, error_of, name
from cues_kafka.brokers.kafka.rights import Right
from cues_kafka.brokers.kafka.session import warm
from cues_kafka.brokers.kafka.watch import Watch
from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import BrokerError, RetriableError
from cues_kafka.ports.log import Sent, TopicPartition


class KafkaSender:
    """See `ports.clients.Sender`; may be shared by threads."""

    def __init__(self, options: Kafka, sender_name: str, batch_bytes: int | None = None) -> None:
        self._name = sender_name
        self._watch = Watch(f"sender {sender_name}", options)
        settings = options.settings("sender", client_id=sender_name, batch_bytes=batch_bytes)
        self._producer: Producer | None = self._watch.open(Producer, settings)
        self._warm = warm(self._producer, options.socket_timeout_s)

    def send(self, records: Sequence[tuple[Any, ...]], *, timeout_s: float = 30.0) -> list[Sent]:
        """
        Produce and wait; see `ports.clients.Sender.send`.

        Raises:
            BrokerError: a record was refused, or not all were acknowledged in time. The sent ones may still arrive:
                sending again may write them twice.
        """
        producer = self._client()
        deadline = time.monotonic() + timeout_s
        self._warm.join(timeout_s)
        topics = sorted({record[0] for record in records})
        places: list[Sent | None] = [None] * len(records)
        errors: list[tuple[KafkaError, TopicPartition]] = []
        for index, record in enumerate(records):
            self._enqueue(producer, record, _report(places, errors, index), deadline)
        while not errors and None in places and (left := deadline - time.monotonic()) > 0:
            self._serve(producer.flush, min(left, 0.5), topics)
        if errors:
            error, at = errors[0]
            self._watch.await_reason(producer, error)
            raise self._failed(error, f"sending to {at.topic}", [at.topic], at=at)
        done = [place for place in places if place is not None]
        if len(done) < len(places):
            self._serve(producer.poll, 0.05, topics)
            reasons = "; ".join(self._watch.reasons) or "no reason was given"
            raise RetriableError(
                f"sender {self._name}: {len(places) - len(done)} of {len(places)} records were not acknowledged within "
                f"{timeout_s:g} s ({reasons}); they may still arrive",
                code="_MSG_TIMED_OUT",
            )
        return done

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(*CLIENT_ERRORS):  # the producer has failed, and `send` has raised that with its reason
                catchable(producer.flush, 0)

    def _client(self) -> Producer:
        self._watch.same_process()
        if self._producer is None:
            raise RetriableError(f"sender {self._name} is closed; open another one", code="_STATE")
        return self._producer

    def _enqueue(self, producer: Producer, record: tuple[Any, ...], report: Any, deadline: float) -> None:
        topic, partition, key, value, headers, timestamp_ms = record
        where = -1 if partition is None else partition
        while True:
            try:
                producer.produce(topic, value, key, where, report, None, timestamp_ms, headers)
            except BufferError:
                if time.monotonic() > deadline:
                    raise RetriableError(f"sender {self._name}: its queue stayed full", code="_QUEUE_FULL") from None
                self._serve(producer.poll, 0.05, [topic])
            except CLIENT_ERRORS as problem:
                self._watch.await_reason(producer, error_of(problem))
                raise self._failed(problem, f"sending to {topic}", [topic]) from problem
            else:
                return

    def _serve(self, call: Callable[[float], int], timeout_s: float, topics: Sequence[str]) -> None:
        try:
            catchable(call, timeout_s)
        except CLIENT_ERRORS as problem:
            raise self._failed(problem, "sending", topics) from problem

    def _failed(
        self,
        problem: Exception | KafkaError,
        doing: str,
        topics: Sequence[str],
        *,
        at: TopicPartition | None = None,
    ) -> BrokerError:
        error = error_of(problem)
        self._watch.keep_fatal(error)
        if "CLUSTER_AUTHORIZATION_FAILED" in (name(error), name(self._watch.fatal or error)):
            # An idempotent producer needs no more than a right to write to any topic.
            error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        needs = [Right("Write", "topic", topic) for topic in topics]
        return self._watch.error(error, f"sender {self._name}: {doing}", at=at, needs=needs)


def _report(
    places: list[Sent | None], errors: list[tuple[KafkaError, TopicPartition]], index: int
) -> Callable[[KafkaError | None, Message], None]:
    def report(error: KafkaError | None, message: Message) -> None:
        at = TopicPartition(str(message.topic()), int(message.partition() or 0))
        if error is None:
            places[index] = Sent(*at, int(message.offset() or 0))
        else:
            errors.append((error, at))

    return report
