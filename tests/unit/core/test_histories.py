"""Backing topics as earlier releases wrote them, byte by byte: they always recover to the same decision."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from cues_kafka.core.events import InputFacts
from cues_kafka.core.records import KEY, Record, Writer
from cues_kafka.core.recover import Delivered, Fresh, Pending, Refuse, recover
from cues_kafka.core.spec import Input, Spec
from cues_kafka.ports.log import Positions
from cues_kafka.records.bytes import decode_record, encode_record

HISTORIES = sorted((Path(__file__).parents[2] / "histories").glob("v*/*.json"))
FIRST = 14
"""The number that is recorded. None of them is ever changed or removed."""
TOTALS = 8
"""The fields of `Totals` that the histories have; what is counted since then stands behind them."""


def decide(history: dict[str, Any], record: Record | None) -> dict[str, Any]:
    """What recovery decides now, as plain data."""
    given = history["spec"]
    name = f"{given['graph']}.{given['processor']}"
    spec = Spec(
        **given | {"inputs": tuple(Input(*pair) for pair in given["inputs"])},
        transactional_id=f"{name}.{given['partition']}",
        group=name,
        backing=f"{name}.backing",
        writer=Writer(f"{name}.{given['partition']}", "native", "now", "this-run"),
    )
    inputs = {b: InputFacts(bytes.fromhex(topic_id), *marks) for b, (topic_id, *marks) in history["inputs"].items()}
    match recover(spec, record, history["offsets"], inputs):
        case Fresh():
            return {"decision": "fresh"}
        case Delivered(found):
            return {"decision": "delivered", "at": _plain(found.positions), **_carried(found)}
        case Pending(snapshot, starts):
            ranges = {"from": _plain(snapshot.positions), "to": _plain(snapshot.ends), "steps": snapshot.steps}
            return {"decision": "retry", **ranges, "starts": starts, **_carried(snapshot)}
        case Refuse(halt, stale):
            return {"decision": "refuse", "kind": halt.kind, "stale": stale}


def _plain(positions: Positions) -> list[list[Any]]:
    return [[p.binding, p.topic, p.topic_id.hex(), p.offset] for p in positions]


def _carried(record: Record) -> dict[str, Any]:
    """What the next records build upon."""
    return {
        "sequence": record.sequence,
        "step": record.step,
        "totals": list(record.totals)[:TOTALS],
        "careful_until": _plain(record.careful_until),
        "choice": [list(run) for run in record.choice],
        "born": record.born,
    }


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recorded_backing_topic_recovers_as_it_did(path: Path) -> None:
    """The newest record decides; all older ones can be read too, and say what they said."""
    history = json.loads(path.read_text())
    records = [decode_record(b64decode(one["value"])) for one in history["records"]]

    assert decide(history, records[-1]) == history["decision"]
    assert [r.sequence for r in records] == list(range(len(records)))
    for record, one in zip(records, history["records"], strict=True):
        assert one["key"].encode() == KEY
        assert one["headers"] == {"cues-kind": type(record).__name__.lower()}


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_records_of_this_version_are_written_as_they_were(path: Path) -> None:
    """Old readers may stand beside new writers: a change of the bytes needs a new version of the schema."""
    for one in json.loads(path.read_text())["records"] if path.parent.name == "v1" else ():
        data = b64decode(one["value"])

        assert encode_record(decode_record(data)) == data


def test_no_history_was_removed() -> None:
    """They are the memory of what runs out there."""
    assert len([path for path in HISTORIES if path.parent.name == "v1"]) >= FIRST


def test_fields_of_the_newest_schemas_are_read_as_they_were_written() -> None:
    """A task with stores, and one that has delivered requests of its replay topic: a rolling upgrade reads both."""
    stored, replayed = (
        decode_record(b64decode(json.loads(path.read_text())["records"][-1]["value"]))
        for name in ("stores", "replays")
        for path in HISTORIES
        if path.stem == name
    )

    assert (stored.stores, stored.careful_timers, stored.totals.timers) == ((("seen", 3),), 1, 2)
    assert [(one.topic, one.offset) for one in replayed.replays] == [("old.replay", 5)]
    assert [(one.topic, one.offset) for one in (*replayed.tails, *replayed.tail_ends)] == [("gamma", 7), ("gamma", 9)]
    assert replayed.totals.replays == 2
