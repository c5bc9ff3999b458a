"""A server in memory, with transactions. It has a file of its own: the contract suite kills clients, and no server."""

from __future__ import annotations

import threading
from collections.abc import Sequence


class Shelves:
    """What it keeps for tasks, and the numbers that it stores."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.kept: dict[str, bytes] = {}
        self.stored: list[int] = []
        self.first: dict[str, bytes | None] = {}  # for a client that caches

    def swap(self, key: str, kept: bytes, over: bytes | None, numbers: Sequence[int] = ()) -> bool:
        """Keep these bytes and store the numbers, if it keeps `over`; whether it did."""
        with self._lock:
            if self.kept.get(key) != over:
                return False
            self.kept[key] = kept
            self.stored += numbers
            return True

    def store(self, numbers: Sequence[int]) -> None:
        """Store numbers alone."""
        with self._lock:
            self.stored += numbers
