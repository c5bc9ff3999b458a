"""What README and docs show is run, and what they name exists."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib
import uuid
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main

import cues_kafka
from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.config import load
from cues_kafka.cli.docs import error_lines, state_diagram
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.main import app
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import until
from tests.forks import run_program

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ADDRESS = "localhost:9092"
PROGRAM = [sys.executable, "-m", "cues_kafka.cli.main"]


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    number: int
    language: str
    text: str


def blocks(language: str, *pages: Path) -> list[Block]:
    """All fenced blocks of one language."""
    found = []
    for page in pages or PAGES:
        fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        found += [Block(page.name, i, kind, text) for i, (kind, text) in enumerate(fenced) if kind == language]
    return found


def is_graph(block: Block) -> bool:
    """Whether a file holds a graph, and not settings."""
    return "[[parts]]" in block.text


def shown(text: str) -> Iterator[str]:
    """Code spans, and the lines of fenced blocks."""
    for _, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield from block.splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors(page: Path) -> list[str]:
    """Names by which links point at the sections of a page, as GitHub makes them of titles."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles]


def run(*command: str | Path, **env: str) -> str:
    """Output of a program; a failure shows all of it."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | env
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


# Programs


README = ROOT / "README.md"
CHANGELOG = ROOT / "CHANGELOG.md"
QUICK_START = ROOT / "docs" / "quick-start.md"


@pytest.mark.parametrize(("page", "example"), [(README, "first.py"), (QUICK_START, "shop.py")])
def test_the_first_programs_are_the_examples(page: Path, example: str) -> None:
    """One text in two places; that they run on Kafka, from checkout and wheel, is the wheel's test."""
    [shown] = [b for b in blocks("python", page) if b.text.startswith(f"# {example}")]

    assert shown.text == (ROOT / "examples" / example).read_text(encoding="utf-8")


TUTORIAL = ROOT / "docs" / "tutorial.md"
"""A page whose programs belong together: they run one after the other."""

OPERATIONS = ROOT / "docs" / "operations.md"
"""A session of commands; tests/test_operations.py runs it."""

SESSION = ROOT / "docs" / "cues.md"
"""The same; tests/scenarios/test_session.py runs its blocks on both brokers."""

TARGETS = ROOT / "docs" / "targets.md"
"""Programs for a real server; tests/servers/test_redis.py runs them."""

OF_PEERS = {
    path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks" / "peers" / "programs").glob("*_orders.py")
} - {(ROOT / "benchmarks" / "peers" / "programs" / "cues_orders.py").read_text(encoding="utf-8")}
"""Programs in other libraries, which `make bench-peers` runs; tests/unit/test_peers.py compares them with the page."""

WITH_SPARK = "SparkSession"
"""A block that has this word is run by tests/spark/test_spark_docs.py, on a real broker."""


@pytest.mark.parametrize(
    "block",
    [
        b
        for b in blocks("python")
        if WITH_SPARK not in b.text
        and b.text not in OF_PEERS
        and b.page not in (TUTORIAL.name, OPERATIONS.name, SESSION.name, TARGETS.name)
    ],
    ids=lambda b: f"{b.page}-{b.number}",
)
def test_every_python_block_runs(block: Block, tmp_path: Path) -> None:
    """In a process of its own. A block that connects to a broker gets the memory broker instead."""
    program = tmp_path / "shown.py"
    text = block.text.replace(f'Kafka("{ADDRESS}")', "Memory()").replace(" Kafka,", " Memory,")
    program.write_text(text, encoding="utf-8")

    run_program(program)


SETUP = ["python3 -m venv /tmp/first", ". /tmp/first/bin/activate", "pip install '.[local]'"]
"""README's environment. tests/test_wheel.py makes it, and runs README's commands there."""


def test_the_first_commands_run_and_print_what_is_shown(tmp_path: Path) -> None:
    """
    Those of README but the set-up, and those of the quick start, on one broker.

    The broker has a name and port of its own, so that it disturbs no other one.
    """
    up, down = "cues-kafka broker up", "cues-kafka broker down"
    [first], [second] = blocks("sh", README), blocks("sh", QUICK_START)
    assert first.text.splitlines() == [*SETUP, up, "python examples/first.py", down]
    assert second.text.splitlines() == [up, "python examples/shop.py", down]
    assert "`.ci/setup` creates" in QUICK_START.read_text(encoding="utf-8")
    assert os.access(ROOT / ".ci" / "setup", os.X_OK)
    name = f"docs-{uuid.uuid4().hex[:8]}"

    def printed(program: str) -> str:
        copy = tmp_path / program
        copy.write_text((ROOT / "examples" / program).read_text().replace(ADDRESS, bootstrap))
        return run(sys.executable, copy)

    run(*PROGRAM, "broker", "up", "--name", name, "--port", "0")
    try:
        bootstrap = json.loads(run(*PROGRAM, "broker", "status", "--name", name, "--json"))["bootstrap"]
        once, again, other = printed("first.py"), printed("first.py"), printed("shop.py")
    finally:
        run(*PROGRAM, "broker", "down", "--name", name)

    assert once in {block.text for block in blocks("", README)}
    assert again == once
    assert other in {block.text for block in blocks("", QUICK_START)}


@pytest.mark.parametrize(
    "block",
    blocks("sh", *(page for page in PAGES if page not in (README, QUICK_START))),
    ids=lambda b: f"{b.page}-{b.number}",
)
def test_every_other_shell_block_runs(block: Block) -> None:
    """Line by line, as it stands."""
    for line in block.text.splitlines():
        word, *arguments = line.split()
        assert word == "cues-kafka"
        run(*PROGRAM, *arguments)


def test_the_test_that_is_shown_passes_on_a_real_broker(kafka_cluster: str, tmp_path: Path) -> None:
    """With the plug-in as users have it; `make test-docker` runs it on a broker in a container."""
    block = blocks("python", ROOT / "docs" / "testing.md")[0]
    (tmp_path / block.text.splitlines()[0].removeprefix("# ")).write_text(block.text, encoding="utf-8")

    said = run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", tmp_path, CUES_KAFKA_BOOTSTRAP=kafka_cluster)

    assert "1 passed" in said


def test_the_graph_in_a_file_is_taken(tmp_path: Path) -> None:
    """Beside a module that has what it names."""
    [block] = [b for b in blocks("toml") if is_graph(b)]
    (tmp_path / "graph.toml").write_text(block.text.replace("shop:", "graphs_page:"), encoding="utf-8")
    (tmp_path / "graphs_page.py").write_text("Order = dict\ndef check(order, limit): ...\n", encoding="utf-8")

    planned = run(*PROGRAM, "plan", tmp_path / "graph.toml", "--offline")
    assert "orders -> all=checked, big=checked.big; errors: shop.errors" in planned


@pytest.mark.parametrize("block", [b for b in blocks("toml") if not is_graph(b)], ids=lambda b: f"{b.page}-{b.number}")
def test_every_configuration_that_is_shown_is_taken(block: Block, tmp_path: Path) -> None:
    """With each of its profiles, and with the secrets that it names."""
    file, secret = tmp_path / "cues-kafka.toml", tmp_path / "secret"
    secret.write_text("x")
    file.write_text(re.sub(r'(?<=file = ")/run/[^"]+', str(secret), block.text))
    env = dict.fromkeys(re.findall(r'env = "(\w+)"', block.text), "x")
    for profile in [None, *tomllib.loads(block.text).get("profile", {})]:
        load(file=file, profile=profile, env=env).kafka()


@pytest.mark.timeout(400)
def test_the_tutorial_runs_as_it_is_shown(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Its programs, in its order, with workers of their own; a worker is killed while payments arrive."""
    for block in blocks("python", TUTORIAL):
        name = block.text.split("\n", 1)[0].removeprefix("# ")
        (tmp_path / name).write_text(block.text.replace(ADDRESS, kafka.bootstrap), encoding="utf-8")
    plan, table, *_ = [b.text for b in blocks("", TUTORIAL) if b.text.startswith(("Graph bank", "processor "))]
    environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "CUES_KAFKA_BOOTSTRAP": kafka.bootstrap}

    def do(*words: str | Path) -> str:
        done = subprocess.run(
            words, cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=100
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def verified() -> str:
        """The report on everything that was sent."""
        graph = load_graph(f"{tmp_path / 'bank.py'}:graph")
        with closing(open_broker(Kafka(kafka.bootstrap))) as broker:  # without a process for each look
            until(lambda: verify(graph, broker).complete, "everything is verified", 120)
        text = do(*PROGRAM, "verify", "bank.py:graph", "--complete")
        assert "nothing is wrong" in text
        return text

    assert do(*PROGRAM, "plan", "bank.py:graph", "--offline").startswith(plan)
    do(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_bank.py")
    log = tmp_path / "log"
    command = [*PROGRAM, "run", "bank.py:graph", "--workers", "2", "--bootstrap", kafka.bootstrap]
    with log.open("wb") as out:
        workers = subprocess.Popen(command, cwd=tmp_path, env=os.environ | environment, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 120
        while len(pids := re.findall(r"ready after .* pid (\d+)", log.read_text())) < 2:
            assert workers.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        do(sys.executable, "feed.py")
        report = verified()
        assert [line for line in table.splitlines() if line not in report] == [], report
        do(sys.executable, "poison.py")
        verified()
        assert re.search(r"check/\d decode ", do(sys.executable, "errors.py"))
        do(sys.executable, "feed.py")
        os.kill(int(pids[0]), signal.SIGKILL)
        verified()
        workers.send_signal(signal.SIGINT)
        assert workers.wait(60) == 0
    finally:
        workers.kill()
        workers.wait()
        print(log.read_text())

    with sqlite3.connect(tmp_path / "bank.db") as db:
        assert db.execute("select sum(cents) from balance").fetchall() == [(100_000,)]


# Names


def _commands() -> dict[str, set[str]]:
    """Options of `run`, `broker up` and so on."""
    found: dict[str, set[str]] = {}

    def walk(command: Any, path: str) -> None:
        if not hasattr(command, "commands"):
            found[path] = {option for parameter in command.params for option in parameter.opts} | {"--help"}
            return
        for name, below in command.commands.items():
            walk(below, f"{path} {name}".strip())

    walk(typer.main.get_command(app), "")
    return found


COMMANDS = _commands()


def _command_of(words: list[str]) -> str | None:
    return next((name for name in (" ".join(words[:2]), words[0] if words else "") if name in COMMANDS), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_names_exists_with_its_options(page: Path) -> None:
    """A command that a page names can be typed as it stands."""
    for line in shown(page.read_text(encoding="utf-8")):
        for call in re.findall(r"(?:^|\s)cues-kafka ((?:[^#|]|\|(?!\s))*)", line):
            words = call.split()
            groups = {name.split()[0] for name in COMMANDS}
            assert words, line
            assert words[0] in groups, f"{page.name}: there is no `cues-kafka {words[0]}`"
            name = _command_of(words)
            if name is None:
                continue
            for word in words:
                if word.startswith("--"):
                    assert word.split("=")[0] in COMMANDS[name], f"{page.name}: `cues-kafka {name}` has no {word}"


def test_every_command_that_the_program_names_as_a_remedy_exists() -> None:
    """In texts of errors, refusals and warnings."""
    groups = {name.split()[0] for name in COMMANDS}
    named = set()
    for path in (ROOT / "cues_kafka").rglob("*.py"):
        named |= set(re.findall(r"[`']cues-kafka ([a-z-]+)", path.read_text(encoding="utf-8")))

    assert named
    assert named <= groups


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_link_that_a_page_names_exists(page: Path) -> None:
    """Relative to the page, to the project or to the package."""
    text = page.read_text(encoding="utf-8")
    for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
        target = page.parent / link if link else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}#{anchor}"
    for name in shown(text):
        if re.fullmatch(r"[\w/.-]+/[\w.-]+\.(?:py|md|avsc|toml)", name) and not name.startswith(("path/", "dist/")):
            assert (ROOT / name).exists() or (ROOT / "cues_kafka" / name).exists(), f"{page.name}: {name}"


def test_the_index_lists_every_page() -> None:
    """Once or more, by task or as reference."""
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")

    assert {page.name for page in (ROOT / "docs").glob("*.md")} - set(re.findall(r"\]\(([\w-]+\.md)\)", text)) == {
        "README.md"
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    """`make test` is the test command."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in shown(page.read_text(encoding="utf-8")):
        if found := re.search(r"\bmake ([a-z-]+)", name):
            assert found[1] in targets


# Pages that are drawn from the code


def test_pictures_of_the_quick_start_are_drawn_from_its_graph() -> None:
    """`cues-kafka topology examples/shop.py:graph` prints them; put them into the pages when this fails."""
    command = [*PROGRAM, "topology", "examples/shop.py:graph"]
    [flowchart] = blocks("mermaid", QUICK_START)
    [tree] = blocks("", ROOT / "docs" / "topology.md")

    assert run(*command, "--mermaid") == flowchart.text
    assert run(*command) == tree.text


def test_the_diagram_of_a_task_is_drawn_from_its_table() -> None:
    """`cues-kafka docs task` prints it; put that into the page when this fails."""
    [block] = blocks("mermaid", ROOT / "docs" / "task.md")

    assert block.text.rstrip() == state_diagram()
    assert run(*PROGRAM, "docs", "task") == block.text


def test_the_table_of_exceptions_is_that_of_their_docstrings() -> None:
    """`cues-kafka docs errors` prints them."""
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (?:&nbsp;)*`(\w+)` \| (.*) \|$", text.split("## Exception classes")[1], re.MULTILINE))
    expected = dict(line.strip().split(": ", 1) for line in error_lines())

    assert rows == {name: said.replace("``", "`") for name, said in expected.items()}


def test_readme_and_changelog_are_short() -> None:
    """A reader judges by the first of them in ten minutes; what does not fit has a page of its own."""
    readme, changelog = (len(page.read_text(encoding="utf-8").splitlines()) for page in (README, CHANGELOG))

    assert readme <= 130
    assert changelog <= 60


def test_readme_names_its_two_commands_and_five_pages() -> None:
    """All other pages are behind the index. A picture is no page."""
    text = re.sub(r"!\[[^\]]*\]\(docs/[\w.]+\)", "", README.read_text(encoding="utf-8"))

    assert re.findall(r"^\*\*`make ([\w-]+)`\*\*", text, re.MULTILINE) == ["demo", "test"]
    assert len(re.findall(r"\]\(", text)) == 5
    assert text.count("](docs/") == 5


def test_the_promise_is_the_same_everywhere() -> None:
    """README and the page of the guarantee have it word for word."""
    pages = [ROOT / "README.md", ROOT / "docs" / "guarantee.md"]
    promises = [re.findall(r"(?:^> .*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE) for page in pages]

    assert promises[0] == promises[1]
    assert len(promises[0]) == 1


def test_delta_lake_was_tried_with_the_pyspark_that_is_installed() -> None:
    """Another pyspark has other builds: then the trial is to be repeated, and the table to be written again."""
    text = (ROOT / "docs/dataframes.md").read_text(encoding="utf-8")
    [table] = re.findall(r"^\| build \| Spark \|.*\n\| ---.*\n((?:\|.*\n)+)", text, re.MULTILINE)

    tried = [row.split(" | ")[1] for row in table.splitlines()]

    assert set(tried[:-1]) == {f"pyspark {version('pyspark')}"}
    assert "tests.spark.delta_program" in text


def test_the_settings_that_the_page_names_exist_with_their_defaults() -> None:
    """In the table of settings."""
    known = load(env={}, cwd=ROOT).settings
    table = (
        (ROOT / "docs" / "settings.md").read_text(encoding="utf-8").split("| setting | default |")[1].split("\n\n")[0]
    )
    for names, defaults in re.findall(r"^\| (`.*`) \| (.*?) \|", table, re.MULTILINE):
        given = [float(number) for number in re.findall(r"[\d.]+", defaults.replace(",000", "000"))]
        prefix = ""
        for index, name in enumerate(re.findall(r"`([\w.]+)`", names)):
            prefix = "commit." if name.startswith("commit.") else prefix
            full = name if name in known else prefix + name
            assert full in known, full
            if isinstance(known[full].value, float):
                assert known[full].value == given[index]


def test_every_public_name_is_on_the_page_of_the_api() -> None:
    """Exceptions are on their own page."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    errors = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")

    assert [name for name in cues_kafka.__all__ if f"`{name}`" not in text + errors] == []


def test_no_text_of_the_program_sends_to_a_page_that_users_do_not_have() -> None:
    """Docstrings may cite rules by number, which docs/protocol.md explains; texts that are printed do not."""
    found = []
    for path in (ROOT / "cues_kafka").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        found += [
            f"{path.name}:{node.lineno}"
            for node in texts
            if id(node) not in docs and re.search(r"\b(PROTOCOL|DESIGN)\b|\([A-Z]\d+\)", str(node.value))
        ]

    assert found == []
    assert not re.search(r"\b(PROTOCOL|DESIGN)\b", "\n".join(error_lines()))
