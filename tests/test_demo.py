"""The demo, small: real data, real kills, and both opinions equal."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, Literal
from unittest.mock import Mock

import fastavro
import msgspec
import psutil
import pytest

from cues_kafka import CommitPolicy
from cues_kafka.core.records import Attempt, Snapshot, Staged
from cues_kafka.testing.tester import Crash, Tester
from examples.flights import database, independent, ledger
from examples.flights.__main__ import main
from examples.flights.data import airports, flights
from examples.flights.database import POSTGRES, SQLITE, NotStarted, opened
from examples.flights.demo import HOURLY, Plan, mixed, publishing
from examples.flights.graph import SCHEMA, Flight, clean, plain
from examples.flights.independent import Difference
from examples.flights.ledger import ADDRESS
from examples.flights.load import message
from examples.flights.picture import Scale, draw, means
from examples.flights.sides import DRIVER, NATIVE, PYTHON
from tests.fault.support import until

ROOT = Path(__file__).parents[1]


DEMO = [sys.executable, "-m", "examples.flights"]


def run(*options: str, temporary: Path, timeout_s: float) -> str:
    """
    What a successful run prints. It starts its own broker, because the graph's names are fixed.

    Args:
        options: the demo's.
        temporary: its temporary directory, which it leaves empty.
        timeout_s: for the whole run.
    """
    temporary.mkdir()
    env = os.environ | {"TMPDIR": str(temporary)}
    result = subprocess.run(
        [*DEMO, *options], capture_output=True, text=True, cwd=ROOT, env=env, timeout=timeout_s, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert list(temporary.iterdir()) == []
    assert "every flight exactly once" in result.stdout
    return result.stdout


@pytest.mark.full
@pytest.mark.timeout(240)
def test_the_flights_of_the_first_weeks_pass_two_kills_exactly_once(tmp_path: Path) -> None:
    """On native workers alone."""
    options = ("--native", "--limit", "20000", "--kills", "2", "--seed", "1", "--database", "sqlite")
    out = run(*options, temporary=tmp_path / "tmp", timeout_s=220)

    assert re.search(r"kills +2 by SIGKILL", out)
    assert re.search(r"native worker +│ +2 ", out)
    assert out.count("20,000") >= 3, "the tasks' count, the tables' count, and the head line"
    assert re.search(r"ledger +19,307 rows in SQLite", out)


@pytest.mark.full
@pytest.mark.timeout(240)
def test_the_ledger_in_postgresql_passes_kills_of_workers_and_of_its_server(tmp_path: Path) -> None:
    """The server comes back by itself, and so do the tasks that need it."""
    options = ("--native", "--limit", "20000", "--kills", "2", "--seed", "1", "--database", "postgres")
    out = run(*options, "--server-kills", "2", temporary=tmp_path / "tmp", timeout_s=220)

    assert re.search(r"kills +4 by SIGKILL", out)
    assert re.search(r"native worker +│ +2 ", out)
    assert re.search(r"PostgreSQL server +│ +2 ", out)
    assert re.search(r"ledger +19,307 rows in PostgreSQL", out)


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_the_flights_of_the_first_days_pass_kills_of_spark_exactly_once(tmp_path: Path) -> None:
    """Three processors on Spark, whose driver and one of whose Python workers are killed, and three on workers."""
    picture = tmp_path / "hours.png"
    options = ("--limit", "5000", "--kills", "2", "--seed", "1", "--picture", str(picture))
    out = run(*options, temporary=tmp_path / "tmp", timeout_s=340)

    assert re.search(r"kills +2 by SIGKILL", out)
    assert re.search(r"Spark driver +│ +1 │ +\d │ +1 ", out), "killed while hourly published"
    assert re.search(r"Python worker of Spark +│ +1 │ +\d │ +1 ", out)
    assert re.search(r"hourly +3\d\d hours of an airport with their weather", out)
    assert f"picture       {picture}" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert out.count("5,000") >= 3, "the tasks' count, the tables' count, and the head line"


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_a_demo_that_is_killed_leaves_no_process_and_no_directory(tmp_path: Path) -> None:
    """The kill comes when Spark's Python workers run, three levels below the demo."""
    env = os.environ | {"TMPDIR": str(tmp_path)}
    demo = subprocess.Popen([*DEMO, "--kills", "0"], cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
    below: list[psutil.Process] = []
    try:
        until(lambda: any("pyspark.worker" in " ".join(_command(p)) for p in _below(demo)), timeout_s=240)
        below = _below(demo)
        demo.kill()
        demo.wait()

        until(lambda: not [process for process in below if _command(process)], timeout_s=10)
        until(lambda: not list(tmp_path.iterdir()), timeout_s=10)
    finally:
        demo.kill()
        for process in below:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _below(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
    return found


def _command(process: psutil.Process) -> list[str]:
    """The command line of a process; empty if it has ended."""
    with suppress(psutil.NoSuchProcess):
        command: list[str] = process.cmdline()
        return command
    return []


@pytest.mark.parametrize(
    ("kills", "kinds"), [(0, {}), (2, {DRIVER: 1, PYTHON: 1}), (10, {DRIVER: 3, PYTHON: 4, NATIVE: 3})]
)
def test_kills_on_spark_are_shared_out_by_kind(kills: int, kinds: dict[str, int]) -> None:
    """Two kills hit the driver and a Python worker, which only Spark has."""
    assert Counter(mixed(kills)) == kinds


def test_kills_come_one_after_another_as_deliveries_go_on_and_messages_always_run_ahead() -> None:
    """Otherwise a kill would wait without end: messages are sent as kills happen."""
    for seed in range(100):
        plan = Plan(mixed(10), 1200, 0.0, random.Random(seed))
        found = []
        while not plan.over:
            assert plan.due(plan.ahead), "what is sent suffices for the next kill"
            found.append(plan.due(plan.ahead))
            assert plan.ahead < plan.more < 1200
            sent = plan.more
            plan.next()
            assert sent < plan.ahead, "something is left for after it"
        assert Counter(found) == Counter(mixed(10))
        assert plan.due(1200) == ""
        assert plan.ahead >= 1200


def test_a_part_is_being_published_from_its_announcement_to_its_attempt() -> None:
    """Before the first announcement, and after the last part, no part is being published."""
    batch = Staged(query="q", batch=7, attempt="a", checksum=b"", parts=2, number=3)
    seen: dict[tuple[str, int], Any] = {}

    def commit(name: str, part: int, kind: type[Snapshot | Attempt]) -> frozenset[tuple[int, int]]:
        record = Mock(spec=kind, staged=replace(batch, part=part))
        seen[name, part] = Mock(record=record)
        return publishing(Mock(newest=seen))

    assert publishing(Mock(newest=seen)) == frozenset()
    assert commit("clean", 0, Snapshot) == frozenset()
    assert commit(HOURLY, 0, Snapshot) == {(7, 0), (7, 1)}
    assert commit(HOURLY, 1, Attempt) == {(7, 0)}
    assert commit(HOURLY, 0, Attempt) == frozenset()


STREAMS = {"N1": [b'{"a":1}', b'{"a":2}'], "N2": [b'{"a":3}']}


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        (STREAMS, (0, 0, 0)),
        ({"N1": [b'{"a":1}'], "N2": [b'{"a":3}']}, (1, 0, 0)),
        ({"N1": [b'{"a":1}', b'{"a":2}', b'{"a":2}'], "N2": [b'{"a":3}']}, (0, 1, 0)),
        ({"N1": [b'{"a":2}', b'{"a":1}'], "N2": [b'{"a":3}']}, (0, 0, 1)),
        ({"N1": [b'{"a":1}', b'{"a":9}'], "N2": [b'{"a":3}']}, (1, 1, 0)),
        ({"N1": [b'{"a":1}', b'{"a":2}']}, (1, 0, 0)),
        ({**STREAMS, "N3": [b'{"a":4}']}, (0, 1, 0)),
    ],
)
def test_the_comparison_finds_each_kind_of_defect(
    found: dict[str, list[bytes]], difference: tuple[int, int, int]
) -> None:
    """Equal, lost, duplicated, swapped, changed, a missing stream, an unexpected stream."""
    got = independent.compare(STREAMS, found)

    assert (got.lost, got.added, got.reordered) == difference
    assert bool(got) is any(difference)


NOON, ONE = ("EWR", "2013-01-01T12:00:00Z"), ("EWR", "2013-01-01T13:00:00Z")
HOURS = {hour: {"flights": 3, "delay": 30, "visib": 10.0} for hour in (NOON, ONE)}
EARLIER, LAST = {"flights": 1, "delay": 4, "visib": 10.0}, HOURS[NOON]


@pytest.mark.parametrize(
    ("noon", "difference"),
    [
        ([LAST], (0, 0, 0)),
        ([EARLIER, LAST], (0, 0, 0)),
        ([], (1, 0, 0)),
        ([EARLIER], (1, 0, 0)),
        ([EARLIER, EARLIER, LAST], (0, 1, 0)),
        ([EARLIER, LAST, LAST], (0, 1, 0)),
        ([LAST, EARLIER], (1, 0, 1)),
        ([EARLIER, {**LAST, "visib": None}], (1, 0, 0)),
    ],
)
def test_the_comparison_of_hours_finds_each_kind_of_defect(
    noon: list[dict[str, Any]], difference: tuple[int, int, int]
) -> None:
    """Equal at once or in the end; missing, outdated, published twice, swapped, with other weather."""
    got = independent.compare_hours(HOURS, {NOON: noon, ONE: [LAST]})

    assert (got.lost, got.added, got.reordered) == difference


def test_an_hour_that_is_not_expected_is_too_many() -> None:
    """All rows of such an hour are too many."""
    assert independent.compare_hours({}, {NOON: [EARLIER, LAST]}).added == 2


def test_streams_whose_order_is_not_known_are_compared_without_it() -> None:
    """A swap is no difference then, and no example; a duplicate is one."""
    swapped = {"N1": [b'{"a":2}', b'{"a":1}'], "N2": [b'{"a":3}', b'{"a":3}']}

    got = independent.compare(STREAMS, swapped, ordered=False)

    assert (got.lost, got.added, got.reordered) == (0, 1, 0)
    assert got.example.endswith("""missing [], too many [b'{"a":3}']""")


@pytest.mark.parametrize(
    ("rows", "difference"),
    [
        ([(1, 5), (2, 3), (3, 9)], (0, 0, 0)),
        ([(1, 6), (2, 15), (3, 9)], (0, 0, 0)),
        ([(1, 5), (2, 3), (2, 3), (3, 9)], (0, 1, 0)),
        ([(1, 5), (2, 3), (3, 9), (3, 9)], (0, 1, 0)),
        ([(1, 5), (2, 3), (3, 9), (4, 12)], (0, 1, 0)),
        ([(1, 5), (3, 9)], (1, 0, 0)),
        ([(1, 5), (2, 3)], (1, 0, 0)),
        ([], (3, 0, 0)),
        ([(2, 3), (1, 5), (3, 9)], (0, 0, 1)),
        ([(1, 5), (1, 3), (2, 9)], (1, 1, 0)),
        ([(1, 5), (2, 3), (3, 8)], (1, 1, 0)),
    ],
)
def test_the_comparison_of_totals_finds_each_kind_of_defect(
    rows: list[tuple[int, int]], difference: tuple[int, int, int]
) -> None:
    """
    Equal, also on another way; doubled inside and at the end, one too many; lost inside, at the end, all; swapped; a
    change of the store that was lost; another sum.
    """
    got = independent.compare_punctuality({("UA", "EWR"): (3, 9)}, {("UA", "EWR"): rows})

    assert (got.lost, got.added, got.reordered) == difference
    assert bool(got) is any(difference)


def test_totals_of_an_airline_that_is_not_expected_are_too_many() -> None:
    """All messages about it are."""
    assert independent.compare_punctuality({}, {("UA", "EWR"): [(1, 0), (2, 4)]}) == Difference(
        0, 2, 0, "('UA', 'EWR'): expected (0, 0) in the end, found [(1, 0), (2, 4)]"
    )


@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_graph_books_and_totals_flights_as_plain_python_does(
    moment: Literal["before", "after"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the lines of the table, in memory, with a ledger in SQLite, through a crash beside one of its commits."""
    for module in (ledger, independent):
        monkeypatch.setattr(module, "INSPECTION_MILES", 1000)
    expected = independent.Expected()
    with opened(SQLITE, tmp_path) as used:
        tester = Tester(plain, policy=CommitPolicy(max_messages=20))
        for number, line in enumerate(flights(200)):
            expected.add(line, number, airports())
            tester.send("flights.raw", message(line, number))
        assert tester.run(crash=Crash(moment, "CommitTarget", 4)).crashed
        tester = tester.restart().run()
        booked, aircraft = independent.read_ledger(used.url)

    assert independent.compare_ledger(expected, booked, aircraft) == Difference()
    due: independent.Streams = {}
    for one in tester.values("flights.inspections"):
        due.setdefault(one.tail, []).append(msgspec.json.encode(one))
    assert len(due) > 10
    assert independent.compare(expected.topics["flights.inspections"], due) == Difference()
    found: dict[independent.Airline, list[tuple[int, int]]] = {}
    for totals in tester.values("flights.punctuality"):
        found.setdefault((totals.carrier, totals.origin), []).append((totals.flights, totals.delay))
    assert len(found) > 10
    assert independent.compare_punctuality(expected.airlines, found) == Difference()


BOOKED = Counter({("N1", nth, "2013-01-01", "UA", 1, "EWR", "IAH", 1400, nth * 1400): 1 for nth in (1, 2)})
FIRST, SECOND = BOOKED


@pytest.mark.parametrize(
    ("booked", "aircraft", "difference"),
    [
        (BOOKED, (2, 2800), (0, 0, 0)),
        (Counter([FIRST]), (2, 2800), (1, 0, 0)),
        (Counter([FIRST, SECOND, SECOND]), (2, 2800), (0, 1, 0)),
        (Counter([FIRST, (*SECOND[:-1], 4200)]), (2, 2800), (1, 1, 0)),
        (BOOKED, (3, 4200), (1, 1, 0)),
        (Counter[Any](), (2, 2800), (2, 0, 0)),
    ],
)
def test_the_comparison_of_the_ledger_finds_each_kind_of_defect(
    booked: Counter[Any], aircraft: tuple[int, int], difference: tuple[int, int, int]
) -> None:
    """Equal; a row lost, doubled, with other miles; a total of one flight too many; all rows lost."""
    expected = independent.Expected(booked=BOOKED, aircraft={"N1": (2, 2800)})

    got = independent.compare_ledger(expected, booked, {"N1": aircraft})

    assert (got.lost, got.added, got.reordered) == difference
    assert bool(got) is bool(got.example) is any(difference)


def test_the_ledger_is_in_sqlite_where_no_postgresql_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is told, and a PostgreSQL that is asked for by name is not replaced."""
    monkeypatch.setattr(database, "_started", Mock(side_effect=NotStarted("no such program")))
    monkeypatch.delenv(ADDRESS, raising=False)

    with opened(None, tmp_path) as found:
        assert (found.kind, found.why) == (SQLITE, "no such program")
        assert os.environ[ADDRESS] == found.url == f"sqlite:///{tmp_path}/ledger.db"
        assert independent.read_ledger(found.url) == (Counter(), {})
    assert ADDRESS not in os.environ
    with pytest.raises(NotStarted, match="no such program"), opened(POSTGRES, tmp_path):
        pass


def test_kills_of_a_server_need_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    """A ledger in SQLite has none."""
    with pytest.raises(SystemExit):
        main(["--database", "sqlite", "--server-kills", "1"])
    assert "--server-kills goes with --database postgres" in capsys.readouterr().err


def test_hours_are_what_the_tables_say_by_hand() -> None:
    """Flights that did not take off, or to an unknown airport, do not count; "NA" of the weather is None."""
    line = "2013,1,1,{},{},{},830,819,11,UA,1545,N14228,EWR,{},227,1400,5,15,2013-01-01T10:00:00Z"
    expected = independent.Expected()
    for number, flight in enumerate(
        (
            ("517", "515", "2", "IAH"),
            ("529", "559", "-30", "IAH"),
            ("NA", "510", "NA", "IAH"),
            ("501", "500", "1", "BQN"),
        )
    ):
        expected.add(line.format(*flight), number, frozenset({"IAH"}))
    assert expected.hours() == {}, "without weather no hour"
    expected.see("EWR,2013,1,1,5,NA,26.06,59.37,270,10.357019999999999,NA,0,1012,10,2013-01-01T10:00:00Z")
    expected.see("JFK,2013,1,1,5,39.02,26.06,59.37,270,10,NA,0,1012,10,2013-01-01T10:00:00Z")

    assert expected.hours() == {
        ("EWR", "2013-01-01T10:00:00Z"): {
            "origin": "EWR",
            "hour": "2013-01-01T10:00:00Z",
            "flights": 2,
            "delay": -28,
            "temp": None,
            "wind_speed": 10.357019999999999,
            "precip": 0.0,
            "visib": 10.0,
        }
    }


def test_messages_are_written_by_hand_as_fastavro_writes_them() -> None:
    """Those of the independent check, which are compared byte by byte with those of the graph."""
    row = "2013,1,1,517,515,{},830,819,{},UA,1545,{},EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
    schema = fastavro.schema.load_schema(str(SCHEMA))
    form = fastavro.schema.to_parsing_canonical_form(schema)
    for number, (early, late, tail) in enumerate((("-70", "1301", "N14228"), ("2", "NA", "NA"))):
        expected = independent.Expected()
        expected.add(row.format(early, late, tail), number, frozenset({"IAH"}))
        [[message]] = expected.topics["flights.clean"].values()

        assert message[:2] == b"\xc3\x01"
        assert message[2:10].hex() == fastavro.schema.fingerprint(form, "CRC-64-AVRO")
        assert Flight(**fastavro.schemaless_reader(BytesIO(message[10:]), schema, None)) == clean(  # type: ignore[arg-type]
            row.format(early, late, tail).encode(), frozenset({"IAH"})
        )


def test_the_picture_weighs_hours_by_their_flights(tmp_path: Path) -> None:
    """Unknown values are in no bar; values below the first step are in the first bar."""
    scale = Scale("visib", "visibility", (1, 2, 4))
    hours = [
        {"flights": flights, "delay": delay, "visib": visib, "precip": 0.0, "wind_speed": None}
        for flights, delay, visib in ((1, 10, 0.5), (3, 6, 1.99), (2, 7, 10.0), (5, 99, None))
    ]

    assert means(hours, scale) == [(1, 4.0, 4), (4, 3.5, 2)]
    draw(hours, tmp_path / "hours.png")
    assert (tmp_path / "hours.png").read_bytes().startswith(b"\x89PNG")


def test_the_other_opinion_imports_nothing_of_ours() -> None:
    """Otherwise it would not be independent."""
    program = "import sys, examples.flights.independent; print([m for m in sys.modules if m.startswith('cues_kafka')])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)

    assert result.stdout.strip() == "[]"
    assert Difference() == Difference(0, 0, 0)
