"""
Spark's daemon of Python processes on this machine: it has imported what each process that it forks would import again.

Each process of a task imported for 0.7 s. Behind each task Spark collects garbage, which took 56 ms with all that is
imported. Spark's own daemon serves the processes that plan. It serves those of a cluster, too, unless the setting
`spark.python.daemon.module` names this module.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path
from typing import Final

FRAMES: Final = "CUES_KAFKA_SPARK_FRAMES"
"""The variable that says to the daemon that tasks compute DataFrames."""

_TASKS: Final = ("cues_kafka.brokers.kafka", "cues_kafka.codecs.lookup", "cues_kafka.on_spark.direct.plain")

_OF_FRAMES: Final = (
    "pandas",
    "pyarrow.pandas_compat",
    "cues_kafka.on_spark.direct.frame_batch",
    "cues_kafka.on_spark.source.messages",
    "cues_kafka.on_spark.staged.part_slot",
)

FORKED: Final = "jemalloc_bg_thd"
"""The thread of pyarrow's memory allocator, which the allocator itself gives up in a forked process."""


def imports(program: str, *, frames: bool) -> tuple[str, ...]:
    """What processes of this program import, for tasks that compute DataFrames or not."""
    return (program, *_TASKS, *(_OF_FRAMES if frames else ())) if program == "pyspark.worker" else ()


def main() -> None:
    """Import, then serve. If an import started a thread, which no forked process would have, Spark's daemon serves."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # else numpy starts threads
    for name in imports(*sys.argv[1:2] or [""], frames=bool(os.environ.get(FRAMES))):
        importlib.import_module(name)
    threads = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
    if len(threads) > 1 + threads.count(FORKED):
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])  # noqa: S606 - no shell is wanted
    gc.freeze()

    from pyspark import daemon  # noqa: PLC0415 - this module is imported for its names, too

    daemon.manager()


if __name__ == "__main__":
    main()
