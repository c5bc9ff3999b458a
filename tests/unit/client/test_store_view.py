"""`client.table`: a view in any process has whole transactions, tells how far it is, and waits for a message."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import (
    ConfigError,
    Graph,
    Json,
    Memory,
    Message,
    Processor,
    RetriableError,
    Source,
    State,
    Store,
    TaskStopped,
    Topic,
    connect,
    start,
)
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.client import store_reading, store_view
from cues_kafka.client.store_reading import StoreReading
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.log import Sent, TopicPartition
from cues_kafka.task.clock import SystemClock
from cues_kafka.testing.tester import Tester


def add(payment: dict[str, Any], balances: State[int]) -> int:
    """Add to an account; closes it at zero, and moves money to another one."""
    account: str = payment["account"]
    cents: int = payment["cents"]
    balances[account] = balances.get(account, 0) + cents
    if to := payment.get("to"):
        balances[to] = balances.get(to, 0) - cents
    if balances[account] < 0:
        raise ValueError("the account is empty")
    if not balances[account]:
        del balances[account]
    return cents


def graph_of(partitions: int = 2) -> Graph:
    """One processor with a store."""
    processor = Processor(
        add, inputs="payments", outputs="done", state={"balances": Store(Json(int))}, errors="bank.errors"
    )
    return Graph("bank", Source("payments"), processor, defaults=Topic(partitions=partitions))


def pay(account: str, cents: int, **more: Any) -> dict[str, Any]:
    """A payment."""
    return {"account": account, "cents": cents, **more}


def test_a_view_and_a_query_show_no_entry_that_has_ended() -> None:
    """By the time of messages, as the function sees it."""
    memory, store = Memory(), Store(Json(int), ttl="10 seconds")
    processor = Processor(add, inputs="payments", outputs="done", state={"balances": store}, errors="bank.errors")
    graph = Graph("bank", Source("payments"), processor, defaults=Topic(partitions=1))
    with start(graph, memory) as running, connect(memory, graph) as client:
        for seconds, account in ((0, "ann"), (5, "bob"), (12, "cid")):
            sent = client.send("payments", Message(pay(account, 1), timestamp_ms=1_700_000_000_000 + seconds * 1_000))
        with client.table("add", "balances") as view:
            view.wait_for(sent)
            assert view.copy() == {"bob": 1, "cid": 1}
            assert (view.get("ann"), "ann" in view, view["bob"]) == (None, False, 1)
        found = [running.query("add", "balances", name, after=sent).value for name in ("ann", "bob", "cid")]
        assert found == [None, 1, 1]


def test_a_view_has_what_is_committed_and_follows() -> None:
    """From the beginning, without deleted entries, and without changes of failed steps."""
    memory, graph = Memory(), graph_of()
    with start(graph, memory) as running, connect(memory, graph) as client:
        for account, cents in (("ann", 5), ("bob", 7), ("ann", -9), ("bob", -7), ("cid", 1)):
            running.send("payments", pay(account, cents), key=account)
        running.wait_idle()
        with client.table("add", "balances") as view:
            assert view.copy() == {"ann": 5, "cid": 1}
            assert (len(view), "ann" in view, "bob" in view, view.get("bob")) == (2, True, False, None)
            client_sent = client.send("payments", pay("abe", 2), key="abe")
            view.wait_for(client_sent)
            assert view["abe"] == 2
            assert list(view.scan("a")) == [("abe", 2), ("ann", 5)]
            failed = client.send("payments", pay("abe", -3), key="abe")
            view.wait_for(failed)
            assert view["abe"] == 2
            assert view.positions[TopicPartition("payments", failed.partition)] > failed.offset
            with pytest.raises(KeyError, match="eve"):
                view["eve"]
            with pytest.raises(TypeError, match="keys are text"):
                view[5]


def test_a_view_of_a_store_that_nothing_has_changed_is_empty() -> None:
    """It has the positions that the tasks began with, and follows."""
    memory, graph = Memory(), graph_of()
    with start(graph, memory) as running, running.table("add", "balances") as view:
        assert view.copy() == {}
        assert view.positions == {TopicPartition("payments", p): 0 for p in range(2)}
        view.wait_for(running.send("payments", pay("ann", 1)))
        assert view["ann"] == 1


def test_a_view_waits_until_the_message_is_committed() -> None:
    """While the function is called the view has what was there before, and its wait ends with the reason."""
    called, goes_on = threading.Event(), threading.Event()

    def slow(n: int, last: State[int]) -> None:
        called.set()
        assert goes_on.wait(30)
        last["n"] = n

    memory = Memory()
    graph = Graph("g", Source("in"), Processor(slow, inputs="in", state={"last": Store(Json(int))}))
    with start(graph, memory) as running, connect(memory, graph) as client:
        view = client.table("slow", "last")
        sent = client.send("in", 1)
        assert called.wait(30)
        with pytest.raises(
            TimeoutError,
            match=r"not processed in/0 at 0 within 0\.1 s: task slow/0 is at offset 0.*Check that a worker runs it",
        ):
            view.wait_for(sent, timeout_s=0.1)
        assert view.copy() == {}
        goes_on.set()
        view.wait_for(sent)
        assert view.copy() == {"n": 1}
        assert running.query("slow", "last", "n", after=sent) == (1, view.positions)


def test_a_view_never_has_half_of_a_transaction() -> None:
    """Money that moves between two accounts is on one of them: the sum is the same at each moment."""
    memory, graph = Memory(), graph_of(1)
    sums: set[int] = set()
    done = threading.Event()
    with start(graph, memory) as running, connect(memory, graph) as client:
        running.send("payments", pay("all", 1000))
        running.wait_idle()
        view = client.table("add", "balances")

        def look() -> None:
            while not done.is_set():
                sums.update((sum(view.values()), sum(cents for _, cents in view.items())))
                sums.add(sum(cents for _, cents in view.scan()))

        thread = threading.Thread(target=look)
        thread.start()
        last = [client.send("payments", pay(f"a{n % 7}", 1 + n % 3, to="all")) for n in range(60)][-1]
        view.wait_for(last)
        done.set()
        thread.join()
        assert sums == {1000}
        assert view["all"] < 1000


def test_what_cannot_be_waited_for_is_refused() -> None:
    """A message of another topic, and of a partition that the view does not follow."""
    memory, graph = Memory(), graph_of()
    with start(graph, memory), connect(memory, graph) as client:
        view = client.table("add", "balances", partition=1)
        with pytest.raises(ConfigError, match="does not read 'done'; it reads 'payments'"):
            view.wait_for(Sent("done", 1, 0))
        with pytest.raises(ConfigError, match="follows partition 1 only"):
            view.wait_for(Sent("payments", 0, 0))


def test_a_key_of_several_tasks_needs_the_partition() -> None:
    """No entry hides another one."""
    memory, graph = Memory(), graph_of()
    with start(graph, memory) as running, connect(memory, graph) as client:
        view = client.table("add", "balances")
        places = {running.send("payments", pay("ann", 1), key=str(n)).partition for n in range(9)}
        assert places == {0, 1}
        running.wait_idle()
        for partition in places:
            view.wait_for(Sent("payments", partition, 0))
            assert client.table("add", "balances", partition=partition)["ann"] >= 1
        assert "ann" in view
        for look in (lambda: view["ann"], lambda: len(view), view.copy):
            with pytest.raises(ConfigError, match=r"'ann'\] is in the stores of several tasks"):
                look()


def test_a_client_closes_its_views() -> None:
    """A closed one is not read as if it were current, and wakes those that wait."""
    memory, graph = Memory(), graph_of()
    found: list[BaseException] = []
    with start(graph, memory):
        with connect(memory, graph) as client:
            view = client.table("add", "balances")
            waiting = threading.Event()

            def wait() -> None:
                waiting.set()
                try:
                    view.wait_for(Sent("payments", 0, 10**6))
                except RuntimeError as error:
                    found.append(error)

            thread = threading.Thread(target=wait)
            thread.start()
            assert waiting.wait(30)
        thread.join(30)
        assert "closed" in str(found[0])
        with pytest.raises(RuntimeError, match=r"StoreView\('add', 'balances'\) is closed"):
            view["ann"]
        view.close()


def test_a_stopped_task_is_named_by_the_wait() -> None:
    """The view itself goes on."""

    def stop(n: int, last: State[int]) -> None:
        last["n"] = n
        raise ValueError(n)

    memory = Memory()
    graph = Graph("g", Source("in"), Processor(stop, inputs="in", state={"last": Store(Json(int))}))
    running = start(graph, memory)
    with connect(memory, graph) as client:
        view = client.table("stop", "last")
        with pytest.raises(TimeoutError, match="task stop/0 is at offset 0"):
            view.wait_for(client.send("in", 1), timeout_s=0.2)
        assert view.copy() == {}
    with pytest.raises(TaskStopped):
        running.wait_idle()
    running.abandon()


def test_a_view_reads_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps what it has, says in a wait what is wrong, and goes on."""
    monkeypatch.setattr(store_view, "PAUSE_FIRST_S", 0.01)
    memory, graph = Memory(), graph_of(1)
    with start(graph, memory) as running, connect(memory, graph) as client:
        running.send("payments", pay("ann", 1))
        running.wait_idle()
        broker: MemoryBroker = open_broker(memory)  # type: ignore[assignment]
        reads, broken = broker.reader, threading.Event()
        broken.set()

        class Breaks:
            """A reader that fails while it shall."""

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                self._reader = reads(*args, **kwargs)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._reader, name)

            def poll(self, *args: Any) -> Any:
                found = self._reader.poll(*args)
                if threading.current_thread().name == "add-balances-table" and broken.is_set():
                    raise RetriableError("it is gone")
                return found

        monkeypatch.setattr(broker, "reader", Breaks)
        with pytest.raises(TimeoutError, match=r"not read to its end after 0\.2 s"):
            client.table("add", "balances", timeout_s=0.2)
        broken.clear()
        view = client.table("add", "balances")
        broken.set()
        sent = client.send("payments", pay("ann", 1))
        with pytest.raises(TimeoutError, match="cannot read the cluster: it is gone"):
            view.wait_for(sent, timeout_s=1.0)
        assert view.copy() == {"ann": 1}
        broken.clear()
        view.wait_for(sent)
        assert view.copy() == {"ann": 2}


def test_a_view_that_heard_nothing_for_long_reads_everything_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction may have taken the mark of a deleted entry meanwhile."""
    tester = Tester(graph_of(1))
    now = [1e9]

    class Jumps(SystemClock):
        """A clock that a test sets."""

        def time(self) -> float:
            return now[0]

    tester.send("payments", pay("ann", 1))
    tester.run()
    builds: list[StoreReading] = []
    build = StoreReading.follow

    def followed(reading: StoreReading) -> None:
        builds.append(reading)
        build(reading)

    monkeypatch.setattr(StoreReading, "follow", followed)
    monkeypatch.setattr("cues_kafka.client.client.SystemClock", Jumps)
    client = tester.client
    with client.table("add", "balances") as view:
        assert len(builds) == 1
        now[0] += 2 * store_reading.REBUILD_S
        sent = tester.send("payments", pay("ann", 1))
        tester.run()
        view.wait_for(sent)
        assert view["ann"] == 2
        assert len(builds) == 2


def test_a_view_notices_new_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their tasks have entries, too."""
    monkeypatch.setattr(store_reading, "CHECK_S", 0.1)
    memory = Memory()
    broker = open_broker(memory)
    with start(graph_of(1), memory) as running:
        running.send("payments", pay("ann", 1))
        running.wait_idle()
    with connect(memory, graph_of(1)) as client, client.table("add", "balances") as view:
        for topic in ("payments", "bank.add.backing", "bank.add.balances.changelog"):
            broker.add_partitions(topic, 2)
        with start(graph_of(2), memory) as running:
            sent = running.send("payments", Message(pay("bob", 2), partition=1))
            assert sent.partition == 1
            view.wait_for(sent)
            assert view.copy() == {"ann": 1, "bob": 2}


def test_a_view_notices_a_changelog_that_was_recreated(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its id: a reader may go on in the new topic as if nothing had happened."""
    monkeypatch.setattr(store_reading, "CHECK_S", 0.1)
    tester, changelog = Tester(graph_of(1)), "bank.add.balances.changelog"
    tester.send("payments", pay("ann", 1))
    tester.run()
    again, (facts, follow) = threading.Event(), (tester.broker.facts, StoreReading.follow)

    def other(topics: Collection[str]) -> ClusterFacts:
        found = facts(topics)
        new = {topic: replace(one, topic_id=b"another".ljust(16)) for topic, one in found.topics.items()}
        return replace(found, topics={**found.topics, changelog: new[changelog]})

    def followed(reading: StoreReading) -> None:
        again.set()
        follow(reading)

    with tester.client.table("add", "balances") as view:
        monkeypatch.setattr(StoreReading, "follow", followed)
        assert not again.wait(0.5)
        monkeypatch.setattr(tester.broker, "facts", other)
        assert again.wait(30)
        assert view.copy() == {"ann": 1}


@pytest.mark.parametrize("ttl", [None, "1 day"])
def test_a_view_that_needs_more_memory_than_it_may_take_says_so(ttl: str | None) -> None:
    """When it is opened, and later; it shows nothing rather than less than what is committed."""
    store = Store(Json(int), ttl=ttl)
    processor = Processor(add, inputs="payments", outputs="done", state={"balances": store}, errors="bank.errors")
    tester = Tester(Graph("bank", Source("payments"), processor, defaults=Topic(partitions=1)))
    most, told = 1_500, r"StoreView\('add', 'balances'\) needs more memory than table\(..., max_bytes=1500\)"

    def sent(accounts: Iterable[str], cents: int) -> Sent:
        for account in accounts:
            last = tester.send("payments", pay(account, cents))
            tester.run()
        return last

    with tester.client.table("add", "balances", max_bytes=most) as view:
        sent("abc", 1)
        for _ in range(20):  # the same entries, and entries that are deleted, take no more room
            sent("abc", 1)
            sent("de", 1)
            last = sent("de", -1)
        view.wait_for(last)
        assert view.copy() == {"a": 21, "b": 21, "c": 21}
        with pytest.raises(ConfigError, match=told):
            view.wait_for(sent("defghijk", 1))
        with pytest.raises(ConfigError, match=told):
            view["a"]
    with pytest.raises(ConfigError, match=told):
        tester.client.table("add", "balances", max_bytes=most)
    assert len(tester.client.table("add", "balances")) == 11
