"""Send the first flights to the cluster that the settings name: variables CUES_KAFKA_*, or cues-kafka.toml.

::

    python -m examples.flights.send 2000
"""

from __future__ import annotations

import sys
from itertools import islice

from cues_kafka import connect
from cues_kafka.cli.config import load
from examples.flights import data
from examples.flights.graph import plain
from examples.flights.load import CHUNK_ROWS, message


def main(rows: int) -> int:
    """Send this many flights, and return their number."""
    lines = enumerate(data.flights(rows))
    sent = 0
    with connect(load().kafka(), plain) as client:
        while chunk := list(islice(lines, CHUNK_ROWS)):
            sent += client.send_many("flights.raw", [message(line, number) for number, line in chunk])
    return sent


if __name__ == "__main__":
    print(main(int(sys.argv[1])), "flights sent")
