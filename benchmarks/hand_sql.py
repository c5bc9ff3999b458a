"""
The other side with a database: the loop of `hand`, which also writes rows in a transaction of its own.

It writes the rows of all messages that came, commits them, and then commits the positions in Kafka, with the messages
that it produces. It is not exactly-once: a death between the two commits doubles rows.
"""

from __future__ import annotations

import os
from typing import Any

import psycopg

from benchmarks.graphs import ENV, INSERT
from benchmarks.hand import Loop, main
from benchmarks.work import row_of


class Rows(Loop):
    """Writes rows, and no messages."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.connection = psycopg.connect(os.environ[f"{ENV}DATABASE"])

    def transact(self, batch: list[Any]) -> None:
        values = [message.value() for message in batch]
        with self.connection.cursor() as cursor:
            self.write(cursor, values)
        self.connection.commit()
        self.publish(batch)

    def write(self, cursor: psycopg.Cursor[Any], values: list[bytes]) -> None:
        """Write the rows."""
        with cursor.copy("COPY rows (key, value) FROM STDIN") as copy:
            for row in map(row_of, values):
                copy.write_row(row)

    def publish(self, batch: list[Any]) -> None:
        """Commit the positions alone."""
        del batch
        producer, consumer = self.producer, self.consumer
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()


class RowsAndMessages(Rows):
    """Writes rows, and gives each message."""

    def publish(self, batch: list[Any]) -> None:
        Loop.transact(self, batch)


class Many(Rows):
    """Writes rows by `executemany`."""

    def write(self, cursor: psycopg.Cursor[Any], values: list[bytes]) -> None:
        cursor.executemany(INSERT, list(map(row_of, values)))


class Each(Rows):
    """Writes each row by a statement of its own."""

    def write(self, cursor: psycopg.Cursor[Any], values: list[bytes]) -> None:
        for value in values:
            cursor.execute(INSERT, row_of(value))


if __name__ == "__main__":
    main({"copy": Rows, "copy-out": RowsAndMessages, "many": Many, "each": Each})
