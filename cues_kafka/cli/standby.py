"""What a standby of Spark's driver does until it is the driver; see `workers.standby`."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from cues_kafka.observe.log import get_logger

if TYPE_CHECKING:
    from cues_kafka.cli.watch import Signals
    from cues_kafka.workers.standby import Go

log = get_logger("cues_kafka.standby")


def stand_by(session: Any, go: Go, signals: Signals, *, frames: bool, began: float) -> bool:
    """
    Warm a session and wait; whether this process is the driver now. If not, it ends.

    Args:
        session: of Spark, new.
        go: what makes this process the driver.
        signals: what ends it.
        frames: whether DataFrames are computed in the session.
        began: when this process did, by `time.monotonic`.

    Raises:
        SparkLost: its JVM has ended.
    """
    from cues_kafka.on_spark.lost import SparkLost
    from cues_kafka.on_spark.session import jvm_end
    from cues_kafka.on_spark.warm import warm
    from cues_kafka.workers.standby import is_readable

    warm(session, frames=frames, enough=partial(is_readable, go.fd))
    log.info("standby ready", seconds=round(time.monotonic() - began, 2))
    ended = jvm_end()
    try:
        if signals.wait(None, go.fd, ended) is not None:
            return False
    finally:
        os.close(ended)
    if not is_readable(go.fd):
        raise SparkLost("Spark's JVM has ended while its process stood by; the command starts another standby")
    return go.came()
