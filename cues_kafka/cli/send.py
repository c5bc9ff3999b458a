"""``cues-kafka send``: messages from the command line or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import count as numbers
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from cues_kafka.cli.config import Bootstrap, File, Profile
from cues_kafka.errors import ConfigError
from cues_kafka.words import count

if TYPE_CHECKING:
    from cues_kafka.graph.message import Message
    from cues_kafka.graph.topic import Topic
    from cues_kafka.runtime.connect import Connection

epilog = """
\b
Examples:
  cues-kafka send temperatures 17.5 --key kitchen --header unit=celsius
  cat orders.jsonl | cues-kafka send shop.orders --graph shop:graph
  # all lines or none
  cat orders.jsonl | cues-kafka send orders --atomic
  # may be repeated after a crash: what was sent is not sent again
  cat orders.jsonl | cues-kafka send orders --name loader --id november
  # the same with ids of their own; each question reads the topic
  cat messages.jsonl | cues-kafka send orders --name loader --format message

Without VALUES, each line of standard input is a message. Lines of the format
`message` are JSON objects with the fields value, key, headers, partition,
timestamp_ms and id. Exits with 1 if a message is not sent, and with 2 if one
does not fit the topic, or a setting is wrong.
"""

Lines: TypeAlias = Literal["text", "json", "message"]

CHUNK = 65_536
"""How many bytes of standard input are taken at once; what is there is sent without waiting for more."""

_Given: TypeAlias = "tuple[Message[Any], str | None]"

_FIELDS = {"value", "key", "headers", "partition", "timestamp_ms", "id"}


def send(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", hidden=True, help="The topic.")],
    values: Annotated[
        list[str] | None, typer.Argument(metavar="VALUES", hidden=True, help="Messages. Without any: standard input.")
    ] = None,
    *,
    graph: Annotated[str, typer.Option(metavar="MODULE:GRAPH", help="Use the codecs and keys of this graph.")] = "",
    form: Annotated[
        Lines, typer.Option("--format", metavar="FORMAT", help="What a line is: json, text or message.")
    ] = "json",
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Key of all messages.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Header of all messages; repeatable.")
    ] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Id of the message. Several get ID.1, ID.2 and so on.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of this client; then ids that were sent are skipped.")
    ] = None,
    atomic: Annotated[
        bool, typer.Option("--atomic", help="Send all messages in one transaction: readers see all or none.")
    ] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    file: File = None,
) -> None:
    """Send messages to a topic."""
    from cues_kafka.cli.config import load
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.runtime.connect import connect

    if atomic and message_id:
        raise ConfigError("--atomic and --id exclude each other: each message with an id is a transaction of its own")
    settings = load({"bootstrap": bootstrap}, profile=profile, file=file).kafka()
    headers = _headers(header or [])
    with connect(settings, load_graph(graph) if graph else None, name=name) as client:
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
        headers: dict[str, str] | None,
        named: bool,
    ) -> None:
        from cues_kafka.graph.declare import Raw
        from cues_kafka.graph.topic import Topic

        self._client = client
        self._named = named
        self._topic = client.topic(topic, Topic(value=Raw()) if form == "text" else None)
        self._read = str.encode if form == "text" else reader_of(self._topic.access.settings)
        self._form = form
        self._key = key
        self._headers = headers
        self.number = self.skipped = 0
        self.ids = False

    def chunk(self, lines: Sequence[str]) -> None:
        """Send lines in their order: those without an id together, outside of transactions."""
        due = self._due([self._message(line) for line in lines])
        for with_id, some in groupby(due, lambda one: one[1] is not None):
            if with_id:
                for message, own in some:
                    self._topic.append(message, id=own)
            else:
                self._topic.append_many(message for message, _ in some)

    def at_once(self, lines: Sequence[str]) -> None:
        """Send all lines in one transaction."""
        with self._client.transaction() as tx:
            for message, own in self._due([self._message(line) for line in lines]):
                tx.append(self._topic, message, id=own)

    def with_ids(self, lines: Sequence[str], base: str) -> None:
        """Send each line with an id."""
        messages = [self._message(line)[0] for line in lines]
        ids = [base] if len(messages) == 1 else [f"{base}.{number}" for number in range(1, len(messages) + 1)]
        for message, own in self._due(list(zip(messages, ids, strict=True))):
            self._topic.append(message, id=own)

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
        import json

        from cues_kafka.errors import CodecError
        from cues_kafka.graph.message import Message

        self.number += 1
        own: dict[str, Any] = {}
        try:
            if self._form == "message":
                own = json.loads(line)
                if not isinstance(own, dict) or own.keys() - _FIELDS or "value" not in own:
                    raise CodecError(f"it is no JSON object with value, and of {', '.join(sorted(_FIELDS))}")
                if not isinstance(own.get("headers") or {}, dict):
                    raise CodecError('its headers are no JSON object. Write {"headers": {"unit": "celsius"}}')
                line = json.dumps(own["value"])
            value = None if self._form == "message" and own["value"] is None else self._read(line)
        except json.JSONDecodeError as error:
            text = "--format text sends lines as they are"
            raise ConfigError(f"message {self.number}, {line[:100]!r}: it is no JSON: {error}. {text}") from None
        except (ValueError, CodecError) as error:
            raise ConfigError(f"message {self.number}, {line[:100]!r}: {error}") from None
        made: Message[Any] = Message(
            value,
            key=own.get("key") if self._key is None else self._key,
            headers={**(self._headers or {}), **(own.get("headers") or {})},
            timestamp_ms=own.get("timestamp_ms"),
            partition=own.get("partition"),
        )
        return made, own.get("id")


def reader_of(settings: Topic) -> Any:
    """Makes what turns JSON text into a value for a topic's codec: of its class, if it is declared with one."""
    import json

    from cues_kafka.codecs.lookup import MadeFor, codec_for
    from cues_kafka.graph.declare import Json

    cls = getattr(settings.value, "cls", None)
    if not isinstance(cls, type):
        return json.loads
    codec = codec_for(Json(cls), MadeFor("the line"))
    return lambda line: codec.decode(line.encode())


def _headers(given: list[str]) -> dict[str, str] | None:
    pairs = [text.partition("=") for text in given]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise ConfigError(f"--header {name!r} is no header. Write it as NAME=VALUE.")
    return {name: value for name, _, value in pairs} or None


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
