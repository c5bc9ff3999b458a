"""Reads the journal of a task's calls in a recovery (E4), after R1 has fenced the former owner."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.log import Positions, TopicPartition, WireMessage
from cues_kafka.records.reading import PATIENCE_S
from cues_kafka.records.strangers import readable
from cues_kafka.sinks.calls import Calls, Surroundings
from cues_kafka.sinks.journal import Journal, check
from cues_kafka.words import SERVER

log = get_logger("cues_kafka.task")


@dataclass(frozen=True, slots=True)
class Recalling:
    """
    Reads the journal of one task.

    Attributes:
        task: its name, for the log.
        group: a group that the caller may describe; the reader does not join it or commit there.
        around: what the calls need of the process.
    """

    task: str
    group: str
    around: Surroundings

    def bring_up(self, calls: Calls, positions: Positions) -> None:
        """
        Read the journal up to its end of now, and find what is left there of committed steps.

        The end is the offset of a record that is written for this. It is acknowledged by all replicas in sync, so no
        broker that has lost the leadership can give an older one.

        Raises:
            RetriableError: the cluster does not answer, an open transaction hides the end, or the task was given up.
            ConfigError: the journal is gone.
            BrokerError: the journal cannot be read.
        """
        calls.enter(self.around)
        if (journal := calls.journal) is None:
            return
        broker = self.around.broker
        facts = broker.facts([journal.topic]).topics.get(journal.topic)
        if facts is None or journal.partition >= facts.partitions:
            raise ConfigError(
                f"{journal.topic}/{journal.partition} does not exist",
                remedy="`cues-kafka plan MODULE:GRAPH --apply` makes it",
            )
        if journal.topic_id != facts.topic_id:
            if journal.topic_id:
                log.warning("journal recreated", task=self.task, topic=journal.topic)
            journal.begin_again(facts.topic_id)
        end = calls.mark_end() + 1
        place = TopicPartition(journal.topic, journal.partition)
        start = max(journal.offset, broker.watermarks([place])[place].low)
        self._read(journal, start, end)
        journal.sort_out(positions)
        if left := journal.leftovers:
            log.info("late answers", task=self.task, answers=len(left))

    def _read(self, journal: Journal, start: int, end: int) -> None:
        place, clock = TopicPartition(journal.topic, journal.partition), self.around.clock
        reader = self.around.broker.reader(self.group, prompt=True)
        try:
            reader.assign({place: start})
            heard_s = clock.monotonic()
            while not self.around.given_up():
                for fetched in reader.poll(0.2):
                    fit = [message for message in fetched.messages if message.offset() < end]
                    if fit:
                        heard_s = clock.monotonic()
                        read = partial(_entry, partition=journal.partition)
                        entries = (readable(message, read, "an entry of the journal") for message in fit)
                        journal.load([one for one in entries if one], fit[-1].offset() + 1)
                    if journal.offset >= end or (fetched.eof is not None and fetched.eof >= end):
                        return
                if clock.monotonic() - heard_s >= PATIENCE_S:
                    raise RetriableError(
                        f"nothing new below {end} of {place.topic}/{place.partition} for {PATIENCE_S:g} s: an open "
                        f"transaction hides it. `kafka-transactions {SERVER} find-hanging --topic {place.topic} "
                        f"--partition {place.partition}` finds it, its `abort` ends it",
                        code="OPEN_TRANSACTION",
                    )
        finally:
            reader.close()
        raise RetriableError(f"{self.task} was given up while its journal was read")


def _entry(message: WireMessage, partition: int) -> tuple[bytes, bytes | None]:
    key, value = message.key() or b"", message.value()
    check(key, value, partition)
    return key, value
