"""Archive flights in Parquet files, and render a boarding pass for each, exactly once both.

The store is a directory; ``s3://bucket/prefix`` takes the same graph. Start a broker with ``cues-kafka broker up``,
then run this file with ``python examples/archive.py``.
"""

import tempfile
from dataclasses import dataclass
from typing import Any

from cues_kafka import Blobs, Graph, Json, Kafka, Processor, Sink, Source, Topic, files, start


@dataclass(frozen=True)
class Flight:
    """A flight."""

    id: int
    carrier: str
    passenger: str


def board(flight: Flight, blobs: Any) -> dict[str, str]:
    """Put a boarding pass, and say where it is."""
    url = blobs.put(f"{flight.id}.txt", f"{flight.passenger} on {flight.carrier}".encode())
    return {"passenger": flight.passenger, "url": url}


def archive(store: Blobs) -> Graph:
    """A sink without a function, and a function that puts objects."""
    table = store.parquet("flights")
    return Graph(
        "archive",
        Source("archive.flights"),
        Sink("keep", inputs="archive.flights", into=table),
        Processor(board, inputs="archive.flights", outputs="archive.passes", effects={"blobs": store}),
        errors="archive.errors",
        topics={"archive.flights": Topic(value=Json(Flight))},
    )


if __name__ == "__main__":
    place = f"file://{tempfile.mkdtemp()}"
    with start(archive(Blobs(place)), Kafka("localhost:9092")) as running:
        running.send_many("archive.flights", [Flight(1, "UA", "ann"), Flight(2, "B6", "bob")])
        running.wait_idle(timeout_s=30)
    print(sum(one.rows or 0 for one in files(place, "flights")), "rows")
    print(len(list(files(place, ""))), "boarding passes")
