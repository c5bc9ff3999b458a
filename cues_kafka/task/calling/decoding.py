"""What decodes the messages of one input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from cues_kafka.codecs.framing import in_front
from cues_kafka.graph.declare import CodecSpec, Raw
from cues_kafka.ports.log import WireMessage
from cues_kafka.task.calling.metadata import Marks
from cues_kafka.task.calling.step import Received


class Decoder(NamedTuple):
    """
    What decodes the values of one input.

    Attributes:
        decode: from a message's bytes.
        id_header: the header whose value goes before these bytes, where a message has it; None: none.
        key: decodes the key; None: it is text.
        declared: the codec of the topic.
        marks: `meta=` of the topic; None also where it is an empty set.
        quick: as `decode`, of bytes that are there. It may raise other errors, so a caller asks `decode` then. None:
            there is nothing quicker.
    """

    decode: Callable[[bytes | None], Any]
    id_header: str | None = None
    key: Callable[[WireMessage], Any] | None = None
    declared: CodecSpec = Raw()
    marks: Marks = None
    quick: Callable[[bytes], Any] | None = None

    def received(self, message: WireMessage) -> Received:
        """What a function gets of a message whose headers can be read."""
        return Received(message, self.read(message), self.key, self.marks)

    def read(self, message: WireMessage) -> Any:
        """The value of a message whose headers can be read."""
        data = message.value()
        if self.id_header is not None and data is not None:
            data = in_front(message.headers(), self.id_header, data)
        return self.decode(data)
