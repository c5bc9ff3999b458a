"""Triggers: when Spark makes a micro-batch, and why some of its triggers are refused."""

from __future__ import annotations

import re
from typing import Any, Final

from cues_kafka.errors import ConfigError

AVAILABLE_NOW: Final = "available-now"
"""Deliver what is there, then end."""

_PROCESSING = re.compile(r"\d+ (?:milli)?seconds?|\d+ (?:minute|hour|day)s?")


def streaming_trigger(text: str) -> dict[str, Any]:
    """
    Return the keyword arguments of Spark's `trigger` for a trigger in our words.

    Raises:
        ConfigError: the trigger breaks exactly-once, or is not known.
    """
    if text == AVAILABLE_NOW:
        return {"availableNow": True}
    said = str(text).strip().lower()
    if _PROCESSING.fullmatch(said):
        return {"processingTime": said}
    wanted = "Write '10 seconds', as often as there is to be a micro-batch, or 'available-now'."
    if "continuous" in said:
        raise ConfigError(
            f"trigger={text!r}: continuous processing has no micro-batches and calls no foreachBatch, so there is no "
            f"range that a slot could commit together with its outputs. {wanted} For milliseconds run it natively."
        )
    if re.search(r"real[ -_]?time", said):
        raise ConfigError(
            f"trigger={text!r}: in real-time mode Spark writes its offsets down after the messages are out, and calls "
            "neither foreachBatch nor a data source in Python, so nothing could be committed with the positions. "
            f"{wanted} For milliseconds run it natively."
        )
    raise ConfigError(f"trigger={text!r} is not known here. {wanted}")
