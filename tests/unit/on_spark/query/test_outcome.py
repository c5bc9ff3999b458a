"""What Spark says of a failed batch, in one line: its own texts fill pages, and overflow its own patterns."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError

from cues_kafka.on_spark.query.jobs import BatchFailed, run_job
from cues_kafka.on_spark.query.outcome import brief

PAGES = (
    """An error occurred while calling o92.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 0.0 failed 1 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
cues_kafka.errors.CodecError: the row made of in/0 at 3 does not fit 'out': Line.copy: missing

\tat org.apache.spark.Foo(Foo.scala:1)

Driver stacktrace:
ValueError: of another query
"""
    + "\tat org.apache.spark.Bar(Bar.scala:1)\n" * 5_000
)


def test_the_users_own_error_is_what_is_left() -> None:
    """The last line of the innermost traceback."""
    assert brief(PAGES) == "CodecError: the row made of in/0 at 3 does not fit 'out': Line.copy: missing"


@pytest.mark.parametrize("last", ["TableGone: there is no table in /mnt/orders", "NoFunds"])
def test_an_exception_is_found_whatever_its_name_is(last: str) -> None:
    """Users' classes need no `Error` at the end of their names, and no text."""
    text = (
        "An exception was thrown from the Python worker: Traceback (most recent call last):\n"
        '  File "shop.py", line 186, in put\n    self.table.put(\n    ^^^^^^^^^^^^^^^\n'
        f"shop.orders.{last}\n SQLSTATE: 38000\n\nJVM stacktrace:\n\tat org.apache.spark.Foo(Foo.scala:1)\n"
    )
    assert brief(text) == last


def test_a_text_without_a_traceback_gives_its_first_line() -> None:
    """And an empty one says so."""
    assert brief("\nSession was stopped\nmore") == "Session was stopped"
    assert brief("") == "no reason given"


def test_a_failed_batch_never_names_the_bridge() -> None:
    """Spark's expression starts to recurse at that name."""

    class Frame:
        def collect(self) -> list[str]:
            raise Py4JError("py4j.protocol.Py4JJavaError: An error occurred while calling o1.x" + PAGES)

    with pytest.raises(BatchFailed) as failed:
        run_job(Frame().collect)
    assert "Py4J" not in str(failed.value)
    assert failed.value.__suppress_context__
