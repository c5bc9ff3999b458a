"""Graphviz draws what `cues-kafka topology` gives it."""

from __future__ import annotations

import os
import subprocess

from typer.testing import CliRunner

from cues_kafka.cli.main import app
from tests.servers.packages import Programs, unpacked

SHOP = "examples/shop.py:graph"
DOT = "usr/bin/dot"


def graphviz() -> tuple[Programs, dict[str, str]]:
    """Graphviz, ready to be called: it lists its plugins once, beside them."""
    programs = unpacked("graphviz", DOT)
    plugins = programs.newest("usr/lib/*/graphviz")
    environment = {**programs.environment, "GVBINDIR": str(plugins)}
    subprocess.run([programs.root / DOT, "-c"], env=environment, check=True)
    return programs, environment


def test_graphviz_draws_the_graph() -> None:
    """Each part of the graph is a node of the picture."""
    programs, environment = graphviz()
    path = os.pathsep.join((str((programs.root / DOT).parent), environment["PATH"]))
    drawn = CliRunner().invoke(app, ["topology", SHOP, "--svg"], env={**environment, "PATH": path})

    assert drawn.exit_code == 0, drawn.output
    assert "</svg>" in drawn.output
    assert drawn.output.count('class="node"') == 7
