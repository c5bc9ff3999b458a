"""Options of `format("cues")`: what they mean, and what is refused with which advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException

from cues_kafka import Kafka, OAuthBearer, Oidc, Plain, Scram, Tls
from cues_kafka.brokers.java_names import EQUALS
from cues_kafka.brokers.security import Security
from cues_kafka.errors import ConfigError
from cues_kafka.on_spark.source.client_options import (
    COMMON_NAMES,
    CONSUMER_NAMES,
    REFUSED,
    TIMES,
    known_names,
    options_of,
)
from cues_kafka.on_spark.source.options import EARLIEST, LATEST, Bound, SourceOptions, Subscription, parse
from cues_kafka.ports.log import TopicPartition

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
EARLY = LEAST | {"startingOffsets": "earliest"}
NAMED = LEAST | {"name": "n"}

OFFSETS = '{"b": {"10": 3, "2": -2}, "a": {"0": 7}}'
BY_PLACE = {TopicPartition("a", 0): 7, TopicPartition("b", 2): -2, TopicPartition("b", 10): 3}


def batch(**options: str) -> SourceOptions:
    """As Spark hands them over for `read`; underscores stand for dots."""
    return parse(LEAST | {name.replace("_", "."): value for name, value in options.items()}, streaming=False)


def stream(given: Mapping[str, str] = NAMED, **options: str) -> SourceOptions:
    """For `readStream`."""
    return parse({**given, **options}, streaming=True)


def test_the_defaults_are_those_of_sparks_kafka_source() -> None:
    """A batch takes everything, a stream begins at the end; loss is an error, headers are not there."""
    settings = batch()

    assert settings.subscription == Subscription(topics=("orders",))
    assert (settings.start.edge, settings.end.edge) == (EARLIEST, LATEST)
    assert stream().start.edge == LATEST
    assert (settings.limit, settings.headers, settings.fail_on_loss) == (None, False, True)


def test_names_of_options_have_no_case() -> None:
    """Spark hands them over in lower case."""
    settings = parse(
        {name.lower(): value for name, value in (EARLY | {"maxOffsetsPerTrigger": "5"}).items()}, streaming=True
    )

    assert settings.limit == 5


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({}, Bound("startingOffsets", edge=EARLIEST)),
        ({"startingOffsets": "Earliest"}, Bound("startingOffsets", edge=EARLIEST)),
        ({"startingOffsets": OFFSETS}, Bound("startingOffsets", offsets=BY_PLACE)),
        ({"startingTimestamp": "17"}, Bound("startingTimestamp", time_ms=17)),
        (
            {"startingOffsetsByTimestamp": '{"a": {"0": 17}}', "startingOffsetsByTimestampStrategy": "latest"},
            Bound("startingOffsetsByTimestamp", times_ms={TopicPartition("a", 0): 17}, or_latest=True),
        ),
        # Spark's precedence
        (
            {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"a": {"0": 1}}', "startingTimestamp": "17"},
            Bound("startingTimestamp", time_ms=17),
        ),
        (
            {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"a": {"0": 17}}'},
            Bound("startingOffsetsByTimestamp", times_ms={TopicPartition("a", 0): 17}),
        ),
    ],
)
def test_where_a_read_begins(options: dict[str, str], bound: Bound) -> None:
    """All forms; partitions are in the order of their numbers."""
    assert batch(**options).start == bound
    assert list(batch(startingOffsets=OFFSETS).start.offsets or ()) == list(BY_PLACE)


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({"endingOffsets": '{"a": {"0": -1}}'}, Bound("endingOffsets", offsets={TopicPartition("a", 0): LATEST})),
        ({"endingTimestamp": "17"}, Bound("endingTimestamp", time_ms=17, or_latest=True)),
        (
            {"endingOffsetsByTimestamp": '{"a": {"0": 17}}'},
            Bound("endingOffsetsByTimestamp", times_ms={TopicPartition("a", 0): 17}, or_latest=True),
        ),
    ],
)
def test_where_a_batch_ends(options: dict[str, str], bound: Bound) -> None:
    """A time that nothing has reached yet is the end."""
    assert batch(**options).end == bound


def test_what_is_read() -> None:
    """By names, by a pattern, by partitions."""
    kafka = {"kafka.bootstrap.servers": "localhost:9092"}

    assert batch(subscribe=" b, a ,b").subscription.topics == ("a", "b")
    assert parse({**kafka, "subscribePattern": "a.*"}, streaming=False).subscription.pattern == "a.*"
    assigned = parse({**kafka, "assign": '{"b": [10, 2], "a": [0]}'}, streaming=False).subscription
    assert assigned.places == tuple(BY_PLACE)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"minPartitions": "8"}, "minPartitions is refused: each partition of a topic is read by one Spark task"),
        ({"maxRecordsPerPartition": "8"}, "maxRecordsPerPartition is refused: each partition"),
        ({"minOffsetsPerTrigger": "8"}, "longer trigger"),
        ({"maxTriggerDelay": "1m"}, "longer trigger"),
        ({"groupIdPrefix": "x"}, 'option("name", N)'),
        ({"kafkaConsumer.pollTimeoutMs": "1"}, "kafka.default.api.timeout.ms"),
        ({"fetchOffset.numRetries": "1"}, "kafka.default.api.timeout.ms"),
        ({"fetchOffset.retryIntervalMs": "1"}, "kafka.default.api.timeout.ms"),
        ({"topic": "x"}, "give subscribe"),
        ({"path": "x"}, "without a path"),
        ({"maxOffsetsPerTrigger": "8"}, "maxOffsetsPerTrigger is refused: a batch has no trigger"),
        ({"name": "n"}, "name is refused: it pins where a stream begins"),
        ({"startingOffset": "latest"}, "'startingOffset' is not known; did you mean startingOffsets?"),
        ({"bootstrap.servers": "x:1"}, "did you mean kafka.bootstrap.servers?"),
        ({"xyzzy": "1"}, "'xyzzy' is not known"),
        ({"subscribe": " "}, "subscribe is empty"),
        ({"assign": '{"a": [0]}'}, "there is subscribe and assign"),
        ({"subscribePattern": "("}, "there is subscribe and subscribePattern"),
        ({"startingOffsets": "latest"}, "cannot begin at the latest offsets"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "cannot begin at the latest offsets"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest offsets"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "cannot end at the earliest offsets"),
        ({"startingOffsets": "lates"}, 'write "earliest", "latest" or JSON like {"orders": {"0": 23'),
        ({"startingOffsets": "{}"}, "cannot be read"),
        ({"startingOffsets": '{"a": 1}'}, "'a' has no partitions"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "{'0': -3} of 'a'"),
        ({"startingOffsets": '{"a": {"0": true}}'}, "{'0': True} of 'a'"),
        ({"startingOffsets": '{"a": {"x": 1}}'}, "{'x': 1} of 'a'"),
        ({"startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "best"}, "it is error or latest"),
        ({"startingTimestamp": "yesterday"}, "not a whole number"),
        ({"startingTimestamp": "-1"}, "less than 0"),
        ({"includeHeaders": "yes"}, "includeHeaders=yes is neither true nor false"),
        ({"failOnDataLoss": ""}, "failOnDataLoss= is neither true nor false"),
        ({"kafka.bootstrap.servers": " "}, 'needs option("kafka.bootstrap.servers"'),
        ({"kafka.bootstrap.servers": "broker.example:9092"}, 'option("allowPlaintext", "true")'),
        ({"kafka.fetch.min.byte": "1"}, "did you mean kafka.fetch.min.bytes?"),
    ],
)
def test_a_batch_refuses(options: dict[str, str], text: str) -> None:
    """Each with what to do instead."""
    with pytest.raises(ConfigError) as refused:
        parse(LEAST | options, streaming=False)

    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (LEAST, '(the default of streams) by itself: give the stream option("name", N)'),
        (LEAST | {"startingOffsets": "latest"}, 'give the stream option("name", N)'),
        (LEAST | {"startingOffsets": '{"orders": {"0": 3, "1": -1}}'}, 'give the stream option("name", N)'),
        (
            LEAST | {"startingTimestamp": "17", "startingOffsetsByTimestampStrategy": "latest"},
            "cannot begin at the latest offsets (startingTimestamp)",
        ),
        (EARLY | {"endingOffsets": "latest"}, "availableNow=True"),
        (EARLY | {"endingTimestamp": "17"}, "availableNow=True"),
        (EARLY | {"endingOffsetsByTimestamp": '{"a": {"0": 17}}'}, "availableNow=True"),
        (EARLY | {"maxOffsetsPerTrigger": "0"}, "less than 1"),
        (EARLY | {"name": "a b"}, "letters, digits, dots, dashes and underscores"),
        (EARLY | {"minPartitions": "8"}, "minPartitions is refused"),
        (EARLY | {"maxRecordsPerPartition": "8"}, "maxRecordsPerPartition is refused"),
    ],
)
def test_a_stream_refuses(given: dict[str, str], text: str) -> None:
    """Above all a start that a second question would answer otherwise."""
    with pytest.raises(ConfigError) as refused:
        stream(given)

    assert text in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        EARLY,
        LEAST | {"startingOffsets": '{"orders": {"0": 3, "1": -2}}'},
        LEAST | {"startingTimestamp": "17"},
        NAMED,
        NAMED | {"startingOffsets": "latest"},
    ],
)
def test_a_stream_may_begin(given: dict[str, str]) -> None:
    """At what stays what it is, or under a name."""
    stream(given)


# ---- kafka.*


@pytest.mark.parametrize(("java", "equal"), sorted(EQUALS.items()))
def test_a_java_name_is_translated(java: str, equal: str) -> None:
    """To librdkafka's, for the clients that have it."""
    options = parse(LEAST | {f"kafka.{java}": "17"}, streaming=False).options

    settings = options.settings("reader", client_id="x")
    assert settings[equal] == "17"
    assert java == equal or java not in settings
    assert (equal in options.settings("admin", client_id="x")) == (equal in COMMON_NAMES)


def test_times_become_those_of_the_cluster() -> None:
    """A longer request needs a longer transaction, for `name`."""
    options = batch(kafka_request_timeout_ms="30000", kafka_default_api_timeout_ms="45000").options

    assert (options.socket_timeout_s, options.start_timeout_s, options.transaction_timeout_s) == (30.0, 45.0, 90.0)
    assert set(TIMES.values()) == {"socket_timeout_s", "start_timeout_s"}


def test_names_that_are_spelt_alike_pass() -> None:
    """Also librdkafka's own."""
    options = batch(kafka_fetch_min_bytes="3", kafka_sasl_username="me", kafka_client_rack="r1").options

    assert options.consumer == {"fetch.min.bytes": "3"}
    assert options.config == {"sasl.username": "me", "client.rack": "r1"}


@pytest.mark.parametrize("module", ["plain.PlainLoginModule", "scram.ScramLoginModule"])
def test_user_and_password_are_taken_out_of_java_login_text(module: str) -> None:
    """As Spark's users have it in their options; quotes and backslashes are Java's."""
    text = f'org.apache.kafka.common.security.{module} required username="me" password="a\\"b\\\\";'

    options = batch(kafka_sasl_jaas_config=text, kafka_sasl_mechanism="SCRAM-SHA-512").options

    assert options.config == {"sasl.username": "me", "sasl.password": 'a"b\\', "sasl.mechanisms": "SCRAM-SHA-512"}


@pytest.mark.parametrize(
    ("options", "config"),
    [
        (
            {"kafka.ssl.truststore.location": "/ca.pem", "kafka.ssl.truststore.type": "PEM"},
            {"ssl.ca.location": "/ca.pem"},
        ),
        (
            {"kafka.ssl.keystore.location": "/me.p12", "kafka.ssl.keystore.type": "pkcs12"},
            {"ssl.keystore.location": "/me.p12"},
        ),
    ],
)
def test_stores_of_certificates_that_librdkafka_can_read(options: dict[str, str], config: dict[str, str]) -> None:
    """The type is no setting of its own."""
    assert parse(LEAST | options, streaming=False).options.config == config


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_java_name_without_an_equal_is_refused(name: str) -> None:
    """With a reason of its own."""
    with pytest.raises(ConfigError) as refused:
        parse(LEAST | {f"kafka.{name}": "x"}, streaming=False)

    assert f"kafka.{name} is refused: {REFUSED[name]}" in str(refused.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kafka.isolation.level": "read_uncommitted"}, "it must be read_committed: anything else reads messages of"),
        ({"kafka.check.crcs": "false"}, "it must be True"),
        ({"kafka.enable.partition.eof": "false"}, "kafka.enable.partition.eof is refused"),
        ({"kafka.metadata.broker.list": "x:1"}, "kafka.metadata.broker.list is refused"),
        ({"kafka.ssl.truststore.location": "/ca.jks"}, "kafka.ssl.ca.location"),
        ({"kafka.ssl.keystore.location": "/me.jks"}, "kafka.ssl.certificate.location and kafka.ssl.key.location"),
        ({"kafka.ssl.keystore.type": "JKS"}, "librdkafka cannot read it"),
        ({"kafka.ssl.endpoint.identification.algorithm": ""}, 'option("allowUnverifiedTls", "true")'),
        ({"kafka.request.timeout.ms": "soon"}, "not a number of milliseconds"),
        ({"kafka.request.timeout.ms": "1", "kafka.socket.timeout.ms": "2"}, "mean the same setting"),
        ({"kafka.fetch.max.wait.ms": "1", "kafka.fetch.wait.max.ms": "2"}, "mean the same setting"),
        ({"kafka.group.id": "g"}, 'give it option("name", N)'),
    ],
)
def test_a_kafka_setting_is_refused(options: dict[str, str], text: str) -> None:
    """No reader gets uncommitted messages, or less security than they believe, in silence."""
    with pytest.raises(ConfigError) as refused:
        parse(LEAST | options, streaming=False)

    assert text in str(refused.value)


def test_settings_that_say_what_is_so_anyway_pass() -> None:
    """Those who say read_committed are right."""
    options = batch(kafka_isolation_level="read_committed", kafka_check_crcs="true").options

    assert options.settings("reader", client_id="x")["isolation.level"] == "read_committed"


def test_a_login_text_is_never_shown() -> None:
    """It has a password; it may stand in a log."""
    with pytest.raises(ConfigError) as refused:
        batch(kafka_sasl_jaas_config='com.example.Login required password="hunter2";')

    assert "hunter2" not in str(refused.value)
    options = batch(kafka_sasl_username="me", kafka_sasl_password="hunter2")
    assert "hunter2" not in repr(options)
    assert "hunter2" not in repr(options.options)


@pytest.mark.parametrize("name", sorted(CONSUMER_NAMES | COMMON_NAMES | set(EQUALS.values())))
def test_librdkafka_has_the_setting(name: str) -> None:
    """A name that the client does not know would be refused by the first Spark task instead of here."""
    settings: dict[str, Any] = {"group.id": "x", name: None, "no.such.setting": "1"}

    with pytest.raises(KafkaException) as refused:
        Consumer(settings)

    assert f'No such configuration property: "{name}"' not in str(refused.value)


def test_a_setting_is_named_once() -> None:
    """A name is taken, or translated, or refused."""
    groups: list[Any] = [CONSUMER_NAMES, COMMON_NAMES, EQUALS, REFUSED]

    for at, one in enumerate(groups):
        for other in groups[at + 1 :]:
            assert not set(one) & set(other)
    assert len(known_names()) == len(set(known_names()))


@pytest.mark.parametrize(
    "security",
    [
        None,
        Tls(ca="/a/ca.pem", certificate="/a/me.pem", key="/a/me.key", key_password="x"),
        Plain("me", "x", tls=None),
        Scram("me", "x", mechanism="SCRAM-SHA-256", tls=Tls(ca="-----BEGIN CERTIFICATE-----\nx")),
    ],
    ids=repr,
)
def test_a_cluster_with_its_login_becomes_options(security: Security | None) -> None:
    """The source connects with the settings that all other clients have."""
    kafka = Kafka("kafka:9092", security=security, config={"client.rack": "a"}, allow_plaintext=True)

    settings = parse(options_of(kafka) | {"subscribe": "orders"}, streaming=False)

    assert settings.options.common() == kafka.common()
    assert settings.options.bootstrap == kafka.bootstrap


def test_tokens_become_options_if_a_server_gives_them() -> None:
    """A function is no text."""
    asked = options_of(Kafka("kafka:9092", security=Oidc("https://id/token", "shop", "x", scope="s", ca="/a/ca.pem")))

    assert parse(asked | {"subscribe": "orders"}, streaming=False)
    assert asked["kafka.sasl.oauthbearer.method"] == "oidc"
    assert asked["kafka.https.ca.location"] == "/a/ca.pem"
    extended = Oidc("https://id/token", "shop", "x", extensions={"logicalCluster": "lkc-1", "identityPoolId": "p"})
    options = options_of(Kafka("kafka:9092", security=extended))
    assert options["kafka.sasl.oauthbearer.extensions"] == "logicalCluster=lkc-1,identityPoolId=p"
    assert parse(options | {"subscribe": "orders"}, streaming=False)
    with pytest.raises(ConfigError, match="security=Oidc"):
        options_of(Kafka("kafka:9092", security=OAuthBearer(file="/run/token")))
