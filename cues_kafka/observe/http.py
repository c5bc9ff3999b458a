"""A small HTTP server for the health and the metrics of a process, on a port of this machine or a socket file."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from cues_kafka.errors import ConfigError
from cues_kafka.observe.limited import MOST, LimitedServer, cut_later
from cues_kafka.observe.log import get_logger
from cues_kafka.observe.metrics import Sample, check_installed, exposition, to_json

log = get_logger("cues_kafka.http")

LOOPBACK: Final = "127.0.0.1"
"""Where `--http 9100` listens: what the pages show is for this machine, unless an address is given."""

FILE: Final = "unix:"
"""What the address of a socket file begins with."""

REQUEST_S: Final = 10.0
"""How long a client may take to send its request."""

TEXT: Final = "text/plain; charset=utf-8"
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Health:
    """
    How a process is.

    Attributes:
        ill: why the process should be restarted, in sentences; none: it lives, and its threads move.
        unready: why the process does not do its work now, in sentences; none: it does.
        rows: its numbers.
    """

    ill: tuple[str, ...] = ()
    unready: tuple[str, ...] = ()
    rows: tuple[Sample, ...] = field(default=(), repr=False)


Look: TypeAlias = Callable[[], Health]


class Endpoint(Protocol):
    """What `listen` gives."""

    def begin(self, look: Look) -> None:
        """Answer with this from now on."""
        ...

    def close(self) -> None:
        """Listen no more."""
        ...


def listen(address: str) -> Endpoint:
    """
    Listen. Until `begin` the answer is that the process starts.

    Args:
        address: `HOST:PORT`, `PORT` for this machine only, or `unix:PATH`.

    Raises:
        ConfigError: it is no address, or it is taken; or a library is missing.
    """
    if address.startswith(FILE):
        return _Server(address, socket.AF_UNIX, address.removeprefix(FILE))
    check_installed()
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"--http {address!r}: write HOST:PORT, such as 127.0.0.1:9100, or PORT for this machine only")
    host = host.strip("[]") or LOOPBACK
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return _Server(address, family, (host, int(port)))


class _Server(LimitedServer):
    def __init__(self, address: str, family: socket.AddressFamily, place: Any) -> None:
        self.look: Look = _starting
        self.pages = {"/healthz": _healthz, "/readyz": _readyz, "/metrics": _metrics}
        if family == socket.AF_UNIX:
            self.pages["/told"] = _told
            _remove_socket(address, Path(place))
        try:
            super().__init__(place, _Handler, family=family, name="cues_kafka.http", most=MOST)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"--http {address}: cannot listen there: {error}. Is another process listening? Choose another port, "
                "or end that process"
            ) from None
        self.serve("http")

    def begin(self, look: Look) -> None:
        self.look = look

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """A client that sends byte by byte has no more time than one that sends nothing."""
        end = cut_later(request, REQUEST_S)
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()


def _remove_socket(address: str, place: Path) -> None:
    """Remove the socket file of the process before, and nothing else that may be there."""
    if place.is_socket():
        place.unlink(missing_ok=True)
    elif place.exists():
        raise ConfigError(f"--http {address}: there is another file, and no socket. Choose another path")


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_S
    server: _Server

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            self._send(HTTPStatus.NOT_FOUND, TEXT, b"there are /healthz, /readyz and /metrics\n")
            return
        self._send(*page(self.server.look()))

    do_HEAD = do_GET  # noqa: N815 - the same

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def address_string(self) -> str:
        return str(self.client_address)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        log.debug("request", said=format % args)


def _starting() -> Health:
    return Health(unready=("the process is starting",))


_Answer: TypeAlias = tuple[HTTPStatus, str, bytes]


def _healthz(health: Health) -> _Answer:
    return _sentences(health.ill)


def _readyz(health: Health) -> _Answer:
    return _sentences((*health.ill, *health.unready))


def _sentences(why: tuple[str, ...]) -> _Answer:
    status = HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK
    return status, TEXT, "".join(f"{line}\n" for line in why or ("ok",)).encode()


def _metrics(health: Health) -> _Answer:
    return HTTPStatus.OK, PROMETHEUS, exposition(health.rows)


def _told(health: Health) -> _Answer:
    """What a supervisor asks its workers for."""
    found = {"ill": health.ill, "unready": health.unready, "rows": [to_json(row) for row in health.rows]}
    return HTTPStatus.OK, "application/json", json.dumps(found).encode()
