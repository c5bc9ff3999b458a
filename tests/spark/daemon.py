"""
Spark's daemon of Python processes, in tests: it has imported what each process that it forks would import again.

Six tests of DataFrames cost 45 s of processor time instead of 51: each of five processes imported for 0.7 s, and behind
each task Spark collects garbage, which took 56 ms with all that is imported. Drivers that are programs of their own, as
those of users, have Spark's daemon.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path

from pyspark import daemon

IMPORTS = (
    "pandas",
    "pyarrow.pandas_compat",
    "pyspark.worker",
    "cues_kafka.brokers.kafka",
    "cues_kafka.codecs.lookup",
    "cues_kafka.on_spark.direct.frame_batch",
    "cues_kafka.on_spark.direct.work",
    "cues_kafka.on_spark.source.format",
    "cues_kafka.on_spark.staged.part_slot",
)
"""For the processes of tasks. Those that plan import little, and a daemon of theirs serves few of them."""

FORKED = "jemalloc_bg_thd"
"""The thread of pyarrow's memory allocator, which the allocator itself gives up in a forked process."""


def main() -> None:
    """Import, which must start no thread that a forked process would miss; then serve."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # else numpy starts threads
    if sys.argv[1:] == ["pyspark.worker"]:
        for name in IMPORTS:
            importlib.import_module(name)
        threads = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
        assert len(threads) == 1 + threads.count(FORKED), f"what {IMPORTS} import starts threads: {threads}"
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
