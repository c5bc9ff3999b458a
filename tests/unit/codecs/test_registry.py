"""What else may answer at the registry's address: an outage, or, about one schema, the message's fault."""

from __future__ import annotations

import gzip
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cues_kafka import Avro, CodecError, Graph, Kafka, Processor, Registry, RetriableError, Source, Topic
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.codecs.registered import Own
from cues_kafka.codecs.registry import RegistrySchemas
from cues_kafka.codecs.registry_answers import ANSWER_BYTES
from cues_kafka.codecs.subjects import inspect_registry
from cues_kafka.plan.inspectors import Findings, Terms
from cues_kafka.testing.registry import TestRegistry, _ErrorAnswer

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
        ((403, b'{"error_code": 40301, "message": "no"}'), RetriableError),
        ((403, b"<html>no</html>"), RetriableError),
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


PLAIN = b'{"schema": "\\"string\\"", "pad": "%b"}'
"""A schema with as many bytes around it as one likes."""

PACKED = gzip.compress(PLAIN % (b" " * 50_000_000))


@pytest.mark.parametrize(
    ("answering", "why"),
    [
        ((200, PACKED, ("Content-Encoding", "gzip"), ("Content-Length", str(len(PACKED)))), "its answer is packed"),
        ((200, PLAIN % (b" " * ANSWER_BYTES)), "its answer is larger than 16,777,216 bytes"),
    ],
    indirect=["answering"],
    ids=["packed", "large"],
)
def test_answer_that_would_fill_the_memory_is_refused(answering: str, why: str) -> None:
    """50 kB of gzip unpacked to 50 MB, or to any size. It is an outage, as everything that is no registry's answer."""
    with pytest.raises(RetriableError, match=why):
        RegistrySchemas(Registry(answering)).by_id(5)


@pytest.mark.parametrize("answering", [(200, PLAIN % b"")], indirect=True)
def test_plain_answer_is_asked_for_and_taken(answering: str) -> None:
    """A server that packs what it may would else be refused."""
    schemas = RegistrySchemas(Registry(answering))

    assert schemas.by_id(5).text == '"string"'
    assert schemas.client._rest_client.session.headers["Accept-Encoding"] == "identity"


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


STRING = '"string"'


def test_schema_that_this_user_may_not_read_is_the_error_of_its_message() -> None:
    """
    It was taken for an outage, so the task tried again without end, and what came behind it was not delivered.

    The text names the schema, the user, the right and what comes next. A flood of such messages asks once. The schema
    is read when the right is granted.
    """
    with TestRegistry() as registry:
        registry.register("open", STRING)
        secret = registry.register("secret", '"int"')
        registry.denied.add("secret")
        schemas = RegistrySchemas(Registry(registry.url, auth=("me", "hunter22"), allow_plaintext=True))

        for _ in range(2):
            with pytest.raises(CodecError) as raised:
                schemas.by_id(secret)

        text = str(raised.value)
        assert f"names the schema {secret}" in text
        assert "does not let user `me` read the schema" in text
        assert "User is denied operation Read on Subject: secret" in text
        assert "`cues-kafka errors replay`" in text
        assert registry.requests.count(f"GET /schemas/ids/{secret}") == 1
        registry.denied.clear()
        assert RegistrySchemas(Registry(registry.url)).by_id(secret).text == '"int"'


@pytest.mark.parametrize("read", [True, False])
def test_schema_is_an_outage_where_the_registry_says_the_same_of_all(
    monkeypatch: pytest.MonkeyPatch, read: bool
) -> None:
    """A registry that also denies ids that no schema has is asked for a schema that it gave before."""
    monkeypatch.setattr(TestRegistry, "_stored", denying_unknown(TestRegistry._stored))
    with TestRegistry() as registry:
        known, secret = registry.register("open", STRING), registry.register("secret", '"int"')
        registry.denied.add("secret")
        schemas = RegistrySchemas(Registry(registry.url))
        if read:
            schemas.by_id(known)

        with pytest.raises(CodecError if read else RetriableError, match="does not let this user read the schema"):
            schemas.by_id(secret)

        registry.denied.add("open")
        with pytest.raises(RetriableError, match="does not let this user read the schema"):
            RegistrySchemas(Registry(registry.url)).by_id(secret)


def denying_unknown(stored: Any) -> Any:
    """What finds a schema, with 403 where there is none."""

    def denied(self: TestRegistry, number: int) -> Any:
        try:
            return stored(self, number)
        except _ErrorAnswer:
            raise _ErrorAnswer(403, 40301, "User is denied operation Read on Subject") from None

    return denied


def test_wrong_login_is_no_error_of_a_message_and_names_the_remedy() -> None:
    """Nothing is answered; the task stops, and goes on when the login is right."""
    with TestRegistry(token="right") as registry:
        number = registry.register("s", STRING)
        schemas = RegistrySchemas(Registry(registry.url, auth="wrong", allow_plaintext=True))
        with pytest.raises(
            RetriableError, match=r"refuses the login of this user.* Correct the user and the password, or the token"
        ):
            schemas.by_id(number)


def test_subject_that_this_user_may_not_read_names_the_right() -> None:
    """To a task that writes, which stops until it is granted, and to the commands."""
    with TestRegistry() as registry:
        own = Own(STRING)
        registry.register("s", STRING)
        registry.denied.add("s")
        schemas = RegistrySchemas(Registry(registry.url))
        for ask in (lambda: schemas.id_of("s", own), lambda: schemas.latest("s"), lambda: schemas.compatible("s", own)):
            with pytest.raises(RetriableError, match=r"does not let this user read the subject 's' .* DeveloperRead"):
                ask()
        with pytest.raises(RetriableError, match=r"does not let this user write the subject 's' .* DeveloperWrite"):
            schemas.register("s", own)
        registry.denied.clear()
        assert schemas.id_of("s", own) == 1


def test_plan_refuses_what_the_registry_denies() -> None:
    """A subject that is written, and a login; of one that is read, a warning says that it was not compared."""
    with TestRegistry(token="right") as registry:
        for name in ("in-value", "out-value"):
            registry.register(name, STRING)
        registry.denied |= {"in-value", "out-value"}
        values = {name: Topic(value=Avro("string", registry=True)) for name in ("in", "out")}
        graph = Graph(
            "g", Source("in"), Processor(lambda value: value, name="p", inputs="in", outputs="out"), topics=values
        )

        def found(token: str) -> Findings:
            cluster = Kafka("localhost:1", registry=Registry(registry.url, auth=token, allow_plaintext=True))
            return inspect_registry(graph, MemoryBroker(), Terms(cluster=cluster))

        [refusal], [warning] = found("right").refusals, found("right").warnings
        assert refusal.startswith("'out': the registry")
        assert "let this user read the subject 'out-value'" in refusal
        assert warning.startswith("'in': the registry")
        assert len(found("wrong").refusals) == 1
        assert "refuses the login" in found("wrong").refusals[0]
