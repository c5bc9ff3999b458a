"""What a plan says of each edge of a graph."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import (
    Blobs,
    ConfigError,
    DataFrameProcessor,
    Feed,
    Graph,
    Http,
    Iterate,
    Memory,
    Once,
    Processor,
    Sink,
    Source,
    Sql,
    SqlOutbox,
    start,
)
from cues_kafka.bridges.amqp.declare import FROM_AMQP, FROM_AMQP_REPEATED, TO_ADDRESS, Amqp
from cues_kafka.bridges.ibmmq.declare import FROM_IBMMQ
from cues_kafka.bridges.ibmmq.target import TO_IBMMQ
from cues_kafka.bridges.mqtt.declare import FROM_MQTT, FROM_MQTT_REPEATED, TO_MQTT
from cues_kafka.bridges.rabbitmq.declare import FROM_QUEUE, FROM_QUEUE_REPEATED, FROM_STREAM, TO_EXCHANGE
from cues_kafka.bridges.rabbitmq.stream_target import TO_STREAM
from cues_kafka.bridges.stomp.declare import FROM_STOMP, Stomp
from cues_kafka.graph import levels
from cues_kafka.graph.levels import KINDS, LEVELS, EdgeKind, level_of, satisfies
from cues_kafka.plan.acls import acls_of
from cues_kafka.plan.edges import edges_of, refuse_weaker, too_weak
from cues_kafka.plan.plan import plan
from cues_kafka.ports.facts import ClusterFacts, TopicFacts
from cues_kafka.sinks.delta.declare import DELTA_OF_SPARK, TO_DELTA
from cues_kafka.targets import TaskName, TransactionalTarget, Transactions


def book(order: dict[str, Any], db: Any) -> dict[str, Any]:
    """Rows and messages."""
    raise NotImplementedError


def ring(order: dict[str, Any]) -> None:
    """An effect that nothing takes back."""


def keep(order: dict[str, Any], db: Any) -> None:
    """A target, and no messages."""
    raise NotImplementedError


def passed(order: dict[str, Any]) -> dict[str, Any]:
    """From Kafka to Kafka."""
    raise NotImplementedError


SECRET = "postgresql://shop:hidden@db.internal/shop"
GRAPH = Graph(
    "shop",
    Source("orders"),
    Processor(book, inputs="orders", outputs="booked", effects={"db": Sql(SECRET)}),
    Processor(ring, inputs="booked"),
)


def test_each_edge_has_its_level() -> None:
    """From applications, between topics, into a database, and into whatever a sink does."""
    assert [(one.where, one.level) for one in edges_of(GRAPH)] == [
        ("applications -> orders", "at least once"),
        ("book", "exactly once"),
        ("book -> database db", "exactly once"),
        ("ring -> its effects", "at least once"),
    ]


def test_plan_prints_edges_and_no_address() -> None:
    """As text, as data, and in what Python prints of the declaration."""
    planned = plan(GRAPH)

    assert "book -> database db" in planned.text()
    assert planned.to_dict()["edges"][2]["level"] == "exactly once"
    for text in (
        planned.text(topics=True, acls=True),
        repr(GRAPH),
        repr(GRAPH.processors["book"]),
        str(planned.to_dict()),
    ):
        assert "hidden" not in text
        assert "db.internal" not in text


def test_files_of_dataframes_are_an_edge_out_of_kafka() -> None:
    """With its level; the processor is staged, has one part, and writes no topic but its errors."""
    into = Blobs("s3://hidden-bucket/lake").parquet("sums")
    planned = plan(Graph("shop", Source("orders"), DataFrameProcessor(ring, inputs="orders", into=into), errors="bad"))

    assert [(one.where, one.level) for one in planned.edges] == [
        ("applications -> orders", "at least once"),
        ("ring -> table of files sums", "exactly once"),
    ]
    assert "  ring  dataframe, staged  1 part  orders -> table of files sums; errors: bad\n" in planned.text()
    [frame] = planned.to_dict()["dataframes"]
    assert (frame["outputs"], frame["into"], frame["staged"], frame["slots"]) == ({}, "table of files sums", True, 1)
    assert {one.name for one in planned.create} == {"orders", "bad", "shop.ring.backing", "shop.ring.replay"}
    assert "hidden-bucket" not in f"{planned.text(topics=True, acls=True)}{planned.to_dict()}"


KNOWN = (
    "exactly once (source position stored with the messages)",
    "messages and position in one transaction; the database keeps what it commits",
)
CLAIMED = (
    "exactly once (rows claimed by their ids, and deleted after the commit)",
    "messages and numbers of rows in one transaction, rows deleted later; the database keeps deletions",
)
EITHER = (
    "exactly once (place; in MySQL and MariaDB rows claimed by their ids)",
    f"{KNOWN[1]}. In MySQL and MariaDB: {CLAIMED[1]}",
)


BY_ADDRESS = {
    "postgresql://shop:hidden@db.internal/shop": KNOWN,
    "sqlite:///hidden.db": KNOWN,
    "mysql://shop:hidden@db.internal/shop": CLAIMED,
    "mariadb://shop:hidden@db.internal/shop": CLAIMED,
}


@pytest.mark.parametrize(
    ("given", "url", "expected"),
    [
        *(("url", url, level) for url, level in BY_ADDRESS.items()),
        *(("env", url, level) for url, level in BY_ADDRESS.items()),
        ("env", "", EITHER),
        ("env", "hidden", EITHER),
    ],
)
def test_an_outbox_has_the_level_of_its_database(
    given: str, url: str, expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its address is in a variable; one that is not set here says both."""
    monkeypatch.setenv("SHOP_DATABASE", url)
    outbox = SqlOutbox(url) if given == "url" else SqlOutbox(env="SHOP_DATABASE")

    planned = plan(Graph("g", Feed(outbox, into="orders")))

    assert (planned.feeds[0].level, planned.edges[0].why) == expected
    assert planned.edges[0].level == expected[0]
    text = planned.text()
    assert expected[0] in text
    assert expected[1] in " ".join(text.split())
    assert "hidden" not in text


def test_each_strategy_has_its_level() -> None:
    """W1, W5: between topics, and for effects of the function itself."""
    graph = Graph(
        "g",
        Source("a"),
        Processor(ring, name="whole", inputs="a", outputs="b"),
        Processor(ring, name="often", inputs="a", outputs="c", strategy="at-least-once"),
        Processor(ring, name="once", inputs="a", outputs="d", strategy="at-most-once", effects=True),
        Processor(ring, name="ring", inputs="a", strategy="at-least-once"),
    )

    assert [(one.where, one.level) for one in edges_of(graph)][1:] == [
        ("whole", "exactly once"),
        ("often", "at least once"),
        ("once", "at most once"),
        ("once -> its effects", "at most once"),
        ("ring -> its effects", "at least once"),
    ]


def call(order: dict[str, Any], **servers: Any) -> None:
    """Calls of servers."""
    raise NotImplementedError


CALLS: dict[str, Any] = {"http": Http("https://pay.example"), "kept": Http("https://pay.example", journal=True)}


@pytest.mark.parametrize(
    ("strategy", "level", "why"),
    [
        ("at-most-once", "at most once", "the function is never called twice for a message"),
        ("at-least-once", "at least once", "the function may be called again after a crash"),
    ],
)
@pytest.mark.parametrize("of_graph", [True, False], ids=["of the graph", "of the processor"])
def test_a_target_has_the_level_of_its_processors_strategy_and_no_other(
    of_graph: bool, strategy: Any, level: str, why: str
) -> None:
    """Its own level holds exactly-once. A plan prints one level for it, beside the refusal (W8)."""
    processor = Processor(call, inputs="a", effects={**CALLS, "once": Once()}, strategy=None if of_graph else strategy)
    graph = Graph("g", Source("a"), processor, strategy=strategy if of_graph else "exactly-once")

    found = [one for one in edges_of(graph) if one.where.startswith("call -> ")]
    text = plan(graph).text()

    assert [(one.where, one.level) for one in found] == [
        ("call -> server http", level),
        ("call -> server kept", level),
        ("call -> calls once", level),
    ]
    assert all(one.why.startswith(why) for one in found)
    assert text.count(" -> its effects") == 0
    assert "Idempotency-Key" not in text


def test_a_worker_at_least_once_needs_no_right_to_transactional_ids() -> None:
    """W5: the tools that move its tasks do."""
    graph = Graph("g", Source("a"), Processor(ring, inputs="a", strategy="at-least-once"))

    assert [(acl.role, acl.name) for acl in acls_of(graph) if acl.resource == "transactional-id"] == [
        ("operator", "g.ring."),
        ("sender", "g.a.send."),
    ]


def test_at_most_once_needs_safe_topics_too() -> None:
    """A take that the brokers lose would be taken, and called, again."""
    graph = Graph("g", Source("a"), Processor(ring, inputs="a", strategy="at-most-once"))
    unsafe = TopicFacts("a", b"a" * 16, 1, 1, {"min.insync.replicas": "1"})

    assert any("'a'" in text for text in plan(graph, ClusterFacts(3, {"a": unsafe})).refusals)


ROOT = Path(__file__).parents[3]
SQLITE = Sql("sqlite:////tmp/shop.db")


class Owned(TransactionalTarget):
    """A target of a user's own."""

    def open(self, task: TaskName) -> Transactions:
        raise NotImplementedError


OWN = Owned()
EVERYTHING = Graph(
    "every",
    Source("orders"),
    Source("named", level="exactly-once"),
    Feed(Iterate(list), into="told", name="told"),
    Feed(SqlOutbox("postgresql://db.internal/shop"), into="boxed", name="boxed"),
    Feed(SqlOutbox("mysql://db.internal/shop"), into="claimed", name="claimed"),
    Processor(passed, name="whole", inputs="orders", outputs="b"),
    Processor(passed, name="often", inputs="orders", outputs="c", strategy="at-least-once"),
    Processor(passed, name="once", inputs="orders", outputs="d", strategy="at-most-once", effects=True),
    DataFrameProcessor(ring, name="framed", inputs="orders", outputs="e"),
    Processor(keep, name="rows", inputs="orders", effects={"db": SQLITE}),
    Sink("inserted", inputs="orders", into=SQLITE.table("lines", columns=["id"])),
    Sink("newest", inputs="orders", into=SQLITE.upsert("lines", key="id", columns=["total"])),
    Processor(keep, name="stored", inputs="orders", effects={"db": Blobs("s3://bucket/lake")}),
    Sink("filed", inputs="orders", into=Blobs("s3://bucket/lake").json_lines("lines")),
    Processor(keep, name="owned", inputs="orders", effects={"db": OWN}),
    Sink("sent", inputs="orders", into=Stomp("stomp://jms.internal").to_queue("lines")),
    Sink("queued", inputs="orders", into=Amqp("amqp://jms.internal").to_queue("lines")),
    Processor(keep, name="kept", inputs="orders", effects={"db": Http("https://pay.example", journal=True)}),
    Processor(keep, name="asked", inputs="orders", effects={"db": Http("https://pay.example", key_header="X-Key")}),
    Processor(keep, name="mailed", inputs="orders", effects={"db": Once()}),
    Processor(ring, name="rung", inputs="orders"),
    DataFrameProcessor(ring, name="lake", inputs="orders", into=Blobs("s3://bucket/lake").parquet("sums")),
    DataFrameProcessor(ring, name="books", inputs="orders", into=Sql(env="DB").table("books", columns=["n"])),
    errors="bad",
)
OUTSIDE_OF_GRAPHS = {"WRITTEN_BY_SPARK", "OWN_LOOP"}


def kind_of(edge: Any) -> str:
    """The name of the row that an edge's level, condition and command are from."""
    same = (edge.level, edge.why.replace("X-Key", "Idempotency-Key"), edge.shown_by)
    [found] = [name for name, one in NAMES.items() if one[1:4] == same]
    return found


NAMES: dict[str, EdgeKind] = {
    name: one for name, one in {**vars(levels), **levels.INSIDE}.items() if isinstance(one, EdgeKind)
}


def test_each_kind_of_edge_has_its_level_its_condition_and_its_command() -> None:
    """Each declaration has the row that is meant for it; every row but those outside of graphs is met."""
    found = {one.where: (kind_of(one), one.level) for one in edges_of(EVERYTHING)}

    assert found == {
        "applications -> orders": ("SEND", "at least once"),
        "applications -> named": ("SEND_WITH_ID", "exactly once"),
        "Iterate -> told": ("FEED", "exactly once (source position stored with the messages)"),
        "SqlOutbox -> boxed": ("OUTBOX_FEED", "exactly once (source position stored with the messages)"),
        "SqlOutbox -> claimed": (
            "CLAIMED_FEED",
            "exactly once (rows claimed by their ids, and deleted after the commit)",
        ),
        "whole": ("exactly-once", "exactly once"),
        "often": ("at-least-once", "at least once"),
        "once": ("at-most-once", "at most once"),
        "framed": ("ON_SPARK", "exactly once"),
        "once -> its effects": ("NEVER_TWICE", "at most once"),
        "rows -> database db": ("DATABASE", "exactly once"),
        "inserted -> table lines": ("DATABASE", "exactly once"),
        "newest -> table lines": ("UPSERT", "exactly once"),
        "stored -> files db": ("FILES", "exactly once"),
        "filed -> table of files lines": ("FILES", "exactly once"),
        "owned -> Owned db": ("OWN_TARGET", "exactly once"),
        "sent -> queue lines": ("STOMP", "exactly once"),
        "queued -> queue lines": ("AMQP", "exactly once"),
        "kept -> server db": ("JOURNALED_SERVER", "once, if the server knows the key"),
        "asked -> server db": ("SERVER", "at least once"),
        "mailed -> calls db": ("ONCE", "at least once"),
        "rung -> its effects": ("ANYTHING", "at least once"),
        "lake -> table of files sums": ("FILES_OF_SPARK", "exactly once"),
        "books -> table books": ("DATABASE_OF_SPARK", "exactly once"),
    }
    assert {kind for kind, _ in found.values()} == set(NAMES) - OUTSIDE_OF_GRAPHS
    assert set(KINDS) == set(NAMES.values())
    assert "X-Key" in next(one.why for one in edges_of(EVERYTHING) if one.where == "asked -> server db")


BRIDGES = (
    *(FROM_MQTT, FROM_MQTT_REPEATED, TO_MQTT),
    *(FROM_QUEUE, FROM_QUEUE_REPEATED, FROM_STREAM, TO_EXCHANGE, TO_STREAM),
    FROM_STOMP,
    *(FROM_IBMMQ, TO_IBMMQ),
    *(FROM_AMQP, FROM_AMQP_REPEATED, TO_ADDRESS),
    TO_DELTA,
    DELTA_OF_SPARK,
)
ALL_KINDS = (*KINDS, *BRIDGES)
"""With those that are declared beside their drivers."""


def test_the_table_of_edges_is_what_plans_say() -> None:
    """Row by row, in order; links apart."""
    text = (ROOT / "docs" / "edges.md").read_text(encoding="utf-8")
    [table] = re.findall(r"^\| edge \| level \|.*\n\| ---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", row) for row in table.splitlines()]

    assert rows == [f"| {one.edge} | {one.level} | {one.why} | `{one.shown_by}` |" for one in ALL_KINDS]


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.edge)
def test_each_command_can_be_run(kind: EdgeKind) -> None:
    """Its files are there, and have tests that it does not leave out; each text says something."""
    words = kind.shown_by.split()
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for path in [word for word in words if word.startswith("tests/")]:
        files = [ROOT / path] if path.endswith(".py") else sorted((ROOT / path).glob("test_*.py"))
        assert files
        texts = [file.read_text(encoding="utf-8") for file in files]
        assert "-m" in words or not any("pytestmark = [pytest.mark.full" in text for text in texts), path
    assert all(kind[:4])


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.edge)
def test_an_edge_that_is_weaker_has_a_remedy(kind: EdgeKind) -> None:
    """And no other one: `plan` prints it for the weakest edge."""
    assert bool(kind.remedy) == (level_of(kind.level) != "exactly-once")


WEAK = {
    "once": Processor(passed, name="once", inputs="orders", outputs="b", strategy="at-most-once"),
    "often": Processor(passed, name="often", inputs="orders", outputs="c", strategy="at-least-once"),
    "rows": Processor(keep, name="rows", inputs="orders", effects={"db": SQLITE}),
}


@pytest.mark.parametrize(
    ("parts", "guarantee", "names"),
    [
        (["rows"], "exactly-once", []),
        (["rows", "often"], "at-least-once", ["often"]),
        (["often", "once", "rows"], "at-most-once", ["once"]),
    ],
)
def test_a_plan_names_the_weakest_edge(parts: list[str], guarantee: str, names: list[str]) -> None:
    """In its text with the remedy, and in its data: what may lose is weaker than what may repeat."""
    planned = plan(Graph("g", Source("orders", level="exactly-once"), *(WEAK[name] for name in parts)))

    assert [one.where for one in planned.weakest] == names
    assert (planned.to_dict()["guarantee"], planned.to_dict()["weakest"]) == (guarantee, names)
    section = planned.text().partition("Weakest edge:\n")[2].splitlines()[0]
    assert section.startswith(f"  {names[0]}: at " if names else "  none: every edge is exactly once")


@pytest.mark.parametrize("required", LEVELS)
@pytest.mark.parametrize("promised", LEVELS)
def test_a_level_satisfies_itself_and_exactly_once_all(promised: Any, required: Any) -> None:
    """What may repeat does not keep at most once, and what may lose does not keep at least once."""
    assert satisfies(promised, required) == (promised in {"exactly-once", required})


def test_each_weaker_edge_is_refused_with_its_condition_and_its_remedy() -> None:
    """Only edges of the processors that run count; a source belongs to those that read it."""
    graph = Graph("g", Source("orders"), Source("others"), *WEAK.values(), Processor(ring, inputs="others"))

    refused = {text.split("'")[1]: text for text in too_weak(edges_of(graph), "exactly-once")}
    assert [*refused] == ["applications -> orders", "applications -> others", "often", "once", "ring -> its effects"]
    assert refused["often"] == (
        "exactly-once is required, and the edge 'often' is at least once. Condition: from Kafka to Kafka, by "
        'strategy=: written before the position; a crash repeats messages. Remedy: Leave strategy="at-least-once" out.'
    )
    only = [text.split("'")[1] for text in too_weak(edges_of(graph), "exactly-once", ["ring"])]
    assert only == ["applications -> others", "ring -> its effects"]
    assert not [*too_weak(edges_of(graph), "at-least-once", ["ring", "rows", "often"])]
    with pytest.raises(ConfigError, match=r"(?s)Graph 'g' must not run:\n  - at-most-once is required.*'often'"):
        refuse_weaker(graph, "at-most-once", ["often"])


def test_a_start_refuses_a_weaker_edge_and_names_it() -> None:
    """Those of processors that do not run here do not count."""
    often = Processor(passed, inputs="orders", outputs="kept", name="often", strategy="at-least-once")
    rings = Processor(ring, inputs="others", effects=True)
    graph = Graph("g", Source("orders", level="exactly-once"), often, Source("others"), rings)

    with pytest.raises(ConfigError, match=r"(?s)must not run:\n  - exactly-once is required.*'often'.*'ring ->"):
        start(graph, Memory(), require="exactly-once")
    with pytest.raises(ConfigError, match=r"start\(require=...\): 'exactly_once' is not known"):
        start(graph, Memory(), require="exactly_once")
    with start(graph, Memory(), require="at-least-once", only=["often"]) as running:
        assert running.planned.graph == "g"


def test_a_server_that_knows_keys_is_exactly_once_with_a_journal_only() -> None:
    """Without one, another attempt of a function may make other calls, which have other keys."""
    edges = {
        (journal, known): Http("https://pay.example", journal=journal, idempotent=known).edge
        for journal in (False, True)
        for known in (False, True)
    }

    assert {key: level_of(edge.level) for key, edge in edges.items()} == {
        (False, False): "at-least-once",
        (False, True): "at-least-once",
        (True, False): "at-least-once",
        (True, True): "exactly-once",
    }
    assert edges[True, True].why.endswith("with the same Idempotency-Key, which the server knows")
    assert not edges[True, True].remedy


def test_a_plan_has_the_commands_that_show_its_edges_as_data() -> None:
    """They run in a clone of the project, which a reader of the text seldom has."""
    planned = plan(GRAPH)

    assert "pytest" not in planned.text()
    assert [one["shown_by"] for one in planned.to_dict()["edges"]] == [one.shown_by for one in edges_of(GRAPH)]
    assert planned.to_dict()["edges"][1]["shown_by"] == "make demo-native"


def test_a_source_of_ones_own_says_its_level_itself() -> None:
    """The plan believes it, and does not call it exactly once."""

    class Radio:
        level = "at least once"
        rests_on = "what is sent while no one listens is gone"

        def parts(self) -> int:
            return 1

        def read(self, part: int, place: str | None, limit: int) -> Any:
            raise NotImplementedError

    [edge] = edges_of(Graph("g", Feed(Radio(), into="heard")))

    assert (edge.level, edge.why) == ("at least once", "what is sent while no one listens is gone")
    assert (edge.guarantee, edge.remedy) == ("at-least-once", "")
    assert "Remedy: Take the messages another way" in next(too_weak([edge], "exactly-once"))
