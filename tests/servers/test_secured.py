"""Bridges on brokers with certificates, users and rights: a refusal has its remedy, and the task goes on behind it."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from cues_kafka import ConfigError, Feed, Graph, Memory, Raw, Running, Sink, Source, Topic, start
from tests.servers.amqp_world import HAS_PROTON
from tests.servers.certificates import Certificates
from tests.servers.fixtures import started
from tests.servers.secured import USER, SecuredActiveMq, SecuredArtemis, SecuredMosquitto, SecuredRabbitMq
from tests.servers.secured_world import (
    OnActiveMq,
    OnArtemis,
    OnArtemisByAmqp,
    OnMosquitto,
    OnRabbitMq,
    OnRabbitMqStreams,
    Secured,
)

pytestmark = [pytest.mark.bridge, pytest.mark.timeout(300)]

WAIT_S = 60.0
BY_AMQP = ("artemis-amqp",) if HAS_PROTON else ()
BROKERS = ("mosquitto", "rabbitmq", "rabbitmq-stream", "activemq", "artemis", *BY_AMQP)
SERVERS: dict[str, Any] = {
    "mosquitto": SecuredMosquitto,
    "rabbitmq": SecuredRabbitMq,
    "activemq": SecuredActiveMq,
    "artemis": SecuredArtemis,
}


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Files of this run, which servers may read that run as another user."""
    directory = tmp_path_factory.mktemp("certificates")
    for one in (directory, *directory.parents[:2]):
        one.chmod(0o755)
    return Certificates(directory)


@pytest.fixture(scope="session")
def servers(certificates: Certificates) -> Iterator[Any]:
    """Starts each server when it is first asked for."""
    running: dict[str, Any] = {}
    with ExitStack() as stack:

        def server(kind: str) -> Any:
            if kind not in running:
                running[kind] = started(stack, SERVERS[kind](certificates))
            return running[kind]

        yield server


@pytest.fixture(params=BROKERS)
def secured(request: pytest.FixtureRequest, servers: Any) -> Iterator[Secured]:
    """A name of this test in each broker, whose user has no right."""
    kind, name = request.param, f"t{uuid.uuid4().hex[:8]}"
    server = servers(kind.partition("-")[0])
    server.forget()
    worlds: dict[str, Any] = {
        "mosquitto": OnMosquitto, "rabbitmq": OnRabbitMq, "rabbitmq-stream": OnRabbitMqStreams,
        "activemq": OnActiveMq, "artemis": OnArtemis, "artemis-amqp": OnArtemisByAmqp,
    }  # fmt: skip
    world = worlds[kind](server, name)
    world.prepare()
    yield world
    world.close()
    server.make_ready()


def reading(source: Any) -> Running:
    """A graph that a feed fills, which has begun to start."""
    feed = Feed(source, into="ingress", name="feed", poll_seconds=0.05)
    return start(Graph("g", feed, defaults=Topic(value=Raw(), partitions=1)), Memory(), timeout_s=None)


def writing(name: str, target: Any) -> Running:
    """A graph that writes, which has begun to start, with three messages."""
    graph = Graph(name, Source("given"), Sink("out", inputs="given", into=target), defaults=Topic(Raw(), partitions=1))
    running = start(graph, Memory(), timeout_s=None)
    for number in range(3):
        running.send("given", b"%d" % number)
    return running


def stops(running: Running, said: str) -> str:
    """Wait until the graph says this, with a remedy; gives all that it says."""
    until_s, text = time.monotonic() + WAIT_S, ""
    while time.monotonic() < until_s:
        try:
            running.wait_idle(timeout_s=1)
        except Exception as error:  # of whatever class: its text counts
            text = f"{error} {error.__cause__ or ''}"
            if re.search(said, text):
                return text
    raise AssertionError(f"not said: {said!r}, but {text!r}")


def refused(begin: Callable[[], Running], said: str) -> str:
    """Start a graph that the broker refuses, and end it; gives what the start or the task says."""
    try:
        running = begin()
    except ConfigError as error:
        if not re.search(said, str(error)):
            raise
        return str(error)
    try:
        return stops(running, said)
    finally:
        running.stop()


def goes_on(running: Running) -> None:
    """Wait until nothing is stopped, and nothing waits."""
    until_s = time.monotonic() + WAIT_S
    while True:
        try:
            running.wait_idle(timeout_s=5)
            return
        except Exception:
            if time.monotonic() > until_s:
                raise


def test_messages_come_and_go_over_tls_with_certificates_of_both_sides(
    secured: Secured, certificates: Certificates
) -> None:
    """Small and large ones, which TLS cuts into many records."""
    ours = {"ca": certificates["ca.pem"], "cert": certificates["client.pem"], "cert_key": certificates["client.key"]}
    given = [b"%d" % n for n in range(40)] + [b"x" * 300_000, b"y" * 70_000, b"end"]
    secured.allow_all()
    with reading(secured.source(secured.url(tls=True), **ours)) as running:
        goes_on(running)  # MQTT keeps messages from the subscription on
        secured.send(given)
        until_s = time.monotonic() + WAIT_S
        while len(running.messages("ingress")) < len(given) and time.monotonic() < until_s:
            running.wait_idle(timeout_s=WAIT_S)
        assert [one.value for one in running.messages("ingress")] == given
    with writing(secured.name, secured.target(secured.url(tls=True), **ours)) as running:
        running.send("given", b"z" * 300_000)
        goes_on(running)
    assert secured.taken(4) == [b"0", b"1", b"2", b"z" * 300_000]


@pytest.mark.parametrize("secured", BY_AMQP, indirect=True)
def test_certificate_is_the_login_by_amqp_where_the_address_has_no_user(
    secured: Secured, certificates: Certificates
) -> None:
    """In both directions. Without a certificate and a user the broker refuses the login."""
    secured.allow_all()
    ours = {"ca": certificates["ca.pem"], "cert": certificates["client.pem"], "cert_key": certificates["client.key"]}
    secured.send([b"1", b"2"])
    with reading(secured.source(secured.url(tls=True, user=""), **ours)) as running:
        until_s = time.monotonic() + WAIT_S
        while len(running.messages("ingress")) < 2 and time.monotonic() < until_s:
            running.wait_idle(timeout_s=WAIT_S)
        assert [one.value for one in running.messages("ingress")] == [b"1", b"2"]
    with writing(secured.name, secured.target(secured.url(tls=True, user=""), **ours)) as running:
        goes_on(running)
    assert secured.taken(3) == [b"0", b"1", b"2"]
    assert "user and password" in refused(lambda: reading(secured.source(secured.url(user=""))), "log")


WRONG = {
    "another authority": ({"ca": "other-ca.pem"}, "127.0.0.1", r"is not from the authorities in .*other-ca.pem.*ca="),
    "the system's authorities": ({"ca": ""}, "127.0.0.1", r"is not from the authorities that this system.*ca="),
    "no certificate": ({"cert": "", "cert_key": ""}, "127.0.0.1", r"(wants a|If it wants a) certificate.*cert="),
    "a stranger's certificate": (
        {"cert": "stranger.pem", "cert_key": "stranger.key"},
        "127.0.0.1",
        r"(refuses our certificate .*stranger.pem|the connection to).*",
    ),
    "another name": ({}, "localhost", r"is for another host.*name that the certificate has"),
}


@pytest.mark.parametrize("wrong", list(WRONG))
def test_wrong_certificates_stop_the_task_with_the_remedy(
    secured: Secured, certificates: Certificates, wrong: str
) -> None:
    """In both directions."""
    changed, host, said = WRONG[wrong]
    files = {"ca": "ca.pem", "cert": "client.pem", "cert_key": "client.key"} | changed
    ours = {name: certificates[file] for name, file in files.items() if file}
    secured.allow_all()
    url = secured.url(tls=True, host=host)
    for begin in (
        lambda: reading(secured.source(url, **ours)),
        lambda: writing(secured.name, secured.target(url, **ours)),
    ):
        assert USER not in refused(begin, said)


def test_wrong_password_stops_the_task_and_shows_in_no_text(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    """In both directions."""
    secured.allow_all()
    url = secured.url(password="another-secret")
    for begin in (lambda: reading(secured.source(url)), lambda: writing(secured.name, secured.target(url))):
        assert "correct user and password" in refused(begin, secured.wrong_login)
    assert "another-secret" not in caplog.text


def test_feed_without_a_right_names_it_and_goes_on_when_it_is_granted(secured: Secured) -> None:
    """Each right that is missing, in the order in which the broker asks for them."""
    with reading(secured.source(secured.url())) as running:
        for right, said in secured.inward:
            assert USER not in stops(running, said)
            secured.server.allow(right)
        goes_on(running)
        secured.send([b"1", b"2"])
        until_s = time.monotonic() + WAIT_S
        while len(running.messages("ingress")) < 2 and time.monotonic() < until_s:
            running.wait_idle(timeout_s=WAIT_S)
        assert [one.value for one in running.messages("ingress")] == [b"1", b"2"]


def test_sink_without_a_right_names_it_and_writes_when_it_is_granted(secured: Secured) -> None:
    """Each right that is missing, in the order in which the broker asks for them."""

    def begin() -> Running:
        return writing(secured.name, secured.target(secured.url()))

    for right, said in secured.outward:
        assert USER not in refused(begin, said)
        secured.server.allow(right)
    with begin() as running:
        goes_on(running)
    assert secured.taken(3) == [b"0", b"1", b"2"]


def test_sink_that_loses_its_rights_stops_and_loses_nothing_until_they_are_back(secured: Secured) -> None:
    """It goes on by itself."""
    secured.allow_all()
    with writing(secured.name, secured.target(secured.url())) as running:
        goes_on(running)
        secured.revoke()
        running.send("given", b"3")
        stops(running, "|".join(said for _, said in secured.outward))
        secured.allow_all()
        goes_on(running)
    assert secured.taken(4) == [b"0", b"1", b"2", b"3"]
