"""``python -m cues_kafka``: the program ``cues-kafka``, where its script is not on PATH."""

from __future__ import annotations

from cues_kafka.cli.main import main

main()
