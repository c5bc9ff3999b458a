"""The Avro schemas of the project's own records: in the wheel inside the package, in a checkout beside it."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any


def load_schema(name: str) -> Any:
    """The parsed JSON of `schemas/<name>.avsc`."""
    packaged = files("cues_kafka") / "schemas" / f"{name}.avsc"
    source = packaged if packaged.is_file() else Path(__file__).parents[2] / "schemas" / f"{name}.avsc"
    return json.loads(source.read_text(encoding="utf-8"))
