"""The state handlers of one task: when they are reset, and how what they hold gets into its transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from cues_kafka.errors import HandlerFailed
from cues_kafka.graph.handler import Handler, StateHandler
from cues_kafka.observe.log import get_logger
from cues_kafka.state.stores import Stores

log = get_logger("cues_kafka.state")


@dataclass(slots=True)
class _Held:
    """One handler, and what declares it; the object is made by the first reset."""

    declared: Handler
    made: StateHandler | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """
    What the handlers of one task must be told before the next step.

    Attributes:
        due: whether they must become what is committed.
        initial: whether nothing is committed.
        resets: how many there were in a row, without a commit in between.
        retiring: sequence number of a committed batch of which they have not heard; None: they have heard of all.
    """

    due: bool = True
    initial: bool = True
    resets: int = 0
    retiring: int | None = None

    def voided(self, *, initial: bool) -> Standing:
        """What they hold is not what is committed."""
        return replace(self, due=True, initial=initial, retiring=None)

    def committed(self, sequence: int) -> Standing:
        """The batch of this sequence number is committed."""
        return replace(self, retiring=sequence, initial=False, resets=0)

    def reset(self, *, counts: bool) -> Standing:
        """They become what is committed now."""
        return replace(self, due=False, resets=self.resets + counts)

    def exceeds(self, most: int) -> bool:
        """Whether there were more resets in a row than this many repetitions of the first one."""
        return self.resets > most + 1


class Handlers:
    """
    The handlers of one task.

    Only `void` and `committed` are called on any thread; the others on the thread that calls the function.

    Args:
        declared: by name.
        values: gets the objects, by name, when they are made: what the function is passed.
        stores: have the committed entries of each handler under its name.
        now: the monotonic clock.

    Attributes:
        standing: what they must be told next.
    """

    def __init__(
        self,
        declared: Mapping[str, Handler],
        values: MutableMapping[str, Any],
        stores: Stores,
        now: Callable[[], float],
    ) -> None:
        self._held = {name: _Held(one) for name, one in declared.items()}
        self._values, self._stores, self._now = values, stores, now
        self._most = min(one.max_resets for one in declared.values())
        self._lock = threading.Lock()
        self.standing = Standing()

    def void(self, *, initial: bool) -> None:
        """What the handlers hold is not what is committed; `initial`: the task has committed nothing."""
        with self._lock:
            self.standing = self.standing.voided(initial=initial)

    def committed(self, sequence: int) -> None:
        """The batch of this sequence number is committed."""
        with self._lock:
            self.standing = self.standing.committed(sequence)

    def begin(self) -> None:
        """
        Make the handlers fit for the next step: tell them what is committed, or reset them where that is due.

        Raises:
            HandlerFailed: a method failed.
        """
        with self._lock:
            due, sequence = self.standing.due, self.standing.retiring
            self.standing = replace(self.standing, retiring=None)
        if sequence is not None:
            for name, one in self._held.items():
                if one.made is not None:
                    due = self._retire(name, one.made, sequence) or due
        if due:
            self.reset()

    def _retire(self, name: str, made: StateHandler, sequence: int) -> bool:
        """Tell a handler of a commit; whether it must be reset, because it failed. The commit stands."""
        try:
            with self._told(name, "retire"):
                made.retire(sequence)
        except HandlerFailed as error:
            log.warning("handler reset", error=str(error))
            return True
        return False

    def reset(self, *, counts: bool = True) -> None:
        """
        Have the handlers become what is committed.

        Args:
            counts: whether it is one of the resets in a row that `max_resets` bounds.

        Raises:
            HandlerFailed: a method failed, or there was no commit between too many resets.
        """
        with self._lock:
            self.standing = standing = self.standing.reset(counts=counts)
            if exceeds := standing.exceeds(self._most):
                self.standing = replace(standing, resets=0)  # the task stops; when it is tried again it has as many
        try:
            if exceeds:
                raise HandlerFailed(f"{self._most} resets in a row without a commit (max_resets={self._most})")
            for name, one in self._held.items():
                self._reset(name, one, initial=standing.initial)
        except BaseException:
            with self._lock:
                self.standing = replace(self.standing, due=True)
            raise

    def _reset(self, name: str, one: _Held, *, initial: bool) -> None:
        if one.made is None:
            with self._told(name, "make"):
                one.made = one.declared.make()
                if not isinstance(one.made, StateHandler):
                    raise TypeError(f"it made {type(one.made).__name__}, which is no StateHandler")
            self._values[name] = one.made
        entries = sorted(self._stores.cache(name).layers.committed_entries().items())
        with self._told(name, "reset", one.declared.reset_timeout_s):
            if initial and not entries:
                one.made.reset_to_initial()
            else:
                one.made.reset(entries)

    def drained(self) -> Iterator[Any]:
        """
        What the handlers held back, handler by handler.

        Raises:
            HandlerFailed: a method failed.
        """
        for name, one in self._held.items():
            assert one.made is not None, "no batch opens before the first reset"
            with self._told(name, "drain", one.declared.drain_timeout_s):
                given = list(one.made.drain())
            yield from given

    def checkpoint(self) -> None:
        """
        Put the changes into the open batch of the stores.

        Raises:
            HandlerFailed: a method failed, or gave what no changelog takes.
        """
        for name, one in self._held.items():
            assert one.made is not None, "no batch opens before the first reset"
            store = self._stores.values[name]
            with self._told(name, "checkpoint", one.declared.drain_timeout_s):
                for change in one.made.checkpoint():
                    key, value = _pair(change)
                    if value is None:
                        store.pop(key, None)
                    else:
                        store[key] = value

    @contextmanager
    def _told(self, name: str, method: str, most_s: float | None = None) -> Iterator[None]:
        """Say whose method failed, or took longer than it may."""
        began_s = self._now()
        try:
            yield
        except Exception as error:
            raise HandlerFailed(f"{name}.{method}() raised {type(error).__name__}: {error}") from error
        took = self._now() - began_s
        if most_s is not None and took > most_s:
            raise HandlerFailed(f"{name}.{method}() took {took:.1f} s, and may take {most_s:g}")


def _pair(change: object) -> tuple[bytes, bytes | None]:
    match change:
        case (bytes() as key, bytes() | None as value):
            return key, value
    raise TypeError(f"gave {change!r:.100}; give pairs (key, value) of bytes, where the value None deletes the key")
