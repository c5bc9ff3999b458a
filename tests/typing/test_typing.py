"""User code under ``mypy --strict``: what is right passes, what is wrong is marked in the line where it is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HEADER = """
from __future__ import annotations
from collections.abc import Iterator
from typing import Literal
from cues_kafka import *
def fn(message: int) -> int:
    return message
@processor(inputs="a", outputs="b")
def double(message: int) -> int:
    return message
graph = Graph("g", Source("a"))
"""

REFUSED = [
    ("from cues_kafka import Grahp", "attr-defined"),
    ("Graph(Source('a'))", "arg-type"),
    ("Graph('g', errors=3)", "arg-type"),
    ("Graph('g', strategy='exactly_once')", "arg-type"),
    ("Graph('g', defaults=4)", "arg-type"),
    ("Graph('g', topics={'a': 4})", "dict-item"),
    ("graph.name = 'h'", "misc"),
    ("graph.processors['a'] = Processor(fn, inputs='a')", "index"),
    ("Source('a', True)", "call-arg|misc"),
    ("Processor(inputs='a')", "call-arg"),
    ("Processor(3, inputs='a')", "arg-type"),
    ("Processor(fn, 'a')", "call-arg|misc"),
    ("Processor(fn, inputs=3)", "arg-type"),
    ("Processor(fn, inputs=['a', 'b'])", "arg-type"),
    ("Processor(fn, alts='a')", "arg-type"),
    ("Processor(fn, inputs='a', output='b')", "call-arg"),
    ("Processor(fn, inputs='a', errors=True)", "arg-type"),
    ("Processor(fn, inputs='a', start='newest')", "arg-type"),
    ("Processor(fn, inputs='a', state={'s': Json()})", "dict-item"),
    ("Topic(value=int)", "arg-type"),
    ("Topic(partitions='4')", "arg-type"),
    ("Retry(on=KeyboardInterrupt)", "arg-type"),
    ("Retry(then='skip')", "arg-type"),
    ("Message(1, 'key')", "call-arg|misc"),
    ("def f1() -> Message[int]: return Message('text')", "arg-type"),
    ("Out('all')", "call-arg"),
    ("def f2() -> Iterator[Out]: yield 3", "misc"),
    ("def f3() -> Iterator[Out[Literal['all', 'big']]]: yield Out('bgi', 1)", "arg-type"),
    ("double('text')", "arg-type"),
    ("has_type(3)", "arg-type"),
    ("has_header(3)", "arg-type"),
    ("has_tag('a') & 'b'", "operator"),
    ("Topic(transient=3)", "arg-type"),
    ("Topic(compacted='yes')", "arg-type"),
    ("processor(fn)", "arg-type"),
    ("graph.bind(names=['a'])", "arg-type"),
    ("def f5(step: Step) -> str: return step.processor", "return-value"),
    ("def f4(step: Step) -> int: return step.hash", "return-value"),
]


def mypy(*paths: Path) -> str:
    """What a strict check of these files says; empty if nothing."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", *map(str, paths)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


@pytest.mark.timeout(300)
def test_right_user_code_passes_a_strict_type_check() -> None:
    """The example of the design, word for word, and one use of every form of a declaration."""
    assert mypy(ROOT / "examples" / "shop.py", Path(__file__).with_name("accepted.py")) == ""


@pytest.mark.timeout(300)
def test_wrong_user_code_is_marked_where_it_is(tmp_path: Path) -> None:
    """Every line is refused, with an error of the expected kind, and no other line is."""
    code = tmp_path / "refused.py"
    code.write_text(HEADER + "\n".join(line for line, _ in REFUSED) + "\n", encoding="utf-8")
    first = HEADER.count("\n") + 1
    found = re.findall(r"refused\.py:(\d+): error: .*\[([a-z-]+)\]", mypy(code))

    marked = {(int(line) - first, kind) for line, kind in found}
    lines = {REFUSED[number][0] if 0 <= number < len(REFUSED) else f"line {number + first}" for number, _ in marked}
    assert lines == {line for line, _ in REFUSED}
    for number, (line, kinds) in enumerate(REFUSED):
        assert {kind for at, kind in marked if at == number} & set(kinds.split("|")), line


def test_right_user_code_can_be_declared() -> None:
    """What the type checker accepts, the graph accepts too."""
    from tests.typing.accepted import double, graph

    assert len(graph.processors) == 12
    assert double.__name__ == "double"


def test_the_example_is_declared_as_the_design_shows_it() -> None:
    """A pipe and a fork with an errors topic."""
    from examples.shop import graph

    assert [(p.name, p.kind) for p in graph.processors.values()] == [("check", "pipe"), ("route", "fork")]
    assert graph.topics_used() == ("checked", "orders", "shop.all", "shop.big", "shop.errors")
