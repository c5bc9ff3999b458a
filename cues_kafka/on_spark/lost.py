"""Whether Spark's JVM has ended, and the error that says so in place of what a broken connection to it raises."""

from __future__ import annotations

from subprocess import TimeoutExpired
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from cues_kafka.errors import CuesError
from cues_kafka.on_spark.query.files import has_jvm

GONE_S: Final = 5.0
"""Time between the moment at which a JVM no longer answers and the one at which its process has ended."""


class SparkLost(CuesError):
    """
    Spark's JVM has ended while this process needed it, so nothing runs here any more.

    If no operator stopped it, `journalctl -k` shows whether the kernel killed it for its memory, which
    `spark.driver.memory` limits, and a file `hs_err_pid*.log` whether Java broke down. `cues-kafka run` starts it again
    by itself. Start any other program again: it goes on at the newest records.
    """


def lost_in(error: BaseException, session: Any) -> SparkLost | None:
    """
    The error to show where a call failed because the session's JVM has ended; None: it failed for another reason.

    Args:
        error: of the call.
        session: a session; one of Spark Connect has no JVM here.
    """
    if not has_jvm(session) or not isinstance(error, Py4JError | OSError):
        return None
    return SparkLost(lost_text(error)) if is_jvm_gone(error) or not _answers(session) else None


def lost_text(error: BaseException) -> str:
    """What happened, what to look at, and what to do."""
    said = " ".join((SparkLost.__doc__ or "").split())
    return f"{said} ({first_line(error)})"


def is_jvm_gone(error: BaseException) -> bool:
    """Whether a call failed because the JVM has ended; a JVM that answers, also with an exception, has not."""
    if isinstance(error, SparkLost):
        return True
    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - Spark has no public way to its JVM
    if process is None or isinstance(error, PySparkException | Py4JJavaError):
        return False
    try:
        process.wait(GONE_S)
    except TimeoutExpired:
        return False
    return True


def _answers(session: Any) -> bool:
    """Whether a JVM answers that another program has started, such as `spark-submit`."""
    try:
        session._jvm.System.nanoTime()  # noqa: SLF001 - as above
    except (Py4JError, OSError):
        return False
    return True


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its class if it has none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
