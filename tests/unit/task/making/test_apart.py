"""A database that does not answer at a start holds back its own processors, by name, and no others."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import (
    Blobs,
    ConfigError,
    Graph,
    Json,
    Memory,
    Processor,
    RetriableError,
    Source,
    Sql,
    Topic,
    files,
    start,
)
from cues_kafka.graph.effects import Sql as Declared
from cues_kafka.running.running import Running
from cues_kafka.sinks import patience, tables
from cues_kafka.task.making import apart, prepare


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "AT_START_S", 0.0)
    monkeypatch.setattr(patience, "PATIENCE_S", 0.0)
    monkeypatch.setattr(apart, "AGAIN_FIRST_S", 0.02)
    monkeypatch.setattr(apart, "AGAIN_MAX_S", 0.02)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The directory of the database, which is not there."""
    return tmp_path / "mounted"


def graph_of(home: Path) -> Graph:
    """One processor without a database beside two that share one."""

    def book(order: int, db: Any) -> None:
        db.execute("INSERT INTO orders VALUES (?)", (order,))

    def double(order: int) -> int:
        return order * 2

    database = Sql(f"sqlite:///{home}/shop.db")
    return Graph(
        "shop",
        Source("orders"),
        Processor(double, inputs="orders", outputs="doubled"),
        *(Processor(book, name=name, inputs="orders", effects={"db": database}) for name in ("book", "again")),
        defaults=Topic(value=Json(), partitions=1),
    )


def wait_until(done: Callable[[], bool]) -> None:
    """Or fail after 20 s."""
    until = time.monotonic() + 20.0
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def running(home: Path) -> Iterator[Running]:
    """Started as the command does, with an order."""
    with start(graph_of(home), Memory(), timeout_s=None) as running:
        running.send("orders", 21)
        yield running


def held(running: Running) -> dict[str, str]:
    """Why processors are held back, by task, with the remedy."""
    return {one.task: f"{one.stopped}. {one.remedy}" if one.stopped else "" for one in running.status().tasks}


def test_processors_without_that_database_work_meanwhile(running: Running, home: Path) -> None:
    """Those that need it are named with the remedy; when it is there they start by themselves, and miss nothing."""
    wait_until(lambda: [one.value for one in running.messages("doubled")] == [42])
    wait_until(lambda: len(held(running)) == 3)
    why = held(running)
    assert why["double/0"] == ""
    for task in ("book/0", "again/0"):
        assert why[task].startswith("book, effects['db']: the file of SQLite: ")
        assert why[task].endswith(
            "bring the database back, or fix what it refuses; the processor then starts by itself"
        )
    home.mkdir()
    with sqlite3.connect(home / "shop.db") as made:
        made.execute("CREATE TABLE orders (n INTEGER)")

    def rows() -> int:
        with sqlite3.connect(home / "shop.db") as made:
            return int(made.execute("SELECT count(*) FROM orders WHERE n = 21").fetchone()[0])

    wait_until(lambda: rows() == 2)
    assert set(held(running).values()) == {""}


def test_database_that_comes_back_and_refuses_is_named_and_asked_again(
    running: Running, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at as at any start, before the first call."""
    make = tables.make_tables

    def refuse(declared: Declared, where: str, **_: Any) -> None:
        raise ConfigError(f"{where}: grant the user CREATE")

    wait_until(lambda: all(held(running).get(task) for task in ("book/0", "again/0")))
    monkeypatch.setattr(tables, "make_tables", refuse)
    home.mkdir()
    with sqlite3.connect(home / "shop.db") as made:
        made.execute("CREATE TABLE orders (n INTEGER)")
    wait_until(lambda: "grant the user CREATE" in held(running)["book/0"])
    monkeypatch.setattr(tables, "make_tables", make)
    wait_until(lambda: held(running)["again/0"] == held(running)["book/0"] == "")
    running.wait_idle(timeout_s=30)


def test_store_whose_mount_is_gone_holds_back_its_own_processors(home: Path) -> None:
    """It was there before, so it is not made again."""

    def keep(order: int, files: Any) -> None:
        files.put(f"{order}.txt", b"kept")

    def double(order: int) -> int:
        return order * 2

    graph = Graph(
        "shop",
        Source("orders"),
        Processor(double, inputs="orders", outputs="doubled"),
        Processor(keep, inputs="orders", effects={"files": Blobs(f"file://{home}")}),
        defaults=Topic(value=Json(), partitions=1),
    )
    memory = Memory()
    with start(graph, memory) as running:
        running.send("orders", 1)
        running.wait_idle(timeout_s=30)
    away = home.rename(home.with_name("unmounted"))
    with start(graph, memory, timeout_s=None) as running:
        running.send("orders", 2)
        wait_until(lambda: [one.value for one in running.messages("doubled")] == [2, 4])
        wait_until(lambda: "bring the store back" in held(running).get("keep/0", ""))
        assert not home.exists()
        away.rename(home)
        wait_until(lambda: len(list(files(f"file://{home}"))) == 2)


def test_start_that_waits_for_the_first_records_ends_with_the_processor_and_the_remedy(home: Path) -> None:
    """A program wants all of its processors, or an error."""
    with pytest.raises(RetriableError, match=r"book, effects\['db'\]: .*Bring the database back and start again; or"):
        start(graph_of(home), Memory())
