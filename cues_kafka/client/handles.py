"""The handles of a client: producers, transactional ids and tailers, opened when they are first used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cues_kafka.client.access import Access, HeadersLike, TopicAccess
from cues_kafka.client.asking import SinceOffsets, sent_ids
from cues_kafka.client.places import CLIENT_KEY, HeldPlaces
from cues_kafka.client.starts import Start
from cues_kafka.client.tailer import ClientTailer
from cues_kafka.client.writing import IdWriter
from cues_kafka.errors import ConfigError, GraphError, Unknown
from cues_kafka.graph.names import check_dotted, check_name, client_id, sender_id, tailer_id
from cues_kafka.ports.clients import Sender
from cues_kafka.ports.log import Outgoing, Sent


class ClientHandles:
    """
    Shared by the threads of a client.

    Attributes:
        name: the client's name, which goes into names on the cluster; a graph's prefix begins it.
        stable: whether the user gave the name, so that another run of the program has the same ids.
    """

    def __init__(self, access: Access, name: str, *, stable: bool) -> None:
        prefix = access.graph.prefix if access.graph else ""
        own = named(name, "connect(..., name=)") if stable else name
        self.name: str = prefix + own.removeprefix(prefix)
        self.stable = stable
        self._access = access
        self._senders: dict[int | None, Sender] = {}  # by the size of their batches, nearly always one
        self._writers: dict[str, IdWriter] = {}
        self._tailers: list[ClientTailer] = []
        self._held: set[str] = set()
        self._closed = False
        self._lock = threading.Lock()

    def writer(self, topic: str) -> IdWriter:
        """What writes transactions that begin with a message to this topic."""
        if self.stable:
            return self.take_id()
        graph = self._access.graph
        taken = sender_id(graph.name if graph else None, topic, self.name)
        with self._opening():
            if taken not in self._writers:
                self._writers[taken] = IdWriter(self._access, taken, who=f"the client {self.name!r}")
            return self._writers[taken]

    def take_id(self) -> IdWriter:
        """
        Take the id of a client with a name (K1): ends what a former run left open, and takes its place.

        Raises:
            BrokerError: the cluster does not answer, this user may not, or another run has taken the id since.
        """
        taken = client_id(self.name)
        with self._opening():
            if taken not in self._writers:
                held = HeldPlaces(self._access, self.name, "", taken)
                try:
                    held.open([CLIENT_KEY])
                    held.store({CLIENT_KEY: (0, b"")})
                except BaseException:
                    held.writer.close()
                    raise
                self._writers[taken] = held.writer
            writer = self._writers[taken]
        writer.open()
        return writer

    def send_records(self, topic: TopicAccess, records: list[Outgoing]) -> list[Sent]:
        """
        Send records outside of transactions, and wait until they are acknowledged.

        Raises:
            ConfigError: the graph says that each message of this topic is sent with an id.
        """
        self.check_unnamed(topic)
        most = topic.target.batch_bytes
        with self._opening():
            if most not in self._senders:
                self._senders[most] = self._access.broker.sender(self.name, batch_bytes=most)
            sender = self._senders[most]
        return sender.send(records)

    def check_unnamed(self, topic: TopicAccess) -> None:
        """
        Check that messages without an id may be sent to a topic: a send that is repeated is a second message.

        Raises:
            ConfigError: the graph has `Source(..., level="exactly-once")` for it.
        """
        graph = self._access.graph
        source = graph.sources.get(topic.name) if graph else None
        if source is not None and source.level == "exactly-once":
            raise ConfigError(
                f"topic {topic.name!r} is declared as Source({topic.name!r}, level='exactly-once'), and a message "
                "without an id may be sent twice after a crash. Send each one with an id, send(..., id=), from a "
                "client with a name; or write it in a transaction that advances a tailer"
            )

    def send(self, topic: TopicAccess, message: Any, *, key: Any, headers: HeadersLike, id: str | None) -> Sent:
        record = topic.record(message, key=key, headers=headers, id=id, placed=id is not None)
        if id is None:
            return self.send_records(topic, [record])[0]
        return self.writer(topic.name).write([record], batch_bytes=topic.target.batch_bytes)

    def sent(
        self, topic: TopicAccess, ids: list[str], *, since: SinceOffsets | None, timeout_s: float
    ) -> dict[str, Sent]:
        if not self.stable:
            raise ConfigError(
                "sent(...) needs a client with a name: connect(..., name=...). Only a client with a name ends the "
                "transactions that a former run left open, which makes the answer final"
            )
        topic.refresh()  # every partition that it has by now is read
        self.take_id()  # K4; ends what an error has left open, and asks nothing without one
        found, doubt = sent_ids(self._access, topic, frozenset(ids), since=since, timeout_s=timeout_s)
        missing = [one for one in ids if one not in found]
        if missing and doubt:
            raise Unknown(f"no message with id {missing[0]!r} is in {topic.name!r}, but {doubt}")
        return found

    def tailer(
        self, topic: TopicAccess, partition: int | None, name: str | None, start: Start, *, again: bool
    ) -> ClientTailer:
        topic.refresh()
        count = topic.facts.partitions
        if partition is not None and not 0 <= partition < count:
            raise ConfigError(f"tailer(partition={partition!r}): {topic.name!r} has partitions 0 to {count - 1}")
        if name is not None:
            self._hold(_named_tailer(name))
        tailer = ClientTailer(self._access, topic, partition, name, self._forget)
        with self._opening():
            self._tailers.append(tailer)
        try:
            if name is None:
                tailer.begin(start)
            else:
                taken = tailer_id(self.name, name)
                tailer.begin_named(start, taken, HeldPlaces(self._access, self.name, name, taken), again=again)
        except BaseException:
            tailer.close()
            raise
        return tailer

    def close(self) -> None:
        """Release everything. What another thread opens meanwhile is refused, and no id is taken again (K1)."""
        with self._lock:
            self._closed = True
        for tailer in self._tailers:
            tailer.close()
        for sender in self._senders.values():
            sender.close()
        for writer in self._writers.values():
            writer.close()
        self._senders, self._writers = {}, {}

    @contextmanager
    def _opening(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise RuntimeError(f"client {self.name!r} is closed; make another one with connect(...)")
            yield

    def _hold(self, name: str) -> None:
        if not self.stable:
            raise ConfigError(
                f"tailer(name={name!r}) keeps its place under the client's name: write connect(..., name=...)"
            )
        with self._lock:
            if name in self._held:
                raise ConfigError(
                    f"tailer {name!r} is open in this client already. Close it first, or open one with another name"
                )
            self._held.add(name)

    def _forget(self, tailer: ClientTailer) -> None:
        with self._lock:
            self._tailers = [one for one in self._tailers if one is not tailer]
            if tailer.name is not None:
                self._held.discard(tailer.name)


def _named_tailer(name: str) -> str:
    try:
        return check_name(name, "tailer(name=)")
    except GraphError as error:
        raise ConfigError(str(error)) from None


def named(name: str, what: str) -> str:
    """
    Check a client's name, which goes into names on the cluster.

    Raises:
        ConfigError: it cannot.
    """
    try:
        return check_dotted(name, what)
    except GraphError as error:
        raise ConfigError(str(error)) from None
