"""A membership gives partitions back in the order that keeps two owners apart; without a cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from cues_kafka import FatalError, Kafka
from cues_kafka.brokers.kafka import member as kafka_member
from cues_kafka.brokers.kafka.member import KafkaMember
from cues_kafka.brokers.kafka.watch import Watch
from cues_kafka.errors import LoginError, RetriableError

Assignor = Literal["cooperative-sticky", "range"]


class Heard:
    """A listener and a client's consumer in one: keeps what it is told, in order."""

    def __init__(self, *, fails: bool = False) -> None:
        self.calls: list[Any] = []
        self._fails = fails

    def on_assign(self, partitions: Sequence[int]) -> None:
        """Tasks begin."""
        self.calls.append(("assign", list(partitions)))

    def on_revoke(self, partitions: Sequence[int]) -> None:
        """Tasks end in order."""
        self.calls.append(("revoke", list(partitions)))
        if self._fails:
            raise RuntimeError("a task did not end")

    def on_lost(self, partitions: Sequence[int]) -> None:
        """Tasks end at once."""
        self.calls.append(("lost", list(partitions)))

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, *args))


ACKNOWLEDGED: dict[str, tuple[Any, ...]] = {"cooperative-sticky": ("incremental_unassign", []), "range": ("unassign",)}


def holding(heard: Heard, assignor: Assignor) -> KafkaMember:
    """A member of partitions 0 and 1; no broker listens at its address."""
    member = KafkaMember(Kafka("127.0.0.1:1", assignor=assignor), "g", "t", heard)
    member._assign(heard, [ClientPartition("t", 0), ClientPartition("t", 1)])  # type: ignore[arg-type]
    heard.calls.clear()
    return member


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
@pytest.mark.parametrize("how", ["revoke", "lost"])
def test_tasks_end_before_their_partitions_are_given_back(assignor: Assignor, how: str) -> None:
    """The next owner begins with the acknowledgement: it would find a task that is still committing."""
    heard = Heard()
    member = holding(heard, assignor)
    take = member._revoke if how == "revoke" else member._lose

    take(heard, [ClientPartition("t", 1)])  # type: ignore[arg-type]

    assert heard.calls == [(how, [1]), ACKNOWLEDGED[assignor]]


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_partitions_are_given_back_even_if_a_task_does_not_end(assignor: Assignor) -> None:
    """The group would wait for the acknowledgement without end."""
    heard = Heard(fails=True)
    member = holding(heard, assignor)

    with pytest.raises(RuntimeError, match="did not end"):
        member._revoke(heard, [ClientPartition("t", 0)])  # type: ignore[arg-type]

    assert heard.calls == [("revoke", [0]), ACKNOWLEDGED[assignor]]


class Refused(Heard):
    """A consumer of the client that failed because the brokers refused it."""

    generation = 0
    """As of a member that was not let in (M33)."""

    unable = False
    """It cannot ask."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def subscribe(self, topics: Sequence[str], **_: Any) -> None:
        """It asks to be let in."""
        if self.unable:
            raise KafkaException(KafkaError(KafkaError._FATAL, "no subscription"))

    def poll(self, _: float) -> Any:
        """The client's fatal error comes as a message."""
        problem = KafkaError(KafkaError._FATAL, f"Fatal error: Broker: {self._text}")
        return SimpleNamespace(error=lambda: problem)

    def consumer_group_metadata(self) -> bytes:
        """The form of librdkafka (M8)."""
        return b"CGMDv2:" + self.generation.to_bytes(4, sys.byteorder, signed=True) + b"g\x00m\x00\x00"


def of_the_consumer_protocol(monkeypatch: pytest.MonkeyPatch, text: str) -> tuple[KafkaMember, list[Refused]]:
    """A member whose clients are all refused with this text, and its clients."""
    made: list[Refused] = []

    def make(_: Watch, kind: object, settings: object) -> Refused:
        made.append(Refused(text))
        return made[-1]

    monkeypatch.setattr(Watch, "open", make)
    options = Kafka("127.0.0.1:1", group_protocol="consumer")
    return KafkaMember(options, "g", "t", Heard(), instance="w.1"), made


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_proof_is_given_again_until_a_rebalance_or_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, protocol: Literal["classic", "consumer"]
) -> None:
    """Asking waits for a thread of the client; but a proof of an old generation would be refused (P5)."""
    client, heard = Refused(""), Heard()
    monkeypatch.setattr(Watch, "open", lambda *_: client)
    member = KafkaMember(Kafka("127.0.0.1:1", group_protocol=protocol), "g", "t", heard)
    partitions = [ClientPartition("t", 0), ClientPartition("t", 1)]
    seen: list[int] = []
    monkeypatch.setattr(heard, "on_revoke", lambda _: seen.append(member.metadata().generation))

    def generation_after(number: int, step: Any) -> int:
        client.generation = number
        step()
        return member.metadata().generation

    def pass_time() -> None:
        if member._proof is not None:
            member._proof = (member._proof[0] - kafka_member.PROOF_S, member._proof[1])

    assert generation_after(-1, lambda: None) == -1
    assert generation_after(3, lambda: None) == 3
    kept = protocol == "classic"  # `consumer` has no callback for a new epoch
    assert generation_after(4, lambda: None) == (3 if kept else 4)
    assert generation_after(5, lambda: member._assign(client, partitions)) == 5  # type: ignore[arg-type]
    assert generation_after(6, lambda: member._revoke(client, partitions[:1])) == 6  # type: ignore[arg-type]
    assert seen == [6]
    assert generation_after(7, lambda: member._lose(client, partitions)) == 7  # type: ignore[arg-type]
    assert generation_after(8, member.rejoin) == 8
    assert generation_after(9, pass_time) == 9


def test_a_member_whose_place_is_taken_asks_again_with_another_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A4: not at each poll. The group has not let it in, so it proves nothing (P5)."""
    member, made = of_the_consumer_protocol(monkeypatch, "The instance ID is still used by another member")
    member.poll()
    member.poll()
    assert len(made) == 1
    assert member.metadata().generation == -1

    monkeypatch.setattr(kafka_member, "ASK_AGAIN_S", 0.0)
    member.poll()

    assert len(made) == 2
    assert ("close",) in made[0].calls


def test_a_member_of_a_group_that_is_not_converted_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """M31: asking again would not help."""
    member, _ = of_the_consumer_protocol(monkeypatch, "The group id does not exist")

    with pytest.raises(FatalError, match="stop all of its workers with SIGTERM") as refused:
        member.poll()

    assert refused.value.code == "GROUP_ID_NOT_FOUND"


def test_a_member_that_lost_a_right_gives_everything_back_and_asks_again_with_another_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client of a refused member asks again without end, or has failed for good. Until then it proves nothing."""
    member, made = of_the_consumer_protocol(monkeypatch, "Group authorization failed")
    heard = member._listener
    assert isinstance(heard, Heard)
    member._assign(heard, [ClientPartition("t", 0)])  # type: ignore[arg-type]
    committed: list[str] = []
    member._commits.append(({}, committed.append))

    with pytest.raises(
        FatalError,
        match=r"may not read group `g`.*kafka-acls --bootstrap-server 127.0.0.1:1 --add .*--operation Read --group g",
    ) as one:
        member.poll()

    assert one.value.forbidden
    assert heard.calls[-1] == ("revoke", [0])
    assert made[0].calls == [("close",)]
    member.commit({}, committed.append)
    assert committed == 2 * [kafka_member._OUT]
    assert member.metadata().generation == -1
    member.rejoin()
    member.poll()
    assert len(made) == 1
    monkeypatch.setattr(kafka_member, "ASK_AGAIN_S", 0.0)
    with pytest.raises(FatalError, match="may not read group"):
        member.poll()
    member.close(leave=True)
    assert [one.calls for one in made] == 2 * [[("close",)]]


def test_a_member_without_a_right_at_its_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client stays open for the owner to close."""
    member, made = of_the_consumer_protocol(monkeypatch, "Group authorization failed")

    with pytest.raises(FatalError, match="may not read group `g`"):
        member.poll()

    assert made[0].calls == []
    member.close(leave=True)
    assert made[0].calls[-1] == ("close",)


def test_a_member_without_partitions_that_lost_a_right_asks_again_with_another_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The protocol `consumer` tells a member of no assignment if other members have all partitions."""
    monkeypatch.setattr(kafka_member, "ASK_AGAIN_S", 0.0)
    member, made = of_the_consumer_protocol(monkeypatch, "Group authorization failed")
    made[0].generation = 3
    assert member.metadata().generation == 3

    with pytest.raises(FatalError, match="may not read group `g`"):
        member.poll()

    assert made[0].calls == [("close",)]
    assert member.metadata().generation == -1
    with pytest.raises(FatalError, match="may not read group `g`"):
        member.poll()
    assert len(made) == 2


def test_a_member_that_cannot_open_another_client_tries_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What gives tokens may be away, or a file with a login. The worker must not end for it."""
    member, made = of_the_consumer_protocol(monkeypatch, "Group authorization failed")
    made[0].generation = 3
    member.metadata()
    with pytest.raises(FatalError, match="may not read group `g`"):
        member.poll()
    monkeypatch.setattr(kafka_member, "ASK_AGAIN_S", 0.0)
    opens = Watch.open
    problems = [
        RetriableError("oauth: f gave no token"),
        LoginError("oauth: f gave an expired token"),
        KafkaException(KafkaError(KafkaError._FAIL, "no thread")),
    ]

    def fail(*_: object) -> None:
        raise problems.pop()

    monkeypatch.setattr(Watch, "open", fail)
    for _ in range(3):
        member.poll()

    assert (problems, len(made)) == ([], 1)
    assert member.metadata().generation == -1
    assert "member of g: no client to ask the group again: oauth: f gave no token" in caplog.messages
    monkeypatch.setattr(Watch, "open", opens)
    monkeypatch.setattr(Refused, "unable", True)
    member.poll()
    assert made[1].calls == [("close",)]
    assert member.metadata().generation == -1
    monkeypatch.setattr(Refused, "unable", False)
    with pytest.raises(FatalError, match="may not read group `g`"):
        member.poll()
    assert len(made) == 3
    member.close(leave=True)


def test_a_failed_attempt_to_open_another_client_is_repeated_a_second_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker polls 20 times a second, and what gives tokens would be asked as often."""
    member, made = of_the_consumer_protocol(monkeypatch, "Group authorization failed")
    made[0].generation = 3
    member.metadata()
    with pytest.raises(FatalError, match="may not read group `g`"):
        member.poll()
    monkeypatch.setattr(Refused, "unable", True)
    assert member._refused_s is not None
    member._refused_s -= kafka_member.ASK_AGAIN_S

    member.poll()
    member.poll()

    assert len(made) == 2


def test_a_member_that_cannot_subscribe_at_its_start_closes_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner does not get it, and could not close it."""
    monkeypatch.setattr(Refused, "unable", True)
    client = Refused("")
    monkeypatch.setattr(Watch, "open", lambda *_: client)

    with pytest.raises(KafkaException, match="no subscription"):
        KafkaMember(Kafka("127.0.0.1:1"), "g", "t", Heard())

    assert client.calls == [("close",)]


def test_a_member_that_steps_back_closes_its_client_even_if_a_task_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else would close it, and a start would wait for the answer to its commit for 30 s."""
    member, made = of_the_consumer_protocol(monkeypatch, "Group authorization failed")
    member._listener = heard = Heard(fails=True)
    member._assign(heard, [ClientPartition("t", 0)])  # type: ignore[arg-type]
    committed: list[str] = []
    member._commits.append(({}, committed.append))

    with pytest.raises(RuntimeError, match="did not end"):
        member.poll()

    assert committed == [kafka_member._OUT]
    assert made[0].calls == [("close",)]


@pytest.mark.parametrize("fails", ["poll", "listener", "both"])
def test_a_member_that_leaves_gives_back_and_closes_its_client_whatever_fails(
    monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """An open client would keep its place in the group, and a task that was not told would go on."""
    client, heard = Refused(""), Heard(fails=fails != "poll")
    monkeypatch.setattr(Watch, "open", lambda *_: client)
    member = KafkaMember(Kafka("127.0.0.1:1"), "g", "t", heard)
    member._assign(client, [ClientPartition("t", 0)])  # type: ignore[arg-type]
    heard.calls.clear()

    def poll(_: float) -> None:
        if fails != "listener":
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "the broker is away"))
        member._revoke(client, [ClientPartition("t", 0)])  # type: ignore[arg-type]

    monkeypatch.setattr(client, "poll", poll)
    with pytest.raises(RetriableError if fails == "poll" else RuntimeError):
        member.close(leave=True)

    assert heard.calls == [("revoke", [0])]
    assert client.calls[-1] == ("close",)
