"""What the view costs with many tasks, on the side of the server and of the browser."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.browser.devtools import Browser
from tests.browser.shown import ready, view

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
UPDATES = 20
MOST = 0.25
"""Of a core, on each side. It takes a fraction of it (docs/ui.md), on a machine that does nothing else."""


@pytest.mark.parametrize("name", ["picture", "tasks"])
def test_500_tasks_that_change_each_second_leave_the_processor_free(
    browser: Browser, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the server and of the process that draws the page: processor seconds by second."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.browser.load_side"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as side:  # fmt: skip
        assert side.stdin is not None
        assert side.stdout is not None
        with browser.page() as page:
            page.open(side.stdout.readline().strip())
            ready(page)
            view(page, name)
            if name == "tasks":
                page.until("document.querySelectorAll('#rows tr').length === 500")

            def looked() -> tuple[float, int]:
                assert side.stdin is not None
                assert side.stdout is not None
                side.stdin.write("\n")
                side.stdin.flush()
                seconds, looks = side.stdout.readline().split()
                return float(seconds), int(looks)

            (server, first), drawn, began = looked(), browser.seconds("renderer"), time.monotonic()
            lag = "document.querySelector('#whole').textContent"
            shown = {page.run(lag)}
            while (now := looked())[1] < first + UPDATES:
                before = page.run(lag)
                shown.add(page.until(f"({lag} !== {before!r}) && {lag}"))
            passed = time.monotonic() - began
            parts = (now[0] - server) / passed, (browser.seconds("renderer") - drawn) / passed
            assert page.told == []
        side.stdin.close()

    with capsys.disabled():
        print(f"\n500 tasks, {name}: {parts[0]:.1%} of a core on the server, {parts[1]:.1%} in Chromium")
    assert len(shown) > UPDATES / 4
    assert max(parts) < MOST
