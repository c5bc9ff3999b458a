"""The records of the outbox, packed and read again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka import CodecError
from cues_kafka.sinks.packing import MOST_BYTES, packed, unpacked

DATA = st.none() | st.binary(max_size=20)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=5), DATA), max_size=3)
RECORDS = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.integers(0, 9), DATA, DATA, HEADERS, st.integers(0, 2**62))
)


@given(RECORDS)
def test_records_come_back_as_they_were(records: list[tuple[Any, ...]]) -> None:
    assert [one for data in packed(records) for one in unpacked(data)] == records


def test_large_records_are_spread_over_rows() -> None:
    records = [("t", None, None, bytes(MOST_BYTES // 3), None, i) for i in range(7)]

    rows = list(packed(records))

    assert [len(unpacked(data)) for data in rows] == [3, 3, 1]
    assert all(len(data) < 2 * MOST_BYTES for data in rows)


@pytest.mark.parametrize("data", [b"", b"\x90\x90", b"{}"])
def test_something_else_is_refused(data: bytes) -> None:
    with pytest.raises(CodecError, match="something that is not a record"):
        unpacked(data)
