"""A membership in a group with nothing assigned locally: `Member` over `confluent_kafka.Consumer` (A1, A3).

Non-obvious:

- If a rebalance callback calls nothing, the binding assigns everything (M23). So each callback makes its call:
  `incremental_assign([])`, `incremental_unassign([])`, or with eager assignors `assign([])`, `unassign()`.
- Never with names: a partition that was never assigned locally cannot be taken away (`_INVALID_ARG`), and the
  revocation is then never acknowledged: the next owner waits without end (M24).
- A group of the protocol `consumer` refuses a static member while its killed predecessor has a session, and the client
  of a refused member has failed for good (M26). So another client asks again until the place is free. Such a member
  cannot leave for good either: its place is kept until its session ends (M32).
- A member that loses a right while it runs is refused when it joins again, and its client then asks again at once and
  without end, or has failed for good. So that client is closed, and another one asks later (A4).
- Asking for the proof of membership waits for another thread of the client, and all threads of Python wait meanwhile.
  So it is not asked at each poll, see `PROOF_S`.
- Returning from `on_revoke` acknowledges. So the listener is called first, and waits inside for what it must wait for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from cues_kafka.brokers.kafka.classify import catchable, classify, name
from cues_kafka.brokers.kafka.rights import Right
from cues_kafka.brokers.kafka.session import generation_of
from cues_kafka.brokers.kafka.watch import LOG, Watch
from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import BrokerError, CuesError, RetriableError
from cues_kafka.ports.clients import GroupMetadata, Listener
from cues_kafka.ports.log import TopicPartition

LEAVE_S: Final = 1.0
"""How long leaving for good may take: a static member's request is sent while it polls (M27)."""

ASK_AGAIN_S: Final = 1.0
"""How often a member asks again: for a place that its predecessor still has, or behind a right that was taken away."""

PROOF_S: Final = 0.05
"""How long a proof of membership is given again. A rebalance ends it at once, because its callbacks come with each new
generation. The protocol `consumer` has no callback for a new epoch: there each call asks."""

_PASSING: Final = {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_MAX_POLL_EXCEEDED", "_PARTITION_EOF"}
"""Errors that the client recovers from itself; the callbacks tell what they cost the group."""


_OUT: Final = "the group does not let this member in"


class KafkaMember:
    """See `ports.clients.Member`; belongs to one thread (A2)."""

    def __init__(
        self, options: Kafka, group: str, topic: str, listener: Listener, *, instance: str | None = None
    ) -> None:
        self._group, self._topic, self._listener, self._static = group, topic, listener, instance is not None
        self._name = f"group {group}" if instance is None else f"instance {instance!r} in group {group}"
        self._cooperative, self._epochs = options.cooperative, options.group_protocol == "consumer"
        self._assigned: set[int] = set()
        self._proof: tuple[float, GroupMetadata] | None = None  # since when
        self._closed = False
        self._watch = Watch(f"member of {group}", options)
        self._settings = settings = options.settings("member", client_id=instance or f"{group}.member")
        settings["group.id"] = group
        settings["on_commit"] = self._committed
        self._commits: list[tuple[dict[TopicPartition, int], Callable[[str], None]]] = []
        if instance is not None:
            settings["group.instance.id"] = instance
        self._refused_s: float | None = None  # when it was refused; it has no client since then
        self._waits = False  # the log says that its place is another member's
        self._let_in = False  # the group has taken it in, with partitions or without
        self._join()

    def _join(self) -> None:
        self._consumer = self._watch.open(Consumer, self._settings)
        try:
            self._subscribe()
        except KafkaException:
            self._close()
            raise

    def _join_again(self) -> bool:
        """Ask with another client; whether there is one. An outage of what gives tokens must not end the worker."""
        try:
            self._join()
        except (CuesError, KafkaException) as problem:
            self._refused_s = time.monotonic()
            self._watch.log(
                logging.WARNING, "%s: no client to ask the group again: %s", self._watch.label, str(problem)
            )
            return False
        self._refused_s = None
        return True

    def poll(self) -> None:
        self._watch.same_process()
        if self._refused_s is not None:
            if time.monotonic() - self._refused_s < ASK_AGAIN_S:
                return
            self._watch.fatal = None
            self._watch.forget()
            if not self._join_again():
                return
        message = self._serve(0)
        error = message.error() if message is not None else None
        if error is None:
            return
        # These pass by themselves. If the topic is gone or was recreated, the tasks find out and stop (R5, R6).
        if not error.fatal() and (name(error) in _PASSING or classify(error).error is RetriableError):
            LOG.info("%s: %s: %s", self._watch.label, name(error), error.str())
            return
        failed = self._failed(error)
        if failed.code != "UNRELEASED_INSTANCE_ID":
            if failed.forbidden and self._let_in:
                self._step_back()
            raise failed
        self._step_back()
        if not self._waits:
            self._waits = True
            LOG.warning("%s: %s", self._watch.label, failed)

    def _step_back(self) -> None:
        """Give everything back and close the client; `poll` asks with another one later."""
        # First: `metadata` proves nothing from here on, so tasks that end in `on_revoke` cannot commit (P5).
        self._refused_s, self._proof = time.monotonic(), None
        commits, self._commits = self._commits, []
        with ExitStack() as steps:  # from the last one to the first; one that fails leaves out no other
            steps.callback(self._close)
            for _, done in reversed(commits):
                steps.callback(done, _OUT)
            steps.callback(self._give_back)

    def _give_back(self) -> None:
        assigned = sorted(self._assigned)
        self._assigned.clear()
        if assigned:
            self._listener.on_revoke(assigned)

    def rejoin(self) -> None:
        # The group shares its partitions again when its leader joins, so each member that sees the reason does this.
        self._watch.same_process()
        if self._refused_s is not None:
            return
        self._proof = None
        try:
            self._consumer.unsubscribe()
            self._subscribe()
        except KafkaException as problem:
            raise self._failed(problem) from problem

    def _subscribe(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose)

    def commit(self, offsets: Mapping[TopicPartition, int], done: Callable[[str], None]) -> None:
        self._watch.same_process()
        if self._refused_s is not None:
            done(_OUT)
            return
        places = [ClientPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=True)
        except KafkaException as problem:
            done(str(self._failed(problem)))
            return
        self._commits.append((dict(offsets), done))

    def _committed(self, problem: KafkaError | None, places: list[ClientPartition]) -> None:
        """The client's answers come in the order of the requests, and say what they were about."""
        # Called in `poll` or `close`, so on the member's thread: `_commits` needs no lock.
        answered = {TopicPartition(place.topic, place.partition): place.offset for place in places or ()}
        found = next((one for one in self._commits if one[0] == answered), None)
        if found is None:
            return
        self._commits.remove(found)
        refused = problem or next((place.error for place in places if place.error), None)
        found[1](str(self._failed(refused)) if refused else "")

    def metadata(self) -> GroupMetadata:
        if self._refused_s is not None:
            return GroupMetadata(self._group, -1)
        now_s = time.monotonic()
        if self._proof is not None and now_s - self._proof[0] < PROOF_S:
            return self._proof[1]
        token: bytes = self._consumer.consumer_group_metadata()
        generation = generation_of(token)
        # An epoch of the protocol `consumer` begins with 1; with 0 a member asks to be let in.
        generation = -1 if generation == 0 and self._epochs else generation
        # A member that gets no partition, because others have them all, hears of no assignment there.
        self._let_in |= generation >= 0
        found = GroupMetadata(self._group, generation, token)
        self._proof = (now_s, found) if generation >= 0 and not self._epochs else None
        return found

    def close(self, *, leave: bool) -> None:
        if self._closed:
            return
        self._watch.same_process()
        self._closed = True
        if self._refused_s is not None:
            return
        with ExitStack() as steps:  # from the last one to the first; one that fails leaves out no other
            steps.callback(self._close)
            steps.callback(self._give_back)
            if leave:
                steps.callback(self._leave)

    def _close(self) -> None:
        try:
            self._consumer.close()
        except KafkaException as problem:
            LOG.info("%s: closing: %s", self._watch.label, problem)

    def _leave(self) -> None:
        """Unsubscribe, and poll until the group has let go: closing alone keeps a static member's place."""
        try:
            self._consumer.unsubscribe()
        except KafkaException as problem:  # it is over already, and the poll before said why
            LOG.info("%s: unsubscribing: %s", self._watch.label, problem)
            return
        deadline = time.monotonic() + LEAVE_S
        named = self._static and not self._epochs  # a static member of the protocol `consumer` always keeps its place
        while time.monotonic() < deadline and (self._assigned or named):
            self._serve(0.05)
            if not self._assigned and not self._consumer.memberid():
                return

    def _serve(self, timeout_s: float) -> Any:
        try:
            return catchable(self._consumer.poll, timeout_s)
        except KafkaException as problem:
            raise self._failed(problem) from problem

    def _failed(self, problem: KafkaException | KafkaError) -> BrokerError:
        needs = [Right("Read", "group", self._group), Right("Read", "topic", self._topic)]
        return self._watch.error(problem, self._name, needs=needs)

    def _assign(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        if self._cooperative:
            consumer.incremental_assign([])
        else:
            consumer.assign([])
        numbers = [p.partition for p in partitions]
        # Before the listener: tasks that begin there must get the proof of the new generation.
        self._let_in, self._proof = True, None
        self._assigned.update(numbers)
        self._listener.on_assign(numbers)

    def _revoke(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        self._take_away(consumer, partitions, self._listener.on_revoke)

    def _lose(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        self._take_away(consumer, partitions, self._listener.on_lost)

    def _take_away(
        self, consumer: Consumer, partitions: list[ClientPartition], tell: Callable[[Sequence[int]], None]
    ) -> None:
        numbers = [p.partition for p in partitions if p.partition in self._assigned]
        self._assigned.difference_update(numbers)
        self._proof = None
        try:
            if numbers:
                tell(numbers)  # waits for the tasks: the call below lets the next owner begin (A3)
        finally:  # also if the listener raises: without a call the client would assign everything (M23)
            if self._cooperative:
                consumer.incremental_unassign([])
            else:
                consumer.unassign()
