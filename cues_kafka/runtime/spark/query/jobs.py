"""Jobs of Spark that a driver runs for a micro-batch, and what it says of those that fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cues_kafka.runtime.spark.query.outcome import brief

AT_ONCE: Final = 16
"""Slots that the driver enters side by side (D6)."""


RESULT: Final = "outcome STRING"


class BatchFailed(Exception):
    """The job of a micro-batch failed."""


def run_job(collect: Callable[[], Sequence[Any]], failed: Callable[[str], None] = lambda _: None) -> list[Any]:
    """
    What a job collects, in a function that Spark calls for a micro-batch.

    Args:
        collect: runs the job.
        failed: gets all that Spark says of a failure.

    Raises:
        BatchFailed: in few words. Spark looks through the text with a regular expression that recurses for every
            character, so with the frames of Java in it the query's thread ends by a StackOverflowError.
    """
    try:
        return list(collect())
    except (PySparkException, Py4JError) as error:
        failed(str(error))
        raise BatchFailed(brief(str(error))) from None


_FAILED_TASK: Final = re.compile(r"\bTask (\d+) in stage \S+ failed \d+ times")


def cut_off(text: str, tasks: int) -> set[int]:
    """
    The Spark tasks of a failed job that did not fail, by their places in it: Spark ends them with the one that did.

    Spark names one that failed. If another one died in the same moment its death is not counted this time; the one
    that is named is counted, so after finitely many failures it is quarantined, and the other one is named.

    Args:
        text: what Spark says of the failure; if it names no task, each may be the one that failed.
        tasks: of the job.
    """
    found = _FAILED_TASK.search(text)
    return set(range(tasks)) - {int(found.group(1))} if found else set()
