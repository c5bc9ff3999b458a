"""R5 as a table: the newest record, the group's offsets and the inputs' facts give the decision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from cues_kafka.core.events import InputFacts
from cues_kafka.core.records import Record, Writer
from cues_kafka.core.recover import Delivered, Fresh, Pending, Refuse, first_positions, recover
from cues_kafka.core.spec import Input, Spec
from tests.unit.core.world import ME, RECREATED, TWO, A, B, at, attempt, facts, make_spec, snapshot, start

SPEC = make_spec()
JOIN = make_spec(TWO, pairing="join")
ALTS = make_spec(TWO, pairing="alts", effects=True)
NOTHING: dict[str, int | None] = {"in": None}


class Row(NamedTuple):
    """One case; `want` is the class of the decision, and for a refusal words of its text and of its remedy."""

    case: str
    record: Record | None
    want: Any
    offsets: dict[str, int | None] = NOTHING
    inputs: dict[str, InputFacts] | None = None
    spec: Spec = SPEC


def refused(text: str, remedy: str, *, stale: bool = False) -> tuple[str, str, bool]:
    """What a refusal must say."""
    return text, remedy, stale


GONE = refused("offsets [5, 6) of alpha/1 are gone", "accept-loss")
ROWS = [
    # Nothing yet
    Row("no record, no offsets", None, Fresh()),
    Row("no record, the coordinator knows no binding at all", None, Fresh(), offsets={}),
    Row("no record under offsets", None, refused("is empty, yet group 'g.p' has committed offsets {'in': 5}",
        "cues-kafka reset", stale=True), offsets={"in": 5}),
    Row("no record under offset 0", None, refused("is empty, yet", "cues-kafka reset", stale=True), offsets={"in": 0}),
    # Delivered
    Row("a start", start(SPEC, 0), "delivered"),
    Row("an attempt, offsets expired", attempt(SPEC, 5), "delivered"),
    Row("an attempt, offsets as it says", attempt(SPEC, 5), "delivered", offsets={"in": 5}),
    Row("an attempt at the log's start", attempt(SPEC, 5), "delivered", inputs=facts(SPEC, low=5)),
    Row("an attempt at the end: trimmed to its end, idle", attempt(SPEC, 5), "delivered",
        inputs=facts(SPEC, low=5, stable=5, high=5)),
    Row("an attempt at the high watermark", attempt(SPEC, 5), "delivered", inputs=facts(SPEC, high=5)),
    Row("an attempt above the last stable offset, below the high watermark", attempt(SPEC, 5), "delivered",
        inputs=facts(SPEC, stable=3, high=9)),
    Row("an attempt by this very run", attempt(SPEC, 5, writer=ME), "delivered"),
    Row("an attempt under another fingerprint: kind and order may change", attempt(SPEC, 5, fingerprint=b"another!"),
        "delivered"),
    Row("a join's attempt", attempt(JOIN, 5, 6), "delivered", spec=JOIN, offsets={"left": 5, "right": 6}),
    Row("a join's attempt, one offset expired", attempt(JOIN, 5, 6), "delivered", spec=JOIN,
        offsets={"left": None, "right": 6}),
    # Retry
    Row("a snapshot of another run: a death", snapshot(SPEC, (5,), (9,), 4), Pending(snapshot(SPEC, (5,), (9,), 4), 1)),
    Row("deaths add up", snapshot(SPEC, (5,), (9,), 4, starts=1), Pending(snapshot(SPEC, (5,), (9,), 4, starts=1), 2)),
    Row("a snapshot that was left in order: no death", snapshot(SPEC, (5,), (9,), 4, left=True, starts=1),
        Pending(snapshot(SPEC, (5,), (9,), 4, left=True, starts=1), 1)),
    Row("a snapshot of this very run (P8): no death", snapshot(SPEC, (5,), (9,), 4, writer=ME),
        Pending(snapshot(SPEC, (5,), (9,), 4, writer=ME), 0)),
    Row("an alts snapshot keeps its choice", snapshot(ALTS, (5, 6), (6, 8), 3, choice=(("right", 2), ("left", 1))),
        Pending(snapshot(ALTS, (5, 6), (6, 8), 3, choice=(("right", 2), ("left", 1))), 1), spec=ALTS),
    # Refused: this is not what the task left
    Row("another version", attempt(SPEC, 5, version=2), refused("has version 2, this release knows 1", "newer one")),
    Row("another application's record", attempt(SPEC, 5, writer=Writer("h.p.1", "native", "x", "y")),
        refused("was written by 'h.p.1'", "its own graph name")),
    Row("another partition's record", attempt(SPEC, 5, writer=Writer("g.p.2", "native", "x", "y")),
        refused("was written by 'g.p.2'", "'g.p.1' is the only writer")),
    Row("the input's topic has no such partition", attempt(SPEC, 5), refused("'alpha' has no partition 1", "create"),
        inputs={}),
    Row("fresh, and the topic is missing", None, refused("'alpha' has no partition 1", "create"), inputs={}),
    Row("a binding is new", attempt(SPEC, 5), refused("bindings changed", "begins at its start="), spec=JOIN),
    Row("a binding is gone", attempt(JOIN, 5, 6), refused("'left' from 'alpha', 'right' from 'beta'", "as they were")),
    Row("a binding has another name", attempt(SPEC, 5), refused("written by 'there'", "a name of its own"),
        spec=make_spec((Input("other", "alpha"),))),
    Row("a binding has another topic", attempt(SPEC, 5), refused("bindings changed", "as they were"),
        spec=make_spec((Input("in", "beta"),))),
    Row("the topic was recreated", attempt(SPEC, 5), refused("deleted and recreated", "cues-kafka reset"),
        inputs={"in": InputFacts(RECREATED, 0, 100, 100)}),
    Row("the second topic of a join was recreated", attempt(JOIN, 5, 6), refused("'beta' was deleted", "reset"),
        spec=JOIN, inputs=facts(JOIN) | {"right": InputFacts(RECREATED, 0, 100, 100)}),
    Row("another kind under a snapshot", snapshot(JOIN, (5, 6), (7, 8), 2),
        refused("changed while a batch of steps was being delivered", "the former version"), spec=ALTS),
    Row("another strategy", attempt(SPEC, 5, strategy="at-least-once"),
        refused("was written at-least-once", "`cues-kafka strategy` changes it")),
    Row("the processor moved to another name", attempt(SPEC, 5, moved_to="q"),
        refused("'p' has moved to the name 'q'", "run it as 'q'")),
    Row("the processor is moving from another name", attempt(SPEC, 5, moving_from="o"),
        refused("the move of 'p' from the name 'o' is not complete", "`cues-kafka rename MODULE:GRAPH o p --yes`")),
    # Refused: offsets
    Row("the group is behind the record", attempt(SPEC, 5), refused("group offset 4 of 'alpha' is not the record's 5",
        "the record decides", stale=True), offsets={"in": 4}),
    Row("the group is ahead of the record", attempt(SPEC, 5), refused("group offset 6", "set the group's", stale=True),
        offsets={"in": 6}),
    Row("a snapshot's offsets are the starts of its ranges", snapshot(SPEC, (5,), (9,), 4),
        refused("group offset 9", "the record decides", stale=True), offsets={"in": 9}),
    Row("the second input's offset differs", attempt(JOIN, 5, 6), refused("group offset 7 of 'beta'", "record",
        stale=True), spec=JOIN, offsets={"left": 5, "right": 7}),
    # Refused: the log
    Row("below the log's start", attempt(SPEC, 5), GONE, inputs=facts(SPEC, low=6)),
    Row("a snapshot below the log's start", snapshot(SPEC, (5,), (9,), 4), GONE, inputs=facts(SPEC, low=6)),
    Row("past the high watermark", attempt(SPEC, 5), refused("position 5 is past the end 4 of alpha/1", "brokers lost",
        stale=True), inputs=facts(SPEC, stable=4, high=4)),
    Row("an empty log that was longer", attempt(SPEC, 5), refused("past the end 0", "unclean", stale=True),
        inputs=facts(SPEC, stable=0, high=0)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.case)
def test_recovery_decides_by_the_newest_record(row: Row) -> None:
    """Every case and every refusal of R5, and those of X5."""
    inputs = facts(row.spec) if row.inputs is None else row.inputs
    decision = recover(row.spec, row.record, row.offsets, inputs)

    match row.want:
        case "delivered":
            assert decision == Delivered(row.record)  # type: ignore[arg-type]
        case (str(text), str(remedy), bool(stale)):
            assert isinstance(decision, Refuse)
            assert decision.halt.kind == "refused"
            assert text in decision.halt.text
            assert remedy in decision.halt.remedy
            assert decision.stale is stale
        case want:
            assert decision == want


def test_a_refusal_of_any_other_cause_comes_before_that_of_the_offsets() -> None:
    """What a stale coordinator cannot cause must not be asked again for 15 s."""
    inputs = {"in": InputFacts(RECREATED, 0, 1, 1)}

    decision = recover(SPEC, attempt(SPEC, 5), {"in": 4}, inputs)

    assert isinstance(decision, Refuse)
    assert not decision.stale


def test_inputs_declared_in_another_order_are_read_in_that_order() -> None:
    """O2: under an attempt the order may change; messages are paired by place, so the positions must follow."""
    turned = make_spec(TWO[::-1], pairing="join")
    decision = recover(turned, attempt(JOIN, 5, 6), {}, facts(turned))

    assert isinstance(decision, Delivered)
    assert decision.record.positions == at(6, 5, spec=turned)
    assert [p.topic_id for p in decision.record.positions] == [B, A]


def test_an_announced_batch_is_delivered_again_after_its_inputs_were_reordered() -> None:
    """O7: fingerprint, ends and choice go by the names of the bindings, not by their order."""
    turned = make_spec(TWO[::-1], pairing="alts")
    announced = snapshot(ALTS, (5, 6), (7, 8), 4, choice=(("left", 2), ("right", 2)))
    decision = recover(turned, announced, {"left": 5, "right": 6}, facts(turned))

    assert isinstance(decision, Pending)
    assert decision.record.positions == at(6, 5, spec=turned)
    assert decision.record.ends == at(8, 7, spec=turned)
    assert decision.record.choice == announced.choice


@pytest.mark.parametrize(
    ("begin", "partition", "born", "want"),
    [
        ("earliest", 1, None, 3),
        ("earliest", 1, 4, 3),
        ("latest", 1, None, 40),
        ("latest", 1, 4, 40),
        ("latest", 3, 4, 40),
        ("latest", 4, 4, 3),
        ("latest", 1, 1, 3),
    ],
)
def test_a_fresh_task_starts_where_its_processor_began(begin: str, partition: int, born: int | None, want: int) -> None:
    """
    `latest` is the last stable offset at the processor's first start; a partition that was added later begins at its
    start, because all of it came after that moment.
    """
    spec = make_spec(start=begin, partition=partition)

    assert [p.offset for p in first_positions(spec, facts(spec, low=3, stable=40, high=50), born)] == [want]


def test_a_fresh_join_starts_each_input_by_itself() -> None:
    """Positions of all inputs, with their topics' ids."""
    inputs = {"left": InputFacts(A, 2, 9, 9), "right": InputFacts(B, 4, 8, 9)}

    assert first_positions(JOIN, inputs, None) == at(2, 4, spec=JOIN)
    assert first_positions(replace(JOIN, start="latest"), inputs, None) == at(9, 8, spec=JOIN)
