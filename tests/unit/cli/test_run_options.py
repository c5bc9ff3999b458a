"""Options of ``cues-kafka run``: which are refused before anything runs, and where the values of others go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cues_kafka.cli import run as command
from cues_kafka.cli.config import FILE, RUN, load
from cues_kafka.cli.main import app
from cues_kafka.cli.run_options import GraphRun


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workers", "2", "--max-memory", "lots"], "--max-memory 'lots' is not a size"),
        (["--max-memory", "512MiB"], "--max-memory: with --workers only"),
        (["--workers", "2", "--stall-timeout", "0"], "--stall-timeout must be more than 0 seconds, not 0"),
        (["--stop-timeout", "-1"], "--stop-timeout must be more than 0 seconds, not -1"),
        (["--stall-timeout", "60"], "--stall-timeout: with --workers and --engine spark only"),
        (["--engine", "spark", "--checkpoint", "c", "--stop-timeout", "0"], "--stop-timeout must be more than 0"),
        (["--standby"], "--standby: with --engine spark only"),
        (
            ["--engine", "spark", "--checkpoint", "c", "--standby", "--master", "spark://one:7077"],
            "--standby with --master spark://one:7077: its session would hold executors of the cluster all the time",
        ),
        (
            ["--engine", "spark", "--checkpoint", "c", "--standby", "--master", "local-cluster[2,1,1024]"],
            "It is for --master 'local[...]'",
        ),
        (
            ["--engine", "spark", "--checkpoint", "c", "--standby", "--trigger", "available-now"],
            "--standby with --trigger available-now: this run has an end. Leave --standby out",
        ),
        (
            ["--engine", "spark", "--checkpoint", "c", "--max-memory", "1GB"],
            "--max-memory: with native workers only. Spark limits its processes itself. In spark-defaults.conf,",
        ),
    ],
)
def test_limits_that_cannot_hold_are_refused(options: list[str], words: str) -> None:
    """Code 2, with what to write instead."""
    found = CliRunner().invoke(app, ["run", "examples.shop:graph", *options])

    assert found.exit_code == 2
    assert words in " ".join(found.output.split())


@pytest.mark.parametrize(
    ("command", "code"),
    [(["run", "--only", "check"], 2), (["plan", "--offline"], 1), (["plan", "--offline", "--json"], 1)],
)
def test_a_graph_with_a_weaker_edge_than_required_is_refused(command: list[str], code: int) -> None:
    """As other refused plans, with the edge, its condition and its remedy; before a cluster is asked."""
    found = CliRunner().invoke(app, [command[0], "examples.shop:graph", *command[1:], "--require", "exactly-once"])

    assert found.exit_code == code
    text = " ".join(found.output.split())
    assert "the edge 'applications -> orders' is at least once. Condition: a send repeated" in text
    assert "Remedy: Send with id=" in text


def test_a_graph_that_is_as_strong_as_required_is_planned() -> None:
    """A level that is not known is a wrong setting."""
    planned = CliRunner().invoke(app, ["plan", "examples.shop:graph", "--offline", "--require", "at-least-once"])
    wrong = CliRunner().invoke(app, ["plan", "examples.shop:graph", "--offline", "--require", "exactly"])

    assert (planned.exit_code, "Refused" in planned.output) == (0, False)
    assert wrong.exit_code == 2
    assert "Choose one of 'exactly-once', 'at-least-once'" in " ".join(wrong.output.split())


class AskedError(Exception):
    """Ends the command where its supervisor is made."""


@pytest.mark.parametrize(
    ("text", "options", "care"),
    [
        ("", ["--workers", "2"], {}),
        ("", ["--workers", "2", "--max-memory", "512MiB"], {"max_memory": 512 * 2**20}),
        ("", ["--workers", "2", "--stop-timeout", "7.5"], {"stop_timeout_s": 7.5}),
        ("", ["--workers", "2", "--stall-timeout", "90"], {"stall_s": 90.0}),
        (
            'workers = 3\nmax_memory = "1GB"\nstop_timeout = 8.0\nstall_timeout = 91.0',
            ["--stall-timeout", "92"],
            {"max_memory": 10**9, "stop_timeout_s": 8.0, "stall_s": 92.0},
        ),
    ],
)
def test_limits_reach_the_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, options: list[str], care: dict[str, float]
) -> None:
    """In bytes and seconds; what is not given is the supervisor's own."""
    seen: list[dict[str, Any]] = []
    (tmp_path / FILE).write_text(f"[run]\n{text}\n")
    monkeypatch.chdir(tmp_path)

    def made(_: Any, *, workers: int, env: Any, on_change: Any, **given: Any) -> Any:
        seen.append(given)
        raise AskedError

    monkeypatch.setattr("cues_kafka.workers.supervisor.Supervisor", made)
    found = CliRunner().invoke(app, ["run", "examples.shop:graph", *options])

    assert isinstance(found.exception, AskedError), found.output
    assert seen == [care]


def test_stop_timeout_without_workers_reaches_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single process ends itself."""
    seen: list[Any] = []

    def work(chosen: GraphRun) -> int:
        seen.append(chosen.told["stop_timeout"])
        return 0

    monkeypatch.setattr(command, "_work", work)
    for options in ([], ["--stop-timeout", "7.5"]):
        assert CliRunner().invoke(app, ["run", "examples.shop:graph", *options]).exit_code == 0

    assert seen == [None, 7.5]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ('max_memory = "1GB"', [], "--max-memory (cues-kafka.toml): with --workers only"),
        ("workers = 2", ["--engine", "spark", "--checkpoint", "c"], "--workers (cues-kafka.toml): with native workers"),
        ('engine = "spark"', [], "--engine spark needs --checkpoint DIR"),
        ('engine = "spark"\ncheckpoint = "c"', ["--workers", "2"], "--workers: with native workers only"),
        ('max_memory = "lots"', ["--workers", "2"], "--max-memory 'lots' is not a size"),
        ("workers = 2\nstop_timeout = 0", [], "--stop-timeout must be more than 0 seconds, not 0"),
        ('workers = "2"', [], "takes a whole number, not str"),
    ],
)
def test_options_in_the_file_are_taken_and_checked_as_those_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, options: list[str], words: str
) -> None:
    """With the place where they are written."""
    (tmp_path / FILE).write_text(f"[run]\n{text}\n")
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["run", "examples.shop:graph", *options])

    assert found.exit_code == 2
    assert words in " ".join(found.output.replace(f"{tmp_path}/", "").split())


@pytest.mark.parametrize(
    ("text", "options", "fails_fast"),
    [
        ("", [], False),
        ("fail_fast = true", [], True),
        ("fail_fast = true", ["--no-fail-fast"], False),
        ("fail_fast = false", ["--fail-fast"], True),
    ],
)
def test_option_undoes_the_switch_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, options: list[str], fails_fast: bool
) -> None:
    """As an option with a value does."""
    seen: list[Any] = []
    (tmp_path / FILE).write_text(f"[run]\n{text}\n")
    monkeypatch.chdir(tmp_path)

    def work(chosen: GraphRun) -> int:
        seen.append(chosen.fail_fast)
        return 0

    monkeypatch.setattr(command, "_work", work)
    found = CliRunner().invoke(app, ["run", "examples.shop:graph", *options])

    assert (found.exit_code, seen) == (0, [fails_fast])


def test_each_switch_among_the_options_of_run_has_its_opposite(tmp_path: Path) -> None:
    """`config` names the option that was given."""
    switches = [name for name, (kind, _) in RUN.items() if kind is bool]
    text = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).stdout
    for name in switches:
        option = name.replace("_", "-")
        assert f"--no-{option}" in text
        found = load({f"run.{name}": False}, env={}, cwd=tmp_path).settings[f"run.{name}"]
        assert (found.value, found.origin) == (False, f"--no-{option}")
    assert switches


@pytest.mark.parametrize("options", [[], ["--workers", "2"]])
def test_process_looks_for_the_packages_of_a_graph_once(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    """A worker as it starts, and a supervisor before its workers: before either connects."""
    looked: list[str] = []

    def opened(*_: Any, **__: Any) -> Any:
        raise AskedError

    monkeypatch.setattr("cues_kafka.graph.packages.require", lambda what, _: looked.append(what))
    monkeypatch.setattr("cues_kafka.running.starting.open_broker", opened)
    monkeypatch.setattr("cues_kafka.workers.supervisor.Supervisor", opened)
    found = CliRunner().invoke(app, ["run", "examples.shop:graph", *options])

    assert isinstance(found.exception, AskedError), found.output
    assert looked == ["graph 'shop'"]
