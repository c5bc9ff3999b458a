"""The client for questions, without a cluster."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from cues_kafka.brokers.kafka import FIRST_ASK_S, KafkaBroker, asking
from cues_kafka.brokers.kafka.admin import Admin
from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import FatalError, RetriableError
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition

PLACE = TopicPartition("in", 0)
LEADER = SimpleNamespace(id=1)


@pytest.fixture
def without_collector() -> Iterator[None]:
    """What is still there was held by its own frames."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.facts(["in"]),
        lambda admin: admin.members("group"),
        lambda admin: admin.offsets.watermarks([PLACE]),
        lambda admin: admin.offsets.offsets_at({PLACE: 5}),
        lambda admin: admin.create([NewTopic("in", 1, 1)]),
    ],
    ids=["facts", "members", "watermarks", "offsets_at", "create"],
)
def test_a_client_whose_question_failed_is_destroyed_with_its_last_reference(ask: Callable[[Admin], object]) -> None:
    """Python's garbage collector might come by in a thread of librdkafka, and end the process there."""
    admin = Admin(Kafka("localhost:1", start_timeout_s=0.3))
    seen = weakref.ref(admin)
    with pytest.raises(RetriableError):
        ask(admin)
    del admin

    assert seen() is None


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("ask", [lambda b: b.watermarks([PLACE]), lambda b: b.members("g")], ids=["leaders", "group"])
def test_a_question_that_is_asked_again_holds_its_client_no_longer_either(ask: Callable[[KafkaBroker], object]) -> None:
    """What asks again keeps the last error, and the error the frames that it went through."""
    broker = KafkaBroker(Kafka("localhost:1", start_timeout_s=0.3))
    seen = weakref.ref(broker._admin)
    with pytest.raises(RetriableError):
        ask(broker)
    broker.close()

    assert seen() is None


@pytest.mark.usefixtures("without_collector")
def test_an_ignored_error_does_not_hold_the_client() -> None:
    """The future keeps the error."""
    admin, answer = Admin(Kafka("localhost:1")), Future[Any]()
    seen = weakref.ref(admin)
    answer.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    assert admin.asking.result(answer, "asking", ignore={"UNKNOWN_TOPIC_OR_PART"}) is None
    del admin

    assert seen() is None


@pytest.mark.usefixtures("without_collector")
def test_a_client_that_owes_an_answer_is_kept_until_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its question fails after a while, and another client asks the next one."""
    monkeypatch.setattr(asking, "LATE_S", 0.0)
    admin, answers = Admin(Kafka("localhost:1", start_timeout_s=0.05)), [Future[Any]() for _ in range(3)]
    client = _Client(answers)
    monkeypatch.setattr(admin.asking, "client", client)
    held = weakref.ref(client)
    del client

    with pytest.raises(RetriableError, match=r"the Kafka client did not answer within 0\.05 s"):
        admin.offsets.watermarks([PLACE])

    assert admin.asking.spent
    monkeypatch.undo()
    del admin
    assert held() is not None
    for answer in answers:
        answer.set_result(None)
    holding = [one for one in threading.enumerate() if one.name == "cues-kafka-late"]
    for one in holding:
        one.join(10.0)
    assert held() is None


def _answers(*offsets: int) -> list[Future[Any]]:
    """Answers that are there."""
    answers = [Future[Any]() for _ in offsets]
    for answer, offset in zip(answers, offsets, strict=True):
        answer.set_result(SimpleNamespace(offset=offset))
    return answers


@pytest.mark.parametrize("missing", range(3), ids=["first", "stable", "last"])
def test_an_end_that_the_client_does_not_know_is_no_offset(monkeypatch: pytest.MonkeyPatch, missing: int) -> None:
    """A fresh task began at -1001 and stopped: "offsets [-1001, 0) are gone". Without an end, its input was empty."""
    admins = [Admin(Kafka("localhost:1")) for _ in range(2)]
    offsets = [3, 5, 7]
    offsets[missing] = -1001
    monkeypatch.setattr(admins[0].asking, "client", _Client(_answers(*offsets)))
    monkeypatch.setattr(admins[1].asking, "client", _Client(_answers(3, 5, 7)))
    broker = KafkaBroker(Kafka("localhost:1"))
    monkeypatch.setattr("cues_kafka.brokers.kafka.Admin", lambda *_, **__: admins.pop(0))

    assert broker.watermarks([PLACE]) == {PLACE: (3, 5, 7)}
    assert admins == [], "another client was asked"


def test_no_message_at_a_time_is_told_apart_from_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reset to a time would skip everything where the client knows nothing."""
    admin = Admin(Kafka("localhost:1"))
    monkeypatch.setattr(admin.asking, "client", _Client(_answers(-1, -1001)))

    assert admin.offsets.offsets_at({PLACE: 1}) == {PLACE: None}
    with pytest.raises(RetriableError, match=r"the client returned no offset and no error"):
        admin.offsets.offsets_at({PLACE: 1})


def test_leaders_that_do_not_answer_are_asked_again_by_new_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client can leave a question with a node that is dead; the next one asks another, and waits longer."""
    broker, asked = KafkaBroker(Kafka("localhost:1", start_timeout_s=9.0)), list[float]()
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("cues_kafka.brokers.kafka.time", SimpleNamespace(monotonic=lambda: clock.now))
    passing = SimpleNamespace(monotonic=lambda: clock.now, sleep=lambda _: None)
    monkeypatch.setattr("cues_kafka.brokers.patience.time", passing)

    def ask(for_s: float) -> str:
        asked.append(for_s)
        if len(asked) > silent:
            return "answer"
        clock.now += for_s
        raise RetriableError("no answer", code="_TIMED_OUT")

    silent = 2
    assert broker._of_leaders(ask) == "answer"
    assert asked == [FIRST_ASK_S, 3.0, 4.0]

    asked.clear()
    silent, clock.now = 9, 0.0
    with pytest.raises(RetriableError, match="no answer"):
        broker._of_leaders(ask)
    assert asked == [FIRST_ASK_S, 3.0, 4.0]


class _Client:
    """An administrative client that answers when the test says so; the leader of a topic's one partition is known."""

    def __init__(self, answers: Sequence[Future[Any]], leader: Any = LEADER) -> None:
        self._answers = iter(answers)
        self._leader = leader
        self.asked: list[str] = []

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        self.asked.append("leaders")
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(partitions=[SimpleNamespace(id=0, leader=self._leader)]))
        return dict.fromkeys(topics.topic_names, answer)

    def list_offsets(self, request: Mapping[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        self.asked.append("offsets")
        answer = next(self._answers)
        return dict.fromkeys(request, answer)

    def poll(self, _: float) -> int:
        return 0


def test_leaders_are_found_before_they_are_asked_and_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own search for them may end the process."""
    admin, client = Admin(Kafka("localhost:1")), _Client(_answers(*range(9)))
    monkeypatch.setattr(admin.asking, "client", client)
    times = iter((1000.0, 1449.0, 1450.0))
    monkeypatch.setattr("cues_kafka.brokers.kafka.offsets.time", SimpleNamespace(monotonic=lambda: next(times)))

    for _ in range(3):
        admin.offsets.watermarks([PLACE])

    assert client.asked == ["leaders", *["offsets"] * 6, "leaders", *["offsets"] * 3]


def test_leaders_are_remembered_no_longer_than_the_client_remembers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may have it ask more often."""
    admin = Admin(Kafka("localhost:1", config={"metadata.max.age.ms": 5000}))
    client = _Client(_answers(*range(6)))
    monkeypatch.setattr(admin.asking, "client", client)
    times = iter((1000.0, 1002.5))
    monkeypatch.setattr("cues_kafka.brokers.kafka.offsets.time", SimpleNamespace(monotonic=lambda: next(times)))

    for _ in range(2):
        admin.offsets.watermarks([PLACE])

    assert client.asked.count("leaders") == 2


@pytest.mark.parametrize(
    ("leader", "partition", "code", "spent"),
    [
        (None, 0, "LEADER_NOT_AVAILABLE", False),
        (SimpleNamespace(id=-1), 0, "LEADER_NOT_AVAILABLE", False),
        (LEADER, 1, "_NOENT", True),
    ],
    ids=["none", "not known", "no partition"],
)
def test_a_partition_without_a_leader_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, leader: Any, partition: int, code: str, spent: bool
) -> None:
    """The client would search for it."""
    admin, client = Admin(Kafka("localhost:1")), _Client(_answers(1, 2, 3), leader)
    monkeypatch.setattr(admin.asking, "client", client)

    for _ in range(2):
        with pytest.raises(RetriableError, match=f"asking for the end of in/{partition}") as caught:
            admin.offsets.watermarks([PLACE._replace(partition=partition)])
        assert caught.value.code == code

    assert admin.asking.spent == spent
    assert client.asked == ["leaders"] * 2


def test_a_coordinator_that_moves_or_reads_its_log_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client passes its answer on, although it holds for a moment only."""
    admin, asked = Admin(Kafka("localhost:1")), list[str]()
    moving = KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS

    def describe(groups: Sequence[str], **_: Any) -> dict[str, Future[Any]]:
        asked.extend(groups)
        answer: Future[Any] = Future()
        if len(asked) <= len(moving):
            answer.set_exception(KafkaException(KafkaError(moving[len(asked) - 1])))
        else:
            answer.set_result(SimpleNamespace(members=[SimpleNamespace(group_instance_id=None, client_id="a")]))
        return dict.fromkeys(groups, answer)

    monkeypatch.setattr(admin.asking, "reach", lambda: None)
    monkeypatch.setattr(admin.asking, "client", SimpleNamespace(describe_consumer_groups=describe, poll=lambda _: 0))

    assert admin.members("group") == ["a"]
    assert asked == ["group"] * 3


def test_a_topic_that_only_one_broker_knows_yet_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that met it on three nodes was refused: its user may not read the settings. It may; they come later."""
    admin = Admin(Kafka("localhost:1"))
    errors = {"made-just-now": KafkaError.UNKNOWN_TOPIC_OR_PART, "hidden": KafkaError.TOPIC_AUTHORIZATION_FAILED}

    def settings(resources: Sequence[Any], **_: Any) -> dict[Any, Future[Any]]:
        answers = {resource: Future[Any]() for resource in resources}
        for resource, answer in answers.items():
            if (code := errors.get(resource.name)) is not None:
                answer.set_exception(KafkaException(KafkaError(code)))
            else:
                answer.set_result({"cleanup.policy": SimpleNamespace(value="delete")})
        return answers

    topic_id = SimpleNamespace(get_most_significant_bits=lambda: 1, get_least_significant_bits=lambda: 2)
    described = SimpleNamespace(topic_id=topic_id, partitions=[SimpleNamespace(replicas=[1, 2, 3])])
    monkeypatch.setattr(admin.asking, "reach", lambda: 3)
    monkeypatch.setattr(admin, "_describe", lambda topics: dict.fromkeys(topics, described))
    monkeypatch.setattr(admin.asking, "client", SimpleNamespace(describe_configs=settings, poll=lambda _: 0))

    facts = admin.facts(["known", "made-just-now", "hidden"])

    assert {topic: dict(found.config) for topic, found in facts.topics.items()} == {
        "known": {"cleanup.policy": "delete"},
        "hidden": {},
    }
    assert facts.unchecked == ("hidden",)


class Choosy:
    """
    A client of a cluster whose topics may have a few settings only.

    Attributes:
        refused: settings that nothing may set.
        code: how it refuses.
        created: the settings of each topic that is there.
    """

    def __init__(self, refused: set[str], code: int) -> None:
        self.refused, self.code = refused, code
        self.created: dict[str, dict[str, str]] = {}
        self.asked = 0

    def create_topics(self, topics: Sequence[Any], **_: Any) -> dict[str, Future[None]]:
        self.asked += 1
        answers = {}
        for topic in topics:
            answers[topic.topic] = answer = Future[None]()
            if wrong := sorted(self.refused & topic.config.keys()):
                answer.set_exception(KafkaException(KafkaError(self.code, f"{wrong[0]} is not allowed")))
            else:
                self.created[topic.topic] = dict(topic.config)
                answer.set_result(None)
        return answers

    def poll(self, _: float) -> int:
        return 0


def choosy(monkeypatch: pytest.MonkeyPatch, refused: set[str], code: int) -> tuple[Admin, Choosy]:
    """An admin with such a client."""
    admin, client = Admin(Kafka("localhost:1")), Choosy(refused, code)
    monkeypatch.setattr(admin.asking, "client", client)
    monkeypatch.setattr(admin.asking, "reach", lambda: 3)
    monkeypatch.setattr(admin, "_all_led", lambda _: True)
    return admin, client


@pytest.mark.parametrize("code", [KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG])
def test_a_setting_that_the_cluster_keeps_to_itself_is_left_out_and_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """As managed clusters do with the size of segments; the topic that needs nothing is created once."""
    admin, client = choosy(monkeypatch, {"segment.bytes"}, code)
    config = {"cleanup.policy": "compact", "segment.bytes": "1", "min.insync.replicas": "2"}

    admin.create(
        [NewTopic("kept", 1, config=config, may_lack=("segment.bytes", "min.insync.replicas")), NewTopic("in", 1)]
    )

    assert client.created == {"in": {}, "kept": {"cleanup.policy": "compact", "min.insync.replicas": "2"}}
    assert client.asked == 2
    [line] = [record.getMessage() for record in caplog.records if "setting left to the cluster" in record.getMessage()]
    assert "topic='kept'" in line
    assert "setting='segment.bytes'" in line
    assert "segment.bytes is not allowed" in line


def test_settings_are_left_out_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the cluster takes the rest."""
    admin, client = choosy(monkeypatch, {"b", "c"}, KafkaError.POLICY_VIOLATION)

    admin.create([NewTopic("kept", 1, config={"a": "1", "b": "2", "c": "3"}, may_lack=("b", "c"))])

    assert client.created == {"kept": {"a": "1"}}


class Refusing(Choosy):
    """A client of a cluster that gives one answer to each topic."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(set(), 0)
        self.error = error

    def create_topics(self, topics: Sequence[Any], **_: Any) -> dict[str, Future[None]]:
        self.asked += 1
        answers = {topic.topic: Future[None]() for topic in topics}
        for answer in answers.values():
            answer.set_exception(KafkaException(self.error))
        return answers


POLICY, REQUEST, CONFIG = KafkaError.POLICY_VIOLATION, KafkaError.INVALID_REQUEST, KafkaError.INVALID_CONFIG


@pytest.mark.parametrize(
    ("code", "text", "left_out"),
    [
        (POLICY, "Topic replication factor must be 3", []),
        (POLICY, "the name team-config.backing does not begin with a team", []),
        (POLICY, "Too many partitions; the limit of this cluster is 4000", []),
        (POLICY, "You may not create the topic team-config.backing", []),
        (REQUEST, None, []),
        (REQUEST, "Topic creation is disabled while the cluster moves", []),
        (CONFIG, "Invalid value x for configuration cleanup.policy: String must be one of: compact, delete", []),
        (POLICY, "Config property 'cleanup.policy' with value 'compact' is not allowed", []),
        (CONFIG, "Invalid value 1 for configuration segment.bytes.max", ["segment.bytes", "min.insync.replicas"]),
        (POLICY, "Config property 'segment.bytes' with value '1' exceeded min limit of 52428800.", ["segment.bytes"]),
        (REQUEST, "min.insync.replicas cannot be set on this cluster", ["min.insync.replicas"]),
        (CONFIG, "Unknown topic config name: log.segment.bytes", ["segment.bytes"]),
        (POLICY, None, ["segment.bytes", "min.insync.replicas"]),
        (CONFIG, None, ["segment.bytes", "min.insync.replicas"]),
        (POLICY, "These settings are not for users", ["segment.bytes", "min.insync.replicas"]),
        (REQUEST, "Custom topic configs are not supported", ["segment.bytes", "min.insync.replicas"]),
    ],
)
def test_only_a_refusal_of_a_setting_leaves_it_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int, text: str | None, left_out: list[str]
) -> None:
    """
    Where the answer names it, or settings in general.

    The answers are as they were given by Kafka and by services. Where the cause was another one, settings were dropped
    one by one, each with a log line, and a later try that succeeded made the topic without them.
    """
    client = Refusing(KafkaError(code, text) if text else KafkaError(code))
    admin, _ = choosy(monkeypatch, set(), code)
    monkeypatch.setattr(admin.asking, "client", client)
    config = {"cleanup.policy": "compact", "segment.bytes": "1", "min.insync.replicas": "2"}
    topic = NewTopic("team-config.backing", 1, config=config, may_lack=("segment.bytes", "min.insync.replicas"))

    with pytest.raises(FatalError, match=r"creating topic team-config\.backing"):
        admin.create([topic])

    found = [one for record in caplog.records for one in topic.may_lack if f"setting='{one}'" in record.getMessage()]
    assert found == left_out
    assert client.asked == len(left_out) + 1


def test_a_setting_that_a_topic_needs_is_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without compaction a task would not find its record; and what a user declares is not ours to drop."""
    admin, client = choosy(monkeypatch, {"cleanup.policy"}, KafkaError.POLICY_VIOLATION)
    config = {"cleanup.policy": "compact", "segment.bytes": "1"}

    with pytest.raises(FatalError, match=r"creating topic kept: .*cleanup\.policy is not allowed"):
        admin.create([NewTopic("kept", 1, config=config, may_lack=("segment.bytes",))])

    assert client.created == {}
