"""The bytes that a target of a user's own keeps for a task: the newest attempt, and the records that Kafka gets in it.

They begin with a line of JSON, so that people can read where the task stands: `version`, `base`, `step`, `owner`,
`attempt` and `mark`. Each pack of records follows, behind its length in eight bytes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Self

from cues_kafka.errors import CodecError
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.packing import packed, unpacked

VERSION: Final = 1
"""The version of the bytes. Others are refused."""

_LENGTH: Final = 8


class Kept(NamedTuple):
    """
    The state that a target keeps for a task.

    Attributes:
        held: the newest attempt.
        data: the bytes. No two of them are equal, because each has a random mark. So a commit that was made over older
            bytes finds others, also where the attempt is the same.
    """

    held: HeldAttempt
    data: bytes

    @classmethod
    def of(cls, held: HeldAttempt, records: Iterable[tuple[Any, ...]] = ()) -> Self:
        """Make new bytes for an attempt and the records that Kafka gets in it, shaped like `ports.log.Outgoing`."""
        packs = b"".join(len(one).to_bytes(_LENGTH, "big") + one for one in packed(records))
        return cls(held, _line(held) + packs)

    def owned(self, owner: int) -> Kept:
        """Make new bytes for the same attempt and records, under a new owner."""
        held = self.held._replace(owner=owner)
        return Kept(held, _line(held) + self._packs)

    @classmethod
    def read(cls, data: bytes) -> Self:
        """
        Read what `of` made.

        Raises:
            CodecError: it is something else, or of another release.
        """
        try:
            found = json.loads(bytes(data).partition(b"\n")[0])
            version = found["version"]
            held = HeldAttempt(found["base"], found["step"], found["owner"], found["attempt"])
        except (ValueError, KeyError, TypeError) as error:
            raise CodecError(f"the target holds something that is not an attempt of a task: {error!r}") from error
        if version != VERSION:
            raise CodecError(
                f"the target keeps an attempt of version {version!r}; this release reads version {VERSION}: run the "
                "release that wrote it, or a newer one"
            )
        if not all(type(one) is int and one >= 0 for one in held[:3]) or type(held.attempt) is not str:
            raise CodecError(f"the target keeps an attempt that no task can have: {held!r:.200}")
        return cls(held, bytes(data))

    @property
    def _packs(self) -> bytes:
        return self.data.partition(b"\n")[2]

    def records(self) -> Iterator[tuple[Any, ...]]:
        """
        The records of the attempt.

        Raises:
            CodecError: the bytes are cut off, or are something else.
        """
        rest, at = self._packs, 0
        while at < len(rest):
            size = int.from_bytes(rest[at : at + _LENGTH], "big")
            pack = rest[at + _LENGTH : at + _LENGTH + size]
            if len(pack) < size:
                raise CodecError("the records in the target are cut off")
            yield from unpacked(pack)
            at += _LENGTH + size


def _line(held: HeldAttempt) -> bytes:
    found = {"version": VERSION, **held._asdict(), "mark": secrets.token_hex(8)}
    return json.dumps(found, separators=(",", ":")).encode() + b"\n"
