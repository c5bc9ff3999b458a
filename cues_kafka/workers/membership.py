"""The member of a worker: its place in the group, the proof of it, and what its group says (A1 to A4)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cues_kafka.core import events as on
from cues_kafka.errors import BrokerError
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.clients import GroupMetadata, Member
from cues_kafka.ports.clock import Clock
from cues_kafka.workers.member_offsets import MemberOffsets

log = get_logger("cues_kafka.worker")

JOINING_S = 3.0
"""The worker logs that the group has not taken it in yet when it has waited for so long."""

PLACED_S = 1.0
"""After this time in the group a worker counts as placed, although it was given no partition."""

WAITS = "grant the permission again; the worker rejoins its group by itself, and its tasks resume"
"""What helps a worker that has lost a right."""


class WorkerMembership:
    """
    A worker in its group.

    The poller owns the member (A2): `join`, `serve` and `publish` are called on its thread.

    Attributes:
        member: the worker's, once it has joined.
        offsets: what the tasks want it to commit.
        published: the newest proof of membership, for all threads.
        placed: whether the worker was given its first partitions, or the group has no partition for it.
        barred: why the group does not let it in again; None: it does.
    """

    member: Member

    def __init__(self, name: str, group: str, clock: Clock, *, waits: bool, changed: Callable[[], None]) -> None:
        """
        Args:
            name: the processor's.
            group: the processor's.
            clock: time.
            waits: see `MemberOffsets`.
            changed: called when the group bars the worker, or lets it in again.
        """
        self.offsets = MemberOffsets(waits=waits)
        self.published = GroupMetadata(group, -1)
        self.placed = False
        self.barred: BrokerError | None = None
        self._name, self._group, self._clock = name, group, clock
        self._changed = changed
        self._joined_s: float | None = None
        self._joining_since_s: float | None = clock.monotonic()
        """None: the group has taken it in, or the log says that it waits."""
        self._rejoin = threading.Event()

    @property
    def generation(self) -> int:
        """The group's generation, as last published; negative until it is known which partitions the worker has."""
        return self.published.generation if self.placed else -1

    @property
    def halt(self) -> on.Halt | None:
        """Why the processor stands still: its group does not let this worker in again. None: it does."""
        return None if self.barred is None else on.Halt("refused", str(self.barred), WAITS)

    def join(self, member: Member) -> None:
        """Begin with this member; nothing is assigned yet."""
        self.member = self.offsets.member = member

    def join_again(self) -> None:
        """Have the member join its group again. May be called on any thread."""
        self._rejoin.set()

    def publish(self) -> None:
        """Let all threads see the newest proof of membership."""
        self.published = self.member.metadata()

    def serve(self) -> None:
        """
        Serve the group, which calls the listener, and commit the offsets that tasks want.

        Raises:
            BrokerError: the group cannot be served.
        """
        if self._rejoin.is_set():
            self._rejoin.clear()
            self.member.rejoin()
        try:
            self.member.poll()
        except BrokerError as error:
            if not error.forbidden or (self.barred is None and not self.placed):
                raise  # at the start it is a wrong setting
            self._bar(error)
        self.publish()
        if not self.placed and self.published.generation >= 0:
            # The partitions come a moment after the generation. Without them a start would look complete.
            now_s = self._clock.monotonic()
            self._joined_s = now_s if self._joined_s is None else self._joined_s
            self.placed = now_s - self._joined_s >= PLACED_S
        if self.placed and self.barred is not None:
            self.barred = None
            log.warning("the group accepts this worker again", processor=self._name, group=self._group)
            self._changed()
        self.offsets.send()

    def _bar(self, error: BrokerError) -> None:
        """Wait: a right of this user was taken away, and the member asks again until it is given back."""
        told, self.barred = self.barred, error
        self.placed, self._joined_s = False, None
        if told is None or str(told) != str(error):
            log.error("the group refuses this worker", processor=self._name, why=str(error), remedy=WAITS)
            self._changed()

    def tell_waiting(self, *, static: bool) -> None:
        """
        Log once that the group has not taken the worker in yet, if that takes long.

        Args:
            static: whether it is a static member (A4).
        """
        if self.generation >= 0:
            self._joining_since_s = None
        elif self._joining_since_s is not None and self._clock.monotonic() - self._joining_since_s >= JOINING_S:
            self._joining_since_s = None
            named = "" if static else "; with --instance NAME a restarted worker takes them over at once"
            log.info(
                "waiting for the group",
                processor=self._name,
                group=self._group,
                why=f"its other workers have not given up tasks yet, or one was killed and keeps its tasks until its "
                f"session has timed out{named}",
            )
