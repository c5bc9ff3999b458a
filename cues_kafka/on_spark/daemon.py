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

_PANDAS: Final = ("pandas", "pyarrow.pandas_compat")

_OF_FRAMES: Final = (
    "cues_kafka.on_spark.direct.frame_batch",
    "cues_kafka.on_spark.source.messages",
    "cues_kafka.on_spark.staged.part_slot",
)

FORKED: Final = "jemalloc_bg_thd"
"""The thread of pyarrow's memory allocator, which the allocator itself gives up in a forked process."""


def imports(program: str, *, frames: bool, pandas: bool) -> tuple[str, ...]:
    """
    What processes of this program import.

    Args:
        program: its module.
        frames: whether its tasks compute DataFrames.
        pandas: whether these may use pandas, which nothing here needs.
    """
    of_frames = (*(_PANDAS if pandas else ()), *_OF_FRAMES) if frames else ()
    return (program, *_TASKS, *of_frames) if program == "pyspark.worker" else ()


def is_forkable() -> bool:
    """Whether a forked process has all that this one has: no import started a thread, which it would not have."""
    threads = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
    return len(threads) == 1 + threads.count(FORKED)


def seed_apart() -> None:
    """Have each forked process draw other random numbers: numpy's begin at its import, which they share."""

    def seed() -> None:
        if (drawn := sys.modules.get("numpy.random")) is not None:
            drawn.seed()

    os.register_at_fork(after_in_child=seed)


def main() -> None:
    """Import, then serve. If that started a thread, Spark's daemon serves."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # else numpy starts threads
    for name in imports(*sys.argv[1:2] or [""], frames=bool(os.environ.get(FRAMES)), pandas=True):
        importlib.import_module(name)
    if not is_forkable():
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])  # noqa: S606 - no shell is wanted
    seed_apart()
    gc.freeze()

    from pyspark import daemon  # noqa: PLC0415 - this module is imported for its names, too

    daemon.manager()


if __name__ == "__main__":
    main()
