"""The supervisor: dead workers come back, stopped ones do not, and none outlives it."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

from cues_kafka.errors import ConfigError
from cues_kafka.workers import process
from cues_kafka.workers import supervisor as module
from cues_kafka.workers.exit_codes import DONE, REFUSAL, REFUSED, UNDONE
from cues_kafka.workers.supervisor import KEEP_PLACE, Supervisor
from tests.fault.support import until

ROOT = Path(__file__).parents[2]

WORKER = """
import signal, sys
name, log = sys.argv[1:]
asked = {signal.SIGTERM, signal.SIGHUP}
signal.pthread_sigmask(signal.SIG_BLOCK, asked)
open(log, "a").write(f"{name} runs\\n")
number = signal.sigwait(asked)
open(log, "a").write(f"{name} got {number.name}\\n")
"""
"""Waits for signals that it has blocked: with a handler and `pause`, one that comes right before the pause is lost."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where workers write what happens to them."""
    return tmp_path / "log"


@pytest.fixture
def supervisor(log: Path) -> Iterator[Supervisor]:
    """Two workers that wait for signals."""
    with Supervisor(lambda k: [sys.executable, "-c", WORKER, f"w{k}", str(log)], workers=2) as running:
        wait_for(lambda: count(log, "runs") == 2)
        yield running


def wait_for(condition: Callable[[], object], timeout_s: float = 15.0) -> None:
    """Until it holds; what other processes do cannot be awaited otherwise."""
    until(condition, "it did not happen", timeout_s)


def count(log: Path, word: str) -> int:
    """Lines of the log with this word."""
    return log.read_text().count(word) if log.exists() else 0


def test_a_killed_worker_comes_back_and_the_other_one_is_left_alone(supervisor: Supervisor, log: Path) -> None:
    """The same place, another process."""
    before = supervisor.pids

    assert supervisor.signal(1, signal.SIGKILL) == before[1]
    wait_for(lambda: count(log, "w1 runs") == 2)

    assert supervisor.restarts == {1: 1, 2: 0}
    assert supervisor.pids[1] != before[1]
    assert supervisor.pids[2] == before[2]


def test_a_worker_that_dies_again_and_again_waits_longer_each_time(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.02 s, doubling, up to the limit."""
    monkeypatch.setattr(process, "MAX_BACKOFF_S", 0.1)
    starts: list[float] = []

    def command(k: int) -> list[str]:
        starts.append(time.monotonic())
        return [sys.executable, "-I", "-S", "-c", "raise SystemExit(1)"]

    with Supervisor(command, workers=1):
        wait_for(lambda: len(starts) >= 6)

    gaps = [after - before for before, after in pairwise(starts)]
    assert [gap >= least for gap, least in zip(gaps, (0.02, 0.04, 0.08, 0.1, 0.1), strict=False)] == [True] * 5


def test_a_worker_that_lived_long_enough_comes_back_at_once_again() -> None:
    """Its back-off begins again."""
    starts: list[float] = []

    def command(k: int) -> list[str]:
        starts.append(time.monotonic())
        return [sys.executable, "-I", "-S", "-c", "raise SystemExit(1)"]

    with Supervisor(command, workers=1, healthy_after_s=0.0):
        wait_for(lambda: len(starts) >= 11, timeout_s=10.0)  # doubling, it would take 20 s


def test_stopping_asks_every_worker_to_leave(supervisor: Supervisor, log: Path) -> None:
    """SIGTERM, and none comes back."""
    pids = supervisor.pids.values()

    supervisor.stop()

    assert count(log, "got SIGTERM") == 2
    assert count(log, "runs") == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_worker_that_does_not_leave_in_time_is_killed() -> None:
    """After the stated time."""
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    with Supervisor(lambda k: [sys.executable, "-c", program], workers=1, output=subprocess.DEVNULL) as running:
        [pid] = running.pids.values()
        time.sleep(0.5)
        began = time.monotonic()
        running.stop(timeout_s=0.5)

    assert time.monotonic() - began < 5.0
    assert not psutil.pid_exists(pid)


def test_a_restart_keeps_the_place_and_comes_back_without_back_off(
    supervisor: Supervisor, log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker is told by another signal than for leaving, and its planned end is no warning."""
    with caplog.at_level("INFO", "cues_kafka.supervisor"):
        supervisor.restart(2)
        wait_for(lambda: count(log, "w2 runs") == 2)

    assert count(log, f"w2 got {KEEP_PLACE.name}") == 1
    assert "worker replaced worker=2" in caplog.text
    assert not [record for record in caplog.records if record.levelname != "INFO"]


class Told:
    """Awaits what a supervisor tells: that it gave up, although no program asked it."""

    def __init__(self, command: Callable[[int], list[str]], **options: Any) -> None:
        self._gave_up = threading.Event()
        self.supervisor = Supervisor(command, workers=1, on_change=self._look, **options)

    def _look(self) -> None:
        if self.supervisor.gave_up is not None:
            self._gave_up.set()

    def code(self) -> int | None:
        """With which exit code."""
        with self.supervisor:
            assert self._gave_up.wait(15.0), "the command would wait without end"
            return self.supervisor.gave_up


@pytest.mark.parametrize("code", [2, 3])
def test_a_worker_that_no_restart_helps_is_not_restarted(code: int) -> None:
    """The supervisor says with which code it gave up, also where no other worker runs that could wake it."""
    told = Told(lambda k: [sys.executable, "-I", "-S", "-c", f"raise SystemExit({code})"])

    assert told.code() == code
    assert told.supervisor.restarts == {1: 0}


def test_a_login_that_is_refused_at_the_first_start_ends_the_supervisor() -> None:
    """As any other wrong setting, however long the start took."""
    told = Told(lambda k: [sys.executable, "-I", "-S", "-c", "raise SystemExit(4)"], healthy_after_s=0.0)

    assert told.code() == 2
    assert told.supervisor.restarts == {1: 0}


def test_a_login_that_is_refused_after_a_worker_has_lived_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """What the brokers ask for logins may be away, and the other workers go on meanwhile. The log names the cause."""
    codes = iter([1, 4, 3])  # it lives and dies, its successor is refused, the next one ends the test
    told = Told(lambda k: [sys.executable, "-I", "-S", "-c", f"raise SystemExit({next(codes)})"], healthy_after_s=0.0)

    assert told.code() == 3
    assert told.supervisor.restarts == {1: 2}
    assert f"code=4 cause={REFUSAL!r}" in caplog.text


@pytest.mark.parametrize(
    ("last", "may_end", "code"),
    [(DONE, True, 0), (UNDONE, True, 1), (DONE, False, 3), (UNDONE, False, 3)],
)
def test_work_ends_the_supervisor_only_where_it_has_an_end(last: int, may_end: bool, code: int) -> None:
    """On Spark, with `available-now`; a function of a native worker that exits with this code has died."""
    codes = iter([1, last, 3])  # dies first, and is started again
    told = Told(lambda k: [sys.executable, "-I", "-S", "-c", f"raise SystemExit({next(codes)})"], may_end=may_end)

    assert told.code() == code


def test_a_worker_whose_function_exits_with_0_waits_longer_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """The first end with 0 is taken for one that was asked for; the next ones come too soon."""
    codes = iter([0, 0, 0, 3])
    with caplog.at_level("INFO", "cues_kafka.supervisor"):
        told = Told(lambda k: [sys.executable, "-I", "-S", "-c", f"raise SystemExit({next(codes)})"], jitter=float)

        assert told.code() == 3
    said = [record.getMessage() for record in caplog.records if "worker started" not in record.getMessage()]
    assert said == [
        "worker replaced worker=1",
        "worker ended worker=1 code=0 cause='exit code 0' again_in_s=0.02",
        "worker ended worker=1 code=0 cause='exit code 0' again_in_s=0.04",
        "gave up worker=1 code=3",
    ]


def test_a_supervisor_that_fails_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Its command ends, whatever the keeper's thread met."""

    def command(k: int) -> list[str]:
        raise RuntimeError("no such place")

    assert Told(command).code() == 1
    assert "supervisor failed error='RuntimeError: no such place'" in caplog.text


def test_workers_are_kept_where_no_descriptor_is_left_to_wait_for_them(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of descriptors is full, or the kernel forbids the call: the supervisor looks from time to time."""

    def refused(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", refused)
    with Supervisor(lambda k: [sys.executable, "-c", WORKER, f"w{k}", str(log)], workers=2) as running:
        wait_for(lambda: count(log, "runs") == 2)
        running.signal(1, signal.SIGKILL)
        wait_for(lambda: count(log, "w1 runs") == 2)

        assert running.gave_up is None
        assert running.restarts == {1: 1, 2: 0}


def test_a_worker_starts_as_soon_as_the_machine_lets_it(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork that finds no memory or no descriptor is tried again. What did not start counts as no restart."""
    refusals, real = [errno.EAGAIN, errno.EMFILE], subprocess.Popen

    def popen(*arguments: Any, **options: Any) -> Any:
        if refusals:
            raise OSError(refusals.pop(), "not now")
        return real(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    with Supervisor(lambda k: [sys.executable, "-c", WORKER, f"w{k}", str(log)], workers=1) as running:
        wait_for(lambda: count(log, "runs") == 1)
        refusals += [errno.ENOMEM, errno.EAGAIN]
        running.signal(1, signal.SIGKILL)
        wait_for(lambda: count(log, "runs") == 2)

        assert running.gave_up is None
        assert running.restarts == {1: 1}


def test_a_program_that_is_not_there_is_given_up() -> None:
    """No worker waits without end."""
    with Supervisor(lambda k: ["/nowhere/at-all"], workers=2) as running:
        assert running.wait(10.0) == 2


def test_no_workers_are_refused() -> None:
    """At construction."""
    with pytest.raises(ConfigError, match="from 1 on"):
        Supervisor(lambda k: [], workers=0)


def test_workers_die_with_their_supervisor_even_when_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL cleans nothing up, so the kernel does."""
    worker = "import sys; from cues_kafka.workers.die_with import die_with; die_with(int(sys.argv[1]))"
    worker += "; print(flush=True); import signal; signal.pause()"
    program = dedent(
        f"""
        import os, sys, time
        from cues_kafka.workers.supervisor import Supervisor
        command = lambda k: [sys.executable, "-c", {worker!r}, str(os.getpid())]
        with Supervisor(command, workers=2, output=open({str(tmp_path / "out")!r}, "wb")) as running:
            print(*running.pids.values(), flush=True)
            time.sleep(60)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout
    pids = [int(pid) for pid in process.stdout.readline().split()]
    wait_for(lambda: (tmp_path / "out").read_bytes().count(b"\n") == 2)

    process.kill()
    process.wait()

    wait_for(lambda: not any(alive(pid) for pid in pids))


def test_a_worker_whose_supervisor_died_before_it_could_ask_ends_at_once() -> None:
    """Its parent is another process by then."""
    program = f"from cues_kafka.workers.die_with import die_with; die_with({os.getpid()} + 1)"

    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == -signal.SIGKILL


def alive(pid: int) -> bool:
    """Whether it runs; a zombie whose new parent has not looked yet does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_worker_with_wrong_code_is_refused_in_words_that_leave_the_others_alone() -> None:
    """A rolling redeploy of a graph that does not load would end the workers that still run the old code."""
    command = [sys.executable, "-m", "cues_kafka.cli.main", "run", "nowhere:graph", "--parent", str(os.getpid())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == REFUSED
    assert "nowhere" in done.stderr


def test_two_supervisors_that_take_each_others_names_do_not_both_give_up(log: Path) -> None:
    """The first worker's name decides: a supervisor that loses another one's starts that worker again."""
    first = [sys.executable, "-c", WORKER, "w1", str(log)]
    taken = [sys.executable, "-I", "-S", "-c", "raise SystemExit(2)"]

    with Supervisor(lambda k: taken if k == 2 else first, workers=2) as keeps:
        wait_for(lambda: keeps.restarts[2] >= 2)
        assert (keeps.gave_up, keeps.restarts[1]) == (None, 0)

    with Supervisor(lambda k: taken if k == 1 else first, workers=2) as ends:
        assert ends.wait(15.0) == 2


TELLS = WORKER.replace("number =", 'os.write(int(os.environ["CUES_KAFKA_READY"]), b"x") if READY else None\nnumber =')
TELLS = TELLS.replace("import signal, sys", "import os, signal, sys")


def test_workers_are_replaced_one_by_one(log: Path) -> None:
    """The next one ends only when the successor of the one before is ready."""
    program = TELLS.replace("READY else", "True else")
    with Supervisor(lambda k: [sys.executable, "-c", program, f"w{k}", str(log)], workers=3) as supervisor:
        wait_for(lambda: count(log, "runs") == 3)
        started = len(log.read_text().splitlines())

        assert supervisor.roll()

        happened = log.read_text().splitlines()[started:]
        assert happened == [f"w{k} {what}" for k in (1, 2, 3) for what in ("got SIGHUP", "runs")]
        assert supervisor.restarts == {1: 1, 2: 1, 3: 1}


def test_a_successor_that_is_not_ready_leaves_the_other_workers_as_they_are(log: Path) -> None:
    """Wrong code of a new version takes one worker, not all of them."""
    program = TELLS.replace("READY else", "False else")
    with Supervisor(lambda k: [sys.executable, "-c", program, f"w{k}", str(log)], workers=2) as supervisor:
        wait_for(lambda: count(log, "runs") == 2)
        before = supervisor.pids

        assert not supervisor.roll(ready_s=0.5)
        assert not supervisor.roll(ended=lambda: True)

        assert supervisor.pids[2] == before[2]


LIVES = """
import faulthandler, os, signal, sys
faulthandler.register(signal.SIGQUIT)
log, first = sys.argv[1], not os.path.exists(sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
open(log, "a").write("runs\\n")
os.write(int(os.environ["CUES_KAFKA_READY"]), b"x")
def work():
    signal.sigwait({signal.SIGHUP})
if first:
    FIRST
work()
"""


@contextmanager
def looked_after(
    log: Path, first: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, **care: Any
) -> Iterator[Supervisor]:
    """A worker whose first process does something that its successor does not; the keeper looks more often."""
    for name, value in (("LOOK_S", 0.05), ("STACKS_S", 0.5)):
        monkeypatch.setattr(module, name, value)
    program = [sys.executable, "-I", "-S", "-c", LIVES.replace("FIRST", first), str(log)]
    with (
        caplog.at_level("INFO", "cues_kafka.supervisor"),
        Supervisor(lambda k: program, workers=1, output=(log.parent / "out").open("wb"), **care) as running,
    ):
        wait_for(lambda: count(log, "runs") == 2)
        yield running


def test_a_crash_loop_is_named_and_its_end_too(
    log: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Which worker, how often, since when, the last cause, and where to look."""
    for where, name in ((process, "FIRST_BACKOFF_S"), (process, "MAX_BACKOFF_S"), (module, "LOOK_S")):
        monkeypatch.setattr(where, name, 0.02)
    dies = [sys.executable, "-I", "-S", "-c", "import os; os.kill(os.getpid(), 11)"]
    lives = [sys.executable, "-I", "-S", "-c", WORKER, "w1", str(log)]
    starts = iter([dies] * 5)
    with (
        caplog.at_level("INFO", "cues_kafka.supervisor"),
        Supervisor(lambda k: next(starts, lives), workers=1, healthy_after_s=1.5),
    ):
        wait_for(lambda: "crash loop over worker=1 ends=5" in caplog.text)

    [line] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert re.fullmatch(
        r"crash loop worker=1 ends=5 since='[-:T0-9]+\+00:00' last='SIGSEGV' look_at='the last lines of .*'",
        line.getMessage(),
    )
    assert caplog.text.count("worker ended worker=1 code=-11 cause='SIGSEGV' again_in_s=") == 5


def test_a_worker_that_closes_its_descriptor_is_not_taken_for_one_that_stands_still() -> None:
    """A function may close all descriptors; without this one nothing is known of the loops."""
    read, write = os.pipe2(os.O_NONBLOCK)
    worker = process.WorkerProcess(1)
    worker.hears(read)
    os.write(write, b"xx")
    worker.listen(1.0)
    worker.listen(2.0)
    os.close(write)
    worker.listen(3.0)

    assert (worker.beat_s, worker.said) == (1.0, None)


def test_a_back_off_is_spread_by_chance(caplog: pytest.LogCaptureFixture) -> None:
    """Workers that died together do not connect in one moment."""
    codes = iter([1, 1, 3])
    told = Told(lambda k: [sys.executable, "-I", "-S", "-c", f"raise SystemExit({next(codes)})"], jitter=lambda: 1.0)

    assert told.code() == 3
    assert re.findall(r"again_in_s=([\d.]+)", caplog.text) == ["0.03", "0.06"]


def test_a_worker_above_its_memory_limit_is_replaced_in_order(
    log: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It keeps its place, comes back at once, and the log says why."""
    with looked_after(log, "held = b'x' * (60 << 20)", monkeypatch, caplog, max_memory=40 << 20) as running:
        assert running.restarts == {1: 1}

    assert "worker replaced above its memory limit worker=1 pid=" in caplog.text
    assert "limit_mib=40.0" in caplog.text
    assert "worker replaced worker=1" in caplog.text
    assert "worker ended" not in caplog.text


@pytest.mark.parametrize("mib", [60, 100])
def test_a_worker_that_stays_above_its_memory_limit_is_killed(
    mib: int, log: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a grace, or, above twice the limit, at the next look."""
    monkeypatch.setattr(module, "MEMORY_GRACE_S", 0.3 if mib == 60 else 300.0)
    deaf = f"held = b'x' * ({mib} << 20); signal.sigwait({{signal.SIGUSR1}})"
    with looked_after(log, deaf, monkeypatch, caplog, max_memory=40 << 20):
        pass

    assert "worker killed above its memory limit worker=1 pid=" in caplog.text
    assert "worker ended worker=1 code=-9 cause='killed above its memory limit'" in caplog.text


def test_a_worker_without_heartbeats_writes_its_stacks_and_is_replaced(
    log: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that hangs in C code or in a lock ends with what its threads were doing in the log."""
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    with looked_after(log, "work()", monkeypatch, caplog, stall_s=0.5):
        pass

    assert re.search(r"worker does not respond worker=1 pid=\d+ for_s=0\.\d", caplog.text)
    assert "worker ended worker=1 code=-9 cause='it did not respond'" in caplog.text
    assert "in work" in (log.parent / "out").read_text()
