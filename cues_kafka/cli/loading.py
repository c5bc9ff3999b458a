"""From `MODULE:GRAPH` to a graph: ``shop:graph``, ``package.shop:graph``, ``path/shop.py:graph``; or ``shop.toml``."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import sysconfig
import tomllib
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from cues_kafka.errors import ConfigError, CuesError, GraphError
from cues_kafka.extras import install, package_of
from cues_kafka.graph.definition import Graph
from cues_kafka.words import article

if TYPE_CHECKING:
    from cues_kafka.cli.config import ClusterOptions
    from cues_kafka.ports.broker import Broker

WRITTEN: Final = ".toml"
"""How the names of files end that hold graphs as data."""


@contextmanager
def opened(target: str, cluster: ClusterOptions) -> Iterator[tuple[Graph, Broker]]:
    """The graph that a command was given, and a client of its cluster, closed at the end."""
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.task.making.patterns import on_cluster

    graph = load_graph(target)
    with closing(open_broker(cluster.kafka())) as broker:
        yield on_cluster(graph, broker), broker


def with_topics_of_patterns(graph: Graph, cluster: ClusterOptions) -> Graph:
    """The graph with the topics of its patterns, where a cluster tells them; else a line says that it does not."""
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.cli.printing import say
    from cues_kafka.errors import BrokerError
    from cues_kafka.task.making.patterns import on_cluster

    if not graph.patterns:
        return graph
    try:
        with closing(open_broker(cluster.kafka())) as broker:
            return on_cluster(graph, broker)
    except (BrokerError, ConfigError) as error:
        named = ", ".join(f"{name} ({source.pattern})" for name, source in graph.patterns.items())
        say(f"Topics of patterns are not looked up: {error}. Each name stands for all that match: {named}.", err=True)
        return graph


def load_graph(target: str) -> Graph:
    """
    Import a module and take a graph out of it, or read a graph from a TOML file.

    A path is imported as ``python path/shop.py`` would do it, with its directory first on the module path; a module is
    looked for in the working directory too. A TOML file holds what `Graph.from_dict` reads; the modules that it names
    are looked for in its directory.

    Args:
        target: MODULE:GRAPH, FILE.toml, or FILE.toml:NAME.

    Raises:
        ConfigError: the module or file or the graph in it is not there, or it fails; the text says where.
        GraphError: the declaration contradicts itself.
    """
    module_name, colon, name = target.rpartition(":")
    if target.endswith(WRITTEN):
        return _from_toml(Path(target), None)
    if module_name.endswith(WRITTEN):
        return _from_toml(Path(module_name), name)
    if not (colon and module_name and name):
        raise ConfigError(
            f"{target!r} names no graph. Write MODULE:GRAPH: shop:graph, or path/shop.py:graph; or a file: shop.toml."
        )
    is_path = module_name.endswith(".py") or "/" in module_name
    module = _from_path(Path(module_name)) if is_path else _from_module(module_name)
    return _graph_of(module, name, target)


def _from_toml(path: Path, name: str | None) -> Graph:
    """
    Read a graph from a file that has one, or from one of its tables.

    A file of several graphs has a table for each: its name is that of the graph, unless it has a `name` of its own.
    """
    _check_file(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. Let this user read it.") from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigError(f"{path} is not valid TOML: {error}. Correct the file.") from error
    graphs = {str(data.get("name")): data} if "parts" in data else _tables(data)
    if not graphs:
        raise ConfigError(f'{path} has no graph. Write version = 1, name = "shop" and [[parts]] into it.')
    if name is None and len(graphs) > 1:
        raise ConfigError(f"{path} has several graphs. Write {path}:NAME; names: {', '.join(graphs)}.")
    if name is not None and name not in graphs:
        near = difflib.get_close_matches(name, graphs, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else f" Graphs in it: {', '.join(graphs)}."
        raise ConfigError(f"{path} has no graph {name!r}.{hint}")
    _look_in(path.parent.resolve())
    try:
        return Graph.from_dict(graphs[name] if name is not None else next(iter(graphs.values())))
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error
    except Exception as error:
        raise _failed(f"what {path} names", error) from error


def _tables(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The graphs of a file, by the names of their tables; the version may stand once, at the top."""
    shared = {"version": data["version"]} if "version" in data else {}
    return {
        key: {"name": key, **shared, **table}
        for key, table in data.items()
        if isinstance(table, dict) and "parts" in table
    }


def _check_file(path: Path) -> None:
    if not path.is_file():
        near = path.with_suffix(".py")
        remedy = f"Did you mean {near}?" if near != path and near.is_file() else f"Looked in {Path.cwd()}."
        raise ConfigError(f"there is no file {str(path)!r}. {remedy}")


def _from_path(path: Path) -> ModuleType:
    _check_file(path)
    _look_in(path.parent.resolve())
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise ConfigError(f"{str(path)!r} is not a Python file: Python loads a module from a file that ends with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and annotations look their module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[path.stem]
        raise _failed(str(path), error) from error
    return module


def _from_module(name: str) -> ModuleType:
    _look_in(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise _failed(name, error) from error  # the module is there, something that it imports is not
        path = Path(*name.split(".")).with_suffix(".py")
        raise ConfigError(
            f"there is no module {name!r}. Run it from the directory that holds {path}, or give the path: {path}:..."
        ) from None
    except Exception as error:
        raise _failed(name, error) from error


def _look_in(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _failed(what: str, error: BaseException) -> BaseException:
    """The error of a module that fails, with the line of the user's that failed last."""
    if isinstance(error, CuesError) or not isinstance(error, Exception):
        return error
    text = str(error)
    place: tuple[str, int | None, str | None] | None = None
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_file():
        text, place = error.msg, (error.filename, error.lineno, error.text)  # the frames are those of the import
    elif frames := [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]:
        last = next((f for f in reversed(frames) if _is_the_users(f.filename)), frames[-1])
        place = last.filename, last.lineno, last.line
    if place is None:
        return ConfigError(f"{what} cannot be imported: {type(error).__name__}: {text}")
    file, number, line = place
    package = package_of(error.name) if isinstance(error, ModuleNotFoundError) else None
    remedy = f". An extra brings it: {install(package.extra)}" if package else ""
    shown = f"\n    {line.strip()}" if line and line.strip() else ""
    return ConfigError(f"{what} cannot be imported: {type(error).__name__}: {text} at {file}:{number}{remedy}{shown}")


def _is_the_users(file: str) -> bool:
    """Whether a file is neither of a library nor of Python nor of this package."""
    others = {*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")), str(Path(__file__).parents[1])}
    return Path(file).is_file() and not any(Path(file).is_relative_to(place) for place in others)


def _graph_of(module: ModuleType, name: str, target: str) -> Graph:
    found = getattr(module, name, None)
    if isinstance(found, Graph):
        return found
    graphs = sorted(key for key, value in vars(module).items() if isinstance(value, Graph))
    if found is not None:
        raise ConfigError(f"{target!r} is {article(type(found).__name__)}, not a Graph.{_choices(graphs)}")
    near = difflib.get_close_matches(name, graphs, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else _choices(graphs)
    raise ConfigError(f"{module.__name__!r} has no {name!r}.{hint}")


def _choices(graphs: list[str]) -> str:
    return f" Graphs in it: {', '.join(graphs)}." if graphs else " There is no Graph in it."
