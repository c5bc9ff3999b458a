"""What is said of a connection that cannot be made, by a real broker with one listener for each way to be wrong."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka.admin
import pytest

from cues_kafka import ConfigError, Graph, Kafka, Source, Topic, connect, processor, start
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.cli.main import main
from cues_kafka.client.client import Client
from cues_kafka.errors import CuesError, LoginError, RetriableError
from cues_kafka.verify.scan import verify
from tests.fault.support import until

CLIENT: Any = confluent_kafka.admin  # its names of users are not exported to type checkers
PASSWORD = "a-password-of-this-test"
SCRAM = {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "me", "sasl.password": PASSWORD}
LOGIN_S = 5.0
"""Alone it is 1.1 s; ten seconds would be the time that a cluster that is away has to come back."""


class Certificates:
    """An authority, and what it signed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for authority in ("ca", "other-ca"):
            self._openssl("req", "-x509", *_KEY, "-keyout", f"{authority}.key", "-out", f"{authority}.pem",
                          "-days", "3650", "-subj", f"/CN={authority}")  # fmt: skip
        self.issue("good")
        self.issue("expired", days=-1)
        self.issue("misnamed", names="DNS:kafka.example,IP:127.9.9.9")
        self.issue("client")
        self.issue("stranger", authority="other-ca")
        self._openssl("pkcs8", "-topk8", "-in", "client.key", "-out", "locked.key", "-passout", f"pass:{PASSWORD}")

    def issue(self, name: str, *, authority: str = "ca", days: int = 3650, names: str = "IP:127.0.0.1") -> None:
        """Key, certificate, and both in one file for the broker."""
        self._openssl("req", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (self.directory / f"{name}.ext").write_text(f"subjectAltName={names}\n")
        signed = ("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial", "-days", str(days))
        files = ("-in", f"{name}.csr", "-extfile", f"{name}.ext", "-out", f"{name}.pem")
        self._openssl("x509", "-req", *signed, *files)
        both = (self.directory / f"{name}.key").read_text() + (self.directory / f"{name}.pem").read_text()
        (self.directory / f"{name}.both").write_text(both)

    def __getitem__(self, name: str) -> str:
        return str(self.directory / name)

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)


_KEY = ("-newkey", "rsa:2048", "-nodes")


class World(NamedTuple):
    """The broker and the certificates."""

    broker: LocalBroker
    of: Certificates

    def kafka(self, listener: str, **config: Any) -> Kafka:
        """Settings with underscores for dots."""
        given = {key.replace("_", "."): value for key, value in config.items()}
        return Kafka(self.broker.listener(listener), config=given, start_timeout_s=4)

    def set_password(self, user: str, password: str) -> None:
        """As an administrator does, for a new user or one that is there."""
        how = CLIENT.ScramCredentialInfo(CLIENT.ScramMechanism.SCRAM_SHA_512, 4096)
        admin = CLIENT.AdminClient({"bootstrap.servers": self.broker.bootstrap})
        asked = admin.alter_user_scram_credentials([CLIENT.UserScramCredentialUpsertion(user, how, password.encode())])
        for future in asked.values():
            future.result()

    def ca(self) -> dict[str, str]:
        return {"ssl_ca_location": self.of["ca.pem"]}

    def own(self, name: str) -> dict[str, str]:
        return {"ssl_certificate_location": self.of[f"{name}.pem"], "ssl_key_location": self.of[f"{name}.key"]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One broker for all."""
    of = Certificates(tmp_path_factory.mktemp("certificates"))
    sasl = {"LOGIN": "SASL_SSL", "PLAINLOGIN": "SASL_PLAINTEXT", "OAUTH": "SASL_PLAINTEXT"}
    protocols = sasl | dict.fromkeys(("TLS", "MUTUAL", "EXPIRED", "MISNAMED"), "SSL")
    settings = {
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}"
            for name, protocol in {**protocols, "CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT"}.items()
        ),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": of["good.both"],
        "ssl.truststore.location": of["ca.pem"],
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.expired.ssl.keystore.location": of["expired.both"],
        "listener.name.misnamed.ssl.keystore.location": of["misnamed.both"],
    }
    settings["listener.name.oauth.sasl.enabled.mechanisms"] = "OAUTHBEARER"
    # A login ends with its token: connections whose clients do not log in again are closed.
    settings["listener.name.oauth.oauthbearer.connections.max.reauth.ms"] = "3600000"
    settings["listener.name.oauth.oauthbearer.sasl.jaas.config"] = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";'
    )
    for name in ("login", "plainlogin"):
        settings[f"listener.name.{name}.scram-sha-512.sasl.jaas.config"] = (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        )
    with LocalBroker(overrides=settings, listeners=tuple(protocols)) as broker:
        world = World(broker, of)
        world.set_password("me", PASSWORD)
        yield world


def refusal(options: Kafka) -> CuesError:
    """What the first question to the cluster raises."""
    broker = KafkaBroker(options)
    with pytest.raises(CuesError) as refused:
        broker.facts([])
    broker.close()
    return refused.value


def test_each_right_setting_connects(world: World) -> None:
    """Otherwise the refusals below would prove nothing."""
    right = [
        world.kafka("LOGIN", security_protocol="SASL_SSL", **scram(), **world.ca()),
        world.kafka("PLAINLOGIN", security_protocol="SASL_PLAINTEXT", **scram()),
        world.kafka("TLS", security_protocol="SSL", **world.ca()),
        world.kafka("MUTUAL", security_protocol="SSL", **world.ca(), **world.own("client")),
    ]
    for options in right:
        broker = KafkaBroker(options)
        assert broker.facts([]).brokers == 1
        broker.close()


def scram(**other: str) -> dict[str, str]:
    return {key.replace(".", "_"): value for key, value in SCRAM.items()} | other


@pytest.mark.parametrize(
    ("listener", "settings", "said"),
    [
        ("LOGIN", {"sasl_password": "wrong"}, "wrong user name or password"),
        ("LOGIN", {"sasl_username": "unknown"}, "wrong user name or password"),
        ("LOGIN", {"sasl_mechanisms": "PLAIN"}, "SCRAM-SHA-512"),
        ("LOGIN", {"security_protocol": "SSL"}, "is a listener for SASL_SSL with SCRAM-SHA-512"),
        ("LOGIN", {"security_protocol": "PLAINTEXT"}, "is a listener for SASL_SSL with SCRAM-SHA-512"),
        ("LOGIN", {"security_protocol": "SASL_PLAINTEXT"}, "is a listener for SASL_SSL with SCRAM-SHA-512"),
        ("PLAINLOGIN", {"security_protocol": "PLAINTEXT"}, "is a listener for SASL_PLAINTEXT"),
        ("PLAINLOGIN", {"security_protocol": "SASL_SSL"}, "is a listener for SASL_PLAINTEXT"),
        ("TLS", {"security_protocol": "PLAINTEXT"}, "is a listener for SSL"),
        ("TLS", {"security_protocol": "SASL_SSL"}, "is a listener for SSL, and"),
        ("TLS", {"security_protocol": "SSL", "ssl_ca_location": "other-ca.pem"}, "is not trusted (unable to get local"),
        ("TLS", {"security_protocol": "SSL", "ssl_ca_location": ""}, "set 'ssl.ca.location'"),
        ("MISNAMED", {"security_protocol": "SSL"}, "is for other names: kafka.example, 127.9.9.9"),
        ("MUTUAL", {"security_protocol": "SSL"}, "wants a certificate of this client"),
        ("MUTUAL", {"security_protocol": "SSL", "own": "stranger"}, "refuses the certificate of this client"),
        ("MUTUAL", {"security_protocol": "SSL", "own": "expired"}, "refuses the certificate of this client"),
    ],
    ids=lambda value: str(value)[:70],
)
def test_a_wrong_setting_ends_the_start_at_once_with_its_own_sentence(
    world: World, listener: str, settings: dict[str, str], said: str
) -> None:
    """One cause, no false second one, and no user is told to start brokers that run."""
    given = {"security_protocol": "SASL_SSL", **scram(), **world.ca(), **settings}
    given |= world.own(given.pop("own")) if "own" in given else {}
    if settings.get("ssl_ca_location"):
        given["ssl_ca_location"] = world.of[settings["ssl_ca_location"]]
    given = {key: value for key, value in given.items() if value}
    began = time.monotonic()

    error = refusal(world.kafka(listener, **given))

    assert said in str(error)
    assert isinstance(error, LoginError)
    assert time.monotonic() - began < LOGIN_S
    assert "Start the brokers" not in str(error)
    assert "TLS on one side" not in str(error)
    assert "_ALL_BROKERS_DOWN" not in str(error)
    assert PASSWORD not in str(error)


def test_an_expired_certificate_of_the_broker_is_waited_for_and_dated(world: World) -> None:
    """The settings here are right: an operator renews it there."""
    error = refusal(world.kafka("EXPIRED", security_protocol="SSL", **world.ca()))

    assert isinstance(error, RetriableError)
    assert "expired at" in str(error)
    assert "not trusted" not in str(error)
    assert "Start the brokers" not in str(error)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ssl_ca_location": "nowhere.pem"}, r"ssl.ca.location: the file '.*nowhere.pem' cannot be read: No such file"),
        ({"ssl_ca_location": "ca.key"}, r"ssl.ca.location: '.*ca.key' has no certificate in PEM"),
        ({"own": "client", "ssl_key_location": "good.key"}, r"good.key' is not the key of"),
        (
            {"own": "client", "ssl_key_location": "locked.key"},
            r"locked.key' is encrypted, and ssl.key.password does not",
        ),
        ({"own": "client", "ssl_key_location": "client.pem"}, r"ssl.key.location: '.*client.pem' has no key in PEM"),
        (
            {"own": "client", "ssl_certificate_location": "client.key"},
            r"client.key' has no certificate in PEM",
        ),
    ],
    ids=str,
)
def test_a_wrong_file_is_named_with_the_reason(world: World, settings: dict[str, str], said: str) -> None:
    """Before the client is made, which names neither."""
    given = {**world.ca(), **(world.own(settings["own"]) if "own" in settings else {})}
    given |= {key: world.of[value] for key, value in settings.items() if key != "own"}

    with pytest.raises(ConfigError, match=said):
        KafkaBroker(world.kafka("TLS", security_protocol="SSL", **given)).facts([])


def test_an_encrypted_key_connects_with_its_password(world: World) -> None:
    """The check of the files reads it as the client does."""
    own = world.own("client") | {"ssl_key_location": world.of["locked.key"], "ssl_key_password": PASSWORD}
    broker = KafkaBroker(world.kafka("MUTUAL", security_protocol="SSL", **world.ca(), **own))

    assert broker.facts([]).brokers == 1
    broker.close()


@processor(inputs="orders")
def nothing(message: Any) -> None:
    """A sink."""


@pytest.fixture
def lonely(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments for a graph in a file and the address of its brokers, with a wrong password in the environment."""
    (tmp_path / "lonely.py").write_text(
        "from cues_kafka import Graph, Source, processor\n"
        "@processor(inputs='orders')\ndef nothing(message): ...\ngraph = Graph('lonely', Source('orders'), nothing)\n"
    )
    monkeypatch.chdir(tmp_path)
    for key, value in {"security.protocol": "SASL_PLAINTEXT", **SCRAM, "sasl.password": "wrong"}.items():
        monkeypatch.setenv(f"CUES_KAFKA_CONFIG__{key.replace('.', '_').upper()}", value)
    return ["lonely.py:graph", "--bootstrap", world.broker.listener("PLAINLOGIN")]


def test_a_refused_login_ends_a_start(world: World) -> None:
    """As a wrong setting does."""
    wrong = world.kafka("PLAINLOGIN", security_protocol="SASL_PLAINTEXT", **scram(sasl_password="wrong"))
    with pytest.raises(LoginError):
        start(Graph("connections", Source("orders"), nothing), wrong)


@pytest.mark.parametrize(
    ("command", "options"),
    [("run", []), ("plan", []), ("verify", []), ("reset", ["nothing"]), ("accept-loss", ["nothing"])],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refused_login_ends_each_command_as_a_wrong_setting(
    lonely: list[str],
    command: str,
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With one sentence and exit code 2."""
    target, *where = lonely
    monkeypatch.setattr(sys, "argv", ["cues-kafka", command, target, *options, *where])

    with pytest.raises(SystemExit) as ended:
        main()

    said = capsys.readouterr().err
    assert (ended.value.code, said.count("wrong user name or password")) == (2, 1), said
    assert "Traceback" not in said


def test_a_login_that_is_refused_to_all_workers_ends_their_supervisor(lonely: list[str]) -> None:
    """With exit code 2, and no worker is started a second time."""
    program = [sys.executable, "-m", "cues_kafka.cli.main", "run", *lonely, "--workers", "2"]

    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)

    said = ended.stdout + ended.stderr
    assert ended.returncode == 2, said
    assert "wrong user name or password" in said
    assert said.count("worker started") <= 2


def unsecured(life_s: float) -> tuple[str, float]:
    """A token without a signature, which the test's broker takes, and its end."""
    now = time.time()
    parts = [{"alg": "none"}, {"sub": "me", "iat": int(now) - 1, "exp": now + life_s}]
    coded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join(coded) + ".", now + life_s


def test_one_token_serves_all_clients_of_a_process(world: World) -> None:
    """Each of them asked for its own."""
    calls = []

    def give(_: str | None) -> tuple[str, float]:
        calls.append(1)
        return unsecured(300)

    options = world.kafka("OAUTH", security_protocol="SASL_PLAINTEXT", sasl_mechanisms="OAUTHBEARER")
    broker = KafkaBroker(replace(options, config={**options.config, "oauth_cb": give}))
    assert broker.facts([]).brokers == 1
    for name in ("a", "b", "c"):
        session = broker.session(name)
        session.init(timeout_s=20)
        session.close()
    broker.close()

    assert len(calls) == 1


def test_a_function_that_gives_no_token_is_named_with_its_error(world: World) -> None:
    """At once, as an error of ours, with what it raised as the cause."""
    options = world.kafka("OAUTH", security_protocol="SASL_PLAINTEXT", sasl_mechanisms="OAUTHBEARER")

    def fail(_: str | None) -> tuple[str, float]:
        raise OSError("the vault is closed")

    raised = refusal(replace(options, config={**options.config, "oauth_cb": fail}))
    stale = refusal(replace(options, config={**options.config, "oauth_cb": lambda _: unsecured(-5)}))
    missing = refusal(replace(options, oauth="json:no_such"))

    assert isinstance(raised, RetriableError)
    assert str(raised.__cause__) == "the vault is closed"
    assert isinstance(stale, LoginError)
    assert "expired 5 s ago" in str(stale)
    assert "names no function" in str(missing)


def same(order: dict[str, Any]) -> dict[str, Any]:
    """Any function."""
    return order


def pipe(name: str) -> Graph:
    """From its orders to its clean ones."""
    topics = {f"{name}.{topic}": Topic(partitions=2) for topic in ("orders", "clean")}
    check = processor(inputs=f"{name}.orders", outputs=f"{name}.clean", name="check")(same)
    return Graph(name, Source(f"{name}.orders", default=True), check, topics=topics)


def numbers_of(client: Client, graph: Graph) -> list[int]:
    """What was delivered, sorted."""
    return sorted(message.value["n"] for message in client.messages(f"{graph.name}.clean"))


@pytest.mark.full
def test_a_password_that_changes_while_a_worker_runs_costs_no_message(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It works on until its connections end, then says so once; with the new password all goes on."""
    world.set_password("rotated", "old-password")
    graph = pipe("rotated")

    def login(password: str) -> Kafka:
        settings = scram(sasl_username="rotated", sasl_password=password)
        return world.kafka("PLAINLOGIN", security_protocol="SASL_PLAINTEXT", **settings)

    with connect(Kafka(world.broker.bootstrap), graph) as client, start(graph, login("old-password")) as running:
        running.send({"n": 0})
        running.wait_idle()
        world.set_password("rotated", "new-password")
        client.send({"n": 1})
        running.wait_idle()
        assert numbers_of(client, graph) == [0, 1]

        world.broker.nodes[0].kill()
        world.broker.nodes[0].start()
        until(lambda: "authentication refused" in caplog.text, "the refusal is said")
        refusals = [line for line in caplog.text.splitlines() if "authentication refused" in line]
        assert len(refusals) == 1
        assert "wrong user name or password" in refusals[0]
        assert "restart it with the new one" in refusals[0]
        client.send_many(f"{graph.name}.orders", [{"n": 2}, {"n": 3}])
        with pytest.raises(LoginError, match="wrong user name or password"):
            start(graph, login("old-password"))

    with (
        start(graph, login("new-password")) as running,
        connect(Kafka(world.broker.bootstrap), graph) as client,
        closing(KafkaBroker(Kafka(world.broker.bootstrap))) as broker,
    ):
        running.wait_idle()
        assert numbers_of(client, graph) == [0, 1, 2, 3]
        assert verify(graph, broker).complete


@pytest.mark.full
def test_a_worker_outlives_its_token(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It asks for the next one in time, and all of its connections log in again."""
    life_s, ends = 24.0, []

    def give(_: str | None) -> tuple[str, float]:
        token, end = unsecured(life_s)
        ends.append(end)
        return token, end

    graph, sent = pipe("renewed"), 0
    options = world.kafka("OAUTH", security_protocol="SASL_PLAINTEXT", sasl_mechanisms="OAUTHBEARER")
    options = replace(options, config={**options.config, "oauth_cb": give})
    with start(graph, options) as running:
        while time.time() < ends[0] + 2:
            running.send({"n": sent})
            sent += 1
            running.wait_idle()
        asked = len(ends)

    assert asked == 2
    assert "authentication refused" not in caplog.text
    plain = Kafka(world.broker.bootstrap)
    with connect(plain, graph) as client, closing(KafkaBroker(plain)) as broker:
        assert numbers_of(client, graph) == list(range(sent))
        assert verify(graph, broker).complete


def test_silence_and_strangers_have_sentences_of_their_own() -> None:
    """A closed port, a silent one, a web server, a name without an address."""
    with listening(answer=None) as silent, listening(answer=b"HTTP/1.1 400 Bad Request\r\n\r\n") as web:
        places = {
            "closed": f"127.0.0.1:{closed_port()}",
            "silent": silent,
            "web": web,
            "name": "kafka.invalid:9092",
        }

        def said(place: str) -> str:
            return str(refusal(Kafka(place, allow_plaintext=True, start_timeout_s=2)))

        with ThreadPoolExecutor(len(places)) as pool:  # each takes the whole time that it has
            errors = dict(zip(places, pool.map(said, places.values()), strict=True))

    assert "nothing listens there" in errors["closed"]
    assert "Start the brokers, or correct the address" in errors["closed"]
    assert "silent" in errors["silent"]
    assert "not a Kafka broker" in errors["web"]
    assert "the host name has no address" in errors["name"]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """A server that gives each connection this answer, or none."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                held.append(connection)
                if answer is not None:
                    connection.recv(1000)
                    connection.sendall(answer)
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()
