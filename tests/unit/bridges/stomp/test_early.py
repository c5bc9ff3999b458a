"""E1: messages that a broker gets while the function is still called, in the transaction of their batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from contextvars import copy_context
from typing import Any

import pytest

from cues_kafka import CommitPolicy, Graph, Message, Processor, RetriableError, Source, Stomp, Topic
from cues_kafka.bridges.stomp import client
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks import writes
from cues_kafka.sinks.lookup import open_target
from cues_kafka.testing.tester import Tester
from tests.unit.bridges.stomp import test_target
from tests.unit.bridges.stomp.broker import FakeBroker, fake_broker

QUEUE = {"ActiveMQ/5.17.2": "/queue/out", "ActiveMQ-Artemis/2.44.0": "out"}
WAIT_S = 20.0
MESSAGES = 12
FAILED = 7
"""The number whose call fails behind its writes."""

EXPECTED = [str(n).encode() for number in range(MESSAGES) for n in (number, number + 100) if number != FAILED]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second message is sent on, with the one before it."""
    monkeypatch.setattr(writes, "EARLY", 2)
    monkeypatch.setattr(client, "TOGETHER_BYTES", 1)


@pytest.fixture(params=[*QUEUE])
def broker(request: pytest.FixtureRequest) -> Iterator[FakeBroker]:
    """Each kind of broker."""
    with fake_broker() as made:
        made.connected["server"] = request.param
        yield made


def stomp(broker: FakeBroker, timeout_s: float = 5.0) -> Stomp:
    """A declaration with short times."""
    return Stomp(f"stomp://127.0.0.1:{broker.port}", heart_beat_s=1.0, timeout_s=timeout_s)


def bodies(broker: FakeBroker) -> list[bytes]:
    """What consumers see."""
    with broker.lock:
        return [one.body for one in broker.queues.get(QUEUE[broker.connected["server"]], ())]


def sent(broker: FakeBroker) -> list[str]:
    """The frames of transactions, in short."""
    with broker.lock:
        return [
            one.body.decode() if one.command == "SEND" else one.command
            for one in broker.seen
            if "transaction" in one.headers and one.headers.get("destination", "out").endswith("out")
        ]


def target_of(broker: FakeBroker, timeout_s: float = 5.0) -> Any:
    """The target of a task that has asked."""
    target = open_target({"out": stomp(broker, timeout_s).to_queue("out")}, "g", "p", 0)
    assert target.ask(1, 0) is None
    return target


def step(target: Any, *texts: str) -> None:
    """A call that writes these."""
    target.mark()
    for text in texts:
        target.values["out"].send(text)


def test_broker_has_messages_before_the_call_ends_and_shows_them_after_the_commit(broker: FakeBroker) -> None:
    """Those that were not enough to be sent on come with the marker."""
    target = target_of(broker)
    target.begin_batch(1, 0)
    step(target, "0", "1", "2")
    with broker.news:
        assert broker.news.wait_for(lambda: sent(broker)[-1:] == ["1"], WAIT_S)
    assert bodies(broker) == []
    target.rest()
    target.commit(HeldAttempt(0, 1, 1, ""), ())
    assert bodies(broker) == [b"0", b"1", b"2"]
    behind = ["BEGIN", "COMMIT"] if broker.connected["server"] == "ActiveMQ/5.17.2" else ["COMMIT"]
    assert [one for one in sent(broker) if one != "ACK"][-3 - len(behind) :] == ["0", "1", "2", *behind]
    target.close()


def test_commit_waits_for_the_receipt_of_all_that_was_sent(broker: FakeBroker) -> None:
    """Of Classic that of the next BEGIN, which costs no wait for a disk; of Artemis that of the marker."""
    target = target_of(broker, timeout_s=0.5)
    broker.deaf = {"BEGIN" if broker.connected["server"] == "ActiveMQ/5.17.2" else "SEND"}
    target.begin_batch(1, 0)
    step(target, "0", "1")
    target.rest()
    commits = sent(broker).count("COMMIT")
    with pytest.raises(RetriableError, match="did not answer in time"):
        target.commit(HeldAttempt(0, 1, 1, ""), ())
    assert sent(broker).count("COMMIT") == commits
    assert bodies(broker) == []
    target.close()


def commit_part(target: Any, held: HeldAttempt) -> None:
    """Start a commit, and wait for it. Where an ERROR has come before, the start raises it."""
    target.start_commit(held)
    target.finish_commit()


def turn_of(broker: FakeBroker) -> str:
    """The frame whose receipt lets the COMMIT go."""
    return "BEGIN" if broker.connected["server"] == "ActiveMQ/5.17.2" else "SEND"


def test_messages_of_the_next_part_are_sent_while_the_commit_of_the_one_before_is_under_way(broker: FakeBroker) -> None:
    """The COMMIT is sent when the broker has answered that it has all messages; the task does not wait for that."""
    target = target_of(broker)
    commits = sent(broker).count("COMMIT")
    target.begin_batch(1, 0)
    broker.deaf = {"COMMIT"}
    step(target, "0", "1")
    target.rest()
    target.start_commit(HeldAttempt(0, 1, 1, ""))
    target.begin_batch(1, 1)
    step(target, "2", "3")
    with broker.news:
        assert broker.news.wait_for(lambda: sent(broker).count("COMMIT") > commits and "3" in sent(broker), WAIT_S)
    assert bodies(broker) == []
    target.close()


@pytest.mark.parametrize("last", [False, True])
def test_parts_are_committed_in_their_order(last: bool, broker: FakeBroker) -> None:
    """Each over the bytes of the one before, also where a question or a whole commit comes behind them."""
    target = target_of(broker)
    for number in range(4):
        target.begin_batch(1, number)
        step(target, f"{number}", f"{number} too")
        target.rest()
        held = HeldAttempt(0, number + 1, 1, "")
        if last and number == 3:
            target.commit(held, ())
        else:
            target.start_commit(held)
    newest = target.ask(1, 0)
    assert newest is not None
    assert newest.step == 4
    assert bodies(broker) == [text.encode() for number in range(4) for text in (f"{number}", f"{number} too")]
    target.close()


def test_commit_under_way_is_not_sent_without_the_answer_to_all_messages(broker: FakeBroker) -> None:
    """The task learns of it before Kafka's transaction, and asks on another connection."""
    target = target_of(broker, timeout_s=0.5)
    broker.deaf = {turn_of(broker)}
    target.begin_batch(1, 0)
    step(target, "0", "1")
    target.rest()
    commits = sent(broker).count("COMMIT")
    target.start_commit(HeldAttempt(0, 1, 1, ""))
    with pytest.raises(RetriableError, match="did not answer in time"):
        target.finish_commit()
    assert sent(broker).count("COMMIT") == commits
    assert bodies(broker) == []
    with pytest.raises(RetriableError, match="connection was closed before"):
        target.finish_commit()
    broker.deaf = set()
    held = target.ask(1, 0)
    assert held is not None
    assert held.step == 0
    target.finish_commit()
    target.close()


def test_refused_message_keeps_a_commit_under_way_from_being_sent(broker: FakeBroker) -> None:
    """ActiveMQ Classic goes on behind it, and would commit the others."""
    broker.refused = {b"1"}
    target = target_of(broker)
    target.begin_batch(1, 0)
    step(target, "0", "1")
    target.rest()
    commits = sent(broker).count("COMMIT")
    with pytest.raises(RetriableError, match="not this one"):
        commit_part(target, HeldAttempt(0, 1, 1, ""))
    assert sent(broker).count("COMMIT") == commits
    assert bodies(broker) == []
    target.close()


def test_step_of_the_next_part_is_taken_back_and_the_commit_under_way_stays(broker: FakeBroker) -> None:
    """They are two transactions."""
    target = target_of(broker)
    target.begin_batch(1, 0)
    step(target, "0", "1")
    target.rest()
    target.start_commit(HeldAttempt(0, 1, 1, ""))
    target.begin_batch(1, 1)
    step(target, "void 0", "void 1")
    target.back()
    step(target, "2", "3")
    target.rest()
    target.commit(HeldAttempt(0, 2, 1, ""), ())
    assert bodies(broker) == [b"0", b"1", b"2", b"3"]
    target.close()


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_step_is_taken_back_wherever_the_messages_were_sent_on(before: int, broker: FakeBroker) -> None:
    """The transaction begins again, and has what came before the step."""
    target = target_of(broker)
    target.begin_batch(1, 0)
    for number in range(before):
        step(target, f"before {number}")
        target.rest()
    step(target, "void 0", "void 1", "void 2")
    target.back()
    step(target, "behind 0", "behind 1")
    target.rest()
    target.commit(HeldAttempt(0, before + 1, 1, ""), ())
    expected = [*(f"before {n}" for n in range(before)), "behind 0", "behind 1"]
    assert [one.decode() for one in bodies(broker)] == expected
    assert "ABORT" in sent(broker)
    target.close()


@pytest.mark.parametrize("asks", [False, True])
def test_batch_that_is_given_up_leaves_nothing_in_the_next_transaction(asks: bool, broker: FakeBroker) -> None:
    """It is taken back on the same connection, by the next question or the next batch."""
    target = target_of(broker)
    target.begin_batch(1, 0)
    step(target, "void 0", "void 1")
    target.rest()
    with broker.news:
        assert broker.news.wait_for(lambda: sent(broker)[-1:] == ["void 1"], WAIT_S)
    discarding = threading.Thread(target=target.discard)
    discarding.start()
    discarding.join()
    if asks:
        held = target.ask(2, 0)
        assert held is not None
        assert held.owner == 1
        assert sent(broker)[-1] == "COMMIT"
        assert "ABORT" in sent(broker)
    target.begin_batch(2, 0)
    step(target, "right")
    target.rest()
    target.commit(HeldAttempt(0, 1, 2, ""), ())
    assert bodies(broker) == [b"right"]
    target.close()


def test_batch_that_is_given_up_in_a_call_sends_nothing_more(broker: FakeBroker) -> None:
    """Its commit is refused, and so is the next call."""
    target = target_of(broker)
    target.begin_batch(1, 0)
    step(target, "0", "1")
    target.discard()
    target.values["out"].send("2")
    target.values["out"].send("3")
    with pytest.raises(RetriableError, match="was given up"):
        target.commit(HeldAttempt(0, 1, 1, ""), ())
    assert not {"2", "3"} & {*sent(broker)}
    assert bodies(broker) == []
    target.close()


def test_refused_message_keeps_its_whole_batch_from_being_committed(broker: FakeBroker) -> None:
    """ActiveMQ Classic goes on behind a message that it has refused, and would commit the others."""
    broker.refused = {b"1"}
    target = target_of(broker)
    target.begin_batch(1, 0)
    step(target, "0", "1", "2", "3")
    target.rest()
    with pytest.raises(RetriableError, match="not this one"):
        target.commit(HeldAttempt(0, 1, 1, ""), ())
    assert bodies(broker) == []
    broker.refused = set()
    held = target.ask(1, 0)
    assert held is not None
    assert held.step == 0
    target.close()


def test_connection_that_ends_in_a_call_raises_nothing_there(broker: FakeBroker) -> None:
    """A function could take it for its own error. The commit fails, and the task asks."""
    target = target_of(broker)
    target.begin_batch(1, 0)
    step(target, "0", "1")
    with broker.news:
        assert broker.news.wait_for(lambda: sent(broker)[-1:] == ["1"], WAIT_S)
    broker.drop()
    for number in range(2, 40):
        target.values["out"].send(str(number))
    target.rest()
    with pytest.raises(RetriableError, match=r"closed|lost"):
        target.commit(HeldAttempt(0, 1, 1, ""), ())
    held = target.ask(1, 0)
    assert held is not None
    assert held.step == 0
    assert bodies(broker) == []
    target.close()


def test_thread_of_the_function_adds_messages_and_sends_none_on(broker: FakeBroker) -> None:
    """Two threads that write at once would mix their frames; their messages come with the next ones of the caller."""
    target = target_of(broker)
    target.begin_batch(1, 0)
    target.mark()

    def write() -> None:
        for number in range(6):
            target.values["out"].send(str(number))

    context = copy_context()
    thread = threading.Thread(target=lambda: context.run(write))
    thread.start()
    thread.join()
    assert "0" not in sent(broker)
    target.values["out"].send("6")
    with broker.news:
        assert broker.news.wait_for(lambda: sent(broker)[-1:] == ["6"], WAIT_S)
    target.rest()
    target.commit(HeldAttempt(0, 1, 1, ""), ())
    assert bodies(broker) == [str(number).encode() for number in range(7)]
    target.close()


def run_with_an_end(broker: FakeBroker, ends_at: tuple[int, bool] | None) -> int:
    """
    Deliver all messages, with a connection that ends at one frame; each has its messages once. Gives the frames.

    There are parts, so commits are under way while the next messages are sent.
    """
    broker.ends_at = ends_at
    target = stomp(broker).to_queue("out")
    graph = Graph(
        "g",
        Source("numbers"),
        Processor(tell, inputs="numbers", effects={"out": target}),
        errors="failed",
        defaults=Topic(partitions=1),
    )
    tester = Tester(graph, policy=CommitPolicy(max_messages=3))
    for number in range(MESSAGES):
        tester.send("numbers", Message(number, partition=0))
    tester.run()
    tester.stop()
    frames, broker.ends_at = len(broker.seen), None
    assert bodies(broker) == EXPECTED, ends_at
    assert len(tester.errors()) == 1, ends_at
    with closing(open_target({"out": target}, "g", "tell", 0)) as opened:
        assert opened.newest() is not None, ends_at  # two markers are refused
    return frames


def tell(number: int, out: Any) -> None:
    """Two messages for each number."""
    out.send(str(number))
    out.send(str(number + 100))
    if number == FAILED:
        raise ValueError("this one fails")


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("server", [*QUEUE])
def test_connection_may_end_at_any_frame(server: str, every: int, done: bool) -> None:
    """Before the broker has done what the frame asks for, or behind it, with the receipt lost."""
    at, frames = 0, 0
    while at <= frames:
        with fake_broker() as broker:
            broker.connected["server"] = server
            seen = run_with_an_end(broker, (at, done) if at else None)
        frames = frames or seen
        at += every
    assert frames > 4 * MESSAGES


class TestContract(test_target.TestContract):
    """The contract of targets, where each message is sent at once."""

    pytestmark = pytest.mark.full

    @pytest.fixture(name="broker")
    def classic(self) -> Iterator[FakeBroker]:
        """ActiveMQ Classic."""
        yield from test_target.classic()

    @pytest.fixture(autouse=True)
    def each(self, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
        """None waits for the next one."""
        monkeypatch.setattr(writes, "EARLY", 1)
