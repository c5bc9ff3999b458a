"""``cues-kafka topology``: a graph as a picture."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Annotated

import typer

from cues_kafka.cli.options import Target
from cues_kafka.errors import ConfigError

if TYPE_CHECKING:
    from rich.tree import Tree

    from cues_kafka.graph.definition import Graph
    from cues_kafka.graph.pictures import Branch

epilog = """
\b
Examples:
  cues-kafka topology shop:graph
  # for a page on GitHub, GitLab or MkDocs
  cues-kafka topology path/shop.py:graph --mermaid
  cues-kafka topology shop:graph --svg > shop.svg
  cues-kafka topology shop:graph --dot | dot -Tpdf -o shop.pdf
  cues-kafka topology shop:graph --json | jq .order

Needs no cluster. Exits with 2 if the graph is wrong, or for --svg if Graphviz
is not installed.
"""


def topology(
    target: Target,
    *,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a flowchart in Mermaid.")] = False,
    as_dot: Annotated[bool, typer.Option("--dot", help="Print DOT, the language of Graphviz.")] = False,
    as_svg: Annotated[bool, typer.Option("--svg", help="Print SVG. Needs Graphviz's program dot.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print nodes, edges, order, cycles and so on.")] = False,
) -> None:
    """
    Draw a graph: topics, processors, and what they act on.

    Prints a tree that follows the messages, from where they enter.
    """
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.graph import pictures

    given = {"--mermaid": as_mermaid, "--dot": as_dot, "--svg": as_svg, "--json": as_json}
    chosen = [name for name, wanted in given.items() if wanted]
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(chosen)}: one picture at a time. Give one of them.")
    graph = load_graph(target)
    match chosen:
        case ["--mermaid"]:
            typer.echo(pictures.mermaid(graph))
        case ["--dot"]:
            typer.echo(pictures.dot(graph))
        case ["--svg"]:
            typer.echo(svg(graph))
        case ["--json"]:
            typer.echo(json.dumps(pictures.to_data(graph), indent=2))
        case _:
            _show(pictures.tree(graph))


def svg(graph: Graph) -> str:
    """
    The graph as SVG, drawn by Graphviz.

    Raises:
        ConfigError: there is no Graphviz, or it fails.
    """
    from cues_kafka.graph.pictures import dot

    program = shutil.which("dot")
    if program is None:
        raise ConfigError(
            "--svg needs Graphviz, and its program dot is not on PATH. Install it (Debian, Ubuntu: apt-get install "
            "graphviz; macOS: brew install graphviz), or take --mermaid, which needs nothing."
        )
    done = subprocess.run([program, "-Tsvg"], input=dot(graph), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(
            f"{program} ended with {done.returncode}: {done.stderr.strip():.500}. Look whether `{program} -V` works, "
            "or take --mermaid."
        )
    return done.stdout.rstrip()


def _show(root: Branch) -> None:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    def grow(branch: Branch, below: Tree) -> Tree:
        for one in branch.below:
            grow(one, below.add(Text(one.text)))
        return below

    # A terminal wraps what is too wide; rich would cut it off.
    Console(highlight=False, width=10_000).print(grow(root, Tree(Text(root.text))))
