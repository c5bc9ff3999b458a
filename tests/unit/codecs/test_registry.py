"""What else may answer at the registry's address: an outage, and never the message's fault."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cues_kafka import CodecError, Registry, RetriableError
from cues_kafka.codecs.registered import Own
from cues_kafka.codecs.registry import RegistrySchemas

NOT_FOUND = b'{"error_code": 40403, "message": "Schema 5 not found"}'

LOOP = b"""{"schema": "\\"string\\"", "schemaType": "AVRO", "id": 1, "version": 1, "subject": "s",
    "references": [{"name": "a", "subject": "s", "version": 1}]}"""
"""A schema that names itself."""


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that gives one answer to everything."""
    status, body, *headers = request.param

    class Handler(BaseHTTPRequestHandler):
        """Gives it."""

        def do_GET(self) -> None:
            """Give it."""
            self.send_response(status)
            for name, value in headers or [("Content-Length", str(len(body)))]:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            """Read the question, and give it."""
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("answering", "error"),
    [
        ((404, NOT_FOUND), CodecError),
        ((404, b"<html>no such page</html>"), RetriableError),
        ((404, b'{"detail": "no route"}'), RetriableError),
        ((404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'), RetriableError),
        ((200, b"<html>log in</html>"), RetriableError),
        ((200, b"{}"), RetriableError),
        ((200, b"[]"), RetriableError),
        ((200, b"[" * 200_000), RetriableError),
        ((200, b'{"schema": ' + b"9" * 9_000 + b"}"), RetriableError),
        ((200, LOOP), RetriableError),
        ((302, b""), RetriableError),
        ((401, b'{"error_code": 40101, "message": "no"}'), RetriableError),
        ((429, b'{"error_code": 42901, "message": "slowly"}'), RetriableError),
        ((500, b""), RetriableError),
    ],
    indirect=["answering"],
)
def test_only_a_registry_knows_that_a_schema_is_missing(answering: str, error: type[Exception]) -> None:
    """A proxy's page, a login, a redirection: the task waits, and no message becomes an error message."""
    with pytest.raises(error):
        RegistrySchemas(Registry(answering)).by_id(5)


@pytest.mark.parametrize(
    "answering",
    [
        (200, b"{}", (name, value))
        for name, value in (
            *(("Content-Length", one) for one in ("9" * 5_000, "-5", "x", "1e9", "")),
            *(("Content-Encoding", one) for one in ("gzip", "br", "deflate, gzip", "x")),
            *(("Transfer-Encoding", one) for one in ("chunked", "x")),
            *(("Content-Type", one) for one in ("\x1b[2J", "text/html; charset=\xff", "application/json; charset=x")),
            ("X", "a" * 100_000),
        )
    ],
    indirect=True,
)
def test_headers_that_make_no_sense_are_an_outage(answering: str) -> None:
    """Numbers, codings and texts that no registry writes."""
    with pytest.raises(RetriableError):
        RegistrySchemas(Registry(answering, timeout_s=0.3)).by_id(5)


@pytest.mark.parametrize("answering", [(401, b'{"error_code": 40101, "message": "no hunter22 here"}')], indirect=True)
def test_an_answer_that_repeats_the_login_is_told_without_it(answering: str) -> None:
    """In the text, and in the traceback that a span or a program shows."""
    schemas = RegistrySchemas(Registry(answering, auth=("me", "hunter22")))
    with pytest.raises(RetriableError, match=r"no \*\*\* here") as raised:
        schemas.by_id(5)
    assert "hunter22" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("answering", [(200, b'{"schema": "\\"int\\""}'), (200, b'{"id": null}')], indirect=True)
def test_an_answer_without_an_id_is_no_id(answering: str) -> None:
    """Messages named the schema 0, which no reader has."""
    schemas = RegistrySchemas(Registry(answering))
    with pytest.raises(RetriableError, match="has no id"):
        schemas.id_of("s", Own('"int"'))
    with pytest.raises(RetriableError, match="has no id"):
        schemas.latest("s")
