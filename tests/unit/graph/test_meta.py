"""The header of metadata: what it says, how messages of a join merge theirs, and what is left out."""

from __future__ import annotations

from operator import ge, gt, le, lt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka import Place
from cues_kafka.graph.meta import MOST_PLACES, Travelled, merge_meta, own_place, read_meta, write_meta
from tests.examples import examples

A, B, C = Place("a", 0, 5), Place("b", 1, 2**60, 1_767_225_600_000), Place("c.d_e-f", 12, 0)
PLACES = st.builds(
    Place, st.sampled_from("abcdef"), st.integers(0, 3), st.integers(0, 50), st.none() | st.integers(0, 9)
)
TRAVELLED = st.builds(
    Travelled,
    st.lists(PLACES, max_size=6).map(lambda found: {one.topic: one for one in found}),
    st.none() | PLACES,
    st.booleans(),
)


def travelled(*places: Place, tx: Place | None = None, truncated: bool = False) -> Travelled:
    """What travels from a message."""
    return Travelled({one.topic: one for one in places}, tx, truncated)


def test_the_header_is_a_line_of_text() -> None:
    """Golden: other programs may read it."""
    found = travelled(A, B, C, tx=A, truncated=True)

    assert write_meta(found) == b"1 a/0@5 ... a/0@5 b/1@1152921504606846976:1767225600000 c.d_e-f/12@0"
    assert read_meta(write_meta(found)) == found
    assert write_meta(travelled(A)) == b"1 - a/0@5"
    assert write_meta(travelled()) is None
    assert read_meta(None) == travelled()


@examples(200)
@given(TRAVELLED)
def test_what_is_written_is_read(one: Travelled) -> None:
    """In the same order."""
    read = read_meta(write_meta(one))

    assert read == one
    assert [*read.places] == [*one.places]


@pytest.mark.parametrize(
    "header", [b"", b"1", b"2 - a/0@5", b"1 - a", b"1 x a/0@5", b"1 - a/0@5:x", b"1 - /0@5", b"\xff"]
)
def test_a_header_that_cannot_be_read_says_that_places_are_missing(header: bytes) -> None:
    """Another program may have written it; the step must not fail for that."""
    assert read_meta(header) == travelled(truncated=True)


def test_places_compare_within_one_partition_only() -> None:
    """Offsets of two partitions say nothing about which message came first."""
    later, same = Place("a", 0, 6), Place("a", 0, 5, 1)

    for compare, expected in ((lt, True), (le, True), (gt, False), (ge, False)):
        assert (compare(A, later), compare(later, A)) == (expected, not expected)
        assert compare(A, same) == (compare in (le, ge))
        for other in (Place("a", 1, 6), Place("b", 0, 6), 7, ("a", 0, 6)):
            with pytest.raises(TypeError, match=r"are not in one partition, so neither comes before the other"):
                compare(A, other)
    assert sorted([later, A]) == [A, later]
    assert same != A  # equality is that of all fields


def test_a_topics_own_place_follows_its_meta() -> None:
    """A cycle replaces its own place, which then is the last one."""
    own = Place("a", 0, 9, 77)
    came = travelled(A, C, tx=C)

    assert own_place(came, own, frozenset({"offset"})) == travelled(C, own._replace(timestamp_ms=None), tx=C)
    assert own_place(came, own, frozenset({"time"})) == travelled(C, own, tx=C)
    assert own_place(came, own, frozenset({"tx"})) == travelled(A, C, tx=own._replace(timestamp_ms=None))
    assert own_place(came, own, frozenset({"tx", "time", "offset"})) == travelled(C, own, tx=own)
    assert [*own_place(came, own, frozenset({"offset"})).places] == ["c.d_e-f", "a"]


def test_of_a_topic_on_several_paths_the_newest_place_stays() -> None:
    """By offset in one partition; else by timestamp; else that of the first input."""

    def merged(one: Place, other: Place) -> Place:
        found = merge_meta([travelled(one), travelled(other)]).places["a"]
        assert merge_meta([travelled(other), travelled(one)]).places["a"] == found
        return found

    assert merged(Place("a", 0, 5, 99), Place("a", 0, 6, 1)).offset == 6
    assert merged(Place("a", 0, 5, 99), Place("a", 1, 6, 1)).offset == 5
    assert merged(Place("a", 0, 5), Place("a", 1, 6, 1)).offset == 6
    unknown = [travelled(Place("a", 1, 5)), travelled(Place("a", 0, 9))]
    assert merge_meta(unknown).places["a"].offset == 5
    assert merge_meta(unknown[::-1]).places["a"].offset == 9


def test_a_join_merges_places_by_their_distance_and_takes_the_first_transaction() -> None:
    """What is near stays near, so that what is left out of many is what is far."""
    found = merge_meta([travelled(A, C), travelled(B, tx=B, truncated=True), travelled(Place("x", 0, 1), tx=A)])

    assert [*found.places] == ["a", "c.d_e-f", "b", "x"]
    assert (found.tx, found.truncated) == (B, True)


@examples(200)
@given(st.lists(TRAVELLED, min_size=1, max_size=4))
def test_merging_loses_no_topic_and_invents_no_place(inputs: list[Travelled]) -> None:
    """Whatever the inputs are; and once more with the result changes nothing."""
    found = merge_meta(inputs)
    given_places = {place for one in inputs for place in one.places.values()}

    assert found.places.keys() == {place.topic for place in given_places}
    assert set(found.places.values()) <= given_places
    assert merge_meta([found, found]).places == found.places
    for place in given_places:
        same = found.places[place.topic]
        assert same.partition != place.partition or same >= place or same.timestamp_ms is not None


def test_the_oldest_of_too_many_places_are_left_out() -> None:
    """The reader is told."""
    many = [Place(f"t{n}", 0, n) for n in range(MOST_PLACES + 3)]
    found = read_meta(write_meta(travelled(*many)))

    assert [*found.places] == [f"t{n}" for n in range(3, MOST_PLACES + 3)]
    assert found.truncated
    assert not read_meta(write_meta(travelled(*many[3:]))).truncated
    later = own_place(found, Place("new", 0, 1), frozenset({"offset"}))
    assert [*read_meta(write_meta(later)).places][-2:] == [f"t{MOST_PLACES + 2}", "new"]
