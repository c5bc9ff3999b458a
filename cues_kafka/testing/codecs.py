"""The contract of codecs, as one call for a test: what the project asks of its own codecs, and of a user's."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from cues_kafka.codecs.json import JsonCodec
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.errors import CodecError
from cues_kafka.graph.codec import Codec
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.ports.codec import WireCodec

_THREADS: Final = 4
_ROUNDS: Final = 25
"""How often each thread converts all values."""

_FLIPS: Final = (0x01, 0x80, 0xFF)
"""What is changed in each byte of a message."""

_MOST_BYTES: Final = 500
"""How many bytes of a message are changed, one after another."""

Rule = Callable[["_Case"], Iterable[str]]


class _Case:
    """A codec under test: its declaration, values that it takes, what it made of them, and what it must refuse."""

    def __init__(
        self, declared: CodecSpec, values: Sequence[Any], misfits: Sequence[Any], bad: Sequence[bytes]
    ) -> None:
        self.declared, self.misfits, self.bad = declared, misfits, bad
        self._values = tuple(values)
        self.codec = self.make()
        self.encoded = [self._encode(value) for value in self.values]

    @property
    def values(self) -> tuple[Any, ...]:
        """Copies: a codec that changes a value breaks one rule, not all of them."""
        return copy.deepcopy(self._values)

    def _encode(self, value: Any) -> bytes:
        try:
            data = self.codec.encode(value)
        except CodecError as error:
            raise AssertionError(f"check_codec: the codec refuses the value {value!r:.80}: {error}") from error
        try:
            self.codec.decode(data)
        except CodecError as error:
            raise AssertionError(
                f"check_codec: the codec writes the value {value!r:.80} as {data!r:.80} and cannot read that: {error}"
            ) from error
        return data

    def make(self, declared: CodecSpec | None = None) -> WireCodec:
        return codec_for(declared or self.declared, MadeFor("contract"))


def check_codec(
    declared: CodecSpec,
    values: Sequence[Any],
    *,
    misfits: Sequence[Any] = (),
    bad: Sequence[bytes] = (),
) -> None:
    """
    Check that a codec does what processors, workers and Spark rely on.

    Args:
        declared: the codec as a topic declares it, such as `Csv()` or `Json(Order)`.
        values: values that it takes; at least one, and better one of each kind. None is not among them.
        misfits: values that it must refuse to encode.
        bad: messages that it must refuse to decode. Changed and cut messages are tried in any case.

    Raises:
        AssertionError: lists each rule that the codec breaks, with the value or the message that shows it.
    """
    if not values or any(value is None for value in values):
        raise AssertionError("check_codec: give at least one value, and no None: that is a message without a value.")
    case = _Case(declared, values, misfits, bad)
    if broken := [f"- {text}" for rule in RULES for text in rule(case)]:
        raise AssertionError(f"{type(declared).__name__} breaks the contract of codecs:\n" + "\n".join(broken))


def _values_come_back(case: _Case) -> Iterator[str]:
    for value, data in zip(case.values, case.encoded, strict=True):
        if type(data) is not bytes:
            yield f"encode({value!r:.80}) returns {type(data).__name__}, not bytes"
        elif (found := case.codec.decode(data)) != value:
            yield f"{value!r:.80} comes back as {found!r:.80}"


def _bytes_are_the_same_each_time(case: _Case) -> Iterator[str]:
    """A replay writes what the first delivery wrote; a second codec stands for another process."""
    again = case.make()
    for value, data in zip(case.values, case.encoded, strict=True):
        if case.codec.encode(copy.deepcopy(value)) != data or again.encode(value) != data:
            yield f"{value!r:.80} has other bytes each time"


def _values_are_left_alone(case: _Case) -> Iterator[str]:
    for value in case.values:
        before = copy.deepcopy(value)
        case.codec.encode(value)
        if value != before:
            yield f"encode changes the value {before!r:.80} into {value!r:.80}"


def _misfits_are_refused(case: _Case) -> Iterator[str]:
    for value in case.misfits:
        yield from _refused(case.codec.encode, value, "encode")


def _bad_messages_are_refused(case: _Case) -> Iterator[str]:
    for data in case.bad:
        yield from _refused(case.codec.decode, data, "decode")


def _refused(convert: Callable[[Any], Any], given: Any, name: str) -> Iterator[str]:
    try:
        found = convert(given)
    except CodecError as error:
        if not str(error).strip():
            yield f"{name}({given!r:.80}) raises an error without a text"
    except Exception as error:  # noqa: BLE001 - the rule is about any other error
        yield f"{name}({given!r:.80}) raises {type(error).__name__}, not CodecError: {error}"
    else:
        yield f"{name}({given!r:.80}) gives {found!r:.80}, and should raise"


def _changed_messages_are_read_or_refused(case: _Case) -> Iterator[str]:
    """Each byte changed, and the message cut at each place."""
    for data in case.encoded:
        for hostile in (b"", *_hostile(data)):
            try:
                case.codec.decode(hostile)
            except CodecError:
                continue
            except Exception as error:  # noqa: BLE001 - the rule is about any other error
                yield f"decode({hostile!r:.80}) raises {type(error).__name__}, not CodecError: {error}"
                return


def _hostile(data: bytes) -> Iterator[bytes]:
    for place in range(min(len(data), _MOST_BYTES)):
        yield data[:place]
        for flip in _FLIPS:
            yield data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]
    yield data + b"\0"


def _threads_share_it(case: _Case) -> Iterator[str]:
    values = case.values

    def work(_: int) -> bool:
        return all(
            case.codec.encode(value) == data and case.codec.decode(data) == value
            for _ in range(_ROUNDS)
            for value, data in zip(copy.deepcopy(values), case.encoded, strict=True)
        )

    with ThreadPoolExecutor(_THREADS) as pool:
        if not all(pool.map(work, range(_THREADS))):
            yield "threads that share the codec disturb each other: keep no state in it"


def _it_can_be_sent_to_another_process(case: _Case) -> Iterator[str]:
    try:
        arrived = pickle.loads(pickle.dumps(case.declared))  # noqa: S301 - these are the test's own bytes
    except Exception as error:  # noqa: BLE001 - pickling calls the user's code
        yield (
            f"Spark cannot send it to its processes ({type(error).__name__}: {error}): define the class at the top "
            "level of a module, and make in open() what cannot be pickled"
        )
        return
    if arrived != case.declared:
        yield "a copy of it is not equal, so graphs cannot be compared: make the class a frozen dataclass"
    there = case.make(arrived)
    for value, data in zip(case.values, case.encoded, strict=True):
        if there.encode(value) != data:
            yield f"a copy in another process encodes {value!r:.80} differently"


def _values_have_the_schema(case: _Case) -> Iterator[str]:
    """A user's schema is what Spark makes columns of, by way of JSON."""
    if not isinstance(case.declared, Codec) or case.declared.schema is None:
        return
    json = JsonCodec(case.declared.schema)
    for value in case.values:
        try:
            found = json.decode(json.encode(value))
        except CodecError as error:
            yield f"{value!r:.80} does not fit schema: {error}"
            continue
        if found != value:
            yield f"{value!r:.80} is {found!r:.80} by the schema"


RULES: Final[tuple[Rule, ...]] = (
    _values_come_back,
    _bytes_are_the_same_each_time,
    _values_are_left_alone,
    _misfits_are_refused,
    _bad_messages_are_refused,
    _changed_messages_are_read_or_refused,
    _threads_share_it,
    _it_can_be_sent_to_another_process,
    _values_have_the_schema,
)
"""All rules."""
