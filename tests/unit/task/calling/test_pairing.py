"""The buffer of a task: which messages a batch takes, and where its positions stand after it."""

from __future__ import annotations

from cues_kafka.brokers.memory import MemoryMessage
from cues_kafka.ports.log import Fetched, Position, TopicPartition, WireMessage
from cues_kafka.task.calling.pairing import Buffer
from tests.unit.samples import at


class _At:
    """A message that has an offset, and a value of no bytes."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def __len__(self) -> int:
        return 0


def buffer_behind_a_marker() -> Buffer:
    """Two inputs; of the first, one message and a marker behind it are delivered and recorded."""
    buffer = Buffer("alts", (Position("left", "a", b"", 0), Position("right", "b", b"", 0)))
    buffer.add(Fetched(TopicPartition("a", 0), [at("a", 0)], 2))
    assert [p.offset for p in buffer.cut(5).ends] == [2, 0]
    buffer.add(Fetched(TopicPartition("b", 0), [at("b", 0), at("b", 1)], 2))
    return buffer


def test_a_retried_choice_takes_every_message_of_each_run() -> None:
    """One message too many was taken from the input for each run of the choice but its last."""
    buffer = Buffer("alts", (Position("a", "a", b"", 0), Position("b", "b", b"", 0)))
    buffer.add(Fetched(TopicPartition("a", 0), [_At(0), _At(1)], 2))  # type: ignore[list-item]
    buffer.add(Fetched(TopicPartition("b", 0), [_At(0)], 1))  # type: ignore[list-item]
    ends = (Position("a", "a", b"", 2), Position("b", "b", b"", 1))
    steps = buffer.cut_exactly(ends, (("a", 1), ("b", 1), ("a", 1))).steps
    assert [(index, message.offset()) for index, message in steps] == [(0, 0), (1, 0), (0, 1)]


def test_an_order_of_alts_that_compaction_has_emptied_holds_no_input_up() -> None:
    """The order of what a retry put off names one message of the left input, which is gone; the right one goes on."""
    buffer = Buffer("alts", (Position("left", "a", b"", 0), Position("right", "b", b"", 0)))
    buffer.add(Fetched(TopicPartition("a", 0), [], 3))
    buffer.add(Fetched(TopicPartition("b", 0), [at("b", 0)], 1))
    cut = buffer.cut_chosen(5, (("left", 1),), ())
    assert (len(cut.steps), cut.choice) == (1, (("right", 1),))


def test_an_order_of_alts_that_compaction_has_thinned_out_ends_where_the_log_does() -> None:
    """Of three messages one was left; the order still named two, and the other input waited without end."""
    buffer = Buffer("alts", (Position("left", "a", b"", 1), Position("right", "b", b"", 0)))
    buffer.add(Fetched(TopicPartition("a", 0), [at("a", 3)], 4))
    buffer.add(Fetched(TopicPartition("b", 0), [at("b", 0)], 1))
    cut = buffer.cut_chosen(5, (("left", 3), ("right", 1)), ())
    assert cut.choice == (("left", 1), ("right", 1))


def test_a_position_behind_a_marker_stays_there_when_a_batch_is_cut_short() -> None:
    """It went back to the marker, and `verify` said so: a record's position had gone back."""
    buffer = buffer_behind_a_marker()
    steps = buffer.cut(5).steps
    assert [p.offset for p in buffer.ends_before(steps[1:])] == [2, 1]


def test_a_position_behind_a_marker_stays_there_when_more_arrives() -> None:
    """The same, where the next batch takes nothing of that input yet."""
    buffer = buffer_behind_a_marker()
    buffer.add(Fetched(TopicPartition("a", 0), [at("a", 2)], 3))
    buffer.cut(1)
    assert [p.offset for p in buffer.positions] == [3, 0]
    buffer = buffer_behind_a_marker()
    buffer.add(Fetched(TopicPartition("a", 0), [at("a", 2)], 3))
    assert [p.offset for p in buffer.positions] == [2, 0]


def test_bytes_of_a_buffer_are_those_of_what_it_holds() -> None:
    """Where a fetch is taken in parts, each part counts as its share; nothing is left over when all of it is taken."""
    topic, begin = "a", Position("a", "a", b"", 0)
    messages: list[WireMessage] = [MemoryMessage(topic, 0, n, None, bytes(n), None, (0, 0), 0) for n in range(1, 8)]
    buffer = Buffer("single", (begin,))
    buffer.add(Fetched(TopicPartition(topic, 0), messages[:5], None))
    buffer.add(Fetched(TopicPartition(topic, 0), messages[5:], None))
    assert buffer.bytes_of(topic) == 28

    first = buffer.cut(2).steps
    assert buffer.bytes_of(topic) == 28 - 15 * 2 // 5
    buffer.put_back(first)
    assert buffer.bytes_of(topic) == 28 - 15 * 2 // 5 + 3
    buffer.cut(6)
    assert buffer.cut(9).steps == messages[6:]
    assert buffer.bytes_of(topic) == 0
