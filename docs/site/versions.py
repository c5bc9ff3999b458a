"""Versions of the site: a folder for each, a page that lists them, and a script by which each page knows them all."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

from docs.site.index import ROOT

FILE: Final = "version.json"
"""In the folder of each version: what it is called, and which pages it has."""


def current() -> tuple[str, str]:
    """Version and label of the project as it is here: that of the newest heading of CHANGELOG.md."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## ((\d+\.\d+\.\d+\S*).*)$", text, re.MULTILINE)
    if found is None:
        raise LookupError("CHANGELOG.md has no heading with a version, such as `## 0.1.0`.")
    return found[2], found[1]


def describe(folder: Path, version: str, label: str) -> None:
    """Write what a built version is, for this and for later lists."""
    pages = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html"))
    (folder / FILE).write_text(json.dumps({"version": version, "label": label, "pages": pages}), encoding="utf-8")


def known(root: Path) -> list[dict[str, Any]]:
    """The versions of a site, the newest first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in root.glob(f"*/{FILE}")]
    return sorted(found, key=lambda one: Version(one["version"]), reverse=True)


def write_list(root: Path) -> None:
    """Write the page that lists the versions, and the script with the same list."""
    versions = known(root)
    script = json.dumps(versions, indent=1)
    (root / "versions.js").write_text(f"window.cuesKafkaVersions = {script};\n", encoding="utf-8")
    items = "\n".join(
        f'<li><a href="{one["version"]}/index.html">cues-kafka {html.escape(one["label"])}</a></li>' for one in versions
    )
    (root / "index.html").write_text(_PAGE.replace("ITEMS", items), encoding="utf-8")


_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>cues-kafka: documentation by version</title>
<style>
:root { color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.6; }
body { max-width: 40rem; margin: 3rem auto; padding: 0 1rem; }
</style>
</head>
<body>
<h1>cues-kafka</h1>
<p>Exactly-once processing of Kafka messages with plain Python functions. Choose a version:</p>
<ul>
ITEMS
</ul>
</body>
</html>
"""
