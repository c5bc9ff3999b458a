"""Rows of a database in one transaction with the attempt, beside the same rows by hand."""

from __future__ import annotations

import os
from contextlib import ExitStack

import psycopg

from benchmarks.graphs import ENV
from benchmarks.harness import Cluster, Pipe, alternating, median, unique, values_of
from benchmarks.report import Section
from benchmarks.throughput import COMPARED, Run, compared, run
from tests.servers.postgres import Postgres

TARGET = 0.8
SMALL = 1_000
"""Rows in a small batch."""

CASES: tuple[tuple[str, str, int, int], ...] = (
    ("`COPY`", "copy", 10_000, 1),
    ("`COPY`, small batches", "copy", SMALL, 2),
    ("`executemany`", "many", 10_000, 8),
    ("`COPY`, and a message each", "copy-out", 10_000, 2),
    ("`COPY`, and a message each, small batches", "copy-out", SMALL, 4),
    ("`execute` for each message", "each", 1_000, 20),
)
"""Name, codec, rows in a transaction, and which share of the messages is enough for some seconds."""

HOW = f"""As under Throughput, raw values in one partition. Each message becomes a row of two texts in PostgreSQL, a
server on the same machine that waits for the disk at each commit. The table has no index. With cues-kafka,
`effects={{"db": Sql(...)}}`, up to 10,000 rows in a transaction (*small batches*: {SMALL:,}; `execute`: 1,000), exactly
once. By hand, [benchmarks/hand_sql.py](../benchmarks/hand_sql.py): the rows of what came are committed, then the
positions in Kafka; a crash between the two doubles rows. *A message each*: the function also gives each message to a
topic. With cues-kafka such messages are rows of the outbox in the same transaction first."""

PRICE = """- With a transaction of Kafka behind each batch of 1,000 rows, most of the time is waiting for Kafka.
  In ms, the quickest tenth of 179 batches, both sides in turn, from timestamps around the calls (2026-11-26):

  | part of a batch                                           | cues-kafka | by hand |
  |-----------------------------------------------------------|------------|---------|
  | `COPY`; by hand also making the rows, and `BEGIN`         | 1.1        | 1.4     |
  | begin, with the task's row locked and read                | 0.4        | -       |
  | the row's update, and the commit                          | 0.5        | 0.3     |
  | Kafka: the offsets                                        | 1.4        | 0.9     |
  | Kafka: the task's record, until it is reported as written | 2.1        | -       |
  | Kafka: the commit                                         | 0.4        | 0.3     |
  | fetching, making the rows, handing over between threads   | 1.1        | 0.2     |
  | all of it                                                 | 7.0        | 3.1     |

- The table is of batches one after the other. The worker also calls the next batch during Kafka's commit, in a
  transaction of the database that stays open until Kafka's commit is known (P7). And where no messages come of
  the calls, one transaction of Kafka follows up to eight of the database (E1): with and without these parts in
  turn, medians of 3, 226,000 rows/s instead of 142,000 in batches of 1,000, and 358,000 instead of 343,000 in
  batches of 10,000. By hand it was 154,000 and 319,000: that loop has a transaction of Kafka for each batch.
- With messages each batch waits for a transaction of Kafka of its own, which is a chain. The record is what
  recovery compares with the row (E1), so each batch writes one: its partition is registered, it is written, and
  its report comes back, all before the commit. About 1 ms of that is the client's, which rounds a timer of 1 us
  up to a millisecond. And the database commits before Kafka's transaction begins (E1).
- On two processors the parts compete. While one batch is made into rows and taken by the database, the broker
  answers `TxnOffsetCommit` and the record of the batch before in 4 to 8 ms, and in 1 ms otherwise (the client's
  log, batches of 10,000)."""
"""Where the time of a small batch goes; a figure for each part, from timestamps around the calls in both programs."""


def measure(repetitions: int, messages: int, cluster: Cluster) -> Section:
    """Measure all cases, both sides in turn."""
    backlog = 2 * messages
    section = Section(
        "Databases",
        f"{HOW}\nUp to {backlog:,} messages a run, medians of {repetitions} (min to max).",
        COMPARED,
    )
    source = cluster.create(unique("in-sql-"))
    cluster.fill(source, values_of("raw"), backlog)
    runs: dict[tuple[str, str], list[Run]] = {}
    with ExitStack() as running:
        server = Postgres(durable=True, settings={"autovacuum_naptime": "60s"})  # as it is by default
        running.callback(server.close)
        server.start()
        os.environ[f"{ENV}DATABASE"] = server.url()
        for sides in alternating(repetitions):
            for name, codec, most, share in CASES:
                for side in sides:
                    with psycopg.connect(server.url()) as connection:
                        connection.execute("DROP TABLE IF EXISTS rows")
                        connection.execute("CREATE TABLE rows (key text NOT NULL, value text NOT NULL)")
                    pipe = Pipe(unique("q"), source, unique("out"), codec, most=most)
                    runs.setdefault((name, side), []).append(run(side, pipe, backlog // share, cluster))
    cluster.delete(source)
    for name, codec, *_ in CASES:
        goal = TARGET if codec in ("copy", "many") else None
        section.rows.append(compared(name, runs[name, "cues"], runs[name, "hand"], goal))
    prices = [
        _us(runs[more, side]) - _us(runs[less, side])
        for side in ("cues", "hand")
        for less, more in ((CASES[0][0], CASES[3][0]), (CASES[1][0], CASES[4][0]))
    ]
    section.after = (
        f"- A message beside the row costs {prices[0]:.1f} us more than the row alone, in small batches "
        f"{prices[1]:.1f} us: making it, the outbox, and Kafka. By hand it is {prices[2]:.1f} us and "
        f"{prices[3]:.1f} us.\n{PRICE}"
    )
    return section


def _us(runs: list[Run]) -> float:
    return 1e6 / median([r.per_s for r in runs])
