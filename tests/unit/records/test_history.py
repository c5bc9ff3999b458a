"""The history of a task: what it has delivered, whatever operators did to it (X6)."""

from __future__ import annotations

import json

import pytest

from cues_kafka.core.records import Totals
from cues_kafka.errors import CodecError
from cues_kafka.ports.log import Position, Positions
from cues_kafka.records.history import MOST, History, Moved, Span, decode_history, delivered, encode_history


def at(**offsets: int) -> Positions:
    """Positions by binding; each reads a topic of its name."""
    return tuple(Position(name, name, name.encode().ljust(16), offset) for name, offset in offsets.items())


def moved(was: Positions, now: Positions, kept: Positions | None = None, sequence: int = 1, name: str = "") -> Moved:
    """A move."""
    return Moved(sequence, was, was if kept is None else kept, now, Totals(deliveries=3), name)


def of(*moves: Moved, began: Positions | None = None) -> History:
    """With sequences of their own."""
    found = History(began)
    for number, move in enumerate(moves):
        found = found.then(move._replace(sequence=number))
    return found


@pytest.mark.parametrize(
    ("history", "positions", "spans", "why"),
    [
        (of(), at(a=5), {"a": [(0, 5)]}, ""),
        (of(began=at(a=2)), at(a=5), {"a": [(2, 5)]}, ""),
        (of(moved(at(a=3), at(a=7))), at(a=9), {"a": [(0, 3), (7, 9)]}, ""),
        (of(moved(at(a=3), at(a=1))), at(a=2), {"a": [(0, 3), (1, 2)]}, "moved it back"),
        (of(moved(at(a=3), at(a=3, b=4))), at(a=3, b=6), {"a": [(0, 3)], "b": [(4, 6)]}, ""),
        (of(moved(at(a=3, b=2), at(a=3))), at(a=4), {"a": [(0, 4)]}, "messages of 'b'"),
        (of(moved(at(a=3, b=0), at(a=3))), at(a=4), {"a": [(0, 4)]}, ""),
        (of(moved(at(a=8), at(a=4), at(a=4))), at(a=6), {"a": [(0, 6)]}, ""),
        (of(moved(at(a=8), at(a=12), at(a=4))), at(a=13), {"a": [(0, 4), (12, 13)]}, ""),
        (of(moved(at(a=3), at(a=3), name="old")), at(a=5), {"a": [(0, 5)]}, ""),
    ],
)
def test_what_the_stores_hold_is_followed(history: History, positions: Positions, spans: object, why: str) -> None:
    """Through skips, ways back, inputs that come and go, cuts and names."""
    found = delivered(history, positions, {}, stores=True)

    assert {name: _joined(some) for name, some in found.spans.items()} == spans
    assert why in found.why_not_followed
    assert bool(why) == bool(found.why_not_followed)


def _joined(spans: tuple[Span, ...]) -> list[tuple[int, int]]:
    """Neighbours as one."""
    made: list[tuple[int, int]] = []
    for start, end in spans:
        if made and made[-1][1] == start:
            start = made.pop()[0]  # noqa: PLW2901 - the span grows
        made.append((start, end))
    return made


def test_input_with_another_name_keeps_what_it_has_delivered() -> None:
    """It is the same topic, at the same place."""
    [was] = at(a=3)
    found = delivered(of(moved((was,), (was._replace(binding="b"),))), (was._replace(binding="b", offset=5),), {})

    assert _joined(found.spans["b"]) == [(0, 5)]
    assert not found.why_not_followed


def test_what_was_skipped_is_named() -> None:
    """Between the spans."""
    found = delivered(of(moved(at(a=3), at(a=7))), at(a=9), {})

    assert found.skipped("a") == (Span(3, 7),)
    assert [found.has("a", offset) for offset in (2, 3, 6, 7, 9)] == [True, False, False, True, False]


def test_what_is_written_is_read() -> None:
    """All of it."""
    history = of(moved(at(a=3), at(a=7, b=1), at(a=2)), moved(at(a=8), at(a=8), name="old"), began=at(a=1))

    assert decode_history(encode_history(history)) == history
    assert history.names == ("old",)


@pytest.mark.parametrize("kind", ["nothing", "text", "version", "list", "offset", "totals", "deep"])
def test_bytes_of_others_are_refused(kind: str) -> None:
    """By one error."""
    right = json.loads(encode_history(of(moved(at(a=3), at(a=7)))))
    match kind:
        case "version":
            right["version"] = 2
        case "offset":
            right["moves"][0]["now"][0][3] = -1
        case "totals":
            right["moves"][0]["totals"]["deliveries"] = True
        case "list":
            right = [right]
    data = {"nothing": None, "text": b"x", "deep": b"[" * 100_000}.get(kind, json.dumps(right).encode())

    with pytest.raises(CodecError):
        decode_history(data)


def test_history_is_bounded() -> None:
    """It says that its first moves are gone, so nothing is called by what is left of it."""
    history = of(*(moved(at(a=n), at(a=n + 1)) for n in range(MOST + 1)))

    assert len(history.moves) == MOST
    assert "more than 500 times" in delivered(history, at(a=MOST + 2), {}).why_not_followed
    assert history.then(history.moves[-1]) == history
