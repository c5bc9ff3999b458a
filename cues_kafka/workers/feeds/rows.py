"""The batch of a feed: rows that a source gave, encoded for the topic, and the place behind the last one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any

from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.core.delivery import HEADER, provenance_prefix
from cues_kafka.core.events import Halt
from cues_kafka.core.spec import Spec
from cues_kafka.errors import RetriableError
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.graph.feed import Encoded
from cues_kafka.graph.message import Message
from cues_kafka.observe.log import LINES
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.carried import Carried
from cues_kafka.task.calling.failures import MOST_TEXT, causes_of, location, merged_context, show, text_of, trace
from cues_kafka.task.calling.outage import Outage
from cues_kafka.task.calling.outputs import OVERHEAD_BYTES, Now, Origin, Target, payload, record
from cues_kafka.workers.feeds.plain import MARK, ROOM, FeedRow, PlainRows


@dataclass(slots=True)
class RowBatch(Batch):
    """
    Rows that were read and wait for their commit; see `Batch`.

    Attributes:
        place: behind the last row that was read.
        rows: what to produce.
    """

    place: str = ""
    rows: list[FeedRow] = field(default_factory=list)

    def seal(self) -> None:
        """Write the provenance headers (O8), which say "row i of n of this attempt", and fill `records`."""
        prefix = provenance_prefix(self.spec.full_name, self.sequence, ())
        count = len(self.rows)
        for index, (_, _, _, _, headers, _) in enumerate(self.rows):
            if headers and headers[0] == MARK:
                headers[0] = (HEADER, b"%b%d/%d -" % (prefix, index, count))
        self.records.extend_rows(self.rows)


@dataclass(frozen=True, slots=True)
class Into:
    """
    Where a feed's messages go.

    Attributes:
        target: the topic.
        decode: reads values that are encoded already.
        errors: takes what does not fit `target`; None: the task stops there.
        show: makes a place one for people.
        declared: the codec of `target`.
        carried: what error messages carry besides the failure.
    """

    target: Target
    decode: Callable[[bytes | None], Any]
    errors: Target | None
    show: Callable[[str], str]
    declared: CodecSpec
    carried: Carried
    _raw: Target = field(init=False)
    _plain: PlainRows = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_raw", replace(self.target, encode=bytes, key_of=None))
        object.__setattr__(self, "_plain", PlainRows(self.target, self.decode))

    @property
    def batch_bytes(self) -> int | None:
        """Bytes of the largest record batch that the topics take; None: not known."""
        bounds = [one.batch_bytes for one in (self.target, self.errors) if one is not None]
        return min((most for most in bounds if most is not None), default=None)

    def add(self, message: Any, place: str, batch: RowBatch) -> bool:
        """
        Add one row to a batch; False: it does not fit the topic and nothing takes its error, so the batch halts.

        Raises:
            RetriableError: a codec's registry does not answer.
        """
        if (row := self._plain.record(message, batch.spec.partition, batch.today)) is not None:
            return self._take(row, place, batch)
        kind, value = "output", message.value if isinstance(message, Message) else message
        try:
            if type(value) is Encoded:
                kind = "decode"
                made = payload(*self._as_it_is(message, value))
            else:
                made = payload(self.target, message, None)
            kind = "output"
            row = _row(made, batch.spec, batch.today)
        except (Outage, RetriableError):
            raise
        except Exception as error:  # noqa: BLE001 - a codec of the user's may raise anything; the row becomes an error
            return self._failed(error, kind, value, place, batch)
        return self._take(row, place, batch)

    def _take(self, row: FeedRow, place: str, batch: RowBatch) -> bool:
        """Add one record."""
        batch.rows.append(row)
        batch.size += len(row[2] or b"") + len(row[3] or b"")
        batch.deliveries += 1
        batch.outputs += 1
        batch.messages += 1
        batch.place = place
        return True

    def _as_it_is(self, message: Any, value: Encoded) -> tuple[Target, Message[Any], None]:
        """An encoded value is read, so that it fits and its key is known, and written as it is."""
        key_of = self.target.key_of
        read = self.decode(bytes(value))
        message = message if isinstance(message, Message) else Message(value)
        if message.key is None and key_of is not None and read is not None:
            given = message.headers, message.timestamp_ms, message.partition
            message = Message(value, key=key_of(read), headers=given[0], timestamp_ms=given[1], partition=given[2])
        return self._raw, message, None

    def _failed(self, error: Exception, kind: str, value: Any, place: str, batch: RowBatch) -> bool:
        """End a row as one error message; or halt the batch before it."""
        place = str(place)
        spec, where = batch.spec, self.show(place)
        about = {"at": where, "hash": row_hash(spec, place).hex(), "kind": kind, "error": show(error)[:MOST_TEXT]}
        if self.errors is None:
            what = "cannot be decoded" if kind == "decode" else "cannot be sent"
            batch.halt = Halt(
                "unhandled",
                f"{where} {what} as a message of {self.target.topic!r}: {text_of(error)}",
                "fix it at its source, or declare an errors topic, which takes what does not fit",
            )
            batch.cause, batch.about = error, about
            return False
        data = bytes(value) if isinstance(value, bytes) else None
        said = ErrorMessage(
            graph=spec.graph,
            processor=spec.processor,
            task=spec.name,
            consumed=(),
            topics=(),
            hash=row_hash(spec, place),
            kind=kind,
            exception=type(error).__qualname__,
            text=text_of(error),
            location=location(error),
            context={"place": where, **merged_context(error)},
            trace=trace(error),
            causes=causes_of(error),
            timestamp_ms=batch.today(),
            declaration=self.carried.declaration,
            **self.carried.shown(data, self.declared, partial(self.decode, data)),
        )
        key = said.hash if self.errors.compacted else None
        made = error_messages().encode(said)
        batch.rows.append(_row((self.errors, key, made, [], None, None), spec, batch.today))
        if len(batch.notes) < LINES:
            batch.notes.append({**about, "where": said.location})
        batch.size += len(made)
        batch.deliveries += 1
        batch.errors += 1
        batch.place = place
        return True


def _row(made: Any, spec: Spec, today: Now) -> FeedRow:
    assert len(ROOM) < OVERHEAD_BYTES
    return FeedRow(*record(made, Origin((), today()), spec.partition, ROOM, today))


def row_hash(spec: Spec, place: str) -> bytes:
    """Names one row of a feed, the same on every attempt: 16 bytes."""
    text = "\0".join((spec.graph, spec.processor, str(spec.partition), place))
    return blake2b(text.encode(), digest_size=16, person=b"cues.feed").digest()
