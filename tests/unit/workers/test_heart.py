"""Heartbeats are sent while every loop moves; a loop that stands still is named with its stack."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from cues_kafka import Graph, Memory, Processor, Source, start
from cues_kafka.task.heart import READY, Heart, Loop, Loops
from cues_kafka.workers.worker import ProcessorWorker


def test_a_heart_beats_where_a_supervisor_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is gone afterwards; a supervisor that has left is no error."""
    read, write = os.pipe2(os.O_NONBLOCK)
    monkeypatch.setenv(READY, str(write))
    heart = Heart()
    heart.beat()
    heart.beat()

    assert READY not in os.environ
    assert os.read(read, 10) == b"xx"
    os.close(read)
    heart.beat()
    os.close(write)
    Heart().beat()


def test_loops_have_moved_only_where_each_one_has() -> None:
    """A new one has, and one that has ended is not looked for. A loop is told once, until it moves again."""
    now, rounds = [0.0], {1: 0, 2: 0}
    told = Loops(lambda: [Loop(f"t{n}", n, r) for n, r in rounds.items()], clock=lambda: now[0], tell_s=30.0)

    assert told.moved()
    assert not told.moved()
    rounds[1] += 1
    assert not told.moved()
    rounds[1] += 1
    rounds[2] += 1
    assert told.moved()
    del rounds[2]
    rounds[1] += 1
    assert told.moved()


def test_a_poller_that_hangs_is_named_with_its_stack(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While a function that takes long stops no loop."""
    hangs, let_go, now = threading.Event(), threading.Event(), [0.0]
    poll = ProcessorWorker.poll_once

    def hang(self: ProcessorWorker) -> None:
        if hangs.is_set():
            let_go.wait(20)
        poll(self)

    monkeypatch.setattr(ProcessorWorker, "poll_once", hang)
    called = threading.Event()

    def slow(value: int) -> int:
        called.set()
        let_go.wait(20)
        return value

    with start(Graph("g", Source("in"), Processor(slow, inputs="in", outputs="out", name="f")), Memory()) as running:
        loops = Loops(running.loops, clock=lambda: now[0])
        running.send("in", 1)
        assert called.wait(10)
        for _ in range(3):
            assert moves(loops)
        hangs.set()
        while moves(loops, tries=5):
            pass
        now[0] = 31.0
        loops.moved()
        loops.moved()
        let_go.set()

        assert moves(loops)
    [line] = [record.getMessage() for record in caplog.records if "does not respond" in record.getMessage()]
    assert line.startswith("loop does not respond thread='f-poller' for_s=31 stack='")
    assert "test_heart.py:hang:" in line
    assert running.loops() == []


STACK_OF_A_LOOP = """
import gc, threading
from cues_kafka.task.heart import _stack

class Holder:
    pass

gc.collect()
gc.disable()
for _ in range(100):
    one = Holder()
    one.itself, one.local = one, threading.local()
    one.local.value = 1
free = [{} for _ in range(50)]  # kept by Python, so that making the dict of frames collects nothing yet
del one, free
others = [threading.Thread(target=threading.Event().wait, daemon=True) for _ in range(5)]
for thread in others:
    thread.start()
gc.set_threshold(1)
gc.enable()
print(_stack(threading.get_ident()))
"""


def test_stack_of_a_loop_is_taken_without_a_garbage_collection() -> None:
    """One that freed a `threading.local` just then stopped the whole process, with all of its tasks."""
    command = [sys.executable, "-c", STACK_OF_A_LOOP]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    assert "_stack" in done.stdout, done.stderr


def moves(loops: Loops, tries: int = 200) -> bool:
    """Whether all loops move within this many hundredths of a second."""
    pause: Callable[[float], bool] = threading.Event().wait
    return any(loops.moved() or pause(0.01) for _ in range(tries))
