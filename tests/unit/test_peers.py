"""The job that cues-kafka is compared by: what it is, how outputs are judged, and that the page shows what is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.peers import environments, jobs
from benchmarks.peers.environments import LOCKS, PROGRAMS, STREAMS
from benchmarks.peers.programs import cues_fork, cues_orders
from benchmarks.peers.sides import PEERS
from cues_kafka.errors import ConfigError
from cues_kafka.testing.tester import Tester

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "coming-from.md").read_text(encoding="utf-8")
FIGURES = (DOCS / "benchmarks.md").read_text(encoding="utf-8")


def table(text: str, title: str) -> list[dict[str, str]]:
    """The rows of the table below a title, by the names of their columns."""
    section = text.split(f"\n{title}\n", 1)[1]
    lines = re.findall(r"^\|(.*)\|$", section.split("\n\n#")[0], re.MULTILINE)
    head, _, *rows = ([cell.strip() for cell in line.split("|")] for line in lines)
    return [dict(zip(head, row, strict=True)) for row in rows]


def count(number: str) -> int:
    return int(number.replace(",", ""))


# The page


@pytest.mark.parametrize(
    "program",
    [*sorted(PROGRAMS.glob("*_orders.py")), PROGRAMS / "StreamsOrders.java"],
    ids=lambda path: path.name,
)
def test_page_shows_the_programs_that_are_run(program: Path) -> None:
    """Word for word: copy the file into the page when this fails."""
    language = "java" if program.suffix == ".java" else "python"

    assert f"```{language}\n{program.read_text(encoding='utf-8')}```\n" in PAGE


def test_page_names_the_versions_that_are_installed() -> None:
    """They are in the locks, in the titles of the tables, and on the page."""
    pins = {"Quix Streams": ("quix", "quixstreams"), "Faust": ("faust", "faust-streaming")}
    for title, (lock, package) in pins.items():
        [version] = re.findall(rf"^{package}==(\S+)", (LOCKS / f"{lock}.lock").read_text(), re.MULTILINE)
        assert PEERS[lock].title == f"{title} {version}"
        assert version in PAGE
    assert PEERS["streams"].title == f"Kafka Streams {STREAMS}"
    assert f"Kafka Streams {STREAMS}" in PAGE
    assert f"<version>{STREAMS}</version>" in (LOCKS / "pom.xml").read_text()


def test_what_the_page_says_of_each_library_is_what_the_run_has_shown() -> None:
    """The page has words and the benchmarks figures; `make bench-peers` writes the figures."""
    said = {row["library"]: row for row in table(PAGE, "## Who keeps exactly-once")}
    killed = {row["library"]: row for row in table(FIGURES, "## Peers, killed")}
    failing = {row["library"]: row for row in table(FIGURES, "## Peers, failing")}
    titles = [peer.title for peer in PEERS.values()]

    assert [*killed] == [*failing] == titles
    assert [*said] == [title.rpartition(" ")[0] for title in titles]
    for title in titles:
        row = said[title.rpartition(" ")[0]]
        wrong = [name for name in ("lost", "doubled", "wrong") if count(killed[title][name])]
        assert row["after a kill"] == (", ".join(wrong) or "each once"), title
        assert row["of a message that fails"] == ("a half stays" if count(failing[title]["half"]) else "nothing stays")


# The job


def test_our_program_does_what_plain_python_does() -> None:
    """In memory, with orders of all sorts; the peers' programs are compared by `make bench-peers`."""
    records = jobs.orders(3_000)
    tester = Tester(cues_orders.graph)
    rows = [("shop.orders", None, key, value, None, 0) for key, value in records]
    tester.broker.sender("orders").send(rows)
    tester.run()

    counts = [b'{"id":"%s","orders":%d}' % (one.id.encode(), one.orders) for one in tester.values("shop.counts")]
    refused = [error.payload or b"" for error in tester.errors()]
    assert jobs.judged(jobs.by_hand(records), counts, refused).said() == "right"


def test_orders_have_a_hundred_bytes_and_some_are_refused() -> None:
    """One in a hundred has no price, one in a thousand is no JSON."""
    records = jobs.orders(2_000)
    expected = jobs.by_hand(records)

    assert {len(value) for _, value in records if value.startswith(b"{")} <= set(range(90, 111))
    assert len({value for _, value in records}) == 2_000
    assert len(expected.refused) == 20 + 2
    assert len(expected) == 2_000
    assert max(expected.counts.values()) == 2


EXPECTED = jobs.Expected({"a": 1, "b": 2}, frozenset({b"bad"}))
A, B = b'{"id":"a","orders":1}', b'{"id":"b","orders":2}'


@pytest.mark.parametrize(
    ("counts", "refused", "said"),
    [
        ([A, B], [b"bad"], "right"),
        ([A], [], "**2 lost**"),
        ([A, A, B], [b"bad", b"bad", b"bad"], "**3 doubled**"),
        ([A, b'{"id":"b","orders":3}'], [b"bad"], "**1 wrong**"),
        ([A, B, b'{"id":"b","orders":3}'], [b"bad"], "**1 doubled**, **1 wrong**"),
        ([A, B, b'{"id":"c","orders":1}'], [b"bad", A], "**2 strange**"),
    ],
)
def test_verdict_names_what_differs(counts: list[bytes], refused: list[bytes], said: str) -> None:
    """An input that is lost, one that came twice, a count that is wrong, and what no input asks for."""
    assert jobs.judged(EXPECTED, counts, refused).said() == said


def test_pipe_is_compared_by_keys_and_values() -> None:
    """A value under another key is lost and strange."""
    records = jobs.values(10)
    moved = [(b"other", records[0][1]), *records[1:]]

    assert jobs.compared(records, records).said() == "right"
    assert jobs.compared(records, moved).said() == "**1 lost**, **1 strange**"
    assert (jobs.compared(records, records[1:]) + jobs.compared(records, [*records, records[0]])).said() == (
        "**1 lost**, **1 doubled**"
    )


def test_our_fork_leaves_nothing_of_a_message_that_fails() -> None:
    """The same program that is run on the broker."""
    tester = Tester(cues_fork.graph)
    for number in range(20):
        tester.send("shop.numbers", number, key="one")
    tester.run()

    assert tester.values("shop.first") == [number for number in range(20) if number % jobs.EACH_FAILS]
    assert tester.values("shop.second") == list(range(1, 19))
    assert len(tester.errors()) == 2


# Environments


def test_environment_is_made_again_when_its_lock_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And only then."""
    calls: list[str] = []

    def done(*command: str) -> None:
        calls.append(command[1])
        (tmp_path / "below" / "quix").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(environments, "_done", done)
    monkeypatch.setattr(environments, "BELOW", tmp_path / "below")
    monkeypatch.setattr(environments, "LOCKS", tmp_path)
    lock = tmp_path / "quix.lock"
    for text in ("one", "one", "two"):
        lock.write_text(text)
        environments.python_of("quix")

    assert calls == ["venv", "pip"] * 2


def test_installer_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A lock that names no package of this world."""
    monkeypatch.setattr(environments, "BELOW", tmp_path / "below")
    monkeypatch.setattr(environments, "LOCKS", tmp_path)
    (tmp_path / "quix.lock").write_text("-r missing.txt\n")

    with pytest.raises(ConfigError, match=r"missing\.txt"):
        environments.python_of("quix")
    assert not (tmp_path / "below" / "quix" / environments.MARK).exists()
