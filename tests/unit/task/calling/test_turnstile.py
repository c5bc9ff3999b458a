"""The turnstile of a batch at-most-once: what was started is counted, and after the end nothing starts (W2)."""

from __future__ import annotations

import threading

from cues_kafka.task.calling.turnstile import EMPTY, Turnstile

ONE = EMPTY._replace(records=1, deliveries=1, outputs=1)
TWO = EMPTY._replace(records=2, deliveries=2, outputs=2)


def test_what_has_passed_is_counted_and_what_has_ended_is_kept() -> None:
    """The third step is under way."""
    turnstile = Turnstile(lambda: False)
    for mark in (ONE, TWO):
        assert turnstile.enter()
        turnstile.leave(mark)
    assert turnstile.enter()

    assert turnstile.close() == (3, TWO)


def test_after_the_end_nothing_passes_and_nothing_is_added() -> None:
    """A step that was under way ends unheard."""
    turnstile = Turnstile(lambda: False)
    assert turnstile.enter(5)
    turnstile.close()
    turnstile.leave(TWO)

    assert not turnstile.enter()
    assert turnstile.close() == (5, EMPTY)


def test_a_closed_gate_shuts_it() -> None:
    """Before anyone asks how far the calls came."""
    gate = [False]
    turnstile = Turnstile(lambda: gate[0])
    assert turnstile.enter()
    gate[0] = True

    assert not turnstile.enter()
    assert turnstile.started == 1


def pass_on(turnstile: Turnstile, ready: threading.Barrier, passed: list[int]) -> None:
    """Pass as often as it lets one."""
    ready.wait()
    while turnstile.enter():
        passed.append(1)


def test_no_step_passes_uncounted_beside_the_end() -> None:
    """Of many threads, those that passed are as many as it says."""
    for _ in range(200):
        turnstile, ready, passed = Turnstile(lambda: False), threading.Barrier(4), list[int]()
        threads = [threading.Thread(target=pass_on, args=(turnstile, ready, passed)) for _ in range(3)]
        for thread in threads:
            thread.start()
        ready.wait()
        started, _ = turnstile.close()
        for thread in threads:
            thread.join()
        assert len(passed) == started == turnstile.started
