"""Groups of the memory broker: sticky, balanced, and a partition never has two owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka.brokers.memory import MemoryBroker, MemoryMember
from cues_kafka.errors import BrokerError, FatalError
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from tests.examples import examples
from tests.unit.samples import StandingClock


@dataclass
class Listener:
    """Keeps what it has and what it was told."""

    held: set[int] = field(default_factory=set)
    told: list[tuple[str, list[int]]] = field(default_factory=list)

    def on_assign(self, partitions: Sequence[int]) -> None:
        assert not self.held & set(partitions)
        self.held |= set(partitions)
        self.told.append(("assign", list(partitions)))

    def on_revoke(self, partitions: Sequence[int]) -> None:
        assert self.held >= set(partitions)
        self.held -= set(partitions)
        self.told.append(("revoke", list(partitions)))

    def on_lost(self, partitions: Sequence[int]) -> None:
        self.held -= set(partitions)
        self.told.append(("lost", list(partitions)))


def a_broker(*, partitions: int = 4, cooperative: bool = True, clock: StandingClock | None = None) -> MemoryBroker:
    broker = MemoryBroker(clock or StandingClock(), cooperative=cooperative)
    broker.create([NewTopic("t", partitions)])
    return broker


def join(broker: MemoryBroker, instance: str | None = None) -> tuple[MemoryMember, Listener]:
    listener = Listener()
    return broker.member("g", "t", listener, instance=instance), listener


def settle(*members: MemoryMember) -> None:
    for _ in range(4):
        for member in members:
            member.poll()


def test_a_newcomer_takes_only_what_is_too_much_elsewhere() -> None:
    """Cooperative and sticky: what stays is never revoked."""
    broker = a_broker(partitions=6)
    one, first = join(broker)
    settle(one)
    two, second = join(broker)
    settle(one, two)
    three, third = join(broker)
    settle(one, two, three)

    assert first.told == [("assign", [0, 1, 2, 3, 4, 5]), ("revoke", [3, 4, 5]), ("revoke", [2])]
    assert second.told == [("assign", [3, 4, 5]), ("revoke", [5])]
    assert third.held == {2, 5}


def test_an_eager_rebalance_takes_everything_first() -> None:
    """No member has a partition before all members have given theirs back; and sticky all the same."""
    broker = a_broker(cooperative=False)
    one, first = join(broker)
    settle(one)
    before = one.metadata()
    two, second = join(broker)
    two.poll()
    assert second.told == []
    assert two.metadata().generation == -1
    assert one.metadata() == before

    settle(one, two)

    assert first.told == [("assign", [0, 1, 2, 3]), ("revoke", [0, 1, 2, 3]), ("assign", [0, 1])]
    assert second.told == [("assign", [2, 3])]
    assert one.metadata().generation == two.metadata().generation == before.generation + 1


def test_a_member_learns_the_generation_when_it_polls() -> None:
    """So that a proof of membership that was published before a rebalance is stale."""
    broker = a_broker()
    one, _ = join(broker)
    assert one.metadata().generation == -1
    one.poll()
    before = one.metadata()

    two, _ = join(broker)
    two.poll()

    assert one.metadata() == before
    one.poll()
    assert one.metadata().generation > before.generation


def test_a_killed_member_keeps_its_partitions_until_its_session_ends() -> None:
    """A4: that is what a static instance saves."""
    clock = StandingClock()
    broker = a_broker(clock=clock)
    one, first = join(broker)
    two, second = join(broker)
    settle(one, two)
    one.kill()
    clock.s += 9
    settle(two)
    assert second.held == {2, 3}

    clock.s += 2
    settle(two)

    assert second.held == {0, 1, 2, 3}
    assert first.told == [("assign", [0, 1])]


def test_a_member_that_does_not_poll_is_expelled_and_comes_back() -> None:
    """max.poll.interval.ms; it is told what it lost, and joins again."""
    clock = StandingClock()
    broker = a_broker(clock=clock)
    one, first = join(broker)
    settle(one)
    clock.s += 301
    assert broker.members("g") == []

    settle(one)

    assert first.told == [("assign", [0, 1, 2, 3]), ("lost", [0, 1, 2, 3]), ("assign", [0, 1, 2, 3])]


def test_an_expelled_member_is_lost_and_others_take_over() -> None:
    """`expire` is the session's end on demand."""
    broker = a_broker()
    one, first = join(broker)
    two, second = join(broker)
    settle(one, two)

    broker.expire("g", broker.members("g")[0])
    settle(two)
    assert second.held == {0, 1, 2, 3}

    one.poll()
    assert first.told[1:] == [("lost", [0, 1]), ("assign", [])]  # it joined again, and waits for its share
    with pytest.raises(BrokerError):
        broker.expire("g", "unknown")


def test_the_predecessor_of_a_static_member_is_told_and_refused() -> None:
    """Two processes with one instance id: a mistake of the operator, and fatal for the earlier one."""
    broker = a_broker()
    one, first = join(broker, "w.0")
    settle(one)
    two, second = join(broker, "w.0")
    settle(two)

    with pytest.raises(FatalError) as refused:
        one.poll()

    assert refused.value.code == "FENCED_INSTANCE_ID"
    assert first.told[-1] == ("lost", [0, 1, 2, 3])
    assert second.held == {0, 1, 2, 3}


def test_a_successor_frees_what_its_predecessor_had_to_give_back() -> None:
    """The predecessor died in the middle of a rebalance: its acknowledgement never comes, and is not waited for."""
    broker = a_broker()
    one, _ = join(broker, "w.0")
    settle(one)
    two, second = join(broker)
    two.poll()
    one.kill()

    three, third = join(broker, "w.0")
    settle(two, three)

    assert third.held | second.held == {0, 1, 2, 3}
    assert len(third.held) == len(second.held) == 2


def test_a_static_member_that_closed_keeps_its_place_for_the_session_only() -> None:
    """A4: it told its listener, and no other member gets its partitions before the session ends."""
    clock = StandingClock()
    broker = a_broker(clock=clock)
    one, first = join(broker, "w.0")
    two, second = join(broker, "w.1")
    settle(one, two)
    one.close(leave=False)
    settle(two)
    assert first.told[-1] == ("revoke", [0, 1])
    assert broker.members("g") == ["w.0", "w.1"]
    assert second.held == {2, 3}

    clock.s += 11
    settle(two)

    assert second.held == {0, 1, 2, 3}


def test_topics_that_come_grow_and_go_move_partitions() -> None:
    """A subscription to a topic that is not there yet is served when it is."""
    broker = MemoryBroker(StandingClock())
    one, listener = join(broker)
    settle(one)
    assert listener.told == [("assign", [])]

    broker.create([NewTopic("t", 1)])
    settle(one)
    broker.add_partitions("t", 3)
    settle(one)
    assert listener.held == {0, 1, 2}

    broker.delete(["t"])
    settle(one)
    assert listener.held == set()


def test_offsets_of_a_deleted_topic_are_gone() -> None:
    """As Kafka's coordinator forgets them; R5 then finds none, and another topic id."""
    broker = a_broker()
    one, _ = join(broker)
    settle(one)
    session = broker.session("id")
    session.init(timeout_s=1)
    session.begin()
    session.send_offsets({TopicPartition("t", 0): 3}, one.metadata())
    session.commit()

    broker.delete(["t"])

    assert broker.committed("g", [TopicPartition("t", 0)]) == {TopicPartition("t", 0): None}


_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["join", "static", "poll", "leave", "close", "kill", "expire", "time"]), st.integers(0, 9)
    ),
    max_size=60,
)


@pytest.mark.parametrize("cooperative", [True, False])
@examples(150)
@given(actions=_ACTIONS, partitions=st.integers(1, 7))
def test_a_partition_never_has_two_living_owners(
    actions: list[tuple[str, int]], partitions: int, cooperative: bool
) -> None:
    """Whatever joins, leaves, dies and polls; and in the end everything is owned, evenly."""
    clock = StandingClock()
    broker = a_broker(partitions=partitions, cooperative=cooperative, clock=clock)
    living: dict[int, tuple[MemoryMember, Listener]] = {}
    for number, (action, choice) in enumerate(actions):
        if action == "time":
            clock.s += choice
        elif action in ("join", "static"):
            _join(broker, living, number, f"i{choice % 3}" if action == "static" else None)
        elif living:
            _act(broker, living, action, sorted(living)[choice % len(living)])
        held = [p for member, listener in living.values() for p in listener.held if not member._membership.gone]
        assert len(held) == len(set(held))

    clock.s += 11  # the sessions of the dead end
    for _ in range(6):
        for member, _listener in list(living.values()):
            member.poll()
    shares = [len(listener.held) for _, listener in living.values()]
    if shares:
        assert sum(shares) == partitions
        assert max(shares) - min(shares) <= 1


def _join(
    broker: MemoryBroker, living: dict[int, tuple[MemoryMember, Listener]], number: int, name: str | None
) -> None:
    for key, (member, _) in list(living.items()):
        if name is not None and member._instance == name:
            member.kill()  # its process died, and the supervisor started another one
            del living[key]
    living[number] = join(broker, name)


def _act(broker: MemoryBroker, living: dict[int, tuple[MemoryMember, Listener]], action: str, key: int) -> None:
    member, _ = living[key]
    if action == "poll":
        member.poll()
    elif action == "expire":
        if member._membership.name in broker.members("g"):
            broker.expire("g", member._membership.name)
    else:
        del living[key]
        if action == "kill":
            member.kill()
        else:
            member.close(leave=action == "leave")
