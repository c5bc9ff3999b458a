"""Ends of workers in words, and when they are called a crash loop."""

from __future__ import annotations

import os

import pytest

from cues_kafka.errors import ConfigError
from cues_kafka.workers.deaths import Crashes, cause
from cues_kafka.workers.memory import MIB, memory_of, size


@pytest.mark.parametrize(
    ("code", "words"), [(-9, "SIGKILL"), (-11, "SIGSEGV"), (1, "exit code 1"), (0, "exit code 0"), (-40, "signal 40")]
)
def test_an_end_is_named_by_its_signal_or_exit_code(code: int, words: str) -> None:
    """As `Popen` gives it."""
    assert cause(code) == words


def test_a_crash_loop_is_said_at_five_ends_and_at_each_doubling() -> None:
    """With how often, since when, the last cause, and where to look; a loop of hours does not fill the log."""
    crashes = Crashes()

    said = [crashes.add(1_000_000 + n, "SIGKILL" if n < 8 else "exit code 1") for n in range(1, 21)]

    assert [n for n, line in enumerate(said, 1) if line] == [5, 10, 20]
    assert crashes.loop
    assert said[4] == {
        "ends": 5,
        "since": "1970-01-12T13:46:41+00:00",
        "last": "SIGKILL",
        "look_at": "the kernel's log (dmesg), in case memory ran out; otherwise, which program sends signals to this "
        "worker",
    }
    assert said[9] is not None
    assert said[9]["look_at"] == "the last lines of this worker in the log"


@pytest.mark.parametrize(("text", "found"), [("512MiB", 512 * MIB), (" 1.5 GB ", 1_500_000_000), ("64kB", 64_000)])
def test_a_size_has_a_number_and_a_unit(text: str, found: int) -> None:
    """Binary or decimal."""
    assert size(text, "--max-memory") == found


@pytest.mark.parametrize("text", ["512", "lots", "0MiB", "512 MiBs", "-1GB", "12mib"])
def test_no_other_size_is_taken(text: str) -> None:
    """The message has an example."""
    with pytest.raises(ConfigError, match=r"--max-memory '.*' is not a size.*512MiB"):
        size(text, "--max-memory")


def test_memory_is_what_a_process_has_for_itself() -> None:
    """It grows by what the process takes; a process that is not there has none."""
    before = memory_of(os.getpid())
    held = b"x" * (64 * MIB)

    assert before > MIB
    assert memory_of(os.getpid()) - before > 48 * MIB
    assert len(held) == 64 * MIB
    assert memory_of(2**22 + 1) == 0
