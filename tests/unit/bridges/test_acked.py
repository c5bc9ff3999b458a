"""`Acked` step by step, and in a feed whose process dies at every effect."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from cues_kafka import Feed, Graph, GraphError, Json, Memory, RecoveryError, RetriableError, Topic, start
from cues_kafka.bridges.acked import Acked
from cues_kafka.bridges.deliveries import Arrival
from cues_kafka.bridges.ledger import FORGOTTEN, ID_CHARACTERS, MOST_IDS, AttemptLedger, Ledger, LedgerPlace, digest
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.graph.message import Message
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify
from cues_kafka.workers.feeds.reading import PLACE_LIMIT
from tests.unit.bridges.acked_world import Queue


def queue_of(count: int, prefetch: int = 4) -> Queue:
    """A queue with messages."""
    queue = Queue(Random(0), prefetch, "unique")
    for _ in range(count):
        queue.publish()
    return queue


def read(source: Acked, place: str | None, limit: int = 10) -> list[tuple[Any, str]]:
    """What a lane takes: values and places."""
    return [(message.value, at) for message, at in source.read(0, place, limit)]


def read_after_push(queue: Queue, source: Acked, place: str | None, limit: int = 10) -> list[tuple[Any, str]]:
    """Connect, let the broker deliver, and read."""
    read(source, place)
    queue.push()
    return read(source, place, limit)


def test_messages_are_acknowledged_behind_their_commit() -> None:
    """Those up to the committed place, in the order of their deliveries."""
    queue = queue_of(4)
    source = Acked(queue, prefetch=4)
    rows = read_after_push(queue, source, None)
    assert [value for value, _ in rows] == [1, 2, 3, 4]
    [link] = queue.links
    assert link.acks == []
    source.committed(0, rows[1][1])
    assert link.acks == [1, 2]
    source.committed(0, rows[3][1])
    assert link.acks == [1, 2, 3, 4]


def test_redelivery_after_a_death_between_commit_and_acknowledgement_is_dropped() -> None:
    """And acknowledged at once, since its commit is known."""
    queue = queue_of(3)
    rows = read_after_push(queue, Acked(queue, prefetch=4), None)
    queue.lose(queue.links[0], 0)
    heir = Acked(queue, prefetch=4)
    heir.committed(0, rows[1][1])
    assert [value for value, _ in read_after_push(queue, heir, rows[1][1])] == [3]
    assert queue.links[0].acks == [4, 5]


def test_redelivery_of_an_open_transaction_is_acknowledged_with_it() -> None:
    """A connection that is lost in the middle of a batch loses nothing of it, and acknowledges nothing."""
    queue = queue_of(2)
    source = Acked(queue, prefetch=4)
    rows = read_after_push(queue, source, None)
    queue.lose(queue.links[0], 0)
    with pytest.raises(ConnectionResetError):
        read(source, rows[-1][1])
    assert read_after_push(queue, source, rows[-1][1]) == []
    assert queue.links[0].acks == []
    source.committed(0, rows[-1][1])
    assert queue.links[0].acks == [3, 4]


def test_a_recovery_closes_the_connection_and_reads_the_void_messages_again() -> None:
    """What was delivered and not committed comes on a new connection."""
    queue = queue_of(3)
    source = Acked(queue, prefetch=4)
    rows = read_after_push(queue, source, None)
    [first] = queue.links
    source.committed(0, rows[0][1])
    assert [value for value, _ in read_after_push(queue, source, rows[0][1])] == [2, 3]
    assert first.lost


def test_a_row_that_was_not_taken_is_given_again_on_the_same_connection() -> None:
    """Such as while a registry does not answer."""
    queue = queue_of(2)
    source = Acked(queue, prefetch=4)
    read(source, None)
    queue.push()
    refused = next(iter(source.read(0, None, 10)))
    assert refused[0].value == 1
    assert [value for value, _ in read(source, None)] == [1, 2]
    assert len(queue.links) == 1


def test_a_place_of_another_process_acknowledges_nothing() -> None:
    """B4: its counts mean other messages; what this process has is void."""
    queue = queue_of(2, prefetch=1)
    ours = Acked(queue, prefetch=1)
    read_after_push(queue, ours, None)
    others = Acked(queue, prefetch=1)
    [(value, place)] = read_after_push(queue, others, None)
    assert value == 2
    [mine, _] = queue.links
    ours.committed(0, place)
    assert mine.acks == []
    assert mine.lost


def test_ids_of_a_session_that_the_broker_has_lost_mean_nothing() -> None:
    """A redelivery of a new message that has the number of an old one is taken."""
    queue = queue_of(2)
    source = Acked(queue, prefetch=4)
    rows = read_after_push(queue, source, None)
    source.committed(0, rows[-1][1])
    queue.lose(queue.links[0], 2)
    queue.forget()
    with pytest.raises(ConnectionResetError):
        read(source, rows[-1][1])
    new = [(value, at) for value, at in read_after_push(queue, source, rows[-1][1])]
    assert [value for value, _ in new] == [3, 4]
    queue.lose(queue.links[0], 0)  # before they are committed
    assert Ledger.read(new[-1][1]).taken == 4
    assert len(Ledger.read(new[-1][1]).ids) == 2 * ID_CHARACTERS


@pytest.mark.parametrize("unique", [True, False])
def test_a_redelivery_that_the_ledger_has_forgotten_is_known_where_ids_are_unique(
    unique: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """B1: it is acknowledged at once, and the log says once that the broker is not as a bridge needs it."""
    queue = queue_of(2)
    [(_, first), (_, place)] = read_after_push(queue, Acked(queue, prefetch=4), None)
    assert Ledger.read(first).taken == 1
    queue.lose(queue.links[0], 0)
    held = [queue.ready.popleft(), queue.ready.popleft()]
    heir = Acked(queue, prefetch=4, unique=unique)
    heir.committed(0, place)
    for _ in range(3):
        for _ in range(4):
            queue.publish()
        place = read_after_push(queue, heir, place)[-1][1]
        heir.committed(0, place)
        queue.settle(queue.links[0], 4)
    queue.ready.extend(held)

    assert [value for value, _ in read_after_push(queue, heir, place)] == ([] if unique else [1, 2])
    assert len(queue.links[0].acks) == (2 if unique else 0)
    assert caplog.text.count("behind more new messages than the ledger names") == unique


def test_what_a_process_remembers_has_a_bound() -> None:
    """The newest are kept."""
    memory = AttemptLedger(None, 4)
    memory.former = {f"{n:016}": n for n in range(MOST_IDS)}
    memory._counts["new"] = 1
    memory.remember()
    assert len(memory.former) == MOST_IDS
    assert (f"{0:016}" in memory.former, f"{1:016}" in memory.former, "new" in memory.former) == (False, True, True)


def test_an_id_that_the_ledger_has_again_is_one_of_the_newest() -> None:
    """It is kept when the process forgets the oldest ones."""
    memory = AttemptLedger(None, 10)
    memory.former = {f"{n:016}": n for n in range(MOST_IDS)}
    memory._note(f"{0:016}", 0)
    memory._note("new", MOST_IDS)
    memory.remember()
    assert (f"{0:016}" in memory.former, f"{1:016}" in memory.former, "new" in memory.former) == (True, False, True)


def test_a_released_part_has_no_connection() -> None:
    """B7: its messages are for the next process."""
    queue = queue_of(2)
    source = Acked(queue, prefetch=4)
    read_after_push(queue, source, None)
    source.release(0)
    assert not queue.links
    assert len(queue.ready) == 2


def test_a_release_while_it_connects_leaves_no_connection() -> None:
    """It comes on another thread."""
    queue = queue_of(1)
    source = Acked(queue, prefetch=4)
    connect = queue.connect

    def slow(*given: Any) -> Any:
        source.release(0)
        return connect(*given)

    queue.connect = slow  # type: ignore[method-assign, assignment]
    with pytest.raises(InterruptedError):
        read(source, None)
    assert not queue.links


def test_text_of_a_ledger_is_its_newest_ids_in_order() -> None:
    """A redelivery is the newest from then on; the oldest go."""
    random, memory, newest = Random(0), AttemptLedger(None, 5), list[str]()
    places: list[tuple[LedgerPlace, list[str]]] = []
    for n in range(300):
        delivery = Arrival(f"m{random.randrange(8)}", True, Message(n), n)
        newest = [*(one for one in newest if one != delivery.id), delivery.id][-5:]
        if memory.known(delivery) is None:
            places.append((memory.offer(delivery, None), newest))
            memory.accept()
        assert [digest(one) for one in newest] == list(memory._counts) == memory._order[-len(newest) :]
    for place, ids in places:  # their texts are made later, and say what held when they were given
        assert Ledger.read(str(place)).split() == [digest(one) for one in ids]
        assert (place == str(place), place == str(places[0][0])) == (True, place is places[0][0])
        assert Ledger.head(place) == Ledger.read(place)[:2]


@pytest.mark.parametrize("again", [True, False])
def test_an_id_is_once_in_the_text_of_a_ledger(again: bool) -> None:
    """Also where a broker uses it for another message, as it does with numbers."""
    memory = AttemptLedger(None, 3)
    for name in "abcab":
        delivery = Arrival(name, again, Message(0), 0)
        if memory.known(delivery) is None:
            last = memory.offer(delivery, None)
            memory.accept()
    assert Ledger.read(last).split() == [digest(one) for one in ("abc" if again else "cab")]
    assert list(memory._counts) == [digest(one) for one in "cab"]


def test_what_a_ledger_has_forgotten_takes_bounded_memory() -> None:
    """Places that were given before say the same as they did."""
    memory, room = AttemptLedger(None, 5), 5
    places = []
    for n in range(3 * FORGOTTEN):
        places.append(memory.offer(Arrival(f"m{n}", True, Message(n), n), None))
        memory.accept()
        assert len(memory._order) <= room + FORGOTTEN + 1
    for n in (3, FORGOTTEN, FORGOTTEN + room, FORGOTTEN + 2 * room, 3 * FORGOTTEN - 1):
        assert Ledger.read(places[n]).split() == [digest(f"m{one}") for one in range(max(0, n - room + 1), n + 1)]


def test_largest_ledger_fits_a_place() -> None:
    """With a count of twenty digits."""
    memory = AttemptLedger(str(Ledger(10**19, "0" * 8, "")), MOST_IDS)
    for n in range(MOST_IDS + 2):
        delivery = Arrival(f"ID:host-{n}", True, Message(n), n)
        if n < 5 or n > MOST_IDS:
            memory.offer(delivery, None)
            memory.accept()
        else:
            memory._note(f"{n:016}", n)
    place = str(memory.offer(Arrival("last", True, Message(0), 0), None))
    assert MOST_IDS * 16 < len(place) < PLACE_LIMIT


def test_deliveries_without_an_id_are_never_dropped() -> None:
    """Nothing tells that they are redeliveries: at least once."""
    memory = AttemptLedger(None, 4)
    for n in range(3):
        delivery = Arrival("", True, Message(n), n)
        assert memory.known(delivery) is None
        memory.offer(delivery, None)
        memory.accept()
    assert (memory.count, Ledger.read(memory.place).ids) == (3, "")


def test_place_of_another_kind_of_source_is_refused() -> None:
    """With the remedy."""
    with pytest.raises(RecoveryError, match=r"is not a place .* had another source before"):
        read(Acked(queue_of(1), prefetch=4), '{"files":[]}')


@pytest.mark.parametrize(("prefetch", "ledger"), [(0, None), (MOST_IDS + 1, None), (10, 9), (10, MOST_IDS + 1)])
def test_sizes_out_of_range_are_refused(prefetch: int, ledger: int | None) -> None:
    """A ledger has room for all deliveries of a connection, and fits a place."""
    with pytest.raises(GraphError, match="takes a whole number from"):
        Acked(queue_of(1), prefetch=prefetch, ledger=ledger)


@pytest.mark.parametrize("prefetch", [1, 2, 7])
def test_a_batch_has_no_more_rows_than_the_broker_delivers(prefetch: int) -> None:
    """B5."""
    assert 1 <= Acked(queue_of(1), prefetch=prefetch).most <= prefetch


# In a feed.


@dataclass
class Declared:
    """A declared source: the queue works whenever it is asked."""

    queue: Queue
    opened: list[Acked] = field(default_factory=list)

    def parts(self) -> int:
        """One."""
        return 1

    def open(self) -> Acked:
        """A new process: the connections of the former one are lost."""
        for link in list(self.queue.links):
            self.queue.lose(link, 0)
        self.opened.append(Acked(self, prefetch=self.queue.prefetch))
        return self.opened[-1]

    def connect(self, part: int, arrived: Any) -> Any:
        """A connection that has its messages at once."""
        return Quick(self.queue, self.queue.connect(part, arrived))

    def show(self, message: str) -> str:
        """See `Acknowledging`."""
        return self.queue.show(message)

    def read(self, part: int, place: str | None, limit: int) -> Any:
        """See `ReplayableSource`."""
        raise RetriableError("it was not opened")


@dataclass
class Quick:
    """A connection to a broker that works at once."""

    queue: Queue
    link: Any

    def take(self, limit: int) -> Any:
        """Deliver, and take."""
        self.queue.settle(self.link, len(self.link.acks))
        self.queue.push()
        return self.link.take(limit)

    def ack(self, tokens: Any) -> None:
        """They arrive with the next `take`."""
        self.link.ack(tokens)

    def close(self) -> None:
        """Close."""
        self.link.close()


def graph_of(source: Any) -> Graph:
    """A feed."""
    return Graph("g", Feed(source, into="ingress", name="feed", poll_seconds=600), defaults=Topic(value=Json(int)))


REACHED = (
    *("Init", "FetchOffsets", "FetchWatermark", "ReadNewest", "FetchInputs", "AssignReader"),
    *("Begin", "SendOffsets", "Produce", "Flush", "Commit", "Call"),
)


@pytest.mark.parametrize("effect", REACHED)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_death_at_any_effect_loses_and_repeats_nothing(moment: str, effect: str) -> None:
    """Each of the first four times; all messages are acknowledged in the end."""
    for nth in (1, 2, 3, 4):
        queue = queue_of(20)
        tester = Tester(graph_of(Declared(queue)), policy=CommitPolicy(max_messages=3))
        tester.run(crash=Crash(moment, effect, nth))
        tester.run()
        assert tester.values("ingress") == list(range(1, 21))
        assert not queue.ready
        assert not any(link.unacked.keys() - set(link.acks) for link in queue.links)
        assert verify(tester.graph, tester.broker).ok
        tester.stop()


def test_a_full_window_goes_on_at_once_behind_each_commit() -> None:
    """The source is told of a commit without waiting for `poll_seconds`, which would be minutes here."""
    queue = queue_of(30, prefetch=2)
    with start(graph_of(Declared(queue)), Memory()) as running:
        running.wait_idle(timeout_s=60)
        assert len(running.messages("ingress")) == 30
