"""An HTTP server that its clients cannot fill: a bounded number is answered at once, each on a thread of its own."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from cues_kafka.observe.log import get_logger

END_S: Final = 0.2
"""How soon a server notices that it is closed."""

MOST: Final = 32
"""Clients that are answered at once. A further one is turned away, and comes again: these pages are asked for often."""


ROOM_S: Final = 1.0
"""How long a client that is cut off may take to leave its place."""


class LimitedServer(ThreadingHTTPServer):
    """
    Turns clients away beyond a bound, and tells none of them of a defect.

    If `hears` is set, it cuts off the client that has been silent for longest before it turns another one away. So
    clients that connect and send nothing do not keep the others out.

    Args:
        place: an address of this family.
        handler: answers one request.
        family: of the address.
        name: of the logger.
        most: clients that are answered at once.

    Attributes:
        hears: whether its handler calls `heard` as soon as a request is here.

    Raises:
        OSError, OverflowError: it cannot listen there.
    """

    hears = False
    daemon_threads = True
    request_queue_size = 16

    def __init__(
        self,
        place: Any,
        handler: type[BaseHTTPRequestHandler],
        *,
        family: socket.AddressFamily,
        name: str,
        most: int = MOST,
    ) -> None:
        self.address_family = family
        self._log = get_logger(name)
        self._places = threading.BoundedSemaphore(most)
        self._silent: dict[socket.socket, None] = {}  # in the order in which they came
        self._lock = threading.Lock()
        super().__init__(place, handler)

    def serve(self, name: str) -> None:
        """Answer on a thread of this name from now on."""
        threading.Thread(target=self.serve_forever, args=(END_S,), name=name, daemon=True).start()

    def close(self) -> None:
        """Stop listening, and answer no more."""
        self.shutdown()
        self.server_close()

    def server_bind(self) -> None:
        # Not that of HTTPServer, which asks DNS for the name of this machine.
        if self.address_family != socket.AF_UNIX:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread of its own, if there is a place."""
        if self._places.acquire(blocking=False) or self._room():
            if self.hears:
                with self._lock:
                    self._silent[request] = None
            super().process_request(request, client_address)
        else:
            self._log.debug("request not answered", client=str(client_address), why="too many clients")
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Give the place back afterwards."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.heard(request)
            self._places.release()

    def heard(self, request: socket.socket) -> None:
        """The request of a client is here, so the client keeps its place until it is answered."""
        with self._lock:
            self._silent.pop(request, None)

    def _room(self) -> bool:
        """Cut off the client that has been silent for longest, and take its place; no: all have sent a request."""
        with self._lock:
            oldest = next(iter(self._silent), None)
            if oldest is None:
                return False
            del self._silent[oldest]
        with suppress(OSError):  # it has ended
            oldest.shutdown(socket.SHUT_RDWR)
        return self._places.acquire(timeout=ROOM_S)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is its own affair; anything else is a defect, of which the client learns nothing."""
        error = sys.exception()
        if isinstance(error, OSError):
            self._log.debug("request not answered", client=str(client_address))
        else:
            self._log.error(
                "request not answered", client=str(client_address), error=f"{type(error).__name__}: {error}"
            )


def cut_later(request: socket.socket, after_s: float) -> threading.Timer:
    """End a connection for the thread that reads from it, unless the timer is cancelled before."""

    def cut() -> None:
        with suppress(OSError):  # it has ended
            request.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(after_s, cut)
    timer.daemon = True
    timer.start()
    return timer
