"""`verify --state`: finds each planted defect of a store, and says which stores it cannot recompute (R4b)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from cues_kafka import (
    Dedupe,
    Graph,
    Handler,
    Json,
    Memory,
    Message,
    Out,
    Processor,
    Retry,
    Source,
    State,
    StateHandler,
    Store,
    Table,
    TableView,
    Topic,
    start,
)
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli import verify as command
from cues_kafka.cli.main import app
from cues_kafka.core.delivery import ErrorPlace
from cues_kafka.errors import ConfigError
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.operate.look.unwell import UnwellNow
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.requests import ReplayRequest, encode_request
from cues_kafka.state.layers import ENTRY, MARK
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.report import Report
from cues_kafka.verify.scan import verify

CHANGELOG = "bank.total.sums.changelog"

Payment = dict[str, Any]


def total(payment: Payment, sums: State[int]) -> int:
    """What the account has now; an error where that is less than nothing."""
    name: str = payment["name"]
    sums[name] = sums.get(name, 0) + payment["cents"]
    if sums[name] < 0:
        raise ValueError("the account is empty")
    found: int = sums[name]
    return found


def forgetful(payment: Payment, sums: State[int]) -> int:
    """The same outputs; one update is not kept."""
    name = payment["name"]
    sum_: int = sums.get(name, 0) + payment["cents"]
    if sum_ < 0:
        raise ValueError("the account is empty")
    if payment["cents"] != 1:
        sums[name] = sum_
    return sum_


def strict(payment: Payment, sums: State[int]) -> int:
    """Raises where the others do not."""
    if payment["cents"] == 7:
        raise ValueError("seven")
    return total(payment, sums)


async def awaited(payment: Payment, sums: State[int]) -> int:
    """A coroutine."""
    return total(payment, sums)


def stepping(payment: Payment, sums: State[int], step: Any) -> int:
    """The long way, with a transaction for each payment to Bob."""
    if payment["name"] == "bob":
        step.request_commit()
    return total(payment, sums)


def forked(payment: Payment, sums: State[int]) -> Iterator[Out]:
    """A generator."""
    yield Out("sums", total(payment, sums))


def silent(payment: Payment, sums: State[int]) -> None:
    """A sink that has nothing but its store."""
    total(payment, sums)


def listed(payments: list[Payment], sums: State[int]) -> list[int]:
    """Lists."""
    return [total(payment, sums) for payment in payments]


def paired(a: Payment, b: Payment, sums: State[int]) -> int:
    """A join."""
    cents: int = b["cents"]
    return total(a, sums) + cents


def either(sums: State[int], a: Payment | None = None, b: Payment | None = None) -> int:
    """Alts."""
    return total(a or b or {}, sums)


def looking(payment: Payment, sums: State[int], names: TableView[str]) -> int:
    """Has a table."""
    return total(payment, sums) + len(names)


class Sums(StateHandler):
    """A store as an object of the user's."""

    def reset(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        self.sums = {name.decode(): int(cents) for name, cents in entries}

    def checkpoint(self) -> Iterator[tuple[bytes, bytes | None]]:
        yield from ((name.encode(), b"%d" % cents) for name, cents in self.sums.items())


def held(payment: Payment, sums: Sums) -> int:
    """Has a handler."""
    return total(payment, sums.sums)  # type: ignore[arg-type]


def with_system(payment: Payment, sums: State[int], db: Any) -> int:
    """Has something outside."""
    assert db
    return total(payment, sums)


def graph_of(
    fn: Callable[..., Any] = total, store: Store | Handler | None = None, width: int = 1, **options: Any
) -> Graph:
    """One processor with a store, whatever its function is."""
    topics = {"payments", *(name for one in ("inputs", "alts") for name in _topics(options.get(one)))}
    outputs: Any = {"sums": "sums"} if fn is forked else "sums"
    declared = {"inputs": None if "alts" in options else "payments", "outputs": outputs, "name": "total"}
    return Graph(
        "bank",
        *map(Source, sorted(topics)),
        Processor(fn, **{**declared, **options}, state={"sums": store or Store(Json(int))}),
        errors="errors",
        defaults=Topic(value=Json(), partitions=width),
        topics={"names": Topic(config={"cleanup.policy": "compact"})} if "names" in topics else {},
        system={"db": object} if fn is with_system else {},
    )


def _topics(inputs: Any) -> list[str]:
    named = inputs.values() if isinstance(inputs, dict) else []
    return [one if isinstance(one, str) else one.topic for one in named]


def payments(*pairs: tuple[str, int]) -> list[Message]:
    """Messages; their keys are the names."""
    return [Message({"name": name, "cents": cents}, key=name) for name, cents in pairs]


FIRST, SECOND = payments(("ann", 5), ("bob", 7)), payments(("ann", -9), ("ann", 2), ("bob", 1))


def ran(graph: Graph, *batches: Sequence[Message], sources: Sequence[str] = ("payments",)) -> MemoryBroker:
    """The cluster of a graph that has delivered these; it is stopped."""
    memory = Memory()
    with start(graph, memory) as running:
        for batch in batches or (FIRST, SECOND):
            for source in sources:
                running.send_many(source, batch)
            running.wait_idle()
    return broker_of(memory)


def broker_of(memory: Memory) -> MemoryBroker:
    """Its cluster."""
    broker = open_broker(memory)
    assert isinstance(broker, MemoryBroker)
    return broker


def plant(
    broker: MemoryBroker, *entries: tuple[bytes, bytes | None], partition: int = 0, topic: str = CHANGELOG
) -> None:
    """One transaction with what no task has written."""
    session = broker.session("vandal")
    session.init(timeout_s=5)
    session.begin()
    session.produce([(topic, partition, key, value, None, 0) for key, value in entries])
    session.flush()
    session.commit()
    session.close()


def look(broker: MemoryBroker, graph: Graph | None = None, **options: Any) -> Report:
    """Verify with stores."""
    return verify(graph or graph_of(), broker, state=True, **options)


def text_of(report: Report) -> str:
    """All sentences."""
    return "\n".join(report.lines)


@pytest.fixture
def broker() -> MemoryBroker:
    """Five payments in two batches; the third is an error. Ann has 7, Bob has 8."""
    return ran(graph_of())


# --------------------------------------------------------------------------------------------- nothing is wrong


@pytest.mark.parametrize("fn", [total, awaited, stepping, forked])
def test_a_store_that_is_what_its_messages_make_is_ok(fn: Callable[..., Any]) -> None:
    """With any kind of function."""
    graph = graph_of(fn)
    report = look(ran(graph), graph)

    assert list(report.lines) == []
    found = report["total"]
    assert (report.verdict, found.entries, found.diverging, found.not_recomputed) == ("ok", 2, 0, 0)
    assert report.to_dict()["processors"][0]["tasks"][0]["entries"] == 2


def test_stores_are_only_looked_at_when_asked_for(broker: MemoryBroker) -> None:
    """For the functions are called again."""
    plant(broker, (ENTRY + b"ann", b"9"))

    assert verify(graph_of(), broker).ok


@pytest.mark.parametrize("effect", ["Produce", "Flush", "Commit"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("lifetime", [None, 2])
def test_crashes_leave_nothing_that_is_wrong(effect: str, moment: Any, lifetime: int | None) -> None:
    """Transactions that were aborted, and such that were committed without an answer."""
    graph = graph_of(store=Store(Json(int), ttl_messages=lifetime))
    tester = Tester(graph, policy=CommitPolicy(max_messages=2))
    for nth, batch in enumerate((FIRST, SECOND), 1):
        tester.send_many("payments", batch)
        tester.restart().run(crash=Crash(moment, effect, nth))
        tester.restart().run()

    report = look(tester.broker, graph)
    assert (report.verdict, list(report.lines)) == ("ok", [])
    assert report["total"].entries == len(tester.state("sums"))


def test_entries_that_end_are_compared_as_of_the_tasks_time() -> None:
    """When they are deleted depends on where batches end, which is not known any more."""
    graph = graph_of(store=Store(Json(int), ttl_messages=3))
    names = [("ann", 1), *((f"c{number}", 1) for number in range(150)), ("bob", 2)]
    report = look(ran(graph, *(payments(*names[i : i + 7]) for i in range(0, len(names), 7))), graph)

    assert (report.verdict, report["total"].entries) == ("ok", 3)


def test_dedupe_joins_filters_and_tasks_side_by_side_are_recomputed() -> None:
    """Each task by itself."""
    graph = Graph(
        "bank",
        Source("payments"),
        Dedupe("once", inputs="payments", outputs="unique", by="cents", within="1 day"),
        Processor(
            paired,
            inputs={"a": "payments", "b": "payments.b"},
            outputs="sums",
            state={"sums": Store(Json(int))},
        ),
        Processor(
            total, inputs="unique", outputs="few", filter=lambda one: one.value["cents"] % 2,
            state={"sums": Store(Json(int), ttl="1 day")},
        ),
        Source("payments.b"),
        errors="errors",
        defaults=Topic(value=Json(), partitions=3),
    )  # fmt: skip
    batch = payments(*((f"c{number % 7}", number % 50) for number in range(300)))
    broker = ran(graph, batch[:200], batch[200:], sources=("payments", "payments.b"))
    report = look(broker, graph)

    assert (report.verdict, list(report.lines)) == ("ok", [])
    assert report["paired"].entries == report["total"].entries == 7
    assert len(report["once"].tasks) == 3
    assert report["once"].entries > 50


def test_compacted_records_and_changelogs_are_enough(broker: MemoryBroker) -> None:
    """Compaction keeps the newest of each key."""
    broker.compact(CHANGELOG)
    broker.compact("bank.total.backing")

    assert look(broker).ok


def test_a_running_graph_is_never_wrong() -> None:
    """Transactions that come meanwhile are left out."""
    memory, graph, done = Memory(), graph_of(), threading.Event()
    with start(graph, memory) as running:

        def feed() -> None:
            number = 0
            while not done.is_set() and number < 20_000:
                running.send_many("payments", payments(*((f"c{n % 11}", 1) for n in range(number, number + 20))))
                number += 20

        thread = threading.Thread(target=feed)
        thread.start()
        reports = [look(broker_of(memory), graph) for _ in range(5)]
        done.set()
        thread.join()
        running.wait_idle()
        reports.append(look(broker_of(memory), graph))

    assert [one.anomalies for one in reports] == [0] * 6
    assert (reports[-1].verdict, reports[-1]["total"].entries) == ("ok", 11)


@pytest.mark.parametrize("busy", [False, True])
def test_a_transaction_that_the_end_cuts_in_two_is_read_whole(
    *, busy: bool, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is asked for while a task writes; the next transaction may be under way by then."""
    place, watermarks = TopicPartition(CHANGELOG, 0), broker.watermarks
    high = watermarks([place])[place].high
    asked: list[TopicPartition] = []
    if busy:
        session = broker.session("open")
        session.init(timeout_s=5)
        session.begin()
        session.produce([(CHANGELOG, 0, ENTRY + b"ann", b"9", None, 0)])
        session.flush()

    def cut(places: Any) -> Any:
        found = watermarks(places)
        if place in found and not asked:
            asked.append(place)
            found[place] = found[place]._replace(high=high - 2)  # the mark, and the marker of the commit
        return found

    monkeypatch.setattr(broker, "watermarks", cut)
    report = look(broker, patience_s=0.2)
    assert (asked, report.verdict, list(report.lines)) == ([place], "ok", [])


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("moment", ["payments", CHANGELOG])
def test_transactions_that_come_meanwhile_are_left_out(
    *, moment: str, compacted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The changelog has them, and a record that was read before does not.

    The records are read again before the changelogs, so compaction has little time to take what is needed.
    """
    memory, graph = Memory(), graph_of(silent, outputs=None)
    with start(graph, memory) as running:
        running.send_many("payments", FIRST)
        running.wait_idle()
    broker = broker_of(memory)
    place, watermarks = TopicPartition(moment, 0), broker.watermarks
    came: list[Any] = []

    def late(places: Any) -> Any:
        if place in places and not came:
            came.extend(SECOND[1:])
            with start(graph, memory) as running:
                running.send_many("payments", came)
                running.wait_idle()
            if compacted:
                broker.compact(CHANGELOG)
        return watermarks(places)

    monkeypatch.setattr(broker, "watermarks", late)
    report = look(broker, graph, pure=["total"])
    assert came
    gone = compacted and moment == CHANGELOG
    assert (report.anomalies, report.ok, report["total"].not_recomputed) == (0, not gone, int(gone))
    assert ("its changelog was compacted beyond step 2 meanwhile; look again" in text_of(report)) == gone


# --------------------------------------------------------------------------------------------- planted defects


def test_a_doubled_update_is_found_with_its_key_and_both_values(broker: MemoryBroker) -> None:
    """As if a transaction were written twice."""
    plant(broker, (ENTRY + b"ann", b"9"), (MARK, b"5"))
    report = look(broker)

    assert (report.verdict, report["total"].diverging) == ("WRONG", 1)
    text = text_of(report)
    assert "total/0: store 'sums': key 'ann' is 9, expected 7" in text
    assert "says step 5, behind the mark of step 5" in text
    assert "Otherwise an update was lost, or another program wrote to the changelog. Stop that program" in text


def test_a_lost_update_is_found() -> None:
    """The store was written by a function that forgot one of them."""
    report = look(ran(graph_of(forgetful)))

    assert (report.verdict, report["total"].diverging, report["total"].entries) == ("WRONG", 1, 2)
    assert "store 'sums': key 'bob' is 7, expected 8" in text_of(report)


def test_entries_without_a_mark_are_found(broker: MemoryBroker) -> None:
    """A lost entry, and one of no message."""
    plant(broker, (ENTRY + b"bob", None), (ENTRY + b"eve", b"100"))
    report = look(broker)

    assert report["total"].diverging == 2
    text = text_of(report)
    assert f"{CHANGELOG}/0: 2 entries from offset" in text
    assert "store 'sums': an update was lost, or another program wrote to the changelog. Stop that program" in text
    assert "stand behind the last mark, step 5: no transaction of the task wrote them" in text
    assert "key 'bob' is absent, expected 8" in text
    assert "key 'eve' is 100, expected absent" in text


def test_a_store_with_replays_is_not_recomputed() -> None:
    """What its entries were at the replay is not kept."""

    def fails_once(payment: Payment, sums: State[int], step: Any) -> int:
        if step.replay is None:
            raise ValueError("not yet")
        return total(payment, sums)

    graph = graph_of(fails_once)
    tester = Tester(graph)
    tester.send("payments", {"name": "ann", "cents": 7})
    tester.run()
    [error] = tester.errors()
    [sent] = tester.client.committed("errors")
    place = ErrorPlace(tester.broker.facts(["errors"]).topics["errors"].topic_id, 0, sent.offset())
    request = ReplayRequest(error=place, errors="errors", consumed=error.consumed, topics=error.topics)
    sender = tester.broker.sender("tool")
    sender.send([("bank.total.replay", error.consumed[0].partition, b"k", encode_request(request), None, 0)])
    tester.run()
    assert tester.state("sums") == {"ann": 7}

    report = look(tester.broker, graph)
    assert report.verdict == "not verifiable"
    assert "1 error message was replayed or dropped" in text_of(report)


def test_a_mark_of_which_the_task_has_no_record_is_found(broker: MemoryBroker) -> None:
    """Also its entries are compared: there is no later record that would explain them."""
    plant(broker, (ENTRY + b"ann", b"8"), (MARK, b"6"))
    report = look(broker)

    text = text_of(report)
    assert f"{CHANGELOG}/0: it ends with the mark of step 6, of which the task has no record" in text
    assert "key 'ann' is 8, expected 7" in text
    assert report["total"].diverging == 1


def test_an_entry_twice_in_a_transaction_is_found(broker: MemoryBroker) -> None:
    """A task writes the last change of each key."""
    plant(broker, (ENTRY + b"ann", b"7"), (ENTRY + b"ann", b"7"), (MARK, b"6"))

    assert "writes 'ann' twice" in text_of(look(broker))


def test_a_changelog_that_lost_its_end_is_found(broker: MemoryBroker) -> None:
    """The task's record says where it ends."""
    place = TopicPartition(CHANGELOG, 0)
    broker.trim({place: broker.watermarks([place])[place].high})
    report = look(broker)

    assert (report.verdict, report["total"].diverging) == ("WRONG", 2)
    assert "key 'ann' is absent, expected 7" in text_of(report)
    assert f"{CHANGELOG}/0: it has no mark, and the task's record says step 5: changes are lost" in text_of(report)


def test_keys_of_no_entry_are_found(broker: MemoryBroker) -> None:
    """Of another kind of store, or of another program."""
    plant(broker, (b"e" + b"ann", b"12345678" + b"1"), (b"", b"1"))
    text = text_of(look(broker))

    assert "has key b'eann', which is not a key of this store" in text
    assert "has key b'', which is not a key of this store" in text


def test_entries_of_another_task_are_found() -> None:
    """An entry belongs to the task of the messages that made it."""
    graph = graph_of(width=2)
    broker = ran(graph)
    for partition in range(2):
        plant(broker, (ENTRY + b"eve", b"1"), partition=partition)

    report = look(broker, graph)
    assert report["total"].diverging == 2
    assert "total/1: store 'sums': key 'eve' is 1, expected absent" in text_of(report)


def test_a_partition_of_a_changelog_without_a_task_holds_nothing(broker: MemoryBroker) -> None:
    """Where another program made it."""
    broker.add_partitions(CHANGELOG, 2)
    assert look(broker).ok
    plant(broker, (ENTRY + b"ann", b"7"), partition=1)

    assert f"{CHANGELOG}/1 is not empty, and no task has it" in text_of(look(broker))


def test_a_changelog_that_is_gone_is_found(broker: MemoryBroker) -> None:
    """The task's record names it."""
    broker.delete([CHANGELOG])
    report = look(broker)

    assert (report.verdict, report["total"].not_recomputed) == ("WRONG", 1)
    assert "store 'sums': its changelog is gone, and so are its entries" in text_of(report)


def test_a_wrong_time_is_found() -> None:
    """Entries would end too early."""
    graph = graph_of(store=Store(Json(int), ttl_messages=100))
    broker = ran(graph)
    plant(broker, (b"n", b"50"), (MARK, b"5"))

    assert "store 'sums': its time is 50, expected 4" in text_of(look(broker, graph))


def test_an_entry_that_was_set_at_another_time_is_found() -> None:
    """It would end too late."""
    graph = graph_of(store=Store(Json(int), ttl_messages=100))
    broker = ran(graph)
    plant(broker, (b"eann", (4).to_bytes(8, "big") + b"7"), (MARK, b"5"))

    assert "store 'sums': key 'ann' is 7 (set at 4), expected 7 (set at 3)" in text_of(look(broker, graph))


def test_only_the_first_keys_are_shown(broker: MemoryBroker) -> None:
    """The count has all of them."""
    plant(broker, *((ENTRY + b"x%d" % number, b"1") for number in range(9)))
    report = look(broker)

    assert report["total"].diverging == 9
    assert text_of(report).count(", expected absent") == 5
    assert "4 more keys differ" in text_of(report)


# --------------------------------------------------------------------------------------------- not recomputed


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (graph_of(silent, outputs=None), "a sink: a second call might repeat its effects; if a second call"),
        (graph_of(effects=True), "it has effects=True: a second call might repeat its effects; if a second call"),
        (graph_of(retry=Retry(on=(OSError,))), "it has retry=, so its function depends on something outside; if"),
        (graph_of(listed, batch=True), "which messages came in one call is not kept"),
        (graph_of(either, alts={"a": "payments", "b": "others"}), "it takes its inputs in turns"),
        (graph_of(looking, inputs={"payment": "payments", "names": Table("names")}), "looks things up in 'names'"),
        (graph_of(held, Handler(Sums)), "the entries of its state handlers (sums) depend on where its batches ended"),
        (graph_of(with_system), "its function takes values of system="),
    ],
)
def test_stores_that_cannot_be_recomputed_are_counted(graph: Graph, reason: str) -> None:
    """With the reason, and never as verified."""
    broker = ran(graph)
    report = look(broker, graph)

    assert (report.verdict, report["total"].not_recomputed, report["total"].entries) == ("not verifiable", 1, 0)
    assert "total/0: cannot be verified: store 'sums' is not recomputed: " in text_of(report)
    assert reason in text_of(report)
    plant(broker, (ENTRY + b"ann", b"x"))  # its marks and codecs are checked all the same
    report = look(broker, graph)
    assert report.verdict == "WRONG"
    assert "stand behind the last mark" in text_of(report)
    if "handlers" not in reason:
        assert "store 'sums': 'ann' cannot be read" in text_of(report)


@pytest.mark.parametrize("options", [{"effects": True}, {"retry": Retry(on=(OSError,))}, {"outputs": None}])
def test_users_say_that_a_function_is_pure(options: Any) -> None:
    """Then it is called again."""
    graph = graph_of(silent if "outputs" in options else total, **options)
    broker = ran(graph)

    assert look(broker, graph, pure=["total"]).ok
    with pytest.raises(ConfigError, match="'totle'"):
        look(broker, graph, pure=["totle"])


def test_a_trimmed_input_is_not_enough(broker: MemoryBroker) -> None:
    """The messages that made the entries are gone."""
    broker.trim({TopicPartition("payments", 0): 1})
    report = look(broker)

    assert (report.verdict, report["total"].not_recomputed) == ("not verifiable", 1)
    assert "not recomputed: payments/0 is trimmed below offset 1" in text_of(report)


def test_a_function_that_does_otherwise_is_said(broker: MemoryBroker) -> None:
    """Its entries would be compared with those of another function."""
    report = look(broker, graph_of(strict))

    assert report["total"].not_recomputed == 1
    assert "called again, its function gave 3 outputs instead of 4, 2 errors instead of 1" in text_of(report)


def test_a_function_without_an_errors_topic_that_raises_is_said() -> None:
    """It would have stopped its task."""
    graph = graph_of(errors=False)
    report = look(ran(graph, FIRST), graph_of(strict, errors=False))

    assert "not recomputed: its function ended otherwise at payments/0 at 1" in text_of(report)


def test_a_store_that_came_later_is_not_recomputed() -> None:
    """What came before is not in it."""
    memory = Memory()
    later = Graph(
        "bank",
        Source("payments"),
        Processor(
            with_more, inputs="payments", outputs="sums", name="total",
            state={"sums": Store(Json(int)), "counts": Store(Json(int))},
        ),
        errors="errors",
        defaults=Topic(value=Json(), partitions=1),
    )  # fmt: skip
    with start(graph_of(), memory) as running:
        running.send_many("payments", FIRST)
        running.wait_idle()
    report = look(broker_of(memory), later)
    assert "'counts' is not recomputed: topics 'bank.total.counts.changelog' no longer exist" in text_of(report)

    for batch, found in ([], (1, 2)), (SECOND, (1, 2)):
        with start(later, memory) as running:
            running.send_many("payments", batch)
            running.wait_idle()
        report = look(broker_of(memory), later)
        assert "store 'counts' is not recomputed: the processor got it at step 2" in text_of(report)
        assert (report.anomalies, report["total"].not_recomputed, report["total"].entries) == (0, *found)


def test_a_task_that_was_moved_on_is_recomputed_of_what_it_has_delivered() -> None:
    """The history says what it was moved over, also once compaction has taken the record of that."""
    memory = Memory()
    with start(graph_of(), memory) as running:
        running.send_many("payments", FIRST)
        running.wait_idle()
    broker = broker_of(memory)
    broker.sender("test").send([("payments", 0, b"ann", b'{"name": "ann", "cents": 1}', None, 0)] * 2)
    tool = Maintenance(graph_of(), broker, "total", who="test")
    tool.carry_out(reset(tool, to="latest"))
    with start(graph_of(), memory) as running:
        running.send_many("payments", SECOND)
        running.wait_idle()
    broker.compact("bank.total.backing")
    report = look(broker)

    assert report.ok, text_of(report)
    assert "an operator has moved it over offsets" in text_of(report)


def test_where_a_task_began_must_be_known() -> None:
    """Its first record says so, until it is compacted away."""
    memory, graph = Memory(), graph_of(start="latest")
    with start(graph_of(name="first", outputs="others"), memory) as running:
        running.send_many("payments", FIRST)
        running.wait_idle()
    with start(graph, memory) as running:
        running.send_many("payments", SECOND[1:])
        running.wait_idle()
    broker = broker_of(memory)
    assert look(broker, graph).ok
    broker.compact("bank.total.backing")

    assert "not recomputed: where it began (start='latest') is compacted away" in text_of(look(broker, graph))


def with_more(payment: Payment, sums: State[int], counts: State[int]) -> int:
    """Has another store besides."""
    counts[payment["name"]] = counts.get(payment["name"], 0) + 1
    return total(payment, sums)


def test_error_messages_are_not_called_again() -> None:
    """They have changed nothing, whatever their function would do by now."""
    graph, calls = graph_of(counted), CALLED
    broker = ran(graph)
    calls.clear()

    assert look(broker, graph).ok
    assert calls == [5, 7, 2, 1]


CALLED: list[int] = []


def counted(payment: Payment, sums: State[int]) -> int:
    """Tells which payments it was called for."""
    CALLED.append(payment["cents"])
    return total(payment, sums)


def test_an_open_transaction_in_front_of_the_records_step_is_said() -> None:
    """It hides committed changes, which are not lost."""
    memory = Memory()
    with start(graph_of(), memory) as running:
        running.send_many("payments", FIRST)
        running.wait_idle()
        session = broker_of(memory).session("open")
        session.init(timeout_s=5)
        session.begin()
        session.produce([(CHANGELOG, 0, ENTRY + b"ann", b"9", None, 0)])
        session.flush()
        running.send_many("payments", SECOND)
        running.wait_idle()
    report = look(broker_of(memory), patience_s=0.2)

    assert (report.verdict, report.anomalies, report["total"].not_recomputed) == ("not verifiable", 0, 1)
    assert "not recomputed: an open transaction hides what its changelog has up to step 5" in text_of(report)


def test_a_recreated_input_and_open_transactions_are_said(broker: MemoryBroker) -> None:
    """What is not there, or not to be seen, makes no entries."""
    session = broker.session("open")
    session.init(timeout_s=5)
    session.begin()
    session.produce([(CHANGELOG, 0, ENTRY + b"ann", b"9", None, 0)])
    session.flush()
    report = look(broker, patience_s=0.2)
    assert (report.verdict, report.anomalies) == ("not verifiable", 0)
    assert f"an open transaction hides {CHANGELOG}/0 from" in text_of(report)

    session.abandon()
    broker.session("open").init(timeout_s=5)
    assert look(broker).ok
    [facts] = broker.facts(["payments"]).topics.values()
    broker.delete(["payments"])
    broker.create([NewTopic(facts.name, facts.partitions, facts.replication, facts.config)])
    assert "not recomputed: 'payments' was recreated since" in text_of(look(broker, patience_s=0.2))


# --------------------------------------------------------------------------------------------- the command


def test_the_table_has_columns_of_stores(broker: MemoryBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Only where there is something in them."""
    command.show(look(broker), UnwellNow(()))
    out = capsys.readouterr().out
    assert "entries" in out
    assert "diverging" not in out

    plant(broker, (ENTRY + b"ann", b"9"), (MARK, b"5"))
    command.show(look(broker), UnwellNow(()))
    assert "diverging" in capsys.readouterr().out
    assert json.loads(json.dumps(look(broker).to_dict()))["anomalies"] == 2


def test_progress_counts_changelogs_and_the_second_reading(broker: MemoryBroker) -> None:
    """The bar does not end before the work does."""
    with_state: list[tuple[int, int]] = []
    without: list[tuple[int, int]] = []
    look(broker, progress=lambda done, of: with_state.append((done, of)))
    verify(graph_of(), broker, progress=lambda done, of: without.append((done, of)))

    assert with_state[-1][0] == with_state[-1][1] > without[-1][1]


def test_pure_without_state_is_refused() -> None:
    """It would do nothing."""
    result = CliRunner().invoke(app, ["verify", "bank:graph", "--pure", "add"])

    assert (result.exit_code, "--pure goes with --state only" in result.output + str(result.exception)) == (2, True)
