"""Looks at a graph again and again: once for all pages that are open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Final

from cues_kafka.errors import BrokerError
from cues_kafka.observe.log import get_logger
from cues_kafka.operate.look.seen import GraphStatus
from cues_kafka.ui.history import LastHour
from cues_kafka.ui.layout import Picture
from cues_kafka.ui.views import Overview, after_loss, overview, to_json

log = get_logger("cues_kafka.ui")

EVERY_S: Final = 2.0
"""How often it looks, as `status --watch` does."""


class Poller:
    """
    Keeps the newest overview, and the hour before.

    Args:
        picture: of the graph.
        look: gives a status; the same as that of the command.
        text: see `views.overview`.
        every_s: seconds from look to look.
        left: gives the processes that have told that they leave.

    Attributes:
        history: the last hour.
    """

    def __init__(
        self,
        picture: Picture,
        look: Callable[[], GraphStatus],
        text: Callable[[str], str],
        *,
        every_s: float = EVERY_S,
        left: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self.history = LastHour()
        self._picture, self._look, self._text, self._every_s, self._left = picture, look, text, every_s, left
        self._last: Overview | None = None
        self._answer = (0, to_json(after_loss(None, picture.graph, 0.0, "not looked yet")))
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ui", daemon=True)

    def start(self) -> None:
        """Look from now on."""
        self._thread.start()

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop looking. A look under way is not waited for longer than this."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def newest(self) -> tuple[int, bytes]:
        """The number of the newest overview, and the overview as JSON, which is made once for all pages."""
        return self._answer

    def once(self) -> None:
        """Look once. What the cluster refuses is shown on the page, and asked again the next time."""
        try:
            seen = self._look()
        except BrokerError as error:
            self._show(after_loss(self._last, self._picture.graph, 0.0, str(error)))
            return
        if seen.unreachable:
            self._show(after_loss(self._last, seen.graph, seen.at_s, seen.unreachable))
            return
        self.history.take(seen, self._left())
        self._last = overview(seen, self._picture.arrows, self._text)
        self._show(self._last)

    def _show(self, found: Overview) -> None:
        # One assignment: requests read the pair on other threads.
        self._answer = (self._answer[0] + 1, to_json(found))

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self.once()
            except Exception as error:  # noqa: BLE001 - a defect; the page says so and the next look may succeed
                log.error("not looked", error=f"{type(error).__name__}: {error}")
                self._show(after_loss(self._last, self._picture.graph, 0.0, f"{type(error).__name__}: {error}"))
            self._ending.wait(self._every_s)
