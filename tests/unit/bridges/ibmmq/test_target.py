"""E1: messages to queues of IBM MQ, exactly once, on a fake of IBM's client."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from cues_kafka import CommitPolicy, Graph, GraphError, IbmMq, Message, OutputError, Processor, Sink, Source, Topic
from cues_kafka.bridges import marker
from cues_kafka.bridges.ibmmq.messages import written
from cues_kafka.bridges.ibmmq.rfh2 import content_of
from cues_kafka.bridges.ibmmq.target import IbmMqDestination, IbmMqTarget, MqSender
from cues_kafka.bridges.marker import MarkerTransactions
from cues_kafka.errors import ConfigError, RecoveryError, RetriableError
from cues_kafka.graph.declare import Raw
from cues_kafka.graph.effects import Effect
from cues_kafka.targets import TargetMoved, TaskName
from cues_kafka.testing.targets import TargetContract
from cues_kafka.testing.tester import Tester
from tests.unit.bridges.ibmmq.fake import managed, needs_package
from tests.unit.bridges.ibmmq.manager import Manager
from tests.unit.bridges.ibmmq.world import URL

pytestmark = needs_package

TASK = TaskName("shop", "tell", 0)
MARKER = "CUES.shop.tell.0"


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    """A queue manager with some queues; those of markers are there. No task waits long for a former owner."""
    monkeypatch.setattr(marker, "PATIENCE_S", 0.05)
    with managed() as made:
        made.define("OUT", "NEWS", "NUMBERS")
        made.auto = ("CUES.",)
        yield made


def queue_manager(**given: Any) -> IbmMq:
    """A declaration with short times."""
    return IbmMq(URL, **{"timeout_s": 0.05, **given})


class TestContract(TargetContract):
    """The contract of targets, with a queue manager in this process."""

    most_lines = 10

    @pytest.fixture
    def target(self, manager: Manager) -> Effect:
        self.manager = manager
        return queue_manager().target()

    def write(self, into: Any, number: int) -> None:
        into.put("NUMBERS", str(number))

    def read(self, target: Any) -> Iterable[int]:
        return map(int, self.manager.bodies("NUMBERS"))

    def write_refused(self, into: Any) -> bool:
        into.put("NOT.THERE", "x")
        return True


def transactions() -> MarkerTransactions:
    """What a task opens."""
    return queue_manager().target().open(TASK)


def test_marker_is_one_message_that_moves_with_the_data(manager: Manager) -> None:
    """The unit of work takes the old one, and puts data and the next one."""
    with closing(transactions()) as owner:
        assert owner.ask() is None
        owner.fence(b"one", None)
        owner.begin()
        owner.write(written("OUT", "text", {}))
        owner.write(written("NEWS", b"\0", {}))
        assert manager.bodies("OUT") == []
        owner.commit(b"two", b"one")
        assert owner.ask() == b"two"
        assert manager.left(MARKER) == 1
        assert (manager.bodies("OUT"), manager.bodies("NEWS")) == ([b"text"], [b"\0"])
        with pytest.raises(TargetMoved):
            owner.fence(b"three", b"one")
    assert manager.connections() == 0


def test_second_owner_waits_for_the_connection_of_the_first_one(manager: Manager) -> None:
    """The queue manager refuses it (MQRC_OBJECT_IN_USE). Of the first one's open unit of work nothing stays."""
    first = transactions()
    assert first.ask() is None
    first.fence(b"one", None)
    first.begin()
    first.write(written("OUT", "void", {}))
    with pytest.raises(OSError, match=rf"OBJECT_IN_USE.*Another process has the queue {MARKER}"):
        transactions().ask()
    manager.drop()  # as when the queue manager misses the heartbeats of a process that is frozen
    with closing(transactions()) as heir:
        assert heir.ask() == b"one"
        with pytest.raises(OSError, match="CONNECTION_BROKEN"):
            first.commit(b"two", b"one")
        assert heir.ask() == b"one"
    assert manager.bodies("OUT") == []
    first.close()


@pytest.mark.parametrize("done", [True, False])
def test_answer_of_a_commit_is_lost_and_the_marker_says_which_it_was(manager: Manager, *, done: bool) -> None:
    """MQRC_CONNECTION_BROKEN in MQCMIT: data and marker are there, or neither is."""
    owner = transactions()
    owner.ask()
    owner.fence(b"one", None)
    owner.begin()
    owner.write(written("OUT", "text", {}))
    if done:
        manager.unanswered["MQCMIT"] = 1
    else:
        manager.refusals["MQCMIT"] = [2003]
    with pytest.raises(OSError, match="did not commit"):
        owner.commit(b"two", b"one")
    owner.close()
    with closing(transactions()) as heir:
        assert heir.ask() == (b"two" if done else b"one")
    assert manager.bodies("OUT") == ([b"text"] if done else [])


def test_closing_takes_an_open_unit_of_work_back(manager: Manager) -> None:
    """MQDISC would commit it."""
    owner = transactions()
    owner.ask()
    owner.fence(b"one", None)
    owner.begin()
    owner.write(written("OUT", "void", {}))
    owner.close()
    assert manager.bodies("OUT") == []
    assert manager.calls[-2:] == ["MQBACK", "MQDISC"]
    with closing(transactions()) as heir:
        assert heir.ask() == b"one"


def test_marker_outlives_a_restart_of_the_queue_manager(manager: Manager) -> None:
    """It is persistent; a probe that was left behind is not."""
    with closing(transactions()) as owner:
        owner.ask()
        owner.fence(b"one", None)
        owner._owned.probe(MARKER)
        manager.restart()
    assert manager.bodies(MARKER) == [b"one"]
    with closing(transactions()) as heir:
        assert heir.ask() == b"one"


def test_message_that_is_taken_is_the_one_that_was_meant(manager: Manager) -> None:
    """By its MsgId: others may lie before it."""
    with closing(transactions()) as owner:
        owner.ask()
        first, second = owner._owned.probe(MARKER), owner._owned.probe(MARKER)
        found = [owner._owned.message(1.0) for _ in range(2)]
        assert [one.probe for one in found if one] == [first, second]
        assert found[1] is not None
        owner._owned.drop(found[1])
        [left] = manager.queues[MARKER]
        assert left.fields["CorrelId"].hex() == first


def test_marker_that_is_gone_ends_the_ownership(manager: Manager) -> None:
    """Another program has emptied the queue: nothing is committed."""
    with closing(transactions()) as owner:
        owner.ask()
        owner.fence(b"one", None)
        assert owner.ask() == b"one"
        manager.queues[MARKER].clear()
        owner.begin()
        owner.write(written("OUT", "void", {}))
        with pytest.raises(ConnectionError, match="is gone"):
            owner.commit(b"two", b"one")
    assert manager.bodies("OUT") == []


@pytest.mark.parametrize("many", [1, 2])
def test_queue_with_foreign_messages_or_two_markers_is_refused(manager: Manager, many: int) -> None:
    """Neither says where the task stands."""
    manager.define(MARKER)
    manager.put(MARKER, *(b"x" for _ in range(many)), Format=b"CUESMARK" if many == 2 else b"MQSTR   ")
    with closing(transactions()) as owner, pytest.raises(RecoveryError, match=r"2 messages|not a marker of a task"):
        owner.ask()


def test_marker_queue_that_is_missing_is_named_with_the_command(manager: Manager) -> None:
    """IBM MQ makes no queue by itself."""
    manager.auto = ()
    with closing(transactions()) as owner, pytest.raises(RecoveryError, match=r"UNKNOWN_OBJECT_NAME") as refused:
        owner.ask()
    assert f"DEFINE QLOCAL('{MARKER}') DEFPSIST(YES) NOSHARE" in refused.value.remedy


def graph_of(fn: Any, target: Any, messages: int, policy: CommitPolicy | None = None) -> Tester:
    """What a function does with a target and some numbers."""
    parts = Source("numbers"), Processor(fn, inputs="numbers", effects={"mq": target})
    tester = Tester(Graph("shop", *parts, errors="errors"), policy=policy or CommitPolicy())
    for number in range(messages):
        tester.send("numbers", number)
    tester.run()
    tester.stop()
    return tester


def test_more_messages_than_a_unit_of_work_takes_are_committed_in_smaller_ones(manager: Manager) -> None:
    """MAXUMSGS: the steps are committed one by one. A step that is too large by itself is an error message."""
    manager.limit = 5

    def tell(number: int, mq: MqSender) -> None:
        for nth in range(2 if number != 3 else 9):
            mq.put("OUT", f"{number}.{nth}")

    tester = graph_of(tell, queue_manager().target(), 6)
    assert manager.bodies("OUT") == [f"{n}.{nth}".encode() for n in (0, 1, 2, 4, 5) for nth in range(2)]
    [error] = tester.errors()
    assert "MAXUMSGS" in error.text


@pytest.mark.parametrize("wrong", ["NOT.THERE", "large"])
def test_message_that_the_queue_manager_does_not_take_is_an_error_message(manager: Manager, wrong: str) -> None:
    """Those beside it are put."""
    manager.most_bytes = 20_000

    def tell(number: int, mq: MqSender) -> None:
        if number == 1:
            mq.put("OUT" if wrong == "large" else wrong, "x" * 30_000)
        else:
            mq.put("OUT", str(number))

    tester = graph_of(tell, queue_manager().target(), 3)
    assert manager.bodies("OUT") == [b"0", b"2"]
    [error] = tester.errors()
    assert ("MAXMSGL" if wrong == "large" else "UNKNOWN_OBJECT_NAME") in error.text


@pytest.mark.parametrize(
    ("verb", "reason", "kind", "says"),
    [
        ("MQPUT1", 2053, RetriableError, "raise MAXDEPTH"),
        ("MQPUT1", 2051, RetriableError, r"PUT\(ENABLED\)"),
        ("MQPUT1", 2035, RecoveryError, r"\+put"),
        ("MQPUT1", 2085, RecoveryError, "define the queue"),
        ("MQPUT1", 2031, OutputError, "MAXMSGL"),
        ("MQPUT1", 2024, OutputError, "CommitPolicy"),
        ("MQPUT1", 2009, OSError, "CONNECTION_BROKEN"),
        ("MQCMIT", 2003, OSError, "BACKED_OUT"),
        ("MQCMIT", 2024, OutputError, "MAXUMSGS"),
    ],
)
def test_each_reason_code_is_retried_stops_the_task_or_refuses_the_message(
    manager: Manager, verb: str, reason: int, kind: type[Exception], says: str
) -> None:
    """With its remedy; nothing of the unit of work stays."""
    owner = transactions()
    owner.ask()
    owner.fence(b"one", None)
    manager.refusals[verb] = [reason]
    owner.begin()
    with pytest.raises(kind) as failed:
        commit_one(owner)
    assert any(re.search(says, text) for text in (str(failed.value), remedy_of(failed.value)))
    owner.close()
    with closing(transactions()) as heir:
        assert heir.ask() == b"one"
    assert manager.bodies("OUT") == []


def commit_one(owner: MarkerTransactions) -> None:
    """One message to a queue that is declared."""
    owner.write(written("OUT", "x", {}))
    owner.commit(b"two", b"one")


def remedy_of(error: BaseException) -> str:
    """What a person does."""
    return getattr(error, "remedy", "")


def test_sink_puts_values_with_their_keys_and_headers(manager: Manager) -> None:
    """Text is MQSTR, bytes have no format, and the rest becomes JSON. A tombstone is an error."""
    shop = queue_manager()
    lines = shop.to_queue("OUT", headers={"test": True}, priority=7, expiry_s=1.5)
    graph = Graph(
        "shop",
        Source("orders"),
        Source("raw"),
        Sink("orders-out", inputs="orders", into=lines),
        Sink("raw-out", inputs="raw", into=shop.to_queue("NEWS")),
        errors="errors",
        topics={"raw": Topic(value=Raw())},
    )
    tester = Tester(graph, policy=CommitPolicy(max_messages=2))
    tester.send("orders", Message({"id": 1, "name": "é"}, key="k<&>"))
    tester.send("orders", Message("plain"))
    tester.send("orders", Message(None, key="k"))
    tester.send("raw", b"\x00\xff")
    tester.run()
    tester.stop()

    found = [content_of(one.data, "MQHRF2", 1208, 0x222) for one in manager.queues["OUT"]]
    assert [one.body.decode() for one in found] == ['{"id": 1, "name": "é"}', "plain"]
    assert [one.properties for one in found] == [[("test", "true"), ("cues_key", "k<&>")], [("test", "true")]]
    assert {one.format for one in found} == {"MQSTR"}
    fields = manager.queues["OUT"][0].fields
    assert (fields["Format"], fields["Priority"], fields["Expiry"], fields["Persistence"]) == (b"MQHRF2  ", 7, 15, 1)
    [raw] = manager.queues["NEWS"]
    assert (raw.data, raw.fields["Format"].strip()) == (b"\x00\xff", b"")
    [error] = tester.errors()
    assert "tombstone" in error.text


def test_function_chooses_queues_and_what_cannot_be_put_is_its_error(manager: Manager) -> None:
    """Only its own message becomes an error message."""
    given: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("OUT", "x"), {"correlation_id": "c", "reply_to": "NEWS"}),
        (("NEWS", {"y": 1}, {"h": 1.5}), {"correlation_id": "ab" * 24}),
        (("A B", "x"), {}),
        (("x" * 49, "x"), {}),
        (("OUT", "\ud800"), {}),
        (("OUT", object), {}),
        (("OUT", float("nan")), {}),
        (("OUT", "x", {"JMSType": "1"}), {}),
        (("OUT", "x", {"a.b": "1"}), {}),
        (("OUT", "x", {"h": "\0"}), {}),
        (("OUT", "x", {"h": [1]}), {}),
        (("OUT", "x"), {"correlation_id": "x" * 25}),
        (("OUT", "x"), {"reply_to": "A B"}),
        (("OUT", "x"), {"priority": 10}),
        (("OUT", "x"), {"expiry_s": 0}),
    ]

    def tell(number: int, mq: MqSender) -> None:
        words, more = given[number]
        mq.put(*words, **more)

    tester = graph_of(tell, queue_manager().target(), len(given))

    assert manager.bodies("OUT") == [b"x"]
    [out], [news] = manager.queues["OUT"], manager.queues["NEWS"]
    assert (out.fields["CorrelId"], out.fields["ReplyToQ"].rstrip(b"\0")) == (b"c".ljust(24, b"\0"), b"NEWS")
    assert (news.fields["CorrelId"], news.data[-8:]) == (b"\xab" * 24, b'{"y": 1}')
    assert len(tester.errors()) == len(given) - 2
    assert {one.kind for one in tester.errors()} == {"output"}


def test_declarations_that_cannot_be_are_refused() -> None:
    """With what to write."""
    shop = IbmMq(env="SHOP_MQ")
    for wrong, says in (
        (lambda: shop.to_queue("a b"), "cannot be the name of a queue"),
        (lambda: shop.to_queue("A", headers={"JMSType": "1"}), "cannot have the property 'JMSType'"),
        (lambda: shop.to_queue("A", priority=True), "priority=True"),
        (lambda: shop.to_queue("A", expiry_s=0), "expiry_s=0"),
        (lambda: shop.target(markers="a-b"), "markers="),
        (lambda: shop.target(markers="x" * 25), "at most 24"),
    ):
        refused(wrong, says)
    with pytest.raises(ConfigError, match="SHOP_MQ is not set"):
        shop.target().open(TASK)


def refused(wrong: Callable[[], Any], says: str) -> None:
    """A declaration."""
    with pytest.raises(GraphError, match=says):
        wrong()


def test_each_task_has_a_marker_queue_of_its_own_with_a_name_that_ibm_mq_takes() -> None:
    """At most 48 characters, without '-'. No two tasks share one."""
    target = IbmMq(env="SHOP_MQ").target(markers="TEAM.CUES")
    tasks = [
        TaskName(graph, processor, partition)
        for graph in ("shop", "shop-a", "shop_a", "a" * 80)
        for processor in ("tell", "tell-b", "tell_b", "b-" * 40, "b_" * 40, "b" * 31)
        for partition in (0, 1, 11)
    ]
    names = {target.marker_of(one) for one in tasks}
    assert target.marker_of(TASK) == "TEAM.CUES.shop.tell.0"
    assert target.marker_of(TaskName("a-b", "c", 0)) == "TEAM.CUES.a%b.c.0"
    assert len(names) == len(tasks)
    assert all(len(one) <= 48 and set(one) <= set("%._/" + ALPHANUMERIC) for one in names)


ALPHANUMERIC = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def test_queues_of_one_manager_share_a_unit_of_work_and_are_written_down() -> None:
    """Two managers are refused; the address is not in what is written."""
    shop = IbmMq(env="SHOP_MQ")
    into = {"a": shop.to_queue("A"), "b": shop.to_queue("B", headers={"n": 1}, priority=1)}
    graph = Graph("shop", Source("orders"), Processor(both, inputs="orders", effects=into))

    assert Graph.from_dict(graph.to_dict()).to_dict() == graph.to_dict()
    again = Graph.from_dict(graph.to_dict()).processors["both"].targets["b"]
    assert again == IbmMqDestination(IbmMqTarget(shop), "B", {"n": "1"}, 1)
    with pytest.raises(GraphError, match="no transaction spans two"):
        Processor(both, inputs="orders", effects={"a": shop.to_queue("A"), "b": IbmMq(env="OTHER").to_queue("B")})
    secret = Graph("shop", Source("orders"), Sink("s", inputs="orders", into=IbmMq(URL).to_queue("A")))
    with pytest.raises(GraphError, match="its address would be in the text") as refusal:
        secret.to_dict()
    assert "geheim" not in str(refusal.value)


def both(order: Any, a: Any, b: Any) -> None:
    """A function with two queues."""
    a.put(order)
    b.put(order)
