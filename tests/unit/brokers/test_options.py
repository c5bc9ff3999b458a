"""`Kafka(...)`: what is forced, what is refused and why, what is shown."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from typer.testing import CliRunner

from cues_kafka.brokers.forced import FORCED, Role
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka, Memory
from cues_kafka.brokers.secrets import masked
from cues_kafka.cli.main import app
from cues_kafka.errors import ConfigError, CuesError
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.broker import Broker

HERE = "127.0.0.1:1"

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"consumer": {"enable.auto.commit": True}}, "loses or repeats"),
    ({"config": {"enable.auto.commit": "TRUE"}}, "loses or repeats"),
    ({"consumer": {"auto.commit.enable": True}}, "loses or repeats"),
    ({"consumer": {"auto.offset.reset": "earliest"}}, "start="),
    ({"consumer": {"isolation.level": "read_uncommitted"}}, "aborted"),
    ({"consumer": {"check.crcs": False}}, "flipped bits"),
    ({"consumer": {"allow.auto.create.topics": True}}, "misspelt"),
    ({"consumer": {"group.id": "mine"}}, "<graph>.<processor>"),
    ({"consumer": {"session.timeout.ms": 6000}}, "session_timeout_s="),
    ({"producer": {"acks": 1}}, "survive"),
    ({"producer": {"request.required.acks": "0"}}, "survive"),
    ({"producer": {"enable.idempotence": False}}, "twice"),
    ({"producer": {"partitioner": "consistent"}}, "murmur2"),
    ({"producer": {"transactional.id": "mine"}}, "lock of a task"),
    ({"producer": {"transaction.timeout.ms": 1000}}, "transaction_timeout_s="),
    ({"producer": {"delivery.timeout.ms": 1000}}, "transaction_timeout_s="),
    ({"producer": {"statistics.interval.ms": 0}}, "suspect"),
    ({"config": {"bootstrap.servers": "other:1"}}, "first argument"),
    ({"config": {"log_level": 3}}, "witness"),
    ({"config": {"logger": print}}, "cues_kafka.librdkafka"),
    ({"config": {"default.topic.config": {}}}, "directly"),
    ({"config": {"sasl": {"password": "x"}}}, "'sasl.password'"),
    ({"config": {"security.protocol": "sasl_ssl", "sasl.username": "x"}}, "sasl.mechanisms is missing"),
    ({"config": {"sasl.jaas.config": "x"}}, "'sasl.username' and 'sasl.password'"),
    ({"config": {"ssl.truststore.location": "x"}}, "'ssl.ca.location'"),
    ({"config": {"ssl.keystore.key": "x"}}, "'ssl.key.pem'"),
    ({"transaction_timeout_s": 20}, "3 x socket_timeout_s"),
    ({"transaction_timeout_s": 901}, "900"),
    ({"heartbeat_s": 5}, "heartbeat_s"),
    ({"socket_timeout_s": 0}, "more than 0"),
    ({"max_poll_interval_s": 5}, "max_poll_interval_s"),
    ({"assignor": "uniform"}, "group_protocol='consumer'"),
    ({"assignor": "sticky"}, "cooperative-sticky"),
    ({"group_protocol": "new"}, "'classic' or 'consumer'"),
    ({"group_protocol": "consumer", "assignor": "roundrobin"}, "'uniform' or 'range'"),
    ({"group_protocol": "consumer", "session_timeout_s": 20}, "set consumer.session.timeout.ms for the group"),
    ({"group_protocol": "consumer", "heartbeat_s": 2}, "set consumer.heartbeat.interval.ms for the group"),
    ({"config": {"group.protocol": "consumer"}}, "set group_protocol= instead"),
    ({"consumer": {"partition.assignment.strategy": "range"}}, "set assignor= instead"),
    ({"config": {"security.protocol": "ssl", "enable.ssl.certificate.verification": False}}, "pose as the broker"),
    ({"config": {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"}}, "pose as the broker"),
]


@pytest.mark.parametrize(("settings", "reason"), REFUSED, ids=lambda value: str(value)[:50])
def test_a_setting_against_the_guarantee_is_refused_with_the_reason(settings: dict[str, Any], reason: str) -> None:
    """When the value is constructed, and the text says why or what to do."""
    with pytest.raises(ConfigError) as refused:
        Kafka(HERE, **settings)

    assert reason in str(refused.value)


@pytest.mark.parametrize("bootstrap", ["", "  ", "localhost", "localhost:", ":9092", "a:1,b", "a:70000"])
def test_a_wrong_address_is_refused(bootstrap: str) -> None:
    """Before anything tries to reach it."""
    with pytest.raises(ConfigError, match=r"host:port|needs the address"):
        Kafka(bootstrap)


def test_a_user_may_repeat_what_is_forced_anyway() -> None:
    """In any spelling that the client reads as the same."""
    Kafka(
        HERE,
        config={"socket.timeout.ms": "10000"},
        producer={"acks": -1, "enable.idempotence": "True"},
        consumer={"enable.auto.commit": 0, "isolation.level": "READ_COMMITTED"},
    )


def test_a_client_id_of_the_user_goes_before_the_names_of_all_clients() -> None:
    """Log filters of the brokers see whose client it is, and still which task."""
    options = Kafka(HERE, config={"client.id": "team-x"}, consumer={"client.id": "team-y"})

    assert options.settings("session", client_id="shop.check.0")["client.id"] == "team-x.shop.check.0"
    assert options.settings("reader", client_id="shop.check.reader")["client.id"] == "team-y.shop.check.reader"


def test_a_session_keeps_its_brokers_when_it_has_lost_all() -> None:
    """docs/faults.md: after a re-bootstrap it did not ask for its group's coordinator again."""
    key = "metadata.recovery.strategy"
    assert Kafka(HERE).settings("session", client_id="x")[key] == "none"
    assert Kafka(HERE, producer={key: "rebootstrap"}).settings("session", client_id="x")[key] == "rebootstrap"
    assert key not in Kafka(HERE).settings("reader", client_id="x")


def test_a_session_forgets_an_old_coordinator_and_asks_for_topics_more_often() -> None:
    """An age below the interval would make the client forget leaders, so a user's own interval goes without ours."""
    age, interval = "metadata.max.age.ms", "topic.metadata.refresh.interval.ms"
    ours = Kafka(HERE).settings("session", client_id="x")
    assert 2 * ours[interval] < ours[age] < 3000  # in milliseconds; broker.session.timeout.ms is 9 s, of local nodes 3

    assert age not in Kafka(HERE, config={interval: 60_000}).settings("session", client_id="x")
    both = Kafka(HERE, producer={interval: 60_000, age: 180_000}).settings("session", client_id="x")
    assert (both[interval], both[age]) == (60_000, 180_000)


def test_the_pause_between_retries_is_the_users() -> None:
    """It is a matter of speed, not of the guarantee."""
    for role in ("admin", "session", "sender", "reader", "member"):
        assert Kafka(HERE).settings(role, client_id="x")["retry.backoff.ms"] == 2
        assert Kafka(HERE, config={"retry.backoff.ms": 100}).settings(role, client_id="x")["retry.backoff.ms"] == 100


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_plaintext_is_fine_on_this_machine(host: str) -> None:
    """Loopback needs no encryption."""
    assert Kafka(f"{host}:9092").bootstrap == f"{host}:9092"


def test_plaintext_to_another_machine_needs_a_word() -> None:
    """Refused with the remedy; one stranger among several is enough."""
    for config in ({}, {"security.protocol": "SASL_PLAINTEXT"}):
        with pytest.raises(ConfigError, match="allow_plaintext=True"):
            Kafka("localhost:9092,kafka.example:9092", config=config)
    Kafka("kafka.example:9092", allow_plaintext=True)
    Kafka("kafka.example:9092", config={"security.protocol": "ssl"})


def test_secrets_are_not_shown() -> None:
    """Neither in repr nor in the masked copy."""
    config = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "PLAIN",
        "sasl.password": "canary-1",
        "ssl.key.password": "canary-2",
        "ssl.key.pem": "canary-3",
        "sasl.oauthbearer.client.secret": "canary-4",
        "sasl.oauthbearer.token.endpoint.url": "https://canary-5@idp.example/",
        "plugin.url": "https://user:canary-6@idp.example/",
        "sasl.username": "me",
    }
    shown = repr(Kafka("kafka.example:9093", config=config)) + str(masked(config))

    assert "canary" not in shown
    assert "'sasl.username': 'me'" in shown


CANARY_KEYS = (
    *("sasl.password", "sasl.pasword", "sasl.pwd", "sasl.passwd", "SASL.PASSWORD", "credentials", "ssl_key_pem"),
    *("ssl.key.password", "ssl.key.pem", "ssl.keystore.password", "sasl.oauthbearer.config", "oauth", "x"),
    *("sasl.oauthbearer.client.secret", "sasl.kerberos.kinit.cmd", "sasl.oauthbearer.token.endpoint.url"),
    *("sasl.jaas.config", "basic.auth.user.info", "ssl.ca.pem", "https.ca.pem"),
)
CANARY = "canary-7f3"


@pytest.mark.parametrize("key", CANARY_KEYS)
@pytest.mark.parametrize("way", ["config", "producer", "consumer", "quoted", "unquoted", "profile", "json", "single"])
def test_no_secret_is_shown(
    key: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever its key is called, however it came in: not by repr, by a refusal, by `config` or by a log line."""
    monkeypatch.chdir(tmp_path)
    caplog.set_level("DEBUG")
    shown: list[str] = []
    if way in ("config", "producer", "consumer"):
        try:
            given: Any = {way: {key: CANARY, "nested": {key: CANARY}}}
            shown.append(str(masked(given[way])))
            alone: Any = {way: {key: CANARY}}
            options = Kafka(HERE, **alone)
            shown.append(repr(options))
            KafkaBroker(replace(options, start_timeout_s=0.1)).facts([])
        except CuesError as error:
            shown.append("".join(traceback.format_exception(error)))
    else:
        table = {"profile": "profile.p.config"}.get(way, "config")
        dotted = key if way == "unquoted" else f'"{key}"'
        if way == "json":
            monkeypatch.setenv("CUES_KAFKA_CONFIG", json.dumps({key: CANARY}))
        elif way == "single":
            monkeypatch.setenv(f"CUES_KAFKA_CONFIG__{key.upper().replace('.', '_')}", CANARY)
        else:
            (tmp_path / "cues-kafka.toml").write_text(f'[{table}]\n{dotted} = "{CANARY}"\n')
        profile = ["--profile", "p"] if way == "profile" else []
        result = CliRunner().invoke(app, ["config", *profile])
        assert '"***"' in result.output
        shown += [result.output, "".join(traceback.format_exception(result.exception) if result.exception else ())]

    assert CANARY not in "".join(shown) + caplog.text


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`plan` of a small graph in a directory of its own."""
    (tmp_path / "small.py").write_text(
        "from cues_kafka import Graph, Source, processor\n"
        "@processor(inputs='orders')\ndef look(message): ...\ngraph = Graph('small', Source('orders'), look)\n"
    )
    monkeypatch.chdir(tmp_path)
    return ["plan", f"{tmp_path / 'small.py'}:graph"]


@pytest.mark.parametrize("key", CANARY_KEYS)
@pytest.mark.parametrize("way", ["text", "json", "refusal"])
def test_no_secret_is_shown_by_plan(
    key: str, way: str, planned: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither on an answering cluster nor where nothing listens, and by no line of the log, with all levels on."""
    caplog.set_level("DEBUG")
    Path("cues-kafka.toml").write_text(f'start_timeout_s = 0.1\n[config]\n"{key}" = "{CANARY}"\n')
    used: list[Any] = []

    def opened(options: Kafka) -> Broker:
        used.append(options)
        get_logger("cues_kafka.canary").info("opened", options=repr(options))
        return open_broker(replace(options, start_timeout_s=0.1) if way == "refusal" else Memory())

    monkeypatch.setattr("cues_kafka.brokers.open.open_broker", opened)
    result = CliRunner().invoke(app, [*planned, "--bootstrap", HERE, *(["--json"] if way == "json" else [])])

    told = "".join(traceback.format_exception(result.exception) if result.exception else ())
    assert CANARY not in result.output + told + caplog.text
    if not used:
        assert result.exit_code == 2  # the setting itself is refused
        return
    assert "opened options=" in caplog.text
    assert CANARY in str(used[0].config), "no canary was in the mine"
    assert ("small.look.backing" in result.output) == (way != "refusal")


@pytest.mark.parametrize("before", ["", "sasl_ssl://", "https://", "localhost:1,"])
def test_an_address_with_a_password_is_refused_and_not_shown(before: str, tmp_path: Path) -> None:
    """In a program, and by the command that prints settings."""
    address = f"{before}user:{CANARY}@host:9092"
    with pytest.raises(ConfigError, match="no user name and no password") as refused:
        Kafka(address)
    result = CliRunner().invoke(app, ["config", "--bootstrap", address, "--file", str(_empty(tmp_path))])

    assert '"***@host:9092"' in result.output
    assert CANARY not in f"{refused.value}{result.output}{result.exception}"


def _empty(directory: Path) -> Path:
    file = directory / "empty.toml"
    file.touch()
    return file


def test_the_value_can_be_copied_to_another_process() -> None:
    """Workers are spawned with it."""
    options = Kafka(HERE, producer={"linger.ms": 20})

    assert pickle.loads(pickle.dumps(options)) == options


def test_users_tune_what_is_free() -> None:
    """Their settings win over our defaults, in the clients that they are for."""
    options = Kafka(HERE, config={"client.rack": "a"}, producer={"linger.ms": 50}, consumer={"fetch.wait.max.ms": 5})
    session, reader = options.settings("session", client_id="s"), options.settings("reader", client_id="r")

    assert (session["linger.ms"], session["client.rack"], "fetch.wait.max.ms" in session) == (50, "a", False)
    assert (reader["fetch.wait.max.ms"], reader["client.rack"], "linger.ms" in reader) == (5, "a", False)

    tuning = {"fetch.wait.max.ms": 10, "queued.min.messages": 7}  # of one kind of reader
    reader = options.settings("reader", client_id="r", tuning=tuning)
    assert (reader["fetch.wait.max.ms"], reader["queued.min.messages"]) == (5, 7)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("role", ["admin", "session", "sender", "reader", "member"])
def test_the_client_accepts_the_settings_of_every_role(role: Role, protocol: Any) -> None:
    """Librdkafka itself checks names, values and how they fit together."""
    settings = Kafka("127.0.0.1:1", group_protocol=protocol).settings(role, client_id="x") | {"log_level": 0}
    if role in ("reader", "member"):
        Consumer(settings | {"group.id": "x"}).close()
    elif role == "session":
        Producer(settings | {"transactional.id": "x"})
    else:
        Producer(settings)


def test_every_forced_setting_has_a_reason_and_is_listed_once() -> None:
    """The table is the documentation."""
    keys = [forced.key for forced in FORCED]

    assert len(keys) == len(set(keys))
    assert all(len(forced.reason) > 20 for forced in FORCED)


def test_naming_a_cluster_loads_no_client() -> None:
    """Plans and the command line work without one."""
    code = "import sys, cues_kafka.brokers.options, cues_kafka.brokers.open; print('confluent_kafka' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


def test_each_memory_value_holds_its_own_cluster() -> None:
    """Every holder of the value sees the same logs; another value is another cluster."""
    one, other = Memory(), Memory()

    assert open_broker(one) is open_broker(one)
    assert open_broker(one) is not open_broker(other)
    assert one != other


def test_a_web_address_is_refused_with_what_to_write() -> None:
    """And librdkafka's own prefixes are not."""
    with pytest.raises(ConfigError, match="Write 'localhost:9092'"):
        Kafka("http://localhost:9092/topics")

    assert Kafka("PLAINTEXT://localhost:9092").bootstrap


@pytest.mark.parametrize(
    ("given", "says"),
    [("100000", "message.max.bytes=100000 is less than 262144"), ("1 MB", "'1 MB' is not a number of bytes")],
)
def test_a_limit_that_no_task_could_keep_to_is_refused(given: str, says: str) -> None:
    """Its own records would be refused, and it would stop for good."""
    with pytest.raises(ConfigError, match=says):
        Kafka("localhost:9092", producer={"message.max.bytes": given})


def test_batches_keep_to_the_least_of_setting_and_topics() -> None:
    """What all topics take by default changes nothing."""
    options = Kafka("localhost:9092", producer={"batch.size": "200000"})
    sizes = [
        one.settings("session", client_id="c", batch_bytes=most)["batch.size"]
        for one in (Kafka("localhost:9092"), options)
        for most in (None, 1_048_588, 100_000)
    ]

    assert list(map(int, sizes)) == [1_000_000, 1_000_000, 100_000, 200_000, 200_000, 100_000]
