"""The packages of the extras, and the error about one that is not installed."""

from __future__ import annotations

import ast
import pickle
import sys
from collections.abc import Iterable

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cues_kafka import (
    ConfigError,
    Feed,
    Graph,
    Iterate,
    Kafka,
    Memory,
    Message,
    MissingExtra,
    Processor,
    Source,
    Sql,
    start,
)
from cues_kafka.extras import LMDB, PACKAGES, PSYCOPG, SPARK, Package, install, missing, package_of, require
from cues_kafka.graph.feed import ReplayableSource
from cues_kafka.graph.packages import packages_of
from tests.install.extras import ROOT, project


def test_each_package_is_brought_by_its_extra() -> None:
    """Under the name that pyproject.toml has."""
    extras = project()["optional-dependencies"]
    for package in PACKAGES:
        brought = {canonicalize_name(Requirement(text).name) for text in extras[package.extra]}
        assert canonicalize_name(package.name) in brought | {"opentelemetry-api"}, package


def test_an_error_names_all_packages_and_one_command() -> None:
    """A package that two declarations need comes once."""
    with pytest.MonkeyPatch.context() as patch:
        for package in (PSYCOPG, LMDB):
            patch.setitem(sys.modules, package.module, None)
        with pytest.raises(MissingExtra) as raised:
            require("graph 'g'", [PSYCOPG, LMDB, PSYCOPG])

    assert str(raised.value) == (
        "graph 'g' needs psycopg and lmdb, which are not installed here: pip install 'cues-kafka[disk,postgres]'"
    )


def test_the_error_is_one_of_settings_and_one_of_imports() -> None:
    """It has the module's name, and reaches another process as it is."""
    error = pickle.loads(pickle.dumps(missing("X", PSYCOPG)))

    assert isinstance(error, ConfigError)
    assert isinstance(error, ImportError)
    assert str(error) == "X needs psycopg, which is not installed here: pip install 'cues-kafka[postgres]'"
    assert missing("X", *SPARK).name == "pyspark"


def test_a_package_that_is_installed_and_cannot_be_imported_is_told_with_the_reason() -> None:
    """In one sentence, also where the reason has lines. One that is absent is told as absent."""
    broken = ImportError("no wrapper\nof libpq")

    assert str(missing("X", Package("testing", "pytest", "pytest"), error=broken)) == (
        "X needs pytest, which cannot be imported here (no wrapper of libpq): pip install 'cues-kafka[testing]'"
    )
    assert str(missing("X", Package("y", "no-such", "no_such"), error=broken)) == (
        "X needs no-such, which is not installed here: pip install 'cues-kafka[y]'"
    )


def test_no_error_about_a_package_brings_the_traceback_of_the_import() -> None:
    """The sentence says all of it."""
    chained = [
        f"{path.name}:{node.lineno}"
        for path in (ROOT / "cues_kafka").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and ast.unparse(node.exc.func) == "missing"
        if node.cause is not None and ast.unparse(node.cause) != "None"
    ]

    assert chained == []


def test_a_module_tells_its_extra() -> None:
    """Those that only an extra brings; pandas is what many programs import for themselves."""
    assert [found.extra for name in ("psycopg.sql", "google.protobuf", "pyspark") if (found := package_of(name))] == [
        "postgres",
        "protobuf",
        "spark",
    ]
    assert [package_of(name) for name in ("pandas", "os", None)] == [None, None, None]
    assert install("b", "a", "b") == "pip install 'cues-kafka[a,b]'"


def test_a_start_refuses_what_is_not_installed_before_it_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what runs here counts, and an address in the environment counts too."""

    def row(message: object, db: object) -> None: ...
    def passed(message: object) -> object: ...

    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setenv("SHOP_DB", "postgresql://u@h/d")
    parts = (Processor(row, inputs="a", effects={"db": Sql(env="SHOP_DB")}), Processor(passed, inputs="a", outputs="b"))
    graph = Graph("g", Source("a"), *parts)

    with pytest.raises(MissingExtra, match=r"graph 'g' needs psycopg, .*\[postgres\]"):
        start(graph, Memory())
    assert not [*packages_of(graph, ["passed"])]
    monkeypatch.delenv("SHOP_DB")
    assert not [*packages_of(graph)]


def test_packages_are_looked_for_before_topics_that_match_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look for topics connects, and nothing is at this address."""

    def row(message: object, db: object) -> None: ...

    monkeypatch.setitem(sys.modules, "psycopg", None)
    effects = {"db": Sql("postgresql://u@h/d")}
    graph = Graph("g", Source("a", pattern="a[.].+"), Processor(row, inputs="a", effects=effects))

    with pytest.raises(MissingExtra, match=r"graph 'g' needs psycopg, .*\[postgres\]"):
        start(graph, Kafka("127.0.0.1:1"))


def test_a_source_of_a_users_own_may_name_its_packages() -> None:
    """As those of the bridges do; another attribute of that name is left alone."""

    class Own:
        def parts(self) -> int:
            return 1

        def read(self, part: int, place: str | None, limit: int) -> Iterable[tuple[Message[int], str]]:
            return ()

        def packages(self) -> tuple[Package, ...]:
            return (PSYCOPG,)

    class Other(Own):
        packages = ["crate", "box"]  # type: ignore[assignment]  # noqa: RUF012

    sources: list[ReplayableSource] = [Own(), Other(), Iterate(lambda: iter(()))]

    assert [Feed(source, "a").packages() for source in sources] == [(PSYCOPG,), (), ()]
