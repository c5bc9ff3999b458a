"""Reads tables of Delta Lake as programs do that do not know cues-kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import deltalake


def values(url: str, column: str, options: Mapping[str, str] | None = None) -> list[Any]:
    """The values of a column in the newest version, in any order."""
    table = deltalake.DeltaTable(url, storage_options=dict(options or {}))
    found: list[Any] = table.to_pyarrow_table(columns=[column])[column].to_pylist()
    return found
