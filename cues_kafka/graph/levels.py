"""What each kind of edge guarantees, on which condition, the command that shows it, and what makes it stronger.

The table of docs/edges.md and what `plan` says of a graph are made of these rows. The commands are run in a clone of
the project. Its tests compare the rows with the page.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias, get_args

Level: TypeAlias = Literal["exactly-once", "at-least-once", "at-most-once"]
"""Exactly once: nothing is lost or repeated. At least once: a crash may repeat. At most once: a crash may lose."""

LEVELS: Final = get_args(Level)
"""From the strongest to the weakest: what is repeated can be recognised later, and what is lost is gone."""

EXACTLY_ONCE: Final = "exactly once"
AT_LEAST_ONCE: Final = "at least once"
AT_MOST_ONCE: Final = "at most once"

KEY_HEADER: Final = "Idempotency-Key"
"""The header that servers know repeated requests by."""


class EdgeKind(NamedTuple):
    """
    One kind of edge.

    Attributes:
        edge: what it joins, and how it is declared.
        level: `exactly once`, `at least once` or `at most once`, or once on a condition.
        why: what gives this level, and what it asks for.
        shown_by: the command that shows it.
        remedy: what makes it exactly once, as a full sentence; empty: it is.
    """

    edge: str
    level: str
    why: str
    shown_by: str
    remedy: str = ""


def level_of(text: str) -> Level:
    """
    The level that a text of an edge promises: the one that it begins with, behind which its condition may follow.

    A text that begins with none of them promises at least once, such as `once, if the server knows the key`.
    """
    return next((one for one in LEVELS if text.startswith(one.replace("-", " "))), "at-least-once")


def satisfies(level: Level, required: Level) -> bool:
    """Whether an edge of this level keeps what is required; at least once and at most once do not keep each other."""
    return level in ("exactly-once", required)


# Into Kafka.

SEND: Final = EdgeKind(
    "application to Kafka, `send` and `send_many`",
    AT_LEAST_ONCE,
    "a send repeated after a crash is a second message; give it an id",
    "pytest tests/unit/graph/test_ready.py",
    'Send with id=, or feed the topic with Feed(...). Then declare it: Source(..., level="exactly-once").',
)
SEND_WITH_ID: Final = EdgeKind(
    "application to Kafka, `send(..., id=)`",
    EXACTLY_ONCE,
    "the client has a name, and asks `sent` for the first message after a restart",
    "pytest tests/fault/test_killed_senders.py",
)
FEED: Final = EdgeKind(
    "files, functions and other sources to Kafka, `Feed(...)`",
    "exactly once (source position stored with the messages)",
    "messages and position in one transaction; the source gives the same messages after a position",
    "pytest tests/unit/workers/feeds tests/unit/bridges/test_files.py",
)
OUTBOX_FEED: Final = EdgeKind(
    "an outbox table in PostgreSQL or SQLite to Kafka, `Feed(SqlOutbox(...), ...)`",
    FEED.level,
    "messages and position in one transaction; the database keeps what it commits",
    "pytest -m 'not slow' tests/integration/test_outbox.py tests/unit/bridges/test_restored_outbox.py",
)
CLAIMED_FEED: Final = EdgeKind(
    "an outbox table in MariaDB to Kafka, `Feed(SqlOutbox(...), ...)`",
    "exactly once (rows claimed by their ids, and deleted after the commit)",
    "messages and numbers of rows in one transaction, rows deleted later; the database keeps deletions",
    "pytest -m 'not slow' tests/integration/test_outbox.py tests/fault/test_feed_kills.py",
)

# From Kafka to Kafka.

INSIDE: Final = {
    "exactly-once": EdgeKind(
        "Kafka to Kafka, with state",
        EXACTLY_ONCE,
        "from Kafka to Kafka: one transaction with the position in the input",
        "make demo-native",
    ),
    "at-least-once": EdgeKind(
        'Kafka to Kafka, `strategy="at-least-once"`',
        AT_LEAST_ONCE,
        "from Kafka to Kafka, by strategy=: written before the position; a crash repeats messages",
        "pytest tests/unit/task/test_strategies.py",
        'Leave strategy="at-least-once" out.',
    ),
    "at-most-once": EdgeKind(
        'Kafka to Kafka, `strategy="at-most-once"`',
        AT_MOST_ONCE,
        "from Kafka to Kafka, by strategy=: the position is committed first; a crash drops messages",
        "pytest tests/unit/task/test_strategies.py",
        'Leave strategy="at-most-once" out.',
    ),
}
"""By strategy: what goes from Kafka to Kafka."""

ON_SPARK: Final = EdgeKind(
    "Kafka to Kafka on Spark, `DataFrameProcessor(...)` and the engine `Spark`",
    EXACTLY_ONCE,
    "from Kafka to Kafka on Spark: one transaction for each part of a batch, with its position in the input",
    "make demo",
)
WRITTEN_BY_SPARK: Final = EdgeKind(
    "any DataFrame to Kafka, `write_exactly_once(...)`",
    EXACTLY_ONCE,
    "one name for each job and one checkpoint, which stay; another run of what is written writes nothing",
    "pytest tests/spark/test_staged_write.py",
)
OWN_LOOP: Final = EdgeKind(
    "Kafka to Kafka in a loop of your own",
    EXACTLY_ONCE,
    "a named tailer advances in the transaction of what it has read",
    "pytest tests/integration/test_primitives.py",
)

# Out of Kafka.

DATABASE: Final = EdgeKind(
    'Kafka to a database, `effects={"db": Sql(...)}` or `Sink(..., into=Sql(...).table(...))`',
    EXACTLY_ONCE,
    "rows, outcomes and position in one transaction of the database; it must keep what it commits",
    "pytest tests/unit/sinks/test_crashes.py tests/integration/test_databases.py "
    "tests/unit/operate/move/test_settling.py",
)
UPSERT: Final = EdgeKind(
    "Kafka to the newest row of each key, `Sink(..., into=Sql(...).upsert(...))`",
    EXACTLY_ONCE,
    f"{DATABASE.why}; after a reset no row goes back in time",
    "pytest tests/unit/sinks/test_tables.py tests/servers/test_tables.py",
)
FILES: Final = EdgeKind(
    'Kafka to files, `effects={"blobs": Blobs(...)}` or `Sink(..., into=Blobs(...).parquet(...))`',
    EXACTLY_ONCE,
    "files, outcomes and position in one entry of a log in the store, which readers read; it must refuse to overwrite",
    "pytest tests/unit/sinks/test_blob_crashes.py tests/fault/test_file_kills.py",
)
FILES_OF_SPARK: Final = EdgeKind(
    "Kafka to Parquet files on Spark, `DataFrameProcessor(..., into=Blobs(...).parquet(...))`",
    EXACTLY_ONCE,
    "one entry of a log in the store commits all files of a batch; the store must refuse to overwrite, and driver and "
    "executors must see it",
    "pytest -m 'not slow' tests/unit/on_spark/staged/test_batch_files.py tests/spark/test_files_kills.py",
)
DATABASE_OF_SPARK: Final = EdgeKind(
    "Kafka to a database on Spark, `DataFrameProcessor(..., into=Sql(...).table(...))` or `.upsert(...)`",
    EXACTLY_ONCE,
    "one transaction of the database for each part of a batch, with its rows and its number; the database must keep "
    "what it commits, and driver and executors must reach it",
    "pytest -m 'not slow' tests/unit/on_spark/staged/test_table_rows.py tests/spark/test_table_kills.py",
)
OWN_TARGET: Final = EdgeKind(
    'Kafka to a system with transactions, `effects={"db": MyTarget(...)}` or `Sink(..., into=MyTarget(...))`',
    EXACTLY_ONCE,
    "what is written, outcomes and position in one transaction of the system; it must keep what it commits",
    "pytest tests/unit/testing/test_targets.py",
)
STOMP: Final = EdgeKind(
    'Kafka to JMS on ActiveMQ and Artemis, `effects={"jms": Stomp(...).target()}` or '
    "`Sink(..., into=Stomp(...).to_queue(...))`",
    EXACTLY_ONCE,
    "messages, outcomes and position in one transaction of the broker; it must keep what it commits, and give a marker "
    "queue to one consumer at a time",
    "pytest -m 'bridge or not bridge' tests/unit/bridges/stomp/test_target.py tests/servers/test_stomp_out.py",
)
AMQP: Final = EdgeKind(
    'Kafka to queues by AMQP 1.0, as of Artemis, `effects={"jms": Amqp(...).target()}` or '
    "`Sink(..., into=Amqp(...).to_queue(...))`",
    EXACTLY_ONCE,
    "messages, outcomes and position in one transaction of the broker; it must have transactions, keep what it "
    "commits, and give a marker queue to one consumer at a time",
    "pytest -m 'bridge or not bridge' tests/unit/bridges/amqp tests/servers/test_amqp_out.py",
)
JOURNALED_SERVER: Final = EdgeKind(
    'Kafka to a server, `effects={"http": Http(..., journal=True)}`',
    "once, if the server knows the key",
    "an answer in the journal is not requested again; a kill between call and record repeats the call, with the same "
    f"{KEY_HEADER}",
    "pytest tests/unit/sinks/test_calls.py tests/fault/test_call_kills.py",
    "If the server does nothing when a key comes again, declare Http(..., journal=True, idempotent=True).",
)
SERVER: Final = EdgeKind(
    'Kafka to a server, `effects={"http": Http(...)}`',
    AT_LEAST_ONCE,
    f"once, if the server knows {KEY_HEADER} and the function makes the same calls again; journal=True",
    "pytest tests/unit/sinks/test_calls.py tests/fault/test_call_kills.py",
    "If the server does nothing when a key comes again, declare Http(..., journal=True, idempotent=True).",
)
ONCE: Final = EdgeKind(
    'Kafka to anything, `effects={"once": Once()}`',
    AT_LEAST_ONCE,
    "a result in the journal is not computed again; a kill between the call and its record repeats the call",
    "pytest tests/unit/sinks/test_calls_alone.py",
    "Write to a database, with effects={...: Sql(...)}, or call a server that knows keys, with Http(...).",
)
ANYTHING: Final = EdgeKind(
    "Kafka to anything else, a sink or `effects=True`",
    AT_LEAST_ONCE,
    "the function may be called again after a crash, with the same step.hash, which is an idempotency key",
    "pytest tests/fault/test_kill_points.py",
    "Write to a database or to files, with effects={...: Sql(...)} or Sink(..., into=...), or call a server that knows "
    "keys, with Http(...).",
)
NEVER_TWICE: Final = EdgeKind(
    'Kafka to anything else, `strategy="at-most-once"`',
    AT_MOST_ONCE,
    "the function is never called twice for a message; a crash may leave messages without a call, and verify "
    "counts them",
    "pytest -m 'not slow' tests/unit/task/test_strategies.py tests/fault/test_strategies.py",
    'Leave strategy="at-most-once" out, and write to a database, with effects={...: Sql(...)} or Sink(..., into=...).',
)

KINDS: Final = (
    SEND,
    SEND_WITH_ID,
    FEED,
    OUTBOX_FEED,
    CLAIMED_FEED,
    *INSIDE.values(),
    ON_SPARK,
    WRITTEN_BY_SPARK,
    OWN_LOOP,
    DATABASE,
    UPSERT,
    FILES,
    FILES_OF_SPARK,
    DATABASE_OF_SPARK,
    OWN_TARGET,
    STOMP,
    AMQP,
    JOURNALED_SERVER,
    SERVER,
    ONCE,
    ANYTHING,
    NEVER_TWICE,
)
"""All of them, in the order of the table in docs/edges.md."""
