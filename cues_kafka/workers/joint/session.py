"""One transactional producer for the tasks of a processor in a process (J1 to J9).

`rounds` decides, and this does it. Tasks ask for what they need through their `Share`, and wait without a thread. One
thread of the session asks the brokers: it initialises the session, and does one round after another. What an answer
leads to, such as a recovery or the next call, runs on the pool of the worker. Ids of tasks that recover are ended
there, too, many at a time.

Non-obvious:

- A task may be gone at any moment: revoked, lost, or back in its recovery. `SessionState` then has no round, or another
  id, and who asked the brokers looks at that behind each answer.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cues_kafka.core import events as on
from cues_kafka.errors import AbortableError, BrokerError, RetriableError
from cues_kafka.graph.names import transactional_id
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Session
from cues_kafka.ports.clock import Clock
from cues_kafka.task.interpreter import INIT_TIMEOUT_S
from cues_kafka.workers.joint.asks import Asks
from cues_kafka.workers.joint.rounds import RecoveryInit, SessionState, rounds_of
from cues_kafka.workers.joint.share import Share

log = get_logger("cues_kafka.session")

LOOK_S: Final = 1.0
"""How long the session's thread waits at most before it looks again."""


class _Over(Exception):
    """The round is over for all: one of its tasks is gone, or has failed."""


class JointSession(Asks):
    """The session of the tasks of one processor in this process; methods of its own thread are named as such."""

    def __init__(
        self,
        graph: str,
        processor: str,
        broker: Broker,
        *,
        clock: Clock,
        batch_bytes: int | None,
        submit: Callable[..., Any],
    ) -> None:
        """
        Args:
            graph: of the tasks.
            processor: of the tasks.
            broker: the cluster.
            clock: time.
            batch_bytes: see `ports.broker.Broker.session`.
            submit: runs a function with its arguments on another thread.
        """
        super().__init__(clock)
        self._graph, self._processor, self._broker = graph, processor, broker
        self._batch_bytes, self._submit = batch_bytes, submit
        self._session: Session | None = None
        self._thread: threading.Thread | None = None

    def start(self, guarded: Callable[[Callable[[], None]], None]) -> None:
        """
        Serve on a thread of its own; without it the owner calls `work` as long as that does something.

        Args:
            guarded: runs the thread's loop, and sees to what that raises: without this thread no task commits again.
        """
        name = f"{self._processor}-session"
        self._thread = threading.Thread(target=guarded, args=(self._run,), name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End, once no task is left."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._drop()

    # The session's own thread.

    def _run(self) -> None:
        while not self._over:
            if not self.work():
                with self._changed:
                    if not self._due() and not self._over:
                        self._changed.wait(self._wait_s())

    def _wait_s(self) -> float:
        return max(0.0, min(LOOK_S, self._delays[0][0] - self._clock.monotonic())) if self._delays else LOOK_S

    def _due(self) -> Callable[[], None] | None:
        """What is to be done next. Called with the lock held."""
        if self._failing:
            return self._tell_failed
        if self._delays and self._delays[0][0] <= self._clock.monotonic():
            return self._go_back
        live, recovering = self._state.live, self._inits.keys() - {*self._fencing}
        if self._refresh and self._state.id is not None:
            return self._initialise
        renews = self._state.renews and self._clock.monotonic() >= self._renew_at_s
        if self._shares and not live and (renews or recovering or self._waiting):
            return self._initialise
        if live and self._state.id in recovering:
            return self._initialise
        if live and recovering and not self._fencing:
            return self._end_ids
        if live and self._ready():
            return self._round
        return None

    def _ready(self) -> Mapping[int, Share]:
        """The tasks that may go into a round; once the task of the id leaves, no other one begins (J5)."""
        if self._state.id in self._leaving:
            return {task: share for task, share in self._waiting.items() if task in self._leaving}
        return self._waiting

    def work(self) -> bool:
        """Do what is due; whether anything was."""
        with self._changed:
            due = self._due()
        if due is not None:
            due()
        return due is not None

    def _go_back(self) -> None:
        with self._changed:
            _, _, share, turn = heapq.heappop(self._delays)
        self._submit(share.hear, turn, on.Done())

    def _tell_failed(self) -> None:
        with self._changed:
            failing, self._failing = self._failing, {}
            told = [(share, share.turn) for task in failing if (share := self._shares.get(task))]
            live = self._state.live
        if not live:
            self._drop()
        for share, turn in told:
            event = share.failure(AbortableError(failing[share.task]), its_id=False)
            self._submit(share.hear, turn, event)

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.abandon()

    # Initialising.

    def _id_of(self, task: int) -> str:
        return transactional_id(self._graph, self._processor, task)

    def _initialise(self) -> None:
        """J1, J2, J5: the session takes its id, and whatever was open under it is over."""
        self._drop()
        with self._changed:
            self._refresh = False
            free = [task for task in self._state.ids(self._shares) if task not in self._fencing]
            if not free:
                self._changed.wait(LOOK_S)  # all are being ended just now
                return
            taken = free[0]
            self._state = SessionState(taken, last=self._state.last).takes(taken)
            asked = [task for task in self._inits if task not in self._fencing]
            timeout_s = min((self._inits[task] for task in asked), default=INIT_TIMEOUT_S)
        session = self._broker.session(self._id_of(taken), batch_bytes=self._batch_bytes)
        try:
            session.init(timeout_s=timeout_s)
        except BrokerError as error:
            session.abandon()
            self._not_initialised(taken, asked, error)
            return
        with self._changed:
            if self._state.id != taken:  # its task has left meanwhile
                kept = False
            else:
                kept, self._session, self._state = True, session, self._state.initialised()
            told = self._shares.get(taken) if kept and taken in asked and taken in self._inits else None
            turn = told.turn if told else 0
            if told is not None:
                del self._inits[taken]
            self._changed.notify_all()
        if not kept:
            session.abandon()
        if told is not None:
            self._submit(told.hear, turn, on.Initialised())

    def _not_initialised(self, taken: int, asked: Iterable[int], error: BrokerError) -> None:
        """All that wait fail: each goes back to R1, and asks again later."""
        with self._changed:
            self._renew_at_s = self._clock.monotonic() + LOOK_S
            failed = {*self._waiting, *(task for task in asked if task in self._inits)}
            told = [(share, share.turn) for task in failed if (share := self._shares.get(task))]
            for task in failed:
                self._forget(task)
            self._changed.notify_all()
        for share, turn in told:
            self._submit(share.hear, turn, share.failure(error, its_id=share.task == taken))

    def _end_ids(self) -> None:
        """J2: initialise the ids of all tasks that recover, many at a time, by producers that are closed at once."""
        with self._changed:
            found = [task for task in self._inits if self._state.ends(task) is RecoveryInit.THROWAWAY]
            timeout_s = min((self._inits[task] for task in found), default=INIT_TIMEOUT_S)
            self._fencing = tuple(found)
            asked = [(share, share.turn) for task in found if (share := self._shares.get(task))]
        if found:
            self._submit(self._fence, asked, timeout_s)

    def _fence(self, asked: list[tuple[Share, int]], timeout_s: float) -> None:
        ids = {share.task: self._id_of(share.task) for share, _ in asked}
        try:
            failed = self._broker.fence(list(ids.values()), timeout_s=timeout_s)
        except BrokerError as error:
            failed = dict.fromkeys(ids.values(), error)
        with self._changed:
            self._fencing = ()
            told = [(share, turn) for share, turn in asked if self._asks_still(share, turn)]
            for share, _ in told:
                del self._inits[share.task]
            self._changed.notify_all()
        for share, turn in told:
            why = failed.get(ids[share.task])
            self._submit(share.hear, turn, on.Initialised() if why is None else share.failure(why, its_id=True))

    def _asks_still(self, share: Share, turn: int) -> bool:
        """Whether a task waits for the init that it asked for in this turn: the answer to an earlier one is too old."""
        return self._shares.get(share.task) is share and share.task in self._inits and share.turn == turn

    # A round.

    def _round(self) -> None:
        """J3, J4: one transaction of all tasks that wait."""
        with self._changed:
            ready = self._ready()
            tasks = rounds_of({task: share.interpreter.task for task, share in ready.items()})[0]
            shares = [self._waiting.pop(task) for task in tasks]
            self._state = self._state.begins(tasks)
        session = self._session
        assert session is not None
        try:
            self._commit(session, shares)
        except _Over:
            self._tell_failed()
        except BrokerError as error:
            self._fail_round(error)
        finally:
            for share in shares:
                share.parts, share.offsets = (), {}
            with self._changed:
                self._changed.notify_all()

    def _commit(self, session: Session, shares: list[Share]) -> None:
        shares = self._go_on(shares, lambda _: on.Done())
        session.begin()
        offsets = {place: offset for share in shares for place, offset in share.offsets.items()}
        if offsets:
            membership = shares[0].membership
            assert membership is not None
            session.send_offsets(offsets, membership())
        self._answered()
        shares = self._go_on(shares, lambda _: on.Done())
        counts = {share.task: self._produce(session, share) for share in shares}
        report = session.flush()
        if report.delivered != sum(counts.values()):
            raise AbortableError(f"{report.delivered} of {sum(counts.values())} records were acknowledged")
        places = dict(zip(counts, report.marked, strict=True))
        self._answered()
        self._go_on(shares, lambda share: self._flushed(share, counts[share.task], places[share.task]))
        suspect = session.commit()
        with self._changed:
            if self._state.round is None:
                # It was given up while its commit was under way, and who gave it up looks up what the commit did.
                raise _Over
            told = [share for share in shares if share.task in self._state.round.tasks]
            self._state = self._state.concluded(suspect=suspect is not None)
            turns = [share.turn for share in told]
            self._untold |= {share.task for share in told}
        if suspect is not None:
            log.warning("session renewed", processor=self._processor, why=suspect)
            self._drop()
        for share, turn in zip(told, turns, strict=True):
            self._submit(self._tell_committed, share, turn)

    def _tell_committed(self, share: Share, turn: int) -> None:
        try:
            share.hear(turn, on.Committed())
        finally:
            with self._changed:
                self._untold.discard(share.task)
                self._changed.notify_all()

    def _go_on(self, shares: list[Share], answer: Callable[[Share], on.Event]) -> list[Share]:
        """Answer each task of the round, which asks for the next stage; gives those that are in it."""
        for share in shares:
            share.hear(share.turn, answer(share))
        with self._changed:
            while self._state.round is not None and not self._state.round.due and not self._over:
                self._changed.wait(LOOK_S)  # for the end of a task that is given up meanwhile
            if self._state.round is None or self._over:
                raise _Over
            return [share for share in shares if share.task in self._state.round.tasks]

    def _answered(self) -> None:
        with self._changed:
            if self._state.round is None:
                raise _Over
            self._state = self._state.answered()

    def _produce(self, session: Session, share: Share) -> int:
        parts, share.parts = iter(share.parts), ()
        own = session.produce(next(parts), marked=True)
        return own + sum(map(session.produce, parts))

    def _flushed(self, share: Share, produced: int, place: int | None) -> on.Event:
        """P6 and P6a; P6b only where this session has committed before (J4)."""
        task = share.interpreter.task
        if task.follows and place == task.expected - 1 and not self._state.knows_marker(share.task):
            return share.failure(RetriableError("a marker of an earlier session is missing"), its_id=False)
        return on.Flushed(produced, produced, place)

    def _fail_round(self, error: BrokerError) -> None:
        """J4: the session is discarded, and all tasks of the round go back to R1."""
        with self._changed:
            taken = self._state.id
            self._state, tasks = self._state.failed()
            failed = {*tasks, *self._failing}
            told = [(share, share.turn) for task in failed if (share := self._shares.get(task))]
            self._failing.clear()
        self._drop()
        for share, turn in told:
            self._submit(share.hear, turn, share.failure(error, its_id=share.task == taken))
