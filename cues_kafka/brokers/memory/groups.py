"""Consumer groups: generations, the sticky assignment of one topic's partitions, and how they change hands.

Cooperative: every change is a new generation at once. A partition that moves is first taken from its owner; when the
owner has acknowledged (returned from `on_revoke`), the next generation gives it to the new owner.
Eager: a change takes everything from every member; when all have acknowledged, the next generation gives it out again.

Nothing here takes a lock or calls a listener: the coordinator takes the lock, and a member's own thread calls its
listener.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cues_kafka.ports.clients import OUTSIDE, GroupMetadata
from cues_kafka.ports.log import TopicPartition

UNKNOWN_MEMBER = "UNKNOWN_MEMBER_ID"
FENCED_INSTANCE = "FENCED_INSTANCE_ID"
ILLEGAL_GENERATION = "ILLEGAL_GENERATION"


@dataclass(slots=True, eq=False)
class Membership:
    """
    What the coordinator knows of one member.

    Attributes:
        target: the partitions that the group gives it now.
        held: the partitions that it was told of and has not given back yet.
        generation: the generation that it learned in its last poll; -1 before it was told an assignment.
        seen: when it last polled, on the cluster's clock.
        silent: its process died or closed without leaving: only the session timeout counts from `seen` on.
        gone: the error code that says why it is no longer a member; empty while it is one.
    """

    member_id: str
    instance: str | None
    topic: str
    seen: float
    target: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    generation: int = -1
    silent: bool = False
    gone: str = ""

    @property
    def name(self) -> str:
        """How the group's listing shows it."""
        return self.instance or self.member_id


class Group:
    """
    One group: its members, its generation, its committed and pending offsets.

    Args:
        name: the group's id.
        partitions: gives the partition count of a topic, 0 for a topic that does not exist.
        cooperative: the protocol; False is eager.
    """

    def __init__(self, name: str, partitions: Callable[[str], int], *, cooperative: bool) -> None:
        self.name = name
        self.generation: int = 0
        self.members: list[Membership] = []
        self.offsets: dict[TopicPartition, int] = {}
        self.pending: dict[int, dict[TopicPartition, int]] = {}
        self._partitions = partitions
        self._cooperative = cooperative
        self._owners: dict[tuple[str, int], Membership] = {}
        self._incomplete = False
        """A partition waits for its revocation to be acknowledged."""

    # ---- membership

    def join(self, newcomer: Membership) -> None:
        """Add a member. One with the `instance` of a present one takes its place at once, without a rebalance (A4)."""
        for at, old in enumerate(self.members):
            if newcomer.instance is not None and old.instance == newcomer.instance:
                self.members[at] = newcomer
                self._succeed(old, newcomer)
                return
        self.members.append(newcomer)
        self.rebalance()

    def _succeed(self, old: Membership, new: Membership) -> None:
        old.gone = FENCED_INSTANCE
        if old.topic != new.topic:
            self.rebalance()
            return
        new.target, old.target = old.target, set()
        self._owners = {place: new if owner is old else owner for place, owner in self._owners.items()}
        if self._incomplete:
            self.settle()  # what the old one held is free now

    def remove(self, member: Membership) -> None:
        """Take a member out: it left, its session ended, or an operator expelled it."""
        member.gone = UNKNOWN_MEMBER
        self.members.remove(member)
        self.rebalance()

    def acknowledge(self, member: Membership, revoked: set[int]) -> None:
        """Give others the partitions of a member that has returned from its revocation."""
        member.held -= revoked
        if self._incomplete and not member.gone:
            self.settle()

    # ---- rebalancing

    def rebalance(self) -> None:
        """Share the partitions again: the members changed, or the partition count of the topic."""
        if not self._cooperative and any(member.held for member in self.members):
            for member in self.members:
                member.target = set()
            self._incomplete = True
        else:
            self.settle()

    def settle(self) -> None:
        """Begin the next generation, as far as acknowledgements allow."""
        holders = {(member.topic, partition): member for member in self.members for partition in member.held}
        if not self._cooperative and holders:
            return  # eager: first, every member gives everything back
        self.generation += 1
        self._incomplete = False
        self._owners = self._balanced(holders)
        for member in self.members:
            member.target = set()
        for (topic, partition), owner in self._owners.items():
            if self.may_give(owner, holders.get((topic, partition))):
                owner.target.add(partition)
            else:
                self._incomplete = True

    def may_give(self, owner: Membership, holder: Membership | None) -> bool:
        """Whether a partition may be given to `owner` while `holder` has not given it back."""
        return holder is None or holder is owner

    def _balanced(self, holders: dict[tuple[str, int], Membership]) -> dict[tuple[str, int], Membership]:
        """Sticky: each member keeps its partitions up to its fair share; the rest goes to those that have least."""
        balanced: dict[tuple[str, int], Membership] = {}
        previous = self._owners | holders
        for topic in dict.fromkeys(member.topic for member in self.members):
            members = [member for member in self.members if member.topic == topic]
            shares: dict[Membership, list[int]] = {member: [] for member in members}
            loose: list[int] = []
            for partition in range(self._partitions(topic)):
                owner = previous.get((topic, partition))
                kept_by = shares.get(owner, loose) if owner else loose
                kept_by.append(partition)
            least, extra = divmod(self._partitions(topic), len(members))
            for share in sorted(shares.values(), key=len, reverse=True):
                quota = least + 1 if extra > 0 and len(share) > least else least
                extra -= quota - least
                loose += share[quota:]
                del share[quota:]
            for partition in sorted(loose):
                min(shares.values(), key=len).append(partition)
            balanced |= {(topic, partition): member for member, share in shares.items() for partition in share}
        return balanced

    # ---- what a member learns when it polls

    def changes(self, member: Membership) -> tuple[set[int], set[int], bool]:
        """What the member has to give back, what it gets, and whether it is told its first assignment."""
        first = member.generation < 0
        if first and self._incomplete and not self._cooperative:
            return set(), set(), False
        member.generation = self.generation
        return member.held - member.target, member.target - member.held, first

    # ---- offsets

    def check(self, metadata: GroupMetadata) -> str:
        """
        The error code of a transactional offset commit with this proof of membership; empty when it is in order.

        Only the member is checked, not whether it owns the partitions, nor whether the group subscribes to the topic.
        """
        if metadata.generation == OUTSIDE:  # a classic group takes them, with or without members (M5)
            return ""
        member_id, instance = metadata.token or ("", None)
        for member in self.members:
            if member.member_id == member_id:
                return "" if metadata.generation == self.generation else ILLEGAL_GENERATION
            if instance is not None and member.instance == instance:
                return FENCED_INSTANCE
        return UNKNOWN_MEMBER

    def unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction holds an offset of this partition."""
        return any(partition in offsets for offsets in self.pending.values())

    def decide(self, transaction: int, *, commit: bool) -> None:
        """End a transaction's pending offsets."""
        offsets = self.pending.pop(transaction, {})
        if commit:
            self.offsets.update(offsets)

    def forget(self, topic: str) -> None:
        """Drop the offsets of a deleted topic, as Kafka's coordinator does."""
        for offsets in (self.offsets, *self.pending.values()):
            for place in [place for place in offsets if place.topic == topic]:
                del offsets[place]
