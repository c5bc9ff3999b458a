"""Marker queues by STOMP: what `MarkerTransactions` needs of a connection."""

from __future__ import annotations

import secrets
from typing import Final

from cues_kafka.bridges.marker import PROBE, MarkerMessage
from cues_kafka.bridges.stomp.client import LATE, StompLogin
from cues_kafka.bridges.stomp.frames import Frame, head_of
from cues_kafka.bridges.stomp.messages import JmsMessage
from cues_kafka.bridges.stomp.session import GUARD, StompSession

OVER: Final = "cues-over"
"""The header of a marker that names the one which it replaces, see `MarkerMessage`."""


class StompMarkers:
    """See `MarkerSession`."""

    def __init__(self, login: StompLogin) -> None:
        """Connect; see `StompSession`."""
        self._session = StompSession(login)
        # Artemis keeps a session for each name until the connection ends, so there are two names at most.
        self._transaction, self._next = secrets.token_hex(8), secrets.token_hex(8)
        self._begun = False  # ahead, see `move`
        self._awaits_guard = False
        self._moving: tuple[str, MarkerMessage | None] | None = None  # the receipt, and the marker that is replaced
        self._heads: dict[tuple[str, str], bytes] = {}  # the same lines of each message to one destination
        self.timeout_s = login.timeout_s
        self.silence_s = LATE * login.heart_beat_s

    def guard(self, queue: str) -> None:
        self._awaits_guard = self._session.guard(queue)

    def consume(self, queue: str) -> None:
        self._session.subscribe(queue)

    def message(self, timeout_s: float) -> MarkerMessage | None:
        """See `MarkerSession`. The first guard that comes is never taken; further ones are probes."""
        found = self._session.message(timeout_s)
        if self._awaits_guard and found is not None and found.headers.get(PROBE) == GUARD:
            self._awaits_guard = False
            found = self._session.message(timeout_s)
        if found is None:
            return None
        # A broker that pages gives messages in the order in which they came, so the marker may be before the guard.
        again = self._awaits_guard or found.headers.get("redelivered") == "true"
        return MarkerMessage(found.body, found.headers.get(PROBE), again, found, found.headers.get(OVER, ""))

    def drop(self, message: MarkerMessage) -> None:
        self._session.acknowledge(message.token)

    def probe(self, queue: str) -> str:
        return self._session.probe(queue)

    def begin(self) -> None:
        self._heads.clear()
        if not self._begun:
            self._session.send_later(Frame("BEGIN", {"transaction": self._transaction}).encode())
        self._begun = False

    def write(self, item: JmsMessage) -> None:
        head = self._heads.get((item.kind, item.name))
        if head is None:
            own = {"persistent": "true", "transaction": self._transaction}
            head = f"SEND\n{head_of({**own, **self._session.destination(item.kind, item.name)})}".encode()
            self._heads[item.kind, item.name] = head
        if item.headers:
            head += head_of(item.headers).encode()
        body = item.body
        if isinstance(body, str):
            frame = b"%b\n%b\0" % (head, body.encode())
        else:  # without its length a message is a text
            frame = b"%bcontent-length:%d\n\n%b\0" % (head, len(body), body)
        self._session.send_later(frame)

    def abort(self) -> None:
        """See `TakesBack`. It waits for no receipt."""
        self._session.send("ABORT", {"transaction": self._transaction})

    def move(self, queue: str, kept: bytes, held: MarkerMessage | None) -> None:
        last, commit = self._marked(queue, kept, held)
        self._session.send(last.command, last.headers, last.body, receipt=True)
        self._session.send(commit.command, commit.headers, receipt=True)
        self._committed(held)

    def start_move(self, queue: str, kept: bytes, held: MarkerMessage | None) -> None:
        """See `MovesInTurn`. What is sent before the COMMIT is in another transaction, which has another name."""
        self._moving = self._session.send_in_turn(*self._marked(queue, kept, held)), held

    def finish_move(self) -> None:
        if self._moving is not None:
            done, held = self._moving
            self._session.wait_for(done)
            self._moving = None
            self._committed(held)

    def _marked(self, queue: str, kept: bytes, held: MarkerMessage | None) -> tuple[Frame, Frame]:
        """
        Send the marker, or all that comes before the last frame.

        Returns:
            The last frame, and the COMMIT, which may be sent when the receipt of the last frame is there. All frames
            before it are done then: a refusal is known before the commit.
        """
        session, own = self._session, {"transaction": self._transaction}
        at_once = session.takes_at_once
        over = {OVER: held.name} if held is not None and at_once else {}
        last = Frame("SEND", {"persistent": "true", **own, **over, **session.destination("queue", queue)}, kept)
        if not at_once:
            session.send_later(last.encode())
            if held is not None:
                session.acknowledge(held.token, **own)
            # Classic waits for its disk before the receipt of a message, and not before that of a BEGIN. Artemis is the
            # other way round: it waits for no disk there, and an ERROR of one transaction may come behind a receipt of
            # another one.
            last = Frame("BEGIN", {"transaction": self._next})
        self._transaction, self._next, self._begun = self._next, self._transaction, not at_once
        return last, Frame("COMMIT", own)

    def _committed(self, held: MarkerMessage | None) -> None:
        if held is not None and self._session.takes_at_once:
            self._session.acknowledge(held.token)

    def close(self) -> None:
        self._session.close()
