"""What a program hears when Spark's JVM has ended: that, and not what its connection raises."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from cues_kafka.on_spark.lost import lost_in
from cues_kafka.on_spark.query.worker import SparkWorker

ERRORS = [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("Answer from Java side is empty")]


def session(*, answers: bool) -> Any:
    """One whose JVM answers or does not."""

    def time() -> int:
        if answers:
            return 1
        raise Py4JNetworkError("An error occurred while trying to connect to the Java server")

    return SimpleNamespace(_jvm=SimpleNamespace(System=SimpleNamespace(nanoTime=time)))


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A JVM of this process that was killed."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
    process.kill()
    yield
    process.wait()


@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize("error", ERRORS, ids=["refused", "empty"])
def test_killed_jvm_is_named_with_what_to_look_at_and_to_do(error: Exception) -> None:
    """And with what its connection said."""
    found = lost_in(error, session(answers=False))

    assert found is not None
    text = str(found)
    assert text.startswith("Spark's JVM has ended while this process needed it")
    assert "spark.driver.memory" in text
    assert "`cues-kafka run` starts it again by itself" in text
    assert text.endswith(f"({error})")


@pytest.mark.parametrize("answers", [True, False])
def test_jvm_that_another_program_has_started_is_asked(monkeypatch: pytest.MonkeyPatch, *, answers: bool) -> None:
    """As `spark-submit` does: there is no process to look at."""
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace())

    assert (lost_in(ERRORS[1], session(answers=answers)) is None) is answers


@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize(
    ("error", "of"),
    [(ERRORS[0], SimpleNamespace()), (ValueError("a fault of ours"), session(answers=True))],
    ids=["connect", "other"],
)
def test_other_failures_stay_as_they_are(error: Exception, of: Any) -> None:
    """A session of Spark Connect has no JVM here; and other errors say nothing of one."""
    assert lost_in(error, of) is None


@pytest.mark.parametrize("error", ERRORS, ids=["refused", "empty"])
def test_look_at_a_query_whose_jvm_has_ended_raises_nothing(error: Exception) -> None:
    """`wait_idle` looks whether a batch is under way, and then hears from the worker why it has ended."""

    class Query:
        """A query that cannot be asked."""

        @property
        def status(self) -> Any:
            """As Spark's."""
            raise error

    worker = SparkWorker.__new__(SparkWorker)
    worker._query, worker._done = Query(), False
    assert worker.busy
