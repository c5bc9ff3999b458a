"""Up to where the entries of a task are true, for readers on other threads."""

from __future__ import annotations

from cues_kafka import Json
from cues_kafka.graph.declare import Store
from cues_kafka.ports.log import Position
from cues_kafka.state.stores import Stores
from cues_kafka.task.making.build import store_spec


def test_a_commit_that_is_only_in_the_changelog_yet_moves_no_position() -> None:
    """Its reply was lost, so its changes were dropped; they are read again before a query may have an answer."""
    stores = Stores([store_spec("counts", Store(Json(int)), "changelog", 1_000_000, None)], 0)
    before, behind = (Position("in", "in", b"", 1),), (Position("in", "in", b"", 2),)
    stores.stand_at(before)
    stores.begin_batch(1)
    stores.values["counts"]["ann"] = 1
    stores.caches[0].layers.seal(1)
    stores.discard()
    stores.stand_at(None)  # the recovery begins to read, and fails
    stores.will_stand_at(1, behind, 1, 0.0)
    stores.after_commit(1)
    assert stores.committed("counts", "ann") is None
