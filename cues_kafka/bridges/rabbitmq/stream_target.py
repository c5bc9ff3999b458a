"""Messages to streams of RabbitMQ, exactly once (E1): what `RabbitMq(...).to_stream(...)` declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from cues_kafka.bridges.published import payload_of
from cues_kafka.errors import GraphError, OutputError
from cues_kafka.graph.levels import EXACTLY_ONCE, EdgeKind
from cues_kafka.graph.targets import TargetPart, TaskName, TransactionalTarget, Write

if TYPE_CHECKING:
    from cues_kafka.bridges.rabbitmq.stream_client import StreamLogin
    from cues_kafka.bridges.rabbitmq.stream_log import StreamTransactions

LONGEST: Final = 255
"""Bytes of the name of a stream, and of a publisher."""

KEY_HEADER: Final = "cues-key"
"""The property that has the key of a message of Kafka, where it is text."""

TO_STREAM: Final = EdgeKind(
    'Kafka to a stream of RabbitMQ, `Sink(..., into=RabbitMq(...).to_stream("events"))`',
    EXACTLY_ONCE,
    "messages and position in one entry of a log of the task, a stream of its own; streams drop what is published "
    "again under its number. RabbitMQ must keep what it confirms, and the numbers: those of the newest 255 publishers "
    "of a stream",
    "pytest -m 'bridge or not bridge' tests/servers/test_rabbitmq_streams_out.py",
)


class HasStreams(Protocol):
    """What a target needs of `RabbitMq`."""

    @property
    def env(self) -> str:
        """The environment variable that holds the address; empty: none."""
        ...

    def stream_login(self, port: int) -> StreamLogin:
        """What a client of the stream protocol needs to connect."""
        ...


class StreamSender:
    """What a function gets of `RabbitMq(...).to_stream(...)`. Valid only during the call."""

    __slots__ = ("_declared", "_write")

    def __init__(self, write: Write, declared: RabbitMqStreamOut) -> None:
        self._write, self._declared = write, declared

    def publish(self, value: Any, *, message_id: str = "", headers: Mapping[str, str | bytes] | None = None) -> None:
        """
        Publish a message when the step is committed.

        Args:
            value: bytes and text as they are, other values as JSON.
            message_id: its property `message_id`; empty: none.
            headers: its application properties: texts and bytes.

        Raises:
            OutputError: it cannot be such a message.
        """
        self._send(payload_of(value, None), message_id, headers or {})

    def write(self, value: Any, message: Any) -> None:
        """Publish the value of a message, for a `Sink`, in the bytes that it has in Kafka."""
        declared, headers = self._declared, dict[str, str | bytes]()
        if isinstance(key := getattr(message, "key", None), str):
            headers[KEY_HEADER] = key
        for name, one in message.headers if declared.headers else ():
            if name in declared.headers and one is not None:
                headers[name] = _readable(one)
        self._send(payload_of(value, message), "", headers)

    def _send(self, body: bytes, message_id: str, headers: Mapping[str, str | bytes]) -> None:
        from cues_kafka.bridges.rabbitmq.stream_log import StreamItem  # noqa: PLC0415 - beside its declaration
        from cues_kafka.bridges.rabbitmq.stream_wire import message  # noqa: PLC0415 - as above

        declared = self._declared
        if len(body) > declared.max_bytes:
            raise OutputError(
                f"a message for RabbitMQ has {len(body):,} bytes, and {declared.max_bytes:,} are allowed. Raise "
                "max_bytes= and stream.frame_max of the broker, or send less"
            )
        for name, one in headers.items():
            if not isinstance(name, str) or not isinstance(one, str | bytes):
                raise OutputError(f"header {name!r:.100}: {one!r:.100} is not a text or bytes")
        try:
            made = message(body, message_id, declared.content_type, headers)
        except UnicodeEncodeError:
            raise OutputError("a header or message_id has half of a surrogate pair, which UTF-8 cannot carry") from None
        self._write(StreamItem(declared.name, made))


@dataclass(frozen=True)
class RabbitMqStreams(TransactionalTarget):
    """
    The streams of a RabbitMQ that a processor publishes to, exactly once; see docs/rabbitmq-streams.md.

    Attributes:
        broker: where they are.
        port: of the stream protocol; 0: 5552, or with TLS 5551.
        logs: what the names of the tasks' logs begin with.
    """

    what: ClassVar[str] = "RabbitMQ"
    level: ClassVar[str] = TO_STREAM.level
    rests_on: ClassVar[str] = TO_STREAM.why

    broker: HasStreams
    port: int = 0
    logs: str = "cues"

    def __post_init__(self) -> None:
        where = "RabbitMq(...).to_stream"
        if type(self.port) is not int or not 0 <= self.port < 2**16:
            raise GraphError(f"{where}(port={self.port!r}): takes the number of a port.")
        if not isinstance(self.logs, str) or not self.logs or len(self.logs.encode(errors="replace")) > LONGEST // 2:
            raise GraphError(f"{where}(logs={self.logs!r:.200}): takes the beginning of a stream's name, as 'cues'.")

    @property
    def env(self) -> str:
        """The environment variable that holds the address; empty: none."""
        return self.broker.env

    @property
    def edge(self) -> EdgeKind:  # type: ignore[override]  # as that of its base
        return TO_STREAM

    def title(self, name: str) -> str:
        return f"{self.what} {name}"

    def open(self, task: TaskName) -> StreamTransactions:
        from cues_kafka.bridges.rabbitmq.stream_log import StreamTransactions, log_name  # noqa: PLC0415 - when needed

        return StreamTransactions(self.broker.stream_login(self.port), log_name(self.logs, ("log", *task)))


@dataclass(frozen=True)
class RabbitMqStreamOut(TargetPart):
    """
    A stream that gets messages; see `RabbitMq.to_stream`.

    Attributes:
        target: the broker.
        name: of the stream.
        headers: names of headers of the message in Kafka that become application properties.
        content_type: of the messages; empty: none.
        max_bytes: the largest body; a larger one becomes an error message.
    """

    target: RabbitMqStreams
    name: str
    headers: tuple[str, ...] = ()
    content_type: str = ""
    max_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        where = "RabbitMq(...).to_stream"
        if not isinstance(self.name, str) or not 1 <= len(self.name.encode(errors="replace")) <= LONGEST:
            raise GraphError(f"{where}({self.name!r:.200}): the name of a stream has 1 to {LONGEST} bytes.")
        if isinstance(self.headers, str) or not isinstance(self.headers, Sequence):
            raise GraphError(f"{where}(headers={self.headers!r:.200}): takes a list of names.")
        object.__setattr__(self, "headers", tuple(self.headers))
        if type(self.max_bytes) is not int or self.max_bytes < 1:
            raise GraphError(f"{where}(max_bytes={self.max_bytes!r}): takes a number of bytes, from 1 on.")

    @property
    def home(self) -> RabbitMqStreams:
        return self.target

    def value(self, write: Write) -> StreamSender:
        return StreamSender(write, self)

    def title(self, name: str) -> str:
        del name
        return f"RabbitMQ stream {self.name!r}"


def _readable(value: bytes | str) -> str | bytes:
    """A header as text, where it is one."""
    if isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
