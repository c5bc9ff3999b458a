"""``cues-kafka topology``: one picture at a time, and SVG where Graphviz is."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from typer.testing import CliRunner, Result

from cues_kafka.cli.main import app

SHOP = "examples/shop.py:graph"

GRAPHVIZ = """#!/bin/sh
# As Graphviz answers, for a machine without it: the arguments, and what came in.
[ "$1" = -Tsvg ] && [ $# = 1 ] || exit 9
echo "<svg>"
cat
"""


def topology(*options: str, path: Path | None = None) -> Result:
    """Run the command; the programs are those of one directory, if it is given."""
    return CliRunner().invoke(app, ["topology", SHOP, *options], env={"PATH": str(path)} if path else None)


def program(directory: Path, text: str) -> Path:
    """A directory with a program `dot`."""
    (directory / "dot").write_text(text)
    (directory / "dot").chmod(stat.S_IRWXU)
    return directory


def test_each_option_prints_its_picture(tmp_path: Path) -> None:
    """Without one, a tree; its lines are never cut off."""
    tree = CliRunner().invoke(app, ["topology", SHOP], env={"COLUMNS": "20"})

    assert "└── shop.errors (errors of all processors)" in tree.output.splitlines()
    assert topology("--mermaid").output.startswith("flowchart LR\n")
    assert topology("--dot").output.startswith('digraph "shop" {\n')
    assert json.loads(topology("--json").output)["order"] == ["orders", "check", "route"]


def test_svg_is_drawn_by_graphviz(tmp_path: Path) -> None:
    """It gets what --dot prints."""
    path = f"{program(tmp_path, GRAPHVIZ)}:/usr/bin:/bin"
    drawn = CliRunner().invoke(app, ["topology", SHOP, "--svg"], env={"PATH": path})

    assert drawn.exit_code == 0
    assert drawn.output == "<svg>\n" + topology("--dot").output


def test_svg_without_graphviz_says_how_to_install_it(tmp_path: Path) -> None:
    """As a wrong setting, with the pictures that need nothing."""
    refused = topology("--svg", path=tmp_path)

    assert refused.exit_code == 2
    assert "apt-get install graphviz" in refused.output
    assert "--mermaid" in refused.output


def test_a_graphviz_that_fails_is_shown_with_its_words(tmp_path: Path) -> None:
    """As where its libraries are missing."""
    path = program(tmp_path, "#!/bin/sh\necho 'no plugin for svg' >&2; exit 3\n")
    refused = topology("--svg", path=path)

    assert refused.exit_code == 2
    assert "dot ended with 3: no plugin for svg" in refused.output


def test_two_pictures_at_a_time_are_refused() -> None:
    """Before anything is loaded."""
    refused = CliRunner().invoke(app, ["topology", "missing:graph", "--svg", "--json"])

    assert refused.exit_code == 2
    assert "--svg and --json: one picture at a time" in refused.output
