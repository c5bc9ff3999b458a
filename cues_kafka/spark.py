"""Public names for running on Spark. They need the extra `spark`; import them before the session is made.

Spark starts its Python processes with this program's interpreter unless `PYSPARK_PYTHON` names another one, which would
not find the packages that are installed here.
"""

from __future__ import annotations

import os
import sys

from cues_kafka.extras import SPARK, missing

try:
    from cues_kafka.on_spark.engine import Spark
    from cues_kafka.on_spark.explain import Explained, Explanation, explain
    from cues_kafka.on_spark.source.client_options import options_of
    from cues_kafka.on_spark.source.format import register
    from cues_kafka.on_spark.write import Written, write_exactly_once
except ModuleNotFoundError as error:
    if away := [package for package in SPARK if not package.installed]:
        raise missing("cues_kafka.spark", *away, error=error) from None
    raise

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

__all__ = ["Explained", "Explanation", "Spark", "Written", "explain", "options_of", "register", "write_exactly_once"]
