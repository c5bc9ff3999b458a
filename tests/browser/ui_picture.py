"""
Draws docs/ui.png: the view of a graph as Chromium shows it, as a whole.

::

    make demo-native UI=1  # prints the address of its view
    python -m tests.browser.ui_picture ADDRESS
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.browser.devtools import Browser
from tests.browser.shown import ready

FILE: Final = Path(__file__).parents[2] / "docs" / "ui.png"
WIDTH: Final = 1280


def main() -> int:
    """Draw it as soon as rates and lags are known; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.ui_picture")
    parser.add_argument("address", help="what `cues-kafka ui` or the demo has printed")
    parser.add_argument("--out", type=Path, default=FILE, help="file to write")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="web-", ignore_cleanup_errors=True) as profile:
        browser = Browser(Path(profile))
        try:
            with browser.page(WIDTH) as page:
                page.open(given.address)
                ready(page)
                page.until("[...document.querySelectorAll('#canvas svg > text')].length > 8")  # rates and lags
                page.size(WIDTH, int(page.run("Math.ceil(document.body.getBoundingClientRect().bottom)")))
                wider = "document.querySelector('#canvas').scrollWidth - document.querySelector('#canvas').clientWidth"
                if page.run(wider) > 0:
                    print("The picture of this graph does not fit into its frame.", file=sys.stderr)
                    return 1
                page.picture(given.out)
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
