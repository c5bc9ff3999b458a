"""User code under ``mypy --strict``: what is right passes, what is wrong is marked in the line where it is."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from cues_kafka import effects
from cues_kafka.bridges.destinations import BrokerSender, DestinationSender
from cues_kafka.sinks.blobs.target import PutFiles
from cues_kafka.sinks.calls import HttpCalls
from cues_kafka.sinks.connection import Database
from cues_kafka.sinks.publish import Publishing
from cues_kafka.sinks.rows import RowsTable, UpsertTable
from tests.test_wheel import build, install, run

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


USERS = [ROOT / "examples" / "shop.py", *sorted(Path(__file__).parent.glob("accepted*.py"))]
"""What a user writes."""

WRONG = """
from cues_kafka.effects import HttpServer
from cues_kafka.testing import Tester
def paid(order: int, http: HttpServer) -> int:
    return http.get("/a").text
def tested(tester: Tester) -> int:
    return tester.runs()
"""


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What one strict check says of right user code and of `REFUSED`, by line."""
    refused = tmp_path_factory.mktemp("typing") / "refused.py"
    refused.write_text(HEADER + "\n".join(line for line, _ in REFUSED) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    files = [str(path) for path in (*USERS, refused)]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


@pytest.mark.timeout(300)
def test_right_user_code_passes_a_strict_type_check(findings: list[str]) -> None:
    """The example of the design, word for word, and one use of every form of a declaration."""
    assert [line for line in findings if "refused.py:" not in line] == []


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel, pytest and testcontainers."""
    place = tmp_path_factory.mktemp("typed")
    return install(f"{build(place).wheel}[testing,testing-containers]", place)


@pytest.mark.full
@pytest.mark.timeout(400)
def test_the_installed_wheel_has_types_for_mypy_and_pyright(installed: Path, tmp_path: Path) -> None:
    """Both strict, on the same files, in an environment with the wheel and pytest; each marks what is wrong."""
    files = tmp_path / "files"
    files.mkdir()
    for path in USERS:
        (files / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    (files / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    pyright: list[str | Path] = [second_checker() / "bin" / "pyright", "--pythonpath", installed, "."]
    mypy: list[str | Path] = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        tmp_path,
        "--python-executable",
        installed,
        ".",
    ]

    for command in (mypy, pyright):
        run(*command, cwd=files)
    (files / "wrong.py").write_text(WRONG, encoding="utf-8")
    for command in (mypy, pyright):
        done = subprocess.run(command, cwd=files, capture_output=True, text=True, check=False)
        assert {int(line) for line in re.findall(r"wrong\.py:(\d+):.*error", done.stdout)} == {5, 7}, done.stdout


PUBLIC = (
    *("cues_kafka", "cues_kafka.aio", "cues_kafka.effects", "cues_kafka.spark", "cues_kafka.targets"),
    "cues_kafka.testing",
)
"""The modules whose names users write."""


@pytest.mark.full
@pytest.mark.timeout(400)
def test_every_public_name_of_the_wheel_has_a_type_that_every_checker_knows(installed: Path, tmp_path: Path) -> None:
    """By `pyright --verifytypes`: declared, and not inferred, with all that its methods and attributes mention."""
    done = subprocess.run(
        [second_checker() / "bin" / "pyright", "--verifytypes", "cues_kafka", "--ignoreexternal", "--outputjson"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{installed.parent}{os.pathsep}{os.environ['PATH']}"},  # where it finds the wheel
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)["typeCompleteness"]
    known = {symbol["name"]: symbol["isTypeKnown"] for symbol in found["symbols"]}

    assert Path(found["packageRootDirectory"]).is_relative_to(installed.parents[1])
    for module in PUBLIC:
        for name in import_module(module).__all__:
            home = defined_in(module, name)
            assert home in known, f"{module}.{name} is not among the symbols of pyright"
            own = [one for one in known if one == home or one.startswith(f"{home}.")]
            assert [one for one in own if not known[one]] == [], f"{module}.{name}: see what pyright says of them"


def defined_in(module: str, name: str) -> str:
    """The full name of what a public module has under a name."""
    value = getattr(import_module(module), name)
    home, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, ModuleType):
        return value.__name__
    return f"{home}.{own}" if home and own and home.startswith("cues_kafka") else f"{module}.{name}"


def second_checker() -> Path:
    """The environment of pyright, made once. It has a Node of its own."""
    uv, place = ROOT / ".venv" / "bin" / "uv", ROOT / ".venv" / "pyright"
    if not (place / "bin" / "python").exists():
        run(uv, "venv", "--quiet", "--python", sys.executable, place, cwd=ROOT)
    locked: list[str | Path] = [
        "--no-deps",
        "--require-hashes",
        "--requirement",
        ROOT / ".ci" / "requirements" / "pyright.lock",
    ]
    run(uv, "pip", "install", "--quiet", "--python", place / "bin" / "python", *locked, cwd=ROOT)
    return place


@pytest.mark.timeout(300)
def test_wrong_user_code_is_marked_where_it_is(findings: list[str]) -> None:
    """Every line is refused, with an error of the expected kind, and no other line is."""
    first = HEADER.count("\n") + 1
    found = re.findall(r"refused\.py:(\d+): error: .*\[([a-z-]+)\]", "\n".join(findings))

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


def test_the_types_of_effects_are_those_of_what_functions_get() -> None:
    """Each method of a protocol is one of the object, with the same parameters."""
    pairs = [
        (effects.SqlSession, Database),
        (effects.RowWriter, RowsTable),
        (effects.KeyedRows, UpsertTable),
        (effects.Objects, PutFiles),
        (effects.HttpServer, HttpCalls),
        (effects.AsyncHttpServer, HttpCalls),
        (effects.MessagePublisher, Publishing),
        (effects.Destinations, BrokerSender),
        (effects.Destination, DestinationSender),
    ]
    for declared, given in pairs:
        for name, method in vars(declared).items():
            if not name.startswith("_"):
                own = inspect.signature(getattr(given, name)).parameters
                assert {*inspect.signature(method).parameters} == {*own}, f"{declared.__name__}.{name}"
    assert {name for name, one in vars(effects).items() if getattr(one, "_is_protocol", False)} - {"Protocol"} == {
        *(one.__name__ for one, _ in pairs),
        *("KeptOnce", "AsyncKeptOnce"),
    }
