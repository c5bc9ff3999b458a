"""Records of tasks with numbers and names that no task writes: refused where they are read, and each has a way out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import Graph, Json, Processor, Source, State, Store, TaskStopped, Topic
from cues_kafka.core.records import KEY, Attempt, Snapshot, Staged, Totals, Writer
from cues_kafka.errors import CodecError
from cues_kafka.operate.deleting import Deleting
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Position
from cues_kafka.records.bytes import decode_record, encode_record
from cues_kafka.testing.tester import Tester
from cues_kafka.verify.scan import verify

PLACE = Position("input", "in", b"i" * 16, 5)
MOST = (1 << 63) - 1
GOOD: dict[str, Any] = {
    "sequence": 3,
    "step": 2,
    "positions": (PLACE,),
    "totals": Totals(replays=1),
    "batch": Totals(),
    "born": 1,
    "writer": Writer("g.p.0", "native", "w", "i"),
}
ODD: dict[str, dict[str, Any]] = {
    **{name: {name: -1} for name in ("sequence", "step", "starts", "careful_timers", "owner", "epoch")},
    "journal_from": {"journal_from": -2},
    "born": {"born": 0},
    "offset": {"positions": (PLACE._replace(offset=-1),)},
    "topic": {"positions": (PLACE._replace(topic="\x1b[2J"),)},
    "id": {"positions": (PLACE._replace(topic_id=b"short"),)},
    "tails": {"tails": (PLACE._replace(offset=-MOST),)},
    "replays": {"replays": (PLACE._replace(topic=""),)},
    "careful_until": {"careful_until": (PLACE._replace(topic_id=b"i" * 17),)},
    "choice of no input": {"choice": (("no", 1),)},
    "choice of nothing": {"choice": (("input", 0),)},
}


def test_record_of_a_task_fits() -> None:
    """With all that may be at its bounds."""
    fits = Attempt(**GOOD | {"choice": (("input", MOST),), "step": MOST, "positions": (PLACE._replace(offset=MOST),)})

    assert decode_record(encode_record(fits)) == fits


@pytest.mark.parametrize("name", ODD)
def test_record_that_no_task_writes_is_refused(name: str) -> None:
    """Of each kind of number and name."""
    with pytest.raises(CodecError, match="not a backing record: "):
        decode_record(encode_record(Attempt(**GOOD | ODD[name])))


@pytest.mark.parametrize("odd", [{"ends": (Position("no", "in", b"i" * 16, 9),)}, {"steps": -1}])
def test_snapshot_that_no_task_writes_is_refused(odd: dict[str, Any]) -> None:
    """Of its own fields."""
    with pytest.raises(CodecError, match="not a backing record: "):
        decode_record(encode_record(Snapshot(**GOOD | {"ends": (PLACE,), "steps": 1} | odd)))


@pytest.mark.parametrize(
    "odd", [{"parts": 0}, {"parts": 2**31 - 1}, {"part": 5}, {"part": -1}, {"batch": -9}, {"number": -2}]
)
def test_staged_record_that_no_task_writes_is_refused(odd: dict[str, Any]) -> None:
    """A number of parts is a number of reads."""
    good: dict[str, Any] = {"query": "q", "batch": 1, "attempt": "a", "checksum": b"c" * 16, "parts": 2, "part": 1}
    record = GOOD | {"positions": (), "totals": Totals(), "step": 0}
    decode_record(encode_record(Attempt(**record, staged=Staged(**good))))
    with pytest.raises(CodecError, match="not a backing record: it is"):
        decode_record(encode_record(Attempt(**record, staged=Staged(**good | odd))))


@pytest.mark.parametrize("kind", [b"\x01", b"\x05", b"\x06", b"\xff\xff\xff\xff\x0f"])
def test_kind_is_none_from_the_end(kind: bytes) -> None:
    """The reader of Avro takes index -1 for the last kind."""
    data = encode_record(Attempt(**GOOD))

    with pytest.raises(CodecError, match="is damaged"):
        decode_record(data[:10] + kind + data[11:])


def test_bytes_behind_a_record_are_refused() -> None:
    """Nothing is hidden there."""
    with pytest.raises(CodecError, match="1 bytes are left after it"):
        decode_record(encode_record(Attempt(**GOOD)) + b"\0")


def delivered() -> tuple[Tester, Attempt]:
    """A task with a store that has delivered, and its newest record."""

    def count(_: Any, seen: State[int]) -> int:
        seen["all"] = seen.get("all", 0) + 1
        return seen["all"]

    part = Processor(count, inputs="in", outputs="out", name="p", state={"seen": Store(Json(int))})
    tester = Tester(Graph("g", Source("in"), part, errors="g.errors", defaults=Topic(value=Json(), partitions=1)))
    tester.send_many("in", [1, 2, 3])
    tester.run()
    newest = [one for one in tester.client.committed("g.p.backing") if one.key() == KEY][-1]
    found = decode_record(newest.value() or b"")
    assert isinstance(found, Attempt)
    tester.stop()
    return tester, replace(found, sequence=found.sequence + 1, totals=found.totals._replace(replays=1))


def forge(tester: Tester, record: Attempt) -> None:
    """Write it as the task's newest record."""
    tester.broker.sender("stranger").send([("g.p.backing", 0, KEY, encode_record(record), None, 0)])


@pytest.mark.parametrize("name", ODD)
def test_task_stops_with_the_command_that_undoes_a_forged_record(name: str) -> None:
    """Whatever it says; `verify` answers beside it."""
    tester, newest = delivered()
    forge(tester, replace(newest, **ODD[name]))
    verify(tester.graph, tester.broker, patience_s=1.0, state=True)

    with pytest.raises(TaskStopped, match="cues-kafka delete MODULE:GRAPH p"):
        tester.restart().run()


def test_command_undoes_a_forged_record() -> None:
    """The processor begins at its start."""
    tester, newest = delivered()
    forge(tester, replace(newest, **ODD["choice of no input"]))

    deleting = Deleting(tester.graph, tester.broker)
    deleting.carry_out(deleting.processor("p"))
    tester.broker.create([NewTopic(name, 1) for name in ("g.p.backing", "g.p.replay", "g.p.seen.changelog")])

    assert tester.restart().run().values("out") == [1, 2, 3, 1, 2, 3]


def test_verify_names_inputs_that_a_processor_does_not_read() -> None:
    """A record that fits may still be forged."""
    tester, newest = delivered()
    forge(tester, replace(newest, positions=(newest.positions[0]._replace(binding="no"),)))

    assert "which the processor does not read" in str(
        verify(tester.graph, tester.broker, patience_s=1.0, state=True).to_dict()
    )
