"""The key that outputs inherit from the lead input, in the format of the topic that they are written to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import methodcaller
from typing import Any, TypeAlias

from cues_kafka.codecs.framing import GUID, UNFIT, header_of, in_front
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.errors import CodecError, OutputError
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.formats import Protobuf, SchemaSpec
from cues_kafka.graph.message import key_bytes
from cues_kafka.graph.topic import Topic
from cues_kafka.ports.log import WireMessage
from cues_kafka.task.calling.outputs import Target

Inherit: TypeAlias = Callable[[bytes], bytes | None]

Told: TypeAlias = Callable[[CodecSpec, Callable[[Any], Any]], Callable[[Any], Any]]


def key_reader(settings: Iterable[Topic]) -> Callable[[WireMessage], bytes | None]:
    """What gives the key of a message of these topics; behind the id of its schema, if a header has the id."""
    declared = [one.key_codec for one in settings]
    named = {isinstance(one, Protobuf) for one in declared if isinstance(one, SchemaSpec) and one.registry}
    if not named:
        return methodcaller("key")
    # Where inputs differ in what such a header holds, it is not checked here.
    name: str = header_of("key", places=named.pop()) if len(named) == 1 else str(header_of("key"))

    def read(message: WireMessage) -> bytes | None:
        key = message.key()
        return None if key is None else in_front(message.headers(), name, key)

    return read


def inherit(source: Topic, came: MadeFor, target: Topic, goes: MadeFor, told: Told) -> Inherit | None:
    """
    Compile what makes the key of an output of the key of its lead input.

    Args:
        source: the settings of the input.
        came: of its keys.
        target: the settings of the output.
        goes: of its keys.
        told: has outages of a registry told from what a function raises.

    Returns:
        None: it is the same bytes. The function raises `OutputError` if the key does not fit the output's codec.
    """
    was, now = source.key_codec, target.key_codec
    named = isinstance(was, SchemaSpec) and was.registry
    if was == now and not named:
        return None
    decode: Callable[[bytes], Any] = bytes.decode if was is None else told(was, codec_for(was, came).decode)
    encode: Callable[[Any], bytes | None] = key_bytes if now is None else told(now, codec_for(now, goes).encode)
    same = was == now

    def convert(data: bytes) -> bytes | None:
        if same and not data.startswith((bytes([GUID]), UNFIT)):  # it names its schema itself
            return data
        try:
            return encode(decode(data))
        except (CodecError, OutputError, UnicodeDecodeError) as error:
            raise OutputError(
                f"the key of {came.topic!r}, which outputs without a key of their own inherit, does not fit the keys "
                f"of {goes.topic!r}: {error} Return Message(value, key=...), or declare Topic(key=...) for "
                f"{goes.topic!r}."
            ) from error

    return convert


def by_text(targets: Mapping[str, Target]) -> dict[str, Target]:
    """The outputs of a timer, which inherit its key: text, and no bytes of a message."""
    return {binding: replace(one, inherit=_of_text(one)) for binding, one in targets.items()}


def _of_text(target: Target) -> Inherit | None:
    if target.encode_key is key_bytes:
        return None

    def convert(data: bytes) -> bytes | None:
        return target.encode_key(data.decode())

    return convert
