"""What the protocol asks of a broker: every case runs on the memory broker and on a real Kafka.

A case that the memory broker passed and Kafka does not would make every fast test worthless; a case that nothing can
fail would be worth nothing itself, so each is also seen to fail on a broken broker (`broken.py`, `test_broken.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

import pytest

from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.errors import AbortableError, BrokerError, FatalError, UnstableOffsets
from cues_kafka.ports.clients import FlushReport, GroupMetadata, Session
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Outgoing, Sent, TopicPartition
from tests.contract.world import Recorder, World, record, values

# ---- sessions without a lock


def test_a_loose_session_writes_without_a_lock(world: World) -> None:
    """W5: what it writes is visible at once, no other session stops it, and reports are counted from `begin`."""
    topic, name = world.topic(), world.name("loose")
    first, second = (world.loose_session(name) for _ in range(2))
    for session, value in ((first, b"one"), (second, b"two"), (first, b"three")):
        session.begin()
        assert session.produce([record(topic, value)]) == 1
        assert session.flush().delivered == 1

    assert values(world.read(topic)[0]) == [b"one", b"two", b"three"]


def test_a_member_commits_offsets_without_a_transaction(world: World) -> None:
    """W5: the answer comes in a later poll."""
    topic, group = world.topic(), world.name("group")
    place, told = TopicPartition(topic, 0), list[str]()
    member = world.joined(group, topic)

    member.commit({place: 7}, told.append)
    world.until(lambda: told, members=[member])

    assert told == [""]
    assert world.broker.committed(group, [place]) == {place: 7}


def test_a_member_whose_place_was_taken_commits_no_offsets(world: World) -> None:
    """W6: a former worker learns that its start does not count."""
    topic, group, instance = world.topic(), world.name("group"), world.name("instance")
    place, told = TopicPartition(topic, 0), list[str]()
    first, second = Recorder(), Recorder()
    former = world.member(group, topic, first, instance=instance)
    world.until(lambda: first.held, members=[former])
    member = world.member(group, topic, second, instance=instance)
    world.until(lambda: second.held, members=[member])
    member.commit({place: 7}, told.append)
    world.until(lambda: told, members=[member])

    refused = list[str]()
    former.commit({place: 3}, refused.append)

    def heard() -> bool:
        with suppress(BrokerError):
            former.poll()
        return bool(refused)

    world.until(heard)
    assert refused[0]
    assert world.broker.committed(group, [place]) == {place: 7}


# ---- transactional ids


@pytest.mark.versions
def test_a_second_init_fences_the_first(world: World) -> None:
    """R1: the session that inits last is the only one that can write."""
    topic, id_ = world.topic(), world.name("id")
    first = world.session(id_)
    second = world.session(id_)

    with pytest.raises(BrokerError) as refused:
        _transaction(first, record(topic, b"zombie"))

    assert refused.value.fenced
    assert isinstance(refused.value, FatalError)
    _transaction(second, record(topic, b"owner"))
    assert values(world.read(topic)[0]) == [b"owner"]


@pytest.mark.versions
def test_a_fenced_session_cannot_commit_what_it_wrote(world: World) -> None:
    """R1: fencing in the middle of a transaction."""
    topic, id_ = world.topic(), world.name("id")
    first = world.session(id_)
    first.begin()
    first.produce([record(topic, b"zombie")])
    first.flush()
    world.session(id_)

    with pytest.raises(BrokerError) as refused:
        first.commit()

    assert refused.value.fenced
    assert values(world.read(topic)[0]) == []


@pytest.mark.versions
def test_init_ends_an_open_transaction(world: World) -> None:
    """R1: when init returns, records and offsets of the earlier owner are decided; no time-out is waited for (I5)."""
    topic, group, id_ = world.topic(), world.name("group"), world.name("id")
    place = TopicPartition(topic, 0)
    member = world.joined(group, topic)
    first = world.session(id_)
    first.begin()
    first.send_offsets({place: 0}, member.metadata())
    first.produce([record(topic, b"left open")])
    first.flush()

    world.session(id_)

    marks = world.marks(topic)
    assert marks.stable == marks.high == 2  # one record, one abort marker
    assert world.broker.committed(group, [place]) == {place: None}
    assert values(world.read(topic)[0]) == []


@pytest.mark.versions
def test_fencing_ends_the_transactions_of_all_ids(world: World) -> None:
    """R1, J2: what earlier owners left open is ended when it returns, and none of them writes again."""
    topics, ids = [world.topic() for _ in range(3)], [world.name("id") for _ in range(3)]
    sessions = [world.session(one) for one in ids]
    for session, topic in zip(sessions, topics, strict=True):
        session.begin()
        session.produce([record(topic, b"left open")])
        session.flush()

    assert world.broker.fence(ids, timeout_s=30) == {}

    assert [(marks.stable, marks.high) for marks in map(world.marks, topics)] == [(2, 2)] * 3
    for session in sessions:
        with pytest.raises(BrokerError) as refused:
            session.commit()
        assert refused.value.fenced


def test_a_session_that_is_expected_takes_its_id_only_when_it_is_called_for(world: World) -> None:
    """Until then the session that has the id goes on; then it is the next owner, like any other."""
    topic, id_ = world.topic(), world.name("id")
    first = world.session(id_)
    world.broker.expect([id_, world.name("id")])
    _transaction(first, record(topic, b"goes on"))
    second = world.session(id_)
    with pytest.raises(BrokerError):
        _transaction(first, record(topic, b"is fenced"))
    world.broker.expect([id_])
    world.broker.expect([])
    _transaction(second, record(topic, b"goes on too"))

    world.until(lambda: len(values(world.read(topic)[0])) == 2)
    assert values(world.read(topic)[0]) == [b"goes on", b"goes on too"]


def test_a_transaction_that_times_out_is_aborted(world: World) -> None:
    """An owner that never comes back blocks readers for a bounded time, and cannot commit later."""
    hasty = world.with_short_transactions(1.0)
    topic = hasty.topic()
    session = hasty.session()
    session.begin()
    session.produce([record(topic, b"forgotten")])
    session.flush()
    hasty.until(lambda: hasty.marks(topic).high == 1)

    hasty.until(lambda: hasty.marks(topic).stable == 2)

    with pytest.raises(BrokerError):
        session.commit()
    assert values(hasty.read(topic)[0]) == []


# ---- what readers see


def test_read_committed_hides_open_records(world: World) -> None:
    """A reader does not see what may still be aborted."""
    topic = world.topic()
    world.sender().send([record(topic, b"before")])
    session = world.session()
    session.begin()
    session.produce([record(topic, b"open")])
    session.flush()

    assert values(world.read(topic)[0]) == [b"before"]

    session.commit()
    world.settled(topic)
    assert values(world.read(topic)[0]) == [b"before", b"open"]


@pytest.mark.versions
def test_read_committed_hides_aborted_records(world: World) -> None:
    """Aborted records never reach a reader, committed ones around them do."""
    topic, id_ = world.topic(), world.name("id")
    world.sender().send([record(topic, b"before")])
    session = world.session(id_)
    session.begin()
    session.produce([record(topic, b"aborted")])
    session.flush()
    world.session(id_)
    world.sender().send([record(topic, b"after")])

    messages, end = world.read(topic)

    assert [(m.offset(), m.value()) for m in messages] == [(0, b"before"), (3, b"after")]
    assert end == 4


@pytest.mark.versions
def test_the_high_watermark_passes_an_open_transaction(world: World) -> None:
    """R3 rests on it: the high watermark shows what an earlier owner wrote, decided or not."""
    topic = world.topic()
    session = world.session()
    session.begin()
    session.produce([record(topic, b"open")] * 3)
    session.flush()

    assert world.marks(topic).high == 3


def test_the_last_stable_offset_does_not_pass_an_open_transaction(world: World) -> None:
    """R3 must not use the last stable offset: an open transaction hides newer committed records from it."""
    topic = world.topic()
    world.sender().send([record(topic, b"before")])
    session = world.session()
    session.begin()
    session.produce([record(topic, b"open")])
    session.flush()
    world.sender().send([record(topic, b"committed, and hidden")])

    assert world.marks(topic) == (0, 1, 3)


@pytest.mark.versions
def test_the_end_of_a_partition_comes_at_the_last_stable_offset(world: World) -> None:
    """Section 1: a position is the end's offset when everything is delivered, so the end must not lie too high."""
    topic = world.topic()
    world.sender().send([record(topic, b"a"), record(topic, b"b")])
    session = world.session()
    session.begin()
    session.produce([record(topic, b"open")])
    session.flush()

    messages, end = world.read(topic)

    assert values(messages) == [b"a", b"b"]
    assert end == 2


def test_the_end_comes_again_when_it_has_moved_over_a_marker_only(world: World) -> None:
    """P1, O2: a position moves over markers, also where no message comes with them."""
    topic, id_ = world.topic(), world.name("id")
    world.sender().send([record(topic, b"a")])
    reader = world.reader({TopicPartition(topic, 0): 0})
    assert world.drain(reader)[1] == 1
    session = world.session(id_)
    session.begin()
    session.produce([record(topic, b"aborted")])
    session.flush()
    world.session(id_)

    messages, end = world.drain(reader)

    assert values(messages) == []
    assert end == 3


def test_the_end_is_reported_once_while_it_stands_still(world: World) -> None:
    """An idle reader is silent."""
    topic = world.topic()
    reader = world.reader({TopicPartition(topic, 0): 0})
    assert world.drain(reader) == ([], 0)

    assert world.quiet(reader) == []


# ---- offsets of groups


@pytest.mark.versions
def test_offsets_in_a_transaction_appear_only_with_its_commit(world: World) -> None:
    """Until the commit nothing happened."""
    topic, group, id_ = world.topic(), world.name("group"), world.name("id")
    place = TopicPartition(topic, 0)
    member = world.joined(group, topic)
    session = world.session(id_)
    session.begin()
    session.send_offsets({place: 7}, member.metadata())
    session = world.session(id_)  # aborts
    assert world.broker.committed(group, [place]) == {place: None}

    session.begin()
    session.send_offsets({place: 9}, member.metadata())
    assert session.flush() == FlushReport(0, None)
    session.commit()

    assert _stable(world, group, place) == 9


def test_a_stable_fetch_does_not_look_past_pending_offsets(world: World) -> None:
    """R2: pending is an error, never absent and never the old value."""
    topic, group, id_ = world.topic(), world.name("group"), world.name("id")
    place = TopicPartition(topic, 0)
    member = world.joined(group, topic)
    session = world.session(id_)
    session.begin()
    session.send_offsets({place: 1}, member.metadata())

    with pytest.raises(UnstableOffsets):
        world.broker.committed(group, [place])

    session.commit()
    assert _stable(world, group, place) == 1


@pytest.mark.versions
def test_a_stale_generation_is_refused_before_anything_is_written(world: World) -> None:
    """P5: a worker that has left the group is refused with its offsets."""
    topic, group = world.topic(partitions=2), world.name("group")
    listener, other = Recorder(), Recorder()
    member = world.member(group, topic, listener)
    world.until(lambda: listener.held == {0, 1}, members=[member])
    stale = member.metadata()
    second = world.member(group, topic, other)
    world.until(lambda: listener.held and other.held, members=[member, second])

    session = world.session()
    session.begin()
    with pytest.raises(BrokerError) as refused:
        session.send_offsets({TopicPartition(topic, 0): 5}, stale)

    assert isinstance(refused.value, AbortableError)
    assert refused.value.code == "ILLEGAL_GENERATION"
    session.abandon()
    assert world.marks(topic).high == 0
    assert _stable(world, group, TopicPartition(topic, 0)) is None


@pytest.mark.versions
def test_a_worker_that_left_the_group_is_refused(world: World) -> None:
    """P5: after the group has emptied, the old proof of membership is worth nothing."""
    topic, group = world.topic(), world.name("group")
    member = world.joined(group, topic)
    stale = member.metadata()
    member.close(leave=True)
    world.until(lambda: not world.broker.members(group))

    session = world.session()
    session.begin()
    with pytest.raises(BrokerError) as refused:
        session.send_offsets({TopicPartition(topic, 0): 5}, stale)

    assert refused.value.code in {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"}


def test_a_negative_generation_is_refused_by_ourselves(world: World) -> None:
    """P5: a classic group would take it from anybody, without any check."""
    topic, group = world.topic(), world.name("group")
    member = world.member(group, topic, Recorder())
    metadata = member.metadata()
    assert metadata.generation < 0
    session = world.session()
    session.begin()

    with pytest.raises(BrokerError, match="generation -1"):
        session.send_offsets({TopicPartition(topic, 0): 5}, metadata)

    session.abandon()
    assert _stable(world, group, TopicPartition(topic, 0)) is None


def test_offsets_from_outside_of_the_group_are_taken_where_it_is_said(world: World) -> None:
    """D4: a slot is no member; its transactional id is what fences it."""
    topic, group = world.topic(), world.name("group")
    session = world.session()
    session.begin()
    session.send_offsets({TopicPartition(topic, 0): 5}, GroupMetadata.outside(group))
    session.commit()

    assert _stable(world, group, TopicPartition(topic, 0)) == 5


def test_offsets_of_a_topic_that_the_group_does_not_subscribe_to_are_taken(world: World) -> None:
    """A1: the member subscribes to the lead input only; offsets of all inputs travel in one call."""
    lead, other, group = world.topic(), world.topic(), world.name("group")
    member = world.joined(group, lead)
    session = world.session()
    session.begin()
    session.send_offsets({TopicPartition(lead, 0): 3, TopicPartition(other, 0): 4}, member.metadata())
    session.commit()

    assert _stable(world, group, TopicPartition(lead, 0)) == 3
    assert _stable(world, group, TopicPartition(other, 0)) == 4


def test_a_rebalance_after_the_offsets_call_does_not_stop_the_commit(world: World) -> None:
    """P5: after it the group is not asked again."""
    topic, group = world.topic(partitions=2), world.name("group")
    place = TopicPartition(topic, 0)
    listener, other = Recorder(), Recorder()
    member = world.member(group, topic, listener)
    world.until(lambda: listener.held == {0, 1}, members=[member])
    session = world.session()
    session.begin()
    session.send_offsets({place: 5}, member.metadata())

    second = world.member(group, topic, other)
    world.until(lambda: listener.held and other.held, members=[member, second])
    session.produce([record(topic, b"after the rebalance")])
    session.flush()
    session.commit()

    assert _stable(world, group, place) == 5
    world.settled(topic)
    assert values(world.read(topic)[0]) == [b"after the rebalance"]


def test_a_group_without_offsets_has_none(world: World) -> None:
    """R5 tells absent offsets from other ones."""
    topic = world.topic(partitions=2)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]

    assert world.broker.committed(world.name("group"), places) == dict.fromkeys(places)


def _offsets(world: World, group: str, places: Sequence[TopicPartition]) -> None:
    """The group gets the offset 5 of each of these."""
    session = world.session()
    session.begin()
    session.send_offsets(dict.fromkeys(places, 5), GroupMetadata.outside(group))
    session.commit()
    for place in places:
        assert _stable(world, group, place) == 5


def test_a_forgotten_group_has_no_offsets(world: World) -> None:
    """What its application would go on at; to forget it again is no error."""
    topic, group = world.topic(), world.name("group")
    place = TopicPartition(topic, 0)
    _offsets(world, group, [place])

    assert world.broker.forget(group, [topic])

    assert world.broker.committed(group, [place]) == {place: None}
    assert world.broker.forget(group, [topic])


def test_a_group_with_offsets_of_other_topics_is_not_forgotten(world: World) -> None:
    """Its application goes on with the others."""
    topic, other, group = world.topic(), world.topic(), world.name("group")
    places = [TopicPartition(topic, 0), TopicPartition(other, 0)]
    _offsets(world, group, places)

    assert not world.broker.forget(group, [topic])

    assert world.broker.committed(group, places) == dict.fromkeys(places, 5)


def test_a_group_with_members_is_not_forgotten(world: World) -> None:
    """Its application runs."""
    topic, group = world.topic(), world.name("group")
    place = TopicPartition(topic, 0)
    _offsets(world, group, [place])
    member = world.joined(group, topic)

    with pytest.raises(BrokerError):
        world.broker.forget(group, [topic])

    assert member.metadata().generation >= 0
    assert world.broker.committed(group, [place]) == {place: 5}


# ---- membership


def test_a_partition_moves_only_after_its_revocation_has_returned(world: World) -> None:
    """A3: with nothing assigned locally; returning from on_revoke acknowledges, and not before."""
    topic, group = world.topic(partitions=2), world.name("group")
    listener, other = Recorder(), Recorder()
    member = world.member(group, topic, listener)
    world.until(lambda: listener.held == {0, 1}, members=[member])
    second = world.member(group, topic, other)
    early: list[set[int]] = []

    def revoking(_: list[int]) -> None:
        world.watch([second])
        early.append(set(other.held))

    listener.on_revoking = revoking
    world.until(lambda: listener.held and other.held, members=[member, second])
    listener.on_revoking = None

    assert early == [set()]
    assert listener.held | other.held == {0, 1}
    assert not listener.held & other.held
    assert [told for told, partitions in listener.told if partitions] == ["assign", "revoke"]


def test_an_eager_rebalance_takes_everything_before_it_gives_anything(world: World) -> None:
    """A3, eager assignors: there is a moment in which no member has a partition."""
    eager = world.with_eager_members()
    topic, group = eager.topic(partitions=2), eager.name("group")
    listener, other = Recorder(), Recorder()
    member = eager.member(group, topic, listener)
    eager.until(lambda: listener.held == {0, 1}, members=[member])
    second = eager.member(group, topic, other)

    eager.until(lambda: listener.held and other.held, members=[member, second])

    told = [(what, partitions) for what, partitions in listener.told if partitions]
    assert told[:2] == [("assign", [0, 1]), ("revoke", [0, 1])]
    assert listener.held | other.held == {0, 1}
    assert not listener.held & other.held


def test_a_leaving_member_gives_its_partitions_back(world: World) -> None:
    """A4: leaving for good revokes through the listener, and the others take over without waiting for a session."""
    topic, group = world.topic(partitions=2), world.name("group")
    listener, other = Recorder(), Recorder()
    member, second = world.member(group, topic, listener), world.member(group, topic, other)
    world.until(lambda: listener.held and other.held, members=[member, second])
    had = set(listener.held)

    member.close(leave=True)

    assert listener.told[-1] == ("revoke", sorted(had))
    world.until(lambda: other.held == {0, 1}, members=[second])


@pytest.mark.versions
def test_a_static_member_takes_its_predecessors_place_at_once(world: World) -> None:
    """A4: a restarted worker has its tasks back, and no other worker is disturbed."""
    topic, group = world.topic(partitions=4), world.name("group")
    listener, other, successor = Recorder(), Recorder(), Recorder()
    member = world.member(group, topic, listener, instance="worker.0")
    second = world.member(group, topic, other, instance="worker.1")
    world.until(lambda: len(listener.held) == len(other.held) == 2, members=[member, second])
    had, told = set(listener.held), len(other.told)
    member.close(leave=False)

    third = world.member(group, topic, successor, instance="worker.0")
    world.until(lambda: successor.held, members=[third, second])

    assert successor.held == had
    assert [partitions for _, partitions in other.told[told:] if partitions] == []
    assert sorted(world.broker.members(group)) == ["worker.0", "worker.1"]


@pytest.mark.versions
def test_the_predecessor_of_a_static_member_is_fenced(world: World) -> None:
    """A4: two workers with one instance id: the later one has the place, the proof of the earlier one is refused."""
    topic, group = world.topic(), world.name("group")
    listener, successor = Recorder(), Recorder()
    member = world.member(group, topic, listener, instance="worker.0")
    world.until(lambda: listener.held, members=[member])
    stale = member.metadata()

    second = world.member(group, topic, successor, instance="worker.0")
    world.until(lambda: successor.held, members=[second])
    session = world.session()
    session.begin()

    with pytest.raises(BrokerError) as refused:
        session.send_offsets({TopicPartition(topic, 0): 1}, stale)
    assert refused.value.code in {"FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID"}


# ---- readers


def test_a_reader_starts_where_it_is_told_and_stops_when_told(world: World) -> None:
    """A1: incremental assignment from explicit offsets."""
    topic = world.topic(partitions=2)
    world.sender().send([record(topic, b"%d" % n, partition=n % 2) for n in range(10)])
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = world.reader({zero: 3})
    assert values(world.drain(reader)[0]) == [b"6", b"8"]

    reader.assign({one: 4})
    assert values(world.drain(reader)[0]) == [b"9"]

    reader.unassign([zero])
    world.sender().send([record(topic, b"gone"), record(topic, b"here", partition=1)])
    assert values(world.drain(reader)[0]) == [b"here"]
    assert world.quiet(reader) == []

    reader.assign({zero: 5})  # a second time, from where it is told, not from where it was
    assert values(world.drain(reader)[0]) == [b"gone"]


def test_a_paused_partition_brings_nothing_until_it_is_resumed(world: World) -> None:
    """A2: a full buffer is paused; nothing of it is lost or doubled."""
    topic = world.topic(partitions=2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = world.reader({zero: 0, one: 0})
    world.until(lambda: world.quiet(reader) == [])
    reader.pause([zero])
    world.sender().send([record(topic, b"paused"), record(topic, b"not paused", partition=1)])

    assert [value for fetched in world.quiet(reader) for value in values(fetched.messages)] == [b"not paused"]

    reader.resume([zero])
    assert values(world.drain(reader)[0]) == [b"paused"]


def test_a_partition_that_was_paused_and_is_assigned_anew_is_not_paused_any_more(world: World) -> None:
    """A2: a pause dies with its buffer; kept, it would starve the task that recovers, without end and in silence."""
    topic = world.topic(partitions=2)
    zero = TopicPartition(topic, 0)
    world.sender().send([record(topic, b"a"), record(topic, b"b")])
    reader = world.reader({zero: 0})  # not before: it may have told of the end at 0
    assert values(world.drain(reader)[0]) == [b"a", b"b"]
    reader.pause([zero])
    reader.unassign([zero])
    reader.assign({zero: 1})

    assert values(world.drain(reader)[0]) == [b"b"]


def test_an_offset_out_of_range_is_an_error_and_never_a_guess(world: World) -> None:
    """R5 decides what lost data means; a reader that resets by itself would skip it in silence."""
    topic = world.topic()
    world.sender().send([record(topic, b"a")] * 5)
    place = TopicPartition(topic, 0)
    world.broker.trim({place: 3})
    reader = world.reader({place: 1})

    with pytest.raises(BrokerError) as refused:
        world.quiet(reader)

    assert refused.value.code == "_AUTO_OFFSET_RESET"
    assert refused.value.at == place
    reader.unassign([place])
    reader.assign({place: 3})
    assert len(world.drain(reader)[0]) == 2


def test_a_poll_brings_no_more_than_it_was_asked_for(world: World) -> None:
    """A batch has a bound, and what is left comes next, in order."""
    topic = world.topic()
    world.sender().send([record(topic, b"%d" % n) for n in range(10)])
    reader = world.reader({TopicPartition(topic, 0): 0})
    batches: list[list[bytes | None]] = []

    def ten() -> bool:
        batches.extend(values(fetched.messages) for fetched in reader.poll(0.1, 4))
        return sum(map(len, batches)) == 10

    world.until(ten)

    assert max(map(len, batches)) <= 4
    assert [value for batch in batches for value in batch] == [b"%d" % n for n in range(10)]


# ---- writing


@pytest.mark.versions
def test_flush_counts_deliveries_and_names_the_first_offset(world: World) -> None:
    """P6, P6a: successes equal produce calls, and the first record's place is known before the commit."""
    topic = world.topic(partitions=2)
    world.sender().send([record(topic, b"before")] * 4)
    session = world.session()
    session.begin()

    assert session.produce([record(topic, b"first"), record(topic, b"second", partition=1)]) == 2
    assert session.produce([record(topic, b"third")]) == 1

    assert session.flush() == FlushReport(3, 4)
    session.commit()


@pytest.mark.versions
def test_flush_names_the_first_offset_of_each_marked_part(world: World) -> None:
    """J3, P6a: several tasks in one transaction, each with a record of its own."""
    topic = world.topic(partitions=2)
    world.sender().send([record(topic, b"before")] * 4)
    session = world.session()
    for nth in range(2):
        session.begin()
        session.produce([record(topic, b"t", partition=1)], marked=True)
        session.produce([record(topic, b"output")])
        session.produce(iter([record(topic, b"t"), record(topic, b"t")]), marked=True)

        assert session.flush() == FlushReport(4, 2 * nth, (2 * nth, 5 + 4 * nth))
        session.commit()


@pytest.mark.versions
def test_the_next_transactions_first_offset_is_two_further(world: World) -> None:
    """P6a: one record and its marker; anything else means that another program writes here."""
    topic = world.topic()
    session = world.session()

    firsts = [_transaction(session, record(topic, b"t")).first_offset for _ in range(4)]

    assert firsts == [0, 2, 4, 6]
    assert world.settled(topic) == (0, 8, 8)


def test_a_record_over_the_limit_ends_the_transaction(world: World) -> None:
    """P4 checks sizes before; if one slips through, nothing of its transaction is committed."""
    topic = world.topic()
    session = world.session()

    with pytest.raises(BrokerError) as refused:
        _transaction(session, record(topic, b"small"), record(topic, b"x" * 2_000_000))

    assert refused.value.code == "MSG_SIZE_TOO_LARGE"
    session.abandon()
    assert values(world.read(topic)[0]) == []


def test_a_sender_knows_the_places_of_what_it_sent(world: World) -> None:
    """An acknowledged record has an offset, and it is there."""
    topic = world.topic(partitions=2)

    places = world.sender().send([record(topic, b"%d" % n, partition=n % 2) for n in range(4)])

    assert places == [Sent(topic, 0, 0), Sent(topic, 1, 0), Sent(topic, 0, 1), Sent(topic, 1, 1)]
    assert values(world.read(topic, 1)[0]) == [b"1", b"3"]


def test_keys_go_where_murmur2_says(world: World) -> None:
    """All clients of a pipeline must agree, else joins miss and order is lost."""
    topic = world.topic(partitions=7)
    keys = [b"key-%d" % n for n in range(300)] + [b"", b"\x00\xff" * 5, "Grüße".encode()]

    places = world.sender().send([record(topic, b"v", key, None) for key in keys])

    assert [place.partition for place in places] == [partition_for(key, 7) for key in keys]


@pytest.mark.versions
def test_a_message_comes_back_as_it_was_written(world: World) -> None:
    """Null keys and values, empty ones, headers and timestamps survive."""
    topic = world.topic(config={"retention.ms": "-1"})  # these times are of 1970
    stamped = world.topic(config={"message.timestamp.type": "LogAppendTime"})
    headers = [("a", b"1"), ("a", b"2"), ("n", None)]
    world.sender().send(
        [
            Outgoing(topic, 0, None, None, None, 1_000_000),
            Outgoing(topic, 0, b"", b"", headers, 2_000_000),
            Outgoing(stamped, 0, b"k", b"v", None, 3_000_000),
        ]
    )

    plain, full = world.read(topic)[0]
    (broker_time,) = world.read(stamped)[0]

    assert (plain.key(), plain.value(), plain.headers() or [], plain.timestamp()) == (None, None, [], (1, 1_000_000))
    assert (full.key(), full.value(), full.headers(), full.timestamp()) == (b"", b"", headers, (1, 2_000_000))
    assert (full.topic(), full.partition(), full.offset()) == (topic, 0, 1)
    assert broker_time.timestamp()[0] == 2
    assert broker_time.timestamp()[1] > 3_000_000


# ---- topics


def test_compaction_keeps_the_newest_of_a_key(world: World) -> None:
    """Section 1: backing records share one key, so that compaction always keeps the newest, at its offset."""
    topic = world.topic(config=world.backend.compaction_config())
    session = world.session()
    for n in range(5):
        _transaction(session, record(topic, b"%d" % n, b"t"), record(topic, b"e%d" % n, b"e"))
    world.settled(topic)

    def compacted() -> bool:
        world.backend.compact(world.broker, topic)
        return len([m for m in world.read(topic)[0] if m.offset() < 15]) <= 2

    world.until(compacted)

    messages = [m for m in world.read(topic)[0] if m.offset() < 15]
    assert [(m.offset(), m.key(), m.value()) for m in messages] == [(12, b"t", b"4"), (13, b"e", b"e4")]
    assert world.marks(topic).low == 0


def test_a_compacted_topic_takes_no_message_without_a_key(world: World) -> None:
    """Compaction could not tell which one is the newest."""
    topic = world.topic(config={"cleanup.policy": "compact"})

    with pytest.raises(BrokerError) as refused:
        world.sender().send([record(topic, b"v", None)])

    assert refused.value.code in {"INVALID_RECORD", "_INVALID_RECORD"}


@pytest.mark.versions
def test_a_timestamp_outside_of_the_topics_limits_is_refused(world: World) -> None:
    """How far back and how far ahead are settings; before Kafka 4.0 there is no bound ahead by default."""
    limits = {"message.timestamp.before.max.ms": "600000", "message.timestamp.after.max.ms": "3600000"}
    topic = world.topic(config=limits)
    sender, now = world.sender(), int(time.time() * 1000)

    for minutes in (-60, 120):
        with pytest.raises(BrokerError) as refused:
            sender.send([Outgoing(topic, 0, None, b"v", None, now + minutes * 60_000)])
        assert refused.value.code == "INVALID_TIMESTAMP"
    sender.send(
        [Outgoing(topic, 0, None, b"v", None, now - 60_000), Outgoing(topic, 0, None, b"w", None, now + 60_000)]
    )

    assert values(world.read(topic)[0]) == [b"v", b"w"]


def test_trimming_moves_the_low_watermark(world: World) -> None:
    """R5 names the lost range by it."""
    topic = world.topic()
    world.sender().send([record(topic, b"%d" % n) for n in range(5)])

    world.broker.trim({TopicPartition(topic, 0): 3})

    assert world.marks(topic) == (3, 5, 5)
    assert values(world.read(topic, start=3)[0]) == [b"3", b"4"]


@pytest.mark.versions
def test_a_recreated_topic_has_another_id(world: World) -> None:
    """R6: offsets of a topic that was recreated mean nothing."""
    topic = world.topic()
    world.sender().send([record(topic, b"old")])
    before = world.broker.facts([topic]).topics[topic].topic_id

    world.broker.delete([topic])
    assert world.broker.facts([topic]).topics == {}
    world.broker.create([NewTopic(topic, 1)])

    after = world.broker.facts([topic]).topics[topic].topic_id
    assert len(before) == len(after) == 16
    assert before != after
    assert world.marks(topic) == (0, 0, 0)


def test_creating_a_topic_again_leaves_it_as_it_is(world: World) -> None:
    """`plan` creates what is missing and touches nothing else."""
    topic = world.topic(partitions=2, config={"cleanup.policy": "compact"})
    before = world.broker.facts([topic]).topics[topic]

    world.broker.create([NewTopic(topic, 5)])
    after = world.broker.facts([topic, world.name("missing")])

    assert set(after.topics) == {topic}
    assert after.topics[topic] == before
    assert before.partitions == 2
    assert before.config.get("cleanup.policy") == "compact"
    assert after.brokers >= 1


def test_partition_counts_come_without_the_topics_that_are_not_there(world: World) -> None:
    """A subscription by pattern sees new topics and new partitions by it."""
    topic, other = world.topic(partitions=2), world.topic()

    asked = world.broker.partitions([topic, world.name("missing")])
    world.broker.add_partitions(topic, 3)
    listed = world.broker.partitions()

    assert asked == {topic: 2}
    assert (listed.get(topic), listed.get(other)) == (3, 1)
    assert "__consumer_offsets" not in listed


def test_a_setting_is_changed_and_the_others_stay(world: World) -> None:
    """`plan --apply` makes changelogs keep what a cut needs."""
    topic = world.topic(config={"cleanup.policy": "compact"})

    world.broker.configure(topic, {"min.compaction.lag.ms": "60000"})
    config = world.broker.facts([topic]).topics[topic].config

    assert (config["min.compaction.lag.ms"], config["cleanup.policy"]) == ("60000", "compact")


def test_the_offset_of_a_time_is_that_of_the_first_message_at_or_past_it(world: World) -> None:
    """Where a read begins that is told a time; an open transaction hides nothing from it."""
    topic, now = world.topic(), int(time.time() * 1000)
    place = TopicPartition(topic, 0)
    world.sender().send([Outgoing(topic, 0, b"k", b"%d" % n, None, now + n * 10) for n in range(3)])
    session = world.session()
    session.begin()
    session.produce([Outgoing(topic, 0, b"k", b"open", None, now + 30)])
    session.flush()
    world.until(lambda: world.marks(topic).high == 4)

    found = [world.broker.offsets_at({place: now + later})[place] for later in (-5, 10, 11, 30, 31)]

    assert found == [0, 1, 2, 3, None]


@pytest.mark.versions
def test_an_open_transaction_is_dated_by_its_first_record(world: World) -> None:
    """That is all that a reader can see of it; a partition without one is left out."""
    topic, now_s = world.topic(partitions=2), int(time.time())
    world.sender().send([Outgoing(topic, p, b"k", b"v", None, (now_s - 50) * 1000) for p in (0, 1)])
    session = world.session()
    session.begin()
    session.produce([Outgoing(topic, 0, b"k", b"open", None, (now_s - 20 + n) * 1000) for n in (0, 1)])
    session.flush()
    world.until(lambda: world.marks(topic).high == 3)

    found = world.broker.open_since([TopicPartition(topic, p) for p in (0, 1)], group="g.tools")

    assert found == {TopicPartition(topic, 0): now_s - 20}


def _transaction(session: Session, *records: Outgoing) -> FlushReport:
    """One transaction with these records."""
    session.begin()
    session.produce(records)
    flushed = session.flush()
    session.commit()
    return flushed


def _stable(world: World, group: str, place: TopicPartition) -> int | None:
    """The committed offset; for a moment after a commit it is still pending (M11), then it is asked again."""
    found: list[int | None] = []

    def asked() -> bool:
        try:
            found.append(world.broker.committed(group, [place])[place])
        except UnstableOffsets:
            return False
        return True

    world.until(asked)
    return found[-1]
