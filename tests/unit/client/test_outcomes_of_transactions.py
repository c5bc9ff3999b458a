"""What a client knows of its transactions when requests fail, and replies are lost (K1, K2, K3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cues_kafka import AbortableError, ConfigError, FatalError, Memory, RetriableError, Unknown, connect
from cues_kafka.brokers.memory import Faults, MemoryBroker
from cues_kafka.brokers.memory.clients import MemorySession
from cues_kafka.client.connect import Connection
from cues_kafka.ports.clients import FlushReport
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Outgoing


class Trouble(Faults):
    """Fails requests of one client, as the plan says: (operation, moment) in order; others pass."""

    def __init__(self) -> None:
        self.plan: list[tuple[str, str]] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.client = "one.send"

    def before(self, operation: str, client: str) -> None:
        self._fail(operation, "before", client)

    def after(self, operation: str, client: str) -> str | None:
        self._fail(operation, "after", client)
        if self.plan[:1] == [(operation, "suspect")] and client == self.client:
            self.plan.pop(0)
            return "it took long"
        return None

    def _fail(self, operation: str, moment: str, client: str) -> None:
        if client == self.client and self.plan[:1] == [(operation, moment)]:
            self.plan.pop(0)
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()
            raise RetriableError(f"{operation} failed", code="_MSG_TIMED_OUT")


@pytest.fixture
def trouble() -> Trouble:
    return Trouble()


@pytest.fixture
def cluster(trouble: Trouble) -> Memory:
    memory = Memory()
    broker = MemoryBroker(faults=trouble)
    broker.create([NewTopic("t", 2), NewTopic("u", 1)])
    memory.held.append(broker)
    return memory


def values(client: Connection, topic: str = "t") -> list[Any]:
    return sorted(message.value for message in client.messages(topic))


@pytest.mark.parametrize(
    "plan",
    [
        [("produce", "before")],
        [("produce", "after")],
        [("commit", "before")],
        [("commit", "after")],
        [("commit", "suspect")],
        [("commit", "before"), ("init", "before"), ("commit", "after")],
        [("produce", "before"), ("commit", "before"), ("commit", "after")],
        [("commit", "before"), ("abort", "before"), ("commit", "before")],
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_message_with_an_id_is_written_once_whatever_fails(
    cluster: Memory, trouble: Trouble, plan: list[tuple[str, str]], named: bool
) -> None:
    """What is certainly not committed is written again; what is committed is found."""
    with connect(cluster, name="one" if named else None) as client:
        trouble.client = "one.send" if named else f"t.send.{client._handles.name}"
        trouble.plan = list(plan)
        if ("init", "before") in plan:
            with pytest.raises(Unknown, match=r"cannot read the log .*: init failed.*first message is at t/"):
                client.send("t", 0, id="a")
        else:
            sent = client.send("t", 0, id="a")
            assert [(m.partition, m.offset) for m in client.messages("t")] == [(sent.partition, sent.offset)]
            assert trouble.plan == []
        trouble.plan = []
        client.send("t", 1, id="b")
        assert client.send_many("t", [2, 3]) == 2
        assert values(client)[-3:] == [1, 2, 3]


def test_after_the_last_round_nothing_is_written(cluster: Memory, trouble: Trouble) -> None:
    """And the error says so."""
    with connect(cluster, name="one") as client:
        trouble.plan = [("commit", "before")] * 3
        with pytest.raises(RetriableError, match="commit failed; nothing of this transaction is written"):
            client.send_many("t", [1, 2])
        assert values(client) == []
        assert trouble.plan == []


def test_what_a_topic_refuses_is_not_tried_again(cluster: Memory, trouble: Trouble) -> None:
    """Each attempt would meet the same refusal."""
    broker = cluster.held[0]
    with connect(cluster, name="one") as client:
        client.send("u", 1, id="x")
        broker.delete(["u"])
        trouble.plan = [("never", "before")]
        with pytest.raises(AbortableError, match="u/0 does not exist; nothing of this transaction is written"):
            client.send("u", 2, id="y")


@pytest.mark.parametrize("failing", [("produce", "before"), ("commit", "before")])
def test_a_run_that_was_replaced_while_it_stood_still_writes_nothing(
    cluster: Memory, trouble: Trouble, failing: tuple[str, str]
) -> None:
    """It meets a time-out before it hears that it is fenced; the newer run goes on."""
    with connect(cluster, name="one") as old:
        newer: list[Connection] = []
        trouble.plan = [failing]

        def replace() -> None:
            newer.append(connect(cluster, name="one"))
            assert newer[0].sent("t", "a") is None
            newer[0].send("t", "newer", id="a")

        trouble.meanwhile = replace
        with pytest.raises(FatalError, match="'one' was opened by another"):
            old.send("t", "old", id="a")
        newer[0].send("t", "newer", id="b")
        with pytest.raises(FatalError, match="can no longer write"):
            old.send("t", "old", id="b")
        with pytest.raises(FatalError, match="can no longer write"):
            old.sent("t", "b")
        assert newer[0].sent("t", "b") is not None
        assert values(newer[0]) == ["newer", "newer"]
        newer[0].close()


def test_a_commit_whose_reply_was_lost_to_a_newer_run_is_known(cluster: Memory, trouble: Trouble) -> None:
    """It was committed before the newer run took the id."""
    with connect(cluster, name="one") as old:
        newer: list[Connection] = []
        trouble.plan = [("commit", "after")]
        trouble.meanwhile = lambda: newer.append(connect(cluster, name="one"))
        sent = old.send("t", "old", id="a")
        assert newer[0].sent("t", "a") == sent
        newer[0].close()


@pytest.mark.parametrize(
    "plan",
    [
        [("offsets", "before")],
        [("produce", "after")],
        [("commit", "before")],
        [("commit", "after")],
        [("commit", "before"), ("commit", "after")],
    ],
)
def test_a_tailer_processes_each_message_once_whatever_fails(
    cluster: Memory, trouble: Trouble, plan: list[tuple[str, str]]
) -> None:
    """The newest place says whether the transaction is committed."""
    with connect(cluster, name="one") as client:
        trouble.client = "one.tailer.copy"
        for number in range(3):
            client.send("u", number)
        with client.topic("u").tailer(name="copy") as tailer:
            trouble.plan = list(plan)
            for message in tailer.messages():
                with client.transaction() as tx:
                    tx.append("t", message.value)
                    tx.advance(tailer)
        assert values(client) == [0, 1, 2]
        assert trouble.plan == []


def test_a_tailer_whose_commit_fails_stands_at_its_place_again(cluster: Memory, trouble: Trouble) -> None:
    """The same message comes again, and is committed once."""
    with connect(cluster, name="one") as client:
        trouble.client = "one.tailer.copy"
        client.send("u", 7)
        tailer = client.topic("u").tailer(name="copy")

        def step() -> None:
            with client.transaction() as tx:
                tx.append("t", tailer.read().value)  # type: ignore[union-attr]
                tx.advance(tailer)

        trouble.plan = [("commit", "before")] * 3
        with pytest.raises(RetriableError, match="tailer 'copy' of client 'one': commit failed; nothing"):
            step()
        assert (tailer.offset, values(client)) == (0, [])
        step()
        assert (tailer.read(), values(client)) == (None, [7])


def test_a_tailer_that_was_taken_over_while_it_stood_still_commits_nothing(cluster: Memory, trouble: Trouble) -> None:
    """Also where the new holder has not moved yet."""
    with connect(cluster, name="one") as client:
        trouble.client = "one.tailer.copy"
        client.send("u", 7)
        tailer = client.topic("u").tailer(name="copy")
        later = connect(cluster, name="one")
        taken: list[Any] = []
        trouble.plan = [("commit", "before")]
        trouble.meanwhile = lambda: taken.append(later.topic("u").tailer(name="copy"))
        tx = client.transaction()
        tx.append("t", tailer.read().value)  # type: ignore[union-attr]
        tx.advance(tailer)
        with pytest.raises(FatalError, match="tailer 'copy' of client 'one' was opened by another"):
            tx.commit()
        with later.transaction() as tx:
            tx.append("t", taken[0].read().value)
            tx.advance(taken[0])
        assert values(later) == [7]
        later.close()


@pytest.mark.parametrize("plan", [[("commit", "before")], [("commit", "after")], [("produce", "before")]])
@pytest.mark.parametrize("client", ["one.send", "one.tailer.copy"])
def test_an_id_is_taken_whatever_fails(
    cluster: Memory, trouble: Trouble, client: str, plan: list[tuple[str, str]]
) -> None:
    """At the first opening, and where an earlier run has left its record."""
    trouble.client = client
    for _ in range(2):
        trouble.plan = list(plan)
        with connect(cluster, name="one") as one, one.topic("u").tailer(name="copy", start="latest") as tailer:
            assert tailer.read() is None
            assert trouble.plan == []
            one.send("t", 1, id="x")
            with one.transaction() as tx:
                tx.advance(tailer)


def test_small_batches_are_flushed_one_by_one() -> None:
    """A topic refuses a batch above its limit as a whole, and the client makes batches up to its own."""
    memory = Memory()
    broker = MemoryBroker()
    broker.create([NewTopic("narrow", 1, config={"max.message.bytes": "5000"})])
    memory.held.append(broker)
    with connect(memory) as client:
        assert client.send_many("narrow", ["x" * 1000] * 20) == 20
        [writer] = client._handles._writers.values()
        tx = client.transaction()
        for _ in range(9):
            tx.append("narrow", "x" * 1000)
        runs = [len(run) for run in writer._batches(tx._records, 5000)]
        assert runs == [4, 4, 1]


def test_transaction_whose_first_place_is_not_reported_is_written_again(
    cluster: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that place nothing could tell whether it is committed, so it must not be committed; it is there once."""
    flush, reports = MemorySession.flush, [False]

    def first_is_silent(session: MemorySession) -> FlushReport:
        report = flush(session)
        return report if not reports or reports.pop() else FlushReport(report.delivered, None)

    monkeypatch.setattr(MemorySession, "flush", first_is_silent)
    with connect(cluster, name="one") as client:
        client.send("t", 0, id="a")
        assert values(client) == [0]
        reports += [False] * 100
        with pytest.raises(RetriableError, match="did not say where the first one is; nothing of this transaction is"):
            client.send("t", 1, id="b")
        reports.clear()
        assert values(client) == [0]


def test_first_record_without_a_partition_is_refused_before_anything_is_written(cluster: Memory) -> None:
    """Its place says later whether a commit without an answer has succeeded."""
    with connect(cluster, name="one") as client:
        writer = client._handles.writer("t")
        with pytest.raises(ConfigError, match="first message of a transaction, to 't', has neither a key nor"):
            writer.write([Outgoing("t", None, b"k", b"1")])
        assert values(client) == []
