"""The session of Cues' README, as docs/cues.md shows it: its blocks, one after the other, on both brokers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.scenarios.world import Stage

PAGE = Path(__file__).parents[2] / "docs" / "cues.md"


def test_the_session_runs_as_the_page_shows_it(stage: Stage) -> None:
    """Line by line; every name on the cluster begins with `example`, and gets the prefix of this scenario instead."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    names: dict[str, Any] = {"__name__": "session", "CLUSTER": stage.cluster}
    for number, block in enumerate(blocks):
        text = block.replace('"example', f'"{stage.prefix}').replace("= Memory()", "= CLUSTER")
        exec(compile(text, f"{PAGE.name}, block {number}", "exec"), names)
    assert names["cluster"] is stage.cluster
