"""Worker processes that come back when they die (A4).

One thread, the keeper, starts the workers, waits until they end, and restarts them. Worker k always has the instance
name `<instance>.<k>`: the group takes a restarted worker for its predecessor, so it gets its tasks at once.

No worker outlives its supervisor. Each one asks the kernel for a SIGKILL when its parent dies, and then checks that the
parent is still alive (`die_with`). On Linux "the parent" is the *thread* that forked (prctl(2)): the keeper, which
lives as long as the supervisor.

A worker that is ready sends heartbeats, see `heart`. Once a second the keeper looks at them, and at the memory of the
workers.
"""

from __future__ import annotations

import errno
import os
import random
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from cues_kafka.errors import ConfigError
from cues_kafka.observe.log import get_logger
from cues_kafka.workers.deaths import Crashes, cause
from cues_kafka.workers.exit_codes import BROKEN, DECIDES, ENDS, GIVE_UP, REFUSAL, REFUSED, WRONG
from cues_kafka.workers.memory import MIB, memory_of
from cues_kafka.workers.process import Launched, WorkerProcess, launch
from cues_kafka.workers.standby import Standby, end_group

log = get_logger("cues_kafka.supervisor")

HEALTHY_AFTER_S: Final = 30.0
"""Crashes in quicker succession count as one problem: each restart waits longer than the one before."""


LOOK_S: Final = 1.0
"""How often the keeper looks at heartbeats and memory."""

STALL_S: Final = 120.0
"""A worker without a heartbeat for so long is killed. A revocation may take `revoke_timeout_s`, 60 s."""

STACKS: Final = signal.SIGQUIT
"""Makes a worker write the stacks of all its threads to stderr, and go on."""

STACKS_S: Final = 1.0
"""How long a worker that stands still has for its stacks, before it is killed."""

MEMORY_GRACE_S: Final = 30.0
"""How long a worker above its memory limit has for its end in order. With `HARD` times the limit it has `LOOK_S`."""

HARD: Final = 2.0

INIT: Final = 1
"""The process id of the first process of a container. The kernel gives it the children of processes that died."""

STOP_TIMEOUT_S: Final = 30.0
"""From SIGTERM to SIGKILL. A worker that ends waits only for transactions under way."""


_PASSING: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""The machine lacks processes, memory or descriptors for a moment. A later start may work."""

KEEP_PLACE: Final = signal.SIGHUP
"""Tells a worker to end in order and keep its place in the group, because its successor comes at once."""

ROLL_POLL_S: Final = 0.1
"""How often `roll` looks whether a successor is ready."""

READY_S: Final = 60.0
"""How long the successor of a worker may take until it is ready, before `roll` goes no further."""


class Supervisor:
    """
    Keeps a number of worker processes running.

    ::

        with Supervisor(command, workers=2) as supervisor:
            os.kill(supervisor.pids[1], signal.SIGKILL)  # comes back

    Attributes:
        gave_up: the exit code of a worker that no restart helps, or `BROKEN` if the supervisor itself failed; 0 if the
            work of a worker has an end, and is done; None while it keeps its workers.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        *,
        workers: int,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        output: IO[bytes] | int | None = None,
        healthy_after_s: float = HEALTHY_AFTER_S,
        max_memory: int | None = None,
        stall_s: float = STALL_S,
        stop_timeout_s: float = STOP_TIMEOUT_S,
        may_end: bool = False,
        standby_after_s: float | None = None,
        jitter: Callable[[], float] = random.random,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            command: gives the command line of worker k, from 1 on.
            workers: how many.
            env: the environment of the workers; None: this process's.
            cwd: the working directory of the workers; None: this process's.
            output: where their stdout and stderr go, as `Popen` takes it; None: where this process's go.
            healthy_after_s: a worker that lived this long restarts after the first back-off.
            max_memory: bytes; a worker that takes more is replaced, see `memory_of`; None: there is no limit.
            stall_s: a worker without a heartbeat for so long is killed; only one that has sent its first one.
            stop_timeout_s: how long workers have for leaving in order.
            may_end: the work of the workers has an end, see `DONE` and `UNDONE`.
            standby_after_s: have a process ready that takes the place of the only worker if that dies, and start it so
                long after the worker is ready, see `standby`; None: the supervisor keeps no standby.
            jitter: from 0 to 1: how much of `JITTER` a back-off takes.
            on_change: called on the keeper's thread when a worker started, became ready or ended, or the supervisor
                gave up.

        Raises:
            ConfigError: fewer than one worker, or more than one with a standby.
        """
        if workers < 1:
            raise ConfigError(f"workers={workers}: takes a whole number from 1 on.")
        if standby_after_s is not None and workers > 1:
            raise ConfigError(f"standby_after_s= with workers={workers}: leave one of them out. It stands by for one.")
        self.gave_up: int | None = None
        self._command = command
        self._env = dict(os.environ if env is None else env)
        self._cwd = cwd
        self._output = output
        self._healthy_after_s = healthy_after_s
        self._max_memory = max_memory
        self._stall_s = stall_s
        self._may_end = may_end
        self._jitter = jitter
        self._on_change = on_change
        self._workers = [WorkerProcess(k) for k in range(1, workers + 1)]
        self._standby = None if standby_after_s is None else Standby(self._launch_standby, after_s=standby_after_s)
        self._changed = threading.Condition()
        self._stopping = self._let_in = False
        self._stop_timeout_s = stop_timeout_s
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._keeper = threading.Thread(target=self._keep, name="supervisor", daemon=True)

    def start(self) -> Self:
        """Start the workers and keep them running."""
        self._keeper.start()
        with self._changed:
            self._changed.wait_for(lambda: all(worker.process for worker in self._workers) or self.gave_up is not None)
        return self

    @property
    def pids(self) -> dict[int, int]:
        """Process ids of the workers that run, by k."""
        with self._changed:
            return {w.k: w.running.pid for w in self._workers if w.running}

    @property
    def restarts(self) -> dict[int, int]:
        """How often each worker was replaced, by k."""
        with self._changed:
            return {worker.k: worker.restarts for worker in self._workers}

    def signal(self, k: int, number: signal.Signals) -> int | None:
        """
        Send a signal to worker k.

        Returns:
            Its process id; None: it is not running.
        """
        with self._changed:
            process = self._workers[k - 1].running
            # The keeper reaps under this lock: while we hold it, the pid is this worker's, dead or alive.
            if process is None:
                return None
            os.kill(process.pid, number)
            return process.pid

    def restart(self, k: int) -> None:
        """Have worker k end in order and restart at once, in its place in the group."""
        self.signal(k, KEEP_PLACE)

    def roll(self, *, ready_s: float = READY_S, ended: Callable[[], bool] = lambda: False) -> bool:
        """
        Replace all workers one by one. The next one ends only when the successor of the one before is ready.

        Args:
            ready_s: how long each successor may take.
            ended: whether to go no further, for example because of a signal.

        Returns:
            Whether all are replaced. If a successor is not ready in time, the other workers stay as they are.
        """
        if self._standby:
            self._standby.expire()
            self._wake()
        for worker in self._workers:
            before = self.signal(worker.k, KEEP_PLACE)
            if before is None:
                continue  # it is not running, so its next start has the new code and settings anyway
            deadline = time.monotonic() + ready_s
            while not self._is_replaced(worker, before):
                if ended() or self.gave_up is not None or time.monotonic() > deadline:
                    log.warning("workers not replaced", worker=worker.k, why="its successor is not ready")
                    return False
                with self._changed:
                    self._changed.wait(ROLL_POLL_S)
        return True

    def _is_replaced(self, worker: WorkerProcess, before: int) -> bool:
        with self._changed:
            process = worker.running
            if process is None or process.pid == before:
                return False
            worker.listen(time.monotonic())
            return worker.beat_s is not None

    @property
    def ready(self) -> bool:
        """Whether every worker runs and has said that its tasks are ready."""
        with self._changed:
            return all(worker.running and worker.beat_s is not None for worker in self._workers)

    def stop(self, *, timeout_s: float | None = None) -> None:
        """Have all workers leave in order, and wait. A worker that takes longer (None: as constructed) is killed."""
        with self._changed:
            if self._stopping:
                return
            self._stopping = True
            self._stop_timeout_s = self._stop_timeout_s if timeout_s is None else timeout_s
        self._wake()
        self._keeper.join()
        for worker in self._workers:
            worker.hears(None)
        os.close(self._wake_read)
        os.close(self._wake_write)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until the supervisor gives up; gives the exit code, or None: the time is over, or it was stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self.gave_up is not None or self._stopping, timeout_s)
            return self.gave_up

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()

    # The keeper's thread

    def _keep(self) -> None:
        try:
            while self._look_after_all():
                self._sleep()
        except BaseException as error:  # noqa: BLE001 - a supervisor without its keeper must not look alive
            log.error("supervisor failed", error=f"{type(error).__name__}: {error}")
            self.gave_up = BROKEN
        with self._changed:
            self._changed.notify_all()
        self._on_change()
        while not self._stopping:
            select.select([self._wake_read], [], [])
            self._drain()
        self._end_all(self._stop_timeout_s)  # here: without this thread its children are dead (PR_SET_PDEATHSIG)

    def _look_after_all(self) -> bool:
        """Start the workers that are due; whether there is anything left to wait for."""
        with self._changed:
            now = time.monotonic()
            for worker in self._workers:
                if self._stopping or self.gave_up is not None:
                    return False
                self._look_after(worker, now)
            if self._standby:
                self._standby.look(now, took_s=self._workers[0].took_s)
            if os.getpid() == INIT:
                self._reap_orphans()
            self._changed.notify_all()
            return self.gave_up is None

    def _look_after(self, worker: WorkerProcess, now: float) -> None:
        if (process := worker.running) is not None:
            if self._standby:
                end_group(process)
            code = process.poll()
            if code is None:
                self._watch(worker, process, now)
                return
            self._ended(worker, code, now)
        if worker.due_s is not None and worker.due_s <= now and self.gave_up is None:
            self._spawn(worker, now)

    def _reap_orphans(self) -> None:
        """Collect ended processes that functions had started and whose worker has died: process 1 inherits them."""
        own = {process.pid for process in self._processes()}
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid in own:
                return  # a worker is looked after first; the rest follows at the next look
            os.waitpid(found.si_pid, 0)
            log.debug("orphan reaped", pid=found.si_pid)

    def _watch(self, worker: WorkerProcess, process: subprocess.Popen[bytes], now: float) -> None:
        """Look at a worker that runs: whether it lives long enough, sends heartbeats, and keeps its memory limit."""
        if worker.crashes.count and now - worker.started_s >= self._healthy_after_s:
            if worker.crashes.loop:
                log.info("crash loop over", worker=worker.k, ends=worker.crashes.count)
            worker.crashes = Crashes()
        was_ready = worker.beat_s is not None
        worker.listen(now)
        if not was_ready and worker.beat_s is not None:
            self._on_change()
        if worker.kill_s is not None:
            if now >= worker.kill_s:
                process.kill()
        elif worker.said is not None and worker.beat_s is not None and now - worker.beat_s >= self._stall_s:
            still_s = round(now - worker.beat_s, 1)
            log.error(
                "worker does not respond", worker=worker.k, pid=process.pid, for_s=still_s, what="stacks, then SIGKILL"
            )
            worker.why, worker.kill_s = "it did not respond", now + STACKS_S
            os.kill(process.pid, STACKS)
        elif self._max_memory is not None:
            self._measure(worker, process, memory_of(process.pid), self._max_memory, now)

    def _measure(
        self, worker: WorkerProcess, process: subprocess.Popen[bytes], taken: int, limit: int, now: float
    ) -> None:
        """Replace a worker above its memory limit in order, and kill it where it does not end or goes on growing."""
        told = {"worker": worker.k, "pid": process.pid, "mib": taken // MIB, "limit_mib": round(limit / MIB, 1)}
        was_hard, worker.hard = worker.hard, taken > HARD * limit
        late = worker.over_s is not None and now - worker.over_s >= MEMORY_GRACE_S
        if late or (was_hard and worker.hard):
            worker.why = "killed above its memory limit"
            log.error("worker killed above its memory limit", **told)
            process.kill()
        elif taken > limit and worker.over_s is None and not self._one_leaves():
            worker.over_s, worker.why = now, "replaced above its memory limit"
            log.warning("worker replaced above its memory limit", **told)
            os.kill(process.pid, KEEP_PLACE)

    def _one_leaves(self) -> bool:
        return any(worker.over_s is not None and worker.running for worker in self._workers)

    def _ended(self, worker: WorkerProcess, code: int, now: float) -> None:
        lived = code != REFUSED and now - worker.started_s >= self._healthy_after_s  # a start on Spark may take longer
        others = (one for one in self._workers if one is not worker and one.running)
        self._let_in |= lived or any(now - one.started_s >= self._healthy_after_s for one in others)
        if code in ENDS and self._may_end:
            self.gave_up = ENDS[code]
            return
        gives_way = code == WRONG and worker.k != DECIDES
        if (code in GIVE_UP and not gives_way) or (code == REFUSED and not self._let_in):
            log.error("gave up", worker=worker.k, code=code)
            self.gave_up = WRONG if code == REFUSED else code
            return
        # A worker ends with 0 when it is asked to. Two such ends in quick succession: its function may call exit(0).
        asked = code == 0 and (lived or worker.code != 0)
        worker.code = code
        if lived or asked:
            worker.forgive()
        if asked:
            if self._standby:
                self._standby.throw_away(now)
            worker.due_s = now
            log.info("worker replaced", worker=worker.k)
        else:
            worker.back_off(now, self._jitter())
            why = worker.why or (REFUSAL if code == REFUSED else cause(code))
            log.warning("worker ended", worker=worker.k, code=code, cause=why, again_in_s=worker.due_in(now))
            if (loop := worker.crashes.add(time.time(), why)) is not None:
                log.error("crash loop", worker=worker.k, **loop)
        self._on_change()

    def _spawn(self, worker: WorkerProcess, now: float) -> None:
        replaced = worker.process is not None
        try:
            stood_by = self._standby.take() if self._standby else None
            worker.process, said = stood_by or self._launch(worker.k, self._env)
            worker.hears(said)
        except OSError as error:
            if error.errno in _PASSING:
                worker.back_off(now, self._jitter())
                log.warning("worker does not start", worker=worker.k, error=str(error), again_in_s=worker.due_in(now))
                return
            log.error("worker does not start", worker=worker.k, error=str(error))
            self.gave_up = WRONG
            return
        worker.restarts += replaced
        worker.started_s, worker.due_s = now, None
        log.info("worker started", worker=worker.k, pid=worker.process.pid, **({"stood_by": True} if stood_by else {}))
        self._on_change()

    def _launch(self, k: int, env: Mapping[str, str], fds: Sequence[int] = ()) -> Launched:
        return launch(self._command(k), env=env, cwd=self._cwd, output=self._output, fds=fds)

    def _launch_standby(self, env: Mapping[str, str], fds: Sequence[int]) -> Launched:
        return self._launch(1, {**self._env, **env}, fds)

    def _processes(self) -> list[subprocess.Popen[bytes]]:
        """Those that have not been seen to end."""
        standby = self._standby.processes() if self._standby else []
        return [*(w.running for w in self._workers if w.running), *standby]

    def _sleep(self) -> None:
        """Wait until a worker ends, one is due, or `stop` is called."""
        with self._changed:
            due = [w.due_s for w in self._workers if w.due_s is not None]
            if self._standby and (due_s := self._standby.due()) is not None:
                due.append(due_s)
            running = [process.pid for process in self._processes()]
        wait_s = max(0.0, min(due) - time.monotonic()) if due else None
        with _Ends(running) as ends:
            # A process without a descriptor to wait on is checked ten times a second.
            look_s = LOOK_S if ends.complete else 0.1
            limit = look_s if wait_s is None else min(look_s, wait_s)
            select.select([self._wake_read, *ends.fds], [], [], limit)
        self._drain()

    def _wake(self) -> None:
        os.write(self._wake_write, b"x")

    def _drain(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            return

    def _end_all(self, timeout_s: float) -> None:
        with self._changed:
            living = [process for process in self._processes() if process.poll() is None]
            for process in living:
                process.terminate()
        deadline = time.monotonic() + timeout_s
        for process in living:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.error("worker killed", pid=process.pid, why=f"it had not ended {timeout_s:g} s after SIGTERM")
                process.kill()
                process.wait()


class _Ends:
    """Descriptors that become readable when processes end, on systems that have them."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.fds: list[int] = []
        opener = getattr(os, "pidfd_open", None)
        for pid in pids if opener else ():
            assert opener
            try:
                self.fds.append(opener(pid))  # they are our children and not yet reaped, so the pids are theirs
            except OSError as error:  # no descriptor is left, or the kernel or its sandbox has no such call
                log.debug("process is looked at ten times a second", pid=pid, error=str(error))
        self.complete = len(self.fds) == len(pids)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self.fds:
            os.close(fd)
