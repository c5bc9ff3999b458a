"""The index of pages, docs/README.md, as data: the navigation of the site is made of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
INDEX: Final = ROOT / "docs" / "README.md"

_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#]+\.md)\)")


class Entry(NamedTuple):
    """A link of the navigation: what it says, and the page by its path in the repository."""

    text: str
    page: str


class Section(NamedTuple):
    """A heading of the index, and the pages below it in their order."""

    title: str
    entries: tuple[Entry, ...]


def sections(text: str | None = None) -> list[Section]:
    """
    The sections of the index.

    Each line names one page: its first link. A page that two sections name is in the navigation twice.

    Args:
        text: an index; None: that of the project.
    """
    parts = re.split(r"^## (.*)$", INDEX.read_text(encoding="utf-8") if text is None else text, flags=re.MULTILINE)
    return [
        Section(title, tuple(entry for line in body.splitlines() if (entry := _entry(line))))
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    ]


def _entry(line: str) -> Entry | None:
    """The page of one line; None: the line names none."""
    link = _LINK.search(line) if line.startswith(("- ", "| ")) else None
    return Entry(link[1], str((INDEX.parent / link[2]).resolve().relative_to(ROOT))) if link else None
