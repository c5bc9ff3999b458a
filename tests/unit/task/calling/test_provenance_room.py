"""P4: a record that is not refused fits its topic, however long its provenance header is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka.core.delivery import HEADER, provenance_prefix
from cues_kafka.errors import OutputError
from cues_kafka.task.calling.outputs import OVERHEAD_BYTES, Now, Origin, Target, record, size_of

BATCH_BYTES = 61 + 5 * 5
"""The header of a record batch, and the lengths and deltas of its one record, at most."""


class Lead:
    """A message without headers."""

    def timestamp(self) -> tuple[int, int]:
        """Any."""
        return 1, 0

    def headers(self) -> None:
        """None."""


@given(
    bindings=st.lists(st.text("abcdefgh_", min_size=1, max_size=60), min_size=1, max_size=40, unique=True),
    offset=st.integers(0, 2**63 - 1),
    key=st.one_of(st.none(), st.binary(max_size=50)),
    spare=st.integers(OVERHEAD_BYTES + 50, 6_000),
)
def test_a_record_that_is_not_refused_fits_whatever_the_number_of_its_inputs(
    bindings: list[str], offset: int, key: bytes | None, spare: int
) -> None:
    """Bytes on the wire. What is larger without its headers is refused before, where the function's result is read."""
    target = Target("out", 1, 65_536, binding="out", encode=bytes, key_of=None)
    prefix = provenance_prefix("graph.processor/0", 2**40, [(name, b"\xff" * 16) for name in bindings])
    header = prefix + b"0/1 " + b",".join([b"%d" % offset] * len(bindings))
    value = b"v" * (65_536 - spare)

    try:
        made = record((target, key, value, [], None, None), Origin((Lead(),)), 0, header, Now(lambda: 0.0))  # type: ignore[arg-type]
    except OutputError:
        return
    assert made[4] == [(HEADER, header)]
    assert len(key or b"") + len(value) + size_of(made[4]) + BATCH_BYTES <= 65_536


def test_a_long_provenance_header_counts() -> None:
    """Of forty inputs, 2 kB."""
    target = Target("out", 1, 65_536, binding="out", encode=bytes, key_of=None)
    with pytest.raises(OutputError, match="65536"):
        record((target, None, b"v" * 65_000, [], None, None), Origin((Lead(),)), 0, b"p" * 2_000, Now(lambda: 0.0))  # type: ignore[arg-type]
