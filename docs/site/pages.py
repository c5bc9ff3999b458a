"""The pages as the generator reads them: copies whose links lead to each other, and a page for each linked file."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from docs.site.index import ROOT, sections

NAMES: Final = {
    "README.md": "index",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "docs/README.md": "pages",
}
"""By path in the repository, the name in the site of pages that have another one there."""

LANGUAGES: Final = {".py": "python", ".yml": "yaml", ".yaml": "yaml", ".json": "json", ".toml": "toml", ".sh": "sh"}
"""By suffix, how a file is highlighted; others are plain text."""

PICTURES: Final = (".png", ".svg")
"""Suffixes of files that a page shows as pictures."""

_CODE: Final = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")


class MissingTarget(Exception):
    """A page links to something that is not there, or that the site cannot show."""


def pages() -> dict[str, str]:
    """By path in the repository, the name in the site of each page."""
    below = sorted((ROOT / "docs").rglob("*.md"))
    found = {str(path.relative_to(ROOT)): str(path.relative_to(ROOT / "docs").with_suffix("")) for path in below}
    return found | NAMES


def stage(into: Path) -> None:
    """
    Write all pages.

    Args:
        into: a folder, which is emptied first.

    Raises:
        MissingTarget: a link leads nowhere.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    known, files = pages(), set[str]()
    named = {entry.page for section in sections() for entry in section.entries}
    for page, name in known.items():
        text = linked((ROOT / page).read_text(encoding="utf-8"), page, known, files)
        if page not in named | {"README.md", "docs/README.md"}:
            text = f"---\norphan: true\n---\n{text}"
        target = into / f"{name}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + (navigation(known) if name == "index" else ""), encoding="utf-8")
    for file in sorted(files):
        _show(file, into / "source" / file)


def linked(text: str, page: str, known: dict[str, str], files: set[str]) -> str:
    """
    A page with links that hold in the site.

    Args:
        text: what it says.
        page: its path in the repository.
        known: by path, the name of each page in the site.
        files: gets each file of the repository that is no page, and that the page links to.
    """

    def target(link: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join(os.path.dirname(page), link[1]))  # noqa: PTH118, PTH120 - no file, a text
        if path in known:
            return f"](/{known[path]}.md{link[2] or ''})"
        if not (ROOT / path).is_file():
            raise MissingTarget(f"{page} links to {link[1]}, which is no file. Name a file, or take the link out.")
        files.add(path)
        return f"](/source/{path})" if path.endswith(PICTURES) else f"](/source/{path}.rst)"

    return _outside_of_code(text, lambda prose: _LINK.sub(target, prose))


def _outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """A text whose code stays as it is."""

    def parts() -> Iterator[str]:
        end = 0
        for code in _CODE.finditer(text):
            yield change(text[end : code.start()])
            yield code[0]
            end = code.end()
        yield change(text[end:])

    return "".join(parts())


def navigation(known: dict[str, str]) -> str:
    """The navigation of the site, for its first page: the index, section by section, and the reference of the API."""
    text = "\n"
    for section in sections():
        names = ((entry.text, known[entry.page]) for entry in section.entries)
        lines = [f"{title} <{'self' if name == 'index' else name}>" for title, name in names]
        lines += ["All pages <pages>"] if "self" in lines[0] else []
        text += _toctree(section.title, lines)
    return text + _toctree("API reference", ["By name <reference/index>"])


def _toctree(caption: str, lines: list[str]) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *lines, "```", ""])


def _show(file: str, target: Path) -> None:
    """One file, and a page that shows it unless it is a picture."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / file, target)
    if file.endswith(PICTURES):
        return
    lines = [
        ":orphan:",
        "",
        file,
        "=" * len(file),
        "",
        f":download:`Download this file <{target.name}>`.",
        "",
        f".. literalinclude:: {target.name}",
        f"   :language: {LANGUAGES.get(target.suffix, 'text')}",
        "",
    ]
    target.with_name(f"{target.name}.rst").write_text("\n".join(lines), encoding="utf-8")
