"""Changes of steps and batches on top of committed entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cues_kafka.state.layers import Layers
from cues_kafka.state.on_disk import OnDisk

KEYS = st.sampled_from([b"a", b"b", b"ab"])
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=2), st.none() | KEYS), max_size=4)
"""Each with a key that is looked up before, if any."""
STEPS = st.lists(st.tuples(CHANGES, st.booleans()), max_size=4)
Steps: TypeAlias = list[tuple[list[tuple[bytes, bytes | None, bytes | None]], bool]]
BATCHES = st.lists(st.tuples(STEPS, st.sampled_from(["commit", "late", "void"])), max_size=5)


@pytest.fixture(params=["in memory", "on disk"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Layers]]:
    """Makes layers over entries in memory, or on the disk."""
    opened, numbers = list[Layers](), count()

    def make() -> Layers:
        while opened:
            opened.pop().close()
        layers = Layers(None, OnDisk(tmp_path / str(next(numbers)), 2**20) if request.param == "on disk" else None)
        opened.append(layers)
        layers.open()
        return layers

    yield make
    while opened:
        opened.pop().close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(batches=BATCHES)
def test_what_is_seen_is_what_kept_steps_of_valid_batches_have_set(
    make: Callable[[], Layers], batches: list[tuple[Steps, str]]
) -> None:
    """Compared with plain dicts; a commit may be reported when the next batch has begun (P7)."""
    layers, committed = make(), dict[bytes, bytes]()
    waiting: list[int] = []
    for sequence, (steps, end) in enumerate(batches):
        layers.begin_batch()
        for one in waiting:
            layers.commit(one)
        waiting = []
        seen = dict(committed)
        for changes, kept in steps:
            layers.begin_step()
            before = dict(seen)
            for key, value, looked_up in changes:
                if looked_up is not None:
                    assert layers.get(looked_up) == seen.get(looked_up)
                assert layers.change(key, value) == seen.get(key)
                seen.pop(key, None)
                if value is not None:
                    seen[key] = value
            assert dict(layers.entries()) == seen
            assert {key: layers.get(key) for key in seen} == seen
            assert layers.count() == len(seen)
            if not kept:
                layers.undo_step()
                seen = before
            assert dict(layers.entries()) == seen
        changed = layers.seal(sequence)
        assert {key for key in {*seen, *committed} if seen.get(key) != committed.get(key)} <= set(changed)
        if end == "void":
            layers.discard()
            assert dict(layers.entries()) == committed
            continue
        committed = seen
        if end == "commit":
            layers.commit(sequence)
            assert layers.committed_entries() == committed
        else:
            waiting.append(sequence)
            assert dict(layers.entries()) == committed


def test_a_batch_sees_the_changes_of_the_batch_before_whose_commit_is_under_way(make: Callable[[], Layers]) -> None:
    """P7: it is called ahead."""
    layers = make()
    layers.load([(b"a", b"1"), (b"b", b"1")])
    layers.begin_batch()
    layers.change(b"a", b"2")
    layers.change(b"b", None)
    layers.seal(0)
    layers.begin_batch()
    assert (layers.get(b"a"), layers.get(b"b"), dict(layers.entries())) == (b"2", None, {b"a": b"2"})
    layers.change(b"a", b"3")
    layers.commit(0)
    assert (layers.get(b"a"), layers.committed(b"a"), layers.committed(b"b")) == (b"3", b"2", None)


def test_a_failed_step_gives_its_bytes_back() -> None:
    """Else steps that fail fill a store in which nothing is."""
    layers = Layers(1_000)
    layers.open()
    layers.begin_batch()
    for key in (b"a", b"b", b"c"):
        layers.begin_step()
        layers.change(key, b"x" * 600)
        layers.undo_step()

    assert list(layers.entries()) == []
    layers.close()


def test_a_store_is_not_changed_outside_of_a_batch(make: Callable[[], Layers]) -> None:
    """Nor in one that is void: the change would be nowhere."""
    layers = make()
    with pytest.raises(RuntimeError, match="while its function is called"):
        layers.change(b"k", b"v")
    layers.begin_batch()
    layers.change(b"k", b"v")
    layers.discard()
    with pytest.raises(RuntimeError, match="while its function is called"):
        layers.change(b"k", b"w")
    layers.undo_step()
    assert layers.get(b"k") is None


def test_entries_come_by_prefix_in_order(make: Callable[[], Layers]) -> None:
    """Of all layers, without those that are deleted."""
    layers = make()
    layers.load([(b"a1", b"1"), (b"a3", b"3"), (b"b", b"b")])
    layers.begin_batch()
    layers.change(b"a2", b"2")
    layers.change(b"a3", None)
    assert [*layers.entries(b"a")] == [(b"a1", b"1"), (b"a2", b"2")]
    assert layers.committed_entries() == {b"a1": b"1", b"a3": b"3", b"b": b"b"}
