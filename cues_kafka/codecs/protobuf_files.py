"""Descriptions of Protobuf messages: as a registry has them, and as classes that another process sent."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from cues_kafka.codecs.registered import Own
from cues_kafka.graph.formats import Described

KNOWN: Final = ("google/protobuf/", "google/type/", "confluent/")
"""Files that every registry has; they are not registered."""


def class_of(described: Described) -> Any:
    """The class of messages that are described, made here."""
    found = _pool_of(described).FindMessageTypeByName(described.name)
    return message_factory.GetMessageClass(found)


def _pool_of(described: Described) -> Any:
    """The pool of the process, so that the class is the one of code that is imported; its own one in a conflict."""
    for pool in (descriptor_pool.Default(), descriptor_pool.DescriptorPool()):
        try:
            for file in described.files:
                pool.AddSerializedFile(file)
        except TypeError:  # the process knows other files by these names
            continue
        return pool
    raise AssertionError("files that belong together did not fit each other")


def own_of(file: Any) -> Own:
    """A file and those that it needs, as a registry gets them."""
    named = tuple((each.name, own_of(each)) for each in file.dependencies if not each.name.startswith(KNOWN))
    return Own(base64.standard_b64encode(file.serialized_pb).decode(), "PROTOBUF", named)


def indexes_of(described: Any) -> tuple[int, ...]:
    """The place of a message in its file: its number there, below the numbers of those around it."""
    if described.containing_type is None:
        return (list(described.file.message_types_by_name).index(described.name),)
    around = described.containing_type
    return (*indexes_of(around), [each.name for each in around.nested_types].index(described.name))


def name_at(text: str, indexes: Sequence[int]) -> str | None:
    """
    The full name of the message at a place of a registered file; None: the registry has it as source text.

    Raises:
        ValueError: there is no such place.
    """
    file = file_of(text)
    if file is None:
        return None
    names, inside = [file.package] if file.package else [], file.message_type
    for number in indexes:
        if not 0 <= number < len(inside):
            raise ValueError(no_message_at(indexes))
        names.append(inside[number].name)
        inside = inside[number].nested_type
    return ".".join(names)


def no_message_at(indexes: Sequence[int]) -> str:
    """What a schema lacks that has no message at a place."""
    return f"has no message at the place {list(indexes)!s:.100}"


def file_of(text: str) -> Any:
    """The description of a registered file; None: it is source text."""
    file = descriptor_pb2.FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None
    return file
