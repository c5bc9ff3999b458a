"""Transactions by hand: messages to any topics, and the place of a named tailer (K3), all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from cues_kafka.client.access import Access, HeadersLike, TopicAccess
from cues_kafka.client.stored_place import StoredPlace
from cues_kafka.client.tailer import ClientTailer
from cues_kafka.client.topic import ClientTopic
from cues_kafka.client.writing import IdWriter
from cues_kafka.errors import ConfigError
from cues_kafka.ports.log import Outgoing, Sent


class ClientTransaction:
    """
    Collects messages and the place of a named tailer, and commits them at the end of the `with` block.

    Nothing is sent before the end of the block. An exception in the block discards everything, and sets the tailer that
    the block has advanced back to its stored place: so advance it first. An error of the commit does the same, and then
    nothing is written.
    """

    def __init__(self, access: Access, writer_for: Callable[[str], IdWriter]) -> None:
        """`writer_for` gives the writer of transactions without a tailer, by the first topic."""
        self._access = access
        self._writer_for = writer_for
        self._records: list[Outgoing] = []
        self._batch_bytes: int | None = None
        self._tailer: ClientTailer | None = None
        self._stored: StoredPlace | None = None  # of the tailer
        self._offsets: dict[int, int] = {}
        self._over = False

    def append(
        self,
        topic: str | ClientTopic,
        message: Any,
        *,
        key: Any = None,
        headers: HeadersLike = None,
        id: str | None = None,
    ) -> None:
        """
        Add a message; see `Client.send`.

        Raises:
            OutputError, CodecError: the message does not fit the topic.
            ConfigError: the topic does not exist, or the transaction is over.
        """
        self._check_open()
        to = topic.access if isinstance(topic, ClientTopic) else self._access.topic(topic)
        self._add(to, to.record(message, key=key, headers=headers, id=id, placed=not self._records))

    def advance(self, tailer: ClientTailer) -> None:
        """
        Store where a named tailer stands now. The last call for it counts.

        Raises:
            ConfigError: it has no name, or another tailer is in this transaction.
        """
        self._check_open()
        if self._tailer not in (None, tailer):
            raise ConfigError(
                f"advance({tailer!r}): this transaction already stores the position of {self._tailer!r}, and can store "
                "only one. Use one transaction for each tailer, or read all topics with alts and store their positions "
                "yourself"
            )
        self._stored = tailer.stored
        self._tailer, self._offsets = tailer, tailer.positions

    def commit(self) -> Sent | None:
        """
        Commit; the `with` block does it.

        Returns:
            Where the first message is; None: there was none.

        Raises:
            BrokerError: nothing is written.
            Unknown: it cannot be told whether it is.
        """
        self._check_open()
        self._over = True
        if self._stored is not None:
            try:
                self._stored.store(self._offsets, self._records, self._batch_bytes)
            except BaseException:
                self._set_back()
                raise
            return None
        if not self._records:
            return None
        writer = self._writer_for(self._records[0].topic)
        return writer.write(self._records, batch_bytes=self._batch_bytes)

    def discard(self) -> None:
        """Drop everything, and set the tailer that was advanced back to its stored place."""
        self._over = True
        self._set_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.commit()
        else:
            self.discard()

    def _set_back(self) -> None:
        if self._tailer is not None and not self._tailer.closed:
            self._tailer.to_place()

    def _add(self, topic: TopicAccess, record: Outgoing) -> None:
        bounds = [most for most in (topic.target.batch_bytes, self._batch_bytes) if most is not None]
        self._batch_bytes = min(bounds, default=None)
        self._records.append(record)

    def _check_open(self) -> None:
        if self._over:
            raise ConfigError("this transaction is over; begin another one with client.transaction()")
