"""MODULE:GRAPH and FILE.toml, and what is said when they name no graph."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cues_kafka.cli.loading import load_graph
from cues_kafka.errors import ConfigError, GraphError

SHOP = """
from __future__ import annotations
from dataclasses import dataclass
from cues_kafka import Graph, Json, Processor, Source, Topic

@dataclass(frozen=True)
class Order:
    id: str

def check(order: Order) -> Order | None:
    return order

shop = Graph("shop", Source("orders"), Processor(check, inputs="orders", outputs="checked"),
             defaults=Topic(value=Json(Order)))
number = 7
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with modules, and a module path of its own."""
    (tmp_path / "loading_shop.py").write_text(SHOP)
    (tmp_path / "loading_package").mkdir()
    (tmp_path / "loading_package" / "inner.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    "target",
    ["loading_shop:shop", "loading_package.inner:shop", "loading_shop.py:shop", "loading_package/inner.py:shop"],
)
def test_modules_and_paths_are_loaded_from_the_working_directory(target: str) -> None:
    """All four ways to write it."""
    assert load_graph(target).name == "shop"


def test_a_file_finds_the_modules_beside_it(place: Path) -> None:
    """As `python path/to/file.py` would."""
    (place / "loading_package" / "outer.py").write_text("from inner import shop as graph")

    assert load_graph("loading_package/outer.py:graph").name == "shop"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("loading_shop", "Write MODULE:GRAPH"),
        (":shop", "Write MODULE:GRAPH"),
        ("loading_shop:", "Write MODULE:GRAPH"),
        ("no_such_module:graph", "there is no module 'no_such_module'"),
        ("loading_package.other:graph", "there is no module 'loading_package.other'"),
        ("missing.py:graph", "there is no file 'missing.py'"),
        ("./loading_shop:shop", "Did you mean loading_shop.py"),
        ("loading_shop:shup", "Did you mean 'shop'"),
        ("loading_shop:zzz", "Graphs in it: shop"),
        ("loading_shop:number", "is an int, not a Graph"),
    ],
)
def test_what_cannot_be_loaded_is_named_with_a_remedy(target: str, words: str) -> None:
    """No traceback is needed to understand it."""
    with pytest.raises(ConfigError, match=words):
        load_graph(target)


@pytest.mark.parametrize("target", ["loading_bad:graph", "loading_bad.py:graph"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import not_installed_anywhere", "ModuleNotFoundError: No module named 'not_installed_anywhere' at .*:1"),
        ("x = 1\ny = x / 0", "ZeroDivisionError: division by zero at .*loading_bad.py:2\n    y = x / 0$"),
        ("import json\njson.loads('[')", "JSONDecodeError: .* at .*loading_bad.py:2\n    json.loads"),
        ("import ast\n\ntree = ast.parse('a b')", "SyntaxError: .* at .*loading_bad.py:3\n    tree = ast.parse"),
        ("from cues_kafka import Nothing", "ImportError: .* at .*loading_bad.py:1\n    from cues_kafka import Nothing"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_a_module_that_fails_is_named_with_the_line(place: Path, target: str, text: str, words: str) -> None:
    """The user's line, not ours."""
    (place / "loading_bad.py").write_text(text)

    with pytest.raises(ConfigError, match=words):
        load_graph(target)


def test_a_wrong_declaration_stays_the_graph_error_that_it_is(place: Path) -> None:
    """Its text names the fix already."""
    (place / "loading_bad.py").write_text("from cues_kafka import Graph\ngraph = Graph('no name')")

    with pytest.raises(GraphError):
        load_graph("loading_bad:graph")


def test_a_syntax_error_names_the_users_line(place: Path) -> None:
    """Not the line of the module that imports it."""
    (place / "loading_wrong.py").write_text("a = 1\n\ndef broken(:\n")
    for target in ("loading_wrong.py:g", "loading_wrong:g"):
        with pytest.raises(ConfigError, match=r"SyntaxError: .* at .*loading_wrong\.py:3\n    def broken\(:$"):
            load_graph(target)


# Files


TOML = """
version = 1
name = "shop"
defaults = { value = { kind = "json", cls = "loading_shop:Order" } }
parts = [
    { source = "orders" },
    { processor = "check", fn = "loading_shop:check", inputs = "orders", outputs = "checked" },
]
"""

SEVERAL = """
version = 1
[eu]
parts = [{ source = "eu.orders", default = true }]
[us]
name = "america"
parts = [{ source = "us.orders" }]
[us.topics."us.orders"]
transient = "7 days"
[notes]
owner = "ann"
"""


def test_a_file_holds_the_same_graph_as_a_module(place: Path) -> None:
    """The modules that it names are looked for beside it, whatever the working directory is."""
    below = place / "loading_package"
    (place / "shop.toml").write_text(TOML)
    (below / "inner.toml").write_text(TOML.replace("loading_shop", "inner"))

    assert load_graph("shop.toml") == load_graph("./shop.toml:shop") == load_graph("loading_shop:shop")
    assert load_graph("loading_package/inner.py:shop") == load_graph("loading_package/inner.toml")
    assert load_graph(str(below / "inner.toml")).processors["check"].outputs == (("output", "checked"),)


def test_a_file_may_hold_several_graphs(place: Path) -> None:
    """Each in a table, under whose name it is asked for; other tables are notes."""
    (place / "shops.toml").write_text(SEVERAL)

    assert load_graph("shops.toml:eu").name == "eu"
    assert load_graph("shops.toml:us").name == "america"
    assert load_graph("shops.toml:us").topic("us.orders").config["retention.ms"] == "604800000"


def test_the_example_is_the_one_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """examples/shop.toml says what examples/shop.py does."""
    monkeypatch.chdir(Path(__file__).parents[3])

    assert load_graph("examples/shop.py:graph") == load_graph("examples/shop.toml")


@pytest.mark.parametrize(
    ("target", "text", "words"),
    [
        ("missing.toml", "", "there is no file 'missing.toml'. Looked in"),
        ("loading_shop.toml", None, "Did you mean loading_shop.py"),
        ("a.toml", "version = ", r"a.toml is not valid TOML: .*at end of document"),
        ("a.toml", "", r'a.toml has no graph. Write version = 1, name = "shop"'),
        ("a.toml", "[kafka]\nbootstrap = 'b:1'", "has no graph"),
        ("a.toml", SEVERAL, "has several graphs. Write a.toml:NAME; names: eu, us"),
        ("a.toml:euu", SEVERAL, "has no graph 'euu'. Did you mean 'eu'"),
        ("a.toml:zzz", SEVERAL, "has no graph 'zzz'. Graphs in it: eu, us"),
        ("a.toml:shup", TOML, "has no graph 'shup'. Did you mean 'shop'"),
        ("a.toml", "parts = [{ source = 'a' }]", "version 1 .* not None. Write version = 1"),
        ("a.toml", TOML.replace("outputs", "output"), "a.toml: .*no setting 'output' .did you mean 'outputs'"),
        ("a.toml", TOML.replace(":check", ":chek"), "a.toml: 'loading_shop:chek' cannot be imported"),
        ("a.toml", TOML.replace("loading_shop:check", "nowhere:check"), "'nowhere:check' cannot be imported"),
        ("a.toml", TOML.replace("loading_shop:check", "loading_bad:fn"), "what a.toml names .* at .*loading_bad.py:1"),
        ("a.toml", TOML.replace('"orders" }', '"or/ders" }'), "a.toml: Source: 'or/ders' is not a valid topic name"),
    ],
)
def test_a_file_that_holds_no_graph_is_named_with_a_remedy(
    place: Path, target: str, text: str | None, words: str
) -> None:
    """With the file, and where Python failed, with the user's line."""
    (place / "loading_bad.py").write_text("x = 1 / 0")
    if text is not None and not target.startswith("missing"):
        (place / target.partition(":")[0]).write_text(text)

    with pytest.raises((ConfigError, GraphError), match=words):
        load_graph(target)


def test_a_file_that_is_no_text_is_named(place: Path) -> None:
    """It is UTF-8."""
    (place / "a.toml").write_bytes(b"name = '\xff'")

    with pytest.raises(ConfigError, match=r"a.toml is not valid TOML"):
        load_graph("a.toml")


def test_file_that_python_cannot_load_is_refused_by_its_name(place: Path) -> None:
    """Python goes by the ending."""
    (place / "shop.txt").write_text(SHOP)
    with pytest.raises(ConfigError, match=r"'shop.txt' is not a Python file: .* ends with .py"):
        load_graph("./shop.txt:shop")
