"""The exception for what is not the message's fault, wherever it comes up in a call."""

from __future__ import annotations

from cues_kafka.errors import RetriableError


class Outage(RetriableError):
    """What a codec or a tailer needs does not answer, or lacks what was declared: the batch is called again."""
