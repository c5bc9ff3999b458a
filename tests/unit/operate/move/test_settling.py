"""`reset` of processors with a database: restored from a backup, recreated, ahead of Kafka (E1, X2)."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Blobs, CommitPolicy, Graph, Json, Processor, Source, Sql, Store, TaskStopped, Topic
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.operate.move.accept_loss import accept_loss
from cues_kafka.operate.move.base import Maintenance, PlannedMove
from cues_kafka.operate.move.reset import reset
from cues_kafka.ports.log import TopicPartition
from cues_kafka.task.making.prepare import make_stores
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify
from tests.unit.samples import backup_of


def book(order: dict[str, Any], db: Any) -> dict[str, Any]:
    """A row and a message for each order."""
    db.execute("INSERT INTO rows (id) VALUES (?)", (order["id"],))
    return {"booked": order["id"]}


class Shop:
    """A graph, its database, and a Tester over one broker."""

    def __init__(self, path: Path, start: Any = "earliest", fn: Any = book, **state: Any) -> None:
        self.path = path
        with sqlite3.connect(path) as made:
            made.execute("CREATE TABLE rows (id INTEGER)")
        effects = {"db": Sql(f"sqlite:///{path}")}
        self.graph = Graph(
            "g",
            Source("orders"),
            Processor(fn, name="book", inputs="orders", outputs="booked", effects=effects, start=start, state=state),
        )
        self.tester = Tester(self.graph, policy=CommitPolicy(max_messages=3))
        self.sent = 0

    def send(self, count: int) -> Shop:
        """Send the next orders."""
        for _ in range(count):
            self.tester.send("orders", {"id": self.sent})
            self.sent += 1
        return self

    def rows(self) -> list[int]:
        """The ids in the database."""
        with sqlite3.connect(self.path) as opened:
            return [row[0] for row in opened.execute("SELECT id FROM rows ORDER BY id")]

    def booked(self) -> list[int]:
        """The ids in Kafka."""
        return [one["booked"] for one in self.tester.values("booked")]

    @property
    def broker(self) -> MemoryBroker:
        """The cluster."""
        return self.tester.broker

    def save(self) -> Path:
        """A backup of the database."""
        self.tester.stop()
        backup = self.path.with_suffix(".backup")
        with sqlite3.connect(self.path) as opened, sqlite3.connect(backup) as made:
            opened.backup(made)  # what is in the write-ahead log, too
        return backup

    def restore(self, backup: Path) -> Shop:
        """Put it back."""
        self.tester.stop()
        for file in self.path.parent.glob(f"{self.path.name}*"):
            file.unlink()
        shutil.copy(backup, self.path)
        return self

    def reset(self, to: str) -> list[str]:
        """Stop the worker and reset; gives what the operator was told."""
        return self.moved(lambda tool: reset(tool, to=to))

    def accept_loss(self) -> list[str]:
        """The same for messages that are gone from the log."""
        return self.moved(accept_loss)

    def moved(self, plan: Callable[[Maintenance], list[PlannedMove]]) -> list[str]:
        """Stop the worker, plan the moves and carry them out."""
        self.tester.stop()
        self.tester.broker.expire("g.book")  # a worker that crashed is a member until its session ends
        tool = Maintenance(self.graph, self.tester.broker, "book", who="test", clock=self.tester.clock)
        moves = plan(tool)
        tool.carry_out(moves)
        return [note for move in moves for note in move.notes]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A new one."""
    return Shop(tmp_path / "shop.db")


def test_task_refuses_a_restored_backup_and_goes_back_to_it(shop: Shop) -> None:
    """The rows are complete afterwards; the messages to Kafka of the steps between repeat, which is said."""
    backup = shop.path.with_suffix(".backup")
    shop.send(6).tester.run()
    shop.tester.stop()
    shutil.copy(shop.path, backup)
    shop.send(6).tester.run()
    shop.tester.stop()
    for file in shop.path.parent.glob("shop.db*"):
        if file != backup:
            file.unlink()
    shutil.copy(backup, shop.path)

    shop.send(2)
    with pytest.raises(TaskStopped, match=r"restored from a backup.*--to database"):
        shop.tester.run()
    assert shop.rows() == list(range(6))
    notes = shop.reset("database")

    assert notes[0] == "the database lacks 6 steps that Kafka has: their messages to Kafka REPEAT"
    shop.tester.run()
    assert shop.rows() == list(range(14))
    assert sorted(shop.booked()) == sorted([*range(14), *range(6, 12)])
    assert shop.reset("database") == []


def test_task_refuses_a_recreated_database_until_the_operator_says_that_it_is_right(shop: Shop) -> None:
    """`here` begins its rows; `earliest` then fills it again."""
    shop.send(4).tester.run()
    with sqlite3.connect(shop.path) as made:
        for table in ("cues_task", "cues_outbox", "rows"):
            made.execute(f"DELETE FROM {table}")

    shop.tester.restart()
    shop.send(1)
    with pytest.raises(TaskStopped, match=r"has no row of it, although it has taken 4 steps.*--to here"):
        shop.tester.run()
    shop.tester.stop()
    with pytest.raises(ConfigError, match="does not say where to go"):
        shop.reset("database")
    assert "stays missing" in shop.reset("here")[0]
    shop.tester.run()
    assert shop.rows() == [4]

    shop.reset("earliest")
    shop.tester.run()
    assert shop.rows() == [0, 1, 2, 3, 4, 4]


def test_reset_publishes_first_what_the_database_is_ahead_with(shop: Shop) -> None:
    """A plan that was made without it is made again: else its messages would be lost, or come over the reset."""
    shop.send(3).tester.run(crash=Crash("after", "CommitTarget", 1))
    shop.tester.restart()

    with pytest.raises(RecoveryError, match=r"has moved since.*run the command again"):
        shop.reset("earliest")
    assert shop.booked() == [0, 1, 2]
    shop.reset("earliest")
    shop.tester.run()
    assert shop.rows() == [0, 0, 1, 1, 2, 2]
    assert shop.booked() == [0, 1, 2, 0, 1, 2]


def test_fail_over_that_loses_commits_under_an_open_connection_stops_the_task(shop: Shop) -> None:
    """Each batch compares its step with the row under the lock: no row is written behind steps that are gone."""
    stands = "SELECT base, step, attempt FROM cues_task"
    shop.send(3).tester.run()
    with sqlite3.connect(shop.path) as replica:
        behind = replica.execute(stands).fetchone()
    shop.send(3).tester.run()
    with sqlite3.connect(shop.path) as made:
        assert made.execute(stands).fetchone() != behind
        made.execute("UPDATE cues_task SET (base, step, attempt) = (?, ?, ?)", behind)
        made.execute("DELETE FROM rows WHERE id > 2")

    shop.send(3)
    with pytest.raises(TaskStopped, match=r"stands at step 3, its newest record at step 6.*book --to database"):
        shop.tester.run()

    assert shop.rows() == [0, 1, 2]
    assert shop.booked() == [0, 1, 2, 3, 4, 5]
    shop.reset("database")
    shop.tester.run()
    assert shop.rows() == list(range(9))


def test_accept_loss_publishes_first_what_the_database_is_ahead_with(shop: Shop) -> None:
    """Their rows are there, so their messages come too; only what no call has seen is lost, and counted as lost."""
    shop.send(3).tester.run()
    shop.send(5).tester.run(crash=Crash("after", "CommitTarget", 1))
    assert shop.rows() == [0, 1, 2, 3, 4, 5]
    shop.tester.restart()
    shop.broker.trim({TopicPartition("orders", 0): 7})

    with pytest.raises(RecoveryError, match=r"has moved since.*run the command again"):
        shop.accept_loss()
    assert shop.booked() == [0, 1, 2, 3, 4, 5]
    [note] = shop.accept_loss()
    assert note.startswith("orders/0: what offsets [6, 7) hold is LOST")
    assert shop.booked() == [0, 1, 2, 3, 4, 5]
    shop.tester.run()
    assert shop.rows() == shop.booked() == [0, 1, 2, 3, 4, 5, 7]
    assert shop.accept_loss() == []


def test_reset_to_the_database_needs_one(shop: Shop) -> None:
    """A processor without a database has no such place."""
    plain = Graph("g", Source("orders"), Processor(lambda one: one, name="same", inputs="orders", outputs="booked"))
    tester = Tester(plain)
    tester.run()
    tester.stop()
    with pytest.raises(ConfigError, match="has no database or store in its effects="):
        reset(Maintenance(plain, tester.broker, "same", who="test"), to="database")


def test_notes_of_a_new_row_do_not_name_the_task(shop: Shop) -> None:
    """The command puts it in front of each."""
    shop.send(4).tester.run()
    with sqlite3.connect(shop.path) as made:
        made.execute("DELETE FROM cues_task")
    assert shop.reset("here") == ["the database gets a row at step 4; what it lacks of the steps before stays missing"]


def test_store_of_files_that_was_made_again_is_called_a_store(tmp_path: Path) -> None:
    """Texts name what it is, and the place goes by the same word."""
    blobs = Blobs(f"file://{tmp_path}/files")

    def keep(order: dict[str, Any], files: Any) -> None:
        files.put("order.json", str(order["id"]).encode())

    graph = Graph("g", Source("orders"), Processor(keep, name="keep", inputs="orders", effects={"files": blobs}))
    tester = Tester(graph)
    tester.send("orders", {"id": 1})
    tester.run()
    tester.stop()
    shutil.rmtree(tmp_path / "files")
    make_stores(graph, None, created=None)

    with pytest.raises(ConfigError, match="the store has no row of keep/0"):
        reset(Maintenance(graph, tester.broker, "keep", who="test"), to="database")


def test_attempt_that_the_database_is_ahead_with_is_no_case_for_a_reset(shop: Shop) -> None:
    """The next start publishes it; a reset would lose its messages."""
    shop.send(3).tester.run(crash=Crash("after", "CommitTarget", 1))
    shop.tester.restart()

    with pytest.raises(ConfigError, match=r"one attempt ahead of Kafka.*Start the workers"):
        shop.reset("database")
    shop.tester.run()
    assert shop.booked() == [0, 1, 2]


def test_row_whose_counts_another_program_changed_stops_its_task_until_an_operator_decides(shop: Shop) -> None:
    """Published as it is, it would count what was never called; the remedy of the stopped task ends it."""
    shop.send(3).tester.run(crash=Crash("after", "CommitTarget", 1))
    with sqlite3.connect(shop.path) as opened:
        opened.execute("UPDATE cues_task SET attempt = replace(attempt, '\"taken\": 3', '\"taken\": 2')")
        assert opened.total_changes == 1
    shop.tester.restart()

    with pytest.raises(TaskStopped, match=r"counts 2 steps, and has 3 between its ends.*--to database"):
        shop.tester.run()
    shop.tester.stop()
    assert "LOST" in str(shop.reset("database"))
    shop.tester.restart()
    shop.send(1).tester.run()
    assert (shop.rows(), shop.booked()) == ([0, 1, 2, 3], [3])


def test_here_refuses_to_hide_a_difference(shop: Shop) -> None:
    """Rows that are there, and stand elsewhere, are no new database."""
    shop.send(4).tester.run()
    shop.tester.stop()
    with sqlite3.connect(shop.path) as made:
        made.execute("UPDATE cues_task SET base = 1, step = 2")

    with pytest.raises(ConfigError, match=r"is at step 2 .*, Kafka at step 4"):
        shop.reset("here")


def test_backup_from_before_the_first_batch_behind_a_reset_says_where_to_go(shop: Shop) -> None:
    """The row that `here` wrote named no offset, and `--to database` had everything delivered again."""
    shop.send(4).tester.run()
    with sqlite3.connect(shop.path) as made:
        for table in ("cues_task", "cues_outbox"):
            made.execute(f"DELETE FROM {table}")
    shop.reset("here")
    backup = shop.save()
    shop.send(2).tester.run()
    shop.restore(backup)
    shop.reset("database")
    shop.tester.run()

    assert shop.rows() == [0, 1, 2, 3, 4, 5]


def test_backup_from_before_the_first_step_does_not_say_where_a_task_began(tmp_path: Path) -> None:
    """What was in the topic before a start at its end was never to be delivered."""
    shop = Shop(tmp_path / "shop.db", "latest").send(3)
    shop.tester.run()
    backup = shop.save()
    shop.send(2).tester.run()
    shop.restore(backup)

    with pytest.raises(ConfigError, match="does not say at which offset"):
        shop.reset("database")


def test_task_with_stores_does_not_go_back_to_a_backup(tmp_path: Path) -> None:
    """As with every other reset: its stores counted the messages behind the backup twice."""

    def count(order: dict[str, Any], db: Any, counts: Any) -> dict[str, Any]:
        counts["all"] = counts.get("all", 0) + 1
        return book(order, db)

    shop = Shop(tmp_path / "shop.db", fn=count, counts=Store(Json(int))).send(2)
    shop.tester.run()
    backup = shop.save()
    shop.send(3).tester.run()
    shop.restore(backup)

    with pytest.raises(ConfigError, match=r"cannot go back: its stores \(counts\)"):
        shop.reset("database")


def test_a_tailer_goes_back_with_a_database_that_was_restored(tmp_path: Path) -> None:
    """L2: the row holds where it stood, so steps that are repeated read what they had read."""

    def fn(order: dict[str, Any], db: Any, prices: Any) -> dict[str, Any]:
        [price] = prices.messages(limit=1)
        db.execute("INSERT INTO rows (id) VALUES (?)", (order["id"],))
        return {"booked": order["id"], "price": price.value}

    shop = Shop(tmp_path / "shop.db", fn=lambda _, db: None)
    processor = Processor(
        fn,
        name="book",
        inputs="orders",
        outputs="booked",
        effects={"db": Sql(f"sqlite:///{shop.path}")},
        tailers={"prices": "prices"},
    )
    shop.graph = Graph("g", Source("orders"), Source("prices"), processor, defaults=Topic(value=Json(), partitions=1))
    shop.tester = Tester(shop.graph, policy=CommitPolicy(max_messages=3))
    for n in range(20):
        shop.tester.send("prices", n)
    shop.send(4).tester.run()
    backup = shop.save()
    shop.tester.restart()
    shop.send(3).tester.run()
    shop.restore(backup)
    assert any("REPEAT" in note for note in shop.reset("database"))
    shop.tester.restart().run()

    found = [(one["booked"], one["price"]) for one in shop.tester.values("booked")]
    assert found == [*((n, n) for n in range(7)), *((n, n) for n in range(4, 7))]


@pytest.mark.parametrize("starts", [2, 8])
def test_task_goes_on_at_once_where_kafka_lost_records_of_later_starts(shop: Shop, starts: int) -> None:
    """The move passes the owner that the database knows; else each start would be a former one, and a death."""
    shop.send(3).tester.run()
    shop.tester.stop()
    restore = backup_of(shop.tester.broker, "g.book.backing", "g.book")
    for _ in range(starts):
        shop.send(3).tester.restart().run()
        shop.tester.stop()
    restore()

    assert any("ahead of" in note for note in shop.reset("database"))
    shop.send(2).tester.restart().run()
    assert shop.rows() == list(range(3 * (starts + 1) + 2))
    assert shop.tester.errors() == []
    assert shop.reset("database") == []
    assert not any("records are missing" in line for line in verify(shop.graph, shop.tester.broker).lines)


def test_later_starts_that_took_no_step_are_passed_too(shop: Shop) -> None:
    """Step and place fit, so there is nothing to deliver again; but the database knows a later owner."""
    shop.send(3).tester.run()
    shop.tester.stop()
    assert shop.reset("database") == []
    with sqlite3.connect(shop.path) as made:
        made.execute("UPDATE cues_task SET owner = 50")

    shop.send(1)
    with pytest.raises(TaskStopped, match=r"owner 50.*reset MODULE:GRAPH book --to database"):
        shop.tester.restart().run()
    assert shop.reset("database") == ["the database has seen later starts than Kafka has; no step is lost"]
    shop.tester.restart().run()
    assert shop.rows() == [0, 1, 2, 3]
    assert shop.booked() == [0, 1, 2, 3]
