"""Public names for running on Spark; needs the extra `spark`. Import it before the session is made.

Spark's Python processes are started with this program's own interpreter unless `PYSPARK_PYTHON` says otherwise: with
another one they would not find what is installed here.
"""

from __future__ import annotations

import os
import sys

from cues_kafka.runtime.spark.engine import Spark
from cues_kafka.runtime.spark.explain import Explained, Explanation, explain
from cues_kafka.runtime.spark.source.format import register
from cues_kafka.runtime.spark.write import Written, write_exactly_once

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

__all__ = ["Explained", "Explanation", "Spark", "Written", "explain", "register", "write_exactly_once"]
