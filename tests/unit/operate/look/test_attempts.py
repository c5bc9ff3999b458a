"""What attempts did besides writing messages: entries of stores and effects, from a message and back to it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from cues_kafka import (
    Blobs,
    Graph,
    Http,
    Json,
    Once,
    Processor,
    Sink,
    Source,
    Sql,
    Store,
    Timers,
)
from cues_kafka.cli.main import app
from cues_kafka.operate.look.lineage import lineage
from cues_kafka.operate.look.lineage_lines import tree
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.tester import Tester
from tests.unit.operate.look.test_lineage import plain


def note(value: dict[str, Any], seen: Any) -> dict[str, Any]:
    """Keeps ids, and forgets them when they come again."""
    if value["id"] in seen:
        del seen[value["id"]]
    else:
        seen[value["id"]] = 1
    return value


STORED = Graph(
    "shop",
    Source("orders"),
    Processor(note, inputs="orders", outputs="noted", state={"seen": Store(Json(int))}),
)


def noted(*batches: str) -> Tester:
    """A shop with a batch for each word, and a message for each of its letters."""
    tester = Tester(STORED)
    for batch in batches:
        tester.send_many("orders", [{"id": letter} for letter in batch])
        tester.run()
    return tester


def shown(tester: Tester, topic: str, offset: int) -> list[str]:
    """What the command prints with --changes and --graph, without the message and what it was made of."""
    found = plain(tree(lineage(tester.broker, TopicPartition(topic, 0), offset, graph=tester.graph, changes=True)))
    return [line[3:] for line in found[1:] if " input: " not in line]


def at(tester: Tester, topic: str, nth: int) -> int:
    """The offset of a message of a topic."""
    return tester.messages(topic)[nth].offset


# ------------------------------------------------------------------------------------------------------------- stores


def test_a_message_shows_the_entries_that_its_attempt_changed() -> None:
    """Those of its batch: a changelog does not say which step an entry is of."""
    tester = noted("a", "bc", "ab")
    log = "shop.note.seen.changelog/0"

    assert [shown(tester, "noted", at(tester, "noted", nth)) for nth in (0, 1, 3)] == [
        [f"store seen: set 'a' ({log}@0)"],
        [f"store seen with its batch of 2 deliveries: set 'b' ({log}@4), set 'c' ({log}@5)"],
        [f"store seen with its batch of 2 deliveries: deleted 'a' ({log}@9), deleted 'b' ({log}@10)"],
    ]


def test_the_page_shows_what_the_command_prints() -> None:
    """Times and numbers of batches are those of another run."""
    page = (Path(__file__).parents[4] / "docs" / "lineage.md").read_text(encoding="utf-8")
    command = "cues-kafka lineage noted/0@2 --changes --graph shop:graph"
    block = page.partition(f"```console\n$ {command}\n")[2].partition("```")[0]
    tester = noted("a", "bc")
    found = tree(lineage(tester.broker, TopicPartition("noted", 0), 2, graph=tester.graph, changes=True))

    assert plain(block.splitlines()) == plain(found)


def test_an_entry_shows_the_messages_of_the_attempt_that_changed_it() -> None:
    """No graph is needed. The marker behind the messages has an offset, too."""
    tester = noted("a", "bc", "ab")
    last = at(tester, "orders", 3)
    first = plain(tree(lineage(tester.broker, TopicPartition("shop.note.seen.changelog", 0), 10)))

    assert first == [
        "shop.note.seen.changelog/0@10  key 'kb'  an entry of a store; it has no provenance header",
        f"└─ changed by shop.note/0, batch n, which took what is in orders/0@{last} to {last + 2}",
    ]


def test_a_message_shows_what_the_attempt_changed_that_took_it() -> None:
    """And that none has taken it yet."""
    tester = noted("a", "bc")
    tester.send("orders", {"id": "z"})
    log = "shop.note.seen.changelog/0"

    assert shown(tester, "orders", at(tester, "orders", 2)) == [
        "shop.note/0: took it in batch n",
        f"shop.note/0: store seen with its batch of 2 deliveries: set 'b' ({log}@4), set 'c' ({log}@5)",
    ]
    assert shown(tester, "orders", at(tester, "orders", 3)) == [
        "shop.note/0: has not taken it, or its records no longer show"
    ]


def test_a_search_by_halves_finds_what_reading_everything_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """In long logs it looks at the middle of what is left; each message has changed one entry here."""
    tester = noted(*"abcdefghijabcdefghij")
    offsets = [message.offset for message in tester.messages("noted")]
    read = [shown(tester, "noted", offset) for offset in offsets]
    monkeypatch.setattr("cues_kafka.operate.look.attempts.NEAR", 0)

    assert [shown(tester, "noted", offset) for offset in offsets] == read
    assert [line.partition(" (")[0] for [line] in read] == [
        f"store seen: {verb} {letter!r}" for verb in ("set", "deleted") for letter in "abcdefghij"
    ]


def test_what_compaction_has_removed_is_said_and_not_guessed() -> None:
    """First a mark that an attempt's changes lie between, then the record itself."""
    tester = noted("a", "bc", "ab")
    place = at(tester, "noted", 1)
    tester.broker.compact("shop.note.seen.changelog")

    assert shown(tester, "noted", place) == ["store seen: compaction has removed what the batch changed in it"]
    assert (
        "sent to the topic" in plain(tree(lineage(tester.broker, TopicPartition("shop.note.seen.changelog", 0), 5)))[0]
    )
    tester.broker.compact("shop.note.backing")
    assert shown(tester, "noted", place) == []


def test_many_entries_are_counted() -> None:
    """The first ones are named."""
    tester = noted("abcdefghijklmnopqrstuvwxy")
    [line] = shown(tester, "noted", 0)
    [store] = lineage(tester.broker, TopicPartition("noted", 0), 0, changes=True).to_dict()["changed"]["stores"]

    assert line.endswith("set 't' (shop.note.seen.changelog/0@19) and 5 more")
    assert (store["count"], len(store["entries"])) == (25, 20)
    assert store["entries"][0] == {"key": "a", "deleted": False, "place": "shop.note.seen.changelog/0@0"}


def test_timers_are_shown_by_their_keys() -> None:
    """And when they are due."""

    def wait(_: int, step: Any) -> int:
        step.schedule("k1", at=5_000)
        return 1

    timers = Timers(lambda timer: timer.key, by="clock")
    tester = Tester(Graph("g", Source("in"), Processor(wait, inputs="in", outputs="out", state={"timers": timers})))
    tester.send("in", 1)
    tester.run()

    assert "store timers: set 'k1 due 5000' (g.wait.timers.changelog/0@0)" in shown(tester, "out", 0)


# ------------------------------------------------------------------------------------------------------------ effects


def made(path: Path, *statements: str) -> Sql:
    """A database of SQLite with tables."""
    with sqlite3.connect(path) as opened:
        for one in statements:
            opened.execute(one)
    return Sql(f"sqlite:///{path}")


LATEST = (
    "CREATE TABLE latest (id TEXT PRIMARY KEY, n INTEGER, cues_source VARCHAR(40), cues_offset BIGINT, "
    "cues_deleted BOOLEAN NOT NULL DEFAULT FALSE)"
)


def test_a_row_of_an_upsert_is_found_from_its_message_and_the_message_from_the_row(tmp_path: Path) -> None:
    """Until a later message takes the row."""
    into = made(tmp_path / "db", LATEST).upsert("latest", key="id", columns=["n"])
    tester = Tester(Graph("g", Source("in"), Sink("rows", inputs="in", into=into)))
    tester.send_many("in", [{"id": "x", "n": 1}, {"id": "y", "n": 2}, {"id": "x", "n": 3}])
    tester.run()
    took = "g.rows/0: took it in batch n"
    effect = "g.rows/0: effect into (table latest):"

    assert shown(tester, "in", 0) == [took, f"{effect} committed in the database; no row is from this message now"]
    assert shown(tester, "in", at(tester, "in", 1)) == [took, f"{effect} id='y'; committed in the database"]
    with sqlite3.connect(tmp_path / "db") as opened:
        source, offset = opened.execute("SELECT cues_source, cues_offset FROM latest WHERE id = 'y'").fetchone()
    topic_id, _, partition = source.partition("/")
    back = lineage(tester.broker, TopicPartition(topic_id, int(partition)), offset)
    assert back.place == f"in/0@{at(tester, 'in', 1)}"
    [attempt] = lineage(tester.broker, TopicPartition("in", 0), offset, graph=tester.graph, changes=True).taken
    assert attempt.to_dict()["effects"] == [
        {"name": "into", "what": "table latest", "found": ("id='y'",), "says": "committed in the database"}
    ]


def test_of_other_rows_it_says_whether_the_database_has_the_attempt(tmp_path: Path) -> None:
    """Its row of the task tells, and its outbox; what is missing after a restore is said."""

    def pay(value: int, db: Any) -> int:
        db.execute("INSERT INTO paid VALUES (?)", (value,))
        return value

    db = made(tmp_path / "db", "CREATE TABLE paid (n INTEGER)")
    tester = Tester(Graph("g", Source("in"), Processor(pay, inputs="in", outputs="out", effects={"db": db})))
    for n in range(2):
        tester.send("in", n)
        tester.run()
    effect = "effect db (database db):"
    unknown = "which rows it wrote is not recorded"

    assert shown(tester, "out", 0) == [f"{effect} committed in the database; {unknown}"]
    assert shown(tester, "out", at(tester, "out", 1)) == [
        f"{effect} committed in the database, whose outbox holds the attempt's 1 message for Kafka; {unknown}"
    ]
    with sqlite3.connect(tmp_path / "db") as opened:
        opened.execute("UPDATE cues_task SET step = 1")
    assert shown(tester, "out", at(tester, "out", 1)) == [
        f"{effect} missing: the database is at step 1 of the task, and the attempt ends at 2"
    ]
    with sqlite3.connect(tmp_path / "db") as opened:
        opened.execute("DELETE FROM cues_task")
    assert shown(tester, "out", 0) == [f"{effect} the database keeps nothing of this task"]


def test_a_database_that_is_away_is_said_and_hides_nothing_else(tmp_path: Path) -> None:
    """The tree is there."""
    into = made(tmp_path / "db", LATEST).upsert("latest", key="id", columns=["n"])
    tester = Tester(Graph("g", Source("in"), Sink("rows", inputs="in", into=into)))
    tester.send("in", {"id": "x", "n": 1})
    tester.run()
    with sqlite3.connect(tmp_path / "db") as opened:
        opened.execute("DROP TABLE latest")

    took, effect = shown(tester, "in", 0)
    assert took == "g.rows/0: took it in batch n"
    assert "cannot be asked: " in effect
    assert "no such table" in effect


def test_files_of_an_attempt_are_named(tmp_path: Path) -> None:
    """Of a table those that have the message."""
    blobs = Blobs(f"file://{tmp_path}")
    tester = Tester(Graph("g", Source("in"), Sink("rows", inputs="in", into=blobs.json_lines("rows"))))
    for n in range(2):
        tester.send("in", {"n": n})
        tester.run()
    found = [shown(tester, "in", at(tester, "in", nth))[1] for nth in range(2)]

    for nth, line in enumerate(found):
        effect, _, rest = line.partition(f"file://{tmp_path}")
        path, _, says = rest.partition("; ")
        assert (effect, says) == ("g.rows/0: effect into (table of files rows): ", "committed in the store's log")
        assert json.loads(Path(f"{tmp_path}{path}").read_text()) == {"n": nth}


def test_a_server_is_asked_by_the_key_that_its_requests_had() -> None:
    """From the message and from its output; a replay has keys of its own."""
    keys: list[str] = []

    def bank(request: httpx2.Request) -> httpx2.Response:
        keys.append(request.headers["Idempotency-Key"])
        return httpx2.Response(500 if len(keys) == 1 else 201, json={})

    def pay(order: int, http: Any, once: Any) -> int:
        http.post("/payments", json=order).raise_for_status()
        once("mail", lambda: 1)
        return order

    pays = Processor(pay, inputs="in", outputs="out", effects={"http": Http(env="PAY"), "once": Once()})
    tester = Tester(Graph("g", Source("in"), pays, errors="failed"), effects={"http": httpx2.MockTransport(bank)})
    tester.send("in", 1)
    tester.run()
    with Repairs(tester.graph, tester.broker) as tool:
        tool.ask("replay")
    tester.run()

    assert len(keys) == 2
    for topic, key, by in (("in", keys[0], "g.pay/0: "), ("failed", keys[0], ""), ("out", keys[1], "")):
        found = [line for line in shown(tester, topic, 0) if "effect" in line]
        request = f"{by}effect http (server http): the server has request N (0, 1, ...) under Idempotency-Key "
        assert found[0] == f"{request}{key.removesuffix('-0')}-N; which requests there were is not recorded"
        assert found[1] == f"{by}effect once (calls once): results are deleted from the journal with the commit"


# -------------------------------------------------------------------------------------------------------- the command


def test_the_command_shows_changes_when_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stores without a graph; without the option nothing is looked up."""
    tester = noted("a")
    monkeypatch.setattr("cues_kafka.brokers.open.open_broker", lambda _: tester.broker)
    (tmp_path / "mine.py").write_text("from tests.unit.operate.look.test_attempts import STORED as graph\n")

    def said(*more: str) -> list[str]:
        return CliRunner().invoke(app, ["lineage", *more]).output.splitlines()

    assert len(said("noted/0@0")) == 2
    assert "├─ store seen: set 'a' (shop.note.seen.changelog/0@0)" in said("noted/0@0", "--changes")
    with_graph = said("orders/0@0", "--changes", "--graph", f"{tmp_path}/mine.py:graph")
    assert with_graph[-1] == "└─ shop.note/0: store seen: set 'a' (shop.note.seen.changelog/0@0)"
