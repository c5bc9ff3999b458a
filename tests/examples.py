"""How many examples a test of a property tries: a third of them in an ordinary run, all in the longer ones."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

FEWEST = 10

_share = 3


def all_of_them() -> None:
    """From now on, tests that are collected try all their examples."""
    global _share  # noqa: PLW0603 - of this run
    _share = 1


def examples(count: int, **more: Any) -> settings:
    """This number of examples in `make test-full`, and a third in `make test`."""
    return settings(max_examples=max(min(count, FEWEST), count // _share), deadline=None, **more)
