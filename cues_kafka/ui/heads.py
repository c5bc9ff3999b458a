"""Bounds what a client may send before the server knows who it is: the headers of a request as a whole."""

from __future__ import annotations

import io
from http.client import LineTooLong
from typing import Final

HEAD: Final = 65_536
"""Bytes of all headers. The standard library bounds each line by so much, and their number by 100."""


class HeadReader(io.BufferedIOBase):
    """
    Reads lines from a client, `HEAD` bytes at most.

    Args:
        source: what the client sends.
    """

    def __init__(self, source: io.BufferedIOBase) -> None:
        super().__init__()
        self._source, self._left = source, HEAD

    def readline(self, size: int | None = -1, /) -> bytes:
        """
        The next line.

        Raises:
            LineTooLong: it is one line too many, which the server answers with status 431.
        """
        most = self._left + 1
        line = self._source.readline(most if size is None or size < 0 else min(size, most))
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("headers")
        return line
