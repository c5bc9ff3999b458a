"""The coordinator of groups: who is a member, until when, and what a group has committed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf

from cues_kafka.brokers.memory.groups import UNKNOWN_MEMBER, Group, Membership
from cues_kafka.brokers.memory.monitor import Monitor
from cues_kafka.brokers.memory.topics import Topics
from cues_kafka.errors import BrokerError, FatalError, UnstableOffsets
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.log import TopicPartition


class GroupCoordinator:
    """
    What members ask, and operators. Methods take the lock, except the last ones, which expect that it is held.

    Args:
        monitor: the lock and the clock.
        topics: that members share.
        group_type: of groups.
        cooperative: how groups rebalance; False is eager.
        session_timeout_s: how long the group keeps the place of a silent member (killed, or closed without leaving).
        max_poll_interval_s: how long a living member may go without a poll.

    Attributes:
        groups: by name.
    """

    def __init__(
        self,
        monitor: Monitor,
        topics: Topics,
        group_type: type[Group],
        *,
        cooperative: bool,
        session_timeout_s: float,
        max_poll_interval_s: float,
    ) -> None:
        self.groups: dict[str, Group] = {}
        self._monitor = monitor
        self._topics = topics
        self._group_type = group_type
        self._cooperative = cooperative
        self._session_timeout_s = session_timeout_s
        self._max_poll_interval_s = max_poll_interval_s

    # ---- members

    def join(self, group: str, topic: str, instance: str | None) -> Membership:
        with self._monitor.changed:
            self._monitor.tick()
            now = self._monitor.clock.monotonic()
            member = Membership(f"{group}-{next(self._monitor.numbers)}", instance, topic, now)
            self._monitor.expect(now + self._session_timeout_s)
            self.named(group).join(member)
            return member

    def heartbeat(self, group: str, member: Membership) -> tuple[set[int], set[int], bool]:
        """
        Serve a member's poll: what it gives back; if nothing, what it gets; and whether this is its first assignment.

        Raises:
            FatalError: it is no longer a member; the code says why.
        """
        with self._monitor.changed:
            self._monitor.tick()
            if member.gone:
                raise FatalError(f"{member.name} is no longer a member of group {group}", code=member.gone)
            member.seen = self._monitor.clock.monotonic()
            revoked, assigned, first = self.groups[group].changes(member)
            if not revoked:
                member.held |= assigned  # at once: between here and the callback another rebalance may come
            return revoked, assigned, first

    def acknowledge(self, group: str, member: Membership, partitions: set[int]) -> None:
        """Note that the member has given these partitions back."""
        with self._monitor.changed:
            self.groups[group].acknowledge(member, partitions)

    def leave(self, group: str, member: Membership) -> None:
        """Take a member out that goes for good."""
        with self._monitor.changed:
            if not member.gone:
                self.groups[group].remove(member)

    def silence(self, member: Membership) -> None:
        """Note that the member's process is gone; its place is kept until the session timeout."""
        with self._monitor.changed:
            member.silent = True
            member.seen = self._monitor.clock.monotonic()
            self._monitor.expect(member.seen + self._session_timeout_s)

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: GroupMetadata) -> str:
        """Commit offsets of a member without a transaction; gives why they are refused, or an empty text."""
        with self._monitor.changed:
            self._monitor.tick()
            group = self.named(metadata.group)
            if code := group.check(metadata):
                return f"group {group.name} is at generation {group.generation} and refuses {metadata}: {code}"
            group.offsets.update(offsets)
            return ""

    # ---- questions, and what operators do

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        with self._monitor.changed:
            self._monitor.tick()
            known = self.groups.get(group)
            if known is None:
                return dict.fromkeys(partitions)
            for place in partitions:
                if known.unstable(place):
                    raise UnstableOffsets(
                        f"an open transaction holds an offset of {place.topic}/{place.partition} in group {group}",
                        code="UNSTABLE_OFFSET_COMMIT",
                    )
            return {place: known.offsets.get(place) for place in partitions}

    def members(self, group: str) -> list[str]:
        with self._monitor.changed:
            self._monitor.tick()
            return [member.name for member in self.groups[group].members] if group in self.groups else []

    def forget(self, group: str, topics: Collection[str]) -> bool:
        with self._monitor.changed:
            self._monitor.tick()
            known = self.groups.get(group)
            if known is not None and known.members:
                raise FatalError(f"deleting group {group}: it has members", code="NON_EMPTY_GROUP")
            if known is not None and {place.topic for place in known.offsets} - set(topics):
                return False
            self.groups.pop(group, None)
            return True

    def end_sessions(self, group: str, name: str | None) -> None:
        """
        End the session of the member with this name, or of all members of the group.

        Raises:
            BrokerError: the group has no such member.
        """
        with self._monitor.changed:
            known = self.groups.get(group)
            doomed = [member for member in known.members if name in (None, member.name)] if known else []
            if name is not None and not doomed:
                raise BrokerError(f"group {group} has no member {name}", code=UNKNOWN_MEMBER)
            for member in doomed:
                self.groups[group].remove(member)

    def forget_offsets(self, group: str) -> None:
        """Let a group's committed offsets expire, as they do some time after its last member has gone."""
        with self._monitor.changed:
            if group in self.groups:
                self.groups[group].offsets.clear()

    # ---- for the other parts; the lock is held

    def named(self, name: str) -> Group:
        """A group; it comes to be when it is first named."""
        if name not in self.groups:
            self.groups[name] = self._group_type(name, self._topics.count, cooperative=self._cooperative)
        return self.groups[name]

    def forget_topic(self, topic: str) -> None:
        """Drop the offsets of a deleted topic."""
        for group in self.groups.values():
            group.forget(topic)

    def rebalance(self, topic: str) -> None:
        """Share the partitions of a topic again, for their number is another."""
        for group in self.groups.values():
            if any(member.topic == topic for member in group.members):
                group.rebalance()

    def expire(self, now: float) -> float:
        """Remove the members whose time is over; gives when the next one's is."""
        for group in self.groups.values():
            for member in [member for member in group.members if self._end_of(member) <= now]:
                group.remove(member)
        return min((self._end_of(member) for group in self.groups.values() for member in group.members), default=inf)

    def _end_of(self, member: Membership) -> float:
        """When the time of a member that is not heard of again is over."""
        return member.seen + (self._session_timeout_s if member.silent else self._max_poll_interval_s)
