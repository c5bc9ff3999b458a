"""Entries that another program wrote to the changelog of a store: refused by name where a store is restored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cues_kafka.core.delivery import parse_origin
from cues_kafka.observe.refused import REFUSED
from cues_kafka.ports.log import WireMessage
from cues_kafka.records.strangers import MOST, shown
from cues_kafka.state.entries import TIME_BYTES
from cues_kafka.state.expiring import MESSAGES, MILLISECONDS, Expiring
from cues_kafka.state.layers import ENTRY, MARK, TOPIC, Layers
from cues_kafka.state.scheduled import DUE_BYTES, Scheduled

_KINDS: Final = {ENTRY, Expiring.entry}
_NAMES: Final = {MARK, TOPIC, MILLISECONDS, MESSAGES}
"""The other keys of changelogs: a mark, the topic's id, and the time by the clock or in messages."""

_REMEDY: Final = (
    "find the program that writes to this topic, and revoke its right to write: docs/security.md. `cues-kafka "
    "verify --state MODULE:GRAPH` finds what else it wrote"
)


def own_entries(
    messages: Sequence[WireMessage], layers: Layers, foreign: set[bytes] | None = None
) -> Iterator[tuple[bytes, bytes | None]]:
    """
    Keys and values of a changelog's messages, without those that no task with this store writes.

    Args:
        messages: in their order.
        layers: of the store.
        foreign: gets the keys of what is left out, as far as the messages do not delete them again.
    """
    timers = isinstance(layers, Scheduled)
    for message in messages:
        key, value = message.key() or b"", message.value()
        if (unknown := key[:1] not in _KINDS and key not in _NAMES) or is_other_kind(key, layers):
            if foreign is not None:
                (foreign.discard if value is None else foreign.add)(key)
            if unknown and value is not None:  # else `rebuild` has deleted it
                REFUSED.note(message, "an entry of a store", f"its key is {shown(key)}", _REMEDY)
        elif timers and value is not None and key[:1] == layers.entry and (why := fault_of(key[1:], value)):
            REFUSED.note(message, "a timer", why, _REMEDY)
        else:
            yield key, value


def is_other_kind(key: bytes, layers: Layers) -> bool:
    """Whether a store of that name with another kind of lifetime has the key: an entry, or a time."""
    own = (MARK, TOPIC, layers.unit) if isinstance(layers, Expiring) else (MARK, TOPIC)
    return (key[:1] in _KINDS and key[:1] != layers.entry) or (key in _NAMES and key not in own)


def fault_of(entry: bytes, value: bytes) -> str:
    """What is wrong with the entry of a timer; empty: nothing."""
    if len(entry) < DUE_BYTES or len(value) < TIME_BYTES:
        return "it is too short"
    if int.from_bytes(entry[:DUE_BYTES], "big") > MOST:
        return "its time is out of bounds"
    try:
        entry[DUE_BYTES:].decode()
        places = parse_origin(value[TIME_BYTES:].decode(), 0)
    except ValueError as error:
        return f"it does not say which messages set it ({error})"
    if any(len(one.topic_id) != 16 or not 0 <= one.offset <= MOST for one in places):
        return "it names a message that no topic has"
    return ""
