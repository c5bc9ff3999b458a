"""The answer of a server, as a function gets it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cues_kafka.errors import CallError, CallRefused


@dataclass(frozen=True, slots=True)
class Response:
    """
    The answer of a server.

    It is the same whether the server has just given it or the journal had it.

    Attributes:
        status: the status code.
        headers: those that are kept, by lower-case name.
        content: the body.
        kept: whether an earlier attempt at the step had got it, and nothing was called now.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes = field(repr=False)
    kept: bool = False
    _what: str = field(default="", repr=False, compare=False)
    _refuse: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.status < 400

    @property
    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 become U+FFFD."""
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        """
        The body, read as JSON.

        Raises:
            CallError: it is no JSON.
        """
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError) as error:  # a few bytes may be nested too deeply to be read
            raise CallError(f"{self._what}: the answer is not JSON: {error}: {self.text[:80]!r}") from None

    def raise_for_status(self) -> Response:
        """
        Return this answer, unless its status is 400 or above.

        A refused answer stays in the journal, but counts no more in this process: where `retry=` names `CallRefused`,
        the next attempt at the step calls again.

        Raises:
            CallRefused: the status is 400 or above.
        """
        if self.ok:
            return self
        self._refuse()
        raise CallRefused(f"{self._what}: the server answered {self.status}: {self.text[:200]!r}", response=self)
