"""docs/architecture.md: the picture is drawn from the code, and the walks go through files and functions that exist."""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

import pytest

from cues_kafka import Graph, Json, Memory, Processor, Source, Topic, connect, start
from tests.test_layers import PACKAGE, RANK, RANKS, modules, outline

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"

STEP = re.compile(r"^(\d+)\. `(cues_kafka/[\w/]+\.py)`((?:, `[\w.]+`)+): (.*)", re.MULTILINE)


def packages() -> list[list[str]]:
    """By rank, the packages and modules of the table that are there."""
    found = [sorted(n for n in names if (PACKAGE / n).is_dir() or (PACKAGE / f"{n}.py").is_file()) for names in RANKS]
    return [names for names in found if names]


def arrows() -> dict[str, set[str]]:
    """What each package imports, without what follows from other imports."""
    direct: dict[str, set[str]] = defaultdict(set)
    for module, path in modules():
        own = module.split(".")[1] if "." in module else ""
        for _, name in outline(module, path).imports:
            parts = name.split(".")
            if own in RANK and parts[0] == "cues_kafka" and len(parts) > 1 and parts[1] in RANK.keys() - {own}:
                direct[own].add(parts[1])

    def reached(package: str) -> set[str]:
        return set().union(*({one, *reached(one)} for one in direct[package]))

    return {own: targets - set().union(*map(reached, targets)) for own, targets in list(direct.items())}


def picture() -> str:
    """The packages in Mermaid, the outermost first. A node has an id beside its text: `graph` is a word of Mermaid."""
    lines = ["flowchart TD"]
    for number, names in enumerate(reversed(packages())):
        lines += [f'    subgraph rank{number} [" "]', *(f'        _{name}["{name}"]' for name in names), "    end"]
    found = arrows()
    drawn = [name for names in reversed(packages()) for name in names]
    lines += [f"    _{own} --> _{target}" for own in drawn for target in drawn if target in found.get(own, ())]
    return "\n".join(lines)


@cache
def walks() -> dict[str, list[tuple[str, str, list[str], bool]]]:
    """By title, the steps of a walk: number, file, functions, and whether it is always gone."""
    parts = re.split(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {
        title: [
            (number, file, re.findall(r"`([\w.]+)`", names), not says.startswith("only "))
            for number, file, names, says in STEP.findall(text)
        ]
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {title: steps for title, steps in found.items() if steps}


@cache
def names_in(file: str) -> set[str]:
    """Functions and classes of a module, methods with their class in front."""
    found = set()
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def test_the_picture_of_the_packages_is_that_of_the_layers() -> None:
    """Print `picture()` and put that into the page when this fails."""
    [shown] = re.findall(r"^```mermaid\n(.*?)\n```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)

    assert shown == picture()


def test_every_package_is_in_the_table_of_the_page() -> None:
    """A package that is not explained is not found."""
    table = PAGE.read_text(encoding="utf-8").split("| package | what is in it |")[1].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in table.splitlines() if row)))

    assert named == {name for names in packages() for name in names}


def test_there_are_seven_walks_whose_steps_are_numbered() -> None:
    """Every numbered line is a step: a file, a function, what happens."""
    lines = re.findall(r"^\d+\. ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert list(walks()) == [
        "One message", "A direct batch on Spark", "A staged batch on Spark", "A recovery", "An error message",
        "A step with a store", "A message from another broker",
    ]  # fmt: skip
    assert len(lines) == sum(map(len, walks().values()))
    assert all(
        [number for number, *_ in steps] == list(map(str, range(1, len(steps) + 1))) for steps in walks().values()
    )
    assert all(10 <= len(steps) <= 20 for steps in walks().values())
    files = {walk: {file for _, file, *_ in steps} for walk, steps in walks().items()}
    assert {walk: len(found) for walk, found in files.items() if len(found) > 12} == {}


@pytest.mark.parametrize("walk", walks())
def test_a_walk_goes_through_functions_that_exist(walk: str) -> None:
    """In the files that are named."""
    missing = [f"{file}: {name}" for _, file, names, _ in walks()[walk] for name in names if name not in names_in(file)]

    assert missing == []


@contextmanager
def calls() -> Iterator[list[tuple[str, str]]]:
    """Functions of the package that are called meanwhile, by this thread and by those that it starts."""
    found: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            found.append((frame.f_code.co_filename.removeprefix(f"{ROOT}/"), frame.f_code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def missed(walk: str, found: list[tuple[str, str]]) -> list[str]:
    """Steps that were not gone in the order of the page. What calls Kafka's client has no part in a run in memory."""
    at, wrong = 0, []
    for number, file, names, always in walks()[walk]:
        for name in names if always and "/brokers/" not in file else ():
            if (file, name) in found[at:]:
                at = found.index((file, name), at)
            else:
                wrong.append(f"{number}. {file}: {name}")
    return wrong


def test_native_walks_are_gone_in_the_order_of_the_page() -> None:
    """One message, a recovery and an error message, in memory."""

    def positive(order: dict[str, int]) -> dict[str, int]:
        if order["n"] < 0:
            raise ValueError("negative")
        return order

    graph = Graph(
        "walks",
        Source("orders"),
        Processor(positive, inputs="orders", outputs="checked"),
        errors="failed",
        defaults=Topic(value=Json(), partitions=1),
    )
    cluster = Memory()
    with start(graph, cluster):
        pass  # the topics are there, and each task has a record

    with calls() as first:
        with connect(cluster, graph) as client:
            client.send("orders", {"n": 1})
        with start(graph, cluster) as running:
            running.wait_idle()
        with connect(cluster, graph) as client:  # when the worker has ended, so that its steps come first
            assert [message.value for message in client.messages("checked")] == [{"n": 1}]
    with calls() as second:
        with connect(cluster, graph) as client:
            client.send("orders", {"n": -1})
        with start(graph, cluster) as running:
            running.wait_idle()
        with connect(cluster, graph) as client:
            assert [message.value.text for message in client.messages("failed")] == ["negative"]

    assert missed("One message", first) == []
    assert missed("A recovery", first) == []
    assert missed("An error message", second) == []
    assert missed("An error message", first) != []
