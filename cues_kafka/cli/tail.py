"""``cues-kafka tail``: the committed messages of a topic."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.options import as_tools_of, at_least, interrupts
from cues_kafka.cli.printing import say
from cues_kafka.errors import CodecError, ConfigError
from cues_kafka.graph.times import shown_time, time_of
from cues_kafka.words import count, visible

if TYPE_CHECKING:
    from cues_kafka.client.starts import Start
    from cues_kafka.client.tailer import ClientTailer
    from cues_kafka.client.topic import ClientTopic
    from cues_kafka.codecs.as_json import AsJson
    from cues_kafka.graph.declare import CodecSpec
    from cues_kafka.graph.topic import Topic
    from cues_kafka.task.calling.step import Received

epilog = """
\b
Examples:
  cues-kafka tail orders --limit 10
  cues-kafka tail orders --follow
  cues-kafka tail shop.checked --graph shop:graph --format json | jq .value
  cues-kafka tail orders --from 2026-11-25T10:00Z --format full
  cues-kafka tail orders --from 1700 --partition 0 --limit 1
  # copy messages as they are, with keys, headers and times
  cues-kafka tail orders --format json | cues-kafka send copy --format message

Prints only committed messages. Without --follow, stops at the end that the
topic had when the command began. If a message does not fit its codec, prints a
line to stderr, and exits with 1 in the end; with 2 if a setting is wrong.
"""

Shown: TypeAlias = Literal["value", "full", "json"]

Part: TypeAlias = Literal["key", "value"]

LOOK_S = 0.1
"""How often the command looks whether it has shown everything."""


def tail(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", hidden=True, help="The topic.")],
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more messages, until Ctrl-C.")] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="PLACE", help="earliest, latest, an offset or a time [default: earliest; with -f latest]."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", callback=at_least(1), help="End after N messages.")] = None,
    partition: Annotated[
        int | None, typer.Option(metavar="P", callback=at_least(0), help="Show this partition only.")
    ] = None,
    form: Annotated[
        Shown,
        typer.Option("--format", metavar="FORMAT", help="What to show: value; full, with place and key; or json."),
    ] = "value",
    graph: Annotated[str, typer.Option(metavar="MODULE:GRAPH", help="Use the codecs of this graph.")] = "",
    cluster: ClusterOptions,
) -> None:
    """Print the committed messages of a topic."""
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.client.connect import connect
    from cues_kafka.graph.declare import Raw
    from cues_kafka.graph.topic import Topic

    settings = cluster.kafka()
    place = start_of(start or ("latest" if follow else "earliest"))
    declared = load_graph(graph) if graph else None
    with as_tools_of(graph), connect(settings, declared) as client, interrupts() as over:
        source = client.topic(topic, None if graph else Topic(value=Raw()))
        if isinstance(place, int) and partition is None and source.partitions > 1:
            raise ConfigError(f"--from {place}: {topic!r} has {source.partitions} partitions. Add --partition.")
        with source.tailer(partition, start=place) as tailer:
            codecs = source.access.settings if graph else None
            show = printer(form, codecs, terminal=sys.stdout.isatty(), cluster=settings)
            wrong = _show(tailer, _ends(source, tailer, follow=follow), over, limit, show)
    if wrong:
        say(f"{count(wrong, 'message')} did not fit the codec of {topic}", fg="red", err=True)
        raise typer.Exit(1)


def start_of(text: str) -> Start:
    """
    Read the value of --from.

    Raises:
        ConfigError: it is none.
    """
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    if text.isdecimal():
        return int(text)
    if (when := time_of(text)) is None:
        raise ConfigError(f"--from {text!r}: give earliest, latest, an offset, or a time such as 2026-11-25T10:00Z")
    return when


def _ends(source: ClientTopic, tailer: ClientTailer, *, follow: bool) -> Callable[[], bool]:
    """Makes what says whether the tailer has read what was there at the beginning."""
    if follow:
        return lambda: False
    ends = {place.partition: end for place, (_, end) in source.access.ranges().items()}

    def done() -> bool:
        at = tailer.positions
        return all(at[partition] >= end for partition, end in ends.items() if partition in at)

    return done


def _show(
    tailer: ClientTailer,
    done: Callable[[], bool],
    over: threading.Event,
    limit: int | None,
    show: Callable[[Received], str],
) -> int:
    """Print messages; how many could not be decoded."""
    shown = wrong = 0
    while not (over.is_set() or done() or shown == limit):
        try:
            found = tailer.read_blocking(LOOK_S, unblock=over)
        except CodecError as error:
            wrong += 1
            at = tailer.last_read_offset
            say(f"{tailer.topic} at {at}: {error}", fg="red", err=True)
            continue
        if found is not None:
            try:
                line = show(found)
            except CodecError as error:  # headers that cannot be read
                wrong += 1
                say(str(error), fg="red", err=True)
                continue
            shown += 1
            typer.echo(line)
    return wrong


def printer(
    form: Shown, settings: Topic | None = None, *, terminal: bool = False, cluster: Any = None
) -> Callable[[Received], str]:
    """
    Makes what prints a message on one line.

    Args:
        form: what to show.
        settings: of the topic, with its codecs; None: no graph says them, and values are bytes.
        terminal: whether a person reads it, and a terminal obeys what it gets.
        cluster: its options; codecs may need the registry.
    """
    from cues_kafka.operate.shown import key_text, value_text

    lines = Lines(settings, cluster)

    def value(message: Received) -> str:
        return shown(value_text(message))

    def shown(text: str) -> str:
        return visible(text) if terminal else text

    def full(message: Received) -> str:
        time = shown_time(message.timestamp_ms, fine=True)
        key = shown(key_text(message.key_bytes))
        return f"{message.topic}/{message.partition} at {message.offset}  {time}  {key}  {value(message)}"

    return {"value": value, "full": full, "json": lambda message: shown(lines.whole(message))}[form]


class Lines:
    """
    Messages as lines that `send --format message` reads, see `cues_kafka.codecs.lines`.

    Args:
        settings: of the topic, with its codecs; None: values and keys are bytes.
        cluster: its options.
    """

    def __init__(self, settings: Topic | None, cluster: Any) -> None:
        self._settings = settings
        self._cluster = cluster
        self._made: dict[str, AsJson] = {}

    def whole(self, message: Received) -> str:
        """A whole message, as one JSON object."""
        from cues_kafka.codecs.lines import headers_json, line_of, text_json

        place = [
            ("topic", text_json(message.topic)),
            ("partition", str(message.partition)),
            ("offset", str(message.offset)),
        ]
        head = [*place, ("timestamp_ms", str(message.timestamp_ms)), *self._key(message)]
        return line_of([*head, ("headers", headers_json(message.headers)), *self._value(message)])

    def _key(self, message: Received) -> list[tuple[str, str]]:
        from cues_kafka.codecs.lines import key_fields

        codec = None if self._settings is None else self._settings.key_codec
        data = message.key_bytes
        if codec is None or data is None:
            return key_fields(data)
        try:
            return self._fields("key", codec, message.topic, message.key, data)
        except CodecError:  # it does not fit the codec
            return key_fields(data, coded=True)

    def _value(self, message: Received) -> list[tuple[str, str]]:
        from cues_kafka.codecs.lines import value_fields
        from cues_kafka.graph.declare import Json
        from cues_kafka.graph.error_message import ErrorMessage
        from cues_kafka.operate.shown import plain_json

        codec = None if self._settings is None else self._settings.value
        data = message.value_bytes
        if data is None or isinstance(codec, Json):
            return value_fields(data)
        value = message.value
        if isinstance(value, ErrorMessage):
            return [("value", plain_json(value))]
        if codec is None:
            return value_fields(data)
        return self._fields("value", codec, message.topic, value, data)

    def _fields(self, name: Part, codec: CodecSpec, topic: str, value: Any, data: bytes) -> list[tuple[str, str]]:
        """JSON that is read as the same; else JSON to be looked at, and the bytes."""
        from cues_kafka.codecs.lines import bytes_field, key_fields, value_fields
        from cues_kafka.graph.declare import Raw
        from cues_kafka.operate.shown import plain_json

        if isinstance(codec, Raw):
            return value_fields(data) if name == "value" else key_fields(data, coded=True)
        text = self._as_json(name, codec, topic).text(value, data)
        if text is None:
            return [(name, plain_json(value)), bytes_field(name, data)]
        return [(name, text), *([(f"{name}_encoding", '"json"')] if text == "null" else [])]

    def _as_json(self, name: Part, codec: CodecSpec, topic: str) -> AsJson:
        from cues_kafka.codecs.as_json import AsJson
        from cues_kafka.codecs.lookup import MadeFor

        if name not in self._made:
            self._made[name] = AsJson(codec, MadeFor(topic, self._cluster, name))
        return self._made[name]
