"""Who holds an id of a named client, and where its tailers stand: records on a compacted topic, which decide.

The topic is `<client>.tailers`. It has one record for the client itself, and one for each tailer, topic and partition.
Each record names its holder: the object in a process that took the id last.

Non-obvious (K1, K3): an error does not always tell that another program has the id by now. A process that was stopped
for a minute may see a time-out first, and takes the id again. So after each error the holder's record is read with the
id taken, and a holder that finds another name there writes nothing any more. The newest holder goes on.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.client.access import Access
from cues_kafka.client.asking import ASK_S, read_decided
from cues_kafka.client.writing import IdWriter
from cues_kafka.errors import CodecError, ConfigError, FatalError
from cues_kafka.graph.names import tailers_topic
from cues_kafka.plan.topics import backing_config, may_lack
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Outgoing, Sent, TopicPartition, WireMessage
from cues_kafka.records.strangers import NAME, read_plain, readable

PARTITIONS: Final = 16
"""How many partitions the topic has. The number is fixed, because a tailer's name decides its partition. All records of
an id are in one partition, so a transaction that another id left open seldom hides them."""

FIRST_WINDOW: Final = 64
"""Offsets that are read first, from the end: the newest records of an id are usually there."""

VERSION: Final = 1


class HeldPlace(NamedTuple):
    """
    One record.

    Attributes:
        holder: names the holder; another one for each opening.
        number: counts the holder's transactions, so that no two records are equal.
        offset: the next offset that a tailer reads; 0 in the record of a client.
        topic_id: of the tailer's topic; a recreated topic has another one.
        former: `name` of the record that the holder found when it took the id; empty: there was none. It tells a
            holder before this one what became of its last transaction.
    """

    holder: str
    number: int
    offset: int = 0
    topic_id: bytes = b""
    former: str = ""

    @property
    def name(self) -> str:
        """No other record under this key has it."""
        return f"{self.holder}.{self.number}"


class HeldPlaces:
    """
    The records of one transactional id, by key.

    Args:
        access: of the client.
        client: the client's name.
        name: the tailer's name; empty: the records of the client itself.
        transactional_id: the id.
    """

    def __init__(self, access: Access, client: str, name: str, transactional_id: str) -> None:
        self._access = access
        self._topic = tailers_topic(client)
        self._place = TopicPartition(self._topic, partition_for(name.encode(), PARTITIONS))
        self._holder = secrets.token_hex(8)
        self._number = 0
        self.kept: dict[bytes, HeldPlace] = {}
        self._storing: dict[bytes, HeldPlace] = {}
        self._found: dict[bytes, HeldPlace] = {}
        who = f"the tailer {name!r} of client {client!r}" if name else f"the client {client!r}"
        self.writer: IdWriter = IdWriter(access, transactional_id, who=who, regained=self._regained)

    def open(self, keys: Iterable[bytes]) -> Mapping[bytes, HeldPlace]:
        """
        Take the id, then read its records; a key without a record is left out. `store` makes this one the holder.

        Raises:
            ConfigError: the topic is not as it was created.
            CodecError: another program wrote to the topic, and no place is left under a key.
            Unknown: a transaction of another id hides the records, and does not end.
        """
        self._prepare()
        self.writer.open()
        self._found = self._read(keys)
        self.kept = dict(self._found)
        return self.kept

    def store(
        self,
        places: Mapping[bytes, tuple[int, bytes]],
        records: Sequence[Outgoing] = (),
        *,
        batch_bytes: int | None = None,
        offsets: Mapping[TopicPartition, int] | None = None,
        group: str = "",
    ) -> Sent:
        """
        Store offsets with their topic ids, by key, and write records, in one transaction; see `IdWriter.write`.

        Raises:
            BrokerError: nothing of it is written.
            Unknown: it cannot be told whether it is.
        """
        self._number += 1
        new = {
            key: HeldPlace(self._holder, self._number, *place, former=_name(self._found.get(key)))
            for key, place in places.items()
        }
        self._storing = new
        own = [Outgoing(*self._place, key, _encoded(place)) for key, place in new.items()]
        sent = self.writer.write(
            [*own, *records], batch_bytes=batch_bytes, offsets=offsets, group=group, decide=self._decided
        )
        self.kept |= new
        return sent

    def _decided(self) -> bool | None:
        """
        Decide (K2): whether the newest records are those that were being stored, or those before; or where there is a
        later holder, which of them it found. None: there were two.
        """
        newest = self._read(self._storing)

        def found(key: bytes) -> str:
            one = newest.get(key)
            later = one is not None and one not in (self._storing[key], self.kept.get(key))
            return one.former if one is not None and later else _name(one)

        if all(found(key) == new.name for key, new in self._storing.items()):
            return True
        return False if all(found(key) == _name(self.kept.get(key)) for key in self._storing) else None

    def _regained(self) -> None:
        for key, found in self._read({**self.kept, **self._storing}).items():
            if found not in (self.kept.get(key), self._storing.get(key)):
                raise FatalError(f"the holder is now {found.holder}", code="_FENCED")

    def _prepare(self) -> None:
        broker = self._access.broker
        count = broker.partitions([self._topic]).get(self._topic)
        if count is None:
            config = {**backing_config(broker.facts([]).brokers), "segment.bytes": str(1 << 20)}
            broker.create([NewTopic(self._topic, PARTITIONS, config=config, may_lack=may_lack(config))])
            count = broker.partitions([self._topic]).get(self._topic)
        if count != PARTITIONS:
            raise ConfigError(
                f"topic {self._topic!r} has {count} partitions instead of {PARTITIONS}, so the stored positions of "
                "tailers cannot be found. Give the client another name"
            )

    def _read(self, keys: Iterable[bytes]) -> dict[bytes, HeldPlace]:
        """The newest places, whatever others wrote behind them; see `readable`."""
        wanted, broker = set(keys), self._access.broker
        low, _, high = broker.watermarks([self._place])[self._place]
        found: dict[bytes, HeldPlace] = {}
        refused: set[bytes] = set()
        window, end = FIRST_WINDOW, high
        while end > low and len(found) < len(wanted):
            start = max(low, high - window)
            ranges = {self._place: (start, end)}
            group = self._access.group(self._topic)
            newest: dict[bytes, HeldPlace] = {}
            for message in read_decided(broker, ranges, self._access.clock, ASK_S, group=group):
                key = message.key() or b""
                if key in wanted and (place := readable(message, _decoded, "the place of a tailer")):
                    newest[key] = place
                elif key in wanted:
                    refused.add(key)
            found = newest | found  # what was found nearer to the end is newer
            window, end = window * 8, start
        if lost := refused - found.keys():
            raise CodecError(
                f"{self._topic}/{self._place.partition} has no readable position of a tailer for the key "
                f"{min(lost)[:80]!r}: another program wrote there, and the position is lost. Find that program, and "
                "revoke its right to write. Then open the tailer, or the client, under another name, with start="
            )
        return found


def place_key(tailer: str, topic: str, partition: int) -> bytes:
    """The key of a tailer's record."""
    return _json([tailer, topic, partition])


CLIENT_KEY: Final = b'["client"]'
"""The key of a client's own record."""


def _name(place: HeldPlace | None) -> str:
    return "" if place is None else place.name


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _encoded(place: HeldPlace) -> bytes:
    return _json({"version": VERSION, **place._asdict(), "topic_id": place.topic_id.hex()})


def _decoded(message: WireMessage) -> HeldPlace:
    """
    Read what `_encoded` made.

    Raises:
        CodecError: it is none, or one of another release.
    """
    found = read_plain(message.value(), "place of a tailer", VERSION)
    id_ = found.id("topic_id") if found.text("topic_id") else b""
    return HeldPlace(
        found.text("holder", like=NAME), found.whole("number"), found.whole("offset"), id_, found.text("former")
    )
