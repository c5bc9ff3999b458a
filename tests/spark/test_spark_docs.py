"""Run what the pages show of Spark, on a real broker and with a session; find the tests that pages cite."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cues_kafka.spark import explain
from cues_kafka.testing.fixtures import FaultClusters
from examples.shop import graph
from tests.test_docs import ADDRESS, PAGES, PROGRAM, QUICK_START, ROOT, WITH_SPARK, blocks

SPARK_PAGE = ROOT / "docs" / "spark.md"
CHECKPOINT = "/tmp/shop-checkpoints"


def shown_command(page: Path) -> str:
    """The line that runs a graph on Spark."""
    [line] = [line for b in blocks("", page) for line in b.text.splitlines() if line.startswith("cues-kafka run exam")]
    return line


@pytest.mark.full
@pytest.mark.timeout(600)  # two JVMs start, and the machine may be busy
def test_every_block_with_a_session_runs_and_prints_what_is_shown(
    kafka_fault_cluster: FaultClusters, tmp_path: Path
) -> None:
    """One after the other in one program, as a reader would; on a broker of its own: the names are the example's."""
    bootstrap = kafka_fault_cluster().bootstrap
    pages = [SPARK_PAGE, *(page for page in PAGES if page != SPARK_PAGE)]  # its program sends what the others read
    shown = [block.text for block in blocks("python", *pages) if WITH_SPARK in block.text]
    assert len(shown) == 7
    program = tmp_path / "shown.py"
    program.write_text("\n".join(shown).replace(ADDRESS, bootstrap).replace(CHECKPOINT, str(tmp_path / "checkpoints")))

    printed = _run(sys.executable, str(program)).splitlines()

    assert printed[0] + "\n" in {block.text for block in blocks("", QUICK_START)}
    assert printed[1:] == [
        'orders {"id":"a1","total":250}',
        "a1 250",
        "[Order(id='a1', total=250)]",
        "[('decode', b'no order')]",
        "a1 500",
        "[('a1', 500)]",
        "2 rows are there now",
        "2 rows were there already",
    ]

    _, *arguments = shlex.split(shown_command(SPARK_PAGE).replace(CHECKPOINT, str(tmp_path / "checkpoints")))
    output = _run(*PROGRAM, *arguments, "--bootstrap", bootstrap, "--trigger", "available-now")
    assert output.splitlines()[0] == "shop: running check, route on Spark"


def _run(*command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_explanation_is_the_one_that_is_shown() -> None:
    """To the letter."""
    assert f"{explain(graph)}\n" in {block.text for block in blocks("", SPARK_PAGE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    """A reader can check each claim by the test that the page cites."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8"))
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in functions, f"{page.name}: {file} has no {name}"
    assert named or page != SPARK_PAGE
