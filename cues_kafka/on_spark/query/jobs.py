"""Jobs of Spark that a driver runs for a micro-batch, and the causes of those that fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cues_kafka.on_spark.query.outcome import brief

AT_ONCE: Final = 16
"""Slots that the driver enters side by side (D6)."""


RESULT: Final = "outcome STRING"


class BatchFailed(Exception):
    """The job of a micro-batch failed."""


def run_job(collect: Callable[[], Sequence[Any]], failed: Callable[[str], None] = lambda _: None) -> list[Any]:
    """
    Run a job in a function that Spark calls for a micro-batch, and return what it collects.

    Args:
        collect: runs the job.
        failed: gets the whole text of a failure.

    Raises:
        BatchFailed: with a short text. Spark searches the text with a regular expression that recurses for every
            character, so a text with Java's frames ends the query's thread by a StackOverflowError.
    """
    try:
        return list(collect())
    except (PySparkException, Py4JError) as error:
        failed(str(error))
        raise BatchFailed(brief(str(error))) from None


_FAILED_TASK: Final = re.compile(r"\bTask (\d+) in stage \S+ failed \d+ times")


def cut_off(text: str, tasks: int) -> set[int]:
    """
    Return the Spark tasks of a failed job that did not fail, by their places: Spark ends them with the one that did.

    Spark names one task that failed. If another one died in the same moment, its death is not counted this time. The
    named one is counted, so it is quarantined after some failures, and then Spark names the other one.

    Args:
        text: Spark's text of the failure; if it names no task, each may be the one that failed.
        tasks: number of tasks of the job.
    """
    found = _FAILED_TASK.search(text)
    return set(range(tasks)) - {int(found.group(1))} if found else set()
