"""``cues-kafka send``: messages from the command line or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import count as numbers
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.interrupted import begin
from cues_kafka.errors import CodecError, ConfigError
from cues_kafka.words import count

if TYPE_CHECKING:
    from cues_kafka.client.access import TopicAccess
    from cues_kafka.client.connect import Connection
    from cues_kafka.client.topic import ClientTopic
    from cues_kafka.codecs.as_json import AsJson
    from cues_kafka.codecs.lines import MessageLine
    from cues_kafka.graph.feed import Encoded
    from cues_kafka.graph.message import Message

epilog = """
\b
Examples:
  cues-kafka send temperatures 17.5 --key kitchen --header unit=celsius
  cat orders.jsonl | cues-kafka send shop.orders --graph shop:graph
  # all lines or none
  cat orders.jsonl | cues-kafka send orders --atomic
  # safe to repeat after a crash: sent messages are skipped
  cat orders.jsonl | cues-kafka send orders --name loader --id november
  # the same with an id in each line; each id is looked up in the topic
  cat messages.jsonl | cues-kafka send orders --name loader --format message

Without VALUES, each line of standard input is a message. Lines of the format
`message` are JSON objects with the fields value, key, headers, partition,
timestamp_ms and id, as `cues-kafka tail --format json` prints them. Exits with
1 if a message is not sent, and with 2 if one does not fit the topic, or a
setting is wrong.
"""

Lines: TypeAlias = Literal["text", "json", "message"]

CHUNK = 65_536
"""How many bytes of standard input are taken at once; what is there is sent without waiting for more."""

_Given: TypeAlias = "tuple[Message[Any], str | None]"


def send(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", hidden=True, help="The topic.")],
    values: Annotated[
        list[str] | None, typer.Argument(metavar="VALUES", hidden=True, help="Messages. Without any: standard input.")
    ] = None,
    *,
    graph: Annotated[str, typer.Option(metavar="MODULE:GRAPH", help="Use the codecs and keys of this graph.")] = "",
    form: Annotated[
        Lines, typer.Option("--format", metavar="FORMAT", help="Format of a line: json, text or message.")
    ] = "json",
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Key of all messages.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Header of all messages; repeatable.")
    ] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Id of the message. Several get ID.1, ID.2 and so on.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of this client; with a name, ids that were sent before are skipped."),
    ] = None,
    atomic: Annotated[
        bool, typer.Option("--atomic", help="Send all messages in one transaction: readers see all or none.")
    ] = False,
    cluster: ClusterOptions,
) -> None:
    """Send messages to a topic."""
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.client.connect import connect

    if atomic and message_id:
        raise ConfigError("--atomic and --id exclude each other: each message with an id is a transaction of its own")
    settings = cluster.kafka()
    headers = _headers(header or [])
    with connect(settings, load_graph(graph) if graph else None, name=name) as client:
        begin()
        to = _Sending(client, topic, form, key=key, headers=headers, named=name is not None)
        lines = [values] if values else _stdin()
        if message_id is not None:
            to.with_ids([line for some in lines for line in some], message_id)
        elif atomic:
            to.at_once([line for some in lines for line in some])
        else:
            for some in lines:
                to.chunk(some)
    there = f"; {count(to.skipped, 'message')} had been sent before" if name and to.ids else ""
    typer.echo(f"{count(to.number - to.skipped, 'message')} sent to {topic}{there}")


class _Sending:
    """
    Sends lines of one format to one topic.

    Attributes:
        number: of messages so far.
        skipped: how many of them had been sent before.
        ids: whether one had an id.
    """

    def __init__(
        self,
        client: Connection,
        topic: str,
        form: Lines,
        *,
        key: str | None,
        headers: Sequence[tuple[str, str]] | None,
        named: bool,
    ) -> None:
        from cues_kafka.graph.declare import Raw
        from cues_kafka.graph.topic import Topic

        self._client = client
        self._named = named
        self._topic = client.topic(topic, Topic(value=Raw()) if form == "text" else None)
        settings = self._topic.access.settings
        self._exact = Exact(self._topic.access)
        # Takes values whose bytes are known; keys are encoded alike.
        self._bytes = client.topic(topic, Topic(value=Raw(), key_codec=settings.key_codec))
        self._form = form
        self._key = key
        self._headers = headers or ()
        self.number = self.skipped = 0
        self.ids = False

    def chunk(self, lines: Sequence[str]) -> None:
        """Send lines in their order: those without an id together, outside of transactions."""
        due = self._due([self._message(line) for line in lines])
        for (with_id, to), some in groupby(due, lambda one: (one[1] is not None, self._to(one[0]))):
            if with_id:
                for message, own in some:
                    to.append(message, id=own)
            else:
                to.append_many(message for message, _ in some)

    def at_once(self, lines: Sequence[str]) -> None:
        """Send all lines in one transaction."""
        with self._client.transaction() as tx:
            for message, own in self._due([self._message(line) for line in lines]):
                tx.append(self._to(message), message, id=own)

    def with_ids(self, lines: Sequence[str], base: str) -> None:
        """Send each line with an id."""
        messages = [self._message(line)[0] for line in lines]
        ids = [base] if len(messages) == 1 else [f"{base}.{number}" for number in range(1, len(messages) + 1)]
        for message, own in self._due(list(zip(messages, ids, strict=True))):
            self._to(message).append(message, id=own)

    def _to(self, message: Message[Any]) -> ClientTopic:
        from cues_kafka.graph.feed import Encoded

        return self._bytes if isinstance(message.value, Encoded) else self._topic

    def _due(self, messages: Sequence[_Given]) -> list[_Given]:
        """Those that were not sent before; only a client with a name knows, and only of messages with an id."""
        ids = [own for _, own in messages if own is not None]
        self.ids = self.ids or bool(ids)
        if not (self._named and ids):
            return list(messages)
        known = set(self._topic.sent_many(ids))
        due = []
        for message, own in messages:
            if own is None or own not in known:
                due.append((message, own))
            if own is not None:
                known.add(own)  # the same id twice is one message
        self.skipped += len(messages) - len(due)
        return due

    def _message(self, line: str) -> _Given:
        from cues_kafka.graph.message import Message

        self.number += 1
        try:
            if self._form == "message":
                return self._whole(line)
            if self._form == "text":
                return Message(line.encode(), key=self._key, headers=self._headers), None
            return self._json(line), None
        except (ValueError, CodecError) as error:
            raise ConfigError(f"message {self.number}, {line[:100]!r}: {error}") from None

    def _json(self, line: str) -> Message[Any]:
        """A line of JSON: its text is the value, as it came; null gives a message without a value."""
        from cues_kafka.codecs.lines import json_line
        from cues_kafka.graph.message import Message

        own = json_line(line)
        data = self._exact.data(own)
        if data is not None:
            self._topic.access.decoded(data)
        value, key = self._exact.value(data, self._key)
        return Message(value, key=key, headers=self._headers)

    def _whole(self, line: str) -> _Given:
        from cues_kafka.codecs.lines import read_line
        from cues_kafka.graph.message import Message, written_ms

        own = read_line(line)
        key = self._exact.key(own) if self._key is None else self._key
        value, key = self._exact.value(self._exact.data(own), key)
        more = {name for name, _ in own.headers}
        headers = [*((name, one) for name, one in self._headers if name not in more), *own.headers]
        when = own.timestamp_ms
        if type(when) is int:  # `tail` shows what others wrote, also -1 and times before 1970
            when = written_ms(when)
        made = Message(value, key=key, headers=headers, timestamp_ms=when, partition=own.partition)
        return made, own.id


class Exact:
    """
    Values and keys that are written as they came.

    Args:
        access: the topic.
    """

    def __init__(self, access: TopicAccess) -> None:
        self._access = access
        self._declared = "value" in access.settings.given
        self._made: dict[str, AsJson] = {}

    def data(self, line: MessageLine) -> bytes | None:
        """
        The bytes of a line's value.

        Raises:
            CodecError: it does not fit the topic's codec, or its JSON was changed beside its bytes.
        """
        from cues_kafka.graph.declare import Json

        if line.json is None:
            return line.data
        if line.value_bytes is not None:
            self._check_shown(line.json, line.value_bytes)
            return line.value_bytes
        if isinstance(self._access.settings.value, Json):  # its text is the value
            return line.json.encode()
        return self._as_json("value").data(line.json)

    def _check_shown(self, shown: str, data: bytes) -> None:
        """Refuse a value that a person has changed beside the bytes of the former one."""
        import json

        from cues_kafka.operate.shown import plain_json

        if not self._declared:
            return
        if json.loads(plain_json(self._access.decoded(data))) != json.loads(shown):
            raise CodecError(
                "value is not what value_bytes has. If you changed it, drop value_bytes, and write the value as the "
                "topic's codec takes it"
            )

    def key(self, line: MessageLine) -> Any:
        """
        The key of a line, as a message takes it.

        Raises:
            CodecError: it does not fit the topic's codec of keys.
        """
        if line.key_bytes is not None:
            return line.key_bytes
        if line.key_json is None or self._access.settings.key_codec is None:
            return line.key
        return self._as_json("key").data(line.key_json)

    def value(self, data: bytes | None, key: Any) -> tuple[Encoded | None, Any]:
        """
        A value of these bytes, and its key, which may be one of its fields.

        Raises:
            CodecError, OutputError: it does not fit the codec of a graph.
        """
        from cues_kafka.graph.feed import Encoded
        from cues_kafka.task.calling.outputs import key_field

        if data is None:
            return None, key
        if self._declared:
            read, field = self._access.decoded(data), self._access.settings.key
            if key is None and field is not None and read is not None:
                key = key_field(field)(read)
        return Encoded(data), key

    def _as_json(self, part: Literal["key", "value"]) -> AsJson:
        from cues_kafka.codecs.as_json import AsJson
        from cues_kafka.codecs.lookup import MadeFor

        if part not in self._made:
            settings = self._access.settings
            declared = settings.value if part == "value" else settings.key_codec
            assert declared is not None
            self._made[part] = AsJson(declared, MadeFor(self._access.name, self._access.cluster, part))
        return self._made[part]


def _headers(given: list[str]) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in given]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise ConfigError(f"--header {name!r} is not a header. Write it as NAME=VALUE.")
    return [(name, value) for name, _, value in pairs]


def _stdin() -> Iterator[list[str]]:
    """The lines of standard input that are there, again and again, until it ends."""
    stdin: Any = sys.stdin.buffer
    rest = b""
    for _ in numbers():
        data = stdin.read1(CHUNK)
        *whole, rest = (rest + data).split(b"\n")
        if not data and rest:
            whole, rest = [rest], b""
        try:
            lines = [line.rstrip(b"\r").decode() for line in whole if line.strip()]
        except UnicodeDecodeError as error:
            raise ConfigError(f"standard input is not UTF-8: {error}") from None
        if lines:
            yield lines
        if not data:
            return
