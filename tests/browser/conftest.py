"""One browser for all tests of a run, or of a tester."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.devtools import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium; each page in it has cookies of its own."""
    # Not below pytest's own directory: the path of Chromium's socket must fit into 107 characters.
    with tempfile.TemporaryDirectory(prefix="web-", ignore_cleanup_errors=True) as profile:
        found = Browser(Path(profile))
        try:
            yield found
        finally:
            found.close()
